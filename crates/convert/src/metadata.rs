//! Metadata on their way into a file, as whoever opens the file will see them.

use std::sync::Arc;

use atta_formats::{Contents, Metadata, Writer};

use crate::Error;

/// What a reader will find of what is written.
pub(crate) fn parsed(writer: &Writer) -> Result<Metadata, Error> {
    Ok(file(writer.clone())?.metadata)
}

/// The file that a reader will find, its tensors included.
pub(crate) fn file(writer: Writer) -> Result<Contents, Error> {
    let layout = writer.finish()?;
    Ok(Contents::parse(Arc::new(layout.header), layout.file_bytes)?)
}

//! Serializes metadata and parses it again, to see it as a reader of the file will.

use std::sync::Arc;

use atta_formats::{Contents, Metadata, Writer};

use crate::Error;

/// The metadata that a reader of the file will see.
pub(crate) fn parsed(writer: &Writer) -> Result<Metadata, Error> {
    Ok(file(writer.clone())?.metadata)
}

/// The header that a reader of the file will see, tensor infos included.
pub(crate) fn file(writer: Writer) -> Result<Contents, Error> {
    let layout = writer.finish()?;
    Ok(Contents::parse(Arc::new(layout.header), layout.file_bytes)?)
}

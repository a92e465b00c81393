//! Files packed as bytes: `.tar.gz`, or `.zip` for Windows.
//!
//! It refuses to read files or the clock. The one idea: owners, times and order are constants, so
//! the bytes depend on the entries alone.

use super::options::ArchiveFormat;
use anyhow::Result;
use flate2::{Compression, GzBuilder};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

/// 1980-01-01, the first date that both formats have, in seconds since 1970.
const MODIFIED: u64 = 315_532_800;
/// The system in the header of a gzip file: unknown.
const UNKNOWN_SYSTEM: u8 = 255;

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// In the archive, with `/`.
    pub(super) path: String,
    /// Permissions, such as 0o644.
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// Packs `entries`, in the order of their paths.
pub(super) fn pack(entries: &[Entry], format: ArchiveFormat) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    match format {
        ArchiveFormat::TarGz => tar_gz(&sorted),
        ArchiveFormat::Zip => zip(&sorted),
    }
}

fn tar_gz(entries: &[&Entry]) -> Result<Vec<u8>> {
    let gzip = GzBuilder::new()
        .operating_system(UNKNOWN_SYSTEM)
        .write(Vec::new(), Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(MODIFIED);
        tar.append_data(&mut header, &entry.path, entry.bytes.as_slice())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

fn zip(entries: &[&Entry]) -> Result<Vec<u8>> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        // zip's first date is the same as `MODIFIED`.
        let options = SimpleFileOptions::default()
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(entry.mode);
        zip.start_file(entry.path.as_str(), options)?;
        zip.write_all(&entry.bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn entry(path: &str, mode: u32) -> Entry {
        Entry {
            path: path.to_owned(),
            mode,
            bytes: path.repeat(100).into_bytes(),
        }
    }

    fn entries() -> [Entry; 2] {
        [entry("atta-t/b", 0o755), entry("atta-t/a", 0o644)]
    }

    #[test]
    fn the_order_of_entries_changes_no_byte() {
        let mut reversed = entries();
        reversed.reverse();
        for format in [ArchiveFormat::TarGz, ArchiveFormat::Zip] {
            let bytes = pack(&entries(), format).unwrap();
            assert_eq!(bytes, pack(&reversed, format).unwrap(), "{format:?}");
        }
    }

    #[test]
    fn a_tar_file_holds_names_permissions_and_bytes() {
        let bytes = pack(&entries(), ArchiveFormat::TarGz).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let read = tar.entries().unwrap().map(|file| {
            let mut file = file.unwrap();
            let header = file.header().clone();
            assert_eq!(header.mtime().unwrap(), MODIFIED);
            assert_eq!(header.uid().unwrap(), 0);
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            Entry {
                path: file.path().unwrap().to_string_lossy().into_owned(),
                mode: header.mode().unwrap(),
                bytes,
            }
        });
        let mut expected = entries();
        expected.reverse();
        assert_eq!(read.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_zip_file_holds_names_and_bytes_without_a_time() {
        let bytes = pack(&entries(), ArchiveFormat::Zip).unwrap();
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        assert_eq!(zip.len(), 2);
        let mut file = zip.by_name("atta-t/b").unwrap();
        assert_eq!(file.last_modified(), Some(zip::DateTime::default()));
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "atta-t/b".repeat(100));
    }
}

//! Reads PyTorch checkpoints: `pytorch_model.bin`, `consolidated.00.pth`, and other state dicts
//! saved by `torch.save`.
//!
//! Such a file is a zip archive: `data.pkl` is a pickle that builds tensors from the files in
//! `data`. The unpickler here can do nothing else (`unpickler.rs`), and globals that are not on an
//! allowlist are refused (`global.rs`).
//!
//! Source: `torch/serialization.py`; the format is that of PyTorch 1.6 and later.

mod global;
mod unpickler;
mod zip;

use std::{ops::Range, path::Path, sync::Arc};

use atta_formats::SharedBytes;
use atta_store::MappedFile;

use crate::{
    Error, git_lfs,
    raw::{RawTensor, RawTensors},
    safetensors,
};
use unpickler::TensorView;

/// The longest pickle. That of a model with 100,000 tensors has 12 MB.
const MAX_PICKLE: usize = 64 << 20;

/// Opens one file.
///
/// # Errors
/// [`Error::Io`], and [`Error::File`] for the errors of [`parse`].
pub fn open(path: &Path) -> Result<RawTensors, Error> {
    let file = MappedFile::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let file = Arc::new(file);
    git_lfs::refuse_pointer(path, (*file).as_ref())?;
    let mut all = RawTensors::default();
    for tensor in parse(file.clone()).map_err(|why| Error::File {
        path: path.to_owned(),
        why,
    })? {
        all.add(tensor)?;
    }
    all.files.push((path.to_owned(), file));
    Ok(all)
}

/// Opens all shards of a `pytorch_model.bin.index.json`, which are in the directory of the index.
///
/// # Errors
/// Those of [`open`] and of [`safetensors::open_sharded`], whose index has the same format.
pub fn open_sharded(index: &Path) -> Result<RawTensors, Error> {
    safetensors::open_shards(index, open)
}

/// Parses a file.
///
/// # Errors
/// A message, if the file is no archive of `torch.save`, if the pickle would call anything else or
/// builds anything but a dictionary of tensors, or if a tensor extends beyond its storage or is not
/// contiguous.
pub fn parse(file: SharedBytes) -> Result<Vec<RawTensor>, String> {
    let bytes = (*file).as_ref();
    if let Some(why) = before_1_6(bytes) {
        return Err(why.into());
    }
    let files = zip::files(bytes)?;
    let folder = folder(&files)?;
    let byte_order = files
        .get(&format!("{folder}byteorder"))
        .map(|range| &bytes[range.clone()]);
    if byte_order.is_some_and(|order| order != b"little") {
        return Err("was saved by a machine of the other byte order".into());
    }
    let pickle = &bytes[files[&format!("{folder}data.pkl")].clone()];
    if pickle.len() > MAX_PICKLE {
        return Err(format!(
            "its pickle has {} bytes, expected at most {MAX_PICKLE}",
            pickle.len()
        ));
    }
    let tensor = |(name, view): (&str, TensorView<'_>)| {
        let storage = files.get(&format!("{folder}data/{}", view.storage.key));
        let storage =
            storage.ok_or_else(|| format!("{name}: there is no file data/{}", view.storage.key))?;
        let at = tensor_offset(&view, storage).map_err(|why| format!("{name}: {why}"))?;
        RawTensor::new(name, view.storage.dtype, &view.dims, file.clone(), at)
            .map_err(|e| e.to_string())
    };
    unpickler::tensors(pickle)?
        .into_iter()
        .map(tensor)
        .collect()
}

/// The error for a file of PyTorch before 1.6.
fn before_1_6(bytes: &[u8]) -> Option<&'static str> {
    // The pickled magic number 0x1950a86a20f9469cfc6c.
    const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    const TAR: &[u8] = b"ustar";
    let pickled = bytes.get(2..14) == Some(MAGIC);
    (pickled || bytes.get(257..262) == Some(TAR)).then_some(
        "is older than PyTorch 1.6; save it again: \
         torch.save(torch.load(OLD, map_location=\"cpu\", weights_only=True), NEW)",
    )
}

/// The top directory of the archive, with its slash.
fn folder(files: &zip::Files) -> Result<&str, String> {
    let mut folders = files
        .keys()
        .filter_map(|name| name.strip_suffix("data.pkl"))
        .filter(|folder| folder.ends_with('/'));
    match (folders.next(), folders.next()) {
        (Some(folder), None) => Ok(folder),
        (None, _) => Err("is a zip archive, but none of torch.save: it has no data.pkl".into()),
        _ => Err("has more than one data.pkl".into()),
    }
}

/// The byte offset of a tensor whose storage has this range, if it is contiguous and inside the
/// storage.
fn tensor_offset(view: &TensorView<'_>, storage: &Range<usize>) -> Result<u64, String> {
    let size = view.storage.dtype.bytes();
    let n_elements = view.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let end = n_elements.and_then(|n| n.checked_add(view.offset));
    if end.is_none_or(|end| end > view.storage.n_elements) {
        let TensorView {
            dims,
            offset,
            storage,
            ..
        } = view;
        return Err(format!(
            "{dims:?} from {offset} on are not in its storage of {} elements",
            storage.n_elements
        ));
    }
    if view
        .storage
        .n_elements
        .checked_mul(size)
        .is_none_or(|n| n > storage.len() as u64)
    {
        let TensorView {
            storage: claimed, ..
        } = view;
        return Err(format!(
            "{} elements are not in data/{} of {} bytes",
            claimed.n_elements,
            claimed.key,
            storage.len()
        ));
    }
    check_strides(view).map(|()| storage.start as u64 + view.offset * size)
}

fn check_strides(view: &TensorView<'_>) -> Result<(), String> {
    let mut expected = 1;
    if view.dims.contains(&0) {
        return Ok(());
    }
    for (&d, &stride) in view.dims.iter().zip(&view.strides).rev() {
        if d > 1 && stride != expected {
            let transposed = matches!(
                (&view.dims[..], &view.strides[..]),
                (&[rows, _], &[1, stride]) if stride == rows
            );
            let how = if transposed {
                "transposed"
            } else {
                "with gaps or in another order"
            };
            return Err(format!(
                "is saved {how} (strides {:?}); save it again after .contiguous()",
                view.strides
            ));
        }
        expected *= d;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{unpickler::Storage, zip::tests::archive, *};
    use crate::raw::Dtype;

    fn refused(files: &[(&str, &[u8])]) -> String {
        parse(Arc::new(archive(files, |_, _| ()))).err().unwrap()
    }

    /// `{"w": tensor}`, six floats in `data/KEY`.
    fn pickle(key: &str) -> Vec<u8> {
        let key = [&(key.len() as u32).to_le_bytes(), key.as_bytes()].concat();
        let rebuild = b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(\
            (X\x07\0\0\0storagectorch\nFloatStorage\nX";
        [
            &rebuild[..],
            &key,
            b"NK\x06tQK\0K\x06\x85K\x01\x85\x89NtRs.",
        ]
        .concat()
    }

    #[test]
    fn a_storage_is_a_file_of_the_archive() {
        let good = pickle("0");
        let floats = [0; 24];
        let read = parse(Arc::new(archive(
            &[("m/data.pkl", &good), ("m/data/0", &floats)],
            |_, _| (),
        )));
        assert_eq!(read.unwrap()[0].dims(), [6]);
        let elsewhere = pickle("../../../etc/passwd");
        let files = [("m/data.pkl", &elsewhere[..]), ("m/data/0", &floats)];
        assert_eq!(
            refused(&files),
            "w: there is no file data/../../../etc/passwd"
        );
        let short = [("m/data.pkl", &good[..]), ("m/data/0", &floats[..23])];
        assert_eq!(
            refused(&short),
            "w: 6 elements are not in data/0 of 23 bytes"
        );
    }

    #[test]
    fn other_archives_are_refused() {
        assert!(refused(&[("data/0", b"")]).contains("it has no data.pkl"));
        assert!(refused(&[("data.pkl", b"")]).contains("it has no data.pkl"));
        assert_eq!(
            refused(&[("a/data.pkl", b""), ("b/data.pkl", b"")]),
            "has more than one data.pkl"
        );
        let big = [("a/data.pkl", &b"}."[..]), ("a/byteorder", b"big")];
        assert_eq!(
            refused(&big),
            "was saved by a machine of the other byte order"
        );
        assert_eq!(
            refused(&[("a/data.pkl", b"")]),
            "byte 0 of the pickle: ends in the middle"
        );
        assert_eq!(
            refused(&[("a/data.pkl", &vec![b'.'; MAX_PICKLE + 1])]),
            "its pickle has 67108865 bytes, expected at most 67108864"
        );
    }

    fn view(dims: &[u64], strides: &[u64]) -> TensorView<'static> {
        let storage = Storage {
            dtype: Dtype::F32,
            key: "0",
            n_elements: 12,
        };
        TensorView {
            storage,
            offset: 2,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
        }
    }

    #[test]
    fn tensors_are_contiguous_and_inside_their_storage() {
        for (dims, strides) in [
            (&[2, 5][..], &[5, 1][..]),
            (&[1, 10], &[77, 1]),
            (&[], &[]),
            (&[0, 1 << 63], &[9, 9]),
            (&[10, 1], &[1, 9]),
        ] {
            assert_eq!(
                tensor_offset(&view(dims, strides), &(100..148)),
                Ok(108),
                "{dims:?}"
            );
        }
        for (dims, strides) in [
            (&[2, 5][..], &[6, 1][..]),
            (&[10], &[2]),
            (&[2, 5], &[1, 2]),
            (&[10], &[0]),
            (&[2, 5], &[u64::MAX, 1]),
        ] {
            assert!(
                tensor_offset(&view(dims, strides), &(100..148))
                    .unwrap_err()
                    .contains("save it again"),
                "{dims:?}"
            );
        }
        for dims in [&[11][..], &[1 << 63, 2], &[u64::MAX], &[1 << 63, 2, 0]] {
            let why = tensor_offset(&view(dims, &vec![1; dims.len()]), &(100..148)).unwrap_err();
            assert!(
                why.ends_with("from 2 on are not in its storage of 12 elements"),
                "{why}"
            );
        }
        let mut huge = view(&[1], &[1]);
        huge.storage.n_elements = u64::MAX;
        assert!(
            tensor_offset(&huge, &(100..148))
                .unwrap_err()
                .ends_with("elements are not in data/0 of 48 bytes")
        );
    }
}

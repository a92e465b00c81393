//! The files of a directory that hold the weights.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Error, pickle, raw::RawTensors, safetensors};

/// Opens the weights of a directory; safetensors are preferred to pickles.
///
/// # Errors
/// There are none, or more than one model, or they cannot be read.
pub(super) fn open(folder: &Path) -> Result<RawTensors, Error> {
    type Reader = fn(&Path) -> Result<RawTensors, Error>;
    const FILES: [(&str, Reader); 4] = [
        ("model.safetensors.index.json", safetensors::open_sharded),
        ("model.safetensors", safetensors::open),
        ("pytorch_model.bin.index.json", pickle::open_sharded),
        ("pytorch_model.bin", pickle::open),
    ];
    let usual = FILES
        .iter()
        .map(|(name, read)| (folder.join(name), read))
        .find(|(path, _)| path.exists());
    match usual {
        Some((path, read)) => read(&path),
        None => open_all(folder, &others(folder)?),
    }
}

/// The safetensors files of a directory, by any name.
fn others(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let wrong = |source| Error::Io {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|end| end == "safetensors") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Opens the only file, or all shards of a model whose index is missing.
fn open_all(folder: &Path, files: &[PathBuf]) -> Result<RawTensors, Error> {
    let wrong = |why: &str| Error::File {
        path: folder.to_owned(),
        why: why.to_owned(),
    };
    match files {
        [] => Err(wrong(
            "holds no model.safetensors and no pytorch_model.bin, single or with an index",
        )),
        [one] if name_of(one) == "adapter_model.safetensors" => {
            Err(wrong("holds an adapter, and no model"))
        }
        [one] if number(one).is_none() => safetensors::open(one),
        shards if are_all(shards) => {
            let mut all = RawTensors::default();
            for shard in shards {
                all.append(safetensors::open(shard)?)?;
            }
            Ok(all)
        }
        _ => Err(wrong(
            "holds several files of tensors that are not all shards of one model",
        )),
    }
}

/// Whether sorted files are all shards of one model.
fn are_all(files: &[PathBuf]) -> bool {
    let n = files.len() as u32;
    let prefix = |path: &PathBuf| name_of(path).split("-0").next().map(str::to_owned);
    files
        .iter()
        .zip(1..)
        .all(|(file, i)| number(file) == Some([i, n]) && prefix(file) == prefix(&files[0]))
}

/// 1 and 3 of `model-00001-of-00003.safetensors`.
fn number(path: &Path) -> Option<[u32; 2]> {
    let name = name_of(path);
    let (rest, n) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (_, i) = rest.rsplit_once('-')?;
    Some([i.parse().ok()?, n.parse().ok()?])
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_shards(names: &[&str]) -> bool {
        are_all(&names.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn shards_are_known_by_their_names() {
        let [one, two] = [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
        ];
        assert!(are_shards(&[one, two]));
        assert!(!are_shards(&[one]) && !are_shards(&[two]));
        assert!(!are_shards(&[one, "n-00002-of-00002.safetensors"]));
        assert!(!are_shards(&[one, "other.safetensors"]));
    }
}

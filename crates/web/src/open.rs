//! Opening a model from the files that a page has.
//!
//! Knows no container. The one idea: the page lists the files with their lengths as JSON, and the
//! engine asks it for the bytes that it wants, the header first. Where the page has a GPU for them,
//! the last layers lie there.

use std::{ffi::c_char, mem::MaybeUninit, slice, sync::Arc};

use atta_capi::{AttaModel, AttaOptions, AttaStatus, open_sources};
use atta_engine::{ModelFiles, ModelSource};
use serde_json::{Map, Value};

use crate::{
    place::{placed, wish},
    ranges::{Page, RangeSource},
};

/// The most files of a model.
const MAX_SHARDS: usize = 1 << 12;

/// Opens a model whose files the page reads. `shards` is JSON: a list of all files in order,
/// objects with "name", "bytes", and maybe "version" (up to 32 hexadecimal digits that differ where
/// the bytes do) and "arriving" (whether the file is being downloaded). `gpu` is NULL, or JSON: an
/// object with maybe "layers", the last ones of the model, and "bytes", the memory on the page's
/// GPU. `options` may be NULL.
///
/// # Safety
/// `shards` has `shards_size` bytes, and `gpu` has `gpu_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_web_open(
    shards: *const c_char,
    shards_size: usize,
    gpu: *const c_char,
    gpu_size: usize,
    options: Option<&AttaOptions>,
    out: Option<&mut MaybeUninit<*mut AttaModel>>,
) -> AttaStatus {
    // SAFETY: the caller's promise.
    let [shards, gpu] =
        [(shards, shards_size), (gpu, gpu_size)].map(|(start, n)| unsafe { bytes(start, n) });
    let place = |files: &ModelFiles, options| match gpu {
        [] => Ok(options),
        json => placed(files, options, &wish(json)?),
    };
    open_sources(|| sources(shards), place, options, out)
}

/// An argument; NULL has no bytes.
///
/// # Safety
/// `start` has `n` bytes, which live as long as the call.
unsafe fn bytes<'a>(start: *const c_char, n: usize) -> &'a [u8] {
    match start.is_null() || n == 0 {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { slice::from_raw_parts(start.cast(), n) },
    }
}

/// The files that `json` lists.
fn sources(json: &[u8]) -> Result<Vec<ModelSource>, String> {
    let list: Vec<Map<String, Value>> =
        serde_json::from_slice(json).map_err(|error| format!("shards: {error}"))?;
    if list.len() > MAX_SHARDS {
        return Err(format!(
            "shards: {} files, at most {MAX_SHARDS}",
            list.len()
        ));
    }
    let files = (0..).zip(&list);
    files
        .map(|(i, fields)| {
            let source = source(i, fields);
            source.ok_or_else(|| format!("shards: file {i} is {}", Value::from(fields.clone())))
        })
        .collect()
}

fn source(shard: u32, fields: &Map<String, Value>) -> Option<ModelSource> {
    let version = match fields.get("version") {
        None | Some(Value::Null) => None,
        Some(version) => Some(u128::from_str_radix(version.as_str()?, 16).ok()?),
    };
    let file = RangeSource {
        host: Page,
        shard,
        n_bytes: fields.get("bytes")?.as_u64()?,
        version,
        is_arriving: fields.get("arriving").map_or(Some(false), Value::as_bool)?,
    };
    Some(ModelSource {
        name: fields.get("name")?.as_str()?.to_owned(),
        bytes: Arc::new(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_names_lengths_and_versions() {
        let json = br#"[{"name": "a.gguf", "bytes": 5000000000, "version": "ff"},
            {"name": "b.gguf", "bytes": 7, "arriving": true}]"#;
        let files = sources(json).unwrap();
        assert_eq!(files[0].name, "a.gguf");
        assert_eq!(files[0].bytes.n_bytes(), 5_000_000_000);
        assert_eq!(files[0].bytes.version(), Some(255));
        assert!(files[1].bytes.is_arriving() && !files[0].bytes.is_arriving());
    }

    #[test]
    fn a_list_that_is_none_is_an_error_in_words() {
        let wrong = [
            "",
            "{}",
            r#"[{"name": "a"}]"#,
            r#"[{"name": "a", "bytes": -1}]"#,
            r#"[{"name": "a", "bytes": 1, "version": "x"}]"#,
        ];
        for json in wrong {
            let error = sources(json.as_bytes()).unwrap_err();
            assert!(error.starts_with("shards: "), "{error}");
        }
    }
}

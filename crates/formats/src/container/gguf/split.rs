//! Models split over several files, `name-00001-of-00003.gguf`: their names and the metadata that
//! numbers them.

use super::{Error, Metadata};

/// Which part of a split model a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// The number of this file, from 0.
    pub no: u16,
    /// How many files there are.
    pub count: u16,
    /// How many tensors there are in all files together, if the file says so.
    pub n_tensors: Option<u64>,
}

impl Split {
    pub(in crate::container) const NO_KEY: &str = "split.no";
    pub(in crate::container) const COUNT_KEY: &str = "split.count";
    pub(in crate::container) const TENSORS_KEY: &str = "split.tensors.count";

    /// Reads the split keys; `None` if the file is a whole model.
    pub(in crate::container) fn of(metadata: &Metadata) -> Result<Option<Self>, Error> {
        let count = small(metadata, Self::COUNT_KEY)?.unwrap_or(0);
        // Files merged back into one keep the key with a count of 0.
        if count == 0 {
            return Ok(None);
        }
        let no = small(metadata, Self::NO_KEY)?.ok_or_else(|| Error::MetadataMissing {
            key: Self::NO_KEY.to_owned(),
        })?;
        Ok(Some(Self {
            no,
            count,
            n_tensors: metadata.u64(Self::TENSORS_KEY)?,
        }))
    }
}

fn small(metadata: &Metadata, key: &str) -> Result<Option<u16>, Error> {
    let Some(value) = metadata.u64(key)? else {
        return Ok(None);
    };
    let misfit = |_| Error::MetadataRange {
        key: key.to_owned(),
        expected: "u16",
        got: value.to_string(),
    };
    u16::try_from(value).map(Some).map_err(misfit)
}

/// The file name of shard `no` (from 0) of `count`: `shard_file_name("m", 0, 3)` is
/// `m-00001-of-00003.gguf`.
pub fn shard_file_name(stem: &str, no: u16, count: u16) -> String {
    format!("{stem}-{:05}-of-{count:05}.gguf", u32::from(no) + 1)
}

/// Stem, number (from 0) and count of a shard's file name; `None` if it is not named like one.
pub fn shard_of_file_name(name: &str) -> Option<(&str, u16, u16)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, no) = rest.rsplit_once('-')?;
    let no = five_digits(no)?;
    let count = five_digits(count)?;
    (1..=count).contains(&no).then(|| (stem, no - 1, count))
}

/// The file names of all shards, in order, of the model that the shard of this name belongs to;
/// `None` if it is not named like one.
pub fn shard_file_names(name: &str) -> Option<impl Iterator<Item = String>> {
    let (stem, _, count) = shard_of_file_name(name)?;
    Some((0..count).map(move |no| shard_file_name(stem, no, count)))
}

fn five_digits(text: &str) -> Option<u16> {
    let is_number = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_lead_back_to_their_numbers() {
        let name = shard_file_name("Qwen3-8B-of-", 2, 12);
        assert_eq!(name, "Qwen3-8B-of--00003-of-00012.gguf");
        assert_eq!(shard_of_file_name(&name), Some(("Qwen3-8B-of-", 2, 12)));
        let all = shard_file_names(&name).unwrap();
        assert_eq!(
            (all.count(), shard_file_names("m.gguf").is_none()),
            (12, true)
        );
    }

    #[test]
    fn other_names_are_no_shards() {
        for name in [
            "m.gguf",
            "m-1-of-3.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00001-of-00003",
        ] {
            assert_eq!(shard_of_file_name(name), None, "{name}");
        }
        assert_eq!(shard_of_file_name("m-99999-of-99999.gguf"), None);
    }
}

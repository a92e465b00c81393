//! The contents of a model in one file or several: the metadata of the first file, the tensors of
//! all.

use super::{Contents, TensorInfo, gguf::Split, metadata::Metadata, tensor};
use crate::Error;

/// Metadata and tensors of a whole model.
#[derive(Clone)]
pub struct Directory {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Positions in `tensors`, by name.
    by_name: Vec<u32>,
    n_shards: u16,
}

impl Directory {
    /// The directory of a model in one file. Split keys are ignored;
    /// [`from_shards`](Self::from_shards) refuses a single part of a split model.
    pub fn single(file: impl Into<Contents>) -> Self {
        let Contents { metadata, tensors } = file.into();
        let by_name = tensor::order_by_name(&tensors);
        Self {
            metadata,
            tensors,
            by_name,
            n_shards: 1,
        }
    }

    /// The directory of a model in these files, in order. One file without split keys is a model
    /// too.
    ///
    /// # Errors
    /// [`Error::SplitShards`] for none or too many, [`Error::SplitKey`] and
    /// [`Error::SplitMismatch`] if the files do not say that they are these parts of one model,
    /// [`Error::DuplicateTensor`] if a name occurs twice.
    pub fn from_shards(files: Vec<impl Into<Contents>>) -> Result<Self, Error> {
        let files: Vec<Contents> = files.into_iter().map(Into::into).collect();
        let n_shards = u16::try_from(files.len()).unwrap_or(0);
        let Some(first) = files.first().filter(|_| n_shards > 0) else {
            return Err(Error::SplitShards {
                got: files.len(),
                max: u16::MAX.into(),
            });
        };
        let metadata = first.metadata.clone();
        let total = files.iter().map(|file| file.tensors.len() as u64).sum();
        for (i, file) in files.iter().enumerate() {
            check_shard(file, i, n_shards, total)?;
        }
        let tensors: Vec<_> = files
            .into_iter()
            .zip(0..)
            .flat_map(|(file, shard)| numbered(file, shard))
            .collect();
        let by_name = tensor::order_by_name(&tensors);
        tensor::check_names(&tensors, &by_name)?;
        Ok(Self {
            metadata,
            tensors,
            by_name,
            n_shards,
        })
    }

    /// The metadata of the model.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors of all files, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = |i: u32| &self.tensors[i as usize];
        let found = self
            .by_name
            .binary_search_by(|&i| at(i).name.as_str().cmp(name))
            .ok()?;
        Some(at(self.by_name[found]))
    }

    /// How many files the model is in.
    pub fn n_shards(&self) -> u16 {
        self.n_shards
    }

    /// Bytes of heap that the directory takes, metadata index included; the files' bytes are not
    /// counted.
    pub fn heap_bytes(&self) -> usize {
        let names: usize = self.tensors.iter().map(|t| t.name.capacity()).sum();
        let index = self.by_name.capacity() * size_of::<u32>();
        self.metadata.heap_bytes()
            + names
            + index
            + self.tensors.capacity() * size_of::<TensorInfo>()
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Directory: {} tensors in {} files",
            self.tensors.len(),
            self.n_shards
        )
    }
}

fn check_split_key(shard: usize, key: &'static str, expected: u64, got: u64) -> Result<(), Error> {
    if expected == got {
        return Ok(());
    }
    Err(Error::SplitMismatch {
        shard,
        key,
        expected,
        got,
    })
}

/// Checks that the split keys of `file` say: shard `i` of `n_shards`, with `total` tensors in all.
fn check_shard(file: &Contents, i: usize, n_shards: u16, total: u64) -> Result<(), Error> {
    let shard = i + 1;
    let Some(split) = file.split()? else {
        return if n_shards == 1 {
            Ok(())
        } else {
            Err(Error::SplitKey {
                shard,
                key: Split::COUNT_KEY,
            })
        };
    };
    let same = |key, expected, got| check_split_key(shard, key, expected, got);
    if n_shards == 1 && split.count > 1 {
        return Err(Error::SplitAlone {
            no: u32::from(split.no) + 1,
            count: split.count,
        });
    }
    same(Split::COUNT_KEY, n_shards.into(), split.count.into())?;
    same(Split::NO_KEY, i as u64, split.no.into())?;
    same(Split::TENSORS_KEY, total, split.n_tensors.unwrap_or(total))
}

fn numbered(file: Contents, shard: u16) -> impl Iterator<Item = TensorInfo> {
    file.tensors
        .into_iter()
        .map(move |t| TensorInfo { shard, ..t })
}

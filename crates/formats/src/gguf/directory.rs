//! What a model is made of, whether it lies in one file or several: the first file's metadata, the
//! tensors of all.

use super::split::{COUNT_KEY, NO_KEY, TENSORS_KEY};
use super::{Error, Gguf, Metadata, TensorInfo, tensors};

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
    /// A model in one file. Split keys are not looked at: a part of a split model is refused by
    /// [`Directory::from_shards`], and told by [`Gguf::split`].
    pub fn single(g: Gguf) -> Self {
        let by_name = tensors::order_by_name(&g.tensors);
        Self {
            metadata: g.metadata,
            tensors: g.tensors,
            by_name,
            n_shards: 1,
        }
    }

    /// A model in the files `v`, in order. One file without split keys is a model too.
    ///
    /// # Errors
    /// [`Error::SplitShards`] for none or too many, [`Error::SplitKey`] and
    /// [`Error::SplitMismatch`] if the files do not say that they are these parts of one model,
    /// [`Error::DuplicateTensor`] if a name occurs twice.
    pub fn from_shards(v: Vec<Gguf>) -> Result<Self, Error> {
        let n_shards = u16::try_from(v.len()).unwrap_or(0);
        let Some(first) = v.first().filter(|_| n_shards > 0) else {
            return Err(Error::SplitShards {
                got: v.len(),
                max: u16::MAX.into(),
            });
        };
        let metadata = first.metadata.clone();
        let total = v.iter().map(|g| g.tensors.len() as u64).sum();
        for (i, g) in v.iter().enumerate() {
            check_shard(g, i, n_shards, total)?;
        }
        let tensors: Vec<_> = v
            .into_iter()
            .zip(0..)
            .flat_map(|(g, shard)| numbered(g, shard))
            .collect();
        let by_name = tensors::order_by_name(&tensors);
        tensors::check_names(&tensors, &by_name)?;
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

    /// Whether every tensor can be decoded; reads nothing.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] with the first tensor whose type has no decoder.
    pub fn check_codecs(&self) -> Result<(), Error> {
        tensors::check_codecs(&self.tensors)
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

/// Checks that `g` says of itself that it is shard `i` of `n_shards`, with `total` tensors in all.
fn check_shard(g: &Gguf, i: usize, n_shards: u16, total: u64) -> Result<(), Error> {
    let shard = i + 1;
    let Some(split) = g.split()? else {
        return if n_shards == 1 {
            Ok(())
        } else {
            Err(Error::SplitKey {
                shard,
                key: COUNT_KEY,
            })
        };
    };
    let same = |key, expected, got| {
        if expected == got {
            Ok(())
        } else {
            Err(Error::SplitMismatch {
                shard,
                key,
                expected,
                got,
            })
        }
    };
    if n_shards == 1 && split.count > 1 {
        return Err(Error::SplitAlone {
            no: u32::from(split.no) + 1,
            count: split.count,
        });
    }
    same(COUNT_KEY, n_shards.into(), split.count.into())?;
    same(NO_KEY, i as u64, split.no.into())?;
    same(TENSORS_KEY, total, split.n_tensors.unwrap_or(total))
}

fn numbered(g: Gguf, shard: u16) -> impl Iterator<Item = TensorInfo> {
    g.tensors
        .into_iter()
        .map(move |t| TensorInfo { shard, ..t })
}

//! A model file that takes each tensor from one of two others, to measure what a group of tensors
//! in another type changes. Nothing is copied: reads go to the files.

use std::{io, ops::Range, sync::Arc};

use atta_formats::Writer;
use atta_store::ReadAt;

use crate::{Checkpoint, Error, means::table_of};

/// The bytes of a GGUF file whose tensors are in two others.
pub struct Blend {
    header: Vec<u8>,
    /// In the order of the file.
    parts: Vec<BlendPart>,
    n_bytes: u64,
}

impl std::fmt::Debug for Blend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blend")
            .field("n_tensors", &self.parts.len())
            .field("n_bytes", &self.n_bytes)
            .finish_non_exhaustive()
    }
}

/// A tensor of the file.
struct BlendPart {
    /// Bytes in the file.
    range: Range<u64>,
    checkpoint: Arc<Checkpoint>,
    /// Index in the checkpoint.
    tensor: usize,
}

impl BlendPart {
    fn bytes(&self) -> &[u8] {
        let stored = self.checkpoint.tensors[self.tensor].rows.stored();
        stored.expect("Blend::new has seen its bytes")
    }
}

impl Blend {
    /// The file `base` with the tensors of `other` that `is_other` names. A mean row goes with its
    /// table.
    ///
    /// # Errors
    /// Tensors that GGUF does not allow together, or that are not stored as they are.
    pub fn new(
        [base, other]: [&Arc<Checkpoint>; 2],
        is_other: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let mut writer = base.metadata.clone();
        let mut parts = Vec::new();
        for tensor in wanted(base, |table| !is_other(table)) {
            parts.push(part(&mut writer, base, tensor)?);
        }
        for tensor in wanted(other, &is_other) {
            parts.push(part(&mut writer, other, tensor)?);
        }
        let layout = writer.finish()?;
        for (part, info) in parts.iter_mut().zip(&layout.tensors) {
            part.range = info.offset..info.offset + part.bytes().len() as u64;
        }
        Ok(Self {
            header: layout.header,
            parts,
            n_bytes: layout.file_bytes,
        })
    }
}

/// The tensors whose tables are wanted.
fn wanted(checkpoint: &Checkpoint, is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    let tensors = &checkpoint.tensors;
    (0..tensors.len())
        .filter(|&i| is_wanted(table_of(&tensors[i].name)))
        .collect()
}

fn part(
    writer: &mut Writer,
    checkpoint: &Arc<Checkpoint>,
    tensor: usize,
) -> Result<BlendPart, Error> {
    let found = &checkpoint.tensors[tensor];
    if found.rows.stored().is_none() {
        return Err(Error::NotSupported.of(&found.name));
    }
    writer.add_tensor(&found.name, &found.dims, found.ty)?;
    Ok(BlendPart {
        range: 0..0,
        checkpoint: Arc::clone(checkpoint),
        tensor,
    })
}

impl ReadAt for Blend {
    fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.n_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.fill(0);
        copy_overlap(&self.header, 0, offset, buf);
        let first = self.parts.partition_point(|part| part.range.end <= offset);
        for part in &self.parts[first..] {
            if part.range.start >= offset + buf.len() as u64 {
                break;
            }
            copy_overlap(part.bytes(), part.range.start, offset, buf);
        }
        Ok(())
    }
}

/// Copies the part of `bytes`, from `start` on, that lies within `buf`, from `offset` on.
fn copy_overlap(bytes: &[u8], start: u64, offset: u64, buf: &mut [u8]) {
    let from = start.max(offset);
    let end = (start + bytes.len() as u64).min(offset + buf.len() as u64);
    if from < end {
        let n = (end - from) as usize;
        let source = &bytes[(from - start) as usize..][..n];
        buf[(from - offset) as usize..][..n].copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MappedRows, Tensor};
    use atta_formats::{Contents, TensorType};

    /// A checkpoint of tensors with one row of four weights, all of them `value`.
    fn checkpoint(names: &[&str], value: f32) -> Arc<Checkpoint> {
        let bytes: Vec<u8> = [value; 4].iter().flat_map(|x| x.to_le_bytes()).collect();
        let bytes = Arc::new(bytes);
        let tensor = |name: &&str| Tensor {
            name: (*name).to_owned(),
            dims: vec![1, 4],
            ty: TensorType::F32,
            rows: Box::new(MappedRows::new(bytes.clone(), 0, &[1, 4], TensorType::F32).unwrap()),
        };
        let mut metadata = Writer::new();
        metadata.set_str("general.architecture", "llama");
        Arc::new(Checkpoint {
            metadata,
            tensors: names.iter().map(tensor).collect(),
            files: Vec::new(),
        })
    }

    #[test]
    fn tensors_come_from_two_files_and_a_mean_with_its_table() {
        let base = checkpoint(&["a.weight", "output.weight", "output.mean"], 1.0);
        let other = checkpoint(&["a.weight", "output.weight"], 2.0);
        let blend = Blend::new([&base, &other], |name| name == "output.weight").unwrap();
        let mut bytes = vec![9; blend.n_bytes() as usize];
        blend.read_exact_at(0, &mut bytes).unwrap();
        let contents = Contents::parse(Arc::new(bytes.clone()), bytes.len() as u64).unwrap();
        let found: Vec<_> = contents
            .tensors
            .iter()
            .map(|tensor| {
                let at = tensor.offset as usize;
                let weight = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
                format!("{} {weight}", tensor.name)
            })
            .collect();
        assert_eq!(found, ["a.weight 1", "output.weight 2"]);
    }

    #[test]
    fn bytes_are_read_from_any_place() {
        let base = checkpoint(&["a.weight", "b.weight"], 1.0);
        let other = checkpoint(&["a.weight", "b.weight"], 3.0);
        let blend = Blend::new([&base, &other], |name| name == "b.weight").unwrap();
        let n = blend.n_bytes() as usize;
        let mut whole = vec![9; n];
        blend.read_exact_at(0, &mut whole).unwrap();
        for (from, to) in [(0, 7), (n - 33, n), (n - 40, n - 20), (n - 9, n - 9)] {
            let mut part = vec![9; to - from];
            blend.read_exact_at(from as u64, &mut part).unwrap();
            assert_eq!(part, whole[from..to], "{from}..{to}");
        }
        assert!(blend.read_exact_at(n as u64, &mut [0]).is_err());
        assert!(blend.read_exact_at(u64::MAX, &mut [0]).is_err());
    }
}

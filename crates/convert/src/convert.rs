//! From a checkpoint to GGUF files: tensor by tensor, rows dealt to threads, every file there whole
//! or not at all.

use std::{
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use atta_formats::{Split, TensorType, Writer, decode, f16, gguf::shard_file_name};

use crate::{
    Checkpoint, Error, Importance, Plan, Step, Tensor, Types, draft::Draft, quantize::Quantizer,
};

/// Weights that a thread takes at once: half a megabyte of f32.
const PORTION: usize = 1 << 17;
/// Portions per thread between two writes.
const PORTIONS: usize = 8;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 8 << 20;

/// How to write.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Types of tensors.
    pub types: Types,
    /// What weighs errors, if anything does.
    pub importance: Option<Importance>,
    /// The name of the file it came from, which the result will state.
    pub importance_name: String,
    /// Threads; 0 is 1.
    pub n_threads: usize,
    /// The most bytes of tensors in one file, unless one alone has more; `None`: all.
    pub max_shard_bytes: Option<u64>,
    /// What happens to files that are there already.
    pub existing: Existing,
}

/// What happens to files that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// They stay, and nothing is written.
    #[default]
    Keep,
    /// They make room, once their successors are whole.
    Replace,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The tensor at hand.
    pub tensor: &'a str,
    /// Bytes of tensors written so far.
    pub done: u64,
    /// Bytes of tensors in all.
    pub total: u64,
}

/// Writes a checkpoint to `dst`, or to `dst` with numbers if it is to be split; the files written.
/// `progress` hears how far it is many times a second, and may break: then no file was ever there.
///
/// # Errors
/// As [`Plan::new`], files that are there already, weights that are not finite, and what the system
/// says.
pub fn convert(
    checkpoint: &Checkpoint,
    dst: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Vec<PathBuf>, Error> {
    let plan = Plan::new(checkpoint, &options.types, options.importance.as_ref())?;
    let shards = shards(checkpoint, &plan, options.max_shard_bytes);
    let n = u16::try_from(shards.len()).map_err(|_| Error::TooManyShards { n: shards.len() })?;
    let paths: Vec<_> = (0..n)
        .map(|no| {
            if n == 1 {
                dst.to_owned()
            } else {
                shard_path(dst, no, n)
            }
        })
        .collect();
    if let Some(path) = paths
        .iter()
        .find(|path| options.existing == Existing::Keep && path.exists())
    {
        return Err(Error::Exists { path: path.clone() });
    }
    let pace = Pace {
        progress,
        done: 0,
        total: plan.n_bytes,
    };
    let mut work = Work {
        checkpoint,
        options,
        quantizers: Vec::new(),
        pace,
    };
    let mut drafts = Vec::new();
    for ((steps, path), no) in shards.iter().zip(paths).zip(0..) {
        let split = (n > 1).then_some(Split {
            no,
            count: n,
            n_tensors: Some(plan.steps.len() as u64),
        });
        let writer = header(checkpoint, options, split);
        drafts.push((work.file(&path, writer, steps)?, path));
    }
    checkpoint.check_files()?;
    drafts
        .into_iter()
        .map(|(draft, path)| draft.keep().map(|()| path))
        .collect()
}

/// Where shard `no` of `n` lies. Of the name only its ending as a GGUF file is left out: others are
/// part of it, as in `qwen2.5`.
fn shard_path(dst: &Path, no: u16, n: u16) -> PathBuf {
    let is_gguf = dst
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
    let stem = if is_gguf {
        dst.file_stem()
    } else {
        dst.file_name()
    };
    dst.with_file_name(shard_file_name(
        &stem.unwrap_or_default().to_string_lossy(),
        no,
        n,
    ))
}

/// The steps of each file.
fn shards<'p>(checkpoint: &Checkpoint, plan: &'p Plan, max_bytes: Option<u64>) -> Vec<&'p [Step]> {
    let mut shards = Vec::new();
    let mut start = 0;
    let mut bytes = 0u64;
    for (i, step) in plan.steps.iter().enumerate() {
        let more = n_bytes(&checkpoint.tensors[step.tensor], step.ty);
        if i > start && max_bytes.is_some_and(|max| bytes + more > max) {
            shards.push(&plan.steps[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += more;
    }
    shards.push(&plan.steps[start..]);
    shards
}

fn n_bytes(tensor: &Tensor, ty: TensorType) -> u64 {
    tensor.n_rows() * ty.row_bytes(tensor.d_row() as usize).unwrap_or(0) as u64
}

/// The metadata of a file: everything in the first, its number in the others.
fn header(checkpoint: &Checkpoint, options: &Options, split: Option<Split>) -> Writer {
    let mut writer = match split {
        Some(Split { no: 1.., .. }) => Writer::new(),
        _ => whole_header(checkpoint, options),
    };
    if let Some(split) = split {
        writer.set_split(split);
    }
    writer
}

fn whole_header(checkpoint: &Checkpoint, options: &Options) -> Writer {
    let mut writer = checkpoint.metadata.clone();
    if let Some(mix) = options.types.mix {
        // At the end, where llama.cpp puts them.
        for key in ["general.quantization_version", "general.file_type"] {
            writer.remove(key);
        }
        writer.set_u32("general.quantization_version", 2);
        writer.set_u32("general.file_type", mix.file_type);
    }
    if let Some(importance) = &options.importance {
        writer.set_str("quantize.imatrix.file", &options.importance_name);
        if let Some(dataset) = importance.datasets.first() {
            writer.set_str("quantize.imatrix.dataset", dataset);
        }
        writer.set_u32(
            "quantize.imatrix.entries_count",
            importance.entries().count() as u32,
        );
        if importance.n_chunks > 0 {
            writer.set_u32("quantize.imatrix.chunks_count", importance.n_chunks);
        }
    }
    writer
}

/// A conversion on its way.
struct Work<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a Options,
    /// Those of the types met so far; some take long to make.
    quantizers: Vec<(TensorType, Quantizer)>,
    pace: Pace<'a>,
}

impl Work<'_> {
    /// Writes one file, which has no name yet.
    fn file(&mut self, path: &Path, mut writer: Writer, steps: &[Step]) -> Result<Draft, Error> {
        for step in steps {
            let tensor = &self.checkpoint.tensors[step.tensor];
            writer.add_tensor(&tensor.name, &tensor.dims, step.ty)?;
        }
        let layout = writer.finish()?;
        let mut draft = Draft::new(path)?;
        draft
            .write_all(&layout.header)
            .map_err(|error| draft.failed(error))?;
        let mut at = layout.header.len() as u64;
        for (i, step) in steps.iter().enumerate() {
            let tensor = &self.checkpoint.tensors[step.tensor];
            self.tensor(&mut draft, tensor, step.ty)
                .map_err(|error| error.of(&tensor.name))?;
            at += n_bytes(tensor, step.ty);
            let next = layout
                .tensors
                .get(i + 1)
                .map_or(layout.file_bytes, |t| t.offset);
            draft
                .write_all(&vec![0; (next - at) as usize])
                .map_err(|error| draft.failed(error))?;
            at = next;
        }
        Ok(draft)
    }

    fn tensor(&mut self, draft: &mut Draft, tensor: &Tensor, ty: TensorType) -> Result<(), Error> {
        match tensor.rows.stored() {
            Some(bytes) if ty == tensor.ty => self.copy(draft, tensor, bytes),
            _ => self.quantize(draft, tensor, ty),
        }
    }

    /// Writes bytes as they are.
    fn copy(&mut self, draft: &mut Draft, tensor: &Tensor, bytes: &[u8]) -> Result<(), Error> {
        for (i, bytes) in bytes.chunks(COPY_BYTES).enumerate() {
            check_finite(tensor.ty, bytes, i * COPY_BYTES)?;
            self.pace.write(draft, tensor, bytes)?;
        }
        Ok(())
    }

    /// Writes rows in another type: a few portions for each thread, then a write.
    fn quantize(
        &mut self,
        draft: &mut Draft,
        tensor: &Tensor,
        ty: TensorType,
    ) -> Result<(), Error> {
        let d = tensor.d_row() as usize;
        let row_bytes = ty.row_bytes(d).ok_or_else(|| Error::Shape {
            dims: tensor.dims.clone(),
            ty,
        })?;
        let entry = self
            .options
            .importance
            .as_ref()
            .and_then(|all| all.entry(&tensor.name));
        let importance = entry
            .filter(|_| ty.block_len() > 1)
            .map(|entry| entry.weights());
        let per_expert = tensor.dims.iter().rev().nth(1).copied().unwrap_or(1);
        let n_threads = self.options.n_threads.max(1);
        let portion = (PORTION / d).max(1);
        let quantizer = quantizer(&mut self.quantizers, ty)?;
        let keeps_type = ty == tensor.ty;
        let importance = importance.as_deref();
        let job = Job {
            tensor,
            keeps_type,
            ty,
            quantizer,
            d,
            row_bytes,
            portion,
            per_expert,
            importance,
        };
        let n_rows = tensor.n_rows();
        let mut buffer = vec![0; (portion * PORTIONS * n_threads).min(n_rows as usize) * row_bytes];
        let mut first = 0;
        while first < n_rows {
            let n = (n_rows - first).min((buffer.len() / row_bytes) as u64) as usize;
            let out = &mut buffer[..n * row_bytes];
            job.run(first, out, n_threads)?;
            self.pace.write(draft, tensor, out)?;
            first += n as u64;
        }
        Ok(())
    }
}

/// How far it is, and who hears it.
struct Pace<'a> {
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    /// Bytes of tensors.
    done: u64,
    total: u64,
}

impl Pace<'_> {
    fn write(&mut self, draft: &mut Draft, tensor: &Tensor, bytes: &[u8]) -> Result<(), Error> {
        draft
            .write_all(bytes)
            .map_err(|error| draft.failed(error))?;
        self.done += bytes.len() as u64;
        match (self.progress)(Progress {
            tensor: &tensor.name,
            done: self.done,
            total: self.total,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}

/// The quantizer of a type.
fn quantizer(all: &mut Vec<(TensorType, Quantizer)>, ty: TensorType) -> Result<&Quantizer, Error> {
    let at = match all.iter().position(|(of, _)| *of == ty) {
        Some(at) => at,
        None => {
            all.push((ty, Quantizer::new(ty)?));
            all.len() - 1
        }
    };
    Ok(&all[at].1)
}

/// How the rows of a tensor become another type.
struct Job<'a> {
    tensor: &'a Tensor,
    /// Whether it has the type already, though not as its bytes lie in the file.
    keeps_type: bool,
    ty: TensorType,
    quantizer: &'a Quantizer,
    d: usize,
    /// Bytes of a row afterwards.
    row_bytes: usize,
    /// Rows that a thread takes at once.
    portion: usize,
    /// Rows of one expert.
    per_expert: u64,
    /// `[n_experts, d]`.
    importance: Option<&'a [f32]>,
}

impl Job<'_> {
    /// Quantizes rows from `first` on into `out`.
    fn run(&self, first: u64, out: &mut [u8], n_threads: usize) -> Result<(), Error> {
        let portions = out
            .chunks_mut(self.portion * self.row_bytes)
            .zip((first..).step_by(self.portion));
        let queue = Mutex::new(portions);
        let next = || {
            queue
                .lock()
                .unwrap_or_else(|error| error.into_inner())
                .next()
        };
        let worker = || {
            let mut x = vec![0.0; self.portion * self.d];
            while let Some((out, first)) = next() {
                let n_rows = out.len() / self.row_bytes;
                self.rows(first, &mut x[..n_rows * self.d], out)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..n_threads).map(|_| scope.spawn(worker)).collect();
            let mine = worker();
            others.into_iter().fold(mine, |done, other| {
                done.and(other.join().expect("a quantizer does not panic"))
            })
        })
    }

    /// Quantizes the rows that `x` has room for; those of an expert with its importance.
    fn rows(&self, first: u64, x: &mut [f32], out: &mut [u8]) -> Result<(), Error> {
        if self.keeps_type && self.tensor.rows.packed(first, out)? {
            return Ok(());
        }
        self.tensor.rows.read(first, x)?;
        let d = self.d;
        let mut x = &*x;
        let mut out = out;
        let mut row = first;
        while !x.is_empty() {
            let expert = row / self.per_expert;
            let left = (self.per_expert - row % self.per_expert).min((x.len() / d) as u64) as usize;
            let (now, rest) = x.split_at(left * d);
            let (to, after) = out.split_at_mut(left * self.row_bytes);
            let weights = self.importance.map(|all| &all[expert as usize * d..][..d]);
            self.quantizer.rows(now, d, weights, to)?;
            check_fits(self.ty, now, to)?;
            (x, out, row) = (rest, after, row + left as u64);
        }
        Ok(())
    }
}

/// Refuses weights that are too large for a type: its scales are f16 mostly, and would be infinite.
fn check_fits(ty: TensorType, x: &[f32], out: &[u8]) -> Result<(), Error> {
    const MAX_F16: f32 = 65504.0;
    if !x.iter().fold(false, |any, x| any | (x.abs() > MAX_F16)) {
        return Ok(());
    }
    let mut decoded = vec![0.0; x.len()];
    decode(ty, out, &mut decoded)?;
    match decoded.iter().position(|y| !y.is_finite()) {
        Some(at) => Err(Error::TooLarge { value: x[at], ty }),
        None => Ok(()),
    }
}

/// Refuses floats that are no numbers; of quantized types, scales are trusted as they are.
fn check_finite(ty: TensorType, bytes: &[u8], at: usize) -> Result<(), Error> {
    let bad = |i: usize, value: f32, size: usize| {
        Err(Error::NotFinite {
            at: at / size + i,
            value,
        })
    };
    let halves = || {
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| u16::from_le_bytes(*b))
            .enumerate()
    };
    match ty {
        TensorType::F32 => {
            let mut values = bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .enumerate();
            values
                .find(|(_, v)| !v.is_finite())
                .map_or(Ok(()), |(i, v)| bad(i, v, 4))
        }
        // All bits of the exponent are set.
        TensorType::F16 => halves()
            .find(|(_, v)| v & 0x7c00 == 0x7c00)
            .map_or(Ok(()), |(i, v)| bad(i, f16::f16_to_f32(v), 2)),
        TensorType::BF16 => halves()
            .find(|(_, v)| v & 0x7f80 == 0x7f80)
            .map_or(Ok(()), |(i, v)| bad(i, f16::bf16_to_f32(v), 2)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_the_whole_name_but_for_the_ending_of_a_gguf_file() {
        let name = |dst| {
            shard_path(Path::new(dst), 0, 2)
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(name("a/model.gguf"), "a/model-00001-of-00002.gguf");
        assert_eq!(name("model.GGUF"), "model-00001-of-00002.gguf");
        assert_eq!(name("Qwen2.5-0.5B"), "Qwen2.5-0.5B-00001-of-00002.gguf");
    }
}

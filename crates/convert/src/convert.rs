//! Writes a checkpoint to GGUF files, tensor by tensor. Threads quantize rows in parallel; each
//! file appears under its name only when it is complete.

use std::{
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use atta_formats::{Split, TensorType, Writer, decode_rows, f16, gguf::shard_file_name};
use atta_model::Sensitivity;

use crate::{
    Checkpoint, Error, ImportanceMatrix, Plan, Step, Tensor, TypeSelection,
    atomic_file::AtomicFile, quantize::Quantizer,
};

/// Weights that a thread quantizes at once: half a megabyte of f32.
const CHUNK_WEIGHTS: usize = 1 << 17;
/// Chunks per thread between two writes.
const CHUNKS_PER_THREAD: usize = 8;
/// Bytes copied at once.
const COPY_BYTES: usize = 8 << 20;

/// Options of [`convert`].
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// Types of tensors.
    pub types: TypeSelection,
    /// The importance matrix that quantization errors are weighted with.
    pub importance: Option<ImportanceMatrix>,
    /// File name of the importance matrix, written as `quantize.imatrix.file`.
    pub importance_name: String,
    /// Number of threads; 0 means 1.
    pub n_threads: usize,
    /// The most bytes of tensors in one shard, unless a single tensor is larger. `None`: one file.
    pub max_shard_bytes: Option<u64>,
    /// Whether existing files may be overwritten.
    pub existing: Existing,
}

/// Whether existing files may be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// An existing file is an error, and nothing is written.
    #[default]
    Keep,
    /// Existing files are replaced when the new ones are complete.
    Replace,
}

/// Progress of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The tensor being written.
    pub tensor: &'a str,
    /// Bytes of tensors written so far.
    pub done: u64,
    /// Bytes of all tensors.
    pub total: u64,
}

/// Writes a checkpoint to `dst`, or to numbered shards beside `dst` if it is to be split, and
/// returns the paths. `progress` is called many times a second; if it breaks, no file is left.
///
/// # Errors
/// Those of [`Plan::new`], existing files, weights that are not finite, and I/O errors.
pub fn convert(
    checkpoint: &Checkpoint,
    dst: &Path,
    options: &ConvertOptions,
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
    let reporter = ProgressReporter {
        progress,
        done: 0,
        total: plan.n_bytes,
    };
    let mut conversion = Conversion {
        checkpoint,
        options,
        quantizers: Vec::new(),
        reporter,
    };
    let mut files = Vec::new();
    for ((steps, path), no) in shards.iter().zip(paths).zip(0..) {
        let split = (n > 1).then_some(Split {
            no,
            count: n,
            n_tensors: Some(plan.steps.len() as u64),
        });
        let writer = header(checkpoint, options, &plan, split);
        files.push((conversion.file(&path, writer, steps)?, path));
    }
    checkpoint.check_files()?;
    files
        .into_iter()
        .map(|(file, path)| file.commit().map(|()| path))
        .collect()
}

/// The path of shard `no` of `n`. Only the extension `.gguf` is removed from the name; a name such
/// as `qwen2.5` stays whole.
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

/// Divides the steps of a plan into shards.
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

/// The metadata of a file: everything in the first shard, only the shard number in the others.
fn header(
    checkpoint: &Checkpoint,
    options: &ConvertOptions,
    plan: &Plan,
    split: Option<Split>,
) -> Writer {
    let has_own_types = plan.steps.iter().any(|step| step.ty.is_own());
    let mut writer = match split {
        Some(Split { no: 1.., .. }) => Writer::new(),
        _ => whole_header(checkpoint, options, has_own_types),
    };
    // What parts of the model cost was measured with other weights.
    let is_changed = |step: &Step| step.ty != checkpoint.tensors[step.tensor].ty;
    if plan.steps.iter().any(is_changed) {
        Sensitivity::remove(&mut writer);
    }
    if let Some(split) = split {
        writer.set_split(split);
    }
    writer
}

fn whole_header(checkpoint: &Checkpoint, options: &ConvertOptions, has_own_types: bool) -> Writer {
    let mut writer = checkpoint.metadata.clone();
    if has_own_types {
        writer.remove("general.file_type");
    }
    if let Some(mix) = options.types.mix {
        // At the end, as in llama.cpp's files.
        for key in ["general.quantization_version", "general.file_type"] {
            writer.remove(key);
        }
        writer.set_u32("general.quantization_version", 2);
        if let Some(file_type) = mix.file_type.filter(|_| !has_own_types) {
            writer.set_u32("general.file_type", file_type);
        }
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

/// A running conversion.
struct Conversion<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a ConvertOptions,
    /// The quantizers made so far, because some take long to construct.
    quantizers: Vec<(TensorType, Quantizer)>,
    reporter: ProgressReporter<'a>,
}

impl Conversion<'_> {
    /// Writes one file under its temporary name.
    fn file(
        &mut self,
        path: &Path,
        mut writer: Writer,
        steps: &[Step],
    ) -> Result<AtomicFile, Error> {
        for step in steps {
            let tensor = &self.checkpoint.tensors[step.tensor];
            writer.add_tensor(&tensor.name, &tensor.dims, step.ty)?;
        }
        let layout = writer.finish()?;
        let mut file = AtomicFile::new(path)?;
        file.write_all(&layout.header)
            .map_err(|error| file.io_error(error))?;
        let mut at = layout.header.len() as u64;
        for (i, step) in steps.iter().enumerate() {
            let tensor = &self.checkpoint.tensors[step.tensor];
            self.tensor(&mut file, tensor, step.ty)
                .map_err(|error| error.of(&tensor.name))?;
            at += n_bytes(tensor, step.ty);
            let next = layout
                .tensors
                .get(i + 1)
                .map_or(layout.file_bytes, |t| t.offset);
            file.write_all(&vec![0; (next - at) as usize])
                .map_err(|error| file.io_error(error))?;
            at = next;
        }
        Ok(file)
    }

    fn tensor(
        &mut self,
        file: &mut AtomicFile,
        tensor: &Tensor,
        ty: TensorType,
    ) -> Result<(), Error> {
        match tensor.rows.stored() {
            Some(bytes) if ty == tensor.ty => self.copy(file, tensor, bytes),
            _ => self.quantize(file, tensor, ty),
        }
    }

    /// Copies bytes unchanged.
    fn copy(&mut self, file: &mut AtomicFile, tensor: &Tensor, bytes: &[u8]) -> Result<(), Error> {
        for (i, bytes) in bytes.chunks(COPY_BYTES).enumerate() {
            check_finite(tensor.ty, bytes, i * COPY_BYTES)?;
            self.reporter.write(file, tensor, bytes)?;
        }
        Ok(())
    }

    /// Quantizes rows and writes them, a few chunks per thread at a time.
    fn quantize(
        &mut self,
        file: &mut AtomicFile,
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
            .map(|entry| match ty.is_own() {
                true => entry.reached_weights(),
                false => entry.weights(),
            });
        let per_expert = tensor.dims.iter().rev().nth(1).copied().unwrap_or(1);
        let n_threads = self.options.n_threads.max(1);
        let chunk_rows = (CHUNK_WEIGHTS / d).max(1);
        let quantizer = quantizer(&mut self.quantizers, ty)?;
        let is_same_type = ty == tensor.ty;
        let importance = importance.as_deref();
        let rows = TensorQuantizer {
            tensor,
            is_same_type,
            ty,
            quantizer,
            d,
            row_bytes,
            chunk_rows,
            per_expert,
            importance,
        };
        let n_rows = tensor.n_rows();
        let mut buffer =
            vec![0; (chunk_rows * CHUNKS_PER_THREAD * n_threads).min(n_rows as usize) * row_bytes];
        let mut first = 0;
        while first < n_rows {
            let n = (n_rows - first).min((buffer.len() / row_bytes) as u64) as usize;
            let out = &mut buffer[..n * row_bytes];
            rows.run(first, out, n_threads)?;
            self.reporter.write(file, tensor, out)?;
            first += n as u64;
        }
        Ok(())
    }
}

/// Writes bytes of tensors and reports progress.
struct ProgressReporter<'a> {
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    /// Bytes of tensors written so far.
    done: u64,
    total: u64,
}

impl ProgressReporter<'_> {
    fn write(&mut self, file: &mut AtomicFile, tensor: &Tensor, bytes: &[u8]) -> Result<(), Error> {
        file.write_all(bytes)
            .map_err(|error| file.io_error(error))?;
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

/// The quantizer of a type, constructed if it is not in the list.
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

/// Quantizes the rows of one tensor.
struct TensorQuantizer<'a> {
    tensor: &'a Tensor,
    /// Whether the tensor has the type `ty` already, though its rows need to be rearranged.
    is_same_type: bool,
    ty: TensorType,
    quantizer: &'a Quantizer,
    d: usize,
    /// Bytes of a quantized row.
    row_bytes: usize,
    /// Rows that a thread quantizes at once.
    chunk_rows: usize,
    /// Rows of one expert.
    per_expert: u64,
    /// `[n_experts, d]`.
    importance: Option<&'a [f32]>,
}

impl TensorQuantizer<'_> {
    /// Quantizes the rows from `first` on into `out`, with several threads.
    fn run(&self, first: u64, out: &mut [u8], n_threads: usize) -> Result<(), Error> {
        let chunks = out
            .chunks_mut(self.chunk_rows * self.row_bytes)
            .zip((first..).step_by(self.chunk_rows));
        let queue = Mutex::new(chunks);
        let next = || {
            queue
                .lock()
                .unwrap_or_else(|error| error.into_inner())
                .next()
        };
        let worker = || {
            let mut x = vec![0.0; self.chunk_rows * self.d];
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

    /// Quantizes the rows from `first` on into `out`, each with the importance of its expert. `x`
    /// is scratch memory, `[n_rows, d]`.
    fn rows(&self, first: u64, x: &mut [f32], out: &mut [u8]) -> Result<(), Error> {
        if self.is_same_type && self.tensor.rows.packed(first, out)? {
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
            check_fits(self.ty, d, now, to)?;
            (x, out, row) = (rest, after, row + left as u64);
        }
        Ok(())
    }
}

/// Fails if a weight is too large for a type: most types have f16 scales, which would overflow to
/// infinity. `x` is `[n_rows, d_row]`.
fn check_fits(ty: TensorType, d_row: usize, x: &[f32], out: &[u8]) -> Result<(), Error> {
    const MAX_F16: f32 = 65504.0;
    if !x.iter().fold(false, |any, x| any | (x.abs() > MAX_F16)) {
        return Ok(());
    }
    let mut decoded = vec![0.0; x.len()];
    decode_rows(ty, d_row, out, &mut decoded)?;
    match decoded.iter().position(|y| !y.is_finite()) {
        Some(at) => Err(Error::TooLarge { value: x[at], ty }),
        None => Ok(()),
    }
}

/// Fails if a float is NaN or infinite. Scales of quantized types are not checked.
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
        // NaN and infinity have all bits of the exponent set.
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
    fn shard_names_lose_only_the_gguf_extension() {
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

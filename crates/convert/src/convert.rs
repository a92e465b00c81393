//! Writes a checkpoint to GGUF files, tensor by tensor. Threads quantize rows in parallel; each
//! file appears under its name only when it is complete, and an interrupted conversion goes on
//! where it was.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use atta_formats::{
    Contents, Layout, Split, TensorType, Writer, decode_rows, f16,
    gguf::{Checksums, PIECE_BYTES, shard_file_name},
};
use atta_model::Sensitivity;
use atta_store::ReadAt;

use crate::{
    Checkpoint, Error, ImportanceMatrix, Plan, Step, Tensor, TypeSelection, execution_order,
    partial_file::PartialFile,
    quantize::{Quantizer, SmallScales},
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
    /// Where tensors are in the files.
    pub layout: FileLayout,
}

/// Where tensors are in a file, and whether it holds checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileLayout {
    /// `Streamable` for files with types of atta's own, else `Plain`: files in ggml's types are
    /// equal to llama.cpp's.
    #[default]
    ByTypes,
    /// As llama.cpp: tensors at multiples of 32 bytes, ordered by name.
    Plain,
    /// Tensors at disk blocks, in the order in which the forward pass reads them, with checksums.
    Streamable,
}

impl FileLayout {
    fn is_streamable(self, plan: &Plan) -> bool {
        match self {
            Self::ByTypes => has_own_types(plan),
            Self::Plain => false,
            Self::Streamable => true,
        }
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// The files, in order.
    pub files: Vec<PathBuf>,
    /// Bytes of tensors that an interrupted conversion had written before.
    pub resumed_bytes: u64,
    /// Scales of T2, T3 and T4 that were too small, in the bytes that were written now.
    pub small_scales: SmallScales,
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

/// Writes a checkpoint to `dst`, or to numbered shards beside `dst` if it is to be split.
/// `progress` is called many times a second. If it breaks, or the program ends, the bytes so far
/// stay beside `dst` under temporary names, and the same conversion of the same files goes on with
/// it.
///
/// # Errors
/// Those of [`Plan::new`], existing files, weights that are not finite, and I/O errors.
pub fn convert(
    checkpoint: &Checkpoint,
    dst: &Path,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Converted, Error> {
    let plan = planned(checkpoint, options)?;
    let shards = shards(checkpoint, &plan, options.max_shard_bytes);
    let paths = paths(dst, shards.len(), options.existing)?;
    let conversion = Conversion {
        checkpoint,
        options,
        plan: &plan,
        quantizers: Vec::new(),
        reporter: ProgressReporter {
            checkpoint,
            progress,
            done: 0,
            total: plan.n_bytes,
        },
        resumed_bytes: 0,
    };
    let result = conversion.files(&shards, &paths);
    // Weights that cannot be converted never will be.
    if let Err(Error::Tensor { .. }) = &result {
        paths.iter().for_each(|path| PartialFile::remove(path));
    }
    result.map(|done| Converted {
        files: paths,
        ..done
    })
}

/// The paths of `n` files; an error if one is there and is to be kept.
fn paths(dst: &Path, n: usize, existing: Existing) -> Result<Vec<PathBuf>, Error> {
    let n_shards = u16::try_from(n).map_err(|_| Error::TooManyShards { n })?;
    let path = |no| match n_shards {
        1 => dst.to_owned(),
        _ => shard_path(dst, no, n_shards),
    };
    let paths: Vec<_> = (0..n_shards).map(path).collect();
    let mut taken = paths.iter().filter(|path| path.exists());
    match taken.next().filter(|_| existing == Existing::Keep) {
        Some(path) => Err(Error::Exists { path: path.clone() }),
        None => Ok(paths),
    }
}

/// The length of the file that [`convert`] writes, if it is not to be split, bytes.
///
/// # Errors
/// Those of [`Plan::new`], and of names and shapes that GGUF does not allow.
pub fn file_bytes(checkpoint: &Checkpoint, options: &ConvertOptions) -> Result<u64, Error> {
    let plan = planned(checkpoint, options)?;
    let writer = header(checkpoint, options, &plan, None);
    let is_streamable = options.layout.is_streamable(&plan);
    Ok(file_layout(checkpoint, &plan.steps, writer, is_streamable)?.file_bytes)
}

/// The types of all tensors, in the order of the file.
fn planned(checkpoint: &Checkpoint, options: &ConvertOptions) -> Result<Plan, Error> {
    let mut plan = Plan::new(checkpoint, &options.types, options.importance.as_ref())?;
    if options.layout.is_streamable(&plan) {
        execution_order::sort(checkpoint, &mut plan.steps)?;
    }
    Ok(plan)
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
    let mut writer = match split {
        Some(Split { no: 1.., .. }) => Writer::new(),
        _ => whole_header(checkpoint, options, has_own_types(plan)),
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

fn has_own_types(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| step.ty.is_own())
}

fn whole_header(checkpoint: &Checkpoint, options: &ConvertOptions, has_own_types: bool) -> Writer {
    let mut writer = checkpoint.metadata.clone();
    if has_own_types {
        writer.remove("general.file_type");
    }
    if options.types.is_whole() {
        // At the end, as in llama.cpp's files.
        for key in ["general.quantization_version", "general.file_type"] {
            writer.remove(key);
        }
        writer.set_u32("general.quantization_version", 2);
        let file_type = options.types.mix.and_then(|mix| mix.file_type);
        if let Some(file_type) = file_type.filter(|_| !has_own_types) {
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
    plan: &'a Plan,
    /// The quantizers made so far, because some take long to construct.
    quantizers: Vec<(TensorType, Quantizer)>,
    reporter: ProgressReporter<'a>,
    /// Bytes of tensors that were there before.
    resumed_bytes: u64,
}

/// The header, and the places of tensors.
fn file_layout(
    checkpoint: &Checkpoint,
    steps: &[Step],
    mut writer: Writer,
    is_streamable: bool,
) -> Result<Layout, Error> {
    for step in steps {
        let tensor = &checkpoint.tensors[step.tensor];
        writer.add_tensor(&tensor.name, &tensor.dims, step.ty)?;
    }
    Ok(match is_streamable {
        true => writer.finish_with_checksums(PIECE_BYTES)?,
        false => writer.finish()?,
    })
}

impl Conversion<'_> {
    /// Writes all files, and gives them their names when all are whole.
    fn files(mut self, shards: &[&[Step]], paths: &[PathBuf]) -> Result<Converted, Error> {
        let n = paths.len() as u16;
        let mut files = Vec::new();
        for ((steps, path), no) in shards.iter().zip(paths).zip(0..) {
            let split = (n > 1).then_some(Split {
                no,
                count: n,
                n_tensors: Some(self.plan.steps.len() as u64),
            });
            let writer = header(self.checkpoint, self.options, self.plan, split);
            files.push(self.file(path, writer, steps)?);
        }
        self.checkpoint.check_files()?;
        files.into_iter().try_for_each(PartialFile::commit)?;
        Ok(self.converted())
    }

    /// The result, without the names of files.
    fn converted(&self) -> Converted {
        let scales = self.quantizers.iter().map(|(_, of)| of.small_scales());
        Converted {
            files: Vec::new(),
            resumed_bytes: self.resumed_bytes,
            small_scales: scales.sum(),
        }
    }

    /// Writes one file under its temporary name.
    fn file(&mut self, path: &Path, writer: Writer, steps: &[Step]) -> Result<PartialFile, Error> {
        let is_streamable = self.options.layout.is_streamable(self.plan);
        let layout = file_layout(self.checkpoint, steps, writer, is_streamable)?;
        let checksums = checksums_of(&layout)?;
        let hash = self.hash(&layout);
        let mut file = PartialFile::open(path, layout, hash)?;
        self.resumed_bytes += file.present_bytes();
        self.reporter.done += file.present_bytes();
        for (i, step) in steps.iter().enumerate() {
            let tensor = &self.checkpoint.tensors[step.tensor];
            let present = file.present_of(i);
            if present < n_bytes(tensor, step.ty) {
                self.tensor(&mut file, tensor, step.ty, present)
                    .map_err(|error| error.of(&tensor.name))?;
            }
        }
        file.finish(checksums.as_ref())?;
        Ok(file)
    }

    /// The hash of all that the bytes of a file depend on.
    fn hash(&self, layout: &Layout) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.update(&layout.header);
        for (path, file) in &self.checkpoint.files {
            hasher.update(path.as_os_str().as_encoded_bytes());
            hasher.update(&file.n_bytes().to_le_bytes());
            hasher.update(&file.version().unwrap_or(0).to_le_bytes());
        }
        if let Some(importance) = &self.options.importance {
            importance.each_number(|bytes| {
                hasher.update(bytes);
            });
        }
        *hasher.finalize().as_bytes()
    }

    /// Writes a tensor in a type, from byte `present` on.
    fn tensor(
        &mut self,
        file: &mut PartialFile,
        tensor: &Tensor,
        ty: TensorType,
        present: u64,
    ) -> Result<(), Error> {
        match tensor.rows.stored() {
            Some(bytes) if ty == tensor.ty => self.copy(file, tensor, bytes, present as usize),
            _ => self.quantize(file, tensor, ty, present),
        }
    }

    /// Copies bytes unchanged, from byte `at` on.
    fn copy(
        &mut self,
        file: &mut PartialFile,
        tensor: &Tensor,
        bytes: &[u8],
        mut at: usize,
    ) -> Result<(), Error> {
        for bytes in bytes[at..].chunks(COPY_BYTES) {
            check_finite(tensor.ty, bytes, at)?;
            self.reporter.write(file, tensor, bytes)?;
            at += bytes.len();
        }
        Ok(())
    }

    /// Quantizes rows and writes them from byte `present` on, a few chunks per thread at a time.
    fn quantize(
        &mut self,
        file: &mut PartialFile,
        tensor: &Tensor,
        ty: TensorType,
        present: u64,
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
        // A row that is there in part is quantized once more.
        let mut first = present / row_bytes as u64;
        let mut skipped = (present % row_bytes as u64) as usize;
        while first < n_rows {
            let n = (n_rows - first).min((buffer.len() / row_bytes) as u64) as usize;
            let out = &mut buffer[..n * row_bytes];
            rows.run(first, out, n_threads)?;
            self.reporter.write(file, tensor, &out[skipped..])?;
            skipped = 0;
            first += n as u64;
        }
        Ok(())
    }
}

/// Where a header has room for checksums; `None` if it has none.
fn checksums_of(layout: &Layout) -> Result<Option<Checksums>, Error> {
    let header = Arc::new(layout.header.clone());
    let contents = Contents::parse(header, layout.file_bytes)?;
    Ok(Checksums::of(&contents)?)
}

/// Writes bytes of tensors and reports progress.
struct ProgressReporter<'a> {
    checkpoint: &'a Checkpoint,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    /// Bytes of tensors written so far.
    done: u64,
    total: u64,
}

impl ProgressReporter<'_> {
    fn write(
        &mut self,
        file: &mut PartialFile,
        tensor: &Tensor,
        bytes: &[u8],
    ) -> Result<(), Error> {
        // Weights from bytes that could not be read must not look whole later.
        self.checkpoint.check_files()?;
        file.write(bytes)?;
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
        for (dst, expected) in [
            ("a/model.gguf", "a/model-00001-of-00002.gguf"),
            ("model.GGUF", "model-00001-of-00002.gguf"),
            ("Qwen2.5-0.5B", "Qwen2.5-0.5B-00001-of-00002.gguf"),
        ] {
            assert_eq!(shard_path(Path::new(dst), 0, 2), Path::new(expected));
        }
    }
}

//! Writes a checkpoint as a model file and its `tokenizer.bin`, a megabyte at a time.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    ops::ControlFlow,
};

use atta_formats::Metadata;
use atta_model::Role;

use super::{
    compat,
    header::{FileVersion, Header, Sizes},
    layout::{self, FileTensor},
    rounding::{self, RoundingError},
    vocab::TokenizerBin,
};
use crate::{Checkpoint, Error, Tensor, metadata::parsed};

/// Weights in memory at a time, unless one row is longer.
const CHUNK: usize = 1 << 18;
/// The smallest group size.
const MIN_GROUP: u64 = 32;

/// The format of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapFormat {
    /// Version 1: f32.
    F32,
    /// Version 2: int8 in groups.
    Int8 {
        /// Weights per group, halved until it divides every row.
        group_size: u32,
    },
}

/// The report of a conversion.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Weights per group; `None` for f32.
    pub group_size: Option<u64>,
    /// Quantization errors by role, such as `attn_q.weight`.
    pub rounding_errors: BTreeMap<&'static str, RoundingError>,
    /// Descriptions of what the format cannot express.
    pub dropped: Vec<String>,
}

/// Writes both files. `progress` is called with the bytes of the model written and the total; it
/// may break to stop.
///
/// # Errors
/// [`Error::NotLlama2c`] if llama2.c or LEAP would compute the model differently; weights that
/// cannot be read; [`Error::Output`].
pub fn write(
    checkpoint: &Checkpoint,
    to: LeapFormat,
    model: &mut impl Write,
    tokenizer: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, Error> {
    let metadata = parsed(&checkpoint.metadata)?;
    let header = header(checkpoint, &metadata, to)?;
    let (slots, end) = layout::file_tensors(&header).map_err(compat::refused)?;
    let parts = pair(checkpoint, slots)?;
    let vocab = TokenizerBin::new(&metadata).map_err(compat::refused)?;
    vocab.write(tokenizer).map_err(Error::Output)?;
    let mut out = ModelWriter {
        to: model,
        written: 0,
        end,
        progress,
    };
    out.write(&header.encode())?;
    let mut rounding_errors = BTreeMap::<_, RoundingError>::new();
    for (tensor, slot) in &parts {
        let rounding = rounding_errors.entry(slot.role.name()).or_default();
        let written = write_tensor(tensor, slot, &mut out, rounding);
        written.map_err(|error| error.of(&tensor.name))?;
    }
    rounding_errors.retain(|_, rounding| !rounding.is_empty());
    Ok(Report {
        group_size: header.version.group(),
        rounding_errors,
        dropped: vocab.dropped(&metadata),
    })
}

fn header(checkpoint: &Checkpoint, metadata: &Metadata, to: LeapFormat) -> Result<Header, Error> {
    let sizes = compat::sizes(&atta_model::arch::lower(metadata)?)?;
    let version = match to {
        LeapFormat::F32 => FileVersion::V1,
        LeapFormat::Int8 { group_size } => FileVersion::V2 {
            group: group_for(&sizes, group_size.into())?,
        },
    };
    let tied = !checkpoint
        .tensors
        .iter()
        .any(|tensor| tensor.name == Role::Output.name());
    Ok(Header {
        version,
        sizes,
        tied,
    })
}

/// The wanted group size, halved until it divides every row, as llama2.c requires.
fn group_for(sizes: &Sizes, wanted: u64) -> Result<u64, Error> {
    let halves = std::iter::successors(Some(wanted), |group| Some(group / 2))
        .take_while(|&group| group >= MIN_GROUP);
    let mut fitting = halves.filter(|group| {
        [sizes.d_model, sizes.d_ff]
            .iter()
            .all(|d| d.is_multiple_of(*group))
    });
    let why = || {
        format!(
            "widths of {} and {} have no groups of {wanted} halved to 32 or more",
            sizes.d_model, sizes.d_ff
        )
    };
    fitting.next().ok_or_else(|| compat::refused(why()))
}

/// Pairs each tensor of the file with that of the checkpoint. Fails if one is left over.
fn pair(
    checkpoint: &Checkpoint,
    slots: Vec<FileTensor>,
) -> Result<Vec<(&Tensor, FileTensor)>, Error> {
    let mut tensors: HashMap<&str, &Tensor> =
        checkpoint.tensors.iter().map(|t| (&*t.name, t)).collect();
    let mut pairs = Vec::new();
    for slot in slots {
        match tensors.remove(&*slot.name()) {
            Some(tensor) if tensor.dims == slot.dims => pairs.push((tensor, slot)),
            Some(tensor) => {
                return Err(compat::refused(format!(
                    "{} is {:?}, expected {:?}",
                    tensor.name, tensor.dims, slot.dims
                )));
            }
            None => return Err(compat::refused(format!("it has no {}", slot.name()))),
        }
    }
    match checkpoint
        .tensors
        .iter()
        .find(|tensor| tensors.contains_key(&*tensor.name))
    {
        Some(left) => Err(compat::refused(format!(
            "the format has no tensor {}",
            left.name
        ))),
        None => Ok(pairs),
    }
}

/// Writes the model file and reports progress.
struct ModelWriter<'a, W> {
    to: &'a mut W,
    written: u64,
    end: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

impl<W: Write> ModelWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.to.write_all(bytes).map_err(Error::Output)?;
        self.written += bytes.len() as u64;
        match (self.progress)(self.written, self.end) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}

fn write_tensor(
    tensor: &Tensor,
    slot: &FileTensor,
    out: &mut ModelWriter<'_, impl Write>,
    rounding: &mut RoundingError,
) -> Result<(), Error> {
    let mut bytes = Vec::new();
    let mut scales = Vec::new();
    let mut weights = vec![0.0; chunk(slot)];
    let n_rows = tensor.n_rows();
    let d_row = slot.d_row() as usize;
    for first in (0..n_rows).step_by(weights.len() / d_row) {
        let n = weights.len().min((n_rows - first) as usize * d_row);
        let weights = &mut weights[..n];
        tensor.rows.read(first, weights)?;
        bytes.clear();
        match slot.group {
            None => floats(weights, &mut bytes)?,
            Some(group) => quantize(weights, group as usize, &mut bytes, &mut scales, rounding)?,
        }
        out.write(&bytes)?;
    }
    out.write(&scales)
}

/// Appends weights as f32.
fn floats(weights: &[f32], bytes: &mut Vec<u8>) -> Result<(), Error> {
    if let Some(at) = weights.iter().position(|w| !w.is_finite()) {
        return Err(Error::NotFinite {
            at,
            value: weights[at],
        });
    }
    bytes.extend(weights.iter().flat_map(|w| w.to_le_bytes()));
    Ok(())
}

/// The number of weights to read at once: whole rows of about a megabyte.
fn chunk(slot: &FileTensor) -> usize {
    let d_row = slot.d_row() as usize;
    d_row * (CHUNK / d_row).clamp(1, (slot.n_weights() / slot.d_row()) as usize)
}

fn quantize(
    weights: &[f32],
    group: usize,
    codes: &mut Vec<u8>,
    scales: &mut Vec<u8>,
    rounding: &mut RoundingError,
) -> Result<(), Error> {
    for weights in weights.chunks_exact(group) {
        scales.extend(rounding::quantize(weights, codes, rounding)?.to_le_bytes());
    }
    Ok(())
}

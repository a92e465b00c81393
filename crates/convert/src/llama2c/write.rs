//! From a checkpoint to a model file and its `tokenizer.bin`, a megabyte at a time.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    ops::ControlFlow,
};

use atta_formats::Metadata;
use atta_model::Role;

use super::{
    fit,
    header::{Form, Header, Sizes},
    layout::{self, Place},
    loss::{self, Loss},
    vocab::Writable,
};
use crate::{Checkpoint, Error, Tensor, metadata::parsed};

/// Weights that are in memory at a time, unless one row is longer.
const CHUNK: usize = 1 << 18;
/// The shortest group that is worth its scale.
const MIN_GROUP: u64 = 32;

/// What weights are written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leap {
    /// Version 1: f32.
    F32,
    /// Version 2: groups of int8.
    Int8 {
        /// Weights per group, halved until it divides every row.
        group_size: u32,
    },
}

/// What became of a model on its way.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Weights per group of int8; `None` if they are f32.
    pub group_size: Option<u64>,
    /// What int8 lost, by the kind of tensor, such as `attn_q.weight`.
    pub losses: BTreeMap<&'static str, Loss>,
    /// What the format has no place for.
    pub dropped: Vec<String>,
}

/// Writes both files. `progress` is told how many bytes of how many of the model are written, and
/// may break.
///
/// # Errors
/// [`Error::NotLlama2c`] if llama2.c or LEAP would compute something else from these weights;
/// weights that cannot be read, and what the system says to writing.
pub fn write(
    checkpoint: &Checkpoint,
    to: Leap,
    model: &mut impl Write,
    tokenizer: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, Error> {
    let metadata = parsed(&checkpoint.metadata)?;
    let header = header(checkpoint, &metadata, to)?;
    let (places, end) = layout::places(&header).map_err(fit::refused)?;
    let parts = pair(checkpoint, places)?;
    let vocab = Writable::new(&metadata).map_err(fit::refused)?;
    vocab.write(tokenizer).map_err(Error::Output)?;
    let mut out = Output {
        to: model,
        written: 0,
        end,
        progress,
    };
    out.write(&header.encode())?;
    let mut losses = BTreeMap::<_, Loss>::new();
    for (tensor, place) in &parts {
        let loss = losses.entry(place.role.name()).or_default();
        let written = write_tensor(tensor, place, &mut out, loss);
        written.map_err(|error| error.of(&tensor.name))?;
    }
    losses.retain(|_, loss| !loss.is_empty());
    Ok(Report {
        group_size: header.form.group(),
        losses,
        dropped: vocab.dropped(&metadata),
    })
}

fn header(checkpoint: &Checkpoint, metadata: &Metadata, to: Leap) -> Result<Header, Error> {
    let sizes = fit::sizes(&atta_model::arch::lower(metadata)?)?;
    let form = match to {
        Leap::F32 => Form::V1,
        Leap::Int8 { group_size } => Form::V2 {
            group: group_for(&sizes, group_size.into())?,
        },
    };
    let tied = !checkpoint
        .tensors
        .iter()
        .any(|tensor| tensor.name == Role::Output.name());
    Ok(Header { form, sizes, tied })
}

/// The largest group that divides every row, by halving; llama2.c multiplies nothing else rightly.
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
    fitting.next().ok_or_else(|| fit::refused(why()))
}

/// Each place with its tensor, none left over.
fn pair(checkpoint: &Checkpoint, places: Vec<Place>) -> Result<Vec<(&Tensor, Place)>, Error> {
    let mut tensors: HashMap<&str, &Tensor> =
        checkpoint.tensors.iter().map(|t| (&*t.name, t)).collect();
    let mut pairs = Vec::new();
    for place in places {
        match tensors.remove(&*place.name()) {
            Some(tensor) if tensor.dims == place.dims => pairs.push((tensor, place)),
            Some(tensor) => {
                return Err(fit::refused(format!(
                    "{} is {:?}, expected {:?}",
                    tensor.name, tensor.dims, place.dims
                )));
            }
            None => return Err(fit::refused(format!("it has no {}", place.name()))),
        }
    }
    match checkpoint
        .tensors
        .iter()
        .find(|tensor| tensors.contains_key(&*tensor.name))
    {
        Some(left) => Err(fit::refused(format!("there is no place for {}", left.name))),
        None => Ok(pairs),
    }
}

/// The model file as far as it is written.
struct Output<'a, W> {
    to: &'a mut W,
    written: u64,
    end: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

impl<W: Write> Output<'_, W> {
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
    place: &Place,
    out: &mut Output<'_, impl Write>,
    loss: &mut Loss,
) -> Result<(), Error> {
    let mut bytes = Vec::new();
    let mut scales = Vec::new();
    let mut weights = vec![0.0; chunk(place)];
    let n_rows = tensor.n_rows();
    let d_row = place.d_row() as usize;
    for first in (0..n_rows).step_by(weights.len() / d_row) {
        let n = weights.len().min((n_rows - first) as usize * d_row);
        let weights = &mut weights[..n];
        tensor.rows.read(first, weights)?;
        bytes.clear();
        match place.group {
            None => floats(weights, &mut bytes)?,
            Some(group) => quantize(weights, group as usize, &mut bytes, &mut scales, loss)?,
        }
        out.write(&bytes)?;
    }
    out.write(&scales)
}

/// Weights as they are.
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

/// Weights of whole rows, about a megabyte of them.
fn chunk(place: &Place) -> usize {
    let d_row = place.d_row() as usize;
    d_row * (CHUNK / d_row).clamp(1, (place.n_weights() / place.d_row()) as usize)
}

fn quantize(
    weights: &[f32],
    group: usize,
    codes: &mut Vec<u8>,
    scales: &mut Vec<u8>,
    loss: &mut Loss,
) -> Result<(), Error> {
    for weights in weights.chunks_exact(group) {
        scales.extend(loss::quantize(weights, codes, loss)?.to_le_bytes());
    }
    Ok(())
}

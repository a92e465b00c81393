//! How near quantized matrices come to what they were made of: the cosine of both as vectors, the
//! measure of QSF's plan.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use atta_formats::{TensorType, decode_rows};

use crate::{
    Checkpoint, Error, ImportanceMatrix, Plan, Step, Tensor, TypeSelection, quantize::Quantizer,
};

/// Weights that are quantized at once.
const CHUNK_WEIGHTS: usize = 1 << 16;

/// The cosine of one tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorCosine {
    /// The tensor.
    pub name: String,
    /// The type it was quantized to.
    pub ty: TensorType,
    /// At most 1.
    pub cosine: f64,
}

/// Quantizes all tensors that `plan` makes a type of QSF, and measures them, in the order of the
/// plan.
///
/// # Errors
/// Rows that cannot be read, or weights that are not finite.
pub fn cosines(
    checkpoint: &Checkpoint,
    plan: &Plan,
    importance: Option<&ImportanceMatrix>,
    n_threads: usize,
) -> Result<Vec<TensorCosine>, Error> {
    let is_wanted =
        |step: &&Step| step.ty.is_qsf() && checkpoint.tensors[step.tensor].ty != step.ty;
    let queue = CosineQueue {
        checkpoint,
        steps: plan.steps.iter().filter(is_wanted).collect(),
        importance,
        next: AtomicUsize::new(0),
    };
    let mut found = thread::scope(|scope| {
        let others: Vec<_> = (1..n_threads.max(1))
            .map(|_| scope.spawn(|| queue.work()))
            .collect();
        let mut found = queue.work()?;
        for other in others {
            found.extend(other.join().expect("a quantizer does not panic")?);
        }
        Ok::<_, Error>(found)
    })?;
    found.sort_by_key(|(i, _)| *i);
    Ok(found.into_iter().map(|(_, cosine)| cosine).collect())
}

/// Tensors that threads take one by one.
struct CosineQueue<'a> {
    checkpoint: &'a Checkpoint,
    steps: Vec<&'a Step>,
    importance: Option<&'a ImportanceMatrix>,
    next: AtomicUsize,
}

impl CosineQueue<'_> {
    /// Measures tensors until none is left, and returns their numbers and cosines.
    fn work(&self) -> Result<Vec<(usize, TensorCosine)>, Error> {
        let mut found = Vec::new();
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = self.steps.get(i) else {
                return Ok(found);
            };
            let tensor = &self.checkpoint.tensors[step.tensor];
            let cosine = cosine(tensor, step.ty, self.importance);
            found.push((i, cosine.map_err(|error| error.of(&tensor.name))?));
        }
    }
}

/// Gives one bit more to the tensors whose cosine is below `min`, and returns their number.
pub fn raise(cosines: &[TensorCosine], min: f64, types: &mut TypeSelection) -> usize {
    let low = cosines.iter().filter(|found| found.cosine < min);
    let raised: Vec<_> = low
        .map(|found| (super::only(&found.name), next_type(found.ty)))
        .collect();
    let n = raised.len();
    // Before the patterns of the user, which chose the types that are raised.
    types.overrides.splice(0..0, raised);
    n
}

/// The type one step up.
fn next_type(ty: TensorType) -> TensorType {
    match ty {
        TensorType::QSFT => TensorType::QSF2,
        TensorType::QSF2S | TensorType::QSF2 => TensorType::QSF3,
        TensorType::QSF3 => TensorType::QSF4,
        _ => TensorType::Q8_0,
    }
}

/// Sums over the weights of a tensor and of what it becomes.
#[derive(Default)]
struct CosineSums {
    xx: f64,
    yy: f64,
    xy: f64,
}

impl CosineSums {
    fn add(&mut self, x: &[f32], y: &[f32]) {
        for (&x, &y) in x.iter().zip(y) {
            let [x, y] = [x, y].map(f64::from);
            self.xx += x * x;
            self.yy += y * y;
            self.xy += x * y;
        }
    }

    /// 1 of a tensor of zeros.
    fn cosine(&self) -> f64 {
        match self.xx == 0.0 && self.yy == 0.0 {
            true => 1.0,
            false => self.xy / (self.xx * self.yy).sqrt().max(f64::MIN_POSITIVE),
        }
    }
}

fn cosine(
    tensor: &Tensor,
    ty: TensorType,
    importance: Option<&ImportanceMatrix>,
) -> Result<TensorCosine, Error> {
    let d = tensor.d_row() as usize;
    let importance = importance.and_then(|all| all.entry(&tensor.name));
    let importance = importance.map(|entry| entry.reached_weights());
    let quantizer = Quantizer::new(ty)?;
    let mut sums = CosineSums::default();
    // Rows of one expert share their importance.
    let per_expert = tensor.dims.iter().rev().nth(1).copied().unwrap_or(1);
    let at_once = (CHUNK_WEIGHTS / d.max(1)).max(1) as u64;
    let mut first = 0;
    while first < tensor.n_rows() {
        let expert = first / per_expert;
        let n = at_once.min(per_expert * (expert + 1) - first);
        let mut x = vec![0.0; n as usize * d];
        tensor.rows.read(first, &mut x)?;
        let weights = importance
            .as_deref()
            .map(|all| &all[expert as usize * d..][..d]);
        sums.add(&x, &rounded(&quantizer, ty, &x, weights, d)?);
        first += n;
    }
    Ok(TensorCosine {
        name: tensor.name.clone(),
        ty,
        cosine: sums.cosine(),
    })
}

/// Rows of `d` weights as their blocks of `ty` have them.
fn rounded(
    quantizer: &Quantizer,
    ty: TensorType,
    x: &[f32],
    weights: Option<&[f32]>,
    d: usize,
) -> Result<Vec<f32>, Error> {
    let row_bytes = ty.row_bytes(d).unwrap_or(0);
    let mut blocks = vec![0; x.len() / d.max(1) * row_bytes];
    quantizer.rows(x, d, weights, &mut blocks)?;
    let mut y = vec![0.0; x.len()];
    decode_rows(ty, d, &blocks, &mut y)?;
    Ok(y)
}

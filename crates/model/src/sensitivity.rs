//! Measurements of a model that runs in part: the cost of leaving layers out, and of fewer experts.
//! They lie in the model's file, and a choice by quality needs them.
//!
//! ```text
//! atta.sensitivity.tokens      u32, tokens that were scored
//! atta.sensitivity.skip        [f32], KL divergence without layer i alone, nats; infinite where it
//!                              was not measured
//! atta.sensitivity.layers      [u32], the order in which layers are left out, and behind each
//! atta.sensitivity.layers.kld  [f32], nats, .ppl_ratio [f32], .same_top [f32]: the cost up to it
//! atta.sensitivity.experts     [u32], experts for each position; .kld, .ppl_ratio, .same_top
//! ```
//! Refuses to know how it is measured (`atta-eval`). The bytes may come from anywhere: lengths are
//! compared with the model's, and layers that cannot be left out are refused.

use atta_formats::{Metadata, NumArray, Writer};

use crate::{Error, spec::ModelSpec};

/// Layers at either end that are never left out: they translate from tokens and to tokens, and no
/// model does without them.
const N_KEPT: usize = 2;

const TOKENS: &str = "atta.sensitivity.tokens";
const SKIP: &str = "atta.sensitivity.skip";
const LAYERS: &str = "atta.sensitivity.layers";
const EXPERTS: &str = "atta.sensitivity.experts";

/// The parts of the costs of steps.
const KLD: &str = "kld";
const PPL_RATIO: &str = "ppl_ratio";
const SAME_TOP: &str = "same_top";

/// Measured costs of running a model in part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sensitivity {
    /// Tokens that were scored.
    pub n_tokens: u32,
    /// KL divergence without each layer alone, nats, `[n_layers]`; infinite where it was not
    /// measured.
    pub skip: Vec<f32>,
    /// The layers in the order in which they are left out, each with the cost up to it.
    pub layers: Vec<MeasuredStep>,
    /// Numbers of experts for each position, from more to fewer.
    pub experts: Vec<MeasuredStep>,
}

/// A step to less of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredStep {
    /// The layer that is left out, too; or the number of experts.
    pub to: usize,
    /// The cost of all steps up to this one.
    pub cost: ReductionCost,
}

/// The cost of running a model in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReductionCost {
    /// Mean KL divergence from the whole model, nats.
    pub kld: f32,
    /// Perplexity over that of the whole model.
    pub ppl_ratio: f32,
    /// Share of tokens before which both find the same one most probable.
    pub same_top: f32,
}

impl Sensitivity {
    /// The layers that may be left out: all but those at the ends and those that others depend on.
    pub fn candidates(spec: &ModelSpec) -> impl Iterator<Item = usize> + '_ {
        (0..spec.layers.len()).filter(|&l| may_go(spec, l))
    }

    /// Reads the measurements of a whole model; `None` if the file has none.
    ///
    /// # Errors
    /// Keys of other types or lengths, numbers that are no costs, layers that cannot be left out.
    pub fn read(metadata: &Metadata, spec: &ModelSpec) -> Result<Option<Self>, Error> {
        let n_layers = spec.layers.len();
        let Some(skip) = metadata.f32s(SKIP)? else {
            return Ok(None);
        };
        check(SKIP, skip.len() == n_layers, skip.len(), "one per layer")?;
        let layers = steps(metadata, LAYERS, n_layers)?;
        check_layers(&layers, spec)?;
        let (_, most) = spec.max_experts();
        let experts = steps(metadata, EXPERTS, most)?;
        let fits = experts.iter().all(|step| (1..most).contains(&step.to));
        check(EXPERTS, fits, experts.len(), "fewer than the model uses")?;
        Ok(Some(Self {
            n_tokens: metadata.u32(TOKENS)?.unwrap_or(0),
            skip: skip.iter().collect(),
            layers,
            experts,
        }))
    }

    /// Writes the measurements to the metadata of a file, in the place of earlier ones.
    pub fn write(&self, to: &mut Writer) {
        to.set_u32(TOKENS, self.n_tokens);
        to.set_f32s(SKIP, &self.skip);
        write_steps(to, LAYERS, &self.layers);
        write_steps(to, EXPERTS, &self.experts);
    }

    /// Removes the measurements of a file whose weights have changed.
    pub fn remove(from: &mut Writer) {
        [TOKENS, SKIP].into_iter().for_each(|key| from.remove(key));
        [LAYERS, EXPERTS]
            .into_iter()
            .for_each(|key| remove_steps(from, key));
    }

    /// The most steps whose measured divergence is at most `max_kld` nats, as layers.
    pub fn layers_within(&self, max_kld: f32) -> &[MeasuredStep] {
        let last = self.layers.iter().rposition(|s| s.cost.kld <= max_kld);
        &self.layers[..last.map_or(0, |last| last + 1)]
    }

    /// The measured cost of `n` experts for each position.
    pub fn of_experts(&self, n: usize) -> Option<ReductionCost> {
        let step = self.experts.iter().find(|step| step.to == n);
        step.map(|step| step.cost)
    }
}

/// Whether layer `l` is at no end, and others do without it.
fn may_go(spec: &ModelSpec, l: usize) -> bool {
    let inner = N_KEPT..spec.layers.len().saturating_sub(N_KEPT);
    inner.contains(&l) && spec.check_omission(l).is_ok()
}

/// Refuses layers that come twice or cannot be left out.
fn check_layers(steps: &[MeasuredStep], spec: &ModelSpec) -> Result<(), Error> {
    steps.iter().enumerate().try_for_each(|(i, step)| {
        let is_new = steps[..i].iter().all(|earlier| earlier.to != step.to);
        let fits = is_new && may_go(spec, step.to);
        let expected = "each layer once, and none at an end";
        check(LAYERS, fits, step.to, expected)
    })
}

/// The key of a part of the costs of some steps.
fn part(key: &str, name: &str) -> String {
    format!("{key}.{name}")
}

/// Reads at most `most` steps.
fn steps(metadata: &Metadata, key: &str, most: usize) -> Result<Vec<MeasuredStep>, Error> {
    let Some(to) = metadata.u32s(key)? else {
        return Ok(Vec::new());
    };
    check(
        key,
        to.len() <= most,
        to.len(),
        "no more than the model has",
    )?;
    let numbers = |name| numbers(metadata, &part(key, name), to.len());
    let klds = numbers(KLD)?;
    let ppl_ratios = numbers(PPL_RATIO)?;
    let same_tops = numbers(SAME_TOP)?;
    let costs = klds.iter().zip(ppl_ratios.iter()).zip(same_tops.iter());
    let costs = costs.map(|((kld, ppl_ratio), same_top)| ReductionCost {
        kld,
        ppl_ratio,
        same_top,
    });
    let steps = to.iter().map(|to| to as usize).zip(costs);
    Ok(steps.map(|(to, cost)| MeasuredStep { to, cost }).collect())
}

/// `n` costs, none of them negative.
fn numbers(metadata: &Metadata, key: &str, n: usize) -> Result<NumArray<f32>, Error> {
    let values = metadata
        .f32s(key)?
        .ok_or(Error::MissingKey(key.to_owned()))?;
    check(key, values.len() == n, values.len(), "one per step")?;
    let wrong = values.iter().find(|x| !(x.is_finite() && *x >= 0.0));
    wrong.map_or(Ok(values), |x| {
        Err(out_of_range(key, x, "numbers of at least 0"))
    })
}

fn check(
    key: &str,
    holds: bool,
    value: impl ToString,
    expected: &'static str,
) -> Result<(), Error> {
    match holds {
        true => Ok(()),
        false => Err(out_of_range(key, value, expected)),
    }
}

fn out_of_range(key: &str, value: impl ToString, expected: &'static str) -> Error {
    Error::OutOfRange {
        key: key.to_owned(),
        value: value.to_string(),
        expected,
    }
}

/// Writes steps in the place of earlier ones.
fn write_steps(to: &mut Writer, key: &str, steps: &[MeasuredStep]) {
    remove_steps(to, key);
    if steps.is_empty() {
        return;
    }
    let ids: Vec<u32> = steps.iter().map(|step| step.to as u32).collect();
    to.set_u32s(key, &ids);
    let mut write = |name, of: fn(&ReductionCost) -> f32| {
        let values: Vec<f32> = steps.iter().map(|step| of(&step.cost)).collect();
        to.set_f32s(&part(key, name), &values);
    };
    write(KLD, |cost| cost.kld);
    write(PPL_RATIO, |cost| cost.ppl_ratio);
    write(SAME_TOP, |cost| cost.same_top);
}

fn remove_steps(from: &mut Writer, key: &str) {
    from.remove(key);
    for name in [KLD, PPL_RATIO, SAME_TOP] {
        from.remove(&part(key, name));
    }
}

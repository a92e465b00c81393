//! `atta convert --target-size`: the types of tensors chosen for a wished size.
//!
//! The library computes costs and chooses; this module runs models to measure what it needs. With
//! `--calibrate`, a file in Q8_0 stands for the source, and one in a coarse type lends it one group
//! of tensors after the other. If the result is far from the prediction, the groups are measured
//! once more around it, by giving it back one group after the other in Q8_0.

mod args;
mod calibration;
mod report;
mod scratch;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atta::{
    TensorType,
    convert::{
        self, Checkpoint, ConvertOptions, Converted, Existing, Mix, Plan, TypeSelection,
        file_bytes, gguf,
        target::{CostOptions, CostSources, CostTable, TypeChoice},
    },
};

use super::{
    ConvertArgs, Monitor, SourcePath, options, print, settled, stopped, warn_of_unused, warnings,
};
use crate::failure::Failure;

pub(super) use args::SizeArgs;

use calibration::{Calibration, Divergence, TextPart};
use report::SizeReport;
use scratch::ScratchFiles;

/// How far a prediction may be off before groups are measured once more.
const TOLERANCE: f64 = 0.25;

/// Chooses types, and writes the file.
pub(super) fn run(
    args: &ConvertArgs,
    source: &SourcePath,
    plain: Checkpoint,
) -> Result<(), Failure> {
    let job = SizedConversion::new(args, source, &plain)?;
    drop(plain);
    let output = match &args.size.calibrate {
        Some(text) => job.calibrated(text)?,
        None => job.guessed()?,
    };
    let report = SizeReport::new(&job, &output);
    print(args, || report.json(), || report.text())
}

/// The type that groups are probed with: near the one that most tensors will have, since errors
/// that are much larger do not add up.
fn probe_type(bits: f64) -> TensorType {
    match bits {
        ..3.2 => TensorType::T2,
        ..4.2 => TensorType::T3,
        _ => TensorType::T4,
    }
}

/// A selection that gives all matrices one type.
fn uniform(ty: TensorType) -> TypeSelection {
    TypeSelection {
        mix: Mix::named(ty.name()),
        pure: true,
        ..TypeSelection::default()
    }
}

/// Computes the costs of all types in all tensors.
fn costs(
    args: &ConvertArgs,
    source: &SourcePath,
    plain: &Checkpoint,
    options: &ConvertOptions,
    probe: TensorType,
) -> Result<CostTable, Failure> {
    let mut centred = source.open_again()?;
    let types = uniform(probe);
    let of_probe = ConvertOptions {
        types,
        ..options.clone()
    };
    settled(&mut centred, &of_probe)?;
    let sources = CostSources {
        plain,
        centred: &centred,
        importance: options.importance.as_ref(),
    };
    let costs = CostOptions {
        types: args.size.types(),
        may_keep: args.size.types.is_empty(),
        probe: Some(probe),
        overrides: args.tensor_types.clone(),
        n_threads: options.n_threads,
    };
    Ok(CostTable::new(sources, &costs)?)
}

/// A conversion to a wished size.
struct SizedConversion<'a> {
    args: &'a ConvertArgs,
    source: &'a SourcePath,
    options: ConvertOptions,
    table: CostTable,
    /// Bytes asked for.
    target: u64,
    /// The type that groups are probed with.
    probe: TensorType,
}

/// The types of all tensors, and what they were chosen by.
#[derive(Clone)]
struct Decision {
    choice: TypeChoice,
    /// KL divergence per unit of error, or guesses, of each tensor.
    sensitivities: Vec<f64>,
    /// The divergence that the choice should have.
    predicted: Option<f64>,
}

/// The end of a conversion.
struct SizedOutput {
    decision: Decision,
    measured: Option<Divergence>,
    checkpoint: Checkpoint,
    plan: Plan,
    file_bytes: u64,
    converted: Converted,
}

/// A checkpoint that is ready to be written with chosen types.
struct ReadyCheckpoint {
    checkpoint: Checkpoint,
    plan: Plan,
    options: ConvertOptions,
}

impl<'a> SizedConversion<'a> {
    fn new(
        args: &'a ConvertArgs,
        source: &'a SourcePath,
        plain: &Checkpoint,
    ) -> Result<Self, Failure> {
        let tensors = plain.tensors.iter();
        let n_weights: u64 = tensors.map(|t| t.n_rows() * t.d_row()).sum();
        let target = args.size.bytes(n_weights);
        let probe = probe_type(8.0 * target as f64 / n_weights.max(1) as f64);
        let options = options(args)?;
        Ok(Self {
            args,
            source,
            table: costs(args, source, plain, &options, probe)?,
            options,
            target,
            probe,
        })
    }

    /// Chooses by the usual figures of the roles of tensors.
    fn guessed(&self) -> Result<SizedOutput, Failure> {
        let decision = self.decide(self.table.guesses(), None)?;
        let prepared = self.prepare(&decision.choice, None)?;
        let converted = match self.args.dry_run {
            true => Converted::default(),
            false => write(&prepared, &self.args.dst, self.options.existing)?,
        };
        self.outcome(prepared, decision, converted)
    }

    /// Chooses by measurements on a text, and measures the result.
    fn calibrated(&self, text: &Path) -> Result<SizedOutput, Failure> {
        let mut scratch = ScratchFiles::beside(&self.args.dst);
        let mut bench = Workbench::new(self, text, &mut scratch)?;
        let first = bench.first_decision()?;
        if self.args.dry_run {
            let prepared = self.prepare(&first.choice, Some(&first.sensitivities))?;
            return self.outcome(prepared, first, Converted::default());
        }
        let mut best = bench.draft(first, scratch.path("first"))?;
        if best.is_off() {
            let second = bench.second_decision(&best)?;
            let second = bench.draft(second, scratch.path("second"))?;
            if second.measured.kld.value < best.measured.kld.value {
                best = second;
            }
        }
        self.finish(best)
    }

    /// Writes the output: the best draft with the divergence that was measured.
    fn finish(&self, best: Draft) -> Result<SizedOutput, Failure> {
        let mut checkpoint = gguf::open(&best.path)?;
        let measured = best.measured;
        report::set_divergence(&mut checkpoint, measured);
        let kept = ReadyCheckpoint {
            plan: Plan::new(&checkpoint, &TypeSelection::default(), None)?,
            checkpoint,
            options: ConvertOptions {
                n_threads: self.options.n_threads,
                layout: self.options.layout,
                ..ConvertOptions::default()
            },
        };
        let converted = write(&kept, &self.args.dst, self.options.existing)?;
        let sensitivities = Some(&best.decision.sensitivities[..]);
        let prepared = self.prepare(&best.decision.choice, sensitivities)?;
        let outcome = self.outcome(prepared, best.decision, converted)?;
        Ok(SizedOutput {
            measured: Some(measured),
            ..outcome
        })
    }

    fn outcome(
        &self,
        prepared: ReadyCheckpoint,
        decision: Decision,
        converted: Converted,
    ) -> Result<SizedOutput, Failure> {
        warn_of_unused(self.args, &prepared.plan);
        warnings(&prepared.checkpoint, &prepared.plan);
        Ok(SizedOutput {
            decision,
            measured: None,
            file_bytes: file_bytes(&prepared.checkpoint, &prepared.options)?,
            checkpoint: prepared.checkpoint,
            plan: prepared.plan,
            converted,
        })
    }

    /// Chooses types by sensitivities, which predict a divergence if they are measured.
    fn decide(
        &self,
        sensitivities: Vec<f64>,
        measured: Option<&[f64]>,
    ) -> Result<Decision, Failure> {
        let choice = self
            .table
            .choose(&sensitivities, self.target, &mut |choice| {
                let prepared = self.prepare(choice, measured)?;
                file_bytes(&prepared.checkpoint, &prepared.options)
            })?;
        Ok(Decision {
            predicted: measured.map(|_| self.table.cost(&sensitivities, &choice)),
            choice,
            sensitivities,
        })
    }

    /// Opens the source and gives its tensors the chosen types. The keys of the file are those of
    /// the output, so that its length is.
    fn prepare(
        &self,
        choice: &[usize],
        measured: Option<&[f64]>,
    ) -> Result<ReadyCheckpoint, convert::Error> {
        let mut checkpoint = self.source.open_again()?;
        let mut options = self.options.clone();
        options.types.chosen = self.table.types(choice);
        let plan = settled(&mut checkpoint, &options)?;
        let recipe = report::recipe(self);
        checkpoint.metadata.set_str("atta.quant.recipe", &recipe);
        if let Some(sensitivities) = measured {
            report::set_sensitivities(&mut checkpoint, &plan, &self.table, sensitivities);
            report::set_divergence(&mut checkpoint, Divergence::default());
        }
        Ok(ReadyCheckpoint {
            checkpoint,
            plan,
            options,
        })
    }
}

fn write(
    prepared: &ReadyCheckpoint,
    path: &Path,
    existing: Existing,
) -> Result<Converted, Failure> {
    let mut monitor = Monitor::new();
    let options = ConvertOptions {
        existing,
        ..prepared.options.clone()
    };
    stopped(convert::convert(
        &prepared.checkpoint,
        path,
        &options,
        &mut |at| monitor.update(at.done, at.total, at.tensor),
    ))
}

/// A file that was written to be measured.
struct Draft {
    path: PathBuf,
    decision: Decision,
    measured: Divergence,
}

impl Draft {
    /// Whether the prediction was wrong.
    fn is_off(&self) -> bool {
        let ratio = self.measured.kld.value / self.decision.predicted.unwrap_or(0.0).max(1e-12);
        !(1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio)
    }
}

/// The files that measurements need.
struct Workbench<'a> {
    job: &'a SizedConversion<'a>,
    calibration: Calibration,
    /// The model in Q8_0.
    base: Arc<Checkpoint>,
    /// The model in the coarse type.
    probe: Arc<Checkpoint>,
    /// The file of `base`.
    base_path: PathBuf,
}

impl<'a> Workbench<'a> {
    fn new(
        job: &'a SizedConversion<'a>,
        text: &Path,
        scratch: &mut ScratchFiles,
    ) -> Result<Self, Failure> {
        let reference = reference(job.source, scratch)?;
        let logits = scratch.path("logits");
        let n_threads = job.args.threads;
        let calibration = Calibration::new(&reference, text, n_threads, logits)?;
        let base_path = scratch.path("q8_0");
        let probe_path = scratch.path("probe");
        Ok(Self {
            base: whole(job, TensorType::Q8_0, &base_path)?,
            probe: whole(job, job.probe, &probe_path)?,
            base_path,
            job,
            calibration,
        })
    }

    /// Chooses types after all groups were coarse in turn.
    fn first_decision(&mut self) -> Result<Decision, Failure> {
        let table = &self.job.table;
        let base = self.calibration.of_file(&self.base_path, TextPart::Probe)?;
        let coarse = self
            .calibration
            .of_groups([&self.base, &self.probe], table)?;
        let more: Vec<f64> = coarse.iter().map(|kld| kld - base.kld.value).collect();
        let sensitivities = table.sensitivities(&more, |i| table.tensors[i].probe_error);
        self.job.decide(sensitivities.clone(), Some(&sensitivities))
    }

    /// Chooses types after all groups of a draft were precise in turn.
    fn second_decision(&mut self, draft: &Draft) -> Result<Decision, Failure> {
        let table = &self.job.table;
        let before = &draft.decision.choice;
        let less = self.precise_groups(&draft.path)?;
        let sensitivities = table.sensitivities(&less, |i| table.chosen(i, before).error);
        let mut decision = self
            .job
            .decide(sensitivities.clone(), Some(&sensitivities))?;
        // Around the draft the divergence is its own, and changes with the costs.
        let change = decision.predicted.unwrap_or(0.0) - table.cost(&sensitivities, before);
        decision.predicted = Some((draft.measured.kld.value + change).max(0.0));
        Ok(decision)
    }

    /// How much less a draft diverges with each group in turn in Q8_0.
    fn precise_groups(&mut self, draft: &Path) -> Result<Vec<f64>, Failure> {
        let file = Arc::new(gguf::open(draft)?);
        let now = self.calibration.of_file(draft, TextPart::Probe)?;
        let precise = self
            .calibration
            .of_groups([&file, &self.base], &self.job.table)?;
        Ok(precise.iter().map(|kld| now.kld.value - kld).collect())
    }

    /// Writes a file with a choice of types, and measures it.
    fn draft(&mut self, decision: Decision, path: PathBuf) -> Result<Draft, Failure> {
        let prepared = self
            .job
            .prepare(&decision.choice, Some(&decision.sensitivities))?;
        write(&prepared, &path, Existing::Replace)?;
        let measured = self.calibration.of_file(&path, TextPart::Test)?;
        Ok(Draft {
            path,
            decision,
            measured,
        })
    }
}

/// The file of the source, which must be GGUF to be run.
fn reference(source: &SourcePath, scratch: &mut ScratchFiles) -> Result<PathBuf, Failure> {
    if source.path.is_file() && source.path.extension().is_some_and(|end| end == "gguf") {
        return Ok(source.path.clone());
    }
    let path = scratch.path("source");
    let checkpoint = source.open_again()?;
    let unchanged = ReadyCheckpoint {
        plan: Plan::new(&checkpoint, &TypeSelection::default(), None)?,
        checkpoint,
        options: ConvertOptions::default(),
    };
    write(&unchanged, &path, Existing::Replace)?;
    Ok(path)
}

/// Writes the whole model in one type, and opens it.
fn whole(
    job: &SizedConversion<'_>,
    ty: TensorType,
    path: &Path,
) -> Result<Arc<Checkpoint>, Failure> {
    let mut checkpoint = job.source.open_again()?;
    let options = ConvertOptions {
        types: uniform(ty),
        ..job.options.clone()
    };
    let plan = settled(&mut checkpoint, &options)?;
    let prepared = ReadyCheckpoint {
        checkpoint,
        plan,
        options,
    };
    write(&prepared, path, Existing::Replace)?;
    Ok(Arc::new(gguf::open(path)?))
}

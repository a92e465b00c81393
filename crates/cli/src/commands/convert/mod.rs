//! `atta convert`: converts and quantizes a model.

mod args;
mod sized;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta::convert::{
    Checkpoint, ConvertOptions, Error, Existing, ImportanceMatrix, Note, Plan, SourceOptions,
    TypeSelection, convert, hf,
    llama2c::{self, LeapFormat, Report, RoundingError},
    open, separate_means,
};
use serde_json::{Value, json};

use crate::{
    args::flag,
    failure::Failure,
    hub,
    inputs::InputFiles,
    interrupt::Interrupt,
    load::warn,
    output::Stdout,
    progress::Progress,
    report::{bytes, grouped},
};

pub(crate) use args::ConvertArgs;
pub(super) use args::TargetFormat;

/// The most tensors that a warning names.
const NAMED: usize = 3;

/// Weights per group of LEAP's int8, if that divides every row.
const LEAP_GROUP: u32 = 64;

pub(super) fn run(args: ConvertArgs) -> Result<(), Failure> {
    let args = &args;
    check_target(args)?;
    let source = SourceOptions {
        tokenizer: args.tokenizer.clone(),
        pre: args.pre.clone(),
    };
    let mut notes = Vec::new();
    let path = hub::locate_source(&args.src)?;
    let mut checkpoint = match open(&path, &source, &mut notes) {
        Err(error) if args.dry_run => return Err(all_problems(&path, &error)),
        opened => opened?,
    };
    notes.iter().for_each(|note| warn(note));
    match args.to {
        TargetFormat::Gguf if args.size.is_given() => {
            let source = SourcePath {
                path,
                options: source,
            };
            sized::run(args, &source, checkpoint)
        }
        TargetFormat::Gguf => to_gguf(args, &mut checkpoint),
        TargetFormat::LeapF32 => to_leap(args, &checkpoint, LeapFormat::F32),
        TargetFormat::LeapInt8 => to_leap(
            args,
            &checkpoint,
            LeapFormat::Int8 {
                group_size: LEAP_GROUP,
            },
        ),
    }
}

/// A source that can be opened once more.
struct SourcePath {
    path: PathBuf,
    options: SourceOptions,
}

impl SourcePath {
    /// Opens it; notes about it were printed the first time.
    fn open(&self) -> Result<Checkpoint, Error> {
        open(&self.path, &self.options, &mut Vec::new())
    }
}

/// Warns of all that keeps a directory of Hugging Face from being converted; `first` is the error
/// that [`open`] returned.
fn all_problems(path: &Path, first: &Error) -> Failure {
    let all = match path.join("config.json").exists() {
        true => hf::problems(path),
        false => Vec::new(),
    };
    if all.len() < 2 {
        return Failure::Failed(with_option(first));
    }
    all.iter().for_each(|problem| warn(&with_option(problem)));
    Failure::at(
        path,
        format!("{} problems keep it from being converted", all.len()),
    )
}

/// Refuses options without an effect, and an output that would overwrite an existing file.
fn check_target(args: &ConvertArgs) -> Result<(), Failure> {
    let of_gguf = [
        (args.mix.is_some(), "--type"),
        (args.size.is_given(), "--target-size and --target-bpw"),
        (args.imatrix.is_some(), "--imatrix"),
        (!args.tensor_types.is_empty(), "--tensor-type"),
        (args.split.is_some(), "--split"),
        (args.dry_run, "--dry-run"),
        (args.threads.is_some(), "-j"),
    ];
    if let Some((_, name)) = of_gguf
        .iter()
        .find(|(is_given, _)| *is_given && args.to != TargetFormat::Gguf)
    {
        return Err(Failure::Usage(format!(
            "{name} does not apply to --to leap-f32 and leap-int8"
        )));
    }
    let is_quantizing = args.mix.is_some() || args.size.is_given();
    if args.imatrix.is_some() && !is_quantizing && args.tensor_types.is_empty() {
        return Err(Failure::Usage(
            "--imatrix is for quantizing: give --type too".to_owned(),
        ));
    }
    let beside = (args.to != TargetFormat::Gguf).then(|| llama2c::tokenizer_path(&args.dst));
    protect(args)?;
    let taken = [Some(args.dst.clone()), beside]
        .into_iter()
        .flatten()
        .find(|path| path.exists());
    match taken.filter(|_| !args.dry_run && !args.force) {
        Some(path) => Err(Failure::at(
            &path,
            "exists already: give another name or directory, or --force",
        )),
        None => Ok(()),
    }
}

/// Refuses an output that is read, even with --force.
fn protect(args: &ConvertArgs) -> Result<(), Failure> {
    let inputs = InputFiles::of([
        Some(&args.src),
        args.imatrix.as_ref(),
        args.tokenizer.as_ref(),
        args.size.calibrate.as_ref(),
    ]);
    let is_inside = args.src.is_dir()
        && args
            .dst
            .parent()
            .is_some_and(|parent| is_same(parent, &args.src));
    if is_inside && args.dst.exists() && args.dst.extension().is_none_or(|end| end != "gguf") {
        return Err(Failure::at(
            &args.dst,
            "it is a part of SRC, which is read: give another name",
        ));
    }
    inputs.protect_own_from(&args.dst)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize()
        .ok()
        .is_some_and(|a| b.canonicalize().ok() == Some(a))
}

fn to_gguf(args: &ConvertArgs, checkpoint: &mut Checkpoint) -> Result<(), Failure> {
    let options = options(args)?;
    let plan = settled(checkpoint, &options)?;
    let checkpoint = &*checkpoint;
    warnings(args, checkpoint, &plan);
    let files = if args.dry_run {
        Vec::new()
    } else {
        write(args, checkpoint, &options)?
    };
    let summary = ConversionSummary {
        checkpoint,
        plan: &plan,
        files,
    };
    print(args, || summary.json(), || summary.text())
}

/// Plans a conversion, and stores the mean rows of tables as the plan has them.
fn settled(checkpoint: &mut Checkpoint, options: &ConvertOptions) -> Result<Plan, Error> {
    let planned = |checkpoint: &Checkpoint| {
        Plan::new(checkpoint, &options.types, options.importance.as_ref())
    };
    let plan = planned(checkpoint)?;
    match separate_means(checkpoint, &plan)? {
        true => planned(checkpoint),
        false => Ok(plan),
    }
}

fn to_leap(args: &ConvertArgs, checkpoint: &Checkpoint, to: LeapFormat) -> Result<(), Failure> {
    let mut monitor = Monitor::new();
    let report = stopped(llama2c::convert(
        checkpoint,
        &args.dst,
        to,
        &mut |done, total| monitor.update(done, total, ""),
    ))?;
    drop(monitor);
    report.dropped.iter().for_each(|what| warn(what));
    let files = [args.dst.clone(), llama2c::tokenizer_path(&args.dst)];
    print(
        args,
        || leap_json(&report, &files),
        || leap_text(&report, &files),
    )
}

fn print(
    args: &ConvertArgs,
    json: impl Fn() -> Value,
    text: impl Fn() -> String,
) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    match args.json {
        true => out.line(&crate::json::pretty(&json()))?,
        false => out.write(&text())?,
    }
    out.flush()
}

fn leap_text(report: &Report, files: &[PathBuf]) -> String {
    let loss = |(name, loss): (&&str, &RoundingError)| {
        format!(
            "{name:<20} error {:>7.3} % on average, {:>7.2} % at most\n",
            100.0 * loss.mean(),
            100.0 * loss.max()
        )
    };
    let group = report
        .group_size
        .map(|n| format!("groups of {n}; errors as parts of the mean weight\n"))
        .unwrap_or_default();
    let names: String = files
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    format!(
        "{group}{}{names}",
        report.rounding_errors.iter().map(loss).collect::<String>()
    )
}

fn leap_json(report: &Report, files: &[PathBuf]) -> Value {
    let loss = |(name, loss): (&&str, &RoundingError)| {
        json!({
            "tensors": name,
            "mean": loss.mean(),
            "max": loss.max(),
        })
    };
    json!({
        "files": files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "group_size": report.group_size,
        "losses": report.rounding_errors.iter().map(loss).collect::<Vec<_>>(),
    })
}

fn options(args: &ConvertArgs) -> Result<ConvertOptions, Failure> {
    let importance = args
        .imatrix
        .as_deref()
        .map(ImportanceMatrix::open)
        .transpose()?;
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(ConvertOptions {
        types: TypeSelection {
            mix: args.mix,
            pure: args.pure,
            overrides: args.tensor_types.clone(),
            ..TypeSelection::default()
        },
        importance,
        importance_name: args
            .imatrix
            .as_deref()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        n_threads: args.threads.unwrap_or_else(cpus),
        max_shard_bytes: args.split,
        existing: if args.force {
            Existing::Replace
        } else {
            Existing::Keep
        },
    })
}

fn write(
    args: &ConvertArgs,
    checkpoint: &Checkpoint,
    options: &ConvertOptions,
) -> Result<Vec<PathBuf>, Failure> {
    let mut monitor = Monitor::new();
    stopped(convert(checkpoint, &args.dst, options, &mut |at| {
        monitor.update(at.done, at.total, at.tensor)
    }))
}

/// Shows the progress of the work, and stops it after Ctrl-C.
pub(super) struct Monitor {
    interrupt: Interrupt,
    progress: Progress,
}

impl Monitor {
    pub(super) fn new() -> Self {
        Self {
            interrupt: Interrupt::listen(),
            progress: Progress::new(),
        }
    }

    pub(super) fn update(&mut self, done: u64, total: u64, tensor: &str) -> ControlFlow<()> {
        let percent = 100 * done / total.max(1);
        self.progress
            .busy(|| format!("{percent} % of {} {tensor}", bytes(total)));
        if self.interrupt.is_asked() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(with_option(&error))
    }
}

/// The message of an error, with the option that helps.
fn with_option(error: &Error) -> String {
    match error {
        Error::Tensor { tensor, source } => format!("{tensor}: {}", with_option(source)),
        Error::NoQuantizer {
            needs_importance: true,
            ..
        } => format!("{error} (--imatrix FILE, made by atta imatrix)"),
        Error::TargetTooSmall { least, .. } => {
            format!("{error}: --target-size {least}B is the least")
        }
        Error::TooLarge { .. } => format!("{error}, as by --tensor-type"),
        Error::Exists { .. } => format!("{error}: give another name, or --force"),
        Error::PreTokenizer { .. } => format!("{error} (--pre NAME)"),
        Error::NotApplicable { path, setting } => format!(
            "{}: {} does not apply to a source of its kind",
            path.display(),
            flag(*setting)
        ),
        _ => error.to_string(),
    }
}

/// Turns the error of a stopped conversion into an interruption.
pub(super) fn stopped<T>(result: Result<T, Error>) -> Result<T, Failure> {
    match result {
        Err(Error::Stopped) => Err(Failure::Interrupted),
        result => Ok(result?),
    }
}

/// Warns of what the plan does unasked.
fn warnings(args: &ConvertArgs, checkpoint: &Checkpoint, plan: &Plan) {
    for &i in &plan.unused_overrides {
        let (name, ty) = &args.tensor_types[i];
        warn(&format!(
            "--tensor-type {name}={ty} decides nothing: no matrix of that name, or others come \
             first"
        ));
    }
    let mut by_note: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for step in &plan.steps {
        for note in &step.notes {
            let warning = match note {
                Note::Requantized => {
                    "were quantized already, and errors add up: start from F16, BF16 or F32 if \
                     you can"
                }
                Note::DoesNotFit(_) => {
                    "have rows that are no whole blocks of their type, and get another one"
                }
                Note::NoImportance => "are not in the importance matrix, and are quantized without",
                Note::TooFewTokens => {
                    "or some of their experts were reached by fewer than 32 tokens of the \
                     importance matrix, so that all their columns count the same"
                }
            };
            by_note
                .entry(warning)
                .or_default()
                .push(&checkpoint.tensors[step.tensor].name);
        }
    }
    for (warning, names) in by_note {
        let more = if names.len() > NAMED { ", …" } else { "" };
        warn(&format!(
            "{} tensors {warning} ({}{more})",
            names.len(),
            names[..names.len().min(NAMED)].join(", ")
        ));
    }
}

/// The summary of a conversion that was done or planned.
struct ConversionSummary<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a Plan,
    files: Vec<PathBuf>,
}

impl ConversionSummary<'_> {
    fn bits_per_weight(&self) -> f64 {
        8.0 * self.plan.n_bytes as f64 / self.plan.n_weights.max(1) as f64
    }

    /// Tensors and bytes by type before and after, most bytes first.
    fn changes(&self) -> Vec<([&'static str; 2], [u64; 2])> {
        let mut changes = BTreeMap::<_, [u64; 2]>::new();
        for step in &self.plan.steps {
            let tensor = &self.checkpoint.tensors[step.tensor];
            let row_bytes = step.ty.row_bytes(tensor.d_row() as usize).unwrap_or(0);
            let [n, bytes] = changes
                .entry([tensor.ty.name(), step.ty.name()])
                .or_default();
            *n += 1;
            *bytes += tensor.n_rows() * row_bytes as u64;
        }
        let mut changes: Vec<_> = changes.into_iter().collect();
        changes.sort_by_key(|(names, [_, bytes])| (std::cmp::Reverse(*bytes), *names));
        changes
    }

    fn text(&self) -> String {
        let line = |([from, to], [n, size]): &([&str; 2], [u64; 2])| {
            let to = if from == to {
                String::new()
            } else {
                format!(" -> {to}")
            };
            format!(
                "{:<16} {n:>5} tensors {:>10}\n",
                format!("{from}{to}"),
                bytes(*size)
            )
        };
        let all: String = self.changes().iter().map(line).collect();
        let names: String = self
            .files
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        let size = bytes(self.plan.n_bytes);
        let n = grouped(self.plan.n_weights.into());
        format!(
            "{all}{size} for {n} weights, {:.2} bits each\n{names}",
            self.bits_per_weight()
        )
    }

    fn json(&self) -> Value {
        let change = |([from, to], [n, bytes]): &([&str; 2], [u64; 2])| {
            json!({
                "from": from,
                "to": to,
                "tensors": n,
                "bytes": bytes,
            })
        };
        json!({
            "files": self.files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "bytes": self.plan.n_bytes,
            "weights": self.plan.n_weights,
            "bits_per_weight": self.bits_per_weight(),
            "types": self.changes().iter().map(change).collect::<Vec<_>>(),
        })
    }
}

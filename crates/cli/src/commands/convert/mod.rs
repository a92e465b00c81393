//! `atta convert`: converts and quantizes a model.

mod adapters;
mod args;
mod sized;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta::{
    AdapterFile,
    convert::{
        Checkpoint, ConvertOptions, Converted, Error, Existing, FileLayout, ImportanceMatrix, Note,
        Plan, SmallScales, SourceOptions, TypeSelection, convert, hf,
        llama2c::{self, LeapFormat, Report, RoundingError},
        merge, open, partial_path,
        qsf::{self, TensorCosine},
        separate_means,
    },
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
    report::{bytes, grouped, say},
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
    let source = SourcePath {
        path: hub::locate_source(&args.src)?,
        options: source,
        lora: args.lora.iter().map(|flag| flag.file(1.0)).collect(),
    };
    if let Some(base) = &args.base {
        return adapters::run(args, &source, base);
    }
    let mut checkpoint = match source.open(&mut notes) {
        Err(error) if args.dry_run => return Err(all_problems(&source.path, &error)),
        opened => opened?,
    };
    notes.iter().for_each(|note| warn(note));
    match args.target() {
        TargetFormat::Gguf if args.size.is_given() => sized::run(args, &source, checkpoint),
        TargetFormat::Gguf => to_gguf(args, &mut checkpoint),
        TargetFormat::Qsf => to_qsf(args, checkpoint),
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
    /// Adapters to merge.
    lora: Vec<AdapterFile>,
}

impl SourcePath {
    /// Opens it, with the adapters merged.
    fn open(&self, notes: &mut Vec<String>) -> Result<Checkpoint, Error> {
        let mut checkpoint = open(&self.path, &self.options, notes)?;
        for AdapterFile { path, scale, .. } in &self.lora {
            merge(&mut checkpoint, path, *scale, notes)?;
        }
        Ok(checkpoint)
    }

    /// Opens it once more; notes about it were printed the first time.
    fn open_again(&self) -> Result<Checkpoint, Error> {
        self.open(&mut Vec::new())
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
    let is_leap = matches!(
        args.target(),
        TargetFormat::LeapF32 | TargetFormat::LeapInt8
    );
    check_qsf(args)?;
    let of_gguf = [
        (args.mix.is_some(), "--type"),
        (args.size.is_given(), "--target-size and --target-bpw"),
        (args.imatrix.is_some(), "--imatrix"),
        (!args.tensor_types.is_empty(), "--tensor-type"),
        (args.split.is_some(), "--split"),
        (args.layout.is_some(), "--layout"),
        (args.verbose, "--verbose"),
        (args.dry_run, "--dry-run"),
        (args.threads.is_some(), "-j"),
    ];
    if let Some((_, name)) = of_gguf.iter().find(|(is_given, _)| *is_given && is_leap) {
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
    let beside = is_leap.then(|| llama2c::tokenizer_path(&args.dst));
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

/// Refuses options that do not go together with QSF files and types, or without them.
fn check_qsf(args: &ConvertArgs) -> Result<(), Failure> {
    let of_gguf = [
        (args.split.is_some(), "--split"),
        (args.layout.is_some(), "--layout"),
        (args.size.is_given(), "--target-size and --target-bpw"),
    ];
    let mut given = of_gguf.iter().filter(|(is_given, _)| *is_given);
    if let (TargetFormat::Qsf, Some((_, name))) = (args.target(), given.next()) {
        let why = format!("{name} does not apply to QSF files");
        return Err(Failure::Usage(why));
    }
    if args.min_cosine.is_some() && !args.mix.is_some_and(|mix| mix.base.is_qsf()) {
        let why = "--min-cosine is for the types of QSF: give --type qsf4 or the like";
        return Err(Failure::Usage(why.to_owned()));
    }
    Ok(())
}

/// Refuses an output that is read, even with --force.
fn protect(args: &ConvertArgs) -> Result<(), Failure> {
    let inputs = InputFiles::of([
        Some(&args.src),
        args.imatrix.as_ref(),
        args.tokenizer.as_ref(),
        args.size.calibrate.as_ref(),
        args.base.as_ref(),
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
    inputs.protect_own_from(&partial_path(&args.dst))?;
    inputs.protect_own_from(&args.dst)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize()
        .ok()
        .is_some_and(|a| b.canonicalize().ok() == Some(a))
}

fn to_gguf(args: &ConvertArgs, checkpoint: &mut Checkpoint) -> Result<(), Failure> {
    let mut planned = Planned::new(args, checkpoint)?;
    if !args.dry_run {
        planned.converted = write(args, checkpoint, &args.dst, &planned.options)?;
    }
    planned.print(args, checkpoint)
}

/// Writes a QSF file. Weights that are quantized first are in a GGUF file beside it for a while.
fn to_qsf(args: &ConvertArgs, mut checkpoint: Checkpoint) -> Result<(), Failure> {
    let mut planned = Planned::new(args, &mut checkpoint)?;
    if !args.dry_run {
        let is_stored = |i: usize| checkpoint.tensors[i].rows.stored().is_some();
        let mut steps = planned.plan.steps.iter();
        let is_same = steps
            .all(|step| checkpoint.tensors[step.tensor].ty == step.ty && is_stored(step.tensor));
        match is_same {
            true => write_qsf(args, &mut checkpoint)?,
            false => write_by_gguf(args, &checkpoint, &planned.options)?,
        }
        planned.converted.files = vec![args.dst.clone()];
    }
    planned.print(args, &checkpoint)
}

/// Plans a conversion, and stores the mean rows of tables as the plan has them.
fn settled(checkpoint: &mut Checkpoint, options: &ConvertOptions) -> Result<Plan, Error> {
    let plan = planned(checkpoint, options)?;
    match separate_means(checkpoint, &plan)? {
        true => planned(checkpoint, options),
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
        layout: args.layout.map_or(FileLayout::ByTypes, FileLayout::from),
    })
}

fn write(
    args: &ConvertArgs,
    checkpoint: &Checkpoint,
    dst: &Path,
    options: &ConvertOptions,
) -> Result<Converted, Failure> {
    let mut monitor = Monitor::new();
    let result = convert(checkpoint, dst, options, &mut |at| {
        monitor.update(at.done, at.total, at.tensor)
    });
    drop(monitor);
    match result {
        Err(Error::Stopped) => say("atta: stopped; the same command goes on where this one was"),
        Ok(ref converted) => progress_of(args, converted),
        Err(_) => {}
    }
    stopped(result)
}

/// Says what an earlier run had done already and, if asked, which scales were too small.
fn progress_of(args: &ConvertArgs, converted: &Converted) {
    if converted.resumed_bytes > 0 {
        let size = bytes(converted.resumed_bytes);
        say(&format!(
            "atta: went on behind the {size} of an interrupted conversion"
        ));
    }
    let SmallScales { n, of } = converted.small_scales;
    if args.verbose && of > 0 {
        say(&format!(
            "atta: {} of {} sub-blocks of 32 weights wanted less than half of the least scale",
            grouped(n.into()),
            grouped(of.into())
        ));
    }
}

fn write_qsf(args: &ConvertArgs, checkpoint: &mut Checkpoint) -> Result<(), Failure> {
    let mut monitor = Monitor::new();
    stopped(qsf::write(checkpoint, &args.dst, &mut |at| {
        monitor.update(at.done, at.total, at.tensor)
    }))
}

fn write_by_gguf(
    args: &ConvertArgs,
    checkpoint: &Checkpoint,
    options: &ConvertOptions,
) -> Result<(), Failure> {
    let mut name = args.dst.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.gguf", std::process::id()));
    let between = Removed(args.dst.with_file_name(name));
    write(args, checkpoint, &between.0, options)?;
    let mut quantized = open(&between.0, &SourceOptions::default(), &mut Vec::new())?;
    write_qsf(args, &mut quantized)
}

/// A file that is removed in the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
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
fn warnings(checkpoint: &Checkpoint, plan: &Plan) {
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

/// The types of all tensors, with the cosines of those that become types of QSF.
struct Planned {
    options: ConvertOptions,
    plan: Plan,
    cosines: Vec<TensorCosine>,
    converted: Converted,
}

impl Planned {
    fn new(args: &ConvertArgs, checkpoint: &mut Checkpoint) -> Result<Self, Failure> {
        let mut options = options(args)?;
        qsf::for_types(checkpoint, &mut options.types)?;
        let plan = settled(checkpoint, &options)?;
        warn_of_unused(args, &plan);
        let cosines = measured(checkpoint, &plan, &options)?;
        let mut this = Self {
            options,
            plan,
            cosines,
            converted: Converted::default(),
        };
        if let Some(min) = args.min_cosine {
            this.raise(checkpoint, min)?;
        }
        warnings(checkpoint, &this.plan);
        Ok(this)
    }

    /// Gives one bit more to tensors whose cosine is below `min`.
    fn raise(&mut self, checkpoint: &Checkpoint, min: f64) -> Result<(), Failure> {
        if qsf::raise(&self.cosines, min, &mut self.options.types) > 0 {
            self.plan = planned(checkpoint, &self.options)?;
            self.cosines = measured(checkpoint, &self.plan, &self.options)?;
        }
        Ok(())
    }

    fn print(&self, args: &ConvertArgs, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let summary = ConversionSummary {
            checkpoint,
            plan: &self.plan,
            cosines: &self.cosines,
            converted: &self.converted,
        };
        print(args, || summary.json(), || summary.text())
    }
}

fn planned(checkpoint: &Checkpoint, options: &ConvertOptions) -> Result<Plan, Error> {
    Plan::new(checkpoint, &options.types, options.importance.as_ref())
}

fn measured(
    checkpoint: &Checkpoint,
    plan: &Plan,
    options: &ConvertOptions,
) -> Result<Vec<TensorCosine>, Failure> {
    let importance = options.importance.as_ref();
    Ok(qsf::cosines(
        checkpoint,
        plan,
        importance,
        options.n_threads,
    )?)
}

fn warn_of_unused(args: &ConvertArgs, plan: &Plan) {
    for (name, ty) in plan
        .unused_overrides
        .iter()
        .filter_map(|&i| args.tensor_types.get(i))
    {
        warn(&format!(
            "--tensor-type {name}={ty} decides nothing: no matrix of that name, or others come \
             first"
        ));
    }
}

/// The summary of a conversion that was done or planned.
struct ConversionSummary<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a Plan,
    cosines: &'a [TensorCosine],
    converted: &'a Converted,
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
        let cosine = |found: &TensorCosine| {
            format!(
                "{:<32} {:<6} cosine {:.4}\n",
                found.name, found.ty, found.cosine
            )
        };
        let cosines: String = self.cosines.iter().map(cosine).collect();
        let all: String = self.changes().iter().map(line).collect();
        let names: String = self
            .converted
            .files
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        let size = bytes(self.plan.n_bytes);
        let n = grouped(self.plan.n_weights.into());
        format!(
            "{cosines}{all}{size} for {n} weights, {:.2} bits each\n{names}",
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
        let cosine = |found: &TensorCosine| {
            json!({
                "tensor": found.name,
                "type": found.ty.name(),
                "cosine": found.cosine,
            })
        };
        let mut all = json!({
            "resumed_bytes": self.converted.resumed_bytes,
            "files": self.converted.files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "bytes": self.plan.n_bytes,
            "weights": self.plan.n_weights,
            "bits_per_weight": self.bits_per_weight(),
            "types": self.changes().iter().map(change).collect::<Vec<_>>(),
        });
        if !self.cosines.is_empty() {
            all["cosines"] = self.cosines.iter().map(cosine).collect();
        }
        all
    }
}

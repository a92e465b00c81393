//! `atta run`: a prompt in, its continuation out, as it comes.
//!
//! Standard output gets the continuation and nothing else. Whatever happens after the options were understood, the file
//! of `--stats-json` is written.

use std::{ffi::OsString, path::PathBuf};

use atta::{FinishReason, GenerateOptions, KvType, LoadOptions, Session};

use crate::{
    args::{CacheFlags, ContextFlags, ModelFlags, ReportFlags, RunArgs},
    cache::{Cache, Recalled},
    failure::Failure,
    input::Text,
    interrupt::Interrupt,
    listener::Listener,
    load, report, shape,
    stats::{Stats, StatsFile},
};

/// A text to be continued, whatever it was called on the command line.
pub(super) struct Job {
    /// The built-in model, if it is not there.
    pub(super) model: Option<PathBuf>,
    /// Standard input, if it is not there.
    pub(super) prompt: Option<OsString>,
    /// What an empty prompt is.
    pub(super) empty: Empty,
    pub(super) options: GenerateOptions,
    pub(super) model_flags: ModelFlags,
    pub(super) context: ContextFlags,
    pub(super) cache: CacheFlags,
    pub(super) report: ReportFlags,
}

/// What an empty prompt is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Empty {
    /// A text that begins at its begin.
    Text,
    /// A mistake.
    Mistake,
}

/// How a user gives a prompt.
pub(super) const WAY_OUT: &str = "give it with -p TEXT, or pipe it in";

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    if args.shape.takes_stdin() && args.prompt.is_none() {
        return Err(Failure::Usage(
            "--schema - and --grammar - take standard input: give the prompt with -p TEXT".to_owned(),
        ));
    }
    let options = shape::apply(&args.shape, args.sampling.generate_options()?)
        .map_err(|failure| StatsFile::of_failure(args.report.stats_json.as_deref(), &Stats::new(), failure))?;
    let RunArgs { model, prompt, model_flags, context, cache, report, .. } = args;
    run_job(&Job { model, prompt, empty: Empty::Text, options, model_flags, context, cache, report })
}

/// Continues a text.
pub(super) fn run_job(job: &Job) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let session = job.context.apply(job.model_flags.session_options(KvType::default()))?;
    let load_options = load::options(job.model.as_deref(), &job.model_flags, session)?;
    let load_options = shape::keep_free(load_options, &job.options);
    let prompt = Text::given_or_piped(job.prompt.as_deref(), WAY_OUT)?;

    let file = StatsFile::create(job.report.stats_json.as_deref())?;
    let mut stats = Stats::new();
    let give_up = || file.give_up(&Stats::new());
    let cache = Cache::open(&job.cache);
    let prepared =
        cache.and_then(|cache| interrupt.watch(give_up, || prepare(job, (&load_options, cache), prompt, &mut stats)));
    let result = prepared.and_then(|prepared| generate(job, prepared, Listener::new(interrupt), &mut stats));
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// All that a generation needs.
struct Prepared {
    session: Session,
    cache: Cache,
    ids: Vec<u32>,
    recalled: Recalled,
}

/// Loads the model and reads the prompt.
fn prepare(
    job: &Job,
    (options, cache): (&LoadOptions, Cache),
    prompt: Text,
    stats: &mut Stats,
) -> Result<Prepared, Failure> {
    let engine = load::engine(job.model.as_deref(), options)?;
    stats.loaded(&engine);
    if job.report.verbose {
        report::model(&load::name(job.model.as_deref()), &engine);
    }
    let text = prompt.read()?;
    if text.is_empty() && job.empty == Empty::Mistake {
        return Err(Failure::Usage(format!("the prompt is empty: {WAY_OUT}")));
    }
    let ids = engine.prompt_ids(&text);
    stats.n_prompt = ids.len();
    let mut session = engine.session(&options.session)?;
    stats.account(&engine);
    let recalled = cache.restore(&mut session, &ids)?;
    stats.recalled(recalled);
    Ok(Prepared { session, cache, ids, recalled })
}

fn generate(
    job: &Job,
    Prepared { mut session, cache, ids, recalled }: Prepared,
    mut listener: Listener,
    stats: &mut Stats,
) -> Result<(), Failure> {
    let ended =
        cache.generate(&mut session, (&ids[recalled.n_tokens..], &job.options), &mut |event| listener.hear(event));
    let written = listener.end(stats);
    let summary = ended?;
    stats.generated(summary.clone());
    stats.account(session.engine());
    report_end(job, &session, &summary, recalled);
    written?;
    match summary.finish_reason {
        FinishReason::Interrupted => Err(Failure::Interrupted),
        FinishReason::Stop | FinishReason::Length => Ok(()),
    }
}

/// What was asked for on standard error, while the memory is still in use.
fn report_end(job: &Job, session: &Session, summary: &atta::Summary, recalled: Recalled) {
    if job.report.verbose {
        report::recalled(recalled);
        report::speed(summary);
    }
    report::expectation(session.engine(), summary);
    if job.report.mem_report {
        report::memory(session.engine());
    }
}

//! `atta run`: a prompt in, its continuation out, as it comes.
//!
//! Standard output gets the continuation and nothing else. Whatever happens after the options were
//! understood, the file of `--stats-json` is written.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

#[cfg(feature = "comfort")]
use atta::Engine;
use atta::{FinishReason, GenerateOptions, KvType, LoadOptions, Session};

use crate::{
    args::{CacheFlags, ContextFlags, Length, ModelFlags, ReportFlags, RunArgs},
    cache::{Cache, Recalled},
    failure::Failure,
    input::{Limit, Text},
    inputs::Inputs,
    interrupt::Interrupt,
    listener::Listener,
    load, report, shape,
    stats::{Stats, StatsFile},
};

/// A text to be continued, whatever it was called on the command line.
pub(super) struct Job {
    /// The built-in model, if it is not there.
    pub(super) model: Option<PathBuf>,
    /// What an empty prompt is.
    pub(super) empty: Empty,
    pub(super) options: GenerateOptions,
    pub(super) model_flags: ModelFlags,
    pub(super) context: ContextFlags,
    pub(super) cache: CacheFlags,
    pub(super) report: ReportFlags,
    /// The files that are read.
    pub(super) inputs: Inputs,
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
    if args.shape.takes_stdin() && reads_stdin(&args) {
        return Err(Failure::Usage(
            "--schema - and --grammar - take standard input: give the prompt with -p TEXT"
                .to_owned(),
        ));
    }
    let (prompt, inputs) = (prompt(&args)?, inputs(&args));
    let stats = args.report.stats_json.as_deref();
    let options = shape::apply(&args.shape, args.sampling.generate_options(length(&args))?)
        .map_err(|failure| StatsFile::of_failure(stats, &inputs, &Stats::new(), failure))?;
    let RunArgs {
        model,
        model_flags,
        context,
        cache,
        report,
        ..
    } = args;
    run_job(
        &Job {
            model,
            empty: Empty::Text,
            options,
            model_flags,
            context,
            cache,
            report,
            inputs,
        },
        prompt,
    )
}

/// Whether the prompt, or a part of it, comes on standard input.
pub(super) fn reads_stdin(args: &RunArgs) -> bool {
    #[cfg(feature = "comfort")]
    if let Some(file) = &args.file {
        return file.as_os_str() == "-";
    }
    args.prompt.is_none()
}

/// The prompt that was asked for.
pub(super) fn prompt(args: &RunArgs) -> Result<Text, Failure> {
    #[cfg(feature = "comfort")]
    if let Some(file) = &args.file {
        return Ok(Text::joined(args.prompt.as_deref(), file));
    }
    #[cfg(feature = "chat")]
    if let Some(model) = &args.model {
        let way_out = format!(
            "{WAY_OUT}; `atta chat {}` is a conversation",
            model.display()
        );
        return Text::given_or_piped(args.prompt.as_deref(), &way_out);
    }
    Text::given_or_piped(args.prompt.as_deref(), WAY_OUT)
}

/// The files that are read.
pub(super) fn inputs(args: &RunArgs) -> Inputs {
    let files = [
        &args.model,
        &args.shape.schema,
        &args.shape.grammar,
        &args.tools.tools,
        &args.cache.cache,
    ];
    #[cfg(feature = "comfort")]
    let files = files.into_iter().chain([&args.file]);
    Inputs::of(files.into_iter().map(Option::as_ref))
}

/// The built-in model tells a whole story on a terminal.
fn length(args: &RunArgs) -> Length {
    let is_story = cfg!(feature = "comfort") && args.model.is_none() && !args.shape.is_given();
    if is_story && io::stdout().is_terminal() {
        Length::Story
    } else {
        Length::Bounded
    }
}

/// Continues a text.
pub(super) fn run_job(job: &Job, prompt: Text) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let session = job
        .context
        .apply(job.model_flags.session_options(KvType::default()))?;
    let load_options = load::options(job.model.as_deref(), &job.model_flags, session)?;
    let load_options = shape::keep_free(load_options, &job.options);
    #[cfg(all(unix, feature = "comfort"))]
    if prompt.ignores_stdin() {
        load::warn("standard input is not read beside -p: -f - puts it behind the prompt");
    }

    let file = StatsFile::create(job.report.stats_json.as_deref(), &job.inputs)?;
    let mut stats = Stats::new();
    let give_up = || file.give_up(&Stats::new());
    let cache = Cache::open(&job.cache);
    let prepared = cache.and_then(|cache| {
        interrupt.watch(give_up, || {
            prepare(job, (&load_options, cache), prompt, &mut stats)
        })
    });
    let result =
        prepared.and_then(|prepared| generate(job, prepared, Listener::new(interrupt), &mut stats));
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
    load::warn_of_length(&engine, job.model_flags.n_ctx);
    if job.report.verbose {
        report::model(&load::name(job.model.as_deref()), &engine);
    }
    let mut session = engine.session(&options.session)?;
    let text = prompt.read(&Limit::of_prompt(&engine, &session))?;
    if text.is_empty() && job.empty == Empty::Mistake {
        return Err(Failure::Usage(format!("the prompt is empty: {WAY_OUT}")));
    }
    let ids = engine.prompt_ids(&text);
    stats.n_prompt = ids.len();
    #[cfg(feature = "comfort")]
    if job.report.verbose {
        explain(job, &engine, &text);
    }
    stats.account(&engine);
    let recalled = cache.restore(&mut session, &ids)?;
    stats.recalled(recalled);
    Ok(Prepared {
        session,
        cache,
        ids,
        recalled,
    })
}

/// What decides on the text and is not on the command line.
#[cfg(feature = "comfort")]
fn explain(job: &Job, engine: &Engine, text: &[u8]) {
    report::seed(job.options.sampling.seed);
    let tokenizer = engine.tokenizer();
    let begins = |bos| text.starts_with(tokenizer.token_text(bos));
    if tokenizer.add_bos() && tokenizer.bos().is_some_and(begins) {
        report::has_begin();
    }
}

fn generate(
    job: &Job,
    Prepared {
        mut session,
        cache,
        ids,
        recalled,
    }: Prepared,
    mut listener: Listener,
    stats: &mut Stats,
) -> Result<(), Failure> {
    let ended = cache.generate(
        &mut session,
        (&ids[recalled.n_tokens..], &job.options),
        &mut |event| listener.hear(event),
    );
    let written = listener.end(stats);
    let summary = ended?;
    stats.generated(summary.clone());
    stats.account(session.engine());
    report_end(job, &session, &summary, recalled);
    written?;
    match summary.finish_reason {
        FinishReason::Interrupted => return Err(Failure::Interrupted),
        FinishReason::Stop => {}
        #[cfg(feature = "comfort")]
        FinishReason::Length => explain_cut(&session),
        #[cfg(not(feature = "comfort"))]
        FinishReason::Length => {}
    }
    Ok(())
}

/// Says on a terminal why a text has no end.
#[cfg(feature = "comfort")]
fn explain_cut(session: &Session) {
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        report::cut_off(session.has_room());
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

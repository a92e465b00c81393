//! `atta run`: a prompt in, its continuation out, as it comes.
//!
//! Standard output gets the continuation and nothing else. Whatever happens after the options were understood, the file
//! of `--stats-json` is written.

use atta::{FinishReason, GenerateOptions, KvType, LoadOptions, Session};

use crate::{
    args::RunArgs,
    failure::Failure,
    input::Text,
    interrupt::Interrupt,
    listener::Listener,
    load, report,
    stats::{Stats, StatsFile},
};

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let options = args.sampling.generate_options()?;
    let load_options = load::options(args.model.as_deref(), &args.model_flags)?;
    let prompt = Text::given_or_piped(args.prompt.as_deref(), "give it with -p TEXT, or pipe it in")?;

    let file = StatsFile::create(args.report.stats_json.as_deref())?;
    let mut stats = Stats::new(&args.model_flags);
    let give_up = || file.give_up(&Stats::new(&args.model_flags));
    let prepared = interrupt.watch(give_up, || prepare(args, &load_options, prompt, &mut stats));
    let result = prepared.and_then(|prepared| generate(args, prepared, &options, Listener::new(interrupt), &mut stats));
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// All that a generation needs.
struct Prepared {
    session: Session,
    ids: Vec<u32>,
}

/// Loads the model and reads the prompt.
fn prepare(args: &RunArgs, options: &LoadOptions, prompt: Text, stats: &mut Stats) -> Result<Prepared, Failure> {
    let engine = load::engine(args.model.as_deref(), options)?;
    stats.loaded(&engine);
    if args.report.verbose {
        report::model(&load::name(args.model.as_deref()), &engine);
    }
    let ids = engine.prompt_ids(&prompt.read()?);
    stats.n_prompt = ids.len();
    let session = engine.session(&args.model_flags.session_options(KvType::default()))?;
    stats.account(&engine);
    Ok(Prepared { session, ids })
}

fn generate(
    args: &RunArgs,
    Prepared { mut session, ids }: Prepared,
    options: &GenerateOptions,
    mut listener: Listener,
    stats: &mut Stats,
) -> Result<(), Failure> {
    let ended = session.generate(&ids, options, |event| listener.hear(event));
    let written = listener.end(stats);
    let summary = ended?;
    stats.generated(summary.clone());
    report_end(args, &session, &summary);
    written?;
    match summary.finish_reason {
        FinishReason::Interrupted => Err(Failure::Interrupted),
        FinishReason::Stop | FinishReason::Length => Ok(()),
    }
}

/// What was asked for on standard error, while the memory is still in use.
fn report_end(args: &RunArgs, session: &Session, summary: &atta::Summary) {
    if args.report.verbose {
        report::speed(summary);
    }
    if args.report.mem_report {
        report::memory(session.engine());
    }
}

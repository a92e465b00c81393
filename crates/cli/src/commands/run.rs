//! `atta run`: a prompt in, its continuation out, as it comes.
//!
//! Standard output gets the continuation and nothing else. Whatever happens after the options were understood, the file
//! of `--stats-json` is written.

use std::{
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

use atta::{Event, FinishReason, GenerateOptions, KvType, LoadOptions, Session};

use crate::{
    args::RunArgs,
    failure::Failure,
    input::Text,
    interrupt::Interrupt,
    load,
    memory::PeakPrivate,
    output::{NewFile, Stdout},
    progress::Progress,
    report,
    stats::Stats,
};

/// Private memory is looked at whenever this many tokens have come.
const SAMPLE_EVERY: usize = 16;

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let sampling = args.sampling.sampling()?;
    let (n_predict, stop) = (args.sampling.n_predict, args.sampling.stop.clone());
    let options = GenerateOptions { n_predict, sampling, stop, n_logprobs: None };
    let load_options = load::options(args.model.as_deref(), &args.model_flags)?;
    let prompt = Text::given_or_piped(args.prompt.as_deref(), "give it with -p TEXT, or pipe it in")?;

    let file = StatsFile::create(args)?;
    let mut stats = Stats::new(&args.model_flags);
    let give_up = || {
        if let Err(failure) = file.write(&Stats::new(&args.model_flags), Some(&Failure::Interrupted)) {
            failure.report();
        }
    };
    let prepared = interrupt.watch(give_up, || prepare(args, &load_options, prompt, &mut stats));
    let result = prepared.and_then(|prepared| generate(args, prepared, &options, Listener::new(interrupt), &mut stats));
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// The file of `--stats-json`, if asked for. Whoever ends the run writes it.
struct StatsFile(Mutex<Option<NewFile>>);

impl StatsFile {
    /// Opens it now, so that a path that cannot be written to is found out before the work and not after it.
    fn create(args: &RunArgs) -> Result<Self, Failure> {
        Ok(Self(Mutex::new(args.stats_json.as_deref().map(NewFile::create).transpose()?)))
    }

    fn write(&self, stats: &Stats, failure: Option<&Failure>) -> Result<(), Failure> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), |file| stats.write(file, failure))
    }
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
    if args.verbose {
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
    if args.verbose {
        report::speed(summary);
    }
    if args.mem_report {
        report::memory(session.engine());
    }
}

/// Hears what happens during the generation, passes text on, and stops it if nobody wants more.
struct Listener {
    out: Stdout,
    interrupt: Interrupt,
    progress: Progress,
    peak: PeakPrivate,
    n_generated: usize,
    written: Result<(), Failure>,
}

impl Listener {
    fn new(interrupt: Interrupt) -> Self {
        Self {
            out: Stdout::lock(),
            interrupt,
            progress: Progress::new(),
            peak: PeakPrivate::default(),
            n_generated: 0,
            written: Ok(()),
        }
    }

    fn hear(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Prompt { done, total } => self.prompt(done, total),
            Event::Token { n, .. } => self.token(n),
            Event::Text(text) => self.written = self.out.write(text).and_then(|()| self.out.flush()),
        }
        if self.written.is_err() || self.interrupt.is_asked() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn prompt(&mut self, done: usize, total: usize) {
        self.progress.prompt(done, total);
        if done == total {
            self.progress.clear();
            self.peak.sample();
        }
    }

    fn token(&mut self, n: usize) {
        self.n_generated = n;
        if n.is_multiple_of(SAMPLE_EVERY) {
            self.peak.sample();
        }
    }

    /// Hands over what was counted; says whether all text could be written.
    fn end(mut self, stats: &mut Stats) -> Result<(), Failure> {
        stats.n_generated = self.n_generated;
        stats.peak.merge(self.peak);
        self.progress.clear();
        match self.written.and_then(|()| self.out.end_line_on_terminal()) {
            // Ctrl-C reaches everybody in a pipeline, so that our reader may be gone before we are.
            Err(Failure::ClosedPipe) if self.interrupt.is_asked() => Err(Failure::Interrupted),
            written => written,
        }
    }
}

//! `atta run`: continues a prompt, token by token as they are generated.
//!
//! Standard output gets the continuation and nothing else. Once the options are understood, the
//! file of `--stats-json` is written whatever happens.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use atta::{Engine, FinishReason, GenerateOptions, KvType, LoadOptions, Session, Summary};
use clap::Args;

use super::call;
use crate::{
    EXTRAS,
    args::{
        CacheFlags, ConstraintFlags, ContextFlags, DefaultLength, GpuFlags, ModelArg, ModelFlags,
        ReportFlags, RingFlags, SamplingFlags, SpeculationFlags, ToolFlags, extra_help,
        ring::RingAim,
    },
    cache::DiskCache,
    constraint,
    failure::Failure,
    generation_printer::GenerationPrinter,
    gpu::GpuPlanner,
    input::{self, TextLimit, TextSource},
    inputs::InputFiles,
    interrupt::Interrupt,
    load, report,
    ring::{self, RingRun},
    speculation::OpenDrafts,
    stats::{CachedPrefix, Stats, StatsFile},
};

/// Continues a text.
///
/// Without MODEL, the built-in model tells a story. Only the continuation goes to standard output.
/// The prompt is used as it is: no chat template is applied, and special tokens in it are parsed.
/// With -p, standard input is read only by -f -.
///
/// The order of samplers is that of llama.cpp, whatever the order of the options: --logit-bias,
/// penalties, DRY, --top-n-sigma, --top-k, --typical, --top-p, --min-p, -t. With -t 0, the most
/// probable token after --logit-bias, penalties and DRY is taken.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta run -p \"Once upon a time\"
  atta run model.gguf -p \"The capital of France is\" -n 16 -t 0
  atta run model.gguf -c 8192 --stop END < prompt.txt
  cat report.txt | atta run model.gguf -p \"A summary of this report:\" -f -
  atta run model.gguf -p \"Dear diary\" -n 100000 --window 1024
  atta run model.gguf -p \"A person, as JSON:\" --schema person.json
  atta run model.gguf -p \"Is it warm in Lima?\" --tools tools.json
  atta run model.gguf --cache prompts/ < long.txt
  atta run model.gguf -p \"Dear Sir,\" --stats-json stats.json --mem-report"
))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompt [default: standard input, byte for byte]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<OsString>,
    /// Read the prompt from FILE, or from standard input if it is -; follows -p TEXT and an empty
    /// line if both are given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) constraint: ConstraintFlags,
    #[command(flatten)]
    pub(crate) speculation: SpeculationFlags,
    #[command(flatten)]
    pub(crate) tools: ToolFlags,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
    #[command(flatten)]
    pub(crate) context: ContextFlags,
    #[command(flatten)]
    pub(crate) cache: CacheFlags,
    #[command(flatten)]
    pub(crate) ring: RingFlags,
    #[command(flatten)]
    pub(crate) gpu: GpuFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// A run with all options understood, of `atta run`, `atta picolm` or `atta leap`.
pub(super) struct ResolvedRun {
    /// `None`: the built-in model.
    pub(super) model: Option<PathBuf>,
    pub(super) empty_prompt: EmptyPrompt,
    pub(super) options: GenerateOptions,
    pub(super) speculation: SpeculationFlags,
    pub(super) model_flags: ModelFlags,
    pub(super) context: ContextFlags,
    pub(super) cache: CacheFlags,
    pub(super) machines: Machines,
    pub(super) report: ReportFlags,
    /// The files that are read.
    pub(super) inputs: InputFiles,
}

/// The machines of a run.
pub(super) enum Machines {
    /// As the flags of a ring say: this one, unless there are any; perhaps with its GPU.
    Flags(RingFlags, GpuFlags),
    /// A chain of `atta leap`.
    #[cfg(feature = "leap")]
    Chain(Box<super::leap::Master>),
}

impl Machines {
    /// The options with these machines as the backend.
    pub(super) fn open(
        &self,
        model: Option<&Path>,
        options: LoadOptions,
    ) -> Result<(LoadOptions, RingRun), Failure> {
        match self {
            Self::Flags(ring, gpu) => {
                let (options, ring) = ring::plan(model, ring, RingAim::Latency, options)?;
                Ok((GpuPlanner::new(1).plan(model, gpu, options)?, ring))
            }
            #[cfg(feature = "leap")]
            Self::Chain(master) => master.ring(options),
        }
    }
}

/// Whether a prompt may be empty.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum EmptyPrompt {
    /// The text starts at its beginning.
    Allowed,
    /// Wrong usage.
    Refused,
}

/// How a user gives a prompt.
pub(super) const PROMPT_HINT: &str = "give it with -p TEXT, or pipe it in";

pub(super) fn run(args: Box<RunArgs>) -> Result<(), Failure> {
    let args = *args;
    if args.tools.tools.is_some() {
        return call::run(args);
    }
    if args.constraint.takes_stdin() && reads_stdin(&args) {
        return Err(Failure::Usage(
            "--schema - and --grammar - take standard input: give the prompt with -p TEXT"
                .to_owned(),
        ));
    }
    let prompt = prompt(&args)?;
    let inputs = inputs(&args);
    let stats = args.report.stats_json.as_deref();
    let options = args.sampling.generate_options(default_length(&args))?;
    let options = constraint::apply(&args.constraint, options)
        .map_err(|failure| StatsFile::of_failure(stats, &inputs, &Stats::new(), failure))?;
    let run = ResolvedRun {
        model: args.model.into_path(),
        empty_prompt: EmptyPrompt::Allowed,
        options,
        speculation: args.speculation,
        model_flags: args.model_flags,
        context: args.context,
        cache: args.cache,
        machines: Machines::Flags(args.ring, args.gpu),
        report: args.report,
        inputs,
    };
    run.execute(prompt)
}

/// Whether the prompt, or a part of it, is read from standard input.
pub(super) fn reads_stdin(args: &RunArgs) -> bool {
    match &args.file {
        Some(file) => input::is_stdin(file),
        None => args.prompt.is_none(),
    }
}

/// The prompt of the command line.
pub(super) fn prompt(args: &RunArgs) -> Result<TextSource, Failure> {
    let given = args.prompt.as_deref();
    if let Some(file) = &args.file {
        return Ok(TextSource::file(given, file));
    }
    match args.model.as_ref() {
        Some(model) if cfg!(feature = "chat") => {
            let chat = format!("`atta chat {}` is a conversation", model.display());
            TextSource::given_or_piped(given, &format!("{PROMPT_HINT}; {chat}"))
        }
        _ => TextSource::given_or_piped(given, PROMPT_HINT),
    }
}

/// The files that are read.
pub(super) fn inputs(args: &RunArgs) -> InputFiles {
    InputFiles::of([
        args.model.as_ref(),
        args.constraint.schema.as_ref(),
        args.constraint.grammar.as_ref(),
        args.tools.tools.as_ref(),
        args.cache.cache.as_ref(),
        args.speculation.file(),
        args.file.as_ref(),
    ])
}

/// On a terminal the built-in model tells a whole story.
fn default_length(args: &RunArgs) -> DefaultLength {
    let is_story = EXTRAS && args.model.is_none() && !args.constraint.is_given();
    if is_story && io::stdout().is_terminal() {
        DefaultLength::Unlimited
    } else {
        DefaultLength::Limited
    }
}

impl ResolvedRun {
    /// Continues the prompt.
    pub(super) fn execute(&self, prompt: TextSource) -> Result<(), Failure> {
        let interrupt = Interrupt::listen();
        let session = self
            .context
            .apply(self.model_flags.session_options(KvType::default()))?;
        let session = self.speculation.reserve(session);
        let load_options = load::options(self.model.as_deref(), &self.model_flags, session)?;
        let load_options = constraint::reserve(load_options, &self.options);
        if prompt.ignores_stdin() {
            load::warn("standard input is not read beside -p: -f - puts it behind the prompt");
        }
        let file = StatsFile::create(self.report.stats_json.as_deref(), &self.inputs)?;
        let mut stats = Stats::new();
        let give_up = || file.give_up(&Stats::new());
        let prepared = DiskCache::open(&self.cache).and_then(|cache| {
            interrupt.watch(give_up, || {
                self.prepare(load_options, cache, prompt, &mut stats)
            })
        });
        let result = prepared.and_then(|prepared| {
            self.generate(prepared, GenerationPrinter::new(interrupt), &mut stats)
        });
        let written = file.write(&stats, result.as_ref().err());
        result.and(written)
    }

    /// Loads the model and reads the prompt.
    fn prepare(
        &self,
        options: LoadOptions,
        cache: DiskCache,
        prompt: TextSource,
        stats: &mut Stats,
    ) -> Result<PreparedRun, Failure> {
        let model = self.model.as_deref();
        let drafts = OpenDrafts::open(&self.speculation, &self.model_flags)?;
        let (options, ring) = self.machines.open(model, drafts.beside(model, options)?)?;
        let engine = load::engine(model, &options)?;
        drafts.check(&engine)?;
        stats.loaded(&engine);
        load::warn_of_length(&engine, self.model_flags.n_ctx);
        if self.report.verbose {
            report::model(&load::name(model), &engine);
        }
        let mut session = engine.session(&options.session)?;
        let text = prompt.read(&TextLimit::of_prompt(&engine, &session))?;
        if text.is_empty() && self.empty_prompt == EmptyPrompt::Refused {
            return Err(Failure::Usage(format!(
                "the prompt is empty: {PROMPT_HINT}"
            )));
        }
        let ids = engine.prompt_ids(&text);
        stats.n_prompt = ids.len();
        if EXTRAS && self.report.verbose {
            self.explain(&engine, &text);
        }
        stats.account(&engine);
        let cached = cache.restore(&mut session, &ids)?;
        stats.reused(cached);
        Ok(PreparedRun {
            session,
            ring,
            cache,
            ids,
            cached,
            options: GenerateOptions {
                speculation: drafts.speculation,
                ..self.options.clone()
            },
        })
    }

    /// Reports what decides on the text and is not on the command line.
    fn explain(&self, engine: &Engine, text: &[u8]) {
        report::seed(self.options.sampling.seed);
        let tokenizer = engine.tokenizer();
        let begins = |bos| text.starts_with(tokenizer.token_text(bos));
        if tokenizer.add_bos() && tokenizer.bos().is_some_and(begins) {
            report::has_bos();
        }
    }

    fn generate(
        &self,
        mut run: PreparedRun,
        mut printer: GenerationPrinter,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let new_ids = &run.ids[run.cached.n_tokens..];
        let ended = run
            .cache
            .generate(&mut run.session, new_ids, &run.options, &mut |event| {
                printer.on_event(event)
            });
        let written = printer.end(stats, |out, _| out.end_line_on_terminal());
        let summary = ended?;
        stats.generated(summary.clone());
        stats.account(run.session.engine());
        self.report_end(&run.session, &summary, run.cached);
        run.ring.compare(&summary);
        written?;
        match summary.finish_reason {
            FinishReason::Interrupted => return Err(Failure::Interrupted),
            FinishReason::Length => explain_cut(&run.session),
            FinishReason::Stop => {}
        }
        Ok(())
    }

    /// Prints the reports while the memory is still in use.
    fn report_end(&self, session: &Session, summary: &Summary, cached: CachedPrefix) {
        if self.report.verbose {
            report::cached(cached);
            report::speed(session.engine(), summary);
        }
        report::expectation(session.engine(), summary);
        if self.report.mem_report {
            report::memory(session.engine());
        }
    }
}

/// What a generation needs.
struct PreparedRun {
    session: Session,
    ring: RingRun,
    cache: DiskCache,
    ids: Vec<u32>,
    cached: CachedPrefix,
    options: GenerateOptions,
}

/// Tells a reader at a terminal why the text was cut off.
fn explain_cut(session: &Session) {
    if EXTRAS && io::stdout().is_terminal() && io::stderr().is_terminal() {
        report::cut_off(session.has_room());
    }
}

//! `atta chat`: a conversation with the model.
//!
//! Standard output gets the answers and nothing else; notices go to standard error. On a terminal a
//! command or message that fails is reported and the chat continues; in a pipe it ends the program.

mod adapters;
mod agent;
mod args;
mod command;
mod house;
pub(super) mod lines;
mod program;
mod transcript;
mod window;

use std::io::{self, Write};

use atta::{
    Error, FinishReason, GenerateOptions, KvType, LoadOptions, SessionOptions,
    chat::{Chat, Reply},
};

use crate::{
    args::{ContextFlags, DefaultLength, ring::RingAim},
    cache::DiskCache,
    constraint,
    conversation::{self, TemplateName},
    failure::{Failure, one_line},
    generation_printer::GenerationPrinter,
    input,
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::Stdout,
    report,
    ring::{self, RingRun},
    speculation::OpenDrafts,
    stats::{CachedPrefix, Stats, StatsFile},
    tools,
};

pub(crate) use args::ChatArgs;

use agent::{Consents, Runner};
use command::Command;
use lines::{Lines, UserInput};

pub(super) fn run(args: Box<ChatArgs>) -> Result<(), Failure> {
    let args = &*args;
    let interrupt = Interrupt::listen();
    refuse_what_needs_stdin(args)?;
    let lines = Lines::open()?;
    if args.runner.tool_cmd.is_some() && !args.runner.yes && !lines.is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask at before a tool is run: give --yes".to_owned(),
        ));
    }
    let inputs = inputs(args);
    let stats = args.report.stats_json.as_deref();
    let options = constraint::apply(
        &args.constraint,
        args.sampling.generate_options(DefaultLength::Limited)?,
    )
    .map_err(|failure| StatsFile::of_failure(stats, &inputs, &Stats::of_chat(), failure))?;
    let session = args
        .context
        .apply(args.model_flags.session_options(KvType::default()))?;
    let session = if uses_window(args) {
        window::small(session)
    } else {
        session
    };
    let session = args.speculation.reserve(session);
    let load_options = load::options(args.model.as_deref(), &args.model_flags, session)?;
    let constrained = options.constraint.is_some() || has_tools(args);
    let load_options = LoadOptions {
        constrained,
        ..load_options
    };
    let file = StatsFile::create(args.report.stats_json.as_deref(), &inputs)?;
    let mut stats = Stats::of_chat();
    let give_up = || file.give_up(&Stats::of_chat());
    let cache = DiskCache::open(&args.cache);
    let prepared = cache.and_then(|cache| {
        interrupt.watch(give_up, || {
            let model = args.model.as_deref();
            let drafts = OpenDrafts::open(&args.speculation, &args.model_flags)?;
            let load_options = drafts.beside(load_options);
            let (load_options, ring) =
                ring::plan(model, &args.ring, RingAim::Latency, load_options)?;
            let chat = prepare(args, &load_options, cache, &mut stats)?;
            drafts.check(chat.session().engine())?;
            Ok((chat, ring, drafts.speculation))
        })
    });
    let result = prepared.and_then(|(chat, ring, speculation)| {
        let options = GenerateOptions {
            speculation,
            ..options
        };
        Conversation {
            args,
            chat,
            ring,
            lines,
            options,
            interrupt,
            runner: Runner::of(args),
            consents: Consents::default(),
            inputs: &inputs,
            file: &file,
            stats: &mut stats,
        }
        .run()
    });
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// The files that are read.
fn inputs(args: &ChatArgs) -> InputFiles {
    let template = match &args.chat_template {
        Some(TemplateName::File(path)) => Some(path),
        _ => None,
    };
    InputFiles::of([
        args.model.as_ref(),
        args.constraint.schema.as_ref(),
        args.constraint.grammar.as_ref(),
        args.cache.cache.as_ref(),
        args.speculation.file(),
        args.tools.tools.as_ref(),
        args.runner.tool_cmd.as_ref(),
        template,
    ])
}

/// Whether the built-in model runs tools with no option for its context. Then it gets a small
/// window, since a long conversation confuses it.
fn uses_window(args: &ChatArgs) -> bool {
    let is_chosen = args.context != ContextFlags::default() || args.model_flags.n_ctx.is_some();
    args.model.is_none() && has_tools(args) && !is_chosen
}

fn has_tools(args: &ChatArgs) -> bool {
    args.tools.tools.is_some() || args.runner.house
}

/// Refuses options that need standard input, from which messages are read.
fn refuse_what_needs_stdin(args: &ChatArgs) -> Result<(), Failure> {
    let tools_stdin = args.tools.tools.as_deref().is_some_and(input::is_stdin);
    if args.constraint.takes_stdin() || tools_stdin {
        return Err(Failure::Usage(
            "`atta chat` reads messages from standard input: name a file in place of -".to_owned(),
        ));
    }
    if args.tools.tools.is_some() && args.runner.tool_cmd.is_none() {
        return Err(Failure::Usage(
            "--tools needs a program that runs them: give --tool-cmd PROGRAM".to_owned(),
        ));
    }
    Ok(())
}

/// Loads the model.
fn prepare(
    args: &ChatArgs,
    options: &LoadOptions,
    cache: DiskCache,
    stats: &mut Stats,
) -> Result<Chat, Failure> {
    let tools = if args.runner.house {
        Some(tools::of_house()?)
    } else {
        tools::tool_use(&args.tools)?
    };
    let engine = load::engine(args.model.as_deref(), options)?;
    stats.loaded(&engine);
    load::warn_of_length(&engine, args.model_flags.n_ctx);
    if args.report.verbose {
        report::model(&load::name(args.model.as_deref()), &engine);
    }
    let open = |session: &SessionOptions| -> Result<Chat, Failure> {
        let mut chat = conversation::open(&engine, session, args.chat_template.as_ref())?;
        chat.set_system(args.system.clone());
        chat.set_tools(tools.clone());
        Ok(chat)
    };
    let mut chat = open(&options.session)?;
    if uses_window(args) {
        let session = window::after_system_part(&options.session, &mut chat)?;
        drop(chat);
        chat = open(&session)?;
    }
    if let Some(cache) = cache.into_prompt_cache() {
        chat.set_cache(cache);
    }
    stats.account(&engine);
    Ok(chat)
}

/// A chat with its user.
struct Conversation<'a> {
    args: &'a ChatArgs,
    chat: Chat,
    ring: RingRun,
    lines: Lines,
    options: GenerateOptions,
    interrupt: Interrupt,
    /// How tool calls are run, if there are tools.
    runner: Option<Runner>,
    consents: Consents,
    inputs: &'a InputFiles,
    file: &'a StatsFile,
    stats: &'a mut Stats,
}

impl Conversation<'_> {
    fn run(mut self) -> Result<(), Failure> {
        if self.lines.is_terminal() {
            notice("/help lists the commands, Ctrl-D leaves");
        }
        let mut pressed = false;
        loop {
            let file = self.file;
            let stats = &*self.stats;
            match self.lines.next(&self.interrupt, || file.give_up(stats))? {
                UserInput::End if pressed && !self.lines.is_terminal() => {
                    return Err(Failure::Interrupted);
                }
                UserInput::End => return Ok(()),
                UserInput::Interrupt if pressed => return Err(Failure::Interrupted),
                UserInput::Interrupt => {
                    pressed = true;
                    notice("Ctrl-C again leaves");
                }
                UserInput::Line(text) => match self.obey(Command::parse(&text)) {
                    Ok(Next::Leave) => return Ok(()),
                    Ok(Next::GoOn) => pressed = false,
                    // In a pipe the next line may give the same tools another task.
                    Ok(Next::Stopped) if self.runner.is_some() && !self.lines.is_terminal() => {
                        return Err(Failure::Interrupted);
                    }
                    Ok(Next::Stopped) => pressed = true,
                    Err(Failure::Failed(message) | Failure::Usage(message))
                        if self.lines.is_terminal() =>
                    {
                        Failure::Failed(message).report();
                        pressed = false;
                    }
                    Err(failure) => return Err(failure),
                },
            }
        }
    }

    fn obey(&mut self, command: Command<'_>) -> Result<Next, Failure> {
        match command {
            Command::Nothing => {}
            Command::Exit => return Ok(Next::Leave),
            Command::Help => notice(command::HELP),
            Command::Clear => self.chat.clear(),
            Command::System(text) => self.chat.set_system(text.map(str::to_owned)),
            Command::Save(path) => transcript::save(&self.chat, path, self.inputs)?,
            Command::Load(path) => transcript::load(&mut self.chat, path)?,
            Command::Adapters => notice(&adapters::list(self.chat.session())),
            Command::Adapt(names) => adapters::choose(&mut self.chat, &names)?,
            Command::Ring(request) => notice(&self.ring.obey(&request, self.chat.session())?),
            Command::Wrong(why) => return Err(Failure::Failed(why)),
            Command::Say(text) => {
                return if self.runner.is_some() {
                    self.say_with_tools(text)
                } else {
                    self.say(text)
                };
            }
        }
        Ok(Next::GoOn)
    }

    fn say(&mut self, text: &str) -> Result<Next, Failure> {
        self.interrupt.reset();
        let mut printer = GenerationPrinter::new(self.interrupt.clone());
        let said = self
            .chat
            .say(text, &self.options, |event| printer.on_event(event));
        if let Err(Error::PromptTooLong { n_prompt, n_ctx }) = said {
            return Err(full(n_prompt, n_ctx));
        }
        let is_answer = said.is_ok();
        let written = printer.end(self.stats, |out, has_text| {
            if is_answer || has_text {
                end_answer(out)
            } else {
                Ok(())
            }
        });
        let reply = said?;
        let reason = reply.summary.finish_reason;
        self.report(reply);
        let stopped = self.interrupt.is_asked();
        self.interrupt.reset();
        match written {
            Err(Failure::Interrupted) | Ok(()) if stopped => Ok(Next::Stopped),
            Err(failure) => Err(failure),
            Ok(()) => {
                if reason == FinishReason::Length {
                    self.explain_cut();
                }
                Ok(Next::GoOn)
            }
        }
    }

    /// Prints the reports of an answer, and records its statistics.
    fn report(&mut self, reply: Reply) {
        if self.args.report.verbose {
            report::cached(CachedPrefix {
                n_tokens: reply.n_cached,
                time: reply.restore_time,
            });
            report::speed(&reply.summary);
            report::expectation(self.chat.session().engine(), &reply.summary);
        }
        self.stats.answered(reply);
        self.stats.account(self.chat.session().engine());
        if self.args.report.mem_report {
            report::memory(self.chat.session().engine());
        }
    }

    /// Explains on a terminal why an answer was cut off.
    fn explain_cut(&self) {
        if self.lines.is_terminal() {
            let is_full = !self.chat.session().has_room();
            notice(if is_full {
                "(cut off: the context is full, see -c)"
            } else {
                "(cut off: see -n)"
            });
        }
    }
}

/// The failure of a conversation that does not fit into the context.
fn full(n_tokens: usize, n_ctx: usize) -> Failure {
    Failure::Failed(format!(
        "the context is full: with this message the conversation has {n_tokens} tokens, \
         and it holds {n_ctx}; \
         /clear begins anew, or /save FILE, start again with a larger -c, and /load FILE"
    ))
}

/// What follows an input.
enum Next {
    GoOn,
    /// Ctrl-C has stopped an answer.
    Stopped,
    Leave,
}

/// Ends the line of an answer, since others follow.
fn end_answer(out: &mut Stdout) -> Result<(), Failure> {
    out.line("").and_then(|()| out.flush())
}

/// Prints a notice to standard error.
fn notice(text: &str) {
    for line in text.lines() {
        // A closed standard error is no failure.
        let _ = writeln!(io::stderr(), "{}", one_line(line));
    }
}

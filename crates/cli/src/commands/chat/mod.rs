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
mod printer;
mod program;
mod screen;
mod settings;
mod think;
mod transcript;
mod window;

use std::{
    io::{self, Write},
    path::Path,
};

use atta::{
    Error, FinishReason, GenerateOptions, KvType, LoadOptions, SessionOptions, Summary,
    chat::{Chat, ChatEvent, Message, Reply, Role},
};

use crate::{
    args::{ContextFlags, DefaultLength, ring::RingAim},
    cache::DiskCache,
    constraint,
    conversation::{self, TemplateName},
    failure::{Failure, one_line},
    gpu::GpuPlanner,
    input,
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::Stdout,
    report,
    ring::{self, RingRun},
    speculation::OpenDrafts,
    stats::{CachedPrefix, Stats, StatsFile},
    terminal, tools,
};

pub(crate) use args::ChatArgs;

use agent::{Consents, Runner};
use command::Command;
use lines::{Lines, UserInput};
use printer::AnswerPrinter;
use settings::{Figures, View};
use think::Think;

pub(super) fn run(args: Box<ChatArgs>) -> Result<(), Failure> {
    let args = &*args;
    let interrupt = Interrupt::listen();
    refuse_what_needs_stdin(args)?;
    let lines = Lines::open()?;
    refuse_tools_without_consent(args, &lines)?;
    let inputs = inputs(args);
    let stats = args.report.stats_json.as_deref();
    let options = constraint::apply(
        &args.constraint,
        args.sampling.generate_options(DefaultLength::Limited)?,
    )
    .map_err(|failure| StatsFile::of_failure(stats, &inputs, &Stats::of_chat(), failure))?;
    let load_options = LoadOptions {
        constrained: options.constraint.is_some() || has_tools(args),
        ..load_options(args)?
    };
    let file = StatsFile::create(args.report.stats_json.as_deref(), &inputs)?;
    let mut stats = Stats::of_chat();
    let give_up = || file.give_up(&Stats::of_chat());
    let cache = DiskCache::open(&args.cache);
    let prepared = cache.and_then(|cache| {
        interrupt.watch(give_up, || {
            let model = args.model.as_deref();
            let drafts = OpenDrafts::open(&args.speculation, &args.model_flags)?;
            let load_options = drafts.beside(model, load_options)?;
            let (load_options, ring) =
                ring::plan(model, &args.ring, RingAim::Latency, load_options)?;
            let load_options = GpuPlanner::new(1).plan(model, &args.gpu, load_options)?;
            let chat = prepare(args, &load_options, cache, &mut stats)?;
            drafts.check(chat.session().engine())?;
            Ok((chat, ring, drafts.speculation))
        })
    });
    let result = prepared.and_then(|(chat, ring, speculation)| {
        let options = GenerateOptions {
            n_predict: length(args, &options, &chat),
            speculation,
            ..options
        };
        Conversation {
            args,
            think: args.view.think,
            view: args.view.view(),
            attached: Vec::new(),
            thoughts: String::new(),
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

/// The longest answer: as -n says, else as the context holds.
fn length(args: &ChatArgs, options: &GenerateOptions, chat: &Chat) -> usize {
    match args.sampling.has_length() {
        true => options.n_predict,
        false => chat.session().n_ctx(),
    }
}

fn load_options(args: &ChatArgs) -> Result<LoadOptions, Failure> {
    let session = args.model_flags.session_options(KvType::default());
    let session = args.context.apply(session)?;
    let session = match uses_window(args) {
        true => window::small(session),
        false => session,
    };
    let session = args.speculation.reserve(session);
    load::options(args.model.as_deref(), &args.model_flags, session)
}

/// Refuses to run tools of the user without a terminal to ask at.
fn refuse_tools_without_consent(args: &ChatArgs, lines: &Lines) -> Result<(), Failure> {
    if args.runner.tool_cmd.is_some() && !args.runner.yes && !lines.is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask at before a tool is run: give --yes".to_owned(),
        ));
    }
    Ok(())
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
        args.view.think.apply(&mut chat)?;
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
    think: Think,
    view: View,
    /// Texts that go in front of the next message.
    attached: Vec<String>,
    /// Thoughts of the last answer.
    thoughts: String,
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
        if self.tells_figures() {
            notice(&self.title());
        }
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
            Command::Clear => {
                self.chat.clear();
                self.attached.clear();
            }
            Command::System(text) => self.chat.set_system(text.map(str::to_owned)),
            Command::Save(path) => transcript::save(&self.chat, path, self.inputs)?,
            Command::Load(path) => transcript::load(&mut self.chat, path)?,
            Command::Adapters => notice(&adapters::list(self.chat.session())),
            Command::Adapt(names) => adapters::choose(&mut self.chat, &names)?,
            Command::Ring(request) => notice(&self.ring.obey(&request, self.chat.session())?),
            Command::Wrong(why) => return Err(Failure::Failed(why)),
            Command::Read(path) => self.attach(path)?,
            Command::Thoughts if self.thoughts.is_empty() => notice("there are no thoughts"),
            Command::Thoughts => notice(&self.thoughts),
            Command::Settings => notice(&self.settings()),
            Command::Set { name, value } => self.set(name, value)?,
            Command::Regenerate => return self.regenerate(),
            Command::Say(text) => {
                let parts = self.attached.iter().map(String::as_str);
                let text = parts.chain([text]).collect::<Vec<_>>().join("\n\n");
                let next = self.converse(&text)?;
                self.attached.clear();
                return Ok(next);
            }
        }
        Ok(Next::GoOn)
    }

    /// Keeps a text for the next message.
    fn attach(&mut self, path: &Path) -> Result<(), Failure> {
        let text = input::read_text(path)?.trim_end().to_owned();
        let n = text.chars().count();
        notice(&format!(
            "{}: {n} characters go in front of the next message",
            path.display()
        ));
        self.attached.push(text);
        Ok(())
    }

    /// Answers the last message of the user again, with the next seed.
    fn regenerate(&mut self) -> Result<Next, Failure> {
        let messages = self.chat.messages();
        let last = messages.iter().rposition(|m| m.role == Role::User);
        let at = last.ok_or_else(|| Failure::Failed("there is no message to answer".to_owned()))?;
        let old = messages[at..].to_vec();
        if self.options.sampling.temperature <= 0.0 {
            notice("at temperature 0 the answer stays the same: /set temperature 0.8");
        }
        let seed = &mut self.options.sampling.seed;
        *seed = seed.wrapping_add(1);
        self.chat.rewind(at);
        let next = self.converse(&old[0].content);
        if self.chat.messages().len() <= at {
            old.into_iter().for_each(|message| self.chat.push(message));
        }
        next
    }

    fn converse(&mut self, text: &str) -> Result<Next, Failure> {
        self.thoughts.clear();
        match self.runner {
            Some(_) => self.say_with_tools(text),
            None => self.say(text),
        }
    }

    fn printer(&self) -> AnswerPrinter {
        let view = self.lines.is_terminal().then_some(self.view);
        AnswerPrinter::new(self.interrupt.clone(), view)
    }

    /// Appends a message and its answer. Thoughts are told apart where the model may have some.
    fn exchange(&mut self, text: &str, printer: &mut AnswerPrinter) -> Result<Reply, Error> {
        let n_before = self.chat.messages().len();
        self.chat.push(Message::user(text));
        // A constraint is one of the whole text.
        let thinks = self.options.constraint.is_none() && self.chat.may_think().unwrap_or(false);
        if !thinks {
            self.chat.rewind(n_before);
            let on_event = |event| printer.on_event(event);
            return self.chat.say(text, &self.options, on_event);
        }
        let on_event = |event: ChatEvent<'_>| printer.on_chat_event(event);
        let said = self.chat.answer_calling(&self.options, on_event);
        match &said {
            Ok(answer) if answer.reply.summary.n_generated > 0 => {
                self.thoughts.clone_from(&answer.outcome.reasoning);
            }
            _ => self.chat.rewind(n_before),
        }
        said.map(|answer| answer.reply)
    }

    fn say(&mut self, text: &str) -> Result<Next, Failure> {
        self.interrupt.reset();
        let mut printer = self.printer();
        let said = self.exchange(text, &mut printer);
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
            report::speed(self.chat.session().engine(), &reply.summary);
            report::expectation(self.chat.session().engine(), &reply.summary);
        }
        if self.tells_figures() {
            self.tell_speed(&reply.summary);
        }
        self.stats.answered(reply);
        self.stats.account(self.chat.session().engine());
        if self.args.report.mem_report {
            report::memory(self.chat.session().engine());
        }
    }

    /// Whether the model and the speed of answers are told.
    fn tells_figures(&self) -> bool {
        self.lines.is_terminal() && self.view.figures == Figures::Told
    }

    /// The name of the model and the length of the context.
    fn title(&self) -> String {
        let session = self.chat.session();
        let files = session.engine().model().weights().files();
        let named = files.directory().metadata().str("general.name");
        let name = named.ok().flatten().filter(|name| !name.is_empty());
        let name = name.map_or_else(|| load::name(self.args.model.as_deref()), str::to_owned);
        let n_bytes = report::bytes(files.file_bytes());
        let n_ctx = session.n_ctx();
        format!("{name}, {n_bytes}, a context of {n_ctx} tokens")
    }

    fn tell_speed(&self, summary: &Summary) {
        let session = self.chat.session();
        let n_tokens = summary.n_generated;
        let tok_s = summary.decode_tok_s();
        let used = 100 * session.tokens().len() / session.n_ctx().max(1);
        let text = format!("({n_tokens} tokens, {tok_s:.1} tokens/s, {used} % of the context)");
        let text = match terminal::has_colours() {
            true => format!("\u{1b}[2m{text}\u{1b}[0m"),
            false => text,
        };
        // A closed standard error is no failure.
        let _ = writeln!(io::stderr(), "{text}");
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

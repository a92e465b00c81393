//! The chat of `atta leap -c`: a message on each line, and LEAP's commands.
//!
//! Knows no connections. The one idea: a conversation is its messages, so `/resize` opens another
//! ring and goes on with them; their state is computed again with the next message.

use std::{
    io::{self, Write},
    path::Path,
};

use atta::{
    Engine, Error, FinishReason, GenerateOptions, KvType, LoadOptions,
    chat::{Chat, Message, Origin, TemplateChoice},
};

use super::{args::LeapArgs, master::Master, model_flags};
use crate::{
    commands::chat::lines::{Lines, UserInput},
    conversation::local_now,
    failure::Failure,
    generation_printer::GenerationPrinter,
    interrupt::Interrupt,
    load,
    ring::{RingRun, say},
    stats::Stats,
};

/// The output of `/help`.
const HELP: &str = "\
/layers       show which machine runs which layers
/resize A B   move the borders: A is the first layer of the first worker, B that of the next one
/help         list these commands
exit          leave
Ctrl-C stops an answer.";

/// Messages as Llama 3 has them, for its vocabulary without a template: a model.bin has none.
///
/// Source: `ChatFormat` of meta-llama/llama3.
const LLAMA3: &str = "{{ bos_token }}{% for message in messages %}\
    {{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}\
    {{ message.content | trim }}{{ '<|eot_id|>' }}{% endfor %}\
    {% if add_generation_prompt %}\
    {{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

/// The tokens that this template needs.
const LLAMA3_MARKS: [&str; 3] = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];

/// A line of the user.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Say(&'a str),
    Layers,
    /// The borders, as they were typed.
    Resize(&'a str),
    Help,
    Exit,
    /// An invalid command, with the reason.
    Wrong(String),
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let line = line.trim();
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (name, rest.trim()) {
            ("", _) => Self::Nothing,
            ("exit" | "/exit" | "/quit", "") => Self::Exit,
            ("/help", "") => Self::Help,
            ("/layers", "") => Self::Layers,
            ("/resize", borders) => Self::Resize(borders),
            _ if line.starts_with('/') => {
                Self::Wrong(format!("there is no command {name}: /help lists them"))
            }
            _ => Self::Say(line),
        }
    }
}

/// What the chat needs to be opened, also again.
struct Opener<'a> {
    args: &'a LeapArgs,
    model: &'a Path,
    load: LoadOptions,
    master: Option<Master>,
}

/// A chat, and the machines that compute it.
struct Opened {
    chat: Chat,
    ring: RingRun,
}

pub(super) fn run(
    args: &LeapArgs,
    model: &Path,
    master: Option<Master>,
    options: &GenerateOptions,
) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let flags = model_flags(args);
    let session = flags.session_options(KvType::default());
    let opener = Opener {
        args,
        model,
        load: load::options(Some(model), &flags, session)?,
        master,
    };
    let lines = Lines::open()?;
    let opened = interrupt.watch(|| {}, || opener.open(Vec::new()))?;
    let mut conversation = Conversation {
        opener,
        opened: Some(opened),
        options,
        interrupt,
    };
    conversation.run(lines)
}

impl Opener<'_> {
    /// Loads the model, on all machines, and goes on with these messages.
    fn open(&self, messages: Vec<Message>) -> Result<Opened, Failure> {
        let load = self.load.clone();
        let (options, ring) = match &self.master {
            Some(master) => master.ring(load)?,
            None => (load, RingRun::default()),
        };
        let engine = load::engine(Some(self.model), &options)?;
        let choice = choice(&engine);
        let found = choice.template(&engine.templates());
        let (template, origin) = found.map_err(|error| Failure::at(self.model, error))?;
        if matches!(origin, Origin::ChatMl | Origin::Plain) {
            load::warn(
                "this model may not be made for chat: it has no chat template, and one is guessed",
            );
        }
        let mut chat = Chat::new(engine.session(&options.session)?, template);
        chat.set_now(Some(local_now()));
        chat.set_system(self.args.system.clone());
        chat.restore(messages);
        Ok(Opened { chat, ring })
    }

    fn layers(&self) -> String {
        match &self.master {
            Some(master) => master.layers().join("\n"),
            None => "this machine: all layers".to_owned(),
        }
    }
}

/// The template of the file, or Llama 3's for its vocabulary.
fn choice(engine: &Engine) -> TemplateChoice {
    let tokenizer = engine.tokenizer();
    let is_llama3 = LLAMA3_MARKS
        .iter()
        .all(|mark| tokenizer.token_id(mark).is_some());
    match engine.templates().default {
        None if is_llama3 => TemplateChoice::Source(LLAMA3.to_owned()),
        _ => TemplateChoice::Model,
    }
}

struct Conversation<'a> {
    opener: Opener<'a>,
    /// `None` after a ring that could not be opened again.
    opened: Option<Opened>,
    options: &'a GenerateOptions,
    interrupt: Interrupt,
}

impl Conversation<'_> {
    fn run(&mut self, mut lines: Lines) -> Result<(), Failure> {
        if lines.is_terminal() {
            notice("/help lists the commands, exit leaves");
        }
        if let Some(first) = &self.opener.args.prompt {
            let first = first.to_string_lossy().into_owned();
            self.say(&first)?;
        }
        loop {
            let line = match lines.next(&self.interrupt, || {})? {
                UserInput::Line(line) => line,
                UserInput::End => return Ok(()),
                UserInput::Interrupt => return Err(Failure::Interrupted),
            };
            let line = Line::parse(&line);
            if line == Line::Exit {
                return Ok(());
            }
            match self.obey(&line) {
                Ok(()) => {}
                Err(Failure::Failed(why) | Failure::Usage(why))
                    if lines.is_terminal() && self.opened.is_some() =>
                {
                    Failure::Failed(why).report();
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn obey(&mut self, line: &Line<'_>) -> Result<(), Failure> {
        match line {
            Line::Nothing | Line::Exit => {}
            Line::Help => notice(HELP),
            Line::Layers => notice(&self.opener.layers()),
            Line::Resize(borders) => self.resize(borders)?,
            Line::Wrong(why) => return Err(Failure::Failed(why.clone())),
            Line::Say(text) => self.say(text)?,
        }
        Ok(())
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        let Some(Opened { chat, ring }) = &mut self.opened else {
            return Err(Failure::Failed("there is no ring".to_owned()));
        };
        self.interrupt.reset();
        let mut printer = GenerationPrinter::new(self.interrupt.clone());
        let said = chat.say(text, self.options, |event| printer.on_event(event));
        if let Err(Error::PromptTooLong { n_prompt, n_ctx }) = said {
            return Err(Failure::Failed(format!(
                "the context is full: with this message the conversation has {n_prompt} tokens, \
                 and it holds {n_ctx}"
            )));
        }
        let is_answer = said.is_ok();
        let written = printer.end(&mut Stats::of_chat(), |out, has_text| {
            match is_answer || has_text {
                true => out.line("").and_then(|()| out.flush()),
                false => Ok(()),
            }
        });
        let reply = said?;
        ring.compare(&reply.summary);
        let is_stopped = self.interrupt.is_asked();
        self.interrupt.reset();
        match written {
            Err(Failure::Interrupted) if is_stopped => Ok(()),
            Ok(()) => {
                if reply.summary.finish_reason == FinishReason::Length {
                    notice("(cut off: the context is full, or -n is reached)");
                }
                Ok(())
            }
            written => written,
        }
    }

    /// Moves the borders between the machines. Where that fails, the old ones are back.
    fn resize(&mut self, borders: &str) -> Result<(), Failure> {
        let master = self.opener.master.as_mut().ok_or_else(|| {
            Failure::Failed("/resize needs other machines: see --role".to_owned())
        })?;
        let new = master.plan_at(&numbers(borders)?)?;
        let old = master.plan().clone();
        master.set_plan(new);
        // A worker has one stage at a time, so the old ring ends first.
        let before = self.opened.take();
        let messages = before.map_or_else(Vec::new, |opened| opened.chat.messages().to_vec());
        let failure = match self.opener.open(messages.clone()) {
            Ok(opened) => {
                self.opened = Some(opened);
                say(&format!(
                    "ring: {}",
                    self.opener.layers().replace('\n', "; ")
                ));
                return Ok(());
            }
            Err(failure) => failure,
        };
        if let Some(master) = &mut self.opener.master {
            master.set_plan(old);
        }
        self.opened = Some(self.opener.open(messages)?);
        say("the borders are those from before");
        Err(failure)
    }
}

/// The borders that a user typed.
fn numbers(text: &str) -> Result<Vec<usize>, Failure> {
    let numbers = text.split_whitespace().map(str::parse);
    numbers
        .collect::<Result<_, _>>()
        .map_err(|_| Failure::Failed("/resize takes layers, as in /resize 8 16".to_owned()))
}

/// Prints a notice to standard error.
fn notice(text: &str) {
    for line in text.lines() {
        // A closed standard error is no failure.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use atta::chat::{Conversation as ChatMessages, SpecialTexts, Template};

    use super::*;

    #[test]
    fn lines_are_messages_or_commands_of_leap() {
        assert_eq!(Line::parse(" hello there "), Line::Say("hello there"));
        assert_eq!(Line::parse("exit"), Line::Exit);
        assert_eq!(Line::parse("exit the house"), Line::Say("exit the house"));
        assert_eq!(Line::parse("/layers "), Line::Layers);
        assert_eq!(Line::parse("/resize  8 16"), Line::Resize("8 16"));
        assert_eq!(Line::parse(""), Line::Nothing);
        assert!(matches!(Line::parse("/lay"), Line::Wrong(why) if why.contains("/help")));
    }

    #[test]
    fn llama_3_has_its_headers_around_each_message() {
        let texts = SpecialTexts {
            bos: Some("<|begin_of_text|>".to_owned()),
            ..SpecialTexts::default()
        };
        let template = Template::new(LLAMA3, texts).unwrap();
        let messages = [Message::system("Be kind."), Message::user(" Hi ")];
        let rendered = template.render(&ChatMessages {
            messages: &messages,
            add_generation_prompt: true,
            ..ChatMessages::default()
        });
        let expected = [
            "<|begin_of_text|>",
            "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>",
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ];
        assert_eq!(rendered.unwrap(), expected.concat());
    }

    #[test]
    fn borders_are_whole_numbers() {
        assert_eq!(numbers(" 8  16 ").unwrap(), [8, 16]);
        assert!(numbers("8,16").is_err() && numbers("-1").is_err());
    }
}

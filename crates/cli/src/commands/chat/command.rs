//! Parses a line of the user: a message, or a command that begins with a slash.

use std::path::Path;

use crate::args::ring::RingRequest;

/// The output of `/help`.
pub(super) const HELP: &str = "\
/regen        answer the last message again, with another seed
/read FILE    put a text file in front of the next message
/thoughts     show the thoughts of the last answer
/set NAME X   change a setting, as in /set temperature 0.5; /set lists them
/clear        clear the conversation, but not the system message
/system TEXT  set the system message; without TEXT, remove it
/save FILE    save the conversation to FILE, as JSON
/load FILE    load a conversation from FILE
/lora [NAME[:SCALE] …]   use these adapters and no others; without names, list them; /lora none
/ring         show the machines of the ring, with their layers
/resize N …   let the layers of this machine and of each node but the last end before layers N …
/add NODE     take a node into the ring
/drop NODE    go on without a node of the ring
/help         list these commands
/exit         leave
//TEXT        say /TEXT
\"\"\"           begins and ends a message of several lines
Ctrl-C stops an answer.";

/// A line of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// An empty line.
    Nothing,
    Say(&'a str),
    Clear,
    Regenerate,
    Read(&'a Path),
    Thoughts,
    /// Lists the settings.
    Settings,
    Set {
        name: &'a str,
        value: &'a str,
    },
    System(Option<&'a str>),
    Save(&'a Path),
    Load(&'a Path),
    /// Lists the adapters.
    Adapters,
    /// Uses these, each as NAME or NAME:SCALE, and no others.
    Adapt(Vec<&'a str>),
    Ring(RingRequest<'a>),
    Help,
    Exit,
    /// An invalid command, with the reason.
    Wrong(String),
}

impl<'a> Command<'a> {
    pub(super) fn parse(line: &'a str) -> Self {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() {
                Self::Nothing
            } else {
                Self::Say(line)
            };
        };
        if command.starts_with('/') {
            return Self::Say(command);
        }
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
        match (name, rest) {
            ("clear", None) => Self::Clear,
            ("regen", None) => Self::Regenerate,
            ("thoughts", None) => Self::Thoughts,
            ("read", Some(path)) => Self::Read(Path::new(path)),
            ("set", None) => Self::Settings,
            ("set", Some(setting)) => set(setting),
            ("help", None) => Self::Help,
            ("exit" | "quit", None) => Self::Exit,
            ("system", text) => Self::System(text),
            ("save", Some(path)) => Self::Save(Path::new(path)),
            ("load", Some(path)) => Self::Load(Path::new(path)),
            ("lora", None) => Self::Adapters,
            ("lora", Some("none")) => Self::Adapt(Vec::new()),
            ("lora", Some(names)) => Self::Adapt(names.split_whitespace().collect()),
            ("ring", None) => Self::Ring(RingRequest::Show),
            ("resize", Some(ends)) => resize(ends),
            ("add", Some(node)) => Self::Ring(RingRequest::Add(node)),
            ("drop", Some(node)) => Self::Ring(RingRequest::Drop(node)),
            ("resize", None) => Self::Wrong(RESIZE.to_owned()),
            ("add" | "drop", None) => {
                Self::Wrong(format!("/{name} needs a node, as in /{name} pi2"))
            }
            ("save" | "load", None) => {
                Self::Wrong(format!("/{name} needs a file, as in /{name} chat.json"))
            }
            ("read", None) => Self::Wrong("/read needs a file, as in /read letter.txt".to_owned()),
            ("clear" | "regen" | "thoughts" | "help" | "exit" | "quit" | "ring", Some(_)) => {
                Self::Wrong(format!("/{name} takes nothing after it"))
            }
            _ => Self::Wrong(format!(
                "there is no command /{name}: /help lists them, and // begins a message with /"
            )),
        }
    }
}

/// The reason that refuses a `/resize`.
const RESIZE: &str = "/resize needs layers, as in /resize 12 24: here the first 12 run on this \
                      machine, the next 12 on the first node, and the rest on the second";

fn set(setting: &str) -> Command<'_> {
    match setting.split_once(char::is_whitespace) {
        Some((name, value)) => Command::Set {
            name,
            value: value.trim(),
        },
        None => Command::Wrong(format!(
            "/set {setting} needs a value, as in /set temperature 0.5"
        )),
    }
}

fn resize(ends: &str) -> Command<'_> {
    let ends = ends.split_whitespace().map(str::parse).collect();
    match ends {
        Ok(ends) => Command::Ring(RingRequest::Resize(ends)),
        Err(_) => Command::Wrong(RESIZE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_unless_they_begin_with_a_slash() {
        assert_eq!(
            Command::parse(" hello /there "),
            Command::Say("hello /there")
        );
        assert_eq!(
            Command::parse("//etc is a directory"),
            Command::Say("/etc is a directory")
        );
        assert_eq!(Command::parse("  "), Command::Nothing);
        assert_eq!(Command::parse("/clear "), Command::Clear);
        assert_eq!(
            Command::parse("/system  be  kind "),
            Command::System(Some("be  kind"))
        );
        assert_eq!(Command::parse("/system"), Command::System(None));
        assert_eq!(
            Command::parse("/save my chat.json"),
            Command::Save(Path::new("my chat.json"))
        );
        assert_eq!(Command::parse("/regen"), Command::Regenerate);
        assert_eq!(
            Command::parse("/read a b.txt"),
            Command::Read(Path::new("a b.txt"))
        );
        assert_eq!(Command::parse("/set"), Command::Settings);
        let set = Command::Set {
            name: "top-k",
            value: "4",
        };
        assert_eq!(Command::parse("/set top-k  4"), set);
        assert_eq!(Command::parse("/lora"), Command::Adapters);
        assert_eq!(Command::parse("/lora none"), Command::Adapt(Vec::new()));
        assert_eq!(
            Command::parse("/lora a b:0.5"),
            Command::Adapt(vec!["a", "b:0.5"])
        );
        let ring = |request| Command::Ring(request);
        assert_eq!(Command::parse("/ring"), ring(RingRequest::Show));
        assert_eq!(
            Command::parse("/resize 0  12 "),
            ring(RingRequest::Resize(vec![0, 12]))
        );
        assert_eq!(Command::parse("/add pi2"), ring(RingRequest::Add("pi2")));
        assert_eq!(Command::parse("/drop pi2"), ring(RingRequest::Drop("pi2")));
    }

    #[test]
    fn a_command_that_makes_no_sense_says_what_would() {
        for (line, part) in [
            ("/save", "/save chat.json"),
            ("/exit now", "nothing after"),
            ("/", "/help"),
            ("/cls", "no command /cls"),
            ("/resize -1", "/resize 12 24"),
            ("/add", "/add pi2"),
            ("/read", "/read letter.txt"),
            ("/set top-k", "/set temperature"),
            ("/regen now", "nothing after"),
            ("/ring pi2", "nothing after"),
        ] {
            let Command::Wrong(why) = Command::parse(line) else {
                panic!("{line}")
            };
            assert!(why.contains(part), "{why}");
        }
    }
}

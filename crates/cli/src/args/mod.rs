//! The command line: options that several commands share, and how words become a command.
//!
//! Names, defaults and exit codes are a contract with scripts. This module turns text into types
//! and refuses values without a meaning; it opens no file and knows no model. The options of one
//! command are with that command, in [`crate::commands`].

pub(crate) mod constraint;
mod context;
pub(crate) mod lora;
pub(crate) mod model;
mod output;
pub(crate) mod ring;
mod sampling;
mod setting;
pub(crate) mod speculation;
mod tools;
pub(crate) mod value;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{Parser, error::ErrorKind};

pub(crate) use constraint::ConstraintFlags;
pub(crate) use context::ContextFlags;
pub(crate) use model::{ModelFlags, WeightsName};
pub(crate) use output::{CacheFlags, ReportFlags};
pub(crate) use ring::RingFlags;
pub(crate) use sampling::{DefaultLength, SamplingFlags};
pub(crate) use setting::flag;
pub(crate) use speculation::SpeculationFlags;
pub(crate) use tools::ToolFlags;

use crate::{commands::Command, failure::Failure};

/// Runs large language models from GGUF files, straight from disk, in little memory.
#[derive(Debug, Parser)]
#[command(
    name = "atta",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(args_override_self = true, after_help = examples())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A command that is compiled in only with a feature of the package.
struct OptionalCommand {
    name: &'static str,
    feature: &'static str,
    is_built: bool,
}

/// The optional commands. Without its feature, a command is refused by the name of the feature.
const OPTIONAL: [OptionalCommand; 13] = [
    optional("chat", "chat", cfg!(feature = "chat")),
    optional("serve", "server", cfg!(feature = "server")),
    optional("cache", "cache", cfg!(feature = "cache")),
    optional("node", "cluster", cfg!(feature = "cluster")),
    optional("cluster", "cluster", cfg!(feature = "cluster")),
    optional("leap", "leap", cfg!(feature = "leap")),
    optional("leap-export", "leap", cfg!(feature = "leap")),
    optional("leap-tokenizer", "leap", cfg!(feature = "leap")),
    optional("embed", "embed", cfg!(feature = "embed")),
    optional("pull", "hub", cfg!(feature = "hub")),
    optional("perplexity", "perplexity", cfg!(feature = "perplexity")),
    optional("convert", "convert", cfg!(feature = "convert")),
    optional("imatrix", "convert", cfg!(feature = "convert")),
];

const fn optional(name: &'static str, feature: &'static str, is_built: bool) -> OptionalCommand {
    OptionalCommand {
        name,
        feature,
        is_built,
    }
}

/// One example per command of this build, and the exit codes.
fn examples() -> String {
    const EXAMPLES: [(&str, &str); 10] = [
        (
            "run",
            "run model.gguf -p \"Once upon a time\"   any GGUF file",
        ),
        (
            "chat",
            "chat model.gguf                        a conversation",
        ),
        (
            "serve",
            "serve model.gguf                       an OpenAI-compatible server",
        ),
        (
            "pull",
            "pull org/repo                          download from Hugging Face",
        ),
        (
            "node",
            "node                                   this machine for rings of machines",
        ),
        (
            "embed",
            "embed model.gguf \"a text\"              vectors of texts",
        ),
        (
            "inspect",
            "inspect model.gguf                     metadata and tensors",
        ),
        (
            "bench",
            "bench model.gguf                       prefill and decode speed",
        ),
        (
            "perplexity",
            "perplexity model.gguf -f text.txt      quality on a text",
        ),
        ("convert", "convert a.gguf b.gguf --type q4_k_m    quantize"),
    ];
    let mut text = String::from("Examples:\n");
    if cfg!(feature = "builtin") {
        text += "  atta run -p \"Once upon a time\"              the built-in model\n";
    }
    for (command, example) in EXAMPLES {
        if !OPTIONAL.iter().any(|c| c.name == command && !c.is_built) {
            text += "  atta ";
            text += example;
            text += "\n";
        }
    }
    text + "\nExit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
}

/// Help that only builds with the feature `cli-extras` carry.
pub(crate) const fn extra_help(text: &'static str) -> Option<&'static str> {
    if crate::EXTRAS { Some(text) } else { None }
}

/// Reads the command line. Asked for help or the version, prints it and ends the program.
pub(crate) fn parse() -> Result<Command, Failure> {
    let words = words(std::env::args_os());
    if let Some(name) = words.get(1) {
        refuse_if_left_out(name)?;
    }
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(cli.command),
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => Err(Failure::Usage(summary(&error.render().to_string()))),
    }
}

/// Refuses a command that this build was made without.
fn refuse_if_left_out(name: &OsStr) -> Result<(), Failure> {
    let is_left_out = |command: &&OptionalCommand| !command.is_built && name == command.name;
    match OPTIONAL.iter().find(is_left_out) {
        Some(command) => Err(lacks(command.name, command.feature)),
        None => Ok(()),
    }
}

/// The failure of a command that needs a feature.
pub(crate) fn lacks(command: &str, feature: &str) -> Failure {
    Failure::Usage(format!(
        "this build has no `atta {command}`: it was made without the feature `{feature}`"
    ))
}

/// Names of other programs, and the commands that take their options.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("picolm", "picolm"),
    ("inference", "leap"),
    ("export", "leap-export"),
    ("tokenizer", "leap-tokenizer"),
];

/// The words of the command line; of a program with another name, those of its command.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    let name = words.first().map(Path::new).and_then(Path::file_stem);
    let is_it = |(other, _): &&(&str, &str)| name.is_some_and(|n| n.eq_ignore_ascii_case(other));
    if let Some((_, command)) = OTHER_NAMES.iter().find(is_it) {
        words.splice(..1, ["atta".into(), (*command).into()]);
    }
    words
}

fn is_help(kind: ErrorKind) -> bool {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    matches!(
        kind,
        DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion
    )
}

/// The message and the tip of a rendered error, without its usage lines, as one line.
fn summary(rendered: &str) -> String {
    let paragraphs = rendered.trim().split("\n\n");
    let kept =
        paragraphs.filter(|p| !p.starts_with("Usage:") && !p.starts_with("For more information"));
    let lines = kept
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    format!("{} (see --help)", text.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn message(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        summary(&error.render().to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_with_the_way_out() {
        assert_eq!(
            message("atta run --top-pp 1"),
            "unexpected argument '--top-pp' found; tip: a similar argument exists: '--top-p' (see \
             --help)"
        );
        assert_eq!(
            message("atta convert a"),
            "the following required arguments were not provided: <DST> (see --help)"
        );
        assert!(
            message("atta rum").starts_with("unrecognized subcommand 'rum'; tip: "),
            "{}",
            message("atta rum")
        );
    }

    #[test]
    fn numbers_without_meaning_are_refused_where_they_stand() {
        for option in [
            "-c 0",
            "-c -1",
            "-n -2",
            "-j 0",
            "--batch 0",
            "--cpus 3-1",
            "--seed -2",
            "--top-k x",
            "-c 1e3",
        ] {
            let name = option
                .split(' ')
                .next()
                .unwrap()
                .replace("-n", "--n-predict");
            let message = message(&format!("atta run -p x {option}"));
            assert!(message.contains(&format!("for '{name} <")), "{message}");
        }
    }

    #[test]
    fn a_program_with_the_name_of_another_one_is_its_command() {
        let words = |line: &str| words(line.split(' ').map(OsString::from)).join(" ".as_ref());
        assert_eq!(
            words("/usr/bin/picolm m.gguf -k 0.5"),
            "atta picolm m.gguf -k 0.5"
        );
        assert_eq!(words("picolm.exe m.gguf"), "atta picolm m.gguf");
        assert_eq!(words("./inference -c m.bin"), "atta leap -c m.bin");
        assert_eq!(words("export a.bin"), "atta leap-export a.bin");
        assert_eq!(words("tokenizer a"), "atta leap-tokenizer a");
        assert_eq!(words("atta picolm m.gguf"), "atta picolm m.gguf");
        assert_eq!(words("./atta run"), "./atta run");
    }

    #[test]
    fn of_an_option_that_is_given_twice_the_last_counts() {
        let cli =
            Cli::try_parse_from("atta run -n 3 -p a -t 1 -p b -n 4 --stop x --stop y".split(' '))
                .unwrap();
        let Command::Run(args) = cli.command else {
            panic!("not a run")
        };
        let options = args
            .sampling
            .generate_options(DefaultLength::Limited)
            .unwrap();
        assert_eq!((args.prompt.unwrap(), options.n_predict), ("b".into(), 4));
        assert_eq!(options.stop, ["x", "y"]);
    }

    #[test]
    fn a_prompt_may_begin_with_a_hyphen() {
        let cli = Cli::try_parse_from(["atta", "run", "-p", "-n is no option here"]).unwrap();
        let Command::Run(args) = cli.command else {
            panic!("not a run")
        };
        assert_eq!(args.prompt.unwrap(), "-n is no option here");
    }
}

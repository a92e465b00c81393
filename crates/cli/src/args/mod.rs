//! The command line: options that several commands share, and how words become a command.
//!
//! Names, defaults and exit codes are a contract with scripts. This module turns text into types
//! and refuses values without a meaning; it opens no file and knows no model. The options of one
//! command are with that command, in [`crate::commands`].

pub(crate) mod constraint;
mod context;
pub(crate) mod gpu;
pub(crate) mod lora;
pub(crate) mod model;
mod model_arg;
mod output;
pub(crate) mod ring;
mod sampling;
mod setting;
pub(crate) mod speculation;
#[cfg(feature = "cli-extras")]
mod tips;
mod tools;
pub(crate) mod value;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{Parser, error::ErrorKind};

pub(crate) use constraint::ConstraintFlags;
pub(crate) use context::ContextFlags;
pub(crate) use gpu::GpuFlags;
pub(crate) use model::{ModelFlags, WeightsName};
#[cfg(feature = "convert")]
pub(crate) use model_arg::ModelFileArg;
pub(crate) use model_arg::{ModelAndTexts, ModelArg};
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
const OPTIONAL: [OptionalCommand; 19] = [
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
    optional("list", "hub", cfg!(feature = "hub")),
    optional("rm", "hub", cfg!(feature = "hub")),
    optional("doctor", "cluster", cfg!(feature = "cluster")),
    optional("completions", "cli-extras", crate::EXTRAS),
    optional("man", "cli-extras", crate::EXTRAS),
    optional("version", "cli-extras", crate::EXTRAS),
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
    const EXAMPLES: [(&str, &str); 12] = [
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
            "list",
            "list                                   pulled models; `atta rm` removes one",
        ),
        (
            "doctor",
            "doctor                                 models that fit this machine, and their speed",
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

/// The heading of the options that are used every day: the first, without a name of its own.
pub(crate) const EVERYDAY: Option<&str> = None;

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
        Err(error) => Err(Failure::Usage(usage_message(&error))),
    }
}

/// The message of wrong usage, with a tip where there is a good one.
fn usage_message(error: &clap::Error) -> String {
    #[cfg(feature = "cli-extras")]
    if let Some(message) = tips::message(error, &command()) {
        return message;
    }
    summary(&error.render().to_string())
}

/// The definition of the command line, for texts that are made from it.
#[cfg(feature = "cli-extras")]
pub(crate) fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
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
        usage_message(&error)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_with_the_way_out() {
        assert_eq!(
            message("atta run --top-pp 1"),
            "there is no option --top-pp; tip: a similar option exists: --top-p (see --help)"
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
            let name = match option.split(' ').next().unwrap() {
                "-n" => "--n-predict",
                "-c" => "--ctx-size",
                "-j" => "--threads",
                name => name,
            };
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

    /// A command line with all defaults filled in, as text.
    fn parsed(line: &str) -> String {
        format!("{:?}", Cli::try_parse_from(line.split(' ')).unwrap())
    }

    #[test]
    fn names_of_other_programs_mean_the_same_as_ours() {
        for (others, ours) in [
            ("run --prompt x", "run -p x"),
            ("run --file x", "run -f x"),
            ("run --temp 1", "run -t 1"),
            ("run --temperature 1", "run -t 1"),
            ("run --max-tokens 1", "run -n 1"),
            ("run --predict 1", "run -n 1"),
            ("run --n-predict 1", "run -n 1"),
            ("run --threads 1", "run -j 1"),
            ("run --ctx-size 1", "run -c 1"),
            ("run --batch-size 1", "run --batch 1"),
            ("run --repeat-last-n 1", "run --repeat-window 1"),
            ("run --typical-p 1", "run --typical 1"),
            ("run --top-nsigma 1", "run --top-n-sigma 1"),
            ("bench --n-prompt 1", "bench -p 1"),
            ("bench --n-gen 1", "bench -n 1"),
            ("bench --n-depth 1", "bench -d 1"),
            ("bench --repetitions 1", "bench -r 1"),
        ] {
            let parsed = |line: &str| parsed(&format!("atta {line}"));
            assert_eq!(parsed(others), parsed(ours), "{others}");
        }
    }

    #[test]
    #[cfg(all(feature = "convert", feature = "server"))]
    fn names_of_other_programs_mean_the_same_in_large_programs_too() {
        for (others, ours) in [
            ("chat --system-prompt x", "chat --system x"),
            ("chat --chat-template-file ./x", "chat --chat-template ./x"),
            (
                "serve --host 0.0.0.0 --ctx-size 9",
                "serve --host 0.0.0.0 -c 9",
            ),
            ("perplexity --file x", "perplexity -f x"),
            ("imatrix m --file x -o y", "imatrix m -f x -o y"),
            ("convert a b --threads 2", "convert a b -j 2"),
            ("show m", "inspect m"),
            ("ls", "list"),
        ] {
            let parsed = |line: &str| parsed(&format!("atta {line}"));
            assert_eq!(parsed(others), parsed(ours), "{others}");
        }
    }

    #[test]
    fn the_model_has_a_place_and_a_name_but_not_both() {
        for line in ["m.gguf", "-m m.gguf", "--model m.gguf", "--model=m.gguf"] {
            let cli = Cli::try_parse_from(format!("atta run {line} -p x").split(' ')).unwrap();
            let Command::Run(args) = cli.command else {
                panic!("not a run")
            };
            assert_eq!(args.model.into_path(), Some("m.gguf".into()), "{line}");
        }
        assert!(message("atta run a.gguf -m b.gguf").contains("cannot be used with"));
    }

    #[cfg(any(feature = "convert", feature = "embed"))]
    #[test]
    fn a_model_that_a_command_needs_has_a_place_or_a_name() {
        let parse = |line: &str| Cli::try_parse_from(format!("atta {line}").split(' '));
        for line in [
            #[cfg(feature = "embed")]
            "embed MODEL text",
            #[cfg(feature = "convert")]
            "imatrix MODEL -f x -o y",
            #[cfg(feature = "convert")]
            "sensitivity MODEL -f x",
            #[cfg(feature = "convert")]
            "verify MODEL",
        ] {
            for model in ["m.gguf", "-m m.gguf", "--model m.gguf"] {
                let line = line.replace("MODEL", model);
                assert!(parse(&line).is_ok(), "{line}");
            }
        }
        #[cfg(feature = "convert")]
        assert!(message("atta verify").contains("required"));
    }
}

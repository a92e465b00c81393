//! Tips for options that a command does not have: the commands that have them, or our names for
//! options of other programs.
//!
//! Knows the definition of the command line and nothing of values. The one idea: a name that exists
//! somewhere is never answered with one that only looks like it.

use clap::{
    Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Options of llama.cpp and Ollama under other names, or without a use here.
const OTHER_NAMES: [(&str, &str); 15] = [
    ("--n-gpu-layers", "it is called --gpu-layers, with --gpu"),
    ("--main-gpu", "it is called --gpu"),
    ("--flash-attn", "attention never needs it"),
    ("--cont-batching", "`atta serve` always does it"),
    ("--cache-type-k", "it is called --kv-k"),
    ("--cache-type-v", "it is called --kv-v"),
    ("--no-mmap", "it is called --weights resident"),
    ("--mlock", "--prewarm reads the file ahead"),
    ("--json-schema", "--schema FILE reads one"),
    ("--grammar-file", "it is called --grammar"),
    ("--model-draft", "it is called --speculate draft=FILE"),
    ("--rope-scaling", AS_THE_FILE),
    ("--rope-freq-base", AS_THE_FILE),
    ("--interactive", "`atta chat` is a conversation"),
    ("--conversation", "`atta chat` is a conversation"),
];

const AS_THE_FILE: &str = "the model's file says it: leave it out";

/// The message for an unknown option; `None` for other errors, and where the parser's own tip is
/// the best one.
pub(super) fn message(error: &Error, root: &Command) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let name = text(ContextKind::InvalidArg)?;
    let tip = tip(name, root).or_else(|| {
        let similar = text(ContextKind::SuggestedArg)?;
        is_alike(name, similar).then(|| format!("a similar option exists: {similar}"))
    });
    let tip = tip.map(|tip| format!("; tip: {tip}")).unwrap_or_default();
    Some(format!("there is no option {name}{tip} (see --help)"))
}

/// A tip for an option that exists elsewhere.
fn tip(name: &str, root: &Command) -> Option<String> {
    if let Some((_, why)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        return Some((*why).to_owned());
    }
    let long = name.strip_prefix("--")?;
    let visible = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let owners = visible.filter(|command| has_option(command, long));
    let owners: Vec<String> = owners.map(|c| format!("`atta {}`", c.get_name())).collect();
    match &owners[..] {
        [] => None,
        [one] => Some(format!("{one} has it")),
        [rest @ .., last] => Some(format!("{} and {last} have it", rest.join(", "))),
    }
}

fn has_option(command: &Command, long: &str) -> bool {
    command.get_arguments().any(|arg| {
        let mut aliases = arg.get_all_aliases().unwrap_or_default().into_iter();
        arg.get_long() == Some(long) || aliases.any(|alias| alias == long)
    })
}

/// Whether a suggestion is a slip of the finger away: it begins with the same letter and has about
/// the same length.
fn is_alike(name: &str, similar: &str) -> bool {
    let first = |text: &str| text.trim_start_matches('-').chars().next();
    first(name) == first(similar) && name.len().abs_diff(similar.len()) <= 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn tip_of(line: &str) -> String {
        let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let root = Command::new("atta")
            .subcommand(Command::new("run").arg(switch("temperature").alias("temp")))
            .subcommand(Command::new("bench").arg(switch("experts")));
        let error = root
            .clone()
            .try_get_matches_from(line.split(' '))
            .unwrap_err();
        message(&error, &root).unwrap()
    }

    #[test]
    fn an_option_of_another_command_is_found_there() {
        let expected = "there is no option --temperature; tip: `atta run` has it (see --help)";
        assert_eq!(tip_of("atta bench --temperature"), expected);
        assert!(tip_of("atta bench --temp").contains("`atta run` has it"));
    }

    #[test]
    fn an_option_of_another_program_has_our_name_or_a_reason() {
        assert!(tip_of("atta run --n-gpu-layers").contains("--gpu-layers"));
        assert!(tip_of("atta run --cache-type-k").contains("--kv-k"));
    }

    #[test]
    fn a_slip_of_the_finger_is_noticed_and_anything_else_gets_no_tip() {
        assert!(tip_of("atta run --temperture").contains("similar option exists: --temperature"));
        let none = "there is no option --colour (see --help)";
        assert_eq!(tip_of("atta run --colour"), none);
    }
}

//! The rule that README.md is short and says how to run and test atta.
//!
//! It refuses to run the commands; `.ci/run` does that. The one idea: a newcomer reads one page.

use super::Finding;

const PATH: &str = "README.md";
const MAX_LINES: usize = 120;
const COMMANDS: [&str; 2] = [
    "cargo run --release -- run -p \"Once upon a time\"",
    "cargo test --workspace",
];

pub(super) fn check(text: &str) -> Vec<Finding> {
    let n_lines = text.lines().count();
    let long = (n_lines > MAX_LINES).then(|| {
        Finding::new(
            PATH,
            n_lines,
            format!("has {n_lines} lines, expected at most {MAX_LINES}"),
        )
    });
    let missing = COMMANDS
        .into_iter()
        .filter(|command| !text.contains(command));
    missing
        .map(|command| Finding::new(PATH, 1, format!("does not say `{command}`")))
        .chain(long)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readme_with_both_commands_is_good_up_to_120_lines() {
        let good = COMMANDS.join("\n") + &"\n".repeat(119);
        assert_eq!(check(&good), []);
        assert_eq!(
            check(&(good + "\n"))[0].to_string(),
            "README.md:121: has 121 lines, expected at most 120"
        );
    }

    #[test]
    fn a_missing_command_is_found() {
        assert_eq!(check("").len(), 2);
        assert!(
            check(COMMANDS[0])[0]
                .message
                .contains("cargo test --workspace")
        );
    }
}

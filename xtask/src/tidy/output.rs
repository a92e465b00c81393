//! The rule that libraries neither print nor read the environment.
//!
//! It refuses to look at the printed text or the variable's name. The one idea: a library depends
//! on its arguments and returns its results; only the binary talks to the terminal and the shell.

use super::Finding;
use crate::source::RustFile;

const PRINTS: [&str; 4] = ["println", "eprintln", "print", "eprint"];
const READS: [&str; 4] = ["var", "var_os", "vars", "vars_os"];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    if source.crate_dir().is_none_or(|dir| dir == "cli") {
        return Vec::new();
    }
    let code = (0..source.code.len()).filter(|&i| !source.in_test(i));
    code.flat_map(|i| [print(source, i), read(source, i)])
        .flatten()
        .collect()
}

fn print(source: &RustFile<'_>, i: usize) -> Option<Finding> {
    let name = PRINTS
        .into_iter()
        .find(|name| source.spells(i, &[name, "!"]))?;
    Some(Finding::new(
        source.path,
        source.code[i].line,
        format!("`{name}!` in a library; return it or report it by an event"),
    ))
}

fn read(source: &RustFile<'_>, i: usize) -> Option<Finding> {
    let from_env = source.spells(i, &["env", ":", ":"]);
    let read = from_env && imported(source, i + 3).any(|name| READS.contains(&name));
    read.then(|| {
        Finding::new(
            source.path,
            source.code[i].line,
            "reads the environment in a library; take an argument",
        )
    })
}

/// The name at token `i`, or all names of the group that begins there.
fn imported<'a>(source: &'a RustFile<'_>, i: usize) -> impl Iterator<Item = &'a str> {
    let group = source.spells(i, &["{"]);
    let rest = source.code.get(i..).unwrap_or_default();
    rest.iter()
        .take_while(move |t| group && !t.is("}"))
        .chain(rest.first())
        .map(|t| t.text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    const LIBRARY: &str = "crates/engine/src/a.rs";

    #[test]
    fn a_library_that_prints_is_found() {
        for text in ["println!()", "eprintln!(\"x\")", "fn f() { print!(\"x\") }"] {
            assert!(
                findings(check, LIBRARY, text)[0].contains("in a library"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_library_that_reads_the_environment_is_found() {
        for text in [
            "std::env::var(\"A\")",
            "env::vars_os()",
            "use std::env::{self, var};",
        ] {
            assert!(
                findings(check, LIBRARY, text)[0].contains("environment"),
                "{text}"
            );
        }
        for text in [
            "std::env::args()",
            "use std::env::{args, temp_dir}; fn f(var: u8) {}",
            "env!(\"A\")",
        ] {
            assert_eq!(findings(check, LIBRARY, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_binary_tests_and_tools_may_do_both() {
        for path in [
            "crates/cli/src/main.rs",
            "crates/engine/tests/a.rs",
            "xtask/src/main.rs",
        ] {
            assert_eq!(
                findings(check, path, "println!(); env::var(\"A\")").len(),
                0,
                "{path}"
            );
        }
        assert_eq!(
            findings(
                check,
                LIBRARY,
                "#[cfg(test)] mod tests { fn f() { println!() } }"
            )
            .len(),
            0
        );
    }
}

//! The rule that the engine names the CPU in one file: where the default backend is chosen.
//!
//! It refuses to look at tests. The one idea: sessions, the scheduler and the memory plan that
//! cannot name a backend work with every backend.

use super::Finding;
use crate::source::{RustFile, TokenKind};

const CRATE: &str = "engine";
const HOME: &str = "crates/engine/src/engine.rs";
/// Types of crates/model that are the CPU's own.
const NAMES: [&str; 3] = ["Cpu", "CpuBackend", "CpuFootprint"];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    if source.crate_dir() != Some(CRATE) || source.path == HOME {
        return Vec::new();
    }
    let code = source.code.iter().enumerate();
    code.filter(|(i, token)| {
        token.kind == TokenKind::Word && NAMES.contains(&token.text) && !source.in_test(*i)
    })
    .map(|(_, token)| {
        let message = format!("names `{}`; only {HOME} may choose a backend", token.text);
        Finding::new(source.path, token.line, message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    #[test]
    fn a_backend_named_by_the_engine_is_found() {
        let text = "use atta_model::{CpuBackend, Model};";
        assert_eq!(
            findings(check, "crates/engine/src/session.rs", text),
            ["1: names `CpuBackend`; only crates/engine/src/engine.rs may choose a backend"]
        );
    }

    #[test]
    fn the_home_of_the_choice_tests_and_other_crates_are_free() {
        let text = "let a = Cpu::new();";
        for path in [HOME, "crates/model/src/cpu.rs", "crates/engine/tests/a.rs"] {
            assert_eq!(findings(check, path, text), [""; 0], "{path}");
        }
        let text =
            "// Cpu\nlet a = \"Cpu\"; #[cfg(test)] mod tests { struct Cpu; } enum B { Cpus }";
        assert_eq!(findings(check, "crates/engine/src/a.rs", text), [""; 0]);
    }
}

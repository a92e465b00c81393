//! A Rust file as the checks see it: code tokens apart from comments, and which of them are test
//! code.
//!
//! It refuses to know what any rule says. The one idea: every check is a walk over `code`, so that
//! the questions "is this in a string?" and "is this a test?" are answered once, here.

mod lex;

pub(crate) use lex::{Kind, Token};

/// One `.rs` file.
pub(crate) struct Source<'a> {
    /// From the repository root, with `/` on every system.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// All tokens but comments.
    pub(crate) code: Vec<Token<'a>>,
    pub(crate) comments: Vec<Token<'a>>,
    /// For each token of `code`: whether it is compiled in tests only.
    in_test: Vec<bool>,
}

/// A function with a body; trait methods without one are not listed.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// Line of the word `fn`.
    pub(crate) line: usize,
    /// From the line of `fn` to that of the closing brace, both counted.
    pub(crate) n_lines: usize,
    /// Index in `Source::code` of the word `fn`.
    pub(crate) at: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        let (comments, code): (Vec<_>, Vec<_>) = lex::lex(text)
            .into_iter()
            .partition(|t| t.kind == Kind::Comment);
        let in_test = if is_test_path(path) {
            vec![true; code.len()]
        } else {
            mark_tests(&code)
        };
        Self {
            path,
            text,
            code,
            comments,
            in_test,
        }
    }

    /// Counts the whole file as a test, for a module that another file declares under
    /// `#[cfg(test)]`.
    pub(crate) fn mark_as_test(&mut self) {
        self.in_test.fill(true);
    }

    /// Whether token `i` of `code` is compiled in tests only.
    pub(crate) fn in_test(&self, i: usize) -> bool {
        self.in_test[i]
    }

    /// The crate under `crates/` whose `src` this file belongs to.
    pub(crate) fn crate_dir(&self) -> Option<&'a str> {
        let (name, inner) = self.path.strip_prefix("crates/")?.split_once('/')?;
        inner.starts_with("src/").then_some(name)
    }

    /// Whether the code from token `i` on spells `words`.
    pub(crate) fn spells(&self, i: usize, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(k, word)| self.code.get(i + k).is_some_and(|t| t.is(word)))
    }

    /// The comments directly before token `i`, or between it and the start of its statement or
    /// item.
    pub(crate) fn comments_above(&self, i: usize) -> impl Iterator<Item = &Token<'a>> {
        let edge = self.code[..i]
            .iter()
            .rfind(|t| t.is(";") || t.is("{") || t.is("}"))
            .map_or(0, |t| t.start);
        let end = self.code[i].start;
        self.comments
            .iter()
            .filter(move |c| edge <= c.start && c.start < end)
    }

    pub(crate) fn functions(&self) -> Vec<Function<'a>> {
        let starts = (0..self.code.len()).filter(|&i| self.code[i].is("fn"));
        starts.filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function<'a>> {
        let name = self.code.get(at + 1).filter(|t| t.kind == Kind::Word)?.text;
        let open = item_edge(&self.code, at)?;
        let close = if self.code[open].is("{") {
            matching_brace(&self.code, open)
        } else {
            return None;
        };
        let line = self.code[at].line;
        Some(Function {
            name,
            line,
            n_lines: self.code[close].line - line + 1,
            at,
        })
    }

    /// Paths that `#[cfg(test)] mod name;` in this file may stand for.
    pub(crate) fn test_module_paths(&self) -> Vec<String> {
        let (dir, file) = self.path.rsplit_once('/').unwrap_or(("", self.path));
        let base = match file {
            "lib.rs" | "main.rs" | "mod.rs" => dir.to_owned(),
            _ => format!("{dir}/{}", file.trim_end_matches(".rs")),
        };
        let names = (0..self.code.len())
            .filter(|&i| {
                self.in_test[i]
                    && self.code[i].is("mod")
                    && self.code.get(i + 2).is_some_and(|t| t.is(";"))
            })
            .map(|i| self.code[i + 1].text);
        names
            .flat_map(|name| [format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")])
            .collect()
    }
}

/// Cargo's own places for tests and benchmarks, and modules by the usual name.
fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

fn mark_tests(code: &[Token<'_>]) -> Vec<bool> {
    let mut marks = vec![false; code.len()];
    for i in 0..code.len() {
        if !marks[i] && is_test_attribute(&code[i..]) {
            let end = item_edge(code, i).map_or(code.len() - 1, |edge| {
                if code[edge].is("{") {
                    matching_brace(code, edge)
                } else {
                    edge
                }
            });
            marks[i..=end].fill(true);
        }
    }
    marks
}

/// `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`; `any(test, …)` is compiled elsewhere as
/// well.
fn is_test_attribute(code: &[Token<'_>]) -> bool {
    let spelled =
        |words: &[&str]| words.len() <= code.len() && words.iter().zip(code).all(|(w, t)| t.is(w));
    spelled(&["#", "[", "test", "]"])
        || spelled(&["#", "[", "cfg", "(", "test", ")"])
        || spelled(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Index of the `{` that opens the body of the item at `at`, or of the `;` that ends it without
/// one.
fn item_edge(code: &[Token<'_>], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    (at..code.len()).find(|&i| {
        let token = &code[i];
        if token.is("(") || token.is("[") {
            depth += 1;
        } else if token.is(")") || token.is("]") {
            depth = depth.saturating_sub(1);
        }
        depth == 0 && (token.is("{") || token.is(";"))
    })
}

/// Index of the brace that closes the one at `open`, or of the last token.
fn matching_brace(code: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    let close = (open..code.len()).find(|&i| {
        depth += usize::from(code[i].is("{"));
        depth -= usize::from(code[i].is("}"));
        depth == 0
    });
    close.unwrap_or(code.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_measured_from_fn_to_its_closing_brace() {
        let source = Source::new(
            "a.rs",
            "pub fn f(\n    x: [u8; 2],\n) -> u8 {\n    { '}'; }\n    1\n}\nfn g() {}\n",
        );
        let found: Vec<_> = source
            .functions()
            .iter()
            .map(|f| (f.name, f.line, f.n_lines))
            .collect();
        assert_eq!(found, [("f", 1, 6), ("g", 7, 1)]);
    }

    #[test]
    fn declarations_and_pointer_types_are_no_functions() {
        let source = Source::new(
            "a.rs",
            "trait T { fn f(&self) -> [u8; 3]; }\ntype P = fn(u8) -> u8;",
        );
        assert!(source.functions().is_empty());
    }

    #[test]
    fn test_items_are_marked_and_the_rest_is_not() {
        let source = Source::new(
            "crates/a/src/b.rs",
            "fn a() {} #[cfg(test)] mod t { fn b() {} } #[test] fn c() {} fn d() {}",
        );
        let marks: Vec<_> = source
            .functions()
            .iter()
            .map(|f| (f.name, source.in_test(f.at)))
            .collect();
        assert_eq!(
            marks,
            [("a", false), ("b", true), ("c", true), ("d", false)]
        );
    }

    #[test]
    fn code_compiled_outside_tests_too_is_not_test_code() {
        for attribute in [
            "#[cfg(not(test))]",
            "#[cfg(any(test, fuzzing))]",
            "#[cfg(unix)]",
        ] {
            let text = format!("{attribute} fn a() {{}}");
            assert!(
                !Source::new("crates/a/src/b.rs", &text).in_test(8),
                "{attribute}"
            );
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_found_beside_its_parent() {
        let source = Source::new("crates/a/src/b.rs", "#[cfg(test)]\nmod cases;\nmod real;");
        assert_eq!(
            source.test_module_paths(),
            ["crates/a/src/b/cases.rs", "crates/a/src/b/cases/mod.rs"]
        );
        let root = Source::new("crates/a/src/lib.rs", "#[cfg(test)] mod cases;");
        assert_eq!(root.test_module_paths()[0], "crates/a/src/cases.rs");
    }

    #[test]
    fn comments_above_stop_at_the_statement_before() {
        let source = Source::new(
            "a.rs",
            "// far\nlet a = 1;\n// near\nlet b =\n    // nearer\n    unsafe { 1 };",
        );
        let at = source.code.iter().position(|t| t.is("unsafe")).unwrap();
        let found: Vec<_> = source.comments_above(at).map(|c| c.text).collect();
        assert_eq!(found, ["// near", "// nearer"]);
    }

    #[test]
    fn only_files_under_src_belong_to_a_crate() {
        assert_eq!(
            Source::new("crates/model/src/arch/mod.rs", "").crate_dir(),
            Some("model")
        );
        assert_eq!(Source::new("crates/model/tests/a.rs", "").crate_dir(), None);
        assert_eq!(Source::new("xtask/src/main.rs", "").crate_dir(), None);
    }
}

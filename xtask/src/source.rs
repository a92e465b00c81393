//! A Rust file as the checks see it: code tokens apart from comments, and which of them are test
//! code.
//!
//! It refuses to know what any rule says. The one idea: every check is a walk over `code`, so that
//! the questions "is this in a string?" and "is this a test?" are answered once, here.

mod lex;

pub(crate) use lex::{RustToken, TokenKind};

/// One `.rs` file.
pub(crate) struct RustFile<'a> {
    /// From the repository root, with `/` on every system.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// All tokens but comments.
    pub(crate) code: Vec<RustToken<'a>>,
    pub(crate) comments: Vec<RustToken<'a>>,
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
    /// From `fn` to the closing brace, without comments; an operator of two characters is one.
    pub(crate) n_tokens: usize,
    /// Index in `RustFile::code` of the word `fn`.
    pub(crate) at: usize,
}

impl<'a> RustFile<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        let (comments, code): (Vec<_>, Vec<_>) = lex::lex(text)
            .into_iter()
            .partition(|t| t.kind == TokenKind::Comment);
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
    pub(crate) fn comments_above(&self, i: usize) -> impl Iterator<Item = &RustToken<'a>> {
        let edge = self.code[..i]
            .iter()
            .rfind(|t| t.is(";") || t.is("{") || t.is("}"))
            .map_or(0, |t| t.start);
        let end = self.code[i].start;
        self.comments
            .iter()
            .filter(move |c| edge <= c.start && c.start < end)
    }

    /// Whether a comment above token `i` begins with `mark`, and a reason follows.
    pub(crate) fn gives_reason(&self, i: usize, mark: &str) -> bool {
        self.comments_above(i)
            .filter_map(|c| c.text.strip_prefix(mark))
            .any(|reason| !reason.trim().is_empty())
    }

    /// Index of the parenthesis that opens the parameters, if a named function begins at token `i`.
    pub(crate) fn parameters(&self, i: usize) -> Option<usize> {
        let is_named = self.code[i].is("fn") && self.code.get(i + 1)?.kind == TokenKind::Word;
        let mut depth = Depth::default();
        let mut rest = i + 2..self.code.len();
        is_named.then(|| {
            rest.find(|&k| {
                let is_outside = depth.is_outside();
                depth.pass(&self.code, k);
                is_outside && self.code[k].is("(")
            })
        })?
    }

    /// Index of the bracket of any kind that closes the one at `open`.
    pub(crate) fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = Depth::default();
        (open..self.code.len()).find(|&i| {
            depth.pass(&self.code, i);
            depth.brackets == 0
        })
    }

    pub(crate) fn functions(&self) -> Vec<Function<'a>> {
        let starts = (0..self.code.len()).filter(|&i| self.code[i].is("fn"));
        starts.filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function<'a>> {
        let name = self
            .code
            .get(at + 1)
            .filter(|t| t.kind == TokenKind::Word)?
            .text;
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
            n_tokens: n_tokens(&self.code[at..=close]),
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

/// How many brackets are open.
#[derive(Default)]
struct Depth {
    brackets: usize,
    /// Of those that enclose types: a `<` that touches the word before it, as rustfmt writes them.
    angles: usize,
}

impl Depth {
    fn is_outside(&self) -> bool {
        self.brackets == 0 && self.angles == 0
    }

    fn pass(&mut self, code: &[RustToken<'_>], i: usize) {
        let token = &code[i];
        let touches = |text: Option<&str>| {
            i > 0 && touch(&code[i - 1], token) && text.is_none_or(|text| code[i - 1].is(text))
        };
        match token.text {
            _ if token.kind != TokenKind::Punct => {}
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            "<" if touches(None) => self.angles += 1,
            ">" if !touches(Some("-")) && !touches(Some("=")) => {
                self.angles = self.angles.saturating_sub(1);
            }
            _ => {}
        }
    }
}

fn touch(left: &RustToken<'_>, right: &RustToken<'_>) -> bool {
    left.start + left.text.len() == right.start
}

/// Indices of the commas between the brackets at `open` and `close` that are in no bracket within
/// them; a trailing one is none.
pub(crate) fn top_level_commas(code: &[RustToken<'_>], open: usize, close: usize) -> Vec<usize> {
    let mut depth = Depth::default();
    (open + 1..close)
        .filter(|&i| {
            depth.pass(code, i);
            depth.is_outside() && code[i].is(",") && i + 1 < close
        })
        .collect()
}

/// The second characters of operators, by the first.
const OPERATORS: [(&str, &str); 8] = [
    (":", ":"),
    ("-", ">="),
    ("=", ">="),
    (".", ".="),
    ("&", "&="),
    ("|", "|="),
    ("<", "<="),
    (">", "="),
];

fn n_tokens(code: &[RustToken<'_>]) -> usize {
    let joined = code.windows(2).filter(|pair| {
        let [left, right] = pair else { return false };
        left.kind == TokenKind::Punct
            && right.kind == TokenKind::Punct
            && touch(left, right)
            && OPERATORS
                .iter()
                .any(|(first, seconds)| left.text == *first && seconds.contains(right.text))
    });
    code.len() - joined.count()
}

/// Cargo's own places for tests and benchmarks, and modules by the usual name.
fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

fn mark_tests(code: &[RustToken<'_>]) -> Vec<bool> {
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
fn is_test_attribute(code: &[RustToken<'_>]) -> bool {
    let spelled =
        |words: &[&str]| words.len() <= code.len() && words.iter().zip(code).all(|(w, t)| t.is(w));
    spelled(&["#", "[", "test", "]"])
        || spelled(&["#", "[", "cfg", "(", "test", ")"])
        || spelled(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Index of the `{` that opens the body of the item at `at`, or of the `;` that ends it without
/// one.
fn item_edge(code: &[RustToken<'_>], at: usize) -> Option<usize> {
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
fn matching_brace(code: &[RustToken<'_>], open: usize) -> usize {
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
        let source = RustFile::new(
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
    fn an_operator_of_two_characters_is_one_token() {
        let source = RustFile::new("a.rs", "fn f() -> A { a::b(|x| x >= 1 && &y) }");
        assert_eq!(source.functions()[0].n_tokens, 22);
    }

    #[test]
    fn declarations_and_pointer_types_are_no_functions() {
        let source = RustFile::new(
            "a.rs",
            "trait T { fn f(&self) -> [u8; 3]; }\ntype P = fn(u8) -> u8;",
        );
        assert!(source.functions().is_empty());
    }

    #[test]
    fn test_items_are_marked_and_the_rest_is_not() {
        let source = RustFile::new(
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
                !RustFile::new("crates/a/src/b.rs", &text).in_test(8),
                "{attribute}"
            );
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_found_beside_its_parent() {
        let source = RustFile::new("crates/a/src/b.rs", "#[cfg(test)]\nmod cases;\nmod real;");
        assert_eq!(
            source.test_module_paths(),
            ["crates/a/src/b/cases.rs", "crates/a/src/b/cases/mod.rs"]
        );
        let root = RustFile::new("crates/a/src/lib.rs", "#[cfg(test)] mod cases;");
        assert_eq!(root.test_module_paths()[0], "crates/a/src/cases.rs");
    }

    #[test]
    fn comments_above_stop_at_the_statement_before() {
        let source = RustFile::new(
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
            RustFile::new("crates/model/src/arch/mod.rs", "").crate_dir(),
            Some("model")
        );
        assert_eq!(
            RustFile::new("crates/model/tests/a.rs", "").crate_dir(),
            None
        );
        assert_eq!(RustFile::new("xtask/src/main.rs", "").crate_dir(), None);
    }
}

//! Pre-tokenizers: how text is split into words before byte pairs are merged. No merge crosses a
//! word boundary.
//!
//! Knows no vocabulary. The one idea: a pre-tokenizer is a list of passes. Each pass is a regular
//! expression that splits every piece of the previous pass into matches and the gaps between them.
//! `schemes` is the table from names to passes.

mod pattern;
mod schemes;
mod set;

use pattern::Pattern;
pub(crate) use schemes::{Alphabet, Scheme, Whole};

/// One pass over the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    /// Matches of an expression and the gaps between them.
    Split(&'static str),
    /// White space at the end of the piece, `\s+$`. A variant of its own because the matcher of
    /// `pattern` would take quadratic time.
    TrailingSpace,
}

/// A compiled pre-tokenizer.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    passes: Vec<Splitter>,
}

#[derive(Debug)]
enum Splitter {
    Pattern(Pattern),
    TrailingSpace,
}

impl PreTokenizer {
    pub(crate) fn new(scheme: &Scheme) -> Self {
        let compile = |pass: &Pass| match pass {
            Pass::Split(source) => Splitter::Pattern(Pattern::new(source)),
            Pass::TrailingSpace => Splitter::TrailingSpace,
        };
        Self {
            passes: scheme.passes().iter().map(compile).collect(),
        }
    }

    /// Passes the words of `text` to `emit`, in order. Concatenated, they are `text`.
    pub(crate) fn split<'t>(&self, text: &'t str, emit: &mut dyn FnMut(&'t str)) {
        split_from(&self.passes, text, emit);
    }
}

fn split_from<'t>(passes: &[Splitter], text: &'t str, emit: &mut dyn FnMut(&'t str)) {
    let Some((pass, rest)) = passes.split_first() else {
        return emit(text);
    };
    let mut emit_piece = |piece: &'t str| {
        if !piece.is_empty() {
            split_from(rest, piece, emit);
        }
    };
    match pass {
        Splitter::Pattern(pattern) => split_by_pattern(pattern, text, &mut emit_piece),
        Splitter::TrailingSpace => {
            let (body, space) = text.split_at(text.trim_end().len());
            emit_piece(body);
            emit_piece(space);
        }
    }
}

fn split_by_pattern<'t>(pattern: &Pattern, text: &'t str, emit: &mut dyn FnMut(&'t str)) {
    let mut gap = 0;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match pattern.match_at(text, at).filter(|&end| end > at) {
            Some(end) => {
                emit(&text[gap..at]);
                emit(&text[at..end]);
                (gap, at) = (end, end);
            }
            None => at += c.len_utf8(),
        }
    }
    emit(&text[gap..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let pre = PreTokenizer::new(&Scheme::by_name(name).unwrap());
        let mut words = Vec::new();
        pre.split(text, &mut |word| words.push(word));
        words
    }

    #[test]
    fn llama3_cuts_numbers_into_threes_and_keeps_the_space_with_the_word() {
        assert_eq!(
            words("llama-bpe", "I'LL be 12345  ok\n\n x"),
            [
                "I", "'LL", " be", " ", "123", "45", " ", " ok", "\n\n", " x"
            ]
        );
    }

    #[test]
    fn qwen35_keeps_marks_with_their_letters_and_qwen2_does_not() {
        assert_eq!(words("qwen35", "हिन्दी 12"), ["हिन्दी", " ", "1", "2"]);
        assert!(words("qwen2", "हिन्दी").len() > 1);
    }

    #[test]
    fn letter_case_beyond_ascii_is_seen() {
        assert_eq!(words("tekken", "étéÉté"), ["été", "Été"]);
        assert_eq!(words("gpt-4o", "ПриветМир'S"), ["Привет", "Мир'S"]);
        assert_eq!(
            words("kimi-k2", "  中文abc'LL 1234カナA漢々x"),
            [
                " ", " ", "中文", "abc'LL", " ", "123", "4", "カナ", "A", "漢々", "x"
            ]
        );
    }

    #[test]
    fn gemma4_cuts_at_newlines_only() {
        assert_eq!(words("gemma4", "a b\n\n1"), ["a b", "\n\n", "1"]);
    }

    #[test]
    fn relatives_of_llama3_differ_where_their_expressions_do() {
        assert_eq!(
            words("jais-2", &(" ".repeat(12) + "x")),
            [&" ".repeat(8), "  ", " ", " x"]
        );
        assert_eq!(words("qwen2", "a'tx 12"), ["a", "'t", "x", " ", "1", "2"]);
        assert_eq!(words("ufakzeka", "a'tx 12"), ["a", "'tx", " ", "1", "2"]);
        assert_eq!(words("seed-coder", "a;\n"), ["a", ";", "\n"]);
        assert_eq!(words("bailingmoe", "a;\n\n b"), ["a", ";\n\n", " b"]);
    }

    #[test]
    fn deepseek_cuts_numbers_and_han_before_words() {
        assert_eq!(
            words("deepseek-v3", "x12345中文y.z"),
            ["x", "123", "45", "中文", "y", ".z"]
        );
        assert_eq!(
            words("deepseek-llm", "a1 b\n  "),
            ["a", "1", " b", "\n", "  "]
        );
    }

    #[test]
    fn words_together_are_the_text_for_every_scheme() {
        let text = "  a'sB 1234\n\t…é中文　。\u{301}x\u{85}🙂‼ \r\n#if__ 一٣٤\u{E0101}   ";
        for name in Scheme::names() {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn long_runs_take_linear_time() {
        for name in Scheme::names() {
            for run in ["a", "A", " ", "1", "\n", "!", "é", "\u{301}", " a"] {
                let text = run.repeat(60_000) + "?";
                assert!(!words(name, &text).is_empty());
            }
        }
    }
}

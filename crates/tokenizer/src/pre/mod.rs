//! Pre-tokenizers: how text is cut into words before byte pairs are merged. No merge crosses a cut.
//!
//! Knows no vocabulary. The one idea: a pre-tokenizer is a list of passes, each an expression that cuts every piece the
//! pass before it left into matches and the gaps between them; what a name means is a row of data in `schemes`.

mod pattern;
mod schemes;
mod set;

use crate::unicode::Categories;
use pattern::Pattern;
pub(crate) use schemes::{Alphabet, Scheme, Whole};

/// One pass over the text, as data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    /// Matches of an expression and the gaps between them.
    Cut(&'static str),
    /// White space at the end of the piece, `\s+$`; as an expression it would take quadratic time.
    TrailingSpace,
    /// Runs of numbers, cut into threes from the right.
    NumbersByThreeFromRight,
}

/// A compiled pre-tokenizer.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    passes: Vec<Cutter>,
}

#[derive(Debug)]
enum Cutter {
    Pattern(Pattern),
    TrailingSpace,
    NumbersByThreeFromRight,
}

impl PreTokenizer {
    pub(crate) fn new(scheme: &Scheme) -> Self {
        let compile = |pass: &Pass| match pass {
            Pass::Cut(source) => Cutter::Pattern(Pattern::new(source)),
            Pass::TrailingSpace => Cutter::TrailingSpace,
            Pass::NumbersByThreeFromRight => Cutter::NumbersByThreeFromRight,
        };
        Self { passes: scheme.passes().iter().map(compile).collect() }
    }

    /// Hands the words of `text` to `emit`, in order; together they are `text`.
    pub(crate) fn split<'t>(&self, text: &'t str, emit: &mut dyn FnMut(&'t str)) {
        split_from(&self.passes, text, emit);
    }
}

fn split_from<'t>(passes: &[Cutter], text: &'t str, emit: &mut dyn FnMut(&'t str)) {
    let Some((pass, rest)) = passes.split_first() else { return emit(text) };
    let mut emit_piece = |piece: &'t str| {
        if !piece.is_empty() {
            split_from(rest, piece, emit);
        }
    };
    match pass {
        Cutter::Pattern(pattern) => cut(pattern, text, &mut emit_piece),
        Cutter::TrailingSpace => {
            let (body, space) = text.split_at(text.trim_end().len());
            emit_piece(body);
            emit_piece(space);
        }
        Cutter::NumbersByThreeFromRight => cut_numbers(text, &mut emit_piece),
    }
}

fn cut<'t>(pattern: &Pattern, text: &'t str, emit: &mut dyn FnMut(&'t str)) {
    let (mut gap, mut at) = (0, 0);
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

fn cut_numbers<'t>(text: &'t str, emit: &mut dyn FnMut(&'t str)) {
    let is_number = |c: char| Categories::NUMBER.contain(c);
    let mut rest = text;
    while let Some(start) = rest.find(is_number) {
        emit(&rest[..start]);
        rest = &rest[start..];
        let run = &rest[..rest.find(|c| !is_number(c)).unwrap_or(rest.len())];
        let n = run.chars().count();
        let (mut from, mut next_cut) = (0, (n - 1) % 3 + 1);
        for (i, (at, _)) in run.char_indices().enumerate() {
            if i == next_cut {
                emit(&run[from..at]);
                (from, next_cut) = (at, next_cut + 3);
            }
        }
        emit(&run[from..]);
        rest = &rest[run.len()..];
    }
    emit(rest);
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
            ["I", "'LL", " be", " ", "123", "45", " ", " ok", "\n\n", " x"]
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
    }

    #[test]
    fn gemma4_cuts_at_newlines_only() {
        assert_eq!(words("gemma4", "a b\n\n1"), ["a b", "\n\n", "1"]);
    }

    #[test]
    fn numbers_are_grouped_from_the_right() {
        assert_eq!(words("afmoe", "x12345678 1"), ["x", "12", "345", "678", " ", "1"]);
        assert_eq!(words("superbpe", "a 123"), ["a ", "123"]);
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

//! Stop strings: end a text where one of them occurs. Knows text in pieces, no end-of-text ids, and
//! of tokens only those that a stop string names.
//!
//! The one idea: hold back exactly the longest end of the text that a stop string could still
//! continue, and let the rest pass at once. So the text does not depend on how it is cut into
//! pieces.
//!
//! A control token such as `<|user|>` has no text, so a search of the text never finds it. A stop
//! string that ends in the spelling of one is therefore looked for as that token, behind the text
//! in front of it.

use atta_formats::{Explain, Names, Setting};
use atta_tokenizer::{TokenKind, Tokenizer};

/// Why a list of stop strings is refused.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// An empty stop string, which would occur everywhere.
    #[error("{}", empty(Setting::words))]
    Empty,
}

impl Explain for StopError {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::Empty => empty(names),
        }
    }
}

fn empty(names: Names) -> String {
    format!(
        "{} is empty, expected at least one character",
        names(Setting::Stop)
    )
}

/// Text that has passed the stop strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopPiece {
    /// Final text; may be empty.
    pub text: String,
    /// Whether a stop string has occurred. No text follows then.
    pub stopped: bool,
}

/// A stop string that ends in the spelling of a control token.
#[derive(Clone, Copy, Debug)]
struct StopToken {
    id: u32,
    /// Index of the stop string.
    stop: usize,
    /// Bytes of it that are text in front of the token.
    n_text_bytes: usize,
}

/// Searches for stop strings in a text that arrives in pieces.
///
/// The stop string that is complete first ends the text; of several complete at the same place, the
/// longest. The text ends before it.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Control tokens that stop strings end in.
    tokens: Vec<StopToken>,
    /// Text that a stop string may continue.
    held: String,
    /// Index of the stop string that has occurred.
    found: Option<usize>,
}

impl StopStrings {
    /// Stops at any of `stops`; with none of them, text passes through at once.
    ///
    /// # Errors
    /// [`StopError::Empty`] if one of them is empty.
    pub fn new(stops: Vec<String>) -> Result<Self, StopError> {
        if stops.iter().any(String::is_empty) {
            return Err(StopError::Empty);
        }
        Ok(Self {
            stops,
            tokens: Vec::new(),
            held: String::new(),
            found: None,
        })
    }

    /// Also stops at the control tokens of `tokenizer` whose spelling a stop string ends in, for
    /// [`push_token`](Self::push_token).
    #[must_use]
    pub fn with_tokens_of(self, tokenizer: &Tokenizer) -> Self {
        let stops = self.stops.iter().enumerate();
        let tokens = stops.filter_map(|(stop, text)| {
            // White space behind a token is how templates end a line, and comes only after it.
            let text = text.trim_end();
            let is_control = |&id: &u32| tokenizer.kind(id) == TokenKind::Control;
            let at = |(n, _)| Some((n, tokenizer.token_id(&text[n..]).filter(is_control)?));
            let (n_text_bytes, id) = text.char_indices().find_map(at)?;
            Some(StopToken {
                id,
                stop,
                n_text_bytes,
            })
        });
        Self {
            tokens: tokens.collect(),
            ..self
        }
    }

    /// Takes the text of a token, as [`push`](Self::push) does, and stops at a token that a stop
    /// string ends in.
    pub fn push_token(&mut self, id: u32, text: String) -> StopPiece {
        let is_behind = |token: &&StopToken| {
            self.held
                .ends_with(&self.stops[token.stop][..token.n_text_bytes])
        };
        let tokens = self
            .tokens
            .iter()
            .filter(|token| token.id == id && self.found.is_none());
        let Some(token) = tokens
            .filter(is_behind)
            .max_by_key(|token| token.n_text_bytes)
        else {
            return self.push(text);
        };
        self.found = Some(token.stop);
        self.held.truncate(self.held.len() - token.n_text_bytes);
        StopPiece {
            text: self.flush(),
            stopped: true,
        }
    }

    /// Takes the next piece of text and returns the text that is final now. After a stop string
    /// none ever is.
    pub fn push(&mut self, text: String) -> StopPiece {
        let mut text = if self.held.is_empty() {
            text
        } else {
            std::mem::take(&mut self.held) + &text
        };
        if self.found.is_some() {
            text.clear();
        } else if let Some((start, stop)) = self.earliest_stop(&text) {
            text.truncate(start);
            self.found = Some(stop);
        } else {
            self.held = text.split_off(text.len() - self.n_held_bytes(&text));
        }
        StopPiece {
            text,
            stopped: self.found.is_some(),
        }
    }

    /// The stop string that has ended the text.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|i| self.stops[i].as_str())
    }

    /// Takes the text held back, when generation ends for another reason; empty after a stop
    /// string.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of `text` that a stop string could continue.
    fn n_held_bytes(&self, text: &str) -> usize {
        let begun = self.stops.iter().map(|stop| begun_bytes(text, stop));
        begun.max().unwrap_or(0)
    }

    /// Start and index of the stop string in `text` that is complete first, the longest of those.
    fn earliest_stop(&self, text: &str) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter_map(|(i, stop)| {
            let start = text.find(stop)?;
            Some((start + stop.len(), start, i))
        });
        found.min().map(|(_, start, i)| (start, i))
    }
}

/// The length of the longest end of `text` that is a beginning of `stop`, but not the whole.
fn begun_bytes(text: &str, stop: &str) -> usize {
    let mut beginnings = stop.char_indices().map(|(n_bytes, _)| n_bytes).rev();
    beginnings
        .find(|&n| text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(list: &[&str]) -> StopStrings {
        StopStrings::new(list.iter().map(|s| s.to_string()).collect()).unwrap()
    }

    fn piece(text: &str, stopped: bool) -> StopPiece {
        StopPiece {
            text: text.to_owned(),
            stopped,
        }
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        let error = StopStrings::new(vec!["a".into(), String::new()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a stop string is empty, expected at least one character"
        );
    }

    #[test]
    fn text_passes_at_once_where_no_stop_string_can_begin() {
        assert_eq!(
            stops(&[]).push("anything".to_owned()),
            piece("anything", false)
        );
        assert_eq!(
            stops(&["###"]).push("any#thing".to_owned()),
            piece("any#thing", false)
        );
    }

    #[test]
    fn a_beginning_is_held_until_it_is_decided() {
        let mut s = stops(&["\n\nUser:"]);
        assert_eq!(s.push("Hello.\n".to_owned()), piece("Hello.", false));
        assert_eq!(s.push("\nUs".to_owned()), piece("", false));
        assert_eq!(s.push("eful\n".to_owned()), piece("\n\nUseful", false));
        assert_eq!(s.push("\nUser: no".to_owned()), piece("", true));
        assert_eq!(s.push("more".to_owned()), piece("", true));
        assert_eq!(s.flush(), "");
    }

    #[test]
    fn flush_returns_what_was_held_once() {
        let mut s = stops(&["END"]);
        assert_eq!(s.push("the EN".to_owned()), piece("the ", false));
        assert_eq!(s.flush(), "EN");
        assert_eq!(s.flush(), "");
        assert_eq!(s.push("D".to_owned()), piece("D", false));
    }

    #[test]
    fn a_false_start_keeps_the_start_inside_it() {
        let mut s = stops(&["aab"]);
        assert_eq!(s.push("aa".to_owned()), piece("", false));
        assert_eq!(s.push("a".to_owned()), piece("a", false));
        assert_eq!(s.push("b".to_owned()), piece("", true));
    }

    #[test]
    fn the_stop_string_complete_first_wins_and_the_longest_of_those() {
        assert_eq!(
            stops(&["abcd", "c"]).push("xabcd".to_owned()),
            piece("xab", true)
        );
        assert_eq!(
            stops(&["bc", "abc"]).push("xabcd".to_owned()),
            piece("x", true)
        );
    }

    #[test]
    fn the_stop_string_that_ended_the_text_is_known() {
        let mut s = stops(&["bc", "abc", "c"]);
        s.push("xab".to_owned());
        assert_eq!(s.found(), None);
        s.push("cc".to_owned());
        assert_eq!(s.found(), Some("abc"));
        s.flush();
        assert_eq!(s.found(), Some("abc"));
    }

    /// Stop strings with these control tokens: the id, which string it ends, and how much of that
    /// is text.
    fn with_tokens(list: &[&str], tokens: &[(u32, usize, usize)]) -> StopStrings {
        let token = |&(id, stop, n_text_bytes)| StopToken {
            id,
            stop,
            n_text_bytes,
        };
        StopStrings {
            tokens: tokens.iter().map(token).collect(),
            ..stops(list)
        }
    }

    #[test]
    fn a_control_token_that_is_a_stop_string_ends_the_text_and_frees_what_was_held() {
        let mut s = with_tokens(&["<|user|>", "END"], &[(7, 0, 0)]);
        assert_eq!(s.push_token(6, "the EN".to_owned()), piece("the ", false));
        assert_eq!(s.push_token(7, "".to_owned()), piece("EN", true));
        assert_eq!(s.found(), Some("<|user|>"));
        assert_eq!(s.push("more".to_owned()), piece("", true));
        assert_eq!(s.flush(), "");
    }

    #[test]
    fn a_stop_string_that_ends_in_a_control_token_needs_the_text_in_front_of_it() {
        let mut s = with_tokens(&["\n<|user|>"], &[(7, 0, 1)]);
        assert_eq!(s.push_token(6, "a".to_owned()), piece("a", false));
        assert_eq!(s.push_token(7, "".to_owned()), piece("", false));
        assert_eq!(s.push_token(6, "b\n".to_owned()), piece("b", false));
        assert_eq!(s.push_token(7, "".to_owned()), piece("", true));
        assert_eq!(s.flush(), "");
    }

    #[test]
    fn characters_of_several_bytes_are_not_cut() {
        let mut s = stops(&["é日", "日本"]);
        assert_eq!(s.push("caf\u{e9}".to_owned()), piece("caf", false));
        assert_eq!(s.push("日x".to_owned()), piece("", true));
        assert_eq!(stops(&["é日"]).push("è".to_owned()), piece("è", false));
    }

    /// The printed part of the whole text, and whether a stop string occurs: tries every end in
    /// turn.
    fn reference<'a>(text: &'a str, stops: &[String]) -> (&'a str, bool) {
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let complete = stops
                .iter()
                .filter(|stop| text[..end].ends_with(stop.as_str()));
            if let Some(stop) = complete.max_by_key(|stop| stop.len()) {
                return (&text[..end - stop.len()], true);
            }
        }
        (text, false)
    }

    /// `text` cut after character `i` wherever bit `i` of `cuts` is set.
    fn chunks(text: &str, cuts: u32) -> Vec<String> {
        let mut chunks = vec![String::new()];
        for (i, c) in text.chars().enumerate() {
            chunks.last_mut().unwrap().push(c);
            if cuts >> i & 1 == 1 {
                chunks.push(String::new());
            }
        }
        chunks
    }

    /// Feeds the chunks and checks on the way that nothing is held without reason.
    fn printed(chunks: &[String], stops: &[String]) -> (String, bool) {
        let mut s = StopStrings::new(stops.to_vec()).unwrap();
        let mut all = String::new();
        let mut stopped = false;
        for chunk in chunks {
            let piece = s.push(chunk.clone());
            all.push_str(&piece.text);
            assert!(!stopped || piece == self::piece("", true));
            stopped = piece.stopped;
            let begun = |stop: &String| stop.starts_with(&s.held) && *stop != s.held;
            assert!(s.held.is_empty() || stops.iter().any(begun));
        }
        all.push_str(&s.flush());
        (all, stopped)
    }

    proptest! {
        #[test]
        fn every_chunking_prints_what_a_naive_search_finds(
            text in "[aé]{0,3}[abé]{0,7}",
            stops in prop::collection::vec("[aé]{1,3}|[abé]{1,4}", 0..5),
        ) {
            let (want, stopped) = reference(&text, &stops);
            for cuts in 0..1 << text.chars().count() {
                prop_assert_eq!(printed(&chunks(&text, cuts), &stops), (want.to_string(), stopped));
            }
        }
    }
}

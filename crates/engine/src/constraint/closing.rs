//! The shortest way from the middle of a text to its end, found without the model.
//!
//! The one idea: the same grammar over a vocabulary of single bytes. There the mask says which bytes may follow, and a
//! search by breadth finds the end. States are told apart by what may follow them, of states alike only a few are
//! followed, and of bytes alike (the inside of a string) only some are tried; every end that is found is one, though,
//! because the grammar has accepted it.

use std::{collections::HashMap, sync::Arc};

use llguidance::{
    Matcher,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, SimpleVob, TokEnv},
};

use super::{
    ConstraintError,
    grammars::{Grammars, factory, parser},
    vocabulary::{trie, word},
};

/// A part of a text that no model has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Bytes of text, at least one; not always whole characters.
    Bytes(Vec<u8>),
    /// A token that has a name, but no text, as a grammar may ask for.
    Token(u32),
}

/// Steps of the search at most: about a second.
const MAX_STEPS: usize = 40_000;

/// States with the same future, as far as one byte shows it, that are followed from the same length.
const MAX_ALIKE: usize = 3;

/// If so few bytes may follow, all of them are tried: at first, and if that found no end.
const SOME: usize = 24;
const ALL: usize = 256;

/// Bytes that are tried first: what ends strings, lists and words; then what is short.
const PREFERRED: &[u8] = b"\"}])>'\n ;,:0e1a[{(<-.A@/_+=#TZ";

/// What ends the text after `tokens`.
pub(super) fn shortest(
    grammars: &Arc<Grammars>,
    grammar: &TopLevelGrammar,
    tokens: &[u32],
) -> Result<Vec<Closing>, ConstraintError> {
    let endless = ConstraintError::Endless { n_tokens: tokens.len() };
    let mut search = Search::new(grammars, grammar, tokens).map_err(|_| endless.clone())?;
    let path = search.run(SOME).or_else(|| search.run(ALL)).ok_or(endless)?;
    Ok(search.alphabet.spell(&path))
}

/// Symbols: the tokens that have names, by their own ids, the end, and the bytes behind them.
struct Alphabet {
    end: u32,
}

impl Alphabet {
    fn byte(&self, byte: u8) -> u32 {
        self.end + 1 + u32::from(byte)
    }

    fn spell(&self, path: &[u32]) -> Vec<Closing> {
        let mut text = Vec::new();
        for &symbol in path {
            match (symbol.checked_sub(self.end + 1), text.last_mut()) {
                (None, _) => text.push(Closing::Token(symbol)),
                (Some(byte), Some(Closing::Bytes(bytes))) => bytes.push(byte as u8),
                (Some(byte), _) => text.push(Closing::Bytes(vec![byte as u8])),
            }
        }
        text
    }
}

/// A way from the middle of the text, by symbols.
type Path = Vec<u32>;

struct Search {
    alphabet: Alphabet,
    matcher: Matcher,
    /// Where the matcher is.
    at: Path,
    n_steps: usize,
}

impl Search {
    /// A search from behind `tokens`.
    fn new(grammars: &Grammars, grammar: &TopLevelGrammar, tokens: &[u32]) -> Result<Self, String> {
        let tokenizer = &grammars.tokenizer;
        let alphabet = Alphabet { end: tokenizer.n_vocab() as u32 };
        let named = |id| Some(word(tokenizer, id)).filter(|word| is_name(word)).unwrap_or_default();
        let mut words: Vec<Vec<u8>> = (0..alphabet.end).map(named).collect();
        words.push(b"\xff<end>".to_vec());
        // The byte that marks names is in no text.
        words.extend((0..=255).map(|byte| if byte == 0xff { Vec::new() } else { vec![byte] }));
        let trie = trie(&words, tokenizer.n_vocab()).map_err(|error| error.to_string())?;
        drop(words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = factory(&env).map_err(|error| error.to_string())?;
        let mut matcher = parser(&factory, grammar.clone())?;
        for &id in tokens {
            let bytes = word(tokenizer, id);
            let symbols = if is_name(&bytes) { vec![id] } else { bytes.iter().map(|&b| alphabet.byte(b)).collect() };
            matcher.consume_tokens(&symbols).map_err(|error| error.to_string())?;
        }
        Ok(Self { alphabet, matcher, at: Path::new(), n_steps: 0 })
    }

    /// The way to the nearest end. If more than `n_tried` bytes may follow, only some are tried.
    fn run(&mut self, n_tried: usize) -> Option<Path> {
        let mut level = vec![Path::new()];
        while !level.is_empty() {
            let mut next = Vec::new();
            let mut alike: HashMap<SimpleVob, usize> = HashMap::new();
            for path in level {
                self.go_to(&path)?;
                if self.matcher.is_accepting().ok()? {
                    return Some(path);
                }
                let mask = self.matcher.compute_mask().ok()?;
                let seen = alike.entry(mask.clone()).or_default();
                *seen += 1;
                if *seen <= MAX_ALIKE {
                    next.extend(self.tried(&mask, n_tried).into_iter().map(|symbol| [&path[..], &[symbol]].concat()));
                }
            }
            level = next;
        }
        None
    }

    /// Takes the matcher there; `None` if the search has taken too long.
    fn go_to(&mut self, path: &[u32]) -> Option<()> {
        let same = self.at.iter().zip(path).take_while(|(a, b)| a == b).count();
        self.matcher.rollback(self.at.len() - same).ok()?;
        self.matcher.consume_tokens(&path[same..]).ok()?;
        self.n_steps += 1 + self.at.len() + path.len() - 2 * same;
        self.at = path.to_vec();
        (self.n_steps <= MAX_STEPS).then_some(())
    }

    /// The symbols of a mask that are worth a try, best first.
    fn tried(&self, mask: &SimpleVob, n_tried: usize) -> Vec<u32> {
        let is_byte = |&symbol: &u32| symbol > self.alphabet.end;
        let (bytes, names): (Vec<u32>, Vec<u32>) = mask.to_list().into_iter().partition(is_byte);
        let preferred = PREFERRED.iter().map(|&byte| self.alphabet.byte(byte)).filter(|symbol| bytes.contains(symbol));
        let mut tried: Vec<u32> = preferred.collect();
        let others = bytes.iter().filter(|symbol| !tried.contains(symbol)).copied();
        let others: Vec<u32> = match bytes.len() <= n_tried {
            true => others.collect(),
            // The lowest and the highest, such as the ends of the range that ends a character.
            false => others.clone().take(1).chain(others.last()).collect(),
        };
        tried.extend(others);
        tried.extend(names.into_iter().filter(|&id| id != self.alphabet.end));
        tried
    }
}

fn is_name(word: &[u8]) -> bool {
    word.len() > 1 && word[0] == 0xff
}

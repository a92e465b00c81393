//! A search for a short ending of an incomplete text, without the model.
//!
//! It runs the same grammar over a vocabulary of single bytes, where the mask says which bytes may
//! follow. A breadth-first search finds the shortest ending if it is near. A greedy search that
//! always takes the byte most likely to end something finds long ones (an array that lacks 400
//! items). Endings behind text that must be spelled out (`.*hello`, a date inside an object) are
//! found in stages: from one place where something can be closed to the next, by bytes and by
//! literals of the grammar. A wider breadth-first search is the last resort. Every ending found is
//! valid, because the grammar has accepted it.

use std::{collections::HashMap, sync::Arc};

use llguidance::{
    Matcher,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, SimpleVob, TokEnv},
};

use crate::{
    Closing, ConstraintError,
    grammars::{Grammars, factory, parser},
    literals,
    vocabulary::{is_name, trie, word},
};

/// Maximum length of an ending in bytes.
const MAX_BYTES: usize = 1 << 16;

/// Width of a breadth-first search.
#[derive(Clone, Copy)]
struct Breadth {
    /// Number of states kept per length that allow the same next bytes.
    n_alike: usize,
    /// If at most this many bytes may follow, all of them are tried, else a selection.
    n_tried: usize,
    n_steps: usize,
}

/// The first search takes 20 to 60 ms, the last ones some 300 ms each.
const NARROW: Breadth = Breadth {
    n_alike: 3,
    n_tried: 24,
    n_steps: 30_000,
};
const WIDE: Breadth = Breadth {
    n_alike: 200,
    n_tried: 24,
    n_steps: 150_000,
};
const FULL: Breadth = Breadth {
    n_alike: 3,
    n_tried: 256,
    n_steps: 150_000,
};

/// Steps of all stages together.
const STAGED_STEPS: usize = 100_000;
/// Maximum depth of one stage in steps, each a byte or a literal; literals are tried up to the
/// second depth only: three steps may complete a character.
const STAGE_DEPTH: usize = 48;
const SPELLED_DEPTH: usize = 6;
/// Bytes that close something, where they change what may follow.
const CLOSERS: &[u8] = b"}])\"";
/// This many bytes of free text in a row lead to no ending.
const MAX_IDLE: usize = 5_000;
/// If more bytes may follow, the position is free text, and a dot is as good as anything.
const FREE_TEXT: usize = 64;

/// Bytes tried first: those that end strings, lists and words, then short ones. Bytes that open
/// something come last.
const FIRST: &[u8] = b"\"}])>'\n;,: 0e1a.-A@/_+=#TZ";
const LAST: &[u8] = b"{[(<";

/// Bytes per token of the named vocabulary: its bytes, tries and their construction.
const BYTES_PER_TOKEN: u64 = 128;

/// Finds an ending for the text `tokens`. `has_names`: whether the grammar may ask for tokens by
/// name.
pub(super) fn short(
    grammars: &Arc<Grammars>,
    grammar: &TopLevelGrammar,
    has_names: bool,
    tokens: &[u32],
) -> Result<Vec<Closing>, crate::Error> {
    let endless = || ConstraintError::Endless {
        n_tokens: tokens.len(),
    };
    let alphabet = Alphabet::new(grammars, has_names);
    let _memory = grammars.budget.reserve("grammar", alphabet.n_bytes())?;
    let mut search = Search::new(grammars, grammar, alphabet, tokens).map_err(|_| endless())?;
    let near = search.by_breadth(NARROW).or_else(|| search.greedily());
    let staged = near.or_else(|| search.in_stages(&literals::of_grammar(grammar)));
    let path = staged
        .or_else(|| search.by_breadth(WIDE))
        .or_else(|| search.by_breadth(FULL));
    Ok(search.alphabet.spell(&path.ok_or_else(endless)?))
}

/// Symbols of the search: named tokens by their own ids, then the end, then the 256 bytes.
struct Alphabet {
    end: u32,
}

impl Alphabet {
    fn new(grammars: &Grammars, has_names: bool) -> Self {
        let end = if has_names {
            grammars.tokenizer.n_vocab() as u32
        } else {
            0
        };
        Self { end }
    }

    /// Memory of a search over these symbols.
    fn n_bytes(&self) -> u64 {
        BYTES_PER_TOKEN * u64::from(self.end) + (1 << 20)
    }

    fn byte(&self, byte: u8) -> u32 {
        self.end + 1 + u32::from(byte)
    }

    /// The bytes of each symbol.
    fn words(&self, grammars: &Grammars) -> Vec<Vec<u8>> {
        let named = |id| {
            Some(word(&grammars.tokenizer, id))
                .filter(|word| is_name(word))
                .unwrap_or_default()
        };
        let names = (0..self.end).map(named).chain([b"\xff<end>".to_vec()]);
        // The byte that marks names is in no text.
        names
            .chain((0..=255).map(|byte| if byte == 0xff { Vec::new() } else { vec![byte] }))
            .collect()
    }

    /// The symbols of a token: its name, or its bytes.
    fn symbols(&self, grammars: &Grammars, id: u32) -> Vec<u32> {
        let bytes = word(&grammars.tokenizer, id);
        if is_name(&bytes) {
            vec![id]
        } else {
            bytes.iter().map(|&b| self.byte(b)).collect()
        }
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

/// A path from the end of the text, by symbols.
type Path = Vec<u32>;

struct Search {
    alphabet: Alphabet,
    matcher: Matcher,
    /// The matcher at the end of the text. An error makes a matcher unusable.
    fresh: Matcher,
    /// Path that the matcher has followed.
    at: Path,
    n_steps: usize,
}

impl Search {
    /// Starts a search after `tokens`.
    fn new(
        grammars: &Grammars,
        grammar: &TopLevelGrammar,
        alphabet: Alphabet,
        tokens: &[u32],
    ) -> Result<Self, String> {
        let trie = trie(&alphabet.words(grammars), alphabet.end as usize);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = factory(&env).map_err(|error| error.to_string())?;
        let mut matcher = parser(&factory, grammar.clone())?;
        for &id in tokens {
            matcher
                .consume_tokens(&alphabet.symbols(grammars, id))
                .map_err(|error| error.to_string())?;
        }
        let fresh = matcher.deep_clone();
        Ok(Self {
            alphabet,
            matcher,
            fresh,
            at: Path::new(),
            n_steps: 0,
        })
    }

    /// Breadth-first: the path to the nearest ending; `None` beyond the step limit.
    fn by_breadth(&mut self, breadth: Breadth) -> Option<Path> {
        self.n_steps = 0;
        let mut level = vec![Path::new()];
        while !level.is_empty() {
            let mut alike: Vec<(SimpleVob, Vec<Path>)> = Vec::new();
            let mut places: HashMap<SimpleVob, usize> = HashMap::new();
            for path in level {
                if self.go_to(&path).is_none() {
                    continue;
                }
                if self.matcher.is_accepting().ok()? {
                    return Some(path);
                }
                let mask = self.matcher.compute_mask().ok()?;
                let place = *places.entry(mask.clone()).or_insert(alike.len());
                match alike.get_mut(place) {
                    Some((_, paths)) => paths.push(path),
                    None => alike.push((mask, vec![path])),
                }
                if self.n_steps > breadth.n_steps {
                    return None;
                }
            }
            let followed = alike.iter().flat_map(|(mask, paths)| {
                let symbols = self.tried(mask, breadth.n_tried);
                spread(paths, breadth.n_alike).flat_map(move |path| extended(path, symbols.clone()))
            });
            level = followed.collect();
        }
        None
    }

    /// Greedy: the path that looks most like an ending at every step.
    fn greedily(&mut self) -> Option<Path> {
        self.go_to(&[])?;
        let mut before = None;
        let mut n_idle = 0;
        while !self.matcher.is_accepting().ok()? {
            let mask = self.matcher.compute_mask().ok()?;
            n_idle = if before.as_ref() == Some(&mask) {
                n_idle + 1
            } else {
                0
            };
            if n_idle > MAX_IDLE {
                return None;
            }
            before = Some(mask.clone());
            let symbol = *self.tried(&mask, NARROW.n_tried).first()?;
            if self.matcher.consume_token(symbol).is_err() {
                self.restart();
                return None;
            }
            self.at.push(symbol);
            if self.at.len() > MAX_BYTES {
                return None;
            }
        }
        Some(self.at.clone())
    }

    /// In stages: from one place where something can be closed to the next.
    fn in_stages(&mut self, texts: &[String]) -> Option<Path> {
        let spell = |text: &String| text.bytes().map(|byte| self.alphabet.byte(byte)).collect();
        let texts: Vec<Path> = texts.iter().map(spell).collect();
        self.n_steps = 0;
        let mut path = Path::new();
        while path.len() < MAX_BYTES && self.n_steps < STAGED_STEPS {
            self.go_to(&path)?;
            if self.matcher.is_accepting().ok()? {
                return Some(path);
            }
            let mask = self.matcher.compute_mask().ok()?;
            match self.forced(&mask).or_else(|| self.closer(&mask)) {
                Some(symbol) => path.push(symbol),
                None => path = self.stage(path, &texts)?,
            }
        }
        None
    }

    /// The only byte that may follow, if there is only one.
    fn forced(&self, mask: &SimpleVob) -> Option<u32> {
        let only = if mask.num_set() == 1 {
            mask.first_bit_set()? as u32
        } else {
            return None;
        };
        Some(only).filter(|&symbol| symbol != self.alphabet.end)
    }

    /// Bytes that close something here. In free text a bracket does not: the same bytes may follow
    /// as before.
    fn closer(&mut self, mask: &SimpleVob) -> Option<u32> {
        // A bracket is text there, and may even lead away from a near ending.
        let closers = if mask.num_set() > FREE_TEXT {
            b"\"".as_slice()
        } else {
            CLOSERS
        };
        let symbols = closers.iter().map(|&byte| self.alphabet.byte(byte));
        let allowed: Vec<u32> = symbols
            .filter(|&symbol| mask.get(symbol as usize))
            .collect();
        for symbol in allowed {
            let here = self.at.clone();
            let is_possible = self.go_to(&[&here[..], &[symbol]].concat()).is_some();
            let is_closed = is_possible
                && (self.matcher.is_accepting().ok()?
                    || self.matcher.compute_mask().ok()? != *mask);
            self.go_to(&here)?;
            if is_closed {
                return Some(symbol);
            }
        }
        None
    }

    /// The path to the nearest place where the text may end, or something can be closed.
    fn stage(&mut self, from: Path, texts: &[Path]) -> Option<Path> {
        let mut level = vec![from];
        for depth in 0..STAGE_DEPTH {
            let mut next = Vec::new();
            let mut n_alike: HashMap<SimpleVob, usize> = HashMap::new();
            for path in level {
                if self.go_to(&path).is_none() {
                    continue;
                }
                if depth > 0 && self.matcher.is_accepting().ok()? {
                    return Some(path);
                }
                let mask = self.matcher.compute_mask().ok()?;
                if depth > 0 && self.closer(&mask).is_some() {
                    return Some(path);
                }
                let n = n_alike.entry(mask.clone()).or_default();
                *n += 1;
                if *n > NARROW.n_alike * 4 {
                    continue;
                }
                if depth < SPELLED_DEPTH {
                    self.spelled(&path, texts, &mut next)?;
                }
                if *n <= NARROW.n_alike {
                    next.extend(extended(&path, self.tried(&mask, NARROW.n_tried)));
                }
                if self.n_steps > STAGED_STEPS {
                    return None;
                }
            }
            level = next;
        }
        None
    }

    /// Extends a path by literals.
    fn spelled(&mut self, path: &Path, texts: &[Path], next: &mut Vec<Path>) -> Option<()> {
        let firsts = self.matcher.compute_mask().ok()?;
        for text in texts.iter().filter(|text| firsts.get(text[0] as usize)) {
            self.n_steps += 1;
            if self.matcher.validate_tokens(text).ok()? == text.len() {
                next.push([&path[..], text].concat());
            }
        }
        Some(())
    }

    /// Moves the matcher to a path; `None` if a byte that the mask allowed is refused, as it may be
    /// after a number.
    fn go_to(&mut self, path: &[u32]) -> Option<()> {
        let same = self.at.iter().zip(path).take_while(|(a, b)| a == b).count();
        let back = self.matcher.rollback(self.at.len() - same);
        self.n_steps += 1 + self.at.len() + path.len() - 2 * same;
        if back
            .and_then(|()| self.matcher.consume_tokens(&path[same..]))
            .is_err()
        {
            self.restart();
            return None;
        }
        self.at = path.to_vec();
        Some(())
    }

    fn restart(&mut self) {
        self.matcher = self.fresh.deep_clone();
        self.at.clear();
    }

    /// The symbols of a mask that are worth trying, best first.
    fn tried(&self, mask: &SimpleVob, n_tried: usize) -> Vec<u32> {
        let is_byte = |&symbol: &u32| symbol > self.alphabet.end;
        let (bytes, names): (Vec<u32>, Vec<u32>) = mask.to_list().into_iter().partition(is_byte);
        let allowed = |list: &[u8]| -> Vec<u32> {
            list.iter()
                .map(|&byte| self.alphabet.byte(byte))
                .filter(|symbol| bytes.contains(symbol))
                .collect()
        };
        let mut tried = if bytes.len() > FREE_TEXT {
            allowed(b"\".")
        } else {
            Vec::new()
        };
        let first = allowed(FIRST)
            .into_iter()
            .filter(|symbol| !tried.contains(symbol))
            .collect::<Vec<_>>();
        tried.extend(first);
        let last = allowed(LAST);
        let others = bytes
            .iter()
            .filter(|symbol| !tried.contains(symbol) && !last.contains(symbol))
            .copied();
        let others: Vec<u32> = match bytes.len() <= n_tried {
            true => others.collect(),
            // The lowest and the highest byte, such as the ends of the range of a continuation
            // byte.
            false => others.clone().take(1).chain(others.last()).collect(),
        };
        tried.extend(others);
        tried.extend(names.into_iter().filter(|&id| id != self.alphabet.end));
        tried.extend(last);
        tried
    }
}

/// At most `n` paths, spread over all: paths with the same beginning are adjacent.
fn spread(paths: &[Path], n: usize) -> impl Iterator<Item = &Path> {
    let n_kept = n.min(paths.len());
    (0..n_kept).map(move |i| &paths[i * paths.len() / n_kept])
}

/// A path with one more step.
fn extended(path: &Path, symbols: Vec<u32>) -> impl Iterator<Item = Path> {
    symbols
        .into_iter()
        .map(move |symbol| [&path[..], &[symbol]].concat())
}

//! The vocabulary of a model as a trie, shared by all constrained texts.
//!
//! Made with the first constraint of an engine. Most of the memory is three tries, the vocabulary's
//! and two that llguidance keeps; slices, which make masks cheaper, would double that.

use std::{io, sync::Arc, thread};

use atta_store::{Budget, Reservation};
use atta_tokenizer::Tokenizer;
use llguidance::{
    Matcher, ParserFactory,
    api::{ParserLimits, TopLevelGrammar},
    toktrie::{InferenceCapabilities, TokEnv},
};

use crate::Error;
use crate::{
    ConstraintError,
    vocabulary::{Vocabulary, Words},
};

/// Bytes per token reserved before the vocabulary is known: 104 to 132 bytes are held afterwards,
/// 180 to 240 at the peak, with vocabularies of 32,000 to 152,000 tokens.
const BYTES_PER_TOKEN: u64 = 256;

/// Memory for the parser of one text and what its lexer caches: half of it is used after 50 tokens
/// of most schemas. With the maximum number of lexer states, at 1 KB each, it can reach 32 MB:
/// strings of up to 3,600 characters, for example.
const GUIDE_BYTES: u64 = 2 << 20;

/// Memory for a parser whose constraint has `n_text` bytes: its values and its grammar are larger
/// than its text.
pub(super) fn guide_bytes(n_text: usize) -> u64 {
    GUIDE_BYTES + 16 * n_text as u64
}

/// Stack for parsing a grammar: 1.2 KB for each rule of a chain; the longest grammar has room for
/// 40,000. Untouched stack costs no memory, but takes addresses, which are few in WebAssembly.
const STACK_BYTES: usize = if cfg!(target_family = "wasm") {
    32 << 20
} else {
    64 << 20
};

/// Memory to keep free for constrained texts over `n_vocab` tokens.
pub fn planned_bytes(n_vocab: usize) -> u64 {
    BYTES_PER_TOKEN * n_vocab as u64 + GUIDE_BYTES
}

/// A vocabulary prepared for grammars.
pub struct Grammars {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) budget: Budget,
    pub(super) factory: ParserFactory,
    _memory: Reservation,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars")
            .field("n_vocab", &self.tokenizer.n_vocab())
            .finish_non_exhaustive()
    }
}

impl Grammars {
    /// Prepares a vocabulary: 0.1 s per 100,000 tokens.
    ///
    /// # Errors
    /// A vocabulary that llguidance does not take; memory that the budget does not grant.
    pub fn new(tokenizer: &Arc<Tokenizer>, budget: &Budget) -> Result<Self, Error> {
        let words = Words::new(tokenizer);
        let memory = budget.reserve("grammar", 3 * words.trie_bytes())?;
        let making = budget.reserve("grammar", words.making_bytes())?;
        let env: TokEnv = Arc::new(Vocabulary::new(Arc::clone(tokenizer), &words)?);
        drop(words);
        let factory = factory(&env)?;
        drop(making);
        Ok(Self {
            tokenizer: Arc::clone(tokenizer),
            budget: budget.clone(),
            factory,
            _memory: memory,
        })
    }
}

/// Makes parsers for untrusted grammars.
pub(super) fn factory(env: &TokEnv) -> Result<ParserFactory, ConstraintError> {
    let capabilities = InferenceCapabilities {
        ff_tokens: env.tokenize_is_canonical(),
        ..Default::default()
    };
    let made = ParserFactory::new(env, capabilities, &[]);
    let mut factory = made.map_err(|error| ConstraintError::Vocabulary(format!("{error:#}")))?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

/// Limits of a grammar. At llguidance's defaults a grammar can take a minute, and its lexer 500 MB.
fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 32_768,
        max_grammar_size: 20_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Makes a parser, or says why it cannot. It runs on a stack of its own, because llguidance
/// recurses along chains of rules.
pub(super) fn parser(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher, String> {
    let mut grammar = Some(grammar);
    let mut make = || Some(Matcher::new(factory.create_parser(grammar.take()?)));
    let made = thread::scope(|scope| -> io::Result<thread::Result<_>> {
        let maker = thread::Builder::new().stack_size(STACK_BYTES);
        Ok(maker.spawn_scoped(scope, &mut make)?.join())
    });
    let matcher = match made {
        Ok(made) => made.map_err(|_| {
            "it cannot be read (a fault of the reader, of this constraint alone)".to_owned()
        })?,
        // Programs for systems without threads are linked with as large a stack.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => make(),
        Err(error) => return Err(format!("no thread to read it: {error}")),
    };
    let matcher = matcher.expect("it is made once");
    match matcher.get_error() {
        None => Ok(matcher),
        Some(error) => Err(reason(&error)),
    }
}

/// Maximum length of an error message in characters: some repeat the whole grammar.
const MAX_REASON: usize = 300;

/// An error of llguidance as one short line that a user can act on.
pub(super) fn reason(error: &str) -> String {
    let telling = error
        .lines()
        .find_map(|line| line.trim().strip_prefix("error: "));
    let line = telling
        .or_else(|| error.lines().find(|line| !line.trim().is_empty()))
        .unwrap_or("no reason is given");
    let line = in_our_words(line).unwrap_or_else(|| line.to_owned());
    match line.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Parts of messages of llguidance, and the messages in their place.
const WORDS: [(&str, &str); 14] = [
    (
        "oneOf constraints",
        "\"oneOf\" is supported only where its alternatives exclude each other; \"anyOf\" is, always",
    ),
    (
        "Regex is empty",
        "no string matches all of a pattern, a format, a value and a length that must hold together",
    ),
    (
        "Unable to determine if regex is empty",
        "a pattern with its format and lengths is too complex: simplify it",
    ),
    (
        "circular references with sibling keys",
        "\"$ref\" in a circle with other keywords beside it is not supported",
    ),
    ("schema too large", "it is too large: leave parts of it out"),
    (
        "Schema intersection stack level",
        "\"allOf\" and \"$ref\" are nested too deep (the stack level of 128)",
    ),
    (
        "incompatible types",
        "parts of the schema that must hold together allow no common value",
    ),
    (
        "schema is false",
        "a part of it that must be there allows no value",
    ),
    ("NoExtension", "the constraint allows no text here"),
    (
        "grammar size",
        "it is too large (the grammar size): leave parts of it out",
    ),
    (
        "lexer states",
        "it is too complex (lexer states): simplify its regular expressions",
    ),
    (
        "initial lexer configuration",
        "it is too complex: simplify its regular expressions",
    ),
    (
        "TooComplex",
        "it became too complex: simplify its regular expressions, or lower its lengths and counts",
    ),
    (
        "Parser Error",
        "the text so far cannot go on with any token of this vocabulary",
    ),
];

/// Translates messages about llguidance's internals into what the author of a constraint can
/// change.
fn in_our_words(line: &str) -> Option<String> {
    if let Some(keys) = line.strip_prefix("Unimplemented keys: ") {
        return Some(format!(
            "keywords that are not supported: {}",
            keys.trim_matches(['[', ']'])
        ));
    }
    if let Some((_, words)) = WORDS.iter().find(|(theirs, _)| line.contains(theirs)) {
        return Some((*words).to_owned());
    }
    let unsatisfiable = line.strip_prefix("Unsatisfiable schema: ");
    unsatisfiable.map(|why| format!("no value matches: {why}"))
}

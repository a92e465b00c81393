//! Text and token ids from the command line, from files and from standard input.
//!
//! A text that is too long is refused while it is read, since no budget covers its memory. A byte
//! order mark is not part of the text.

#[cfg_attr(not(all(unix, feature = "cli-extras")), path = "../absent/stdin.rs")]
mod stdin;
#[cfg(feature = "constrain")]
mod utf;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use atta::{Engine, Session, system, tokenizer::Tokenizer};

#[cfg(feature = "constrain")]
pub(crate) use utf::read_text;

use crate::{
    args::value::{TokenSource, token_ids},
    failure::Failure,
};

/// UTF-8's byte order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Private memory per byte of a text until it is tokenized, at most.
const BYTES_PER_BYTE: u64 = 32;

/// Size limit of a text where the system does not report its memory.
const DEFAULT_TEXT: u64 = 64 << 20;

/// The size that a text may always have, however little memory there is.
const MIN_TEXT: u64 = 1 << 20;

/// Bytes of the longest character: an unknown character is one token.
const MAX_CHAR: usize = 4;

/// Where a text comes from.
#[derive(Debug)]
pub(crate) enum TextSource {
    /// The command line.
    Given(Vec<u8>),
    /// Standard input.
    Stdin,
    /// A file, or standard input for `-`. It follows the text of the command line, if there is one.
    File {
        given: Option<Vec<u8>>,
        path: PathBuf,
    },
}

impl TextSource {
    /// The text of the command line, else standard input. A terminal as standard input is wrong
    /// usage, answered with `hint`.
    pub(crate) fn given_or_piped(given: Option<&OsStr>, hint: &str) -> Result<Self, Failure> {
        match given {
            Some(text) => Ok(Self::Given(text.as_encoded_bytes().to_vec())),
            None if io::stdin().is_terminal() => {
                Err(Failure::Usage(format!("there is no text: {hint}")))
            }
            None => Ok(Self::Stdin),
        }
    }

    /// The text of a file after that of the command line.
    pub(crate) fn file(given: Option<&OsStr>, path: &Path) -> Self {
        Self::File {
            given: given.map(|text| text.as_encoded_bytes().to_vec()),
            path: path.to_owned(),
        }
    }

    /// Whether standard input holds a text that will not be read.
    pub(crate) fn ignores_stdin(&self) -> bool {
        match self {
            Self::Given(_) => stdin::has_piped_text(),
            Self::File { path, .. } => !is_stdin(path) && stdin::has_piped_text(),
            Self::Stdin => false,
        }
    }

    /// Reads the bytes within the limit, without a byte order mark.
    pub(crate) fn read(self, limit: &TextLimit) -> Result<Vec<u8>, Failure> {
        self.read_all(limit).map(without_mark)
    }

    /// Reads the bytes within the limit, a byte order mark included.
    pub(crate) fn read_all(self, limit: &TextLimit) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Given(bytes) => Ok(bytes),
            Self::Stdin => read_stdin(limit),
            Self::File { given: None, path } => read_bytes(&path, limit),
            Self::File {
                given: Some(given),
                path,
            } => Ok([given.as_slice(), b"\n\n", &read_bytes(&path, limit)?].concat()),
        }
    }
}

/// The size limit of a text, and the reason for it.
pub(crate) struct TextLimit {
    n_bytes: u64,
    why: String,
}

impl TextLimit {
    /// The limit of a prompt: more bytes than this do not fit into the context, whatever the text.
    pub(crate) fn of_prompt(engine: &Engine, session: &Session) -> Self {
        let tokenizer = engine.tokenizer();
        if session.shifts() || !tokenizer.is_lossless() {
            return Self::of_memory();
        }
        let n_ctx = session.n_ctx();
        let n_bytes = n_ctx.saturating_mul(longest_token(tokenizer)) as u64;
        Self {
            n_bytes,
            why: format!("the context holds {n_ctx} tokens: raise -c or shorten the prompt"),
        }
    }

    /// The limit of a text that must only fit into memory.
    pub(crate) fn of_memory() -> Self {
        let n_bytes = system::memory_available(0)
            .map_or(DEFAULT_TEXT, |bytes| bytes / BYTES_PER_BYTE)
            .max(MIN_TEXT);
        Self {
            n_bytes,
            why: "there is no memory for its tokens: give it in parts".to_owned(),
        }
    }

    fn exceeded(&self) -> Failure {
        Failure::Failed(format!(
            "the text has more than {} bytes, and {}",
            self.n_bytes, self.why
        ))
    }
}

/// An upper bound on the bytes of a token: the vocabulary's spelling of a token is never shorter
/// than its text.
fn longest_token(tokenizer: &Tokenizer) -> usize {
    let ids = 0..tokenizer.n_vocab() as u32;
    ids.map(|id| tokenizer.token_text(id).len())
        .max()
        .unwrap_or(0)
        .max(MAX_CHAR)
}

/// Whether a path names standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a file, or standard input for `-`, without a byte order mark.
pub(crate) fn read_bytes(path: &Path, limit: &TextLimit) -> Result<Vec<u8>, Failure> {
    if is_stdin(path) {
        return read_stdin(limit).map(without_mark);
    }
    let blame = |error| Failure::at(path, error);
    let mut file = File::open(path).map_err(blame)?;
    read_within(&mut file, limit, &blame).map(without_mark)
}

fn read_stdin(limit: &TextLimit) -> Result<Vec<u8>, Failure> {
    read_within(&mut io::stdin().lock(), limit, &|error| {
        Failure::Failed(format!("cannot read standard input: {error}"))
    })
}

/// Reads all bytes; more than the limit are an error.
fn read_within(
    from: &mut dyn Read,
    limit: &TextLimit,
    blame: &dyn Fn(io::Error) -> Failure,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(limit.n_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(blame)?;
    if bytes.len() as u64 > limit.n_bytes {
        return Err(limit.exceeded());
    }
    Ok(bytes)
}

fn without_mark(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    bytes
}

/// Reads the ids of `--tokens`.
pub(crate) fn read_tokens(source: TokenSource) -> Result<Vec<u32>, Failure> {
    match source {
        TokenSource::Ids(ids) => Ok(ids),
        TokenSource::File(path) => {
            let text = fs::read_to_string(&path).map_err(|error| Failure::at(&path, error))?;
            token_ids(&text).map_err(|what| Failure::at(&path, what))
        }
        TokenSource::Stdin => {
            let text = String::from_utf8(read_stdin(&TextLimit::of_memory())?);
            let ids = text
                .map_err(|_| "not UTF-8 text".to_owned())
                .and_then(|text| token_ids(&text));
            ids.map_err(|what| Failure::Failed(format!("standard input: {what}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_refused_as_soon_as_it_is_too_long() {
        let limit = TextLimit {
            n_bytes: 3,
            why: "that is all".to_owned(),
        };
        let read = |from: &mut dyn Read| {
            read_within(from, &limit, &|error| Failure::Failed(error.to_string()))
        };
        assert_eq!(read(&mut &b"abc"[..]).unwrap(), b"abc");
        let Err(Failure::Failed(why)) = read(&mut io::repeat(b'y')) else {
            panic!("an endless text was read")
        };
        assert_eq!(why, "the text has more than 3 bytes, and that is all");
    }
}

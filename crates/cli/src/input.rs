//! Text and ids from the command line, from files and from standard input.
//!
//! What cannot fit is refused while it is read: the memory for it is in no budget. A byte order
//! mark in front of a text is no part of it.

#[cfg(any(
    feature = "constrain",
    feature = "comfort",
    feature = "perplexity",
    feature = "convert"
))]
use std::path::Path;
use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Read},
};

use atta::{Engine, Session, system, tokenizer::Tokenizer};

use crate::{
    args::{TokenSource, token_ids},
    failure::Failure,
};

/// UTF-8's byte order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Private memory that a byte of a text takes until it is ids, at most.
const BYTES_PER_BYTE: u64 = 32;

/// Bytes of a text where the system does not say how much memory there is.
const DEFAULT_TEXT: u64 = 64 << 20;

/// The fewest bytes that a text may have, however little memory there is.
const MIN_TEXT: u64 = 1 << 20;

/// Bytes of the longest character: an unknown one is a token.
const MAX_CHAR: usize = 4;

/// Where a text comes from.
#[derive(Debug)]
pub(crate) enum Text {
    /// The command line.
    Given(Vec<u8>),
    /// Standard input, still to be read.
    Stdin,
    /// A file, or standard input where it is called -, behind what was typed.
    #[cfg(feature = "comfort")]
    Joined(Option<Vec<u8>>, std::path::PathBuf),
}

impl Text {
    /// The text that was typed, else standard input unless that is a keyboard, at which nobody
    /// would know what to do.
    pub(crate) fn given_or_piped(given: Option<&OsStr>, way_out: &str) -> Result<Self, Failure> {
        match given {
            Some(text) => Ok(Self::Given(text.as_encoded_bytes().to_vec())),
            None if io::stdin().is_terminal() => {
                Err(Failure::Usage(format!("there is no text: {way_out}")))
            }
            None => Ok(Self::Stdin),
        }
    }

    /// The text of a file behind what was typed.
    #[cfg(feature = "comfort")]
    pub(crate) fn joined(given: Option<&OsStr>, file: &Path) -> Self {
        Self::Joined(
            given.map(|text| text.as_encoded_bytes().to_vec()),
            file.to_owned(),
        )
    }

    /// Whether standard input was given and is not going to be read.
    #[cfg(all(unix, feature = "comfort"))]
    pub(crate) fn ignores_stdin(&self) -> bool {
        match self {
            Self::Given(_) => has_piped_text(),
            Self::Joined(_, path) => path.as_os_str() != "-" && has_piped_text(),
            Self::Stdin => false,
        }
    }

    /// The bytes, of which there must not be more than the limit allows, without a byte order mark.
    pub(crate) fn read(self, limit: &Limit) -> Result<Vec<u8>, Failure> {
        self.read_all(limit).map(without_mark)
    }

    /// The bytes, whatever they are.
    pub(crate) fn read_all(self, limit: &Limit) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Given(bytes) => Ok(bytes),
            Self::Stdin => read_stdin(limit),
            #[cfg(feature = "comfort")]
            Self::Joined(None, path) => read_bytes(&path, limit),
            #[cfg(feature = "comfort")]
            Self::Joined(Some(given), path) => {
                Ok([given.as_slice(), b"\n\n", &read_bytes(&path, limit)?].concat())
            }
        }
    }
}

/// Whether a pipe with something in it, or a file from its beginning, is on standard input. It does
/// not wait.
#[cfg(all(unix, feature = "comfort"))]
fn has_piped_text() -> bool {
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        fs::{FileType, SeekFrom, fstat, seek},
    };
    let stdin = io::stdin();
    let Ok(stat) = fstat(&stdin) else {
        return false;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        // A loop of a shell that reads lines from a file has left the beginning.
        FileType::RegularFile => stat.st_size > 0 && seek(&stdin, SeekFrom::Current(0)) == Ok(0),
        FileType::Fifo => {
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
        }
        _ => false,
    }
}

/// How many bytes a text may have, and what is said of more.
pub(crate) struct Limit {
    n_bytes: u64,
    why: String,
}

impl Limit {
    /// Of a prompt for this session: what no context of this length can hold, whatever the text.
    pub(crate) fn of_prompt(engine: &Engine, session: &Session) -> Self {
        let (tokenizer, n_ctx) = (engine.tokenizer(), session.n_ctx());
        if session.shifts() || !tokenizer.is_lossless() {
            return Self::of_memory();
        }
        let n_bytes = n_ctx.saturating_mul(longest_token(tokenizer)) as u64;
        Self {
            n_bytes,
            why: format!("the context holds {n_ctx} tokens: raise -c or shorten the prompt"),
        }
    }

    /// Of a text that only memory is a limit for.
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

/// Bytes of the longest token, or more: of the spelling in the vocabulary, which is never shorter
/// than the text.
fn longest_token(tokenizer: &Tokenizer) -> usize {
    let ids = 0..tokenizer.n_vocab() as u32;
    ids.map(|id| tokenizer.token_text(id).len())
        .max()
        .unwrap_or(0)
        .max(MAX_CHAR)
}

/// The text of a file, or of standard input where the file is called -. UTF-16 is told by its byte
/// order mark.
#[cfg(feature = "constrain")]
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = read_bytes(path, &Limit::of_memory())?;
    text_of(bytes).ok_or_else(|| Failure::at(path, "not UTF-8 text"))
}

/// The text that bytes are.
#[cfg(feature = "constrain")]
fn text_of(bytes: Vec<u8>) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes
            .chunks_exact(2)
            .map(|pair| unit([pair[0], pair[1]]))
            .collect();
        String::from_utf16(&units)
            .ok()
            .filter(|_| bytes.len().is_multiple_of(2))
    };
    match &bytes[..] {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    }
}

/// The bytes of a file, or of standard input where it is called -, without a byte order mark.
#[cfg(any(
    feature = "constrain",
    feature = "comfort",
    feature = "perplexity",
    feature = "convert"
))]
pub(crate) fn read_bytes(path: &Path, limit: &Limit) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        return read_stdin(limit).map(without_mark);
    }
    let blame = |error| Failure::at(path, error);
    bounded(std::fs::File::open(path).map_err(blame)?, limit, blame).map(without_mark)
}

fn read_stdin(limit: &Limit) -> Result<Vec<u8>, Failure> {
    bounded(io::stdin().lock(), limit, |error| {
        Failure::Failed(format!("cannot read standard input: {error}"))
    })
}

/// All bytes, if there are no more than the limit allows.
fn bounded(
    from: impl Read,
    limit: &Limit,
    blame: impl FnOnce(io::Error) -> Failure,
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

/// The ids of `--tokens`.
pub(crate) fn read_tokens(source: TokenSource) -> Result<Vec<u32>, Failure> {
    match source {
        TokenSource::Ids(ids) => Ok(ids),
        TokenSource::File(path) => {
            let text = std::fs::read_to_string(&path).map_err(|error| Failure::at(&path, error))?;
            token_ids(&text).map_err(|what| Failure::at(&path, what))
        }
        TokenSource::Stdin => {
            let text = String::from_utf8(read_stdin(&Limit::of_memory())?);
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
        let limit = Limit {
            n_bytes: 3,
            why: "that is all".to_owned(),
        };
        let read =
            |from: &mut dyn Read| bounded(from, &limit, |error| Failure::Failed(error.to_string()));
        assert_eq!(read(&mut &b"abc"[..]).unwrap(), b"abc");
        let Err(Failure::Failed(why)) = read(&mut io::repeat(b'y')) else {
            panic!("an endless text was read")
        };
        assert_eq!(why, "the text has more than 3 bytes, and that is all");
    }

    #[test]
    #[cfg(feature = "constrain")]
    fn a_byte_order_mark_is_no_part_of_a_text_and_tells_utf_16() {
        let text = |bytes: &[u8]| text_of(without_mark(bytes.to_vec()));
        assert_eq!(text(b"\xef\xbb\xbf{}").unwrap(), "{}");
        assert_eq!(text(b"\xff\xfe{\0\xe9\0").unwrap(), "{é");
        assert_eq!(text(b"\xfe\xff\0{\0\xe9").unwrap(), "{é");
        assert_eq!((text(b"\xff\xfe{"), text(b"\xff")), (None, None));
    }
}

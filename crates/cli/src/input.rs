//! Text and ids from the command line, from files and from standard input, byte for byte.

#[cfg(feature = "constrain")]
use std::path::Path;
use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Read},
};

use crate::{
    args::{TokenSource, token_ids},
    failure::Failure,
};

/// Where a text comes from.
#[derive(Debug)]
pub(crate) enum Text {
    /// The command line.
    Given(Vec<u8>),
    /// Standard input, still to be read.
    Stdin,
}

impl Text {
    /// The text that was typed, else standard input unless that is a keyboard, at which nobody would know what to do.
    pub(crate) fn given_or_piped(given: Option<&OsStr>, way_out: &str) -> Result<Self, Failure> {
        match given {
            Some(text) => Ok(Self::Given(text.as_encoded_bytes().to_vec())),
            None if io::stdin().is_terminal() => Err(Failure::Usage(format!("there is no text: {way_out}"))),
            None => Ok(Self::Stdin),
        }
    }

    /// The bytes.
    pub(crate) fn read(self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Given(bytes) => Ok(bytes),
            Self::Stdin => read_stdin(),
        }
    }
}

/// The text of a file, or of standard input where the file is called -.
#[cfg(feature = "constrain")]
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let not_utf8 = |_| Failure::at(path, "not UTF-8 text");
    match path.as_os_str() == "-" {
        true => String::from_utf8(read_stdin()?).map_err(not_utf8),
        false => String::from_utf8(std::fs::read(path).map_err(|error| Failure::at(path, error))?).map_err(not_utf8),
    }
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
    Ok(bytes)
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
            let text = String::from_utf8(read_stdin()?);
            let ids = text.map_err(|_| "not UTF-8 text".to_owned()).and_then(|text| token_ids(&text));
            ids.map_err(|what| Failure::Failed(format!("standard input: {what}")))
        }
    }
}

//! The file of a suspended session.
//!
//! Knows no memory. The one idea: it is a saved session like any other, so that a later process can
//! import it where this one was ended; but the state of a shifted context is that of no text, and
//! gets a key that no text has.

use std::path::Path;

use super::{CacheFileError, Key, SegmentFile, SequenceExport, single::SingleFile};
use crate::{Error, Session};

impl Session {
    /// Writes the state to a file, unless the file is of another kind.
    pub(crate) fn write_state(&self, path: &Path) -> Result<(), Error> {
        let key = self.state_key()?;
        let file = SingleFile::open(path).map_err(|source| blame(path, source))?;
        let executor = self.executor();
        let tokens = self.cached_tokens();
        let export = SequenceExport::new(self.engine(), executor.as_ref(), self.seq, tokens);
        file.save(&export, key)
    }

    /// Restores the state of all tokens from a file, in an empty sequence; after an error it is
    /// empty again.
    pub(crate) fn read_state(&mut self, path: &Path) -> Result<(), Error> {
        let key = self.state_key()?;
        let file = SegmentFile::open(path).map_err(|source| blame(path, source))?;
        let tokens = self.cached_tokens();
        file.verify(key, 0, tokens)?;
        let n = tokens.len();
        let mut executor = self.executor();
        let appended = file.append(executor.as_mut(), self.seq, n);
        // Leaves nothing if a sliding window is incomplete.
        if appended == Ok(true) && executor.truncate(self.seq, n)? == n {
            return Ok(());
        }
        executor.truncate(self.seq, 0)?;
        Err(CacheFileError::State.into())
    }

    /// The key of a file of all positions.
    fn state_key(&self) -> Result<Key, Error> {
        let root = self.root()?;
        Ok(match (self.n_evicted(), self.n_filled()) {
            (0, 0) => root,
            (n_evicted, n_filled) => root.child(&[n_evicted as u32, n_filled as u32]),
        })
    }

    /// As many of the last tokens as there are positions, which tell the state from others.
    fn cached_tokens(&self) -> &[u32] {
        &self.tokens()[self.n_evicted()..]
    }
}

fn blame(path: &Path, source: std::io::Error) -> Error {
    Error::Cache {
        path: path.to_owned(),
        source,
    }
}

//! Keys: the name of a state is a hash of everything that it depends on.
//!
//! ```text
//! root  = BLAKE3(versions, numerics, model, instruction set, ropes, state header of no positions)
//! child = BLAKE3(parent, tokens)
//! ```
//! The state header has shapes and element types of keys and values, and the rope regime. The
//! instruction set is part of it, since weights that are no integers give other roundings on
//! another one.

use atta_model::{Executor, SeqId};
use blake3::Hasher;

use super::segment::VERSION;
use crate::{Engine, Error};

pub(crate) const KEY_BYTES: usize = 32;

/// Raise it when a change of kernels or of the forward pass changes bits of keys and values within
/// one version of the program.
const NUMERICS: u32 = 1;

/// What a state depends on, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; KEY_BYTES]);

impl Key {
    /// The key of an empty text in sequences like this one.
    pub(crate) fn root(
        engine: &Engine,
        executor: &dyn Executor,
        seq: SeqId,
    ) -> Result<Self, Error> {
        let mut parts = Parts(Hasher::new());
        parts.add(&VERSION.to_le_bytes());
        parts.add(&NUMERICS.to_le_bytes());
        parts.add(env!("CARGO_PKG_VERSION").as_bytes());
        parts.add(&engine.identity()?.0);
        parts.add(executor.info().numerics.as_bytes());
        for layer in &engine.spec().layers {
            let rope = layer.attention().map(|a| &a.rope);
            parts.add(
                rope.map_or_else(String::new, |rope| format!("{rope:?}"))
                    .as_bytes(),
            );
        }
        let mut header = Vec::new();
        executor.export(seq, 0..0, &mut header)?;
        parts.add(&header);
        Ok(parts.end())
    }

    /// What a model is: a hash of what its files say about themselves, and of samples of their
    /// tensors.
    pub(crate) fn of_model(files: &atta_store::ModelFiles) -> Result<Self, Error> {
        let mut parts = Parts(Hasher::new());
        files.fingerprint(|bytes| parts.add(bytes))?;
        Ok(parts.end())
    }

    /// The key of a text that these tokens were added to.
    pub(crate) fn child(&self, tokens: &[u32]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&self.0);
        for id in tokens {
            hasher.update(&id.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }
}

/// A hash of parts of any length, of which none can pass for the end of the one before it.
struct Parts(Hasher);

impl Parts {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn end(self) -> Key {
        Key(self.0.finalize().into())
    }
}

//! Draft heads in files: their spec, the tokens that they can guess, and whether they are those of
//! a model.
//!
//! Knows no text and no session. The one idea: a draft head is a model of its own whose spec says
//! what it reads of another one ([`Join`]).

use atta_formats::{Directory, TensorType};
use atta_store::{Extent, ModelFiles};

use crate::{
    Error, arch,
    bind::GUESSED,
    spec::{Join, ModelSpec, Tap},
};

/// A draft head: its spec, and the tokens that it guesses.
#[derive(Clone, Debug)]
pub struct DraftHeadFile {
    /// Its spec.
    pub spec: ModelSpec,
    /// The token of each of its logits; `None`: the id is the index.
    pub guessed: Option<Vec<u32>>,
}

impl DraftHeadFile {
    /// Reads a draft head that has a file of its own.
    ///
    /// # Errors
    /// As [`arch::lower_draft_head`]; a list of tokens of another type or shape, or with a token
    /// that the model does not have.
    pub fn read(files: &ModelFiles) -> Result<Self, Error> {
        let directory = files.directory();
        let n_guessed = n_guessed(directory)?;
        let spec = arch::lower_draft_head(directory.metadata(), n_guessed)?;
        let guessed = match directory.tensor(GUESSED) {
            Some(info) => {
                let bytes = files.read(Extent {
                    shard: info.shard,
                    offset: info.offset,
                    bytes: info.n_bytes,
                })?;
                Some(parse_guessed(&bytes, spec.n_vocab)?)
            }
            None => None,
        };
        Ok(Self { spec, guessed })
    }

    /// Reads the layer of multi-token prediction in the file of a model.
    ///
    /// # Errors
    /// As [`arch::lower_nextn`].
    pub fn of_model(files: &ModelFiles) -> Result<Self, Error> {
        Ok(Self {
            spec: arch::lower_nextn(files.directory().metadata())?,
            guessed: None,
        })
    }

    /// Checks that it is a draft head of a model.
    ///
    /// # Errors
    /// [`Error::OtherTarget`] with what differs.
    pub fn check(&self, target: &ModelSpec) -> Result<(), Error> {
        let Some(join) = &self.spec.join else {
            return Err(Error::NoDraftHead);
        };
        let d = join.d_target;
        let d_target = target.d_model;
        let n = self.spec.n_vocab;
        let n_target = target.n_vocab;
        let n_layers = target.layers.len();
        let behind = join.taps.iter().find_map(|tap| match tap {
            Tap::Before(l) => Some(*l).filter(|&l| l > n_layers),
            Tap::Normed => None,
        });
        Err(Error::OtherTarget(if d != d_target {
            format!("its hidden states are {d}, the model's {d_target}")
        } else if n < n_target {
            format!("its tokens are {n}, the model's {n_target}")
        } else if let Some(l) = behind {
            format!("it reads what enters layer {l}, the model has {n_layers}")
        } else {
            return Ok(());
        }))
    }
}

impl Join {
    /// The draft head's own hidden state that a row with [`Input::Carried`](crate::Input::Carried)
    /// reads, of a head of `n_layers` layers.
    pub fn own_tap(&self, n_layers: usize) -> Tap {
        match self.taps[..] {
            [Tap::Normed] => Tap::Normed,
            _ => Tap::Before(n_layers),
        }
    }
}

/// Tokens that a draft head can guess; `None`: the file has no list of them.
fn n_guessed(directory: &Directory) -> Result<Option<usize>, Error> {
    let Some(info) = directory.tensor(GUESSED) else {
        return Ok(None);
    };
    match info.shape.dims() {
        &[n] if info.ty == TensorType::I64 && n <= 1 << 24 => Ok(Some(n as usize)),
        _ => Err(Error::Spec(format!(
            "tensor {GUESSED} is {} of {:?}, expected a list of i64",
            info.shape, info.ty
        ))),
    }
}

/// Reads a list of tokens, i64 each, of a vocabulary of `n_vocab`.
///
/// # Errors
/// [`Error::Token`] of a token that the vocabulary does not have.
pub fn parse_guessed(bytes: &[u8], n_vocab: usize) -> Result<Vec<u32>, Error> {
    let (ids, _) = bytes.as_chunks::<8>();
    let id = |id: &[u8; 8]| {
        let id = i64::from_le_bytes(*id);
        let known = u32::try_from(id).ok().filter(|&id| (id as usize) < n_vocab);
        known.ok_or(Error::Token {
            id: id as u32,
            n_vocab,
        })
    };
    ids.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(ids: &[i64]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    #[test]
    fn guessed_tokens_are_ids_of_the_vocabulary() {
        assert_eq!(parse_guessed(&bytes(&[5, 0, 9]), 10).unwrap(), [5, 0, 9]);
        for wrong in [10, -1, 1 << 32, i64::MAX] {
            let error = parse_guessed(&bytes(&[0, wrong]), 10);
            assert!(matches!(error, Err(Error::Token { .. })), "{wrong}");
        }
    }
}

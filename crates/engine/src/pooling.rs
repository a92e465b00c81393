//! A text as a vector: the hidden states of its tokens, after the norm that logits are made behind,
//! become one.
//!
//! Knows no sequence and no batch. The one idea: sums are taken in f64, in the order of the
//! positions, so that it does not matter in how many steps a text is read. A vector has length 1 in
//! the end, so that a sum is as good as a mean.

use crate::{Engine, Error};

/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// That of the first token.
    Cls,
    /// That of the last token, the only one that depends on the whole text.
    Last,
}

impl Pooling {
    /// By its name: `mean`, `cls` or `last`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mean" => Some(Self::Mean),
            "cls" => Some(Self::Cls),
            "last" => Some(Self::Last),
            _ => None,
        }
    }

    /// What the file of a model says in `ARCHITECTURE.pooling_type` (llama.cpp, `enum
    /// llama_pooling_type`), or, where it says nothing, the last token: all others have seen
    /// less.
    ///
    /// # Errors
    /// [`Error::Pooling`] of a model that ranks texts, or whose kind nobody knows.
    pub fn of_model(engine: &Engine) -> Result<Self, Error> {
        match engine.pooling_type() {
            None | Some(0 | 3) => Ok(Self::Last),
            Some(1) => Ok(Self::Mean),
            Some(2) => Ok(Self::Cls),
            Some(kind) => Err(Error::Pooling(kind)),
        }
    }
}

impl Engine {
    /// The ids of a text that is to become a vector: those of a prompt, and end-of-sequence where
    /// the vocabulary wants it.
    pub fn embedding_ids(&self, text: &[u8]) -> Vec<u32> {
        let tokenizer = self.tokenizer();
        let eos = tokenizer.eos().filter(|_| tokenizer.add_eos());
        self.prompt_ids(text).into_iter().chain(eos).collect()
    }

    /// How the file wants texts to become vectors, as it numbers that.
    fn pooling_type(&self) -> Option<u32> {
        let metadata = self.model().weights().files().directory().metadata();
        // What is of another type says nothing.
        let arch = metadata.str("general.architecture").ok().flatten()?;
        metadata.u32(&format!("{arch}.pooling_type")).ok().flatten()
    }
}

/// The hidden states of one text, as far as it was read.
pub(crate) struct Pooled {
    pooling: Pooling,
    /// Of those that count, `[d_model]`; empty before the first.
    sums: Vec<f64>,
    /// The last one after the norm, `[d_model]`.
    normed: Vec<f32>,
}

impl Pooled {
    pub(crate) fn new(pooling: Pooling) -> Self {
        Self {
            pooling,
            sums: Vec::new(),
            normed: Vec::new(),
        }
    }

    /// Forgets everything: the text is read again.
    pub(crate) fn restart(&mut self) {
        self.sums.clear();
    }

    /// Whether it depends on no more than the end of the text, so that its beginning may have been
    /// read before.
    pub(crate) fn may_share(&self) -> bool {
        self.pooling == Pooling::Last
    }

    /// Whether the hidden state at this position of a text of `n` tokens counts.
    pub(crate) fn wants(&self, pos: usize, n: usize) -> bool {
        match self.pooling {
            Pooling::Mean => true,
            Pooling::Cls => pos == 0,
            Pooling::Last => pos + 1 == n,
        }
    }

    /// Adds the residual after the last layer, `[d_model]`, of the next position that counts.
    pub(crate) fn add(&mut self, engine: &Engine, hidden: &[f32]) {
        self.sums.resize(hidden.len(), 0.0);
        self.normed.resize(hidden.len(), 0.0);
        engine
            .model()
            .output_norm(engine.kernels(), hidden, &mut self.normed);
        self.sums
            .iter_mut()
            .zip(&self.normed)
            .for_each(|(sum, &x)| *sum += f64::from(x));
    }

    /// The vector, `[d_model]`, of length 1 unless it is 0.
    pub(crate) fn vector(&self) -> Vec<f32> {
        let length = self.sums.iter().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        self.sums.iter().map(|x| (x * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(pooling: Pooling) -> Vec<usize> {
        let pooled = Pooled::new(pooling);
        (0..4).filter(|&pos| pooled.wants(pos, 4)).collect()
    }

    #[test]
    fn each_pooling_takes_its_positions() {
        assert_eq!(wanted(Pooling::Mean), [0, 1, 2, 3]);
        assert_eq!(wanted(Pooling::Cls), [0]);
        assert_eq!(wanted(Pooling::Last), [3]);
    }

    #[test]
    fn a_vector_has_length_1_or_is_0() {
        let of = |sums: &[f64]| {
            Pooled {
                sums: sums.to_vec(),
                ..Pooled::new(Pooling::Mean)
            }
            .vector()
        };
        assert_eq!(of(&[3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(of(&[0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(of(&[1e-200, 0.0])[1], 0.0);
    }
}

//! Pooling: the embedding of a text from the hidden states of its tokens, after the output norm,
//! or its scores by a reranker.
//!
//! Knows no sequence and no batch. The one idea: f64 sums in position order make the result
//! independent of chunking. The embedding is scaled to length 1, so a sum serves as a mean.

use atta_model::spec::{Outputs, ScoreInput};

use crate::{Engine, Error, text::Text, tokenizer::Special};

/// The hidden states that make up an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token, which of a decoder's alone depends on the whole text.
    Last,
    /// No vector, but the scores that a reranker computes from the first token or from the mean.
    Rank,
}

/// `pooling_type` of a reranker (llama.cpp, `enum llama_pooling_type`).
const RANK: u32 = 4;

impl Pooling {
    /// Parses `mean`, `cls` or `last`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mean" => Some(Self::Mean),
            "cls" => Some(Self::Cls),
            "last" => Some(Self::Last),
            _ => None,
        }
    }

    /// The value of `ARCHITECTURE.pooling_type` in the model file (llama.cpp, `enum
    /// llama_pooling_type`). If the file has none, [`Mean`](Self::Mean) for an encoder and
    /// [`Last`](Self::Last) for a decoder.
    ///
    /// # Errors
    /// [`Error::Pooling`] for a reranking model or an unknown type.
    pub fn of_model(engine: &Engine) -> Result<Self, Error> {
        match engine.pooling_type() {
            None | Some(0) if engine.is_reranker() => Err(Error::Pooling(RANK)),
            None | Some(0) if engine.spec().is_encoder() => Ok(Self::Mean),
            None | Some(0 | 3) => Ok(Self::Last),
            Some(1) => Ok(Self::Mean),
            Some(2) => Ok(Self::Cls),
            Some(kind) => Err(Error::Pooling(kind)),
        }
    }
}

impl Engine {
    /// Encodes a text to be embedded: the ids of a prompt, and end-of-sequence if the vocabulary
    /// wants it.
    pub fn embedding_ids(&self, text: &[u8]) -> Vec<u32> {
        let tokenizer = self.tokenizer();
        let eos = tokenizer.eos().filter(|_| tokenizer.add_eos());
        self.prompt_ids(text).into_iter().chain(eos).collect()
    }

    /// Encodes a query and a document to be compared by a reranker, as two texts in one.
    pub fn pair(&self, query: &[u8], document: &[u8]) -> Text {
        let tokenizer = self.tokenizer();
        let mut text = Text::default();
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        text.push_tokens(bos.as_slice());
        text.push_tokens(&tokenizer.encode(query, Special::Plain));
        text.push_tokens(tokenizer.between_texts());
        text.begin_second();
        text.push_tokens(&tokenizer.encode(document, Special::Plain));
        let eos = tokenizer.eos().filter(|_| tokenizer.add_eos());
        text.push_tokens(eos.as_slice());
        text
    }

    /// Width of the vectors of texts: `d_model`, or that of dense modules.
    pub fn d_vector(&self) -> usize {
        match self.spec().head.outputs {
            Outputs::Dense(dense) => dense.d_out,
            Outputs::Logits | Outputs::Hidden | Outputs::Scores(_) => self.spec().d_model,
        }
    }

    /// Whether the model scores texts.
    pub fn is_reranker(&self) -> bool {
        matches!(self.spec().head.outputs, Outputs::Scores(_))
    }

    /// The pooling type of the file.
    fn pooling_type(&self) -> Option<u32> {
        let metadata = self.model().weights().files().directory().metadata();
        // A value of another type is ignored.
        let arch = metadata.str("general.architecture").ok().flatten()?;
        metadata.u32(&format!("{arch}.pooling_type")).ok().flatten()
    }
}

/// The pooled hidden states of one text so far.
pub(crate) struct Pooled {
    pooling: Pooling,
    /// What a reranker reads.
    score_input: ScoreInput,
    /// Sums, `[d_model]`; empty before the first hidden state.
    sums: Vec<f64>,
    /// Hidden states in the sums.
    n: usize,
    /// The last hidden state after the norm, `[d_model]`.
    normed: Vec<f32>,
    /// The result, which is not a sum: the scores of a reranker, or the vector of dense modules.
    result: Option<Vec<f32>>,
}

impl Pooled {
    pub(crate) fn new(pooling: Pooling) -> Self {
        Self {
            pooling,
            score_input: ScoreInput::First,
            sums: Vec::new(),
            n: 0,
            normed: Vec::new(),
            result: None,
        }
    }

    /// Prepares for a model.
    pub(crate) fn of_model(&mut self, engine: &Engine) {
        if let Outputs::Scores(head) = engine.spec().head.outputs {
            self.score_input = head.reads;
        }
    }

    /// Starts over, since the text is evaluated again.
    pub(crate) fn restart(&mut self) {
        self.sums.clear();
        self.n = 0;
        self.result = None;
    }

    /// Whether the text may start from a cached prefix: only its end is pooled.
    pub(crate) fn may_share(&self) -> bool {
        self.pooling == Pooling::Last
    }

    /// Whether the hidden state at this position of a text of `n` tokens is pooled.
    pub(crate) fn wants(&self, pos: usize, n: usize) -> bool {
        match self.pooling {
            Pooling::Mean => true,
            Pooling::Rank if self.score_input == ScoreInput::Mean => true,
            Pooling::Cls | Pooling::Rank => pos == 0,
            Pooling::Last => pos + 1 == n,
        }
    }

    /// Adds the residual after the last layer, `[d_model]`, of the next pooled position.
    ///
    /// # Errors
    /// A model without scores that are asked for.
    pub(crate) fn add(&mut self, engine: &Engine, hidden: &[f32]) -> Result<(), Error> {
        self.sums.resize(hidden.len(), 0.0);
        self.normed.resize(hidden.len(), 0.0);
        engine
            .model()
            .output_norm(engine.kernels(), hidden, &mut self.normed);
        self.sums
            .iter_mut()
            .zip(&self.normed)
            .for_each(|(sum, &x)| *sum += f64::from(x));
        self.n += 1;
        Ok(())
    }

    /// Computes the result from the pooled hidden states, once all are added.
    ///
    /// # Errors
    /// Scores of a model that computes none.
    pub(crate) fn finish(&mut self, engine: &Engine) -> Result<(), Error> {
        let n = self.n.max(1) as f64;
        let mean = || -> Vec<f32> { self.sums.iter().map(|sum| (sum / n) as f32).collect() };
        let model = engine.model();
        self.result = match (self.pooling, engine.spec().head.outputs) {
            (Pooling::Rank, _) => Some(model.scores(engine.kernels(), &mean())?),
            (_, Outputs::Dense(_)) => Some(of_length_1(
                model.dense(&mean()).iter().map(|&x| f64::from(x)),
            )),
            _ => None,
        };
        Ok(())
    }

    /// The embedding, `[d_model]` or as wide as dense modules make it, of length 1 unless it is 0;
    /// or the scores, as they are.
    pub(crate) fn vector(&self) -> Vec<f32> {
        match &self.result {
            Some(result) => result.clone(),
            None => of_length_1(self.sums.iter().copied()),
        }
    }
}

/// A vector scaled to length 1, unless it is 0.
fn of_length_1(x: impl Iterator<Item = f64> + Clone) -> Vec<f32> {
    let length = x.clone().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
    x.map(|x| (x * scale) as f32).collect()
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

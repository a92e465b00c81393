//! Input and output of a step: rows of many sequences at once.
//!
//! A row is one position of one sequence. It brings a token or an embedding (or, where an earlier
//! machine computed the first layers, a hidden state), and states which result it wants. Both
//! structs are meant to be kept and reused: after warm-up a step allocates nothing.

use std::ops::Range;

use atta_kernels::math::{all_below, all_finite};

use crate::{AdapterSet, spec::Tap};

/// The squares of larger elements, summed up by a norm, may be infinite, and the norm would be 0.
/// No real model comes near this.
const MAX_RESIDUAL: f32 = 1e15;

/// A sequence of an executor: its own positions, its own state. Ids of dropped sequences are not
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId {
    /// Slot of the executor.
    pub index: u32,
    /// Number of sequences that used the slot before.
    pub generation: u32,
}

impl std::fmt::Display for SeqId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// The input of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A token id; for an executor that owns the first layer.
    Token(u32),
    /// An embedding, as of a part of an image: row `i` of [`Batch::hidden`]; for an executor that
    /// owns the first layer. It takes the place of the token's embedding after that was multiplied
    /// by [`embed_scale`](crate::spec::ModelSpec::embed_scale): a caller whose model scales
    /// embeddings of media does so itself. Learned positions are added to it.
    Embedding(usize),
    /// A residual: row `i` of [`Batch::hidden`]; for an executor that does not own the first layer.
    Hidden(usize),
    /// A token, and hidden states of another model at the position before it; for a draft head.
    Tapped {
        /// The token id.
        token: u32,
        /// Row `i` of [`Batch::hidden`], as wide as all [`Join::taps`](crate::spec::Join::taps).
        states: usize,
    },
    /// A token, and the draft head's own hidden state at the position before it.
    Carried {
        /// The token id.
        token: u32,
        /// Row `i` of [`Batch::hidden`], `[d_model]`.
        state: usize,
    },
}

/// The result that a row wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: only its state is kept, as for all but the last token of a prompt.
    Nothing,
    /// Logits over the vocabulary; of an executor that owns the last layer.
    Logits,
    /// The residual after the executor's last layer, `[d_residual]`; after the model's last layer
    /// several streams have become one, `[d_model]`.
    Hidden,
}

/// One position of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The sequence.
    pub seq: SeqId,
    /// Its next position.
    pub pos: usize,
    /// The input.
    pub input: Input,
    /// The wanted result.
    pub want: Want,
    /// Whether the recurrent state behind this row is kept, so that the sequence can be truncated
    /// to here. The number of kept states is limited ([`ExecutorSize::n_checkpoints`]); without
    /// recurrent layers it means nothing.
    ///
    /// [`ExecutorSize::n_checkpoints`]: crate::ExecutorSize::n_checkpoints
    pub is_checkpoint: bool,
    /// Adapters.
    pub adapters: AdapterSet,
    /// The text that it belongs to, of a sequence of two texts that an encoder compares: 0 or 1.
    pub segment: u8,
}

/// The input of a step.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In any mixture of sequences; positions of one sequence in order.
    pub rows: Vec<Row>,
    /// Embeddings, `[n, d_model]`, or residuals, `[n, d_residual]`, or hidden states that rows
    /// refer to: of one kind.
    pub hidden: Vec<f32>,
    /// Hidden states that are wanted of every row, beside its result.
    pub taps: Vec<Tap>,
}

impl Batch {
    /// Removes all rows; keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.hidden.clear();
        self.taps.clear();
    }

    /// Copies another batch, reusing memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        self.rows.extend_from_slice(&other.rows);
        self.hidden.extend_from_slice(&other.hidden);
        self.taps.extend_from_slice(&other.taps);
    }

    /// Adds a token.
    pub fn push_token(&mut self, seq: SeqId, pos: usize, id: u32, want: Want) {
        self.push(seq, pos, Input::Token(id), want);
    }

    /// Adds an embedding, `[d_model]`.
    pub fn push_embedding(&mut self, seq: SeqId, pos: usize, embedding: &[f32], want: Want) {
        let i = self.push_vector(embedding);
        self.push(seq, pos, Input::Embedding(i), want);
    }

    /// Adds a residual, `[d_residual]`.
    pub fn push_hidden(&mut self, seq: SeqId, pos: usize, hidden: &[f32], want: Want) {
        let i = self.push_vector(hidden);
        self.push(seq, pos, Input::Hidden(i), want);
    }

    /// Adds a token and hidden states of another model, as wide as all that a draft head reads.
    pub fn push_tapped(&mut self, seq: SeqId, pos: usize, token: u32, states: &[f32], want: Want) {
        let states = self.push_vector(states);
        self.push(seq, pos, Input::Tapped { token, states }, want);
    }

    /// Adds a token and a draft head's own hidden state, `[d_model]`.
    pub fn push_carried(&mut self, seq: SeqId, pos: usize, token: u32, state: &[f32], want: Want) {
        let state = self.push_vector(state);
        self.push(seq, pos, Input::Carried { token, state }, want);
    }

    /// Asks for a checkpoint behind the last row.
    pub fn mark_checkpoint(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.is_checkpoint = true;
        }
    }

    /// Sets the adapters of the last row; a row that was just added has none.
    pub fn set_adapters(&mut self, adapters: AdapterSet) {
        if let Some(row) = self.rows.last_mut() {
            row.adapters = adapters;
        }
    }

    /// Sets the segment of the last row; a row that was just added is of the first.
    pub fn set_segment(&mut self, segment: u8) {
        if let Some(row) = self.rows.last_mut() {
            row.segment = segment;
        }
    }

    /// Adds a vector; its index.
    fn push_vector(&mut self, x: &[f32]) -> usize {
        let i = self.hidden.len() / x.len().max(1);
        self.hidden.extend_from_slice(x);
        i
    }

    fn push(&mut self, seq: SeqId, pos: usize, input: Input, want: Want) {
        self.rows.push(Row {
            seq,
            pos,
            input,
            want,
            is_checkpoint: false,
            adapters: AdapterSet::EMPTY,
            segment: 0,
        });
    }
}

/// The result of a step.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The wanted result of each row of the batch, and its row in `logits` or `hidden`.
    places: Vec<(Want, usize)>,
    /// `[rows that want them, n_vocab]`.
    logits: Vec<f32>,
    /// `[rows that want it, d_hidden]`.
    hidden: Vec<f32>,
    /// Rows of the batch whose residual or logits are not all finite.
    not_finite: Vec<usize>,
    n_vocab: usize,
    d_hidden: usize,
    /// `[rows, taps, d_model]`; empty if the batch has no taps.
    tapped: Vec<f32>,
    /// Numbers of a row.
    d_tapped: usize,
}

impl Output {
    /// The first of these rows of the batch for which the model computed NaN or infinity, whether
    /// it wants a result or not. The state of its sequence is invalid from there on.
    pub fn first_not_finite(&self, rows: Range<usize>) -> Option<usize> {
        self.not_finite
            .iter()
            .copied()
            .filter(|row| rows.contains(row))
            .min()
    }

    /// Records whether the residual of a row, `[d_residual]`, is finite, and small enough for a
    /// norm; for executors, after [`prepare`](Self::prepare).
    pub fn check_residual(&mut self, row: usize, x: &[f32]) {
        if !all_below(x, MAX_RESIDUAL) {
            self.not_finite.push(row);
        }
    }

    /// Records the rows whose logits are not all finite; for executors.
    pub fn check_logits(&mut self) {
        for (row, &(want, place)) in self.places.iter().enumerate() {
            if want == Want::Logits
                && !all_finite(&self.logits[place * self.n_vocab..][..self.n_vocab])
            {
                self.not_finite.push(row);
            }
        }
    }

    /// The logits of a row that asked for them, `[n_vocab]`.
    ///
    /// # Panics
    /// If row `row` of the batch did not ask for logits.
    pub fn logits(&self, row: usize) -> &[f32] {
        let at = self.place(row, Want::Logits) * self.n_vocab;
        &self.logits[at..at + self.n_vocab]
    }

    /// The residual of a row that asked for it, as [`Want::Hidden`] says.
    ///
    /// # Panics
    /// If row `row` of the batch did not ask for it.
    pub fn hidden(&self, row: usize) -> &[f32] {
        let at = self.place(row, Want::Hidden) * self.d_hidden;
        &self.hidden[at..at + self.d_hidden]
    }

    /// The hidden states of a row that the batch taps, one behind the other, each `[d_model]`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn tapped(&self, row: usize) -> &[f32] {
        &self.tapped[row * self.d_tapped..][..self.d_tapped]
    }

    /// Makes room for the taps of `n_rows` rows, `d_tapped` numbers of each; for executors.
    pub fn prepare_taps(&mut self, n_rows: usize, d_tapped: usize) -> &mut [f32] {
        self.d_tapped = d_tapped;
        self.tapped.resize(n_rows * d_tapped, 0.0);
        &mut self.tapped
    }

    /// All logits, `[rows that asked for them, n_vocab]`, in the order of the rows; for executors.
    pub fn all_logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }

    /// The residual of a row that asked for it, to be filled by an executor, `[d_hidden]`.
    ///
    /// # Panics
    /// As [`hidden`](Self::hidden).
    pub fn hidden_mut(&mut self, row: usize) -> &mut [f32] {
        let at = self.place(row, Want::Hidden) * self.d_hidden;
        &mut self.hidden[at..at + self.d_hidden]
    }

    /// Makes room for the results of rows; for executors, before they write any.
    pub fn prepare(&mut self, rows: &[Row], n_vocab: usize, d_hidden: usize) {
        let mut n_logits = 0;
        let mut n_hidden = 0;
        self.places.clear();
        self.not_finite.clear();
        for &Row { want, .. } in rows {
            let n = match want {
                Want::Nothing => &mut 0,
                Want::Logits => &mut n_logits,
                Want::Hidden => &mut n_hidden,
            };
            self.places.push((want, *n));
            *n += 1;
        }
        (self.n_vocab, self.d_hidden) = (n_vocab, d_hidden);
        self.logits.resize(n_logits * n_vocab, 0.0);
        self.hidden.resize(n_hidden * d_hidden, 0.0);
    }

    fn place(&self, row: usize, asked: Want) -> usize {
        let (want, place) = self.places[row];
        assert_eq!(want, asked, "row {row} asked for something else");
        place
    }
}

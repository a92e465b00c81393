//! Hidden states of a text, for sources of drafts that read them.
//!
//! The owner of a sequence shows them batch by batch; a sink keeps what it needs. This file knows
//! no model.

use std::ops::Range;

use atta_model::{Output, spec::Tap};

/// Takes hidden states of a text.
pub trait HiddenSink: Send + Sync {
    /// The hidden states that are wanted of every row.
    fn taps(&self) -> &[Tap];

    /// Takes those of the last tokens of `tokens`, which are all of the text so far. Later rows may
    /// be of a text that differs from here on: drafts are shown before they are judged.
    fn take(&self, tokens: &[u32], rows: TappedRows<'_>);
}

/// Hidden states of rows of a batch.
#[derive(Clone, Debug)]
pub struct TappedRows<'a> {
    out: &'a Output,
    rows: Range<usize>,
}

impl<'a> TappedRows<'a> {
    pub(crate) fn new(out: &'a Output, rows: Range<usize>) -> Self {
        Self { out, rows }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.rows.len()
    }

    /// The hidden states of row `i`, one behind the other, `[taps, d_model]`.
    pub fn row(&self, i: usize) -> &'a [f32] {
        self.out.tapped(self.rows.start + i)
    }
}

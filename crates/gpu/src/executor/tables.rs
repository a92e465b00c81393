//! What varies from step to step: positions, block tables and rotations, as words of one buffer.
//!
//! It knows rows and sequences, and no kernel. Layers with the same mask over the same blocks share
//! their rows, so a step writes a few words for each row, whatever the number of layers.

use super::adapters::AdapterTables;
use super::states::{StateTables, n_taps, state_words};
use atta_model::spec::{Attention, ModelSpec, Temperature};
use atta_model::{Error, RopeTables, Row, SeqId, SeqTable, Share, seqs::BLOCK_LEN};
use std::collections::HashMap;

/// The words of a step, and where things begin among them.
#[derive(Debug)]
pub(super) struct StepTables {
    words: Vec<u32>,
    /// Layers whose rows see the same positions of the same blocks: group, and one of the layers.
    views: Vec<(usize, usize)>,
    /// The view of each layer.
    of_layer: HashMap<usize, usize>,
    temperatures: Vec<Temperature>,
    /// Words of the first block of each group.
    block_words: Vec<u32>,
    ropes_at: Vec<u32>,
    temperatures_at: Vec<u32>,
    slots_at: Vec<u32>,
    rows_at: Vec<u32>,
    adapters: AdapterTables,
    states: StateTables,
}

/// The most rows, sequences and positions of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    pub(super) n_rows: usize,
    pub(super) n_seqs: usize,
    pub(super) n_ctx: usize,
    /// Factors of what adapters add to a row.
    pub(super) n_factors: usize,
}

impl StepSize {
    /// Words of the largest step of a part of a model.
    pub(super) fn max_words(self, spec: &ModelSpec, part: &Share) -> usize {
        let Self {
            n_rows,
            n_seqs,
            n_ctx,
            n_factors,
        } = self;
        let layers = spec.layers[part.layers.clone()].iter();
        let attentions: Vec<&Attention> = layers.filter_map(|l| l.attention()).collect();
        // The tables have the ropes of all layers of the model.
        let n_ropes = distinct(spec.attentions().filter_map(|a| a.rope.as_ref()));
        let n_blocks = n_ctx.div_ceil(BLOCK_LEN);
        let n_masks = distinct(attentions.iter().map(|a| a.mask));
        let of_group = 2 * n_rows + n_seqs.min(n_rows).saturating_mul(n_blocks);
        let d_ropes = n_ropes * spec.max_d_rope();
        let n_taps = spec.layers[part.layers.clone()].iter().map(n_taps).max();
        let of_states = state_words(n_taps.unwrap_or(0));
        let of_row = n_factors
            + of_states
            + d_ropes
            + distinct(attentions.iter().filter_map(|a| a.temperature));
        let of_step = n_rows * (of_row + 4 * n_masks) + n_masks.saturating_mul(of_group);
        // Keys that move need their blocks and angles.
        of_step.max(n_blocks + spec.max_d_rope()).max(64)
    }
}

/// How many of some things differ.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> usize {
    let mut known: Vec<T> = Vec::new();
    for one in all {
        if !known.contains(&one) {
            known.push(one);
        }
    }
    known.len()
}

impl StepTables {
    /// Tables for the layers of a part; `groups` has the group of each attention layer, and
    /// `block_words` the words of a block of each group.
    pub(super) fn new(
        spec: &ModelSpec,
        part: &Share,
        groups: impl Fn(usize) -> usize,
        block_words: Vec<u32>,
    ) -> Self {
        let mut this = Self {
            words: Vec::new(),
            views: Vec::new(),
            of_layer: HashMap::new(),
            temperatures: Vec::new(),
            block_words,
            ropes_at: Vec::new(),
            temperatures_at: Vec::new(),
            slots_at: Vec::new(),
            rows_at: Vec::new(),
            adapters: AdapterTables::default(),
            states: StateTables::default(),
        };
        for l in part.layers.clone() {
            if let Some(a) = spec.layers[l].attention() {
                this.add_layer(spec, l, a, groups(l));
            }
        }
        this
    }

    /// The same with the factors of adapters, and the states of recurrent layers.
    pub(super) fn with(self, adapters: AdapterTables, states: StateTables) -> Self {
        Self {
            adapters,
            states,
            ..self
        }
    }

    /// Finds the recurrent states of rows that were just admitted.
    pub(super) fn find_states(&mut self, seqs: &mut SeqTable, rows: &[Row]) {
        self.states.find(seqs, rows);
    }

    /// The recurrent states of the rows of the step.
    pub(super) fn states(&self) -> &StateTables {
        &self.states
    }

    /// What adapters add to the rows of the step.
    pub(super) fn adapters(&self) -> &AdapterTables {
        &self.adapters
    }

    fn add_layer(&mut self, spec: &ModelSpec, l: usize, a: &Attention, group: usize) {
        let mask = |l: usize| spec.layers[l].attention().map(|a| a.mask);
        let is_same = |view: &(usize, usize)| view.0 == group && mask(view.1) == Some(a.mask);
        let known = self.views.iter().position(is_same);
        let view = known.unwrap_or_else(|| {
            self.views.push((group, l));
            self.views.len() - 1
        });
        self.of_layer.insert(l, view);
        let temperature = a.temperature.filter(|t| !self.temperatures.contains(t));
        self.temperatures.extend(temperature);
    }

    /// Sets the words of the rows of a step, which are in their sequences; `wanted` are those that
    /// want logits.
    pub(super) fn fill(
        &mut self,
        spec: &ModelSpec,
        rows: &[Row],
        wanted: &[usize],
        seqs: &SeqTable,
        ropes: &mut RopeTables,
    ) -> Result<(), Error> {
        self.words.clear();
        ropes.prepare(rows.iter().map(|row| row.pos));
        self.ropes_at.clear();
        for table in ropes.rows(rows.len()) {
            self.ropes_at.push(self.words.len() as u32);
            self.words.extend(table.iter().map(|x| x.to_bits()));
        }
        self.temperatures_at.clear();
        for temperature in &self.temperatures {
            self.temperatures_at.push(self.words.len() as u32);
            let factors = rows.iter().map(|row| temperature.at(row.pos).to_bits());
            self.words.extend(factors);
        }
        self.adapters.fill(&mut self.words, rows, wanted);
        self.states.fill(&mut self.words);
        let tables = self.fill_blocks(rows, seqs);
        self.fill_views(spec, rows, seqs, &tables)
    }

    /// The blocks of the sequences, and the places of the rows; returns where the block table of
    /// each group and sequence begins.
    fn fill_blocks(&mut self, rows: &[Row], seqs: &SeqTable) -> HashMap<(usize, SeqId), u32> {
        let mut tables = HashMap::new();
        self.slots_at.clear();
        for (group, &block_words) in self.block_words.iter().enumerate() {
            for row in rows {
                let at = self.words.len() as u32;
                tables.entry((group, row.seq)).or_insert_with(|| {
                    self.words.extend_from_slice(seqs.blocks(row.seq, group));
                    at
                });
            }
            self.slots_at.push(self.words.len() as u32);
            for row in rows {
                let block = seqs.blocks(row.seq, group)[row.pos / BLOCK_LEN];
                let inside = (row.pos % BLOCK_LEN) as u32;
                self.words.extend([block * block_words, inside]);
            }
        }
        tables
    }

    /// What the rows see.
    fn fill_views(
        &mut self,
        spec: &ModelSpec,
        rows: &[Row],
        seqs: &SeqTable,
        tables: &HashMap<(usize, SeqId), u32>,
    ) -> Result<(), Error> {
        self.rows_at.clear();
        for &(group, l) in &self.views {
            self.rows_at.push(self.words.len() as u32);
            let Some(a) = spec.layers[l].attention() else {
                continue;
            };
            for row in rows {
                let last = a.last_visible(row.pos, seqs.len(row.seq)?);
                let seen = [a.first_visible(row.pos), last, row.pos].map(|pos| pos as u32);
                self.words.extend(seen);
                self.words.push(tables[&(group, row.seq)]);
            }
        }
        Ok(())
    }

    /// The bytes of the step.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The first word of the rotations of a table of [`RopeTables::rows`].
    pub(super) fn rope(&self, table: usize) -> u32 {
        self.ropes_at[table]
    }

    /// The first word of the factors of the queries of a layer, if it has some.
    pub(super) fn factors(&self, a: &Attention) -> Option<u32> {
        let temperature = a.temperature?;
        let i = self.temperatures.iter().position(|t| *t == temperature)?;
        Some(self.temperatures_at[i])
    }

    /// The first word of the places of the rows in the blocks of layer `l`.
    pub(super) fn slots(&self, l: usize) -> u32 {
        self.slots_at[self.views[self.of_layer[&l]].0]
    }

    /// The first word of the rows of layer `l`.
    pub(super) fn rows(&self, l: usize) -> u32 {
        self.rows_at[self.of_layer[&l]]
    }

    /// Chunks of `n` positions of the longest of these rows in layer `l`.
    pub(super) fn n_chunks(&self, l: usize, rows: std::ops::Range<u32>, n: usize) -> u32 {
        let first = self.rows(l);
        let last = |row: u32| self.words[(first + 4 * row + 1) as usize];
        rows.map(last).max().unwrap_or(0) / n as u32 + 1
    }
}

//! Recurrent states on a GPU, in the blocks that the cache gives them, as f32; and where the rows
//! of a step find theirs.

use super::buffer::OwnBuffer;
use crate::quantize::NONE;
use crate::{BufferId, Error, SharedHost};
use atta_model::seqs::{StateRun, StateRuns, StateStep};
use atta_model::spec::{LayerSpec, Mixer};
use atta_model::{Error as ModelError, Row, SeqTable, StateBlocks};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

/// The blocks of the states of all recurrent layers.
#[derive(Debug)]
pub(super) struct GpuStates {
    host: SharedHost,
    buffer: OwnBuffer,
    block_floats: usize,
}

impl GpuStates {
    /// Blocks of zeros.
    pub(super) fn new(
        host: &SharedHost,
        n_blocks: usize,
        block_floats: usize,
    ) -> Result<Self, Error> {
        let bytes = 4 * (n_blocks as u64).saturating_mul(block_floats as u64);
        if bytes / 4 > u64::from(u32::MAX) {
            let most = 4 * u64::from(u32::MAX);
            return Err(Error::BufferSize { bytes, most });
        }
        Ok(Self {
            host: host.clone(),
            // A model without recurrent layers has a buffer that nothing reads.
            buffer: OwnBuffer::new(host, bytes.max(4))?,
            block_floats,
        })
    }

    /// The buffer of all blocks.
    pub(super) fn buffer(&self) -> BufferId {
        self.buffer.id()
    }

    /// Words of a block.
    pub(super) fn block_words(&self) -> u32 {
        self.block_floats as u32
    }

    /// The first byte of a float of a block.
    fn byte(&self, block: u32, at: usize) -> u64 {
        4 * (u64::from(block) * self.block_floats as u64 + at as u64)
    }
}

impl StateBlocks for GpuStates {
    fn export(
        &self,
        block: u32,
        floats: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), ModelError> {
        let mut bytes = vec![0; 4 * floats.len()];
        let at = self.byte(block, floats.start);
        let read = self.host.lock().read(self.buffer.id(), at, &mut bytes);
        read.map_err(ModelError::from)?;
        out.write_all(&bytes).map_err(ModelError::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), ModelError> {
        let at = self.byte(block, at);
        let written = self.host.lock().write(self.buffer.id(), at, bytes);
        Ok(written?)
    }
}

/// Where the states of the rows of a step are.
#[derive(Debug, Default)]
pub(super) struct StateTables {
    steps: Vec<StateStep>,
    runs: StateRuns,
    /// The most vectors that a convolution reads; 0 without recurrent layers.
    n_sources: usize,
    block_words: u32,
    sources_at: u32,
    kept_at: u32,
    n_kept: u32,
    levels: Vec<RunLevel>,
}

/// Runs that do not continue each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLevel {
    /// First word of their records among the tables.
    pub(super) at: u32,
    pub(super) n: u32,
}

/// The vectors that the convolution of a layer reads, its own position's included; 0: it has none.
pub(super) fn n_taps(layer: &LayerSpec) -> usize {
    match &layer.mixer {
        Mixer::ShortConv(conv) => conv.n_taps,
        Mixer::DeltaNet(net) => net.n_taps,
        Mixer::Mamba2(mamba) => mamba.n_taps,
        Mixer::AttentionAndMamba2(both) => both.mamba.n_taps,
        Mixer::Mamba(mamba) => mamba.n_taps,
        Mixer::None | Mixer::Attention(_) => 0,
    }
}

/// Words of the tables of a row, with convolutions of at most `n_sources` taps.
pub(super) fn state_words(n_sources: usize) -> usize {
    match n_sources {
        0 => 0,
        // Sources; the row in the list of a run, its record, and its pair if it is kept.
        _ => 2 * n_sources + 1 + 4 + 2,
    }
}

impl StateTables {
    /// Of these layers, with blocks of so many words.
    pub(super) fn new(layers: &[LayerSpec], block_words: u32) -> Self {
        Self {
            n_sources: layers.iter().map(n_taps).max().unwrap_or(0),
            block_words,
            ..Self::default()
        }
    }

    /// Finds the states of rows that were just admitted.
    pub(super) fn find(&mut self, seqs: &mut SeqTable, rows: &[Row]) {
        seqs.state_steps(rows, &mut self.steps);
        self.runs.find(&self.steps);
    }

    /// Appends the words of the rows that were found.
    pub(super) fn fill(&mut self, words: &mut Vec<u32>) {
        self.levels.clear();
        self.sources_at = words.len() as u32;
        for row in 0..self.steps.len() {
            words.extend((0..self.n_sources).flat_map(|back| self.source(row, back)));
        }
        self.kept_at = words.len() as u32;
        let kept = (0..).zip(&self.steps).filter(|(_, step)| step.is_kept);
        words.extend(kept.flat_map(|(row, step)| [row, step.block * self.block_words]));
        self.n_kept = (words.len() as u32 - self.kept_at) / 2;
        self.fill_runs(words);
    }

    /// Appends the rows of runs, then the records of these, those that continue others behind them.
    fn fill_runs(&mut self, words: &mut Vec<u32>) {
        let mut level_of: HashMap<u32, usize> = HashMap::new();
        let mut levels: Vec<Vec<[u32; 4]>> = Vec::new();
        for run in &self.runs {
            let rows = self.runs.rows(run);
            let before = run.start.and_then(|start| level_of.get(&start));
            let level = before.map_or(0, |level| level + 1);
            level_of.insert(run.block, level);
            levels.resize(levels.len().max(level + 1), Vec::new());
            levels[level].push(self.record(run, words.len() as u32, rows.len() as u32));
            words.extend_from_slice(rows);
        }
        for records in levels {
            self.levels.push(RunLevel {
                at: words.len() as u32,
                n: records.len() as u32,
            });
            words.extend(records.into_iter().flatten());
        }
    }

    fn record(&self, run: &StateRun, rows_at: u32, n_rows: u32) -> [u32; 4] {
        let start = run.start.map_or(NONE, |block| block * self.block_words);
        [start, run.block * self.block_words, rows_at, n_rows]
    }

    /// The source of the vector `back` positions before that of a row.
    fn source(&self, mut row: usize, mut back: usize) -> [u32; 2] {
        while back > 0
            && let Some(previous) = self.steps[row].previous
        {
            row = previous as usize;
            back -= 1;
        }
        match self.steps[row].start {
            _ if back == 0 => [0, row as u32],
            Some(block) => [back as u32, block * self.block_words],
            None => [NONE; 2],
        }
    }

    /// First word of the sources of vectors, and how many a row has.
    pub(super) fn sources(&self) -> [u32; 2] {
        [self.sources_at, self.n_sources as u32]
    }

    /// First word of the rows whose states are kept, and how many they are.
    pub(super) fn kept(&self) -> [u32; 2] {
        [self.kept_at, self.n_kept]
    }

    /// The runs, in the order in which they are computed.
    pub(super) fn levels(&self) -> &[RunLevel] {
        &self.levels
    }
}

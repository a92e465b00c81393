//! Copies of KV blocks, and keys that move, beside those of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{CopyBlocks, Error, GpuKv, MoveKeys, Shader};
use atta_kernels::{KvRole, KvRows, RopePairing};

const BLOCK_LEN: usize = 32;
const N_KV_HEADS: usize = 2;
const N_BLOCKS: usize = 3;
/// Blocks whose keys move; the others stay.
const MOVED: [usize; 2] = [2, 0];
/// Words between the beginning of a block and its keys: another layer's.
const BEFORE: usize = 5;
const D_ROPE: usize = 32;
/// Positions of the first of the moved blocks that stay.
const N_KEPT: usize = 5;

pub(super) fn copies(probe: &mut Probe<'_>) -> Result<(), Error> {
    let block_words = 100;
    let kv: Vec<u32> = (0..4 * block_words).collect();
    let pairs = [0, 3, 2, 1].map(|block: u32| block * block_words);
    let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let tables: Vec<u8> = bytes(&pairs);
    let contents: Vec<u8> = bytes(&kv);
    let bindings = probe.fill(&Contents {
        weights: &[],
        n_acts: 1,
        values: &[],
        tables: &tables,
        kv: &contents,
    })?;
    let copy = CopyBlocks {
        pairs: 0,
        n_pairs: 2,
        block_words,
    };
    probe.run(&Shader::copy_blocks(), |p| copy.dispatch(p, bindings))?;
    let got = probe.words(bindings.kv, 0, kv.len())?;
    let blocks = [0, 2, 2, 0].into_iter();
    let expected = blocks.flat_map(|block| (0..block_words).map(move |i| block * block_words + i));
    probe.same("two of four", &got, expected)
}

pub(super) fn moved(probe: &mut Probe<'_>) -> Result<(), Error> {
    for kv in GpuKv::ALL {
        let both = KvRole::Both { value_from: 40 };
        let all = [
            (64, KvRole::Key, RopePairing::Norm),
            (160, KvRole::Key, RopePairing::Neox),
            (104, both, RopePairing::Norm),
        ];
        for (d, role, pairing) in all {
            let keys = MovedKeys::new(probe, kv, role, d);
            let got = keys.on_gpu(probe, pairing)?;
            let expected = keys.on_cpu(probe, pairing);
            let words = expected.as_chunks().0.iter();
            let words = words.map(|word| u32::from_le_bytes(*word));
            probe.same(&format!("{kv:?} of {d}"), &got, words)?;
        }
    }
    Ok(())
}

/// Blocks of keys, and the angles by which they turn.
struct MovedKeys {
    kv: GpuKv,
    rows: KvRows,
    arena: Vec<u8>,
    /// `[D_ROPE/2, 2]`.
    turns: Vec<f32>,
}

impl MovedKeys {
    fn new(probe: &Probe<'_>, kv: GpuKv, role: KvRole, d: usize) -> Self {
        let mut samples = Samples(d as u64 + 3);
        let rows = KvRows {
            elem: kv.elem(),
            role,
            d,
        };
        let angles = samples.floats(D_ROPE / 2);
        let mut keys = Self {
            kv,
            rows,
            arena: Vec::new(),
            turns: angles.iter().flat_map(|x| [x.cos(), x.sin()]).collect(),
        };
        keys.arena = vec![1; N_BLOCKS * keys.block_bytes()];
        for block in 0..N_BLOCKS {
            for (h, position) in places() {
                let head = samples.floats(d);
                let bytes = keys.bytes_of_head(block, h);
                let stored = &mut keys.arena[bytes];
                probe.kernels.store_kv(&head, rows, position, stored);
            }
        }
        keys
    }

    fn block_bytes(&self) -> usize {
        4 * BEFORE + N_KV_HEADS * BLOCK_LEN * self.rows.row_bytes()
    }

    fn bytes_of_head(&self, block: usize, h: usize) -> std::ops::Range<usize> {
        let bytes = BLOCK_LEN * self.rows.row_bytes();
        let at = block * self.block_bytes() + 4 * BEFORE + h * bytes;
        at..at + bytes
    }

    fn on_gpu(&self, probe: &mut Probe<'_>, pairing: RopePairing) -> Result<Vec<u32>, Error> {
        let block_words = self.block_bytes() / 4;
        let mut tables = bytes_of(&self.turns);
        let blocks = MOVED.map(|block| (block * block_words) as u32);
        tables.extend(blocks.iter().flat_map(|word| word.to_le_bytes()));
        let bindings = probe.fill(&Contents {
            weights: &[],
            n_acts: 1,
            values: &[],
            tables: &tables,
            kv: &self.arena,
        })?;
        let moved = MoveKeys {
            blocks: self.turns.len() as u32,
            n_blocks: MOVED.len() as u32,
            block_len: BLOCK_LEN as u32,
            kv: self.kv,
            k: BEFORE as u32,
            n_kv_heads: N_KV_HEADS as u32,
            d_head: self.rows.d as u32,
            angles: 0,
            d_rope: D_ROPE as u32,
            pairing,
            n_kept: N_KEPT as u32,
            value_from: match self.rows.role {
                KvRole::Both { value_from } => Some(value_from as u32),
                KvRole::Key | KvRole::Value => None,
            },
        };
        probe.run(&Shader::move_keys(), |p| moved.dispatch(p, bindings))?;
        probe.words(bindings.kv, 0, N_BLOCKS * block_words)
    }

    /// Decoded, turned and stored by atta-kernels, as atta-model moves keys.
    fn on_cpu(&self, probe: &Probe<'_>, pairing: RopePairing) -> Vec<u8> {
        let mut arena = self.arena.clone();
        let mut head = vec![0.0; self.rows.d];
        for block in MOVED {
            let moves = |position| block != MOVED[0] || position >= N_KEPT;
            for (h, position) in places().filter(|&(_, position)| moves(position)) {
                let stored = &mut arena[self.bytes_of_head(block, h)];
                probe
                    .kernels
                    .load_kv(self.rows, position, stored, &mut head);
                probe.kernels.rope(&mut head, &self.turns, pairing);
                probe.kernels.store_kv(&head, self.rows, position, stored);
            }
        }
        arena
    }
}

/// Heads and positions of a block.
fn places() -> impl Iterator<Item = (usize, usize)> {
    (0..N_KV_HEADS).flat_map(|h| (0..BLOCK_LEN).map(move |position| (h, position)))
}

//! Heads of queries, keys and values beside those of the CPU, and the bytes of the KV cache.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{Error, GpuKv, HeadNorm, HeadPowers, HeadRecord, HeadRole, Shader, StoreHeads};
use atta_kernels::{KvRole, KvRows, RopePairing};

const N_ROWS: usize = 3;
const N_HEADS: usize = 4;
const N_KV_HEADS: usize = 2;
const BLOCK_LEN: usize = 32;
/// The blocks and the positions in them that the rows go to.
const SLOTS: [[usize; 2]; N_ROWS] = [[2, 0], [0, 31], [2, 1]];
const N_BLOCKS: usize = 3;
const EPS: f32 = 1e-6;
/// Factors of the queries of each row.
const FACTORS: [f32; N_ROWS] = [1.0, 1.3, 0.7];

/// Widths, ropes and norms: a whole head of neighbours, a part of one, none; a key of two sections,
/// whole and short groups of 4 bits; a key that is the value behind its rope and a section.
const SHAPES: [HeadShape; 7] = [
    HeadShape {
        d_head: 64,
        d_rope: 64,
        pairing: RopePairing::Norm,
        norm: HeadNorm::None,
        value_from: None,
    },
    HeadShape {
        d_head: 80,
        d_rope: 32,
        pairing: RopePairing::Neox,
        norm: FIRST,
        value_from: None,
    },
    HeadShape {
        d_head: 160,
        d_rope: 160,
        pairing: RopePairing::Neox,
        norm: LAST,
        value_from: None,
    },
    HeadShape {
        d_head: 16,
        d_rope: 0,
        pairing: RopePairing::Norm,
        norm: FIRST,
        value_from: None,
    },
    HeadShape {
        d_head: 24,
        d_rope: 24,
        pairing: RopePairing::Neox,
        norm: HeadNorm::Unit { eps: EPS },
        value_from: None,
    },
    HeadShape {
        d_head: 48,
        d_rope: 48,
        pairing: RopePairing::Norm,
        norm: HeadNorm::Layer {
            weight: 0,
            eps: EPS,
        },
        value_from: None,
    },
    HeadShape {
        d_head: 208,
        d_rope: 16,
        pairing: RopePairing::Norm,
        norm: HeadNorm::None,
        value_from: Some(144),
    },
];
const FIRST: HeadNorm = HeadNorm::First {
    weight: 0,
    eps: EPS,
};
const LAST: HeadNorm = HeadNorm::Last {
    weight: 0,
    eps: EPS,
};

#[derive(Clone, Copy)]
struct HeadShape {
    d_head: usize,
    d_rope: usize,
    pairing: RopePairing,
    norm: HeadNorm,
    /// First element of the value in a key that is one.
    value_from: Option<usize>,
}

/// Inputs of one dispatch.
struct HeadSample {
    shape: HeadShape,
    keys: GpuKv,
    values: GpuKv,
    /// Norm weights, then powers of two of each KV head, `[N_HEADS + N_KV_HEADS, d_head]`.
    vectors: Vec<f32>,
    /// `[N_ROWS, d_rope/2, 2]`.
    turns: Vec<f32>,
    /// Queries `[N_ROWS, N_HEADS, d_head]`, then keys and values `[N_ROWS, N_KV_HEADS, d_head]`.
    x: Vec<f32>,
}

pub(super) fn check(probe: &mut Probe<'_>) -> Result<(), Error> {
    let kinds = [
        [GpuKv::Floats; 2],
        [GpuKv::Codes; 2],
        [GpuKv::Bytes; 2],
        [GpuKv::Nibbles; 2],
        [GpuKv::Bytes, GpuKv::Codes],
    ];
    for kv in kinds {
        for shape in SHAPES {
            let sample = HeadSample::new(shape, kv);
            let [queries, stored] = sample.on_gpu(probe)?;
            let (queries_of_cpu, arena) = sample.on_cpu(probe);
            let what = format!("{kv:?}, heads of {}", shape.d_head);
            let expected = queries_of_cpu.iter().map(|x| x.to_bits());
            probe.same(&format!("queries, {what}"), &queries, expected)?;
            let words = arena.as_chunks().0.iter();
            let expected = words.map(|word| u32::from_le_bytes(*word));
            probe.same(&format!("cache, {what}"), &stored, expected)?;
        }
    }
    Ok(())
}

impl HeadSample {
    fn new(shape: HeadShape, [keys, values]: [GpuKv; 2]) -> Self {
        let d = shape.d_head;
        let mut samples = Samples(d as u64);
        let mut vectors = samples.floats(N_HEADS * d);
        let powers = samples.floats(N_KV_HEADS * d);
        vectors.extend(powers.iter().map(|x| (4.0 * x).round().exp2()));
        let angles = samples.floats(N_ROWS * shape.d_rope / 2);
        let turns = angles.iter().flat_map(|x| [x.cos(), x.sin()]);
        let mut x = samples.floats(N_ROWS * (N_HEADS + 2 * N_KV_HEADS) * d);
        // The last values are so small that f16 scales are subnormal.
        let small = x.len() - N_ROWS * d;
        x[small..].iter_mut().for_each(|x| *x *= 2e-5);
        Self {
            shape,
            keys,
            values,
            turns: turns.collect(),
            x,
            vectors,
        }
    }

    /// Rows of keys, or of values.
    fn rows(&self, role: KvRole) -> KvRows {
        KvRows {
            elem: match role {
                KvRole::Value => self.values.elem(),
                KvRole::Key | KvRole::Both { .. } => self.keys.elem(),
            },
            role,
            d: self.shape.d_head,
        }
    }

    /// The roles of stored rows, each with its place among [`records`](Self::records).
    fn stored(&self) -> Vec<(usize, KvRole)> {
        match self.shape.value_from {
            Some(value_from) => vec![(1, KvRole::Both { value_from })],
            None => vec![(1, KvRole::Key), (2, KvRole::Value)],
        }
    }

    /// Bytes of the keys of a block, and of the block.
    fn block_bytes(&self) -> [usize; 2] {
        let bytes = |(_, role)| N_KV_HEADS * BLOCK_LEN * self.rows(role).row_bytes();
        let all: Vec<usize> = self.stored().into_iter().map(bytes).collect();
        [all[0], all.iter().sum()]
    }

    fn records(&self) -> [HeadRecord; 3] {
        let d = self.shape.d_head;
        let of_keys = N_ROWS * N_HEADS * d;
        let of_values = of_keys + N_ROWS * N_KV_HEADS * d;
        let powers = |group| HeadPowers {
            at: (N_HEADS * d) as u32,
            n_heads: N_KV_HEADS as u32,
            group,
        };
        let query = HeadRecord {
            role: HeadRole::Query,
            x: 0,
            n_heads: N_HEADS as u32,
            norm: self.shape.norm,
            d_rope: self.shape.d_rope as u32,
            pairing: self.shape.pairing,
            powers: Some(powers((N_HEADS / N_KV_HEADS) as u32)),
            stored: 0,
            rotation: 0,
        };
        let key = HeadRecord {
            role: HeadRole::Key,
            x: of_keys as u32,
            n_heads: N_KV_HEADS as u32,
            powers: Some(powers(1)),
            rotation: self.keys.rotation(HeadRole::Key, d),
            ..query
        };
        let value = HeadRecord {
            role: HeadRole::Value,
            x: of_values as u32,
            norm: HeadNorm::None,
            d_rope: 0,
            powers: None,
            stored: self.block_bytes()[0] as u32 / 4,
            rotation: self.values.rotation(HeadRole::Value, d),
            ..key
        };
        [query, key, value]
    }

    /// Queries and the cache behind the kernel.
    fn on_gpu(&self, probe: &mut Probe<'_>) -> Result<[Vec<u32>; 2], Error> {
        let records = self.records().map(|record| record.words());
        let mut weights = bytes_of(&self.vectors);
        weights.extend(records.as_flattened().iter().flat_map(|w| w.to_le_bytes()));
        let block_words = self.block_bytes()[1] / 4;
        let slots = SLOTS.map(|[block, position]| [block * block_words, position]);
        let mut tables = bytes_of(&[&self.turns[..], &FACTORS].concat());
        let words = slots.as_flattened().iter().map(|&word| word as u32);
        tables.extend(words.flat_map(u32::to_le_bytes));
        let bindings = probe.fill(&Contents {
            weights: &weights,
            n_acts: 1,
            values: &self.x,
            tables: &tables,
            kv: &vec![0; 4 * N_BLOCKS * block_words],
        })?;
        let heads = StoreHeads {
            records: self.vectors.len() as u32,
            n_records: 1 + self.stored().len() as u32,
            n_heads: N_HEADS as u32,
            d_head: self.shape.d_head as u32,
            n_rows: N_ROWS as u32,
            keys: self.keys,
            values: self.values,
            block_len: BLOCK_LEN as u32,
            rope: 0,
            factors: Some(self.turns.len() as u32),
            slots: (self.turns.len() + N_ROWS) as u32,
            value_from: self.shape.value_from.map(|at| at as u32),
        };
        probe.run(&Shader::heads(), |p| heads.dispatch(p, bindings))?;
        let n_queries = N_ROWS * N_HEADS * self.shape.d_head;
        Ok([
            probe.words(bindings.values, 0, n_queries)?,
            probe.words(bindings.kv, 0, N_BLOCKS * block_words)?,
        ])
    }

    /// The norm before the rope, if there is one.
    fn norm_first(&self, probe: &Probe<'_>, record: &HeadRecord, h: usize, head: &mut [f32]) {
        let d = self.shape.d_head;
        let kernels = probe.kernels;
        match record.norm {
            HeadNorm::None | HeadNorm::Last { .. } => {}
            HeadNorm::First { eps, .. } => {
                kernels.rms_norm_inplace(head, &self.vectors[..d], eps);
            }
            HeadNorm::Unit { eps } => kernels.rms_norm_inplace(head, &vec![1.0; d], eps),
            HeadNorm::Layer { eps, .. } => {
                let copy = head.to_vec();
                let weight = &self.vectors[h * d..(h + 1) * d];
                kernels.layer_norm(&copy, (weight, None), eps, head);
            }
        }
    }

    /// The steps of a head in atta-model's attention, but for storing it.
    fn finish(&self, probe: &Probe<'_>, record: &HeadRecord, place: [usize; 2]) -> Vec<f32> {
        let [t, h] = place;
        let HeadShape { d_head, d_rope, .. } = self.shape;
        let at = record.x as usize + (t * record.n_heads as usize + h) * d_head;
        let mut head = self.x[at..at + d_head].to_vec();
        let weight = &self.vectors[..d_head];
        self.norm_first(probe, record, h, &mut head);
        if record.d_rope > 0 {
            let turns = &self.turns[t * d_rope..(t + 1) * d_rope];
            probe.kernels.rope(&mut head, turns, record.pairing);
        }
        if let HeadNorm::Last { eps, .. } = record.norm {
            probe.kernels.rms_norm_inplace(&mut head, weight, eps);
        }
        if record.role == HeadRole::Query {
            head.iter_mut().for_each(|x| *x *= FACTORS[t]);
        }
        if let Some(powers) = record.powers {
            let first = (N_HEADS + h / powers.group as usize % N_KV_HEADS) * d_head;
            let powers = &self.vectors[first..first + d_head];
            head.iter_mut()
                .zip(powers)
                .for_each(|(x, power)| *x *= power);
        }
        head
    }

    /// Queries and the cache by atta-kernels.
    fn on_cpu(&self, probe: &Probe<'_>) -> (Vec<f32>, Vec<u8>) {
        let [_, block_bytes] = self.block_bytes();
        let mut arena = vec![0; N_BLOCKS * block_bytes];
        let records = self.records();
        for (t, [block, position]) in SLOTS.into_iter().enumerate() {
            for (i, role) in self.stored() {
                let record = &records[i];
                for h in 0..N_KV_HEADS {
                    let head = self.finish(probe, record, [t, h]);
                    let rows = self.rows(role);
                    let bytes = BLOCK_LEN * rows.row_bytes();
                    let at = block * block_bytes + 4 * record.stored as usize + h * bytes;
                    let block = &mut arena[at..at + bytes];
                    probe.kernels.store_kv(&head, rows, position, block);
                }
            }
        }
        let places = (0..N_ROWS).flat_map(|t| (0..N_HEADS).map(move |h| [t, h]));
        let queries = places.flat_map(|place| self.finish(probe, &records[0], place));
        (queries.collect(), arena)
    }
}

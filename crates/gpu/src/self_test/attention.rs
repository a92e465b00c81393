//! Attention over a paged cache beside that of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::samples::Samples;
use crate::{Attend, CHUNK, Error, GpuKv, Merge, Shader};
use atta_kernels::{AttnRow, AttnScratch, KvLayer, KvRole, KvRows};

const N_HEADS: usize = 4;
const N_KV_HEADS: usize = 2;
const BLOCK_LEN: usize = 32;
/// Positions of the cache: in three chunks.
const N_CTX: usize = 301;
/// Last visible positions of the rows.
const LAST: [usize; 5] = [0, 5, 127, 128, 300];
/// How fast the scores of the heads fall, if they do.
const SLOPES: [f32; N_HEADS] = [0.3, 0.15, 0.1, 0.075];
const SINKS: [f32; N_HEADS] = [0.5, -3.0, 4.0, 0.0];

/// What a model may want besides.
#[derive(Clone, Copy, Debug)]
struct AttnVariant {
    d_head: usize,
    window: usize,
    softcap: Option<f32>,
    has_slopes: bool,
    has_sinks: bool,
    /// Multiplies queries: large ones make peaks.
    size: f32,
    /// First element of the value in a key that is one.
    value_from: Option<usize>,
}

const PLAIN: AttnVariant = AttnVariant {
    d_head: 64,
    window: N_CTX,
    softcap: None,
    has_slopes: false,
    has_sinks: false,
    size: 1.0,
    value_from: None,
};
/// Keys that are values: behind a part of a section, and behind two sections.
const LATENT: [AttnVariant; 2] = [
    AttnVariant {
        value_from: Some(16),
        has_sinks: true,
        ..PLAIN
    },
    AttnVariant {
        d_head: 208,
        window: 140,
        value_from: Some(144),
        ..PLAIN
    },
];
const VARIANTS: [AttnVariant; 4] = [
    PLAIN,
    AttnVariant {
        d_head: 80,
        window: 40,
        has_sinks: true,
        size: 20.0,
        ..PLAIN
    },
    AttnVariant {
        d_head: 160,
        softcap: Some(5.0),
        size: 4.0,
        ..PLAIN
    },
    AttnVariant {
        d_head: 16,
        window: 129,
        has_slopes: true,
        size: 0.1,
        ..PLAIN
    },
];

impl AttnVariant {
    /// The values among results: the elements before them have no meaning.
    fn values_of(&self, all: &[u32]) -> Vec<u32> {
        let first = self.value_from.unwrap_or(0);
        let heads = all.chunks_exact(self.d_head);
        heads.flat_map(|head| head[first..].to_vec()).collect()
    }
}

struct AttnSample {
    variant: AttnVariant,
    keys: GpuKv,
    values: GpuKv,
    /// Place of each block of the sequence.
    blocks: Vec<u32>,
    /// `[n_blocks, block_bytes]`.
    arena: Vec<u8>,
    /// `[LAST.len(), N_HEADS, d_head]`.
    q: Vec<f32>,
}

pub(super) fn floats(probe: &mut Probe<'_>) -> Result<(), Error> {
    check(probe, [GpuKv::Floats; 2])
}

pub(super) fn codes(probe: &mut Probe<'_>) -> Result<(), Error> {
    check(probe, [GpuKv::Codes; 2])
}

pub(super) fn bytes(probe: &mut Probe<'_>) -> Result<(), Error> {
    check(probe, [GpuKv::Bytes; 2])
}

pub(super) fn nibbles(probe: &mut Probe<'_>) -> Result<(), Error> {
    check(probe, [GpuKv::Nibbles; 2])
}

pub(super) fn mixed(probe: &mut Probe<'_>) -> Result<(), Error> {
    check(probe, [GpuKv::Codes, GpuKv::Bytes])?;
    check(probe, [GpuKv::Bytes, GpuKv::Nibbles])?;
    check(probe, [GpuKv::Nibbles, GpuKv::Floats])
}

pub(super) fn latent(probe: &mut Probe<'_>) -> Result<(), Error> {
    let mut all = GpuKv::ALL.into_iter();
    all.try_for_each(|kv| check_variants(probe, [kv; 2], &LATENT))
}

fn check(probe: &mut Probe<'_>, kv: [GpuKv; 2]) -> Result<(), Error> {
    check_variants(probe, kv, &VARIANTS)
}

fn check_variants(
    probe: &mut Probe<'_>,
    kv: [GpuKv; 2],
    variants: &[AttnVariant],
) -> Result<(), Error> {
    for &variant in variants {
        let sample = AttnSample::new(probe, variant, kv);
        let got = sample.on_gpu(probe)?;
        let expected = sample.on_cpu(probe);
        let what = format!("{kv:?} {variant:?}");
        let expected: Vec<u32> = expected.iter().map(|x| x.to_bits()).collect();
        let [got, expected] = [got, expected].map(|all| variant.values_of(&all));
        probe.same(&what, &got, expected)?;
    }
    Ok(())
}

impl AttnSample {
    /// A cache in blocks that are not in order, the bytes of unused positions being 0xff.
    fn new(probe: &Probe<'_>, variant: AttnVariant, [keys, values]: [GpuKv; 2]) -> Self {
        let d = variant.d_head;
        let mut samples = Samples(d as u64 + 7);
        let n_blocks = N_CTX.div_ceil(BLOCK_LEN) as u32;
        let q = samples.floats(LAST.len() * N_HEADS * d);
        let mut sample = Self {
            variant,
            keys,
            values,
            blocks: (0..n_blocks).map(|b| (b * 3 + 1) % n_blocks).collect(),
            arena: Vec::new(),
            q: q.iter().map(|x| x * variant.size).collect(),
        };
        let layer_bytes = sample.layer().block_bytes;
        sample.arena = vec![0xff; layer_bytes * n_blocks as usize];
        let n_parts = if variant.value_from.is_some() { 1 } else { 2 };
        for position in 0..N_CTX {
            let parts = [sample.layer().keys(), sample.layer().values()];
            for rows in parts.into_iter().take(n_parts) {
                for h in 0..N_KV_HEADS {
                    let mut head = samples.floats(d);
                    // One large element makes codes that values do not have.
                    head[d - 1 - position % 8] *= if position % 3 == 0 { 30.0 } else { 1.0 };
                    sample.store(probe, rows, [position, h], &head);
                }
            }
        }
        sample
    }

    fn store(&mut self, probe: &Probe<'_>, rows: KvRows, place: [usize; 2], head: &[f32]) {
        let [position, h] = place;
        let layer = self.layer();
        let at = match rows.role {
            KvRole::Value => layer.v_at,
            KvRole::Key | KvRole::Both { .. } => layer.k_at,
        };
        let bytes = BLOCK_LEN * rows.row_bytes();
        let block = self.blocks[position / BLOCK_LEN] as usize * layer.block_bytes;
        let first = block + at + h * bytes;
        let block = &mut self.arena[first..first + bytes];
        let inside = position % BLOCK_LEN;
        probe.kernels.store_kv(head, rows, inside, block);
    }

    fn layer(&self) -> KvLayer<'_> {
        let d_head = self.variant.d_head;
        let [k_elem, v_elem] = [self.keys, self.values].map(GpuKv::elem);
        let value_from = self.variant.value_from;
        let bytes = |elem, role| {
            let rows = KvRows {
                elem,
                role,
                d: d_head,
            };
            N_KV_HEADS * BLOCK_LEN * rows.row_bytes()
        };
        let both = value_from.map(|value_from| KvRole::Both { value_from });
        let keys = bytes(k_elem, both.unwrap_or(KvRole::Key));
        let [v_at, values] = match both {
            Some(_) => [0, 0],
            None => [keys, bytes(v_elem, KvRole::Value)],
        };
        KvLayer {
            arena: &self.arena,
            block_bytes: keys + values,
            k_at: 0,
            v_at,
            block_len: BLOCK_LEN,
            n_kv_heads: N_KV_HEADS,
            d_head,
            k_elem,
            v_elem,
            value_from,
        }
    }

    fn row(&self, t: usize) -> AttnRow<'_> {
        let last = LAST[t];
        AttnRow {
            blocks: &self.blocks,
            first: (last + 1).saturating_sub(self.variant.window),
            last,
            pos: last,
            chosen: None,
        }
    }

    fn attend(&self) -> Attend {
        let layer = self.layer();
        let d = layer.d_head as u32;
        Attend {
            q: 0,
            n_rows: LAST.len() as u32,
            rows: 0,
            n_heads: N_HEADS as u32,
            n_kv_heads: N_KV_HEADS as u32,
            d_head: d,
            block_len: BLOCK_LEN as u32,
            block_words: layer.block_bytes as u32 / 4,
            k: 0,
            v: layer.v_at as u32 / 4,
            partials: 0,
            n_chunks: N_CTX.div_ceil(CHUNK) as u32,
            scale: 0.3,
            softcap: self.variant.softcap,
            slopes: self.variant.has_slopes.then_some(0),
            value_from: self.variant.value_from.map(|at| at as u32),
        }
    }

    /// Rows, then the block table.
    fn tables(&self) -> Vec<u8> {
        let table = 4 * LAST.len();
        let rows = (0..LAST.len()).map(|t| self.row(t));
        let words = rows.flat_map(|row| [row.first, row.last, row.pos, table]);
        let words = words
            .map(|word| word as u32)
            .chain(self.blocks.iter().copied());
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn on_gpu(&self, probe: &mut Probe<'_>) -> Result<Vec<u32>, Error> {
        let attend = self.attend();
        let bindings = probe.fill(&Contents {
            weights: &bytes_of(&[SLOPES, SINKS].concat()),
            n_acts: attend.partial_words(),
            values: &[&self.q[..], &self.q].concat(),
            tables: &self.tables(),
            kv: &self.arena,
        })?;
        let out = self.q.len();
        let merge = Merge {
            sinks: self.variant.has_sinks.then_some(SLOPES.len() as u32),
            ..attend.merge(self.values, out as u32)
        };
        let shader = match self.variant.value_from {
            Some(_) => Shader::latent_attention(self.keys),
            None => Shader::attention(self.keys, self.values),
        };
        probe.run(&shader, |p| attend.dispatch(p, bindings))?;
        probe.run(&Shader::merge(), |p| merge.dispatch(p, bindings))?;
        probe.words(bindings.values, out, out)
    }

    fn on_cpu(&self, probe: &Probe<'_>) -> Vec<f32> {
        let mut out = vec![0.0; self.q.len()];
        let mut scratch = AttnScratch::new(LAST.len(), N_HEADS, self.variant.d_head, N_CTX, 1);
        let slope = |h: usize| SLOPES[h];
        let row = |t: usize| self.row(t);
        probe.kernels.attention(
            &probe.pool,
            atta_kernels::Attention {
                kv: self.layer(),
                q: &self.q,
                rows: &row,
                n_heads: N_HEADS,
                scale: self.attend().scale,
                softcap: self.variant.softcap,
                slopes: self.variant.has_slopes.then_some(&slope as _),
                sinks: self.variant.has_sinks.then_some(&SINKS[..]),
                out: &mut out,
                scratch: &mut scratch,
            },
        );
        out
    }
}

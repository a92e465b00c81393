//! Rotary positions: cosines and sines of this step's rows, computed once and used by every layer.
//!
//! A table for the whole context would cost 67 MB at 128k positions; a row costs a microsecond,
//! once per token.

use atta_kernels::{D_HEAD_MAX, Kernels, RopePairing, math::sin_cos};

use crate::{
    KeyTurn, Model,
    spec::{Factors, LayerSpec, Pairing, Rope},
};

/// The rotations of a model; layers with equal ropes share a table.
#[derive(Debug)]
pub struct RopeTables {
    tables: Vec<Table>,
    /// The table of each layer of the model, if it rotates.
    of_layer: Vec<Option<usize>>,
}

#[derive(Debug)]
struct Table {
    rope: Rope,
    /// Radians per position, `[d_rope / 2]`.
    inv_freq: Vec<f64>,
    /// `[n_rows, d_rope / 2, (cos, sin)]`.
    cos_sin: Vec<f32>,
}

impl RopeTables {
    /// Tables of a model for steps of at most `n_rows` rows in a context of `n_ctx`.
    pub fn of(model: &Model, n_rows: usize, n_ctx: usize) -> Self {
        let factors = model.globals().rope_factors();
        Self::new(&model.spec().layers, factors, n_rows, n_ctx)
    }

    /// Tables for steps of at most `n_rows` rows in a context of `n_ctx`; `factors` are the model's
    /// tensors of them.
    pub(crate) fn new(
        layers: &[LayerSpec],
        factors: Factors<'_>,
        n_rows: usize,
        n_ctx: usize,
    ) -> Self {
        let mut tables: Vec<Table> = Vec::new();
        let of_layer = layers.iter().map(|layer| {
            let rope = layer.attention()?.rope.as_ref()?;
            Some(
                tables
                    .iter()
                    .position(|t| t.rope == *rope)
                    .unwrap_or_else(|| {
                        let cos_sin = vec![0.0; n_rows * rope.d_rope];
                        tables.push(Table {
                            rope: rope.clone(),
                            inv_freq: rope.inv_freq(factors, n_ctx),
                            cos_sin,
                        });
                        tables.len() - 1
                    }),
            )
        });
        let of_layer = of_layer.collect();
        Self { tables, of_layer }
    }

    /// The rows of each table that [`prepare`](Self::prepare) has computed,
    /// `[n_rows, d_rope / 2, (cos, sin)]`, of `n_rows` rows.
    pub fn rows(&self, n_rows: usize) -> impl Iterator<Item = &[f32]> {
        let rows = move |table: &'_ Table| n_rows * table.rope.d_rope;
        self.tables.iter().map(move |t| &t.cos_sin[..rows(t)])
    }

    /// The table of layer `l` among [`rows`](Self::rows), and how it turns; `None` if it does not
    /// rotate.
    pub fn of_layer(&self, l: usize) -> Option<(usize, RopePairing)> {
        self.of_layer[l].map(|i| (i, self.tables[i].pairing()))
    }

    /// Computes the rows of a step.
    pub fn prepare(&mut self, positions: impl Iterator<Item = usize> + Clone) {
        for table in &mut self.tables {
            let d = table.rope.d_rope;
            let mut cos_sin = std::mem::take(&mut table.cos_sin);
            let rows = cos_sin.chunks_exact_mut(d).zip(positions.clone());
            rows.for_each(|(row, pos)| table.set(pos, row));
            table.cos_sin = cos_sin;
        }
    }

    /// The rotation from position `from` to position `to`, the same for all keys that move as far.
    pub fn shift(&self, from: usize, to: usize) -> KeyShift<'_> {
        let distance = to as f64 - from as f64;
        let row = |table: &Table| {
            let angles = table
                .inv_freq
                .iter()
                .map(|inv_freq| sin_cos(distance * inv_freq));
            angles
                .flat_map(|(sin, cos)| [cos as f32, sin as f32])
                .collect()
        };
        KeyShift {
            ropes: self,
            cos_sin: self.tables.iter().map(row).collect(),
        }
    }

    /// Rotates one head, `[d_head]`, of row `t` of this step in layer `l`.
    pub(crate) fn rotate(&self, kernels: Kernels, l: usize, t: usize, head: &mut [f32]) {
        let Some(table) = self.of_layer[l].map(|i| &self.tables[i]) else {
            return;
        };
        let d = table.rope.d_rope;
        table.rotate(kernels, &table.cos_sin[t * d..(t + 1) * d], head);
    }
}

impl RopeTables {
    /// Rotates one head, `[d_head]`, of any position in layer `l`.
    pub(crate) fn rotate_at(&self, kernels: Kernels, l: usize, pos: usize, head: &mut [f32]) {
        let Some(table) = self.of_layer[l].map(|i| &self.tables[i]) else {
            return;
        };
        let mut room = [0.0; D_HEAD_MAX];
        let cos_sin = &mut room[..table.rope.d_rope];
        table.set(pos, cos_sin);
        table.rotate(kernels, cos_sin, head);
    }
}

impl Table {
    /// Computes the cosines and sines of a position, `[d_rope / 2, (cos, sin)]`.
    fn set(&self, pos: usize, cos_sin: &mut [f32]) {
        let magnitude = f64::from(self.rope.magnitude);
        for (pair, inv_freq) in cos_sin.chunks_exact_mut(2).zip(&self.inv_freq) {
            let (sin, cos) = sin_cos(pos as f64 * inv_freq);
            pair.copy_from_slice(&[cos, sin].map(|x| (x * magnitude) as f32));
        }
    }

    /// Rotates one head by a row of cosines and sines, `[d_rope / 2, (cos, sin)]`.
    fn rotate(&self, kernels: Kernels, cos_sin: &[f32], head: &mut [f32]) {
        kernels.rope(&mut head[..self.rope.d_rope], cos_sin, self.pairing());
    }

    fn pairing(&self) -> RopePairing {
        match self.rope.pairing {
            Pairing::Adjacent => RopePairing::Norm,
            Pairing::Halves => RopePairing::Neox,
        }
    }
}

/// A rotation by a number of positions.
#[derive(Debug)]
pub struct KeyShift<'a> {
    ropes: &'a RopeTables,
    /// Of each table, `[d_rope / 2, (cos, sin)]`; the magnitude is in the keys already.
    cos_sin: Vec<Vec<f32>>,
}

impl KeyShift<'_> {
    /// The rotation of keys of layer `l`; `None` if it does not rotate.
    pub(crate) fn turn(&self, l: usize) -> Option<KeyTurn<'_>> {
        let i = self.ropes.of_layer[l]?;
        Some(KeyTurn {
            cos_sin: &self.cos_sin[i],
            pairing: self.ropes.tables[i].pairing(),
        })
    }
}

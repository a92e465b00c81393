//! Small tensors of a part of a model, and the constants of its heads, in one buffer of words.
//!
//! It knows what the kernels of heads read, and no step. Norms, biases and sinks come from the
//! file; slopes and powers of two are made here from the description.

use super::layout::Layout;
use crate::{GpuKv, GpuWeights, HeadNorm, HeadPowers, HeadRecord, HeadRole};
use atta_kernels::{KvElem, RopePairing};
use atta_model::spec::{Attention, KvSource, QkNorm};
use atta_model::{BoundTensor, KvLayerPlace, Role, RopeTables};
use std::collections::HashMap;

/// Words, and where things begin among them.
#[derive(Debug)]
pub(super) struct Vectors {
    words: Vec<u32>,
    at: HashMap<(Role, Option<usize>), u32>,
    /// Ones, as many as a head has elements.
    ones: u32,
    layers: HashMap<usize, LayerVectors>,
}

/// The constants of an attention layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerVectors {
    /// First word of the records of its heads.
    pub(super) records: u32,
    /// First word of how fast scores fall with distance.
    pub(super) slopes: Option<u32>,
    /// Powers of two of the results of heads.
    pub(super) results: Option<HeadPowers>,
}

/// Where an attention layer's numbers are.
pub(super) struct AttentionAt<'a> {
    pub(super) l: usize,
    pub(super) a: &'a Attention,
    pub(super) place: KvLayerPlace,
    /// Whether values have a projection of their own; else they are the keys before their norm.
    pub(super) has_v: bool,
    pub(super) layout: &'a Layout,
    pub(super) ropes: &'a RopeTables,
}

impl Vectors {
    /// All vectors of the part.
    pub(super) fn new(weights: &GpuWeights) -> Self {
        let mut this = Self {
            words: Vec::new(),
            at: HashMap::new(),
            ones: 0,
            layers: HashMap::new(),
        };
        let model = weights.model();
        this.ones = this.push(&vec![1.0; model.spec().max_d_head()]);
        let layers = weights.part().layers.clone().map(Some);
        for layer in layers.chain([None]) {
            for role in Role::ALL {
                if let Some(BoundTensor::Vector(vector)) = model.tensor(role, layer) {
                    let at = this.push(vector);
                    this.at.insert((role, layer), at);
                }
            }
        }
        this
    }

    /// The bytes of the buffer.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The first word of a vector, if the part has it.
    pub(super) fn get(&self, role: Role, layer: Option<usize>) -> Option<u32> {
        self.at.get(&(role, layer)).copied()
    }

    /// The constants of an attention layer that was added.
    pub(super) fn layer(&self, l: usize) -> LayerVectors {
        self.layers[&l]
    }

    fn push(&mut self, floats: &[f32]) -> u32 {
        let at = self.words.len() as u32;
        self.words.extend(floats.iter().map(|x| x.to_bits()));
        at
    }

    /// Appends the constants of an attention layer.
    pub(super) fn add_layer(&mut self, weights: &GpuWeights, of: &AttentionAt<'_>) {
        let AttentionAt { l, a, place, .. } = *of;
        let exponents = weights.model().kv_exponents(a.kv_layer().unwrap_or(l));
        let is_coded = |elem| elem == KvElem::F16;
        let used = |coded: bool, exponents| if coded { exponents } else { &[][..] };
        let keys = used(is_coded(place.k.1), exponents[0]);
        let values = used(is_coded(place.v.1), exponents[1]);
        let group = (a.n_heads / a.n_kv_heads) as u32;
        let powers = [
            self.powers(a, keys, 1, group),
            self.powers(a, keys, -1, 1),
            self.powers(a, values, -1, 1),
        ];
        let results = self.powers(a, values, 1, group);
        let slopes = a.slopes.map(|_| {
            let slopes: Vec<f32> = (0..a.n_heads).map(|h| a.slope(h)).collect();
            self.push(&slopes)
        });
        let records = self.records(of, powers);
        let at = self.words.len() as u32;
        self.words
            .extend(records.iter().flat_map(HeadRecord::words));
        let layer = LayerVectors {
            records: at,
            slopes,
            results,
        };
        self.layers.insert(l, layer);
    }

    /// Powers of two with these exponents, times `sign`; `None` without any.
    fn powers(&mut self, a: &Attention, exps: &[i8], sign: i32, group: u32) -> Option<HeadPowers> {
        if exps.is_empty() {
            return None;
        }
        let power = |e: &i8| f32::from_bits(((127 + sign * i32::from(*e)) as u32) << 23);
        let powers: Vec<f32> = exps.iter().map(power).collect();
        Some(HeadPowers {
            at: self.push(&powers),
            n_heads: (exps.len() / a.d_head) as u32,
            group,
        })
    }

    /// Queries, keys and values; no values where keys are those, queries alone where keys are
    /// another layer's.
    fn records(&self, of: &AttentionAt<'_>, powers: [Option<HeadPowers>; 3]) -> Vec<HeadRecord> {
        let AttentionAt {
            l,
            a,
            place,
            has_v,
            layout,
            ropes,
        } = *of;
        let pairing = ropes.of_layer(l).map_or(RopePairing::Norm, |(_, p)| p);
        let query = HeadRecord {
            role: HeadRole::Query,
            x: layout.q,
            n_heads: a.n_heads as u32,
            norm: self.head_norm(a, Role::AttnQNorm, l),
            d_rope: a.rope.as_ref().map_or(0, |rope| rope.d_rope as u32),
            pairing,
            powers: powers[0],
            stored: 0,
            rotation: 0,
        };
        let rotation = |role, elem| {
            let kv = GpuKv::of(elem, a.d_head);
            kv.map_or(0, |kv| kv.rotation(role, a.d_head))
        };
        let key = HeadRecord {
            role: HeadRole::Key,
            x: layout.k,
            n_heads: a.n_kv_heads as u32,
            norm: self.head_norm(a, Role::AttnKNorm, l),
            powers: powers[1],
            stored: (place.k.0 / 4) as u32,
            rotation: rotation(HeadRole::Key, place.k.1),
            ..query
        };
        let v_norm = match a.kv {
            KvSource::Layer(_) => return vec![query],
            KvSource::Latent(_) => return vec![query, key],
            KvSource::Own { v_norm, .. } => v_norm,
        };
        let ones = |eps| HeadNorm::First {
            weight: self.ones,
            eps,
        };
        let value = HeadRecord {
            role: HeadRole::Value,
            x: if has_v { layout.v } else { layout.k },
            norm: v_norm.map_or(HeadNorm::None, ones),
            d_rope: 0,
            powers: powers[2],
            stored: (place.v.0 / 4) as u32,
            rotation: rotation(HeadRole::Value, place.v.1),
            ..key
        };
        vec![query, key, value]
    }

    fn head_norm(&self, a: &Attention, role: Role, l: usize) -> HeadNorm {
        let weight = match a.qk_norm {
            QkNorm::Unit { .. } => Some(self.ones),
            _ => self.get(role, Some(l)),
        };
        match (a.qk_norm, weight) {
            (QkNorm::RotatedPerHead { eps }, Some(weight)) => HeadNorm::Last { weight, eps },
            (QkNorm::LayerPerHead { eps, .. }, Some(weight)) => HeadNorm::Layer { weight, eps },
            (
                QkNorm::PerHead { eps } | QkNorm::PerHeadIfThere { eps } | QkNorm::Unit { eps },
                Some(weight),
            ) => HeadNorm::First { weight, eps },
            _ => HeadNorm::None,
        }
    }
}

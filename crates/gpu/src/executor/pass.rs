//! The forward pass on a GPU: the kernels of a step, one behind the other.
//!
//! ```text
//! for each layer:  x += mixer(norm(x));  x += ffn(norm(x))
//! logits = W norm(x) + b, of the rows that want them
//! ```
//! It interprets the description of the model as the CPU does, and adds in the same order; it knows
//! no bytes. A sublayer's input is codes in the layouts of its matrices.

use super::kernels::{AttentionKind, Kernels};
use super::kv_of;
use super::latent::{LatentLayer, OF_LATENT};
use super::layout::{Acts, Layout, n_gates};
use super::recurrent::{OF_CHANNELS, OF_MAMBA, OF_NET, OF_SHORT_CONV};
use super::tables::StepTables;
use super::vectors::Vectors;
use crate::support::activation;
use crate::weights::{GpuMatrix, MatrixKey};
use crate::{
    ActLayout, AddNormed, Attend, Bindings, CHUNK, Dispatch, GpuKv, GpuWeights, GroupSlots,
    JoinedPart, JoinedProducts, MultiplyRows, Normed, Product, ProductEnd, Quantize, RowActivation,
    RowFactor, RowFunction, RowNorm, StoreHeads,
};
use atta_model::spec::{
    Attention, Ffn, KvSource, LayerSpec, Mixer, Mlp, ModelSpec, Norm, QkNorm, Sublayer, Wiring,
};
use atta_model::{KvLayerPlace, Role, RopeTables, seqs::BLOCK_LEN};
use std::collections::HashMap;
use std::ops::Range;

/// Matrices of a layer that read the same rows, where it has them.
pub(super) const TOGETHER: [&[Role]; 8] = [
    &OF_MIXER,
    &OF_LATENT,
    &OF_SHORT_CONV,
    &OF_NET,
    &OF_MAMBA,
    &OF_CHANNELS,
    &[Role::FfnGate, Role::FfnUp],
    &OF_ROUTER,
];
const OF_MIXER: [Role; 4] = [Role::AttnQ, Role::AttnK, Role::AttnV, Role::AttnGate];
pub(super) const OF_ROUTER: [Role; 4] = [
    Role::FfnGateInp,
    Role::FfnGateInpShexp,
    Role::FfnGateShexp,
    Role::FfnUpShexp,
];

/// What multiplies the product of a matrix before it is added to the residual; 1 where it is not
/// added at once.
pub(super) fn factor_of(spec: &ModelSpec, (role, layer): MatrixKey) -> f32 {
    let sublayer = match role {
        Role::AttnOutput | Role::SsmOut | Role::ShortconvOutProj => Sublayer::Mixer,
        Role::FfnDown => Sublayer::Ffn,
        _ => return 1.0,
    };
    let layer = layer.map(|l| &spec.layers[l]);
    let added = layer.filter(|layer| !layer.is_deferred(sublayer));
    added.map_or(1.0, |layer| layer.residual_scale)
}

/// What a step reads and does not change.
pub(super) struct StepParts<'a> {
    pub(super) weights: &'a GpuWeights,
    pub(super) kernels: &'a Kernels,
    pub(super) layout: &'a Layout,
    pub(super) vectors: &'a Vectors,
    pub(super) tables: &'a StepTables,
    pub(super) ropes: &'a RopeTables,
    /// Where keys and values of a layer are, the buffers of its group, and words of a block.
    pub(super) kv: &'a dyn Fn(usize) -> KvOfLayer,
    /// Buffers without keys and values of a layer.
    pub(super) bindings: Bindings,
    /// Buffers with recurrent states in the place of keys and values.
    pub(super) state_bindings: Bindings,
    /// The first float of the state of a recurrent layer in a block.
    pub(super) state_at: &'a dyn Fn(usize) -> usize,
}

/// Keys and values that a layer reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvOfLayer {
    pub(super) place: KvLayerPlace,
    pub(super) bindings: Bindings,
    pub(super) block_words: u32,
}

impl KvOfLayer {
    /// How keys and values are held.
    fn types(&self, a: &Attention) -> Option<[GpuKv; 2]> {
        kv_of(a, [self.place.k.1, self.place.v.1])
    }
}

/// The first element of the value in a key, where keys are the values.
fn value_from(a: &Attention) -> Option<u32> {
    a.latent().map(|_| a.d_rotatable() as u32)
}

/// A step, as far as it is recorded.
pub(super) struct Recorded<'a> {
    pub(super) parts: &'a StepParts<'a>,
    pub(super) n_rows: u32,
    pub(super) dispatches: Vec<Dispatch>,
}

/// The rows of activations that a function of values makes.
pub(super) struct Made {
    pub(super) function: RowFunction,
    /// First word, width and number of the rows of values.
    pub(super) x: u32,
    pub(super) d: usize,
    pub(super) n_rows: u32,
}

/// Products of rows with a matrix.
#[derive(Clone, Copy)]
pub(super) struct RowProduct {
    pub(super) acts: Acts,
    pub(super) out: u32,
    pub(super) end: ProductEnd,
    pub(super) n_rows: u32,
}

/// Products of all slots of experts with a matrix of each.
#[derive(Clone, Copy)]
pub(super) struct SlotProduct {
    pub(super) slots: GroupSlots,
    pub(super) acts: Acts,
    /// Slots that share a row of activations.
    pub(super) n_shared: usize,
    pub(super) out: u32,
}

/// The last product of a sublayer.
pub(super) struct Leaving {
    pub(super) sublayer: Sublayer,
    pub(super) role: Role,
    pub(super) acts: Acts,
}

impl<'a> Recorded<'a> {
    /// An empty step of so many rows.
    pub(super) fn new(parts: &'a StepParts<'a>, n_rows: usize) -> Self {
        Self {
            parts,
            n_rows: n_rows as u32,
            dispatches: Vec::new(),
        }
    }

    pub(super) fn spec(&self) -> &'a ModelSpec {
        self.parts.weights.model().spec()
    }

    /// All layers of the part.
    pub(super) fn layers(&mut self) {
        let spec = self.spec();
        for l in self.parts.weights.part().layers.clone() {
            self.layer(l, &spec.layers[l]);
        }
    }

    fn layer(&mut self, l: usize, layer: &LayerSpec) {
        let left = self.mix(l, &layer.mixer).map(|role| Leaving {
            sublayer: Sublayer::Mixer,
            role,
            acts: self.parts.layout.mixed,
        });
        let is_parallel = matches!(layer.wiring, Wiring::Parallel { .. });
        if let Some(leaving) = left.as_ref().filter(|_| !is_parallel) {
            self.leave(l, leaving);
        }
        match &layer.ffn {
            Ffn::Gated(mlp) => self.gated_mlp(l, mlp),
            Ffn::Plain(mlp) => self.plain_mlp(l, mlp),
            Ffn::Moe(m) => self.moe(l, m),
            Ffn::MlpAndMoe(both) => self.mlp_and_moe(l, both),
            Ffn::None | Ffn::Sparse(_) => {}
        }
        // Both read the same residual; the result of the mixer is added last.
        if let Some(leaving) = left.filter(|_| is_parallel) {
            self.leave(l, &leaving);
        }
        if let Some(embed) = &self.spec().layer_embed {
            self.layer_embedding(l, embed);
        }
        if let Some(at) = self.parts.vectors.get(Role::LayerOutputScale, Some(l)) {
            let d = self.spec().d_model;
            self.multiply(self.parts.layout.x, d, RowFactor::Weight(at));
        }
    }

    /// What the last matrix of a mixer reads, and the matrix, if its product is still to be added.
    fn mix(&mut self, l: usize, mixer: &Mixer) -> Option<Role> {
        match mixer {
            Mixer::None => None,
            Mixer::Attention(a) => {
                self.attention(l, a);
                Some(Role::AttnOutput)
            }
            Mixer::ShortConv(conv) => {
                self.short_conv(l, conv);
                Some(Role::ShortconvOutProj)
            }
            Mixer::DeltaNet(net) => {
                self.delta_net(l, net);
                Some(net.out_role())
            }
            Mixer::Mamba(mamba) => {
                self.mamba(l, mamba);
                Some(Role::SsmOut)
            }
            Mixer::Mamba2(mamba) => {
                self.mamba2(l, mamba);
                Some(Role::SsmOut)
            }
            Mixer::AttentionAndMamba2(both) => {
                self.attention_and_mamba2(l, both);
                None
            }
        }
    }

    /// Rows of values times a factor.
    pub(super) fn multiply(&mut self, x: u32, d: usize, by: RowFactor) {
        let rows = MultiplyRows {
            n_rows: self.n_rows,
            d: d as u32,
            x,
            by,
        };
        let StepParts {
            kernels, bindings, ..
        } = *self.parts;
        self.dispatches
            .push(rows.dispatch(kernels.multiply, bindings));
    }

    /// Results of heads, as codes.
    pub(super) fn attention(&mut self, l: usize, a: &Attention) {
        if let KvSource::Latent(latent) = &a.kv {
            return self.latent_attention(LatentLayer { l, a, latent });
        }
        let layout = self.parts.layout;
        let places = [layout.q, layout.k, layout.v, layout.gates];
        let products: Vec<_> = OF_MIXER.into_iter().zip(places).collect();
        self.enter(l, Sublayer::Mixer, &products);
        self.products(l, &products);
        self.norm_whole_rows(l, a);
        let kv = (self.parts.kv)(l);
        self.store_heads(l, a, &kv);
        self.attend(l, a, &kv);
        if let Some(neighbours) = a.d_q().checked_div(n_gates(a)) {
            let by = RowFactor::Values {
                at: layout.gates,
                n: neighbours as u32,
                activation: Some(RowActivation::Sigmoid),
            };
            self.multiply(layout.heads, a.d_q(), by);
        }
        let function = match self.spec().layers[l].sub(Sublayer::Mixer) {
            Some((norm, role)) => RowFunction::Norm(self.row_norm(norm, [role, role], Some(l))),
            None => RowFunction::Copy,
        };
        let made = Made {
            function,
            x: layout.heads,
            d: a.d_q(),
            n_rows: self.n_rows,
        };
        self.make(&made, layout.mixed, &[(Role::AttnOutput, Some(l))]);
    }

    /// Norms over all heads of a row, of queries and of keys, where a model has such.
    fn norm_whole_rows(&mut self, l: usize, a: &Attention) {
        let QkNorm::Whole { eps } = a.qk_norm else {
            return;
        };
        let layout = self.parts.layout;
        let rows = [
            (Role::AttnQNorm, layout.q, a.d_q()),
            (Role::AttnKNorm, layout.k, a.d_kv()),
        ];
        for (role, x, d) in rows {
            let Some(weight) = self.parts.vectors.get(role, Some(l)) else {
                continue;
            };
            let normed = AddNormed {
                norm: RowNorm::Rms { weight, eps },
                normed: Normed::Alone,
                n_rows: self.n_rows,
                d: d as u32,
                x,
                y: x,
                factor: 0.0,
                n_weights: 1,
            };
            self.add(&normed);
        }
    }

    pub(super) fn store_heads(&mut self, l: usize, a: &Attention, kv: &KvOfLayer) {
        let Some([keys, values]) = kv.types(a) else {
            return;
        };
        let tables = self.parts.tables;
        let rope = self.parts.ropes.of_layer(l);
        let heads = StoreHeads {
            records: self.parts.vectors.layer(l).records,
            n_records: match a.kv {
                KvSource::Own { .. } => 3,
                KvSource::Latent(_) => 2,
                KvSource::Layer(_) => 1,
            },
            n_heads: a.n_heads as u32,
            d_head: a.d_head as u32,
            n_rows: self.n_rows,
            keys,
            values,
            block_len: BLOCK_LEN as u32,
            rope: rope.map_or(0, |(table, _)| tables.rope(table)),
            factors: tables.factors(a),
            slots: tables.slots(l),
            value_from: value_from(a),
        };
        let kernel = self.parts.kernels.heads;
        self.dispatches.push(heads.dispatch(kernel, kv.bindings));
    }

    /// Attention of some rows at a time, as many as there is room for partial results.
    pub(super) fn attend(&mut self, l: usize, a: &Attention, kv: &KvOfLayer) {
        let room = self.parts.layout.n_partials as u32;
        let mut first = 0;
        while first < self.n_rows {
            let of_chunk = (a.n_heads * (2 + a.d_head)) as u32;
            let mut n = self.n_rows - first;
            let tables = self.parts.tables;
            let all = tables.n_chunks(l, first..first + n, CHUNK);
            n = (room / (of_chunk * all)).clamp(1, n);
            self.attend_rows(l, a, kv, first..first + n);
            first += n;
        }
    }

    fn attend_rows(&mut self, l: usize, a: &Attention, kv: &KvOfLayer, rows: Range<u32>) {
        let Some(types) = kv.types(a) else {
            return;
        };
        let StepParts {
            layout,
            vectors,
            tables,
            kernels,
            ..
        } = *self.parts;
        let constants = vectors.layer(l);
        let d_q = a.d_q() as u32;
        let attend = Attend {
            q: layout.q + rows.start * d_q,
            n_rows: rows.end - rows.start,
            rows: tables.rows(l) + 4 * rows.start,
            n_heads: a.n_heads as u32,
            n_kv_heads: a.n_kv_heads as u32,
            d_head: a.d_head as u32,
            block_len: BLOCK_LEN as u32,
            block_words: kv.block_words,
            k: (kv.place.k.0 / 4) as u32,
            v: (kv.place.v.0 / 4) as u32,
            partials: layout.partials,
            n_chunks: tables.n_chunks(l, rows.clone(), CHUNK),
            scale: a.scale,
            softcap: a.softcap,
            slopes: constants.slopes,
            value_from: value_from(a),
        };
        let mut merge = attend.merge(types[1], layout.heads + rows.start * d_q);
        merge.sinks = vectors.get(Role::AttnSinks, Some(l));
        merge.powers = constants.results;
        let kernel = kernels.attention(AttentionKind {
            kv: types,
            is_latent: a.latent().is_some(),
        });
        self.dispatches.push(attend.dispatch(kernel, kv.bindings));
        self.dispatches
            .push(merge.dispatch(kernels.merge, kv.bindings));
    }

    fn gated_mlp(&mut self, l: usize, mlp: &Mlp) {
        self.hidden_of_gated(l, mlp);
        self.leave_mlp(l);
    }

    /// The hidden layer of a gated MLP, as codes.
    pub(super) fn hidden_of_gated(&mut self, l: usize, mlp: &Mlp) {
        let layout = self.parts.layout;
        let products = [(Role::FfnGate, layout.gate), (Role::FfnUp, layout.up)];
        let up = layout.up;
        let activation = activation(mlp.activation);
        let function = match self.sub_norm(l) {
            None => RowFunction::Gate { activation, up },
            Some(norm) => RowFunction::GateNormed {
                activation,
                up,
                norm,
            },
        };
        self.hidden(l, mlp, &products, function);
    }

    fn plain_mlp(&mut self, l: usize, mlp: &Mlp) {
        let products = [(Role::FfnUp, self.parts.layout.gate)];
        let activation = activation(mlp.activation);
        let function = match self.sub_norm(l) {
            None => RowFunction::Activate(activation),
            Some(norm) => RowFunction::ActivateNormed(activation, norm),
        };
        self.hidden(l, mlp, &products, function);
        self.leave_mlp(l);
    }

    /// The norm of the hidden layer of an MLP, if it has one.
    fn sub_norm(&self, l: usize) -> Option<RowNorm> {
        let (norm, role) = self.spec().layers[l].sub(Sublayer::Ffn)?;
        Some(self.row_norm(norm, [role, role], Some(l)))
    }

    fn hidden(&mut self, l: usize, mlp: &Mlp, products: &[(Role, u32)], function: RowFunction) {
        let layout = self.parts.layout;
        self.enter(l, Sublayer::Ffn, products);
        self.products(l, products);
        let made = Made {
            function,
            x: layout.gate,
            d: mlp.d_ff,
            n_rows: self.n_rows,
        };
        self.make(&made, layout.hidden, &[(Role::FfnDown, Some(l))]);
    }

    /// The last product of an MLP.
    fn leave_mlp(&mut self, l: usize) {
        let leaving = Leaving {
            sublayer: Sublayer::Ffn,
            role: Role::FfnDown,
            acts: self.parts.layout.hidden,
        };
        self.leave(l, &leaving);
    }

    /// The norm of the input of a sublayer, if it has one.
    pub(super) fn pre_norm(&self, l: usize, sublayer: Sublayer) -> Option<RowNorm> {
        let (norm, roles) = self.spec().layers[l].pre(sublayer)?;
        Some(self.row_norm(norm, roles, Some(l)))
    }

    /// The input of a sublayer for its first matrices.
    pub(super) fn enter(&mut self, l: usize, sublayer: Sublayer, products: &[(Role, u32)]) {
        let roles: Vec<_> = products.iter().map(|(role, _)| *role).collect();
        self.enter_by(l, self.pre_norm(l, sublayer), &roles);
    }

    /// The residual behind a norm, if there is one, for some matrices.
    pub(super) fn enter_by(&mut self, l: usize, norm: Option<RowNorm>, roles: &[Role]) {
        let layout = self.parts.layout;
        let made = Made {
            function: norm.map_or(RowFunction::Copy, RowFunction::Norm),
            x: layout.x,
            d: self.spec().d_model,
            n_rows: self.n_rows,
        };
        let keys: Vec<_> = roles.iter().map(|role| (*role, Some(l))).collect();
        self.make(&made, layout.input, &keys);
    }

    /// Products of a sublayer's input with matrices, those that the layer has, and where their
    /// results are.
    pub(super) fn products(&mut self, l: usize, products: &[(Role, u32)]) {
        let input = self.parts.layout.input;
        let roles: Vec<_> = products.iter().map(|(role, _)| *role).collect();
        let all: HashMap<Role, u32> = products.iter().copied().collect();
        for run in self.parts.weights.runs(l, &roles) {
            match run[..] {
                [role] => self.product((role, Some(l)), input, all[&role], ProductEnd::Set),
                _ => self.joined(l, &run, &all),
            }
        }
    }

    /// Products of a sublayer's input with several matrices in one run.
    fn joined(&mut self, l: usize, roles: &[Role], places: &HashMap<Role, u32>) {
        let StepParts {
            weights,
            layout,
            kernels,
            bindings,
            ..
        } = *self.parts;
        let matrices = roles.iter().filter_map(|role| {
            let matrix = weights.matrix((*role, Some(l)))?;
            Some((matrix, matrix.slices.first()?, places[role]))
        });
        let matrices: Vec<_> = matrices.collect();
        let Some(&(first, slice, _)) = matrices.first() else {
            return;
        };
        let mut parts = [None; 3];
        for (part, (matrix, slice, out)) in parts.iter_mut().zip(&matrices) {
            *part = Some(JoinedPart {
                w: slice.w,
                n_out: matrix.d_out as u32,
                bias: slice.bias,
                out: *out,
            });
        }
        let joined = JoinedProducts {
            format: first.format,
            d_in: first.d_in as u32,
            n_rows: self.n_rows,
            x: layout.input.at(first.format.acts()),
            parts,
        };
        let (way, kernel) = kernels.joined(first.format, self.n_rows);
        let bindings = Bindings {
            weights: weights.arena(slice.arena),
            ..bindings
        };
        self.dispatches.push(joined.dispatch(way, kernel, bindings));
        for role in roles {
            let product = RowProduct {
                acts: layout.input,
                out: places[role],
                end: ProductEnd::Set,
                n_rows: self.n_rows,
            };
            self.adapt((*role, Some(l)), &product, 0);
        }
    }

    /// `x += residual_scale * post(W act + b)`, or `x = norm(x + residual_scale * (W act + b))`.
    pub(super) fn leave(&mut self, l: usize, leaving: &Leaving) {
        let Leaving {
            sublayer,
            role,
            acts,
        } = *leaving;
        let layout = self.parts.layout;
        let key = (role, Some(l));
        let layer = &self.spec().layers[l];
        let added = self.normed_result(l, sublayer);
        // What adapters add to a result that is not added at once is multiplied with it.
        let is_adapted = layer.is_deferred(sublayer) && !self.readers(key).is_empty();
        if added.is_none() && !is_adapted {
            let end = ProductEnd::Add(layer.residual_scale);
            return self.product(key, acts, layout.x, end);
        }
        self.product(key, acts, layout.y, ProductEnd::Set);
        match added {
            Some(added) => self.add(&added),
            None => self.add_plain(layout.y, layer.residual_scale),
        }
    }

    /// How the result of a sublayer, `y`, is added, if a norm follows.
    pub(super) fn normed_result(&self, l: usize, sublayer: Sublayer) -> Option<AddNormed> {
        let layout = self.parts.layout;
        let layer = &self.spec().layers[l];
        let post = layer.post(sublayer);
        let post = post.map(|(norm, role)| (Normed::Result, norm, [role, role]));
        let sum = layer.sum(sublayer);
        let sum = sum.map(|(norm, roles)| (Normed::Sum, norm, roles));
        let (normed, norm, roles) = post.or(sum)?;
        Some(AddNormed {
            norm: self.row_norm(norm, roles, Some(l)),
            normed,
            n_rows: self.n_rows,
            d: self.spec().d_model as u32,
            x: layout.x,
            y: layout.y,
            factor: layer.residual_scale,
            n_weights: 1,
        })
    }

    pub(super) fn add(&mut self, added: &AddNormed) {
        let StepParts {
            kernels, bindings, ..
        } = *self.parts;
        self.dispatches.push(added.dispatch(kernels.add, bindings));
    }

    pub(super) fn row_norm(&self, norm: Norm, roles: [Role; 2], layer: Option<usize>) -> RowNorm {
        let at = |role| self.parts.vectors.get(role, layer);
        let weight = at(roles[0]).unwrap_or_default();
        match norm {
            Norm::Rms { eps } => RowNorm::Rms { weight, eps },
            Norm::Layer { eps } => RowNorm::Layer {
                weight,
                bias: at(roles[1]),
                eps,
            },
            Norm::LayerNoBias { eps } => RowNorm::Layer {
                weight,
                bias: None,
                eps,
            },
        }
    }

    /// Activations in the layouts of these matrices, and of those of adapters.
    pub(super) fn make(&mut self, made: &Made, acts: Acts, keys: &[MatrixKey]) {
        let weights = self.parts.weights;
        let layouts = keys.iter().filter_map(|key| weights.acts_of(*key));
        let adapters = keys.iter().flat_map(|key| self.readers(*key));
        let layouts: Vec<_> = layouts.chain(adapters).collect();
        self.make_in(made, acts, &layouts);
    }

    pub(super) fn make_in(&mut self, made: &Made, acts: Acts, layouts: &[ActLayout]) {
        let mut out = [None; 3];
        for &layout in layouts {
            out[Quantize::slot(layout)] = Some(acts.at(layout));
        }
        let quantize = Quantize {
            function: made.function,
            n_rows: made.n_rows,
            d: made.d as u32,
            x: made.x,
            out,
        };
        let kernel = self.parts.kernels.quantize;
        let bindings = self.parts.bindings;
        self.dispatches.push(quantize.dispatch(kernel, bindings));
    }

    /// A product of all rows, and what adapters add to it.
    pub(super) fn product(&mut self, key: MatrixKey, acts: Acts, out: u32, end: ProductEnd) {
        let product = RowProduct {
            acts,
            out,
            end,
            n_rows: self.n_rows,
        };
        let Some(matrix) = self.parts.weights.matrix(key) else {
            return;
        };
        self.multiply_rows(matrix, &product);
        self.adapt(key, &product, 0);
    }

    pub(super) fn multiply_rows(&mut self, matrix: &GpuMatrix, of: &RowProduct) {
        let RowProduct {
            acts,
            out,
            end,
            n_rows,
        } = *of;
        let (way, kernel) = self.parts.kernels.product(matrix.format, n_rows);
        for slice in &matrix.slices {
            let product = Product {
                format: matrix.format,
                w: slice.w,
                n_out: slice.rows.len() as u32,
                d_in: matrix.d_in as u32,
                scale: matrix.scale,
                bias: slice.bias,
                n_rows,
                x: acts.at(matrix.format.acts()),
                out: out + slice.rows.start as u32,
                d_out: matrix.d_out as u32,
                end,
            };
            let bindings = Bindings {
                weights: self.parts.weights.arena(slice.arena),
                ..self.parts.bindings
            };
            self.dispatches
                .push(product.dispatch(way, kernel, bindings));
        }
    }

    /// The logits of those of the rows `wanted`, in their order, before they are scaled and capped.
    pub(super) fn head_of(&mut self, wanted: &[usize], which: Range<usize>) {
        let rows = &wanted[which.clone()];
        if rows.is_empty() {
            return;
        }
        let spec = self.spec();
        let layout = self.parts.layout;
        let norm = spec.head.norm;
        let roles = [Role::OutputNorm, Role::OutputNormBias];
        let function = match norm {
            Some(norm) => RowFunction::Norm(self.row_norm(norm, roles, None)),
            None => RowFunction::Copy,
        };
        let key = (Role::Output, None);
        let mut n_before = 0;
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let made = Made {
                function,
                x: layout.x + (run[0] * spec.d_model) as u32,
                d: spec.d_model,
                n_rows: run.len() as u32,
            };
            let acts = layout.input.behind(n_before, spec.d_model);
            self.make(&made, acts, &[key]);
            n_before += run.len();
        }
        let Some(matrix) = self.parts.weights.matrix(key) else {
            return;
        };
        let product = RowProduct {
            acts: layout.input,
            out: layout.logits,
            end: ProductEnd::Set,
            n_rows: rows.len() as u32,
        };
        self.multiply_rows(matrix, &product);
        self.adapt(key, &product, which.start as u32);
    }
}

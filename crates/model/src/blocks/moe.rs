//! Mixture of experts: a router chooses a few MLPs for every position.
//!
//! ```text
//! h = pre(x)
//! p = softmax(Wr h + br), or sigmoid                              two regions
//! (e, w)_1..k = the k experts of largest p + b, and their p       serial; selection.rs
//! y_s = Wdown_s (act(Wgate_s h) * (Wup_s h)), g = Ws h            four regions: a shared expert
//! y_i = Wdown_e (act(Wgate_e h) * (Wup_e h)), with biases         four regions per group
//! x += post(w_1 y_1 + ... + w_k y_k + bs + sigmoid(g) y_s)        one region; residual.rs
//! ```
//! `bs` is a bias that some have. Experts without gates compute `act(Wup_e h)`. A shared expert
//! without a gate adds `y_s`. Where weights are of inputs, expert `e_i` reads `w_i h`, and its
//! result is added as it is. A router with a norm of its own reads `norm(x) / sqrt(d_model)`
//! instead of `h`. Beside an MLP:
//!
//! ```text
//! z = Wdown (act(Wgate pre(x)) * (Wup pre(x)))                    four regions
//! y = w_1 y_1 + ... + w_k y_k, where h = pre_moe(x)
//! x += post(norm_mlp(z) + norm_moe(y))                            one region; residual.rs
//! ```
//! The rows of a batch are sorted by expert, so each expert is read once per batch, and a single
//! token reads its own experts only. All of them are requested when the router has chosen, and
//! computed in the order in which they arrive, after what every row uses. Results are stored until
//! all experts are done and then added in the order of each row's ranks, so that no bit depends on
//! that order or on the other rows of the batch.

use atta_kernels::{Activations, GatedGroups, Groups, Job, Layouts, Matrix, Store, math};
use atta_store::{Amount, Arrived, Projection, WeightGroup};

use super::{
    Normalize, Pass, Routing,
    mlp::{GatedMatrices, act, multiply_gated},
    routing::group_rows,
};
use crate::{
    Error, Phase, Role,
    adapters::{Adapted, Adapting},
    bind::Tensors,
    members::Products,
    spec::{
        Ffn, Gating, LayerSpec, Mlp, MlpAndMoe, ModelSpec, Moe, Norm, Presence, Sublayer,
        WeightedSide,
    },
};

/// Buffers of a mixture of experts during a layer; empty for a model without.
pub(crate) struct MoeScratch {
    /// `norm(x)`, `[n_rows, d_model]`.
    h: Vec<f32>,
    /// The gate of the shared expert before its sigmoid, `[n_rows]`.
    shared_gate: Vec<f32>,
    /// Results of the shared expert or of the MLP beside experts, `[n_rows, d_model]`.
    shared: Vec<f32>,
    /// Results of the experts, by place, `[n_rows * n_used, d_model]`.
    y: Vec<f32>,
    routing: Routing,
}

impl MoeScratch {
    pub(crate) fn new(spec: &ModelSpec, n_rows: usize) -> Self {
        let zeros = |d: usize| vec![0.0; n_rows * d];
        let [h, shared_gate, shared, y] = widths(spec).map(zeros);
        Self {
            h,
            shared_gate,
            shared,
            y,
            routing: Routing::new(spec, n_rows),
        }
    }

    /// Bytes of these buffers.
    pub(crate) fn bytes(spec: &ModelSpec, n_rows: usize) -> u64 {
        let per_row: u64 = widths(spec).iter().map(|&d| 4 * d as u64).sum();
        per_row
            .saturating_mul(n_rows as u64)
            .saturating_add(Routing::bytes(spec, n_rows))
    }

    /// Rows of activations that a step of `n_rows` rows needs.
    pub(crate) fn n_act_rows(spec: &ModelSpec, n_rows: usize) -> usize {
        group_rows(spec, n_rows)
    }
}

/// Gate, up and down of the shared expert.
const SHARED: [Role; 3] = [Role::FfnGateShexp, Role::FfnUpShexp, Role::FfnDownShexp];

/// Gate, up and down of an MLP beside experts.
const DENSE: [Role; 3] = [Role::FfnGate, Role::FfnUp, Role::FfnDown];

/// The matrices of the shared expert that are multiplied with `h`; the last one is its gate.
const SHARED_INPUTS: [Role; 3] = [Role::FfnGateShexp, Role::FfnUpShexp, Role::FfnGateInpShexp];

/// The matrices of the shared expert, if there is one, that are multiplied with `h`.
fn shared_inputs(m: &Moe) -> &'static [Role] {
    match &m.shared {
        None => &[],
        Some(shared) => {
            let first = usize::from(!m.has_gates);
            &SHARED_INPUTS[first..2 + usize::from(shared.is_gated)]
        }
    }
}

/// Elements per row of `h`, `shared_gate`, `shared` and `y`.
fn widths(spec: &ModelSpec) -> [usize; 4] {
    let (_, n_used) = spec.max_experts();
    let mut moes = spec.layers.iter().filter_map(LayerSpec::moe);
    let has_gate = moes.clone().any(Moe::has_shared_gate);
    let has_shared = moes.any(|m| m.shared.is_some());
    let mut ffns = spec.layers.iter().map(|layer| &layer.ffn);
    let has_mlp = ffns.any(|ffn| matches!(ffn, Ffn::MlpAndMoe(_)));
    let d_shared = if has_shared || has_mlp {
        spec.d_model
    } else {
        0
    };
    [
        if n_used > 0 { spec.d_model } else { 0 },
        usize::from(has_gate),
        d_shared,
        n_used * spec.d_model,
    ]
}

/// `x += residual_scale * moe(norm(x))` for layer `l`.
pub(crate) fn moe(p: &mut Pass<'_>, l: usize, m: &Moe) -> Result<(), Error> {
    let layer = &p.model.spec().layers[l];
    normalize(p, layer.pre(Sublayer::Ffn), p.model.layer(l));
    route(p, l, m)?;
    p.request_experts(l)?;
    if let Some(shared) = &m.shared {
        match m.has_gates {
            true => mlp_beside(p, l, &shared.mlp, SHARED)?,
            false => plain_beside(p, l, &shared.mlp)?,
        }
    }
    all_experts(p, MoeLayer { l, m })?;
    combine(p, l, m);
    p.add_deferred_if_due(l, Sublayer::Ffn);
    Ok(())
}

/// `x += residual_scale * post(norm_mlp(mlp(pre(x))) + norm_moe(moe(pre_moe(x))))` for layer `l`.
pub(crate) fn mlp_and_moe(p: &mut Pass<'_>, l: usize, both: &MlpAndMoe) -> Result<(), Error> {
    let t = p.model.layer(l);
    let norm = Norm::Rms { eps: both.eps };
    normalize(p, Some((norm, [Role::PreFfwNorm2; 2])), t);
    route(p, l, &both.moe)?;
    p.request_experts(l)?;
    p.enter(l, Sublayer::Ffn, &DENSE[..2]);
    mlp_beside(p, l, &both.mlp, DENSE)?;
    let m = &both.moe;
    all_experts(p, MoeLayer { l, m })?;
    combine(p, l, &both.moe);
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let [mlp_norm, moe_norm] = [Role::PostFfwNorm1, Role::PostFfwNorm2].map(|role| t.vector(role));
    p.pool.for_each_row(&mut s.moe.shared[..n * d], d, |_, z| {
        kernels.rms_norm_inplace(z, mlp_norm, both.eps);
    });
    let shared = &s.moe.shared;
    p.pool.for_each_row(&mut s.y[..n * d], d, |row, y| {
        kernels.rms_norm_inplace(y, moe_norm, both.eps);
        kernels.add_assign(y, &shared[row * d..(row + 1) * d]);
    });
    p.add_deferred_if_due(l, Sublayer::Ffn);
    Ok(())
}

/// `h = norm(x)`.
fn normalize(p: &mut Pass<'_>, pre: Option<(Norm, [Role; 2])>, t: &Tensors) {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let x = &s.x;
    p.pool.for_each_row(&mut s.moe.h[..n * d], d, |row, h| {
        let x = &x[row * d..(row + 1) * d];
        match pre {
            Some((norm, roles)) => norm.apply(kernels, x, t.affine(roles), h),
            None => h.copy_from_slice(x),
        }
    });
}

impl Pass<'_> {
    /// Begins to read the experts that some row uses.
    fn request_experts(&self, l: usize) -> Result<(), Error> {
        let request = self.s.moe.routing.request(self.rows.len());
        Ok(self.model.weights().request_experts(l, &request)?)
    }
}

/// A layer with experts.
#[derive(Clone, Copy)]
struct MoeLayer<'a> {
    l: usize,
    m: &'a Moe,
}

/// The results of all experts that some row uses, in the order in which they arrive.
fn all_experts(p: &mut Pass<'_>, layer: MoeLayer<'_>) -> Result<(), Error> {
    let mut experts = p.s.moe.routing.take_experts();
    let done = as_they_arrive(p, layer, &mut experts);
    p.s.moe.routing.put_back(experts);
    done
}

fn as_they_arrive(
    p: &mut Pass<'_>,
    layer: MoeLayer<'_>,
    mut wanted: &mut [u32],
) -> Result<(), Error> {
    let most = p.s.moe.routing.most();
    while !wanted.is_empty() {
        p.observer.enter(Phase::Weights);
        // Members gather the results of the same experts at the same time.
        let in_order = p.products.has_members().then(|| most.min(wanted.len()));
        let n_asked = in_order.unwrap_or(wanted.len());
        let asked = &mut wanted[..n_asked];
        let least = in_order.unwrap_or(1);
        let amount = Amount { least, most };
        let arrived = p.model.weights().arrived_experts(layer.l, asked, amount)?;
        let n = arrived.ids.len();
        let mut first = 0;
        while first < n {
            first += experts(p, layer, &arrived, first)?;
        }
        drop(arrived);
        wanted = &mut wanted[n..];
    }
    Ok(())
}

/// `p = softmax(Wr h + br)`, or sigmoid; the choice of experts, and the gate of the shared one.
fn route(p: &mut Pass<'_>, l: usize, m: &Moe) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let shared = shared_inputs(m);
    let layouts = t.layouts(&[Role::FfnGateInp]) | t.layouts(shared);
    fill_router_inputs(p, l, m, layouts);
    p.observe_inputs(l, &[Role::FfnGateInp]);
    p.observe_inputs(l, shared);
    p.each_chunk(WeightGroup::Layer(l, Projection::Router), |p, chunk| {
        let MoeScratch {
            routing,
            shared_gate,
            ..
        } = &mut p.s.moe;
        let job = |role, bias, out| Job {
            w: t.matrix(role, chunk),
            bias,
            out,
            mode: Store::Set,
        };
        let out = &mut routing.probs[..n * m.n_experts];
        let logits = job(Role::FfnGateInp, t.vector_opt(Role::FfnGateInpBias), out);
        p.products.matmul(&p.s.act, [logits])?;
        if m.has_shared_gate() {
            let gate = job(Role::FfnGateInpShexp, None, &mut shared_gate[..n]);
            p.products.matmul(&p.s.act, [gate])?;
        }
        Ok(())
    })?;
    adapt_router(p, l, m);
    weigh_experts(p, m);
    let routing = &mut p.s.moe.routing;
    routing.choose(m, t.vector_opt(Role::ExpProbsBias), n);
    Ok(())
}

/// Adds the adapters' parts to the router's logits and to the gate of the shared expert.
fn adapt_router(p: &mut Pass<'_>, l: usize, m: &Moe) {
    let n = p.rows.len();
    let s = &mut *p.s;
    let logits = &mut s.moe.routing.probs[..n * m.n_experts];
    p.adapting
        .add(Adapted::of_layer(l, Role::FfnGateInp, &s.act, logits));
    if m.has_shared_gate() {
        let gate = &mut s.moe.shared_gate[..n];
        p.adapting
            .add(Adapted::of_layer(l, Role::FfnGateInpShexp, &s.act, gate));
    }
}

/// From the router's logits to weights of experts.
fn weigh_experts(p: &mut Pass<'_>, m: &Moe) {
    let n = p.rows.len() * m.n_experts;
    let d = p.model.spec().d_model;
    let gate: fn(&mut [f32]) = match m.gating {
        Gating::Softmax => softmax,
        Gating::Sigmoid => sigmoid,
        Gating::SparseMixer { .. } => |_| {},
    };
    let scale = m.router_norm.map(|_| 1.0 / (d as f32).sqrt());
    let probs = &mut p.s.moe.routing.probs[..n];
    p.pool.for_each_row(probs, m.n_experts, |_, p| {
        if let Some(scale) = scale {
            p.iter_mut().for_each(|p| *p *= scale);
        }
        gate(p);
    });
}

/// `act` = what the router reads.
fn fill_router_inputs(p: &mut Pass<'_>, l: usize, m: &Moe, layouts: Layouts) {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let x = &s.x;
    let h = &s.moe.h;
    s.act.fill(kernels, p.pool, (n, d), layouts, |row, out| {
        let row = row * d..(row + 1) * d;
        match m.router_norm {
            Some(eps) => kernels.rms_norm(&x[row], t.vector(Role::FfnGateInpScale), eps, out),
            None => out.copy_from_slice(&h[row]),
        }
    });
}

fn softmax(p: &mut [f32]) {
    let max = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    p.iter_mut().for_each(|p| *p = math::exp(*p - max));
    let sum: f32 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= sum);
}

fn sigmoid(p: &mut [f32]) {
    p.iter_mut().for_each(|p| *p = math::sigmoid(*p));
}

/// The result of an MLP that every row uses, of gate, up and down, into `shared`; its input is in
/// `act`.
fn mlp_beside(
    p: &mut Pass<'_>,
    l: usize,
    mlp: &Mlp,
    [gate, up, down]: [Role; 3],
) -> Result<(), Error> {
    let roles = [gate, up];
    let bias = [None; 2];
    multiply_gated(p, l, mlp, GatedMatrices { roles, bias })?;
    project_beside(p, l, mlp.d_ff, down, |_| ())
}

/// As [`mlp_beside`], of a shared expert without a gate in its MLP.
fn plain_beside(p: &mut Pass<'_>, l: usize, mlp: &Mlp) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let job = Job {
            w: t.matrix(Role::FfnUpShexp, chunk),
            bias: None,
            out: &mut p.s.ff[..n * mlp.d_ff],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })?;
    let s = &mut *p.s;
    let out = &mut s.ff[..n * mlp.d_ff];
    p.adapting
        .add(Adapted::of_layer(l, Role::FfnUpShexp, &s.act, out));
    let activation = act(mlp.activation);
    project_beside(p, l, mlp.d_ff, Role::FfnDownShexp, |hidden| {
        kernels.activate(activation, hidden);
    })
}

/// `shared = Wdown finish(hidden)`.
fn project_beside(
    p: &mut Pass<'_>,
    l: usize,
    d_ff: usize,
    down: Role,
    finish: impl Fn(&mut [f32]) + Sync,
) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let ff = &s.ff;
    let layout = t.layouts(&[down]);
    let row = |t: usize, out: &mut [f32]| {
        out.copy_from_slice(&ff[t * d_ff..(t + 1) * d_ff]);
        finish(out);
    };
    s.act.fill(p.kernels, p.pool, (n, d_ff), layout, row);
    p.observe_inputs(l, &[down]);
    p.each_chunk(WeightGroup::Layer(l, Projection::Down), |p, chunk| {
        let w = t.matrix(down, chunk);
        let out = &mut p.s.moe.shared[..n * d];
        let job = Job {
            w,
            bias: None,
            out,
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })?;
    let s = &mut *p.s;
    let out = &mut s.moe.shared[..n * d];
    p.adapting.add(Adapted::of_layer(l, down, &s.act, out));
    Ok(())
}

/// The matrices of experts that read the input: up, and gate if there are gates.
const INPUTS: [Role; 2] = [Role::FfnUpExps, Role::FfnGateExps];

/// The weights of a group of experts.
struct GroupWeights<'a> {
    m: &'a Moe,
    t: &'a Tensors,
    arrived: &'a Arrived<'a>,
    /// The first of those that arrived that is in the group.
    first: usize,
    /// The rows of expert `k` are those from `bounds[k]` to `bounds[k + 1]`.
    bounds: &'a [usize],
    l: usize,
    routing: &'a Routing,
}

impl<'a> GroupWeights<'a> {
    /// A matrix of expert `k` of the group, and its bias.
    fn of(&self, k: usize, role: Role, bias: Role) -> (Matrix<'a>, Option<&'a [f32]>) {
        let k = self.first + k;
        let e = self.arrived.ids[k] as usize;
        let w = self.t.expert(role, e, k, &self.arrived.chunk);
        (w, self.t.expert_bias(bias, e, w.n_whole()))
    }

    /// Row `i` of the inputs of the group, of `h` of all rows.
    fn take_input(&self, h: &[f32], i: usize, out: &mut [f32]) {
        let place = self.bounds[0] + i;
        let h = &h[self.routing.row_at(place) * out.len()..][..out.len()];
        match self.m.weighted {
            WeightedSide::Output => out.copy_from_slice(h),
            WeightedSide::Input => scaled(h, self.routing.weight_at(place), out),
        }
    }

    /// `act(Wgate h) * (Wup h)`, or `Wup h` without gates.
    fn multiply_inputs(
        &self,
        products: &mut Products<'_>,
        adapting: &mut Adapting<'_>,
        h: &Activations,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let [up, gate] = INPUTS;
        if !self.m.has_gates {
            return self.multiply(products, adapting, up, h, out);
        }
        if !adapting.has(Some(self.l), &INPUTS) {
            return self.multiply_gated(products, h, out);
        }
        let mut ups = std::mem::take(&mut adapting.s.ups);
        let n = out.len();
        let done = self
            .multiply(products, adapting, gate, h, out)
            .and_then(|()| self.multiply(products, adapting, up, h, &mut ups[..n]));
        adapting.gate(&self.m.expert, out, &ups[..n]);
        adapting.s.ups = ups;
        done
    }

    /// The products with a matrix of each expert, and what adapters add to them.
    fn multiply(
        &self,
        products: &mut Products<'_>,
        adapting: &mut Adapting<'_>,
        role: Role,
        x: &Activations,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let bounds = self.bounds;
        let bias = match role {
            Role::FfnUpExps => Role::FfnUpExpsBias,
            Role::FfnGateExps => Role::FfnGateExpsBias,
            _ => Role::FfnDownExpsBias,
        };
        let w = &|k| self.of(k, role, bias);
        let all = Groups {
            bounds,
            w,
            out: &mut *out,
        };
        products.matmul_groups(x, all)?;
        let experts = &self.arrived.ids[self.first..];
        for (&expert, places) in experts.iter().zip(bounds.windows(2)) {
            let product = Adapted {
                expert: expert as usize,
                rows: places[0] - bounds[0]..places[1] - bounds[0],
                ..Adapted::of_layer(self.l, role, x, out)
            };
            adapting.add_at(product, |i| self.routing.row_at(bounds[0] + i));
        }
        Ok(())
    }

    /// `act(Wgate h) * (Wup h)` without adapters.
    fn multiply_gated(
        &self,
        products: &mut Products<'_>,
        h: &Activations,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let bounds = self.bounds;
        let up = &|k| self.of(k, Role::FfnUpExps, Role::FfnUpExpsBias);
        let gate = &|k| self.of(k, Role::FfnGateExps, Role::FfnGateExpsBias);
        let job = GatedGroups {
            bounds,
            gate,
            up,
            activation: act(self.m.expert.activation),
            out,
        };
        products.matmul_gated_groups(h, job)
    }
}

/// Computes the results of a group of the experts that arrived, from number `first` on. Returns how
/// many they are.
fn experts(
    p: &mut Pass<'_>,
    MoeLayer { l, m }: MoeLayer<'_>,
    arrived: &Arrived<'_>,
    first: usize,
) -> Result<usize, Error> {
    let d = p.model.spec().d_model;
    let d_ff = m.expert.d_ff;
    let s = &mut *p.s;
    let MoeScratch { h, y, routing, .. } = &mut s.moe;
    let group = routing.group(&arrived.ids[first..]);
    let routing = group.routing;
    let bounds = group.bounds();
    let places = group.places();
    let t = p.model.layer(l);
    p.products.begin(WeightGroup::Experts(l, group.experts), 0);
    let weights = GroupWeights {
        m,
        t,
        arrived,
        first,
        bounds,
        l,
        routing,
    };

    p.observer.enter(Phase::Other);
    let inputs = &INPUTS[..1 + usize::from(m.has_gates)];
    let layouts = t.layouts(inputs);
    s.act
        .fill(p.kernels, p.pool, (places.len(), d), layouts, |i, out| {
            weights.take_input(h, i, out)
        });
    group.observe_inputs(p.observer, l, inputs, &s.act);
    let out = &mut s.ff[..places.len() * d_ff];
    p.observer.enter(Phase::Matmul);
    weights.multiply_inputs(&mut p.products, &mut p.adapting, &s.act, out)?;

    p.observer.enter(Phase::Other);
    let ff = &s.ff;
    let kernels = p.kernels;
    let activation = act(m.expert.activation);
    let row = |i: usize, out: &mut [f32]| {
        out.copy_from_slice(&ff[i * d_ff..(i + 1) * d_ff]);
        if !m.has_gates {
            kernels.activate(activation, out);
        }
    };
    let layouts = t.layouts(&[Role::FfnDownExps]);
    s.act
        .fill(kernels, p.pool, (places.len(), d_ff), layouts, row);
    group.observe_inputs(p.observer, l, &[Role::FfnDownExps], &s.act);
    let out = &mut y[places.start * d..places.end * d];
    p.observer.enter(Phase::Matmul);
    weights.multiply(
        &mut p.products,
        &mut p.adapting,
        Role::FfnDownExps,
        &s.act,
        out,
    )?;
    Ok(group.experts.len())
}

/// `x += residual_scale * (w_1 y_1 + ... + w_k y_k + sigmoid(gate) * shared)`, in the order of
/// rank; or into `y`, if a norm follows. Weights of inputs are in the results already.
fn combine(p: &mut Pass<'_>, l: usize, m: &Moe) {
    let layer = &p.model.spec().layers[l];
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let s = &mut *p.s;
    let MoeScratch {
        shared_gate,
        shared,
        y,
        routing,
        ..
    } = &s.moe;
    let is_deferred = layer.is_deferred(Sublayer::Ffn);
    let bias = p.model.layer(l).vector_opt(Role::FfnDownBias);
    let (out, scale) = if is_deferred {
        (&mut s.y, 1.0)
    } else {
        (&mut s.x, layer.residual_scale)
    };
    p.observer.enter(Phase::Other);
    p.pool.for_each_row(&mut out[..n * d], d, |t, out| {
        if is_deferred {
            out.fill(0.0);
        }
        for (place, weight) in routing.of_row(t) {
            let factor = match m.weighted {
                WeightedSide::Output => scale * weight,
                WeightedSide::Input => scale,
            };
            add(out, factor, &y[place * d..(place + 1) * d]);
        }
        // Beside an MLP the bias is that of the MLP.
        if let Some(bias) = bias.filter(|_| m.sum_bias != Presence::Absent) {
            add(out, scale, bias);
        }
        if let Some(expert) = &m.shared {
            let factor = match expert.is_gated {
                true => scale * math::sigmoid(shared_gate[t]),
                false => scale,
            };
            add(out, factor, &shared[t * d..(t + 1) * d]);
        }
    });
}

/// `out = factor * x`.
fn scaled(x: &[f32], factor: f32, out: &mut [f32]) {
    out.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x);
}

/// `x += factor * y`.
fn add(x: &mut [f32], factor: f32, y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

//! Which tensors a model has: the only list of tensors in the program, derived from the spec.
//!
//! The loader binds exactly this list; a tensor that is missing, has another shape, or is in the file but not in the list
//! is an error. The oracle and (later) the converter and the planner read the same list.

use crate::spec::{Attention, Ffn, Mlp, ModelSpec, Moe, Presence, QkNorm};

/// What a tensor is for, in GGUF's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the variants are GGUF's tensor names, docs/glossary.md explains them")]
pub enum Role {
    TokenEmbd,
    OutputNorm,
    Output,
    RopeFreqs,
    AttnNorm,
    AttnQ,
    AttnQBias,
    AttnK,
    AttnKBias,
    AttnV,
    AttnVBias,
    AttnQNorm,
    AttnKNorm,
    AttnOutput,
    AttnOutputBias,
    FfnNorm,
    FfnGate,
    FfnGateBias,
    FfnUp,
    FfnUpBias,
    FfnDown,
    FfnDownBias,
    FfnGateInp,
    FfnGateExps,
    FfnUpExps,
    FfnDownExps,
    FfnGateInpShexp,
    FfnGateShexp,
    FfnUpShexp,
    FfnDownShexp,
}

impl Role {
    /// Number of roles, for tables that are indexed by role.
    pub const COUNT: usize = Role::FfnDownShexp as usize + 1;

    /// Where the bytes of the tensor belong.
    pub fn home(self) -> Home {
        match self {
            Role::TokenEmbd => Home::Embed,
            Role::Output => Home::Head,
            Role::AttnQ | Role::AttnK | Role::AttnV | Role::AttnOutput => Home::Attn,
            Role::FfnGate | Role::FfnUp | Role::FfnDown => Home::Ffn,
            Role::FfnGateInp | Role::FfnGateInpShexp => Home::Ffn,
            Role::FfnGateShexp | Role::FfnUpShexp | Role::FfnDownShexp => Home::Ffn,
            Role::FfnGateExps | Role::FfnUpExps | Role::FfnDownExps => Home::Experts,
            Role::OutputNorm
            | Role::RopeFreqs
            | Role::AttnNorm
            | Role::AttnQBias
            | Role::AttnKBias
            | Role::AttnVBias
            | Role::AttnQNorm
            | Role::AttnKNorm
            | Role::AttnOutputBias
            | Role::FfnNorm
            | Role::FfnGateBias
            | Role::FfnUpBias
            | Role::FfnDownBias => Home::Kept,
        }
    }

    /// The name of the tensor in GGUF files, without the prefix of its layer.
    pub fn name(self) -> &'static str {
        match self {
            Role::TokenEmbd => "token_embd.weight",
            Role::OutputNorm => "output_norm.weight",
            Role::Output => "output.weight",
            Role::RopeFreqs => "rope_freqs.weight",
            Role::AttnNorm => "attn_norm.weight",
            Role::AttnQ => "attn_q.weight",
            Role::AttnQBias => "attn_q.bias",
            Role::AttnK => "attn_k.weight",
            Role::AttnKBias => "attn_k.bias",
            Role::AttnV => "attn_v.weight",
            Role::AttnVBias => "attn_v.bias",
            Role::AttnQNorm => "attn_q_norm.weight",
            Role::AttnKNorm => "attn_k_norm.weight",
            Role::AttnOutput => "attn_output.weight",
            Role::AttnOutputBias => "attn_output.bias",
            Role::FfnNorm => "ffn_norm.weight",
            Role::FfnGate => "ffn_gate.weight",
            Role::FfnGateBias => "ffn_gate.bias",
            Role::FfnUp => "ffn_up.weight",
            Role::FfnUpBias => "ffn_up.bias",
            Role::FfnDown => "ffn_down.weight",
            Role::FfnDownBias => "ffn_down.bias",
            Role::FfnGateInp => "ffn_gate_inp.weight",
            Role::FfnGateExps => "ffn_gate_exps.weight",
            Role::FfnUpExps => "ffn_up_exps.weight",
            Role::FfnDownExps => "ffn_down_exps.weight",
            Role::FfnGateInpShexp => "ffn_gate_inp_shexp.weight",
            Role::FfnGateShexp => "ffn_gate_shexp.weight",
            Role::FfnUpShexp => "ffn_up_shexp.weight",
            Role::FfnDownShexp => "ffn_down_shexp.weight",
        }
    }
}

/// Where the bytes of a tensor belong: in which unit of weights, or on the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A vector, small and read by every token: decoded to f32 and kept.
    Kept,
    /// A matrix of the mixer of its layer.
    Attn,
    /// A matrix of the feed-forward block of its layer that every token needs.
    Ffn,
    /// A matrix for each expert of its layer, read by experts.
    Experts,
    /// The token embedding, read by rows.
    Embed,
    /// The output head, read by rows.
    Head,
}

/// One tensor that a model has or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorReq {
    /// What it is for.
    pub role: Role,
    /// Its layer; `None` for those of the whole model.
    pub layer: Option<usize>,
    /// Outermost first: `[d_out, d_in]` of a matrix, `[n_experts, d_out, d_in]` of those of experts, `[d]` of a vector.
    pub shape: Vec<usize>,
    /// Never [`Presence::Absent`]: what must not be there is not in the list.
    pub presence: Presence,
}

impl TensorReq {
    /// Its name in GGUF files.
    pub fn name(&self) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{}", self.role.name()),
            None => self.role.name().to_owned(),
        }
    }
}

impl ModelSpec {
    /// Every tensor of the model, in the order in which the forward pass meets them.
    pub fn tensors(&self) -> Vec<TensorReq> {
        let mut list = List { layer: None, reqs: Vec::new() };
        list.require(Role::TokenEmbd, &[self.n_vocab, self.d_model]);
        if let Some((presence, d)) = self.rope_factors() {
            list.add(Role::RopeFreqs, &[d], presence);
        }
        for (l, layer) in self.layers.iter().enumerate() {
            list.layer = Some(l);
            list.require(Role::AttnNorm, &[self.d_model]);
            list.attention(layer.attention(), self.d_model);
            list.require(Role::FfnNorm, &[self.d_model]);
            match &layer.ffn {
                Ffn::Gated(mlp) => list.mlp(mlp, self.d_model),
                Ffn::Moe(moe) => list.moe(moe, self.d_model),
            }
        }
        list.layer = None;
        list.require(Role::OutputNorm, &[self.d_model]);
        // Without a head of its own a model uses its embedding ("tied").
        list.add(Role::Output, &[self.n_vocab, self.d_model], Presence::Optional);
        list.reqs
    }

    /// Presence and length of the one tensor of rope factors, which all layers share; one that requires it decides.
    fn rope_factors(&self) -> Option<(Presence, usize)> {
        let ropes = self.layers.iter().filter_map(|l| l.attention().rope.as_ref());
        let ropes = ropes.filter(|r| r.factors != Presence::Absent);
        ropes.map(|r| (r.factors, r.d_rope / 2)).max_by_key(|(presence, _)| *presence == Presence::Required)
    }
}

struct List {
    layer: Option<usize>,
    reqs: Vec<TensorReq>,
}

impl List {
    fn add(&mut self, role: Role, shape: &[usize], presence: Presence) {
        if presence != Presence::Absent {
            self.reqs.push(TensorReq { role, layer: self.layer, shape: shape.to_vec(), presence });
        }
    }

    fn require(&mut self, role: Role, shape: &[usize]) {
        self.add(role, shape, Presence::Required);
    }

    fn attention(&mut self, a: &Attention, d_model: usize) {
        let inputs = [
            (Role::AttnQ, Role::AttnQBias, a.d_q()),
            (Role::AttnK, Role::AttnKBias, a.d_kv()),
            (Role::AttnV, Role::AttnVBias, a.d_kv()),
        ];
        for (weight, bias, d_out) in inputs {
            self.require(weight, &[d_out, d_model]);
            self.add(bias, &[d_out], a.qkv_bias);
        }
        if matches!(a.qk_norm, QkNorm::PerHead { .. }) {
            self.require(Role::AttnQNorm, &[a.d_head]);
            self.require(Role::AttnKNorm, &[a.d_head]);
        }
        self.require(Role::AttnOutput, &[d_model, a.d_q()]);
        self.add(Role::AttnOutputBias, &[d_model], a.out_bias);
    }

    fn mlp(&mut self, m: &Mlp, d_model: usize) {
        self.require(Role::FfnGate, &[m.d_ff, d_model]);
        self.add(Role::FfnGateBias, &[m.d_ff], m.bias);
        self.require(Role::FfnUp, &[m.d_ff, d_model]);
        self.add(Role::FfnUpBias, &[m.d_ff], m.bias);
        self.require(Role::FfnDown, &[d_model, m.d_ff]);
        self.add(Role::FfnDownBias, &[d_model], m.bias);
    }

    fn moe(&mut self, m: &Moe, d_model: usize) {
        let (n, d_ff) = (m.n_experts, m.expert.d_ff);
        self.require(Role::FfnGateInp, &[n, d_model]);
        self.require(Role::FfnGateExps, &[n, d_ff, d_model]);
        self.require(Role::FfnUpExps, &[n, d_ff, d_model]);
        self.require(Role::FfnDownExps, &[n, d_model, d_ff]);
        if let Some(shared) = &m.shared {
            self.require(Role::FfnGateInpShexp, &[1, d_model]);
            self.require(Role::FfnGateShexp, &[shared.d_ff, d_model]);
            self.require(Role::FfnUpShexp, &[shared.d_ff, d_model]);
            self.require(Role::FfnDownShexp, &[d_model, shared.d_ff]);
        }
    }
}

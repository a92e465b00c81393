//! Which tensors a model has: the only list of tensors in the program, derived from the spec.
//!
//! The loader binds exactly this list; a tensor that is missing, has another shape, or is in the
//! file but not in the list is an error. The converter reads the same list.

mod join;

use std::ops::Range;

use crate::{
    Placement, Role,
    spec::{
        AltUp, Attention, DeltaNet, Ffn, GateRows, KvSource, Latent, LatentUp, Laurel, LayerSpec,
        Mamba, Mamba2, Mixer, Mlp, ModelSpec, Moe, NetDecay, NetTensors, NgramEmbed, Norm,
        OutputGate, Outputs, Positions, Presence, QkNorm, RopeScaling, ShortConv, StateNorms,
        StreamKind, Streams, Sublayer, TokenTypes, Wiring,
    },
};

impl LayerSpec {
    /// Whether both sublayers read the same normed residual.
    fn shares_pre_norm(&self) -> bool {
        matches!(self.wiring, Wiring::Parallel { pre_ffn: None, .. })
    }

    /// The norm of the input of a sublayer, and the roles of its weight and bias.
    pub fn pre(&self, sublayer: Sublayer) -> Option<(Norm, [Role; 2])> {
        let is_second = self.mixer != Mixer::None && !self.shares_pre_norm();
        let roles = match sublayer {
            Sublayer::Ffn if is_second => [Role::FfnNorm, Role::FfnNormBias],
            _ => [Role::AttnNorm, Role::AttnNormBias],
        };
        self.pre_norm(sublayer).map(|norm| (norm, roles))
    }

    /// The norm of the input of a sublayer's last projection, and the role of its weight.
    pub fn sub(&self, sublayer: Sublayer) -> Option<(Norm, Role)> {
        let role = match sublayer {
            Sublayer::Mixer => Role::AttnSubNorm,
            Sublayer::Ffn => Role::FfnSubNorm,
        };
        self.sub_norm(sublayer).map(|norm| (norm, role))
    }

    /// The norm of the result of a sublayer, and the role of its weight.
    pub fn post(&self, sublayer: Sublayer) -> Option<(Norm, Role)> {
        let role = match sublayer {
            Sublayer::Mixer => Role::AttnPostNorm,
            Sublayer::Ffn => Role::FfnPostNorm,
        };
        self.post_norm(sublayer).map(|norm| (norm, role))
    }

    /// The norm of the sum of the residual and the result of a sublayer, and the roles of its
    /// weight and bias.
    pub fn sum(&self, sublayer: Sublayer) -> Option<(Norm, [Role; 2])> {
        let roles = match sublayer {
            Sublayer::Mixer => [Role::AttnOutputNorm, Role::AttnOutputNormBias],
            Sublayer::Ffn => [Role::LayerOutputNorm, Role::LayerOutputNormBias],
        };
        self.sum_norm(sublayer).map(|norm| (norm, roles))
    }
}

impl DeltaNet {
    /// The taps of its convolutions.
    pub fn conv_roles(&self) -> &'static [Role] {
        match self.tensors {
            NetTensors::Joint => &[Role::SsmConv],
            NetTensors::Apart => &[Role::SsmConvQ, Role::SsmConvK, Role::SsmConvV],
        }
    }

    /// Rows of a matrix that its input is multiplied with.
    pub(crate) fn rows_of(&self, role: Role) -> usize {
        match role {
            Role::SsmQkv => self.d_conv(),
            Role::AttnQ | Role::AttnK => self.d_keys(),
            Role::AttnV | Role::AttnGate => self.d_values(),
            Role::SsmGA => self.ranks()[0],
            Role::SsmFA => self.ranks()[1],
            Role::SsmBeta | Role::SsmAlpha => self.n_heads,
            Role::SsmBetaAlpha => 2 * self.n_heads,
            _ => unreachable!("{role:?} does not read the input of a delta net"),
        }
    }

    /// Its last projection.
    pub fn out_role(&self) -> Role {
        match self.tensors {
            NetTensors::Joint => Role::SsmOut,
            NetTensors::Apart => Role::AttnOutput,
        }
    }
}

/// Norm, down and up projection of the hyper-connections of a sublayer, and the weights of its
/// result.
fn hyper_connections(sublayer: Sublayer) -> ([Role; 3], Role) {
    use Role::*;
    match sublayer {
        Sublayer::Mixer => ([HcAttnNorm, HcAttnDown, HcAttnUp], HcAttnInject),
        Sublayer::Ffn => ([HcFfnNorm, HcFfnDown, HcFfnUp], HcFfnInject),
    }
}

/// The name of the norm before the MLP in files whose converter leaves `.weight` out.
const BARE_FFN_NORM: &str = "ffn_norm";

/// The name of the last norm in files of LFM2.
const LFM2_OUTPUT_NORM: &str = "token_embd_norm.weight";

/// One tensor that a model has or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorReq {
    /// Its role.
    pub role: Role,
    /// Its layer; `None` for those of the whole model.
    pub layer: Option<usize>,
    /// The block of the file that is layer 0.
    pub first_block: usize,
    /// Outermost first: `[d_out, d_in]` of a matrix, `[n_experts, d_out, d_in]` of those of
    /// experts, `[d]` of a vector.
    pub shape: Vec<usize>,
    /// Parts of equal size that are read whole: the rows of a matrix, or the matrices of experts or
    /// heads.
    pub n_parts: usize,
    /// Whether the tensor of a file may have more rows, which are never read.
    pub is_padded: bool,
    /// Never [`Presence::Absent`]: absent tensors are not listed.
    pub presence: Presence,
    /// The larger tensor that some files have instead.
    pub fused_in: Option<FusedIn>,
}

/// A larger tensor that stores several tensors, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedIn {
    /// Its name in GGUF files, without the prefix of its layer.
    pub name: &'static str,
    /// The rows of this tensor; of tensors of experts the rows of each expert.
    pub rows: Range<usize>,
    /// All rows, of each expert. A tensor of that name with another number of rows is not a fused
    /// one.
    pub n_rows: usize,
}

impl TensorReq {
    /// Its shape if it had another number of rows.
    pub(crate) fn shape_of_rows(&self, n_rows: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.rows_dim()] = n_rows;
        shape
    }

    /// Rows of the matrix, or of that of each expert: the product of all dimensions but `d_in`.
    /// 1 for a vector.
    pub fn n_rows(&self) -> usize {
        let rows = self.shape.split_last().map_or(&[][..], |(_, rows)| rows);
        rows.iter().skip(self.rows_dim()).product()
    }

    /// The dimension of [`shape`](Self::shape) that counts rows.
    pub(crate) fn rows_dim(&self) -> usize {
        usize::from(self.role.placement() == Placement::Experts)
    }

    /// Its name in GGUF files.
    pub fn name(&self) -> String {
        self.full_name(self.role.name())
    }

    /// The name of the larger tensor that may hold it.
    pub fn fused_name(&self) -> Option<String> {
        let fused_in = self.fused_in.as_ref()?;
        Some(self.full_name(fused_in.name))
    }

    fn full_name(&self, name: &str) -> String {
        match self.layer {
            Some(l) => format!("blk.{}.{name}", self.first_block + l),
            None => name.to_owned(),
        }
    }
}

impl ModelSpec {
    /// Every tensor of the model, in the order in which the forward pass meets them.
    pub fn tensors(&self) -> Vec<TensorReq> {
        let d = self.d_model;
        let mut list = List {
            layer: None,
            first_block: self.join.as_ref().map_or(0, |join| join.first_block),
            streams: self.streams,
            reqs: Vec::new(),
        };
        list.require(Role::TokenEmbd, &[self.n_vocab, d]);
        if let Outputs::Logits = self.head.outputs {
            list.add(Role::TokenEmbdMean, &[d], Presence::Optional);
        }
        if let Positions::Learned(n) = self.positions {
            list.require(Role::PositionEmbd, &[n, d]);
        }
        if let TokenTypes::Learned(n) = self.token_types {
            list.require(Role::TokenTypes, &[n, d]);
        }
        if let Some(norm) = self.embed_norm {
            list.norm(norm, [Role::TokenEmbdNorm, Role::TokenEmbdNormBias], d);
        }
        for (role, presence, n) in self.rope_factors() {
            list.add(role, &[n], presence);
        }
        self.row_tables(&mut list);
        if let Some(alt) = &self.alt_up {
            list.require(Role::AltupProj, &[alt.n - 1, d, d]);
        }
        let layers = self.layers.iter().enumerate();
        for (l, layer) in layers.filter(|(_, layer)| !layer.is_left_out()) {
            list.layer = Some(l);
            if let Some(ngrams) = &layer.ngrams {
                list.ngrams(ngrams, [d, self.d_residual()]);
            }
            if let Some(alt) = &self.alt_up {
                list.alt_up(alt, d);
            }
            list.layer(layer, d);
            if let Some(embed) = &self.layer_embed {
                list.require(Role::InpGate, &[embed.d, d]);
                list.require(Role::Proj, &[d, embed.d]);
                list.require(Role::PostNorm, &[d]);
            }
            list.add(Role::LayerOutputScale, &[1], layer.out_scale);
        }
        list.layer = None;
        let roles = [Role::OutputHcNorm, Role::OutputHcDown, Role::OutputHcUp];
        list.mixed_streams(roles, None, d);
        if let Some(alt) = &self.alt_up {
            list.require(Role::AltupUnembdProj, &[alt.n - 1, d, d]);
        }
        self.head_tensors(&mut list);
        if let Some(join) = &self.join {
            list.join(join, [d, self.n_vocab]);
        }
        list.reqs
    }

    /// The tensors behind the last layer, but for those that end streams.
    fn head_tensors(&self, list: &mut List) {
        let d = self.d_model;
        if let Some(norm) = self.head.norm {
            list.norm(norm, [Role::OutputNorm, Role::OutputNormBias], d);
            if self.embed_norm.is_none() {
                list.also_called(Role::OutputNorm, LFM2_OUTPUT_NORM);
            }
        }
        match self.head.outputs {
            Outputs::Logits => {
                // Without a head of its own a model uses its embedding ("tied").
                list.add(Role::Output, &[self.n_logits(), d], Presence::Optional);
                list.add(Role::OutputMean, &[d], Presence::Optional);
                list.add(Role::OutputBias, &[self.n_vocab], self.head.bias);
            }
            Outputs::Hidden => {}
            Outputs::Dense(dense) => {
                list.require(Role::Dense2, &[dense.d_inner, d]);
                list.require(Role::Dense3, &[dense.d_out, dense.d_inner]);
            }
            Outputs::Scores(head) => {
                list.require(Role::Cls, &[d, d]);
                list.add(Role::ClsBias, &[d], head.bias);
                if let Some(norm) = head.norm {
                    list.norm(norm, [Role::ClsNorm, Role::ClsNormBias], d);
                }
                list.require(Role::ClsOutput, &[head.n, d]);
                list.require(Role::ClsOutputBias, &[head.n]);
            }
        }
    }

    /// The embeddings that layers read by rows, and what their inputs are computed with.
    fn row_tables(&self, list: &mut List) {
        if let Some(embed) = &self.layer_embed {
            let d_all = self.layers.len() * embed.d;
            list.require(Role::PerLayerTokenEmbd, &[self.n_vocab, d_all]);
            list.require(Role::PerLayerModelProj, &[d_all, self.d_model]);
            list.require(Role::PerLayerProjNorm, &[embed.d]);
        }
        if let Some((_, ngrams)) = self.ngrams() {
            list.require(Role::PerLayerTokenEmbd, &[ngrams.n_rows(), ngrams.d_row]);
            list.last_is_padded();
        }
    }

    /// Presence and length of each tensor of rope factors, which all layers share; one that
    /// requires it decides.
    fn rope_factors(&self) -> impl Iterator<Item = (Role, Presence, usize)> {
        let all = self
            .ropes()
            .map(|r| (r.factors, r.d_rope / 2))
            .filter(|(presence, _)| *presence != Presence::Absent);
        let all = all.max_by_key(|(presence, _)| *presence == Presence::Required);
        let long = self.ropes().find_map(|r| match r.scaling {
            RopeScaling::Long { factors, .. } => Some((factors, r.d_rope / 2)),
            _ => None,
        });
        let long = [Role::RopeFactorsShort, Role::RopeFactorsLong]
            .map(|role| long.map(|(presence, n)| (role, presence, n)));
        all.map(|(presence, n)| (Role::RopeFreqs, presence, n))
            .into_iter()
            .chain(long.into_iter().flatten())
    }
}

struct List {
    layer: Option<usize>,
    first_block: usize,
    streams: Option<Streams>,
    reqs: Vec<TensorReq>,
}

impl List {
    fn add(&mut self, role: Role, shape: &[usize], presence: Presence) {
        if presence != Presence::Absent {
            self.reqs.push(TensorReq {
                role,
                layer: self.layer,
                first_block: self.first_block,
                shape: shape.to_vec(),
                n_parts: shape[0],
                is_padded: false,
                presence,
                fused_in: None,
            });
        }
    }

    fn require(&mut self, role: Role, shape: &[usize]) {
        self.add(role, shape, Presence::Required);
    }

    /// Adds tensors of equal width that a file may hold as one, rows after rows.
    fn fused<const N: usize>(
        &mut self,
        name: &'static str,
        parts: [(Role, usize); N],
        d_in: &[usize],
        presence: Presence,
    ) {
        let n_rows = parts.iter().map(|(_, rows)| rows).sum();
        let mut start = 0;
        for (role, rows) in parts {
            self.add(role, &[&[rows], d_in].concat(), presence);
            if let Some(req) = self
                .reqs
                .last_mut()
                .filter(|_| presence != Presence::Absent)
            {
                req.fused_in = Some(FusedIn {
                    name,
                    rows: start..start + rows,
                    n_rows,
                });
            }
            start += rows;
        }
    }

    /// Changes the presence of the tensor that was just added.
    fn last_is(&mut self, presence: Presence) {
        match (presence, self.reqs.last_mut()) {
            (Presence::Absent, _) => drop(self.reqs.pop()),
            (_, Some(req)) => req.presence = presence,
            (_, None) => {}
        }
    }

    /// Accepts more rows of the tensor that was just added.
    fn last_is_padded(&mut self) {
        if let Some(req) = self.reqs.last_mut() {
            req.is_padded = true;
        }
    }

    /// Changes how many parts the tensor that was just added is read in.
    fn last_in_parts(&mut self, n_parts: usize) {
        if let Some(req) = self.reqs.last_mut() {
            req.n_parts = n_parts;
        }
    }

    fn norm(&mut self, norm: Norm, [weight, bias]: [Role; 2], d: usize) {
        self.require(weight, &[d]);
        if matches!(norm, Norm::Layer { .. }) {
            self.require(bias, &[d]);
        }
    }

    /// Accepts the tensor that was just added, `role`, under another name, which no tensor in the
    /// list has.
    fn also_called(&mut self, role: Role, other: &'static str) {
        if let Some(req) = self.reqs.iter_mut().rev().find(|req| req.role == role) {
            let n_rows = req.shape[0];
            req.fused_in = Some(FusedIn {
                name: other,
                rows: 0..n_rows,
                n_rows,
            });
        }
    }

    /// Accepts gate and up of experts, if one of them was just added, in one tensor: the rows of
    /// gate, then those of up, of each expert.
    fn last_in_gate_up(&mut self, role: Role, d_ff: usize) {
        let start = match role {
            Role::FfnGateExps => 0,
            Role::FfnUpExps => d_ff,
            _ => return,
        };
        if let Some(req) = self.reqs.last_mut() {
            req.fused_in = Some(FusedIn {
                name: "ffn_gate_up_exps.weight",
                rows: start..start + d_ff,
                n_rows: 2 * d_ff,
            });
        }
    }

    fn layer(&mut self, layer: &LayerSpec, d_model: usize) {
        for sublayer in [Sublayer::Mixer, Sublayer::Ffn] {
            if layer.wiring == Wiring::Streams {
                let (roles, inject) = hyper_connections(sublayer);
                self.mixed_streams(roles, Some(inject), d_model);
            }
            // A norm that both sublayers read is listed once.
            let is_shared = sublayer == Sublayer::Ffn && layer.shares_pre_norm();
            if let Some((norm, roles)) = layer.pre(sublayer).filter(|_| !is_shared) {
                self.norm(norm, roles, d_model);
                if roles[0] == Role::FfnNorm && layer.post_norm(Sublayer::Mixer).is_none() {
                    let other = match layer.mixer {
                        Mixer::AttentionAndMamba2(_) => BARE_FFN_NORM,
                        _ => Role::AttnPostNorm.name(),
                    };
                    self.also_called(roles[0], other);
                }
            }
            match sublayer {
                Sublayer::Mixer => {
                    self.laurel(layer.laurel, d_model);
                    self.mixer(&layer.mixer, d_model);
                }
                Sublayer::Ffn => self.ffn(&layer.ffn, d_model),
            }
            if let Some((_, role)) = layer.post(sublayer) {
                self.require(role, &[d_model]);
            }
            if let Some((norm, roles)) = layer.sum(sublayer) {
                self.norm(norm, roles, d_model);
            }
        }
    }

    fn ngrams(&mut self, ngrams: &NgramEmbed, [d_model, d_residual]: [usize; 2]) {
        self.require(Role::PleKey, &[d_residual, ngrams.d_embed()]);
        self.require(Role::PleValue, &[d_model, ngrams.d_embed()]);
        self.require(Role::PleNormKey, &[d_residual]);
        self.require(Role::PleNormQuery, &[d_residual]);
        self.require(Role::PleNormConv, &[d_residual]);
        self.require(Role::PleConv1d, &[d_residual, ngrams.n_taps]);
    }

    /// Norm, down and up projection of hyper-connections, if there are any, and the weights of a
    /// sublayer's result.
    fn mixed_streams(&mut self, [norm, down, up]: [Role; 3], inject: Option<Role>, d_model: usize) {
        let Some(Streams { n, kind }) = self.streams else {
            return;
        };
        let StreamKind::HyperConnections { rank, .. } = kind;
        let d = n * d_model;
        self.require(norm, &[d]);
        self.require(down, &[rank, d]);
        if let Some(inject) = inject {
            self.require(inject, &[n, d]);
        }
        self.require(up, &[d, rank]);
    }

    fn mixer(&mut self, mixer: &Mixer, d_model: usize) {
        match mixer {
            Mixer::None => {}
            Mixer::Attention(attention) => self.attention(attention, d_model),
            Mixer::ShortConv(conv) => self.short_conv(conv, d_model),
            Mixer::DeltaNet(net) => self.delta_net(net, d_model),
            Mixer::Mamba(mamba) => self.mamba(mamba, d_model),
            Mixer::Mamba2(mamba) => self.mamba2(mamba, d_model),
            Mixer::AttentionAndMamba2(both) => {
                self.attention(&both.attention, d_model);
                self.mamba2(&both.mamba, d_model);
            }
        }
    }

    fn alt_up(&mut self, alt: &AltUp, d_model: usize) {
        let n = alt.n;
        self.require(Role::AltupRouterNorm, &[d_model]);
        self.require(Role::AltupRouter, &[n, d_model]);
        self.require(Role::AltupPredictCoef, &[n * n, n]);
        self.require(Role::AltupCorrectCoef, &[n, n]);
        self.require(Role::AltupCorrectScale, &[d_model]);
    }

    fn laurel(&mut self, laurel: Option<Laurel>, d_model: usize) {
        if let Some(Laurel { rank, .. }) = laurel {
            self.require(Role::LaurelL, &[rank, d_model]);
            self.require(Role::LaurelR, &[d_model, rank]);
            self.require(Role::LaurelPostNorm, &[d_model]);
        }
    }

    fn ffn(&mut self, ffn: &Ffn, d_model: usize) {
        match ffn {
            Ffn::None => {}
            Ffn::Gated(mlp) => self.gated(mlp, d_model),
            Ffn::Plain(mlp) => self.plain(mlp, d_model),
            Ffn::Sparse(sparse) => self.gated(&sparse.mlp, d_model),
            Ffn::Moe(moe) => self.moe(moe, d_model),
            Ffn::MlpAndMoe(both) => {
                self.gated(&both.mlp, d_model);
                self.require(Role::PostFfwNorm1, &[d_model]);
                self.require(Role::PreFfwNorm2, &[d_model]);
                self.moe(&both.moe, d_model);
                self.require(Role::PostFfwNorm2, &[d_model]);
            }
        }
    }

    fn short_conv(&mut self, conv: &ShortConv, d_model: usize) {
        let d_in = ShortConv::N_INPUTS * d_model;
        self.require(Role::ShortconvInProj, &[d_in, d_model]);
        self.require(Role::ShortconvConv, &[d_model, conv.n_taps]);
        self.require(Role::ShortconvOutProj, &[d_model, d_model]);
    }

    fn delta_net(&mut self, net: &DeltaNet, d_model: usize) {
        self.net_inputs(net, d_model);
        match net.gate_rank {
            Some(rank) => {
                self.require(Role::SsmGA, &[rank, d_model]);
                self.require(Role::SsmGB, &[net.d_values(), rank]);
            }
            None => self.require(Role::AttnGate, &[net.d_values(), d_model]),
        }
        self.net_gates(net, d_model);
        self.require(Role::SsmNorm, &[net.d_value]);
        self.require(net.out_role(), &[d_model, net.d_values()]);
    }

    /// Projections of queries, keys and values of a delta net, and the taps of their convolutions.
    fn net_inputs(&mut self, net: &DeltaNet, d_model: usize) {
        let [d_keys, d_values] = [net.d_keys(), net.d_values()];
        if net.tensors == NetTensors::Joint {
            self.require(Role::SsmQkv, &[net.d_conv(), d_model]);
            self.require(Role::SsmConv, &[net.d_conv(), net.n_taps]);
            return;
        }
        let weights = [
            (Role::AttnQ, d_keys),
            (Role::AttnK, d_keys),
            (Role::AttnV, d_values),
        ];
        self.fused("attn_qkv.weight", weights, &[d_model], Presence::Required);
        for (role, channels) in net.conv_roles().iter().zip(net.convs()) {
            self.require(*role, &[channels.len(), 1, net.n_taps]);
        }
    }

    /// What the gains and decays of a delta net are computed with.
    fn net_gates(&mut self, net: &DeltaNet, d_model: usize) {
        let n_heads = net.n_heads;
        match net.decay {
            NetDecay::Heads(GateRows::Apart) => {
                self.require(Role::SsmBeta, &[n_heads, d_model]);
                self.require(Role::SsmAlpha, &[n_heads, d_model]);
            }
            NetDecay::Heads(GateRows::ByKeyHead) => {
                self.require(Role::SsmBetaAlpha, &[2 * n_heads, d_model]);
            }
            NetDecay::Channels { rank } => {
                self.require(Role::SsmBeta, &[n_heads, d_model]);
                self.require(Role::SsmFA, &[rank, d_model]);
                self.require(Role::SsmFB, &[net.n_decays(), rank]);
            }
        }
        self.require(Role::SsmDtBias, &[net.n_decays()]);
        match net.decay {
            NetDecay::Heads(_) => self.require(Role::SsmA, &[n_heads]),
            NetDecay::Channels { .. } => self.require(Role::SsmA, &[n_heads, 1]),
        }
    }

    fn mamba(&mut self, mamba: &Mamba, d_model: usize) {
        let d = mamba.d_inner;
        self.require(Role::SsmIn, &[2 * d, d_model]);
        self.require(Role::SsmConv, &[d, mamba.n_taps]);
        self.add(Role::SsmConvBias, &[d], mamba.conv_bias);
        self.require(Role::SsmX, &[mamba.d_selection(), d]);
        if let StateNorms::Weighted { .. } = mamba.norms {
            self.require(Role::SsmDtNorm, &[mamba.d_rank]);
            self.require(Role::SsmBNorm, &[mamba.d_state]);
            self.require(Role::SsmCNorm, &[mamba.d_state]);
        }
        self.require(Role::SsmDt, &[d, mamba.d_rank]);
        self.require(Role::SsmDtBias, &[d]);
        self.require(Role::SsmA, &[d, mamba.d_state]);
        self.require(Role::SsmD, &[d]);
        self.require(Role::SsmOut, &[d_model, d]);
    }

    fn mamba2(&mut self, mamba: &Mamba2, d_model: usize) {
        let d_inner = mamba.d_inner();
        self.require(Role::SsmIn, &[mamba.d_in(), d_model]);
        self.require(Role::SsmConv, &[mamba.d_conv(), mamba.n_taps]);
        self.add(Role::SsmConvBias, &[mamba.d_conv()], mamba.conv_bias);
        self.require(Role::SsmDtBias, &[mamba.n_heads]);
        self.require(Role::SsmA, &[mamba.n_heads, 1]);
        self.require(Role::SsmD, &[mamba.n_heads, 1]);
        let norm = [mamba.n_groups, d_inner / mamba.n_groups];
        self.add(Role::SsmNorm, &norm, mamba.norm);
        self.require(Role::SsmOut, &[d_model, d_inner]);
    }

    fn attention(&mut self, a: &Attention, d_model: usize) {
        let d_q = a.d_q();
        let d_kv = a.d_kv();
        match a.kv {
            KvSource::Own { v_proj, .. } => {
                let weights = [
                    (Role::AttnQ, a.d_q_rows()),
                    (Role::AttnK, d_kv),
                    (Role::AttnV, d_kv),
                ];
                let biases = [
                    (Role::AttnQBias, a.d_q_rows()),
                    (Role::AttnKBias, d_kv),
                    (Role::AttnVBias, d_kv),
                ];
                self.fused("attn_qkv.weight", weights, &[d_model], Presence::Required);
                self.last_is(v_proj);
                self.fused("attn_qkv.bias", biases, &[], a.qkv_bias);
            }
            KvSource::Layer(_) => {
                self.require(Role::AttnQ, &[a.d_q_rows(), d_model]);
                self.add(Role::AttnQBias, &[a.d_q_rows()], a.qkv_bias);
            }
            KvSource::Latent(latent) => self.latent(a, &latent, d_model),
        }
        if a.gate == OutputGate::Heads {
            self.require(Role::AttnGate, &[a.n_heads, d_model]);
        }
        self.qk_norm(a);
        if let Some(indexer) = &a.indexer {
            self.require(Role::IndexerQ, &[indexer.d_queries(), d_model]);
            self.require(Role::IndexerK, &[indexer.d_head, d_model]);
            self.require(Role::IndexerQNorm, &[indexer.d_head]);
            self.require(Role::IndexerKNorm, &[indexer.d_head]);
        }
        if a.sub_norm.is_some() {
            self.require(Role::AttnSubNorm, &[d_q]);
        }
        self.require(Role::AttnOutput, &[d_model, a.d_heads()]);
        self.add(Role::AttnOutputBias, &[d_model], a.out_bias);
        self.add(Role::AttnSinks, &[a.n_heads], a.sinks);
    }

    fn qk_norm(&mut self, a: &Attention) {
        let heads = [
            (Role::AttnQNorm, a.n_heads),
            (Role::AttnKNorm, a.n_kv_heads),
        ];
        let n = if a.kv_layer().is_none() { 2 } else { 1 };
        for (role, n_heads) in heads.into_iter().take(n) {
            match a.qk_norm {
                QkNorm::None | QkNorm::Unit { .. } => {}
                QkNorm::PerHead { .. } | QkNorm::RotatedPerHead { .. } => {
                    self.require(role, &[a.d_head]);
                }
                QkNorm::PerHeadIfThere { .. } => {
                    self.add(role, &[a.d_head], Presence::Optional);
                }
                QkNorm::LayerPerHead { presence, .. } => {
                    self.add(role, &[n_heads, a.d_head], presence);
                }
                QkNorm::Whole { .. } => self.require(role, &[n_heads * a.d_head]),
            }
        }
    }

    fn latent(&mut self, a: &Attention, latent: &Latent, d_model: usize) {
        match latent.d_query {
            Some(d) => {
                self.require(Role::AttnQA, &[d, d_model]);
                self.require(Role::AttnQANorm, &[d]);
                self.require(Role::AttnQB, &[a.d_q_rows(), d]);
            }
            None => self.require(Role::AttnQ, &[a.d_q_rows(), d_model]),
        }
        self.require(Role::AttnKvA, &[a.d_kv(), d_model]);
        self.require(Role::AttnKvANorm, &[latent.d_latent]);
        self.latent_up(latent, a.n_heads);
    }

    fn latent_up(&mut self, latent: &Latent, n_heads: usize) {
        let d = latent.d_latent;
        match latent.up {
            LatentUp::Split => {
                self.require(Role::AttnKB, &[n_heads, d, latent.d_key]);
                self.require(Role::AttnVB, &[n_heads, latent.d_value, d]);
            }
            LatentUp::Joint => {
                self.require(Role::AttnKvB, &[n_heads * latent.d_up(), d]);
                self.last_in_parts(n_heads);
            }
        }
    }

    fn gated(&mut self, m: &Mlp, d_model: usize) {
        let weights = [(Role::FfnGate, m.d_ff), (Role::FfnUp, m.d_ff)];
        let biases = [(Role::FfnGateBias, m.d_ff), (Role::FfnUpBias, m.d_ff)];
        // Phi-3 has both in one, under the name of the second.
        self.fused(Role::FfnUp.name(), weights, &[d_model], Presence::Required);
        self.fused(Role::FfnUpBias.name(), biases, &[], m.bias);
        self.down(m, d_model);
    }

    fn plain(&mut self, m: &Mlp, d_model: usize) {
        self.require(Role::FfnUp, &[m.d_ff, d_model]);
        self.add(Role::FfnUpBias, &[m.d_ff], m.bias);
        self.down(m, d_model);
    }

    fn down(&mut self, m: &Mlp, d_model: usize) {
        if m.sub_norm.is_some() {
            self.require(Role::FfnSubNorm, &[m.d_ff]);
        }
        self.require(Role::FfnDown, &[d_model, m.d_ff]);
        self.add(Role::FfnDownBias, &[d_model], m.bias);
    }

    fn moe(&mut self, m: &Moe, d_model: usize) {
        let n = m.n_experts;
        let d_ff = m.expert.d_ff;
        self.require(Role::FfnGateInp, &[n, d_model]);
        self.add(Role::FfnGateInpBias, &[n], m.router_bias);
        self.add(Role::ExpProbsBias, &[n], m.selection_bias);
        if m.router_norm.is_some() {
            self.require(Role::FfnGateInpScale, &[d_model]);
        }
        for (role, d_out, d_in, bias) in [
            (Role::FfnGateExps, d_ff, d_model, Role::FfnGateExpsBias),
            (Role::FfnUpExps, d_ff, d_model, Role::FfnUpExpsBias),
            (Role::FfnDownExps, d_model, d_ff, Role::FfnDownExpsBias),
        ] {
            if role == Role::FfnGateExps && !m.has_gates {
                continue;
            }
            self.require(role, &[n, d_out, d_in]);
            if m.has_gates {
                self.last_in_gate_up(role, d_ff);
            }
            self.add(bias, &[n, d_out], m.expert.bias);
        }
        self.add(Role::FfnDownBias, &[d_model], m.sum_bias);
        if let Some(shared) = &m.shared {
            let d_ff = shared.mlp.d_ff;
            if shared.is_gated {
                self.require(Role::FfnGateInpShexp, &[1, d_model]);
            }
            if m.has_gates {
                self.require(Role::FfnGateShexp, &[d_ff, d_model]);
            }
            self.require(Role::FfnUpShexp, &[d_ff, d_model]);
            self.require(Role::FfnDownShexp, &[d_model, d_ff]);
        }
    }
}

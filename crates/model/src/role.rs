//! The roles of tensors: their names in GGUF files, and where their bytes are.

use atta_store::Projection::{
    self, AttnOut, Down, EmbedGate, EmbedOut, EndStreamsDown, EndStreamsUp, FfnStreamsDown,
    FfnStreamsUp, GateUp, Join, KeyUp, LaurelLeft, LaurelRight, LayerInputs, MixerStreamsDown,
    MixerStreamsUp, Ngrams, Qkv, QueryUp, Router, SsmDt, SsmIn, SsmOut, SsmX, StreamsBegin,
    StreamsEnd, ValueUp,
};

use Placement::{Embed, Experts, Head, LastLayer, Layer, LayerEmbed, Resident};

/// Where the bytes of a tensor are: on the heap, or in a weight group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Decoded to f32 on the heap: a vector, which is small and read by every token.
    Resident,
    /// A weight group of its layer that every token reads; of the first layer, if the tensor is of
    /// the whole model.
    Layer(Projection),
    /// A weight group of the last layer; the tensor is of the whole model.
    LastLayer(Projection),
    /// The weight group of an expert; the tensor has a matrix for each.
    Experts,
    /// The token embedding, read by rows.
    Embed,
    /// The embedding of tokens in every layer, or of n-grams, read by rows.
    LayerEmbed,
    /// The output head, read by rows.
    Head,
}

/// One row for each role: its variant, the name of its tensors in GGUF files without the prefix of
/// their layer, and its placement.
macro_rules! roles {
    ($($role:ident $name:literal $placement:expr,)*) => {
        /// The role of a tensor, by its GGUF name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[expect(
            missing_docs,
            reason = "the variants are GGUF's tensor names, docs/glossary.md explains them"
        )]
        pub enum Role {
            $($role,)*
        }

        impl Role {
            /// Number of roles, for tables that are indexed by role.
            pub const COUNT: usize = [$($name),*].len();

            /// All roles, in the order of their numbers.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$role),*];

            /// Where the bytes of the tensor are.
            pub fn placement(self) -> Placement {
                match self {
                    $(Role::$role => $placement,)*
                }
            }

            /// The name of the tensor in GGUF files, without the prefix of its layer.
            pub fn name(self) -> &'static str {
                match self {
                    $(Role::$role => $name,)*
                }
            }
        }
    };
}

// Other mixers' matrices take the places of those of attention, but those of state spaces do not:
// they may stand beside it.
roles! {
    TokenEmbd "token_embd.weight" Embed,
    TokenEmbdMean "token_embd.mean" Resident,
    PositionEmbd "position_embd.weight" Resident,
    TokenTypes "token_types.weight" Resident,
    TokenEmbdNorm "token_embd_norm.weight" Resident,
    TokenEmbdNormBias "token_embd_norm.bias" Resident,
    PerLayerTokenEmbd "per_layer_token_embd.weight" LayerEmbed,
    PerLayerModelProj "per_layer_model_proj.weight" Layer(LayerInputs),
    PerLayerProjNorm "per_layer_proj_norm.weight" Resident,
    AltupProj "altup_proj.weight" Layer(StreamsBegin),
    AltupUnembdProj "altup_unembd_proj.weight" LastLayer(StreamsEnd),
    OutputNorm "output_norm.weight" Resident,
    OutputNormBias "output_norm.bias" Resident,
    OutputHcNorm "output_hc_norm.weight" Resident,
    OutputHcDown "output_hc_down.weight" LastLayer(EndStreamsDown),
    OutputHcUp "output_hc_up.weight" LastLayer(EndStreamsUp),
    Output "output.weight" Head,
    OutputMean "output.mean" Resident,
    OutputBias "output.bias" Resident,
    Cls "cls.weight" Resident,
    ClsBias "cls.bias" Resident,
    ClsNorm "cls.norm.weight" Resident,
    ClsNormBias "cls.norm.bias" Resident,
    ClsOutput "cls.output.weight" Resident,
    ClsOutputBias "cls.output.bias" Resident,
    Dense2 "dense_2.weight" Resident,
    Dense3 "dense_3.weight" Resident,
    RopeFreqs "rope_freqs.weight" Resident,
    RopeFactorsShort "rope_factors_short.weight" Resident,
    RopeFactorsLong "rope_factors_long.weight" Resident,
    Fc "fc.weight" Layer(Join),
    NextnEhProj "nextn.eh_proj.weight" Layer(Join),
    NextnEnorm "nextn.enorm.weight" Resident,
    NextnHnorm "nextn.hnorm.weight" Resident,
    NextnEmbedTokens "nextn.embed_tokens.weight" Embed,
    NextnSharedHeadNorm "nextn.shared_head_norm.weight" Resident,
    NextnSharedHeadHead "nextn.shared_head_head.weight" Head,
    AttnNorm2 "attn_norm_2.weight" Resident,
    PleKey "ple_key.weight" Layer(Ngrams),
    PleValue "ple_value.weight" Layer(Ngrams),
    PleNormKey "ple_norm_key.weight" Resident,
    PleNormQuery "ple_norm_query.weight" Resident,
    PleNormConv "ple_norm_conv.weight" Resident,
    PleConv1d "ple_conv1d.weight" Resident,
    HcAttnNorm "hc_attn_norm.weight" Resident,
    HcAttnDown "hc_attn_down.weight" Layer(MixerStreamsDown),
    HcAttnInject "hc_attn_inject.weight" Layer(MixerStreamsDown),
    HcAttnUp "hc_attn_up.weight" Layer(MixerStreamsUp),
    AltupRouterNorm "altup_router_norm.weight" Resident,
    AltupRouter "altup_router.weight" Resident,
    AltupPredictCoef "altup_predict_coef.weight" Resident,
    AltupCorrectCoef "altup_correct_coef.weight" Resident,
    AltupCorrectScale "altup_correct_scale.weight" Resident,
    AttnNorm "attn_norm.weight" Resident,
    AttnNormBias "attn_norm.bias" Resident,
    AttnQ "attn_q.weight" Layer(Qkv),
    AttnQBias "attn_q.bias" Resident,
    AttnK "attn_k.weight" Layer(Qkv),
    AttnKBias "attn_k.bias" Resident,
    AttnV "attn_v.weight" Layer(Qkv),
    AttnVBias "attn_v.bias" Resident,
    AttnQNorm "attn_q_norm.weight" Resident,
    AttnKNorm "attn_k_norm.weight" Resident,
    AttnQA "attn_q_a.weight" Layer(Qkv),
    AttnQANorm "attn_q_a_norm.weight" Resident,
    AttnQB "attn_q_b.weight" Layer(QueryUp),
    AttnKvA "attn_kv_a_mqa.weight" Layer(Qkv),
    AttnKvANorm "attn_kv_a_norm.weight" Resident,
    AttnKB "attn_k_b.weight" Layer(KeyUp),
    AttnVB "attn_v_b.weight" Layer(ValueUp),
    AttnKvB "attn_kv_b.weight" Layer(KeyUp),
    AttnGate "attn_gate.weight" Layer(Qkv),
    IndexerQ "indexer.q_proj.weight" Layer(Qkv),
    IndexerK "indexer.k_proj.weight" Layer(Qkv),
    IndexerQNorm "indexer.q_norm.weight" Resident,
    IndexerKNorm "indexer.k_norm.weight" Resident,
    AttnSubNorm "attn_sub_norm.weight" Resident,
    AttnOutput "attn_output.weight" Layer(AttnOut),
    AttnOutputBias "attn_output.bias" Resident,
    AttnOutputNorm "attn_output_norm.weight" Resident,
    AttnOutputNormBias "attn_output_norm.bias" Resident,
    AttnSinks "attn_sinks.weight" Resident,
    SsmIn "ssm_in.weight" Layer(SsmIn),
    SsmQkv "attn_qkv.weight" Layer(Qkv),
    SsmBeta "ssm_beta.weight" Layer(Qkv),
    SsmAlpha "ssm_alpha.weight" Layer(Qkv),
    SsmBetaAlpha "ssm_ba.weight" Layer(Qkv),
    SsmFA "ssm_f_a.weight" Layer(Qkv),
    SsmFB "ssm_f_b.weight" Layer(QueryUp),
    SsmGA "ssm_g_a.weight" Layer(Qkv),
    SsmGB "ssm_g_b.weight" Layer(KeyUp),
    SsmConvQ "ssm_conv1d_q.weight" Resident,
    SsmConvK "ssm_conv1d_k.weight" Resident,
    SsmConvV "ssm_conv1d_v.weight" Resident,
    SsmConv "ssm_conv1d.weight" Resident,
    SsmConvBias "ssm_conv1d.bias" Resident,
    SsmX "ssm_x.weight" Layer(SsmX),
    SsmDtNorm "ssm_dt_norm.weight" Resident,
    SsmBNorm "ssm_b_norm.weight" Resident,
    SsmCNorm "ssm_c_norm.weight" Resident,
    SsmDt "ssm_dt.weight" Layer(SsmDt),
    SsmDtBias "ssm_dt.bias" Resident,
    SsmA "ssm_a" Resident,
    SsmD "ssm_d" Resident,
    SsmNorm "ssm_norm.weight" Resident,
    SsmOut "ssm_out.weight" Layer(SsmOut),
    LaurelL "laurel_l.weight" Layer(LaurelLeft),
    LaurelR "laurel_r.weight" Layer(LaurelRight),
    LaurelPostNorm "laurel_post_norm.weight" Resident,
    AttnPostNorm "post_attention_norm.weight" Resident,
    ShortconvInProj "shortconv.in_proj.weight" Layer(Qkv),
    ShortconvConv "shortconv.conv.weight" Resident,
    ShortconvOutProj "shortconv.out_proj.weight" Layer(AttnOut),
    HcFfnNorm "hc_ffn_norm.weight" Resident,
    HcFfnDown "hc_ffn_down.weight" Layer(FfnStreamsDown),
    HcFfnInject "hc_ffn_inject.weight" Layer(FfnStreamsDown),
    HcFfnUp "hc_ffn_up.weight" Layer(FfnStreamsUp),
    FfnNorm "ffn_norm.weight" Resident,
    FfnNormBias "ffn_norm.bias" Resident,
    FfnPostNorm "post_ffw_norm.weight" Resident,
    FfnGate "ffn_gate.weight" Layer(GateUp),
    FfnGateBias "ffn_gate.bias" Resident,
    FfnUp "ffn_up.weight" Layer(GateUp),
    FfnUpBias "ffn_up.bias" Resident,
    FfnSubNorm "ffn_sub_norm.weight" Resident,
    FfnDown "ffn_down.weight" Layer(Down),
    FfnDownBias "ffn_down.bias" Resident,
    LayerOutputNorm "layer_output_norm.weight" Resident,
    LayerOutputNormBias "layer_output_norm.bias" Resident,
    FfnGateInp "ffn_gate_inp.weight" Layer(Router),
    FfnGateInpBias "ffn_gate_inp.bias" Resident,
    ExpProbsBias "exp_probs_b.bias" Resident,
    FfnGateExps "ffn_gate_exps.weight" Experts,
    FfnGateExpsBias "ffn_gate_exps.bias" Resident,
    FfnUpExps "ffn_up_exps.weight" Experts,
    FfnUpExpsBias "ffn_up_exps.bias" Resident,
    FfnDownExps "ffn_down_exps.weight" Experts,
    FfnDownExpsBias "ffn_down_exps.bias" Resident,
    FfnGateInpShexp "ffn_gate_inp_shexp.weight" Layer(Router),
    FfnGateShexp "ffn_gate_shexp.weight" Layer(GateUp),
    FfnUpShexp "ffn_up_shexp.weight" Layer(GateUp),
    FfnDownShexp "ffn_down_shexp.weight" Layer(Down),
    FfnGateInpScale "ffn_gate_inp.scale" Resident,
    PreFfwNorm2 "pre_ffw_norm_2.weight" Resident,
    PostFfwNorm1 "post_ffw_norm_1.weight" Resident,
    PostFfwNorm2 "post_ffw_norm_2.weight" Resident,
    InpGate "inp_gate.weight" Layer(EmbedGate),
    Proj "proj.weight" Layer(EmbedOut),
    PostNorm "post_norm.weight" Resident,
    LayerOutputScale "layer_output_scale.weight" Resident,
}

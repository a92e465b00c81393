//! Quantization mixes (llama.cpp's ftypes, such as `Q4_K_M`): which tensor gets which type.
//!
//! A mix is data: a base type, and rules for the tensors that lose more by it than others. The
//! first rule that applies wins; tensors without a rule get the base type. Source of the rules and
//! names: `llama-quant.cpp` of llama.cpp. Mixes of T2, T3 and T4 are atta's own: the head and a
//! tied embedding have at least four bits, and in `_M` mixes the values, the last projections of
//! feed-forward blocks and the outer layers get the next type. `QSF_MIXED` is the recipe of QSF's
//! plan, and the other types of QSF are the type of every matrix.

use atta_formats::TensorType;

use Condition::{
    Always, FirstEighthImatrix, FirstEighthNoImatrix, FirstFraction, FirstLayers, Gqa4,
    Gqa4OrExperts4, Middle, MoreBits, MoreBitsForEight, NoImatrix, Outer,
};

/// A quantization mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// llama.cpp's name or, of mixes of types that it lacks, atta's; in capitals.
    pub name: &'static str,
    /// `general.file_type` of files with this mix; `None`: llama.cpp has no number for it.
    pub file_type: Option<u32>,
    /// The type of most tensors.
    pub base: TensorType,
    rules: &'static [Rule],
}

/// The category of a tensor, as far as rules distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorCategory {
    Embedding,
    Output,
    /// Values, alone or fused with queries and keys.
    AttnV,
    AttnK,
    AttnQ,
    AttnOutput,
    FfnGate,
    FfnUp,
    FfnDown,
    /// Any matrix of experts.
    Experts,
    /// Any matrix of a layer, in rules only.
    Layer,
    Other,
}

/// The layers and models that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    Always,
    /// The first `n` layers.
    FirstLayers(usize),
    /// The first `1 / n` of the layers.
    FirstFraction(usize),
    /// llama.cpp's `use_more_bits`: the first and last eighth, and every third layer between.
    MoreBits,
    /// [`MoreBits`], for models of eight experts only.
    MoreBitsForEight,
    /// All layers except the first and the last eighth.
    Middle,
    /// The first and the last `n` layers, by the names of tensors.
    Outer(usize),
    /// Models with at least four query heads per key-value head.
    Gqa4,
    /// Models with at least four query heads per key-value head, or at least four experts.
    Gqa4OrExperts4,
    /// Conversions without an importance matrix.
    NoImatrix,
    /// The first eighth of the layers, with an importance matrix.
    FirstEighthImatrix,
    /// The first eighth of the layers, without an importance matrix.
    FirstEighthNoImatrix,
}

type Rule = (TensorCategory, Condition, TensorType);

macro_rules! mixes {
    ($(
        $name:literal, $file_type:expr, $base:ident:
            [$(($category:ident, $condition:expr, $ty:ident)),* $(,)?];
    )*) => {
        /// All mixes, by bits per weight.
        pub const MIXES: &[Mix] = &[$(Mix {
            name: $name,
            file_type: $file_type,
            base: TensorType::$base,
            rules: &[$((TensorCategory::$category, $condition, TensorType::$ty)),*],
        },)*];
    };
}

mixes! {
    "TQ1_0", Some(36), TQ1_0: [(Embedding, Always, Q4_K)];
    "TQ2_0", Some(37), TQ2_0: [(Embedding, Always, Q4_K)];
    "QSFT", None, QSFT: [];
    "T2", None, T2: [];
    "T2_M", None, T2: [
        (Embedding, Always, T4), (AttnV, Always, T3), (FfnDown, Always, T3), (Layer, Outer(2), T3),
    ];
    "IQ2_XXS", Some(19), IQ2_XXS: [
        (Embedding, Always, Q2_K), (AttnV, Gqa4OrExperts4, Q4_K), (AttnV, Always, Q2_K),
        (FfnDown, FirstFraction(8), Q2_K),
    ];
    "IQ2_XS", Some(20), IQ2_XS: [
        (Embedding, Always, Q2_K), (AttnV, Gqa4OrExperts4, Q4_K), (AttnV, Always, Q2_K),
        (FfnDown, FirstFraction(8), Q2_K),
    ];
    "IQ2_S", Some(28), IQ2_XS: [
        (Embedding, Always, IQ3_S), (AttnV, Gqa4OrExperts4, Q4_K), (AttnV, Always, IQ3_S),
        (FfnDown, FirstFraction(8), IQ3_S), (AttnOutput, Always, IQ3_S),
    ];
    "IQ2_M", Some(29), IQ2_S: [
        (Embedding, Always, IQ3_S), (AttnV, Gqa4OrExperts4, Q4_K), (AttnV, Always, IQ3_S),
        (FfnDown, FirstFraction(8), IQ3_S), (AttnOutput, Always, IQ3_S),
    ];
    "QSF2S", None, QSF2S: [];
    "QSF2", None, QSF2: [];
    "Q2_K_S", Some(21), Q2_K: [(AttnV, Gqa4, Q4_K), (FfnDown, FirstFraction(8), Q4_K)];
    "Q2_K", Some(10), Q2_K: [
        (AttnV, Gqa4, Q4_K), (AttnV, Always, Q3_K), (FfnDown, Always, Q3_K),
        (AttnOutput, Always, Q3_K),
    ];
    "QSF_MIXED", None, QSF2: [
        (Embedding, Always, QSF4), (AttnOutput, Always, QSF4), (FfnDown, Always, QSF4),
        (Other, Always, QSF4),
    ];
    "T3", None, T3: [];
    "T3_M", None, T3: [
        (Embedding, Always, T4), (AttnV, Always, T4), (FfnDown, Always, T4), (Layer, Outer(2), T4),
    ];
    "IQ3_XXS", Some(23), IQ3_XXS: [
        (Embedding, Always, IQ3_S), (AttnV, Gqa4, Q4_K), (AttnV, NoImatrix, IQ3_S),
        (AttnK, Always, IQ2_S), (AttnQ, Always, IQ2_S), (FfnDown, FirstEighthNoImatrix, Q4_K),
        (FfnDown, NoImatrix, Q3_K), (AttnOutput, Always, IQ3_S),
    ];
    "IQ3_XS", Some(22), IQ3_S: [
        (AttnV, Gqa4, Q4_K), (AttnK, Always, IQ3_XXS), (AttnQ, Always, IQ3_XXS),
        (FfnGate, Middle, IQ3_XXS), (FfnUp, Middle, IQ3_XXS),
    ];
    "IQ3_S", Some(26), IQ3_S: [(AttnV, Gqa4, Q4_K)];
    "IQ3_M", Some(27), IQ3_S: [
        (AttnV, Always, Q4_K), (FfnDown, FirstFraction(8), Q4_K),
        (FfnDown, MoreBitsForEight, Q4_K), (AttnOutput, Always, Q4_K),
    ];
    "Q3_K_S", Some(11), Q3_K: [];
    "QSF3", None, QSF3: [];
    "Q3_K_M", Some(12), Q3_K: [
        (AttnV, FirstLayers(2), Q5_K), (AttnV, Always, Q4_K), (FfnDown, FirstFraction(16), Q5_K),
        (FfnDown, Always, Q4_K), (AttnOutput, Always, Q4_K),
    ];
    "Q3_K_L", Some(13), Q3_K: [
        (AttnV, Always, Q5_K), (FfnDown, Always, Q5_K), (AttnOutput, Always, Q5_K),
    ];
    "T4", None, T4: [];
    "T4_M", None, T4: [
        (AttnV, Always, Q5_K), (FfnDown, Always, Q5_K), (Layer, Outer(2), Q5_K),
    ];
    "IQ4_XS", Some(30), IQ4_XS: [(AttnV, Gqa4, Q5_K), (FfnDown, FirstEighthNoImatrix, Q5_K)];
    "MXFP4_MOE", Some(38), MXFP4: [
        (Embedding, Always, Q8_0), (Experts, Always, MXFP4), (FfnDown, Always, Q8_0),
        (AttnV, Always, Q8_0), (AttnK, Always, Q8_0), (AttnQ, Always, Q8_0),
        (AttnOutput, Always, Q8_0), (FfnGate, Always, Q8_0), (FfnUp, Always, Q8_0),
        (Other, Always, Q8_0),
    ];
    "IQ4_NL", Some(25), IQ4_NL: [(AttnV, Gqa4, Q5_K), (FfnDown, FirstEighthNoImatrix, Q5_K)];
    "Q4_0", Some(2), Q4_0: [(FfnDown, FirstEighthImatrix, Q4_1)];
    "Q4_1", Some(3), Q4_1: [];
    "QSF4", None, QSF4: [];
    "Q4_K_S", Some(14), Q4_K: [(AttnV, FirstLayers(4), Q5_K), (FfnDown, FirstFraction(8), Q5_K)];
    "Q4_K_M", Some(15), Q4_K: [(AttnV, MoreBits, Q6_K), (FfnDown, MoreBits, Q6_K)];
    "Q5_0", Some(8), Q5_0: [(FfnDown, FirstEighthImatrix, Q5_1)];
    "Q5_1", Some(9), Q5_1: [];
    "Q5_K_S", Some(16), Q5_K: [];
    "Q5_K_M", Some(17), Q5_K: [(AttnV, MoreBits, Q6_K), (FfnDown, MoreBits, Q6_K)];
    "Q6_K", Some(18), Q6_K: [];
    "Q8_0", Some(7), Q8_0: [];
    "F16", Some(1), F16: [];
    "BF16", Some(32), BF16: [];
    "F32", Some(0), F32: [];
}

/// Other names of mixes.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Mixes whose `attn_output` gets Q5_K in models of eight experts.
const RAISED_FOR_EIGHT: [&str; 15] = [
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "Q2_K", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "Q3_K_S",
    "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ4_XS",
];

impl Mix {
    /// The mix with this name or alias, in any case.
    pub fn named(name: &str) -> Option<&'static Mix> {
        let name = name.to_ascii_uppercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name.as_str(), |(_, name)| name);
        MIXES.iter().find(|mix| mix.name == name)
    }

    /// Whether quantizing a tensor to `ty` in this mix requires an importance matrix.
    pub fn needs_importance(&self, ty: TensorType) -> bool {
        use TensorType::{IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS, Q2_K};
        matches!(ty, IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS) || self.name == "Q2_K_S" && ty == Q2_K
    }

    /// Whether this is an IQ2 mix, to which few of the general rules apply.
    fn is_iq2(&self) -> bool {
        self.name.starts_with("IQ2")
    }

    /// Whether the mix keeps floats.
    pub fn is_float(&self) -> bool {
        self.base.block_len() == 1
    }
}

/// The properties of a model that mixes depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelFacts {
    pub(crate) n_layers: usize,
    /// The last of these layers, which predict further tokens.
    pub(crate) n_nextn: usize,
    /// Query heads per key-value head in the first layer.
    pub(crate) n_group: usize,
    pub(crate) n_experts: usize,
    /// Whether the model has 80 layers and grouped-query attention. Its small `attn_v` gets more
    /// bits.
    pub(crate) is_70b: bool,
    /// Whether the embedding is also the output head.
    pub(crate) is_tied: bool,
    pub(crate) has_importance: bool,
}

/// Selects types tensor by tensor, in the order of [`order`]. Tensors with an override are not
/// counted, as in llama.cpp.
pub(crate) struct TypeSelector {
    mix: &'static Mix,
    facts: ModelFacts,
    /// Number of `attn_v` tensors seen.
    n_attn_v: usize,
    /// Number of gate, up and down tensors seen.
    n_ffn: [usize; 3],
    /// Number of `attn_v` tensors in the model.
    all_attn_v: usize,
}

/// Name and shape of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct TensorShape<'a> {
    pub(crate) name: &'a str,
    /// Outermost first.
    pub(crate) dims: &'a [u64],
}

impl TypeSelector {
    pub(crate) fn new(
        mix: &'static Mix,
        facts: ModelFacts,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Self {
        let all_attn_v = names
            .filter(|name| category(name.as_ref(), 2) == TensorCategory::AttnV)
            .count();
        Self {
            mix,
            facts,
            n_attn_v: 0,
            n_ffn: [0; 3],
            all_attn_v,
        }
    }

    /// Selects the type of the next tensor, for which [`is_quantized`] holds. A layer that predicts
    /// further tokens is in no importance matrix, so it has Q8_0 where the mix requires one.
    pub(crate) fn select(&mut self, tensor: TensorShape<'_>) -> TensorType {
        let ty = self.by_category(tensor);
        let ModelFacts {
            n_layers, n_nextn, ..
        } = self.facts;
        let is_nextn = layer_of(tensor.name).is_some_and(|l| l + n_nextn >= n_layers);
        match n_nextn > 0 && is_nextn && self.mix.needs_importance(ty) {
            true => TensorType::Q8_0,
            false => ty,
        }
    }

    fn by_category(&mut self, tensor: TensorShape<'_>) -> TensorType {
        let part = category(tensor.name, tensor.dims.len());
        if part == TensorCategory::Output || part == TensorCategory::Embedding && self.facts.is_tied
        {
            return self.output_type(tensor);
        }
        let ty = self.by_rules(part, tensor.name);
        match part {
            TensorCategory::AttnV => self.n_attn_v += 1,
            TensorCategory::FfnGate => self.n_ffn[0] += 1,
            TensorCategory::FfnUp => self.n_ffn[1] += 1,
            TensorCategory::FfnDown => self.n_ffn[2] += 1,
            _ => {}
        }
        self.with_more_bits(part, ty)
    }

    /// The type of the output head: 5 or 6 bits in mixes of fewer bits.
    fn output_type(&self, tensor: TensorShape<'_>) -> TensorType {
        let d = tensor.dims.last().copied().unwrap_or(1);
        match self.mix.base {
            base if base.is_qsf() => self.by_rules(TensorCategory::Embedding, tensor.name),
            base if base.is_own() => TensorType::T4,
            TensorType::Q8_0 | TensorType::MXFP4 => TensorType::Q8_0,
            base if !d.is_multiple_of(base.block_len() as u64) => TensorType::Q8_0,
            TensorType::IQ3_XXS => TensorType::Q5_K,
            _ if self.mix.is_iq2() => TensorType::Q5_K,
            _ => TensorType::Q6_K,
        }
    }

    fn by_rules(&self, part: TensorCategory, name: &str) -> TensorType {
        let is_experts = name.contains("_exps");
        let seen = match part {
            TensorCategory::FfnGate => self.n_ffn[0],
            TensorCategory::FfnUp => self.n_ffn[1],
            _ => self.n_ffn[2],
        };
        let (i, n) = match part {
            TensorCategory::AttnV => (self.n_attn_v, self.all_attn_v),
            // With experts, llama.cpp takes the layer from the name instead of counting.
            _ if self.facts.n_experts > 1 && !self.mix.is_iq2() => {
                (layer_of(name).unwrap_or(0), self.facts.n_layers)
            }
            _ => (seen, self.facts.n_layers),
        };
        let layer = layer_of(name);
        let found = self.mix.rules.iter().find(|(of, condition, _)| match of {
            TensorCategory::Layer => {
                layer.is_some_and(|l| self.applies(*condition, l, self.facts.n_layers))
            }
            TensorCategory::Experts if is_experts => self.applies(*condition, i, n),
            _ => *of == part && self.applies(*condition, i, n),
        });
        found.map_or(self.mix.base, |(_, _, ty)| *ty)
    }

    fn applies(&self, condition: Condition, i: usize, n: usize) -> bool {
        match condition {
            Always => true,
            FirstLayers(first) => i < first,
            FirstFraction(parts) => i < n / parts,
            MoreBits => i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2,
            MoreBitsForEight => self.facts.n_experts == 8 && self.applies(MoreBits, i, n),
            Middle => (n / 8..7 * n / 8).contains(&i),
            Outer(outer) => i < outer || i + outer >= n,
            Gqa4 => self.facts.n_group >= 4,
            Gqa4OrExperts4 => self.facts.n_group >= 4 || self.facts.n_experts >= 4,
            NoImatrix => !self.facts.has_importance,
            FirstEighthImatrix => self.facts.has_importance && i < n / 8,
            FirstEighthNoImatrix => !self.facts.has_importance && i < n / 8,
        }
    }

    /// Raises the bits of small tensors in models of eight experts or 70B models, where that costs
    /// little.
    fn with_more_bits(&self, part: TensorCategory, ty: TensorType) -> TensorType {
        let has_eight = self.facts.n_experts == 8;
        let is_70b = self.facts.is_70b;
        match (part, ty) {
            _ if self.mix.base == TensorType::MXFP4 || self.mix.base.is_own() => ty,
            (TensorCategory::AttnK, _) if has_eight && self.mix.is_iq2() => TensorType::Q4_K,
            (TensorCategory::AttnV, _) if self.mix.is_iq2() => ty,
            (TensorCategory::AttnV | TensorCategory::AttnK, _) if has_eight => TensorType::Q8_0,
            (TensorCategory::AttnV, TensorType::Q3_K | TensorType::Q4_K) if is_70b => {
                TensorType::Q5_K
            }
            (TensorCategory::AttnOutput, _)
                if has_eight && RAISED_FOR_EIGHT.contains(&self.mix.name) =>
            {
                TensorType::Q5_K
            }
            (TensorCategory::AttnOutput, _) if has_eight => self.mix.base,
            _ => ty,
        }
    }
}

/// Names of tensors that have projections of values.
const VALUES: [&str; 3] = ["attn_qkv.weight", "attn_v.weight", "attn_kv_b.weight"];

/// The category of a tensor, by its name and number of dimensions.
pub(crate) fn category(name: &str, n_dims: usize) -> TensorCategory {
    let has = |part: &str| name.contains(part);
    match name {
        "output.weight" => TensorCategory::Output,
        "token_embd.weight" | "per_layer_token_embd.weight" => TensorCategory::Embedding,
        _ if VALUES.iter().any(|part| has(part)) => TensorCategory::AttnV,
        _ if has("attn_k.weight") => TensorCategory::AttnK,
        _ if has("attn_q.weight") => TensorCategory::AttnQ,
        _ if has("attn_output.weight") => TensorCategory::AttnOutput,
        _ if has("ffn_down") => TensorCategory::FfnDown,
        _ if has("ffn_gate") => TensorCategory::FfnGate,
        _ if has("ffn_up") => TensorCategory::FfnUp,
        _ if n_dims > 2 => TensorCategory::Experts,
        _ => TensorCategory::Other,
    }
}

/// Names of tensors that are never quantized, as in llama.cpp: routers, positions, short
/// convolutions, small matrices that its kernels need in floats, and parts of image encoders.
const KEPT: [&str; 33] = [
    "_norm.weight",
    "ffn_gate_inp",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "altup",
    "laurel",
    "indexer.q_proj.weight",
    "indexer.k_proj.weight",
    "per_layer_model_proj",
    "token_types.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
];

/// Whether a tensor is quantized at all: matrices are, except those in [`KEPT`].
pub(crate) fn is_quantized(tensor: TensorShape<'_>) -> bool {
    let TensorShape { name, dims } = tensor;
    let n_dims = dims.iter().skip_while(|&&d| d == 1).count();
    let is_kept = KEPT.iter().any(|part| name.contains(part)) || name == "position_embd.weight";
    n_dims >= 2 && name.ends_with("weight") && !is_kept
}

/// The fallback type if a row of `d` weights is not a whole number of blocks of `ty`; `ty` if it
/// is.
pub(crate) fn fitting(ty: TensorType, d: u64) -> TensorType {
    use TensorType::*;
    let fits = |ty: TensorType| d.is_multiple_of(ty.row_unit() as u64);
    let smaller = match ty {
        _ if fits(ty) => return ty,
        IQ4_XS | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S => IQ4_NL,
        Q2_K | Q3_K | TQ1_0 | TQ2_0 => Q4_0,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        _ => F16,
    };
    if fits(smaller) { smaller } else { F16 }
}

/// The order in which tensors are counted and written: tensors without a layer first, then layer by
/// layer, by name.
pub(crate) fn order(name: &str) -> (Option<usize>, &str) {
    (layer_of(name), name)
}

pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: ModelFacts = ModelFacts {
        n_layers: 16,
        n_nextn: 0,
        n_group: 2,
        n_experts: 0,
        is_70b: false,
        is_tied: false,
        has_importance: false,
    };

    /// The types of one role, layer by layer.
    fn types(mix: &str, facts: ModelFacts, role: &str) -> Vec<TensorType> {
        let names: Vec<String> = (0..facts.n_layers)
            .map(|l| format!("blk.{l}.{role}.weight"))
            .collect();
        let mut selector = TypeSelector::new(Mix::named(mix).unwrap(), facts, names.iter());
        names
            .iter()
            .map(|name| {
                selector.select(TensorShape {
                    name,
                    dims: &[512, 512],
                })
            })
            .collect()
    }

    fn one(mix: &str, facts: ModelFacts, name: &str, dims: &[u64]) -> TensorType {
        TypeSelector::new(Mix::named(mix).unwrap(), facts, std::iter::empty::<&str>())
            .select(TensorShape { name, dims })
    }

    #[test]
    fn medium_mixes_use_more_bits_in_the_outer_layers_and_every_third() {
        let more: Vec<usize> = (0..16)
            .filter(|&l| types("q4_k_m", LLAMA, "attn_v")[l] == TensorType::Q6_K)
            .collect();
        assert_eq!(more, [0, 1, 4, 7, 10, 13, 14, 15]);
        assert_eq!(
            types("Q5_K_M", LLAMA, "ffn_down")[..3],
            [TensorType::Q6_K, TensorType::Q6_K, TensorType::Q5_K]
        );
        assert_eq!(types("q4_k_m", LLAMA, "attn_k"), [TensorType::Q4_K; 16]);
    }

    #[test]
    fn projections_of_keys_and_values_in_one_are_of_values() {
        let both = types("q4_k_m", LLAMA, "attn_kv_b");
        assert_eq!(both, types("q4_k_m", LLAMA, "attn_v"));
        assert_ne!(both, types("q4_k_m", LLAMA, "attn_k_b"));
    }

    #[test]
    fn the_head_has_six_bits_and_a_tied_embedding_is_one() {
        assert_eq!(
            one("q4_k", LLAMA, "output.weight", &[32000, 512]),
            TensorType::Q6_K
        );
        assert_eq!(
            one("q4_k", LLAMA, "output.weight", &[32000, 96]),
            TensorType::Q8_0
        );
        assert_eq!(
            one("q8_0", LLAMA, "output.weight", &[32000, 512]),
            TensorType::Q8_0
        );
        assert_eq!(
            one("q4_k", LLAMA, "token_embd.weight", &[32000, 512]),
            TensorType::Q4_K
        );
        assert_eq!(
            one("tq2_0", LLAMA, "token_embd.weight", &[32000, 512]),
            TensorType::Q4_K
        );
        let tied = ModelFacts {
            is_tied: true,
            ..LLAMA
        };
        for table in ["token_embd.weight", "per_layer_token_embd.weight"] {
            assert_eq!(one("q4_k", tied, table, &[32000, 512]), TensorType::Q6_K);
        }
    }

    #[test]
    fn an_importance_matrix_changes_which_layers_get_more() {
        let with = ModelFacts {
            has_importance: true,
            ..LLAMA
        };
        assert_eq!(
            types("q4_0", with, "ffn_down")[1..3],
            [TensorType::Q4_1, TensorType::Q4_0]
        );
        assert_eq!(types("q4_0", LLAMA, "ffn_down")[1], TensorType::Q4_0);
        assert_eq!(
            types("iq4_xs", LLAMA, "ffn_down")[1..3],
            [TensorType::Q5_K, TensorType::IQ4_XS]
        );
        assert_eq!(types("iq4_xs", with, "ffn_down")[1], TensorType::IQ4_XS);
    }

    #[test]
    fn a_layer_that_predicts_further_tokens_needs_no_importance_matrix() {
        let with = ModelFacts {
            n_nextn: 1,
            has_importance: true,
            ..LLAMA
        };
        let types_of = |facts| types("iq2_xxs", facts, "attn_q");
        assert_eq!(types_of(with)[15], TensorType::Q8_0);
        assert_eq!(
            types_of(with)[..15],
            types_of(ModelFacts { n_nextn: 0, ..with })[..15]
        );
        assert_eq!(types("q4_k_m", with, "attn_q"), [TensorType::Q4_K; 16]);
    }

    #[test]
    fn small_tensors_get_more_bits_with_eight_experts() {
        let eight = ModelFacts {
            n_experts: 8,
            ..LLAMA
        };
        assert_eq!(types("q2_k", eight, "attn_k"), [TensorType::Q8_0; 16]);
        assert_eq!(types("q2_k", eight, "attn_output"), [TensorType::Q5_K; 16]);
        assert_eq!(
            types("q3_k_l", eight, "attn_output"),
            [TensorType::Q3_K; 16]
        );
        assert_eq!(
            one(
                "mxfp4_moe",
                eight,
                "blk.3.ffn_down_exps.weight",
                &[8, 512, 512]
            ),
            TensorType::MXFP4
        );
        assert_eq!(
            one("mxfp4_moe", eight, "blk.3.attn_output.weight", &[512, 512]),
            TensorType::Q8_0
        );
        assert_eq!(
            one(
                "q4_k_m",
                eight,
                "blk.1.ffn_down_exps.weight",
                &[8, 512, 512]
            ),
            TensorType::Q6_K
        );
    }

    #[test]
    fn own_mixes_raise_values_last_projections_and_outer_layers_by_one_type() {
        use TensorType::{Q5_K, T2, T3, T4};
        let outer: Vec<TensorType> = types("t2_m", LLAMA, "attn_q");
        assert_eq!((outer[1], outer[2], outer[13], outer[14]), (T3, T2, T2, T3));
        assert_eq!(types("t2_m", LLAMA, "attn_v"), [T3; 16]);
        assert_eq!(types("t3_m", LLAMA, "ffn_down"), [T4; 16]);
        assert_eq!(types("t4_m", LLAMA, "ffn_down"), [Q5_K; 16]);
        assert_eq!(types("t2", LLAMA, "ffn_down"), [T2; 16]);
        for mix in ["t2", "t2_m", "t3", "t4_m"] {
            assert_eq!(one(mix, LLAMA, "output.weight", &[32000, 96]), T4);
        }
        assert_eq!(one("t2", LLAMA, "token_embd.weight", &[32000, 96]), T2);
        assert_eq!(one("t2_m", LLAMA, "token_embd.weight", &[32000, 96]), T4);
        let eight = ModelFacts {
            n_experts: 8,
            ..LLAMA
        };
        assert_eq!(types("t3_m", eight, "attn_k")[8], T3);
    }

    #[test]
    fn rows_that_are_no_whole_blocks_get_a_fallback_type() {
        assert_eq!(fitting(TensorType::Q4_K, 512), TensorType::Q4_K);
        assert_eq!(fitting(TensorType::Q4_K, 96), TensorType::Q5_0);
        assert_eq!(fitting(TensorType::IQ4_XS, 96), TensorType::IQ4_NL);
        assert_eq!(fitting(TensorType::Q6_K, 40), TensorType::F16);
        assert_eq!(fitting(TensorType::Q8_0, 40), TensorType::F16);
        assert_eq!(fitting(TensorType::T3, 96), TensorType::T3);
        assert_eq!(fitting(TensorType::T3, 48), TensorType::F16);
        assert_eq!(fitting(TensorType::F16, 7), TensorType::F16);
    }

    #[test]
    fn routers_norms_and_positions_keep_their_floats() {
        let is = |name, dims| is_quantized(TensorShape { name, dims });
        assert!(is("blk.0.attn_q.weight", &[8, 8]) && is("blk.0.ffn_up_exps.weight", &[4, 8, 8]));
        assert!(!is("blk.0.ffn_gate_inp.weight", &[4, 8]) && !is("position_embd.weight", &[4, 8]));
        assert!(
            !is("blk.0.shortconv.conv.weight", &[8, 3])
                && is("blk.0.shortconv.in_proj.weight", &[8, 8])
        );
        assert!(
            !is("blk.0.time_mix_w1.weight", &[8, 8]) && is("blk.0.time_mix_key.weight", &[8, 8])
        );
        assert!(!is("token_types.weight", &[8, 2]) && !is("blk.0.laurel_l.weight", &[8, 8]));
        assert!(
            !is("blk.0.attn_q.bias", &[8, 8])
                && !is("output_norm.weight", &[8])
                && !is("x.weight", &[1, 8])
        );
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(Mix::named("q4_k").unwrap().name, "Q4_K_M");
        assert!(Mix::named("Q4_k_S").is_some() && Mix::named("q4_k_x").is_none());
    }

    #[test]
    fn tensors_are_ordered_by_layer_and_not_by_digits() {
        let mut names = ["blk.10.b", "output.weight", "blk.2.a", "blk.2.A"];
        names.sort_by(|a, b| order(a).cmp(&order(b)));
        assert_eq!(names, ["output.weight", "blk.2.A", "blk.2.a", "blk.10.b"]);
    }
}

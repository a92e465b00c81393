//! Which tensor gets which type: the mixes that people know by name.
//!
//! A mix is data: a base type, and rules for the parts of a model that lose more by it than others.
//! The first rule that applies wins; what no rule speaks of gets the base. Source of the rules:
//! `llama-quant.cpp` of llama.cpp, whose names they bear, so that a file by that name is what
//! people expect.

use atta_formats::TensorType;

use When::{
    Always, Below, First, Grouped, Late, LateOfEight, Middle, Shared, WithImportance, Without,
    WithoutImportance,
};

/// A mix by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// What it is called, in capitals.
    pub name: &'static str,
    /// `general.file_type` of files that are made by it.
    pub file_type: u32,
    /// The type of most tensors.
    pub base: TensorType,
    rules: &'static [Rule],
}

/// What a tensor is for, as far as mixes care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Embedding,
    Output,
    /// Values, alone or with queries and keys.
    AttnV,
    AttnK,
    AttnQ,
    AttnOutput,
    FfnGate,
    FfnUp,
    FfnDown,
    /// Any of the matrices of experts.
    Experts,
    Other,
}

/// Where a rule applies: in which layers, of which models.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Always,
    /// In the first `n` layers.
    First(usize),
    /// In the first of `n` equal parts of the layers.
    Below(usize),
    /// In the first and last eighth of the layers and every third of the others.
    Late,
    /// The same in models of eight experts only.
    LateOfEight,
    /// In all but the first and the last eighth.
    Middle,
    /// Where at least four query heads share a key head.
    Grouped,
    /// The same, and where there are at least four experts.
    Shared,
    /// Without an importance matrix.
    Without,
    /// In the first eighth, where errors are weighed by an importance matrix.
    WithImportance,
    /// In the first eighth, where they are not.
    WithoutImportance,
}

type Rule = (Part, When, TensorType);

macro_rules! mixes {
    ($($name:literal, $file_type:literal, $base:ident: [$(($part:ident, $when:expr, $ty:ident)),*];)*) => {
        /// Every mix, by bits per weight.
        pub const MIXES: &[Mix] = &[$(Mix {
            name: $name,
            file_type: $file_type,
            base: TensorType::$base,
            rules: &[$((Part::$part, $when, TensorType::$ty)),*],
        },)*];
    };
}

mixes! {
    "TQ1_0", 36, TQ1_0: [(Embedding, Always, Q4_K)];
    "TQ2_0", 37, TQ2_0: [(Embedding, Always, Q4_K)];
    "IQ2_XXS", 19, IQ2_XXS: [(Embedding, Always, Q2_K), (AttnV, Shared, Q4_K), (AttnV, Always, Q2_K), (FfnDown, Below(8), Q2_K)];
    "IQ2_XS", 20, IQ2_XS: [(Embedding, Always, Q2_K), (AttnV, Shared, Q4_K), (AttnV, Always, Q2_K), (FfnDown, Below(8), Q2_K)];
    "IQ2_S", 28, IQ2_XS: [(Embedding, Always, IQ3_S), (AttnV, Shared, Q4_K), (AttnV, Always, IQ3_S), (FfnDown, Below(8), IQ3_S),
        (AttnOutput, Always, IQ3_S)];
    "IQ2_M", 29, IQ2_S: [(Embedding, Always, IQ3_S), (AttnV, Shared, Q4_K), (AttnV, Always, IQ3_S), (FfnDown, Below(8), IQ3_S),
        (AttnOutput, Always, IQ3_S)];
    "Q2_K_S", 21, Q2_K: [(AttnV, Grouped, Q4_K), (FfnDown, Below(8), Q4_K)];
    "Q2_K", 10, Q2_K: [(AttnV, Grouped, Q4_K), (AttnV, Always, Q3_K), (FfnDown, Always, Q3_K), (AttnOutput, Always, Q3_K)];
    "IQ3_XXS", 23, IQ3_XXS: [(Embedding, Always, IQ3_S), (AttnV, Grouped, Q4_K), (AttnV, Without, IQ3_S), (AttnK, Always, IQ2_S),
        (AttnQ, Always, IQ2_S), (FfnDown, WithoutImportance, Q4_K), (FfnDown, Without, Q3_K), (AttnOutput, Always, IQ3_S)];
    "IQ3_XS", 22, IQ3_S: [(AttnV, Grouped, Q4_K), (AttnK, Always, IQ3_XXS), (AttnQ, Always, IQ3_XXS), (FfnGate, Middle, IQ3_XXS),
        (FfnUp, Middle, IQ3_XXS)];
    "IQ3_S", 26, IQ3_S: [(AttnV, Grouped, Q4_K)];
    "IQ3_M", 27, IQ3_S: [(AttnV, Always, Q4_K), (FfnDown, Below(8), Q4_K), (FfnDown, LateOfEight, Q4_K), (AttnOutput, Always, Q4_K)];
    "Q3_K_S", 11, Q3_K: [];
    "Q3_K_M", 12, Q3_K: [(AttnV, First(2), Q5_K), (AttnV, Always, Q4_K), (FfnDown, Below(16), Q5_K),
        (FfnDown, Always, Q4_K), (AttnOutput, Always, Q4_K)];
    "Q3_K_L", 13, Q3_K: [(AttnV, Always, Q5_K), (FfnDown, Always, Q5_K), (AttnOutput, Always, Q5_K)];
    "IQ4_XS", 30, IQ4_XS: [(AttnV, Grouped, Q5_K), (FfnDown, WithoutImportance, Q5_K)];
    "MXFP4_MOE", 38, MXFP4: [(Embedding, Always, Q8_0), (Experts, Always, MXFP4), (FfnDown, Always, Q8_0),
        (AttnV, Always, Q8_0), (AttnK, Always, Q8_0), (AttnQ, Always, Q8_0), (AttnOutput, Always, Q8_0), (FfnGate, Always, Q8_0),
        (FfnUp, Always, Q8_0), (Other, Always, Q8_0)];
    "IQ4_NL", 25, IQ4_NL: [(AttnV, Grouped, Q5_K), (FfnDown, WithoutImportance, Q5_K)];
    "Q4_0", 2, Q4_0: [(FfnDown, WithImportance, Q4_1)];
    "Q4_1", 3, Q4_1: [];
    "Q4_K_S", 14, Q4_K: [(AttnV, First(4), Q5_K), (FfnDown, Below(8), Q5_K)];
    "Q4_K_M", 15, Q4_K: [(AttnV, Late, Q6_K), (FfnDown, Late, Q6_K)];
    "Q5_0", 8, Q5_0: [(FfnDown, WithImportance, Q5_1)];
    "Q5_1", 9, Q5_1: [];
    "Q5_K_S", 16, Q5_K: [];
    "Q5_K_M", 17, Q5_K: [(AttnV, Late, Q6_K), (FfnDown, Late, Q6_K)];
    "Q6_K", 18, Q6_K: [];
    "Q8_0", 7, Q8_0: [];
    "F16", 1, F16: [];
    "BF16", 32, BF16: [];
    "F32", 0, F32: [];
}

/// What people also call a mix.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Mixes whose output projections of attention get Q5_K in models of eight experts.
const RAISED_FOR_EIGHT: [&str; 15] = [
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "Q2_K", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "Q3_K_S",
    "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ4_XS",
];

impl Mix {
    /// The mix of this name, in any case.
    pub fn named(name: &str) -> Option<&'static Mix> {
        let name = name.to_ascii_uppercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name.as_str(), |(_, name)| name);
        MIXES.iter().find(|mix| mix.name == name)
    }

    /// Whether a tensor of this part makes sense only with an importance matrix.
    pub fn needs_importance(&self, ty: TensorType) -> bool {
        use TensorType::{IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS, Q2_K};
        matches!(ty, IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS) || self.name == "Q2_K_S" && ty == Q2_K
    }

    /// Whether it is one of two bits, which keeps few of the rules of the others.
    fn is_iq2(&self) -> bool {
        self.name.starts_with("IQ2")
    }

    /// Whether it is one of plain floats, without any quantized type.
    pub fn is_float(&self) -> bool {
        self.base.block_len() == 1
    }
}

/// What mixes ask of a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) n_layers: usize,
    /// Query heads per key head, of the first layer.
    pub(crate) n_group: usize,
    pub(crate) n_experts: usize,
    /// 80 layers with grouped heads: its values are an eighth of its queries and get more bits.
    pub(crate) is_70b: bool,
    /// Whether the embedding is the output head too.
    pub(crate) is_tied: bool,
    pub(crate) has_importance: bool,
}

/// Chooses types tensor by tensor, in the order of [`order`]. Those that get their type elsewhere
/// are not counted, as in llama.cpp.
pub(crate) struct Chooser {
    mix: &'static Mix,
    facts: Facts,
    /// Tensors seen of those that are counted: values, and each projection of perceptrons.
    n_attn_v: usize,
    n_ffn: [usize; 3],
    /// Values of all layers.
    all_attn_v: usize,
}

/// A tensor, as mixes see it.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) name: &'a str,
    /// Outermost first.
    pub(crate) dims: &'a [u64],
}

impl Chooser {
    pub(crate) fn new(
        mix: &'static Mix,
        facts: Facts,
        names: impl Iterator<Item = impl AsRef<str>>,
    ) -> Self {
        let all_attn_v = names
            .filter(|name| part(name.as_ref(), 2) == Part::AttnV)
            .count();
        Self {
            mix,
            facts,
            n_attn_v: 0,
            n_ffn: [0; 3],
            all_attn_v,
        }
    }

    /// The type of the next tensor, which is one that is quantized at all.
    pub(crate) fn choose(&mut self, tensor: Shape<'_>) -> TensorType {
        let part = part(tensor.name, tensor.dims.len());
        if part == Part::Output || part == Part::Embedding && self.facts.is_tied {
            return self.head(tensor);
        }
        let ty = self.by_rules(part, tensor.name);
        match part {
            Part::AttnV => self.n_attn_v += 1,
            Part::FfnGate => self.n_ffn[0] += 1,
            Part::FfnUp => self.n_ffn[1] += 1,
            Part::FfnDown => self.n_ffn[2] += 1,
            _ => {}
        }
        self.raised(part, ty)
    }

    /// The output head is worth 6 bits in every mix with fewer.
    fn head(&self, tensor: Shape<'_>) -> TensorType {
        let d = tensor.dims.last().copied().unwrap_or(1);
        match self.mix.base {
            TensorType::Q8_0 | TensorType::MXFP4 => TensorType::Q8_0,
            base if !d.is_multiple_of(base.block_len() as u64) => TensorType::Q8_0,
            TensorType::IQ3_XXS => TensorType::Q5_K,
            _ if self.mix.is_iq2() => TensorType::Q5_K,
            _ => TensorType::Q6_K,
        }
    }

    fn by_rules(&self, part: Part, name: &str) -> TensorType {
        let is_experts = name.contains("_exps");
        let seen = match part {
            Part::FfnGate => self.n_ffn[0],
            Part::FfnUp => self.n_ffn[1],
            _ => self.n_ffn[2],
        };
        let (i, n) = match part {
            Part::AttnV => (self.n_attn_v, self.all_attn_v),
            // Tensors of experts do not come one per layer.
            _ if self.facts.n_experts > 1 && !self.mix.is_iq2() => {
                (layer_of(name).unwrap_or(0), self.facts.n_layers)
            }
            _ => (seen, self.facts.n_layers),
        };
        let found = self.mix.rules.iter().find(|(of, when, _)| {
            let is_it = *of == part || *of == Part::Experts && is_experts;
            is_it && self.applies(*when, i, n)
        });
        found.map_or(self.mix.base, |(_, _, ty)| *ty)
    }

    fn applies(&self, when: When, i: usize, n: usize) -> bool {
        match when {
            Always => true,
            First(first) => i < first,
            Below(parts) => i < n / parts,
            Late => i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2,
            LateOfEight => self.facts.n_experts == 8 && self.applies(Late, i, n),
            Middle => (n / 8..7 * n / 8).contains(&i),
            Grouped => self.facts.n_group >= 4,
            Shared => self.facts.n_group >= 4 || self.facts.n_experts >= 4,
            Without => !self.facts.has_importance,
            WithImportance => self.facts.has_importance && i < n / 8,
            WithoutImportance => !self.facts.has_importance && i < n / 8,
        }
    }

    /// Small tensors of models with shared heads or eight experts, where more bits cost next to
    /// nothing.
    fn raised(&self, part: Part, ty: TensorType) -> TensorType {
        let has_eight = self.facts.n_experts == 8;
        let is_70b = self.facts.is_70b;
        match (part, ty) {
            _ if self.mix.base == TensorType::MXFP4 => ty,
            (Part::AttnK, _) if has_eight && self.mix.is_iq2() => TensorType::Q4_K,
            (Part::AttnV, _) if self.mix.is_iq2() => ty,
            (Part::AttnV | Part::AttnK, _) if has_eight => TensorType::Q8_0,
            (Part::AttnV, TensorType::Q3_K | TensorType::Q4_K) if is_70b => TensorType::Q5_K,
            (Part::AttnOutput, _) if has_eight && RAISED_FOR_EIGHT.contains(&self.mix.name) => {
                TensorType::Q5_K
            }
            (Part::AttnOutput, _) if has_eight => self.mix.base,
            _ => ty,
        }
    }
}

/// What a tensor of this name and number of dimensions is for.
fn part(name: &str, n_dims: usize) -> Part {
    let has = |part: &str| name.contains(part);
    match name {
        "output.weight" => Part::Output,
        "token_embd.weight" => Part::Embedding,
        _ if has("attn_qkv.weight") || has("attn_v.weight") => Part::AttnV,
        _ if has("attn_k.weight") => Part::AttnK,
        _ if has("attn_q.weight") => Part::AttnQ,
        _ if has("attn_output.weight") => Part::AttnOutput,
        _ if has("ffn_down") => Part::FfnDown,
        _ if has("ffn_gate") => Part::FfnGate,
        _ if has("ffn_up") => Part::FfnUp,
        _ if n_dims > 2 => Part::Experts,
        _ => Part::Other,
    }
}

/// What stays as it is whatever the mix, as in llama.cpp: routers, positions, convolutions of a few
/// taps, small matrices that its kernels want in floats, and parts of image encoders.
const KEPT: [&str; 31] = [
    "_norm.weight",
    "ffn_gate_inp",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "altup",
    "laurel",
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

/// Whether mixes speak of a tensor at all: matrices do, but for what is [`KEPT`].
pub(crate) fn is_quantized(tensor: Shape<'_>) -> bool {
    let Shape { name, dims } = tensor;
    let n_dims = dims.iter().skip_while(|&&d| d == 1).count();
    let is_kept = KEPT.iter().any(|part| name.contains(part)) || name == "position_embd.weight";
    n_dims >= 2 && name.ends_with("weight") && !is_kept
}

/// The type that a row of `d` weights can have instead of `ty`, whose blocks do not fit it.
pub(crate) fn fitting(ty: TensorType, d: u64) -> TensorType {
    use TensorType::*;
    let fits = |ty: TensorType| d.is_multiple_of(ty.block_len() as u64);
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

/// The order in which tensors are counted and written: what has no layer first, then layer by
/// layer, by name.
pub(crate) fn order(name: &str) -> (Option<usize>, &str) {
    (layer_of(name), name)
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: Facts = Facts {
        n_layers: 16,
        n_group: 2,
        n_experts: 0,
        is_70b: false,
        is_tied: false,
        has_importance: false,
    };

    /// The types of one role, layer by layer.
    fn types(mix: &str, facts: Facts, role: &str) -> Vec<TensorType> {
        let names: Vec<String> = (0..facts.n_layers)
            .map(|l| format!("blk.{l}.{role}.weight"))
            .collect();
        let mut chooser = Chooser::new(Mix::named(mix).unwrap(), facts, names.iter());
        names
            .iter()
            .map(|name| {
                chooser.choose(Shape {
                    name,
                    dims: &[512, 512],
                })
            })
            .collect()
    }

    fn one(mix: &str, facts: Facts, name: &str, dims: &[u64]) -> TensorType {
        Chooser::new(Mix::named(mix).unwrap(), facts, std::iter::empty::<&str>())
            .choose(Shape { name, dims })
    }

    #[test]
    fn medium_mixes_give_more_bits_to_the_ends_and_every_third_layer() {
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
        let tied = Facts {
            is_tied: true,
            ..LLAMA
        };
        assert_eq!(
            one("q4_k", tied, "token_embd.weight", &[32000, 512]),
            TensorType::Q6_K
        );
    }

    #[test]
    fn an_importance_matrix_changes_which_layers_get_more() {
        let with = Facts {
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
    fn eight_experts_raise_what_is_small() {
        let eight = Facts {
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
    fn rows_that_are_no_whole_blocks_get_what_fits() {
        assert_eq!(fitting(TensorType::Q4_K, 512), TensorType::Q4_K);
        assert_eq!(fitting(TensorType::Q4_K, 96), TensorType::Q5_0);
        assert_eq!(fitting(TensorType::IQ4_XS, 96), TensorType::IQ4_NL);
        assert_eq!(fitting(TensorType::Q6_K, 40), TensorType::F16);
        assert_eq!(fitting(TensorType::Q8_0, 40), TensorType::F16);
        assert_eq!(fitting(TensorType::F16, 7), TensorType::F16);
    }

    #[test]
    fn routers_norms_and_positions_keep_their_floats() {
        let is = |name, dims| is_quantized(Shape { name, dims });
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

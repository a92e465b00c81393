//! The texts of the kernels: pieces of WGSL, one behind the other.
//!
//! As on the CPU, kernels are formats + algorithms and not their product: a format is a file with
//! the functions that an algorithm calls. There is no preprocessor. It knows no driver.

use crate::{ActLayout, GpuKv, ProductWay, ScanRule, WeightFormat};
use atta_kernels::GroupSteps;

/// The text of a kernel. Its entry point is `main`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shader {
    /// Its name, such as `matmul q4_k columns`.
    pub name: String,
    /// WGSL.
    pub text: String,
}

const EXACT: &str = include_str!("shaders/exact.wgsl");
const MATH: &str = include_str!("shaders/math.wgsl");
const MEMORY: &str = include_str!("shaders/memory.wgsl");
const KV: &str = include_str!("shaders/kv.wgsl");
const KV_SHARED: &str = include_str!("shaders/kv_shared.wgsl");
const HISTORY: &str = include_str!("shaders/history.wgsl");
const PRODUCT: &str = include_str!("shaders/matmul.wgsl");
const ONE: &str = include_str!("shaders/columns/one.wgsl");
const ALL_COLUMNS: &str = include_str!("shaders/columns/all.wgsl");
const OF_256: &str = include_str!("shaders/matmul_256.wgsl");
const OF_32: &str = include_str!("shaders/matmul_32.wgsl");
const OF_FLOATS: &str = include_str!("shaders/matmul_float.wgsl");
const TILE: &str = include_str!("shaders/tile.wgsl");
const TILE_256: &str = include_str!("shaders/tile_256.wgsl");
const TILE_32: &str = include_str!("shaders/tile_32.wgsl");
const HEAD: &str = include_str!("shaders/head.wgsl");
const NORM: &str = include_str!("shaders/norm.wgsl");
const STORED: &str = include_str!("shaders/stored.wgsl");
const CODES: &str = include_str!("shaders/codes16.wgsl");
const CODES_8: &str = include_str!("shaders/codes8.wgsl");
const ATTENTION: &str = include_str!("shaders/attention.wgsl");

impl Shader {
    /// The kernels that models of every kind have: those that know no format.
    pub(crate) fn common() -> [Self; 17] {
        [
            Self::quantize(),
            Self::add(),
            Self::add_scaled(),
            Self::convolve(),
            Self::keep_inputs(),
            Self::decays(),
            Self::norm_heads(),
            Self::multiply(),
            Self::heads(),
            Self::move_keys(),
            Self::copy_blocks(),
            Self::merge(),
            Self::route(),
            Self::group_slots(),
            Self::combine(),
            Self::transposed(),
            Self::copy_columns(),
        ]
    }

    /// A kernel of these pieces, behind memory and exact floats.
    fn new(name: &str, pieces: &[&str]) -> Self {
        let name = name.to_owned();
        let text = [&[MEMORY, EXACT][..], pieces].concat().join("\n");
        Self { name, text }
    }

    /// Single operations, for the self-test.
    pub(crate) fn operations() -> Self {
        let algorithm = include_str!("shaders/operations.wgsl");
        Self::new("operations", &[MATH, algorithm])
    }

    /// Rows of activations.
    pub fn quantize() -> Self {
        let algorithm = include_str!("shaders/quantize.wgsl");
        Self::new("quantize", &[MATH, NORM, algorithm])
    }

    /// Heads of queries, keys and values.
    pub fn heads() -> Self {
        let algorithm = include_str!("shaders/heads.wgsl");
        let pieces = [KV_SHARED, HEAD, CODES, CODES_8, STORED, algorithm];
        Self::new("heads", &pieces)
    }

    /// Keys at other positions.
    pub fn move_keys() -> Self {
        let algorithm = include_str!("shaders/move_keys.wgsl");
        let pieces = [KV_SHARED, HEAD, CODES, CODES_8, STORED, algorithm];
        Self::new("move keys", &pieces)
    }

    /// Copies of KV blocks.
    pub fn copy_blocks() -> Self {
        let algorithm = include_str!("shaders/copy_blocks.wgsl");
        Self::new("copy blocks", &[KV, algorithm])
    }

    /// Convolutions over the last positions.
    pub fn convolve() -> Self {
        let algorithm = include_str!("shaders/conv.wgsl");
        Self::new("convolve", &[KV, HISTORY, MATH, algorithm])
    }

    /// The last inputs of convolutions, for states.
    pub fn keep_inputs() -> Self {
        let algorithm = include_str!("shaders/keep.wgsl");
        Self::new("keep inputs", &[KV, HISTORY, algorithm])
    }

    /// Decays and gains of states.
    pub fn decays() -> Self {
        Self::new("decays", &[MATH, include_str!("shaders/decays.wgsl")])
    }

    /// Heads divided by their length.
    pub fn norm_heads() -> Self {
        Self::new("norm heads", &[include_str!("shaders/l2_norm.wgsl")])
    }

    /// States of heads, taken through positions by a rule.
    pub fn scan(rule: ScanRule) -> Self {
        let name = format!("scan {rule:?}").to_lowercase();
        let algorithm = include_str!("shaders/scan.wgsl");
        let pieces = [&[KV, MATH, algorithm][..], text_of_rule(rule)].concat();
        Self::new(&name, &pieces)
    }

    /// What adapters add to rows.
    pub fn add_scaled() -> Self {
        Self::new("add scaled", &[include_str!("shaders/add_scaled.wgsl")])
    }

    /// Rows times a number or gates.
    pub fn multiply() -> Self {
        Self::new("multiply", &[MATH, include_str!("shaders/multiply.wgsl")])
    }

    /// Results of sublayers with a norm behind them.
    pub fn add() -> Self {
        Self::new("add", &[NORM, include_str!("shaders/add.wgsl")])
    }

    /// Partial results of attention over keys and values of these types.
    pub fn attention(keys: GpuKv, values: GpuKv) -> Self {
        let [of_keys, of_values] = [keys.elem(), values.elem()];
        let name = format!("attention {of_keys:?} {of_values:?}").to_lowercase();
        let rows = include_str!("shaders/attention/rows_bytes.wgsl");
        let all = [KV, MATH, CODES, CODES_8, ATTENTION, rows];
        let pieces = [&all[..], text_of_keys(keys), text_of_values(values)].concat();
        Self::new(&name, &pieces)
    }

    /// Attention over a KV cache of this type whose keys are the values from an element on.
    pub fn latent_attention(kv: GpuKv) -> Self {
        if kv != GpuKv::Codes {
            return Self::attention(kv, kv);
        }
        const SUMS: &str = include_str!("shaders/attention/values_codes.wgsl");
        let of_latent = include_str!("shaders/attention/values_of_latent.wgsl");
        let all = [KV, MATH, CODES, CODES_8, ATTENTION];
        let pieces = [&all[..], text_of_keys(kv), &[SUMS, of_latent]].concat();
        Self::new("attention latent f16", &pieces)
    }

    /// The merge of partial results.
    pub fn merge() -> Self {
        let algorithm = include_str!("shaders/merge.wgsl");
        Self::new("merge", &[MATH, HEAD, algorithm])
    }

    /// Products with matrices of a format; floats have no tiles.
    pub fn product(format: WeightFormat, way: ProductWay) -> Option<Self> {
        Self::product_of("matmul", format, way, &[ONE, ALL_COLUMNS])
    }

    /// Products with several matrices of a format; floats have no tiles.
    pub fn joined_product(format: WeightFormat, way: ProductWay) -> Option<Self> {
        let joined = include_str!("shaders/columns/joined.wgsl");
        Self::product_of("joined", format, way, &[joined, ALL_COLUMNS])
    }

    /// Products with the matrices of experts; floats have no tiles.
    pub fn expert_product(format: WeightFormat, way: ProductWay) -> Option<Self> {
        let columns = include_str!("shaders/columns/experts.wgsl");
        Self::product_of("experts", format, way, &[ONE, columns])
    }

    /// Products with a matrix of each head; floats have no tiles.
    pub fn head_product(format: WeightFormat, way: ProductWay) -> Option<Self> {
        let columns = include_str!("shaders/columns/heads.wgsl");
        Self::product_of("heads", format, way, &[ONE, columns])
    }

    /// Products with the transposed matrix of each head.
    pub fn transposed() -> Self {
        Self::new("transposed", &[include_str!("shaders/transposed.wgsl")])
    }

    /// Columns of rows at another place.
    pub fn copy_columns() -> Self {
        Self::new("copy columns", &[include_str!("shaders/copy_columns.wgsl")])
    }

    /// The choice of experts.
    pub fn route() -> Self {
        Self::new("route", &[MATH, include_str!("shaders/route.wgsl")])
    }

    /// Slots sorted by expert.
    pub fn group_slots() -> Self {
        Self::new("group slots", &[include_str!("shaders/group.wgsl")])
    }

    /// The sum of the results of experts.
    pub fn combine() -> Self {
        Self::new("combine", &[MATH, include_str!("shaders/combine.wgsl")])
    }

    fn product_of(
        name: &str,
        format: WeightFormat,
        way: ProductWay,
        columns: &[&str],
    ) -> Option<Self> {
        let algorithm: &[&str] = match (format.acts(), way) {
            (ActLayout::Q8_256, ProductWay::Columns) => &[PRODUCT, OF_256],
            (ActLayout::Q8_256, ProductWay::Tiles) => &[PRODUCT, TILE, TILE_256],
            (ActLayout::Q8_32, ProductWay::Columns) => &[PRODUCT, OF_32],
            (ActLayout::Q8_32, ProductWay::Tiles) => &[PRODUCT, TILE, TILE_32],
            (ActLayout::F32, ProductWay::Columns) => &[PRODUCT, OF_FLOATS],
            (ActLayout::F32, ProductWay::Tiles) => return None,
        };
        let name = format!("{name} {} {way:?}", name_of(format)).to_lowercase();
        let steps = format.steps().map(text_of_steps);
        let pieces = [algorithm, columns, text_of(format), steps.as_slice()].concat();
        Some(Self::new(&name, &pieces))
    }
}

/// The name of a format; types that become the same integers have one.
fn name_of(format: WeightFormat) -> String {
    match (format, format.steps()) {
        (WeightFormat::W8(_), None) => "W8 blocks".to_owned(),
        (WeightFormat::W8(_), Some(steps)) => format!("W8 {steps:?}"),
        _ => format!("{format:?}"),
    }
}

/// The queries for keys of a type, and their scores.
fn text_of_keys(keys: GpuKv) -> &'static [&'static str] {
    const QUERY: &str = include_str!("shaders/attention/query_bytes.wgsl");
    match keys {
        GpuKv::Floats => &[include_str!("shaders/attention/keys_floats.wgsl")],
        GpuKv::Codes => &[include_str!("shaders/attention/keys_codes.wgsl")],
        GpuKv::Bytes => &[QUERY, include_str!("shaders/attention/keys_bytes.wgsl")],
        GpuKv::Nibbles => &[QUERY, include_str!("shaders/attention/keys_nibbles.wgsl")],
    }
}

/// The decays of a rule, and whether values are replaced.
fn text_of_rule(rule: ScanRule) -> &'static [&'static str] {
    const DELTA: &str = "const IS_DELTA: bool = true;";
    const SUM: &str = "const IS_DELTA: bool = false;";
    const HEADS: &str = include_str!("shaders/decay/heads.wgsl");
    match rule {
        ScanRule::Heads => &[SUM, HEADS],
        ScanRule::DeltaOfHeads => &[DELTA, HEADS],
        ScanRule::DeltaOfChannels => &[DELTA, include_str!("shaders/decay/channels.wgsl")],
        ScanRule::Elements => &[SUM, include_str!("shaders/decay/elements.wgsl")],
    }
}

/// Weighted sums of values of a type.
fn text_of_values(values: GpuKv) -> &'static [&'static str] {
    const SUMS: &str = include_str!("shaders/attention/values_codes.wgsl");
    match values {
        GpuKv::Floats => &[include_str!("shaders/attention/values_floats.wgsl")],
        GpuKv::Codes => &[SUMS, include_str!("shaders/attention/values_of_codes.wgsl")],
        GpuKv::Bytes => &[SUMS, include_str!("shaders/attention/values_of_bytes.wgsl")],
        GpuKv::Nibbles => &[
            SUMS,
            include_str!("shaders/attention/values_of_nibbles.wgsl"),
        ],
    }
}

/// The functions that algorithms call.
fn text_of(format: WeightFormat) -> &'static [&'static str] {
    const SIX_BITS: &str = include_str!("shaders/format/six_bits.wgsl");
    const TWO_BITS: &str = include_str!("shaders/format/two_bits.wgsl");
    const TABLE: &str = include_str!("shaders/format/table.wgsl");
    const TABLE_32: &str = include_str!("shaders/format/table_32.wgsl");
    const IQ4: &str = include_str!("shaders/format/values_iq4.wgsl");
    const FP4: &str = include_str!("shaders/format/values_mxfp4.wgsl");
    const NIBBLES: &str = include_str!("shaders/format/nibbles.wgsl");
    const FIVE_BITS: &str = include_str!("shaders/format/five_bits.wgsl");
    const CODES_OF_8: &str = include_str!("shaders/format/codes_8.wgsl");
    const HALVES: &str = include_str!("shaders/factors/halves.wgsl");
    const PAIRS: &str = include_str!("shaders/factors/pairs.wgsl");
    match format {
        WeightFormat::Q2_K => &[TWO_BITS, include_str!("shaders/format/q2_k.wgsl")],
        WeightFormat::Q3_K => &[TWO_BITS, include_str!("shaders/format/q3_k.wgsl")],
        WeightFormat::Q4_K => &[SIX_BITS, include_str!("shaders/format/q4_k.wgsl")],
        WeightFormat::Q5_K => &[SIX_BITS, include_str!("shaders/format/q5_k.wgsl")],
        WeightFormat::Q6_K => &[include_str!("shaders/format/q6_k.wgsl")],
        WeightFormat::IQ4_XS => &[IQ4, TABLE, include_str!("shaders/format/iq4_xs.wgsl")],
        WeightFormat::Q8_0 => &[CODES_OF_8, HALVES],
        WeightFormat::Q4_0 => &[NIBBLES, include_str!("shaders/format/q4_0.wgsl"), HALVES],
        WeightFormat::Q4_1 => &[NIBBLES, include_str!("shaders/format/q4_1.wgsl"), PAIRS],
        WeightFormat::Q5_0 => &[FIVE_BITS, include_str!("shaders/format/q5_0.wgsl"), HALVES],
        WeightFormat::Q5_1 => &[FIVE_BITS, include_str!("shaders/format/q5_1.wgsl"), PAIRS],
        WeightFormat::IQ4_NL => &[IQ4, TABLE, NIBBLES, TABLE_32, HALVES],
        WeightFormat::MXFP4 => {
            const EXPONENTS: &str = include_str!("shaders/factors/exponents.wgsl");
            &[FP4, TABLE, NIBBLES, TABLE_32, EXPONENTS]
        }
        WeightFormat::F16 => &[include_str!("shaders/format/f16.wgsl")],
        WeightFormat::BF16 => &[include_str!("shaders/format/bf16.wgsl")],
        WeightFormat::F32 => &[include_str!("shaders/format/f32.wgsl")],
        WeightFormat::W8(_) => match format.steps() {
            None => &[include_str!("shaders/format/w8_256.wgsl")],
            Some(GroupSteps::Scale) => &[CODES_OF_8, include_str!("shaders/factors/floats.wgsl")],
            Some(GroupSteps::Minimum | GroupSteps::Scales) => {
                &[CODES_OF_8, include_str!("shaders/factors/two_floats.wgsl")]
            }
        },
    }
}

/// The f32 steps of a group.
fn text_of_steps(steps: GroupSteps) -> &'static str {
    match steps {
        GroupSteps::Scale => include_str!("shaders/steps/scale.wgsl"),
        GroupSteps::Minimum => include_str!("shaders/steps/minimum.wgsl"),
        GroupSteps::Scales => include_str!("shaders/steps/scales.wgsl"),
    }
}

/// Every kernel, once; of those of experts, heads and several matrices, which have nothing of a
/// format, one of each algorithm.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![Shader::operations(), Shader::latent_attention(GpuKv::Codes)];
    all.extend(Shader::common());
    all.extend(ScanRule::ALL.map(Shader::scan));
    for keys in GpuKv::ALL {
        all.extend(GpuKv::ALL.map(|values| Shader::attention(keys, values)));
    }
    for way in [ProductWay::Columns, ProductWay::Tiles] {
        all.extend(WeightFormat::all().filter_map(|format| Shader::product(format, way)));
        for format in WeightFormat::OF_EACH_KERNEL {
            all.extend(Shader::joined_product(format, way));
            all.extend(Shader::expert_product(format, way));
            all.extend(Shader::head_product(format, way));
        }
    }
    let mut names = std::collections::HashSet::new();
    all.retain(|shader| names.insert(shader.name.clone()));
    all
}

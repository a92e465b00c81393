//! The texts of the kernels: pieces of WGSL, one behind the other.
//!
//! As on the CPU, kernels are formats + algorithms and not their product: a format is a file with
//! the functions that an algorithm calls. There is no preprocessor. It knows no driver.

use crate::{ActLayout, GpuKv, ProductWay, WeightFormat};

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
const PRODUCT: &str = include_str!("shaders/matmul.wgsl");
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
const ATTENTION: &str = include_str!("shaders/attention.wgsl");

impl Shader {
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
        Self::new("heads", &[HEAD, CODES, STORED, algorithm])
    }

    /// Keys at other positions.
    pub fn move_keys() -> Self {
        let algorithm = include_str!("shaders/move_keys.wgsl");
        Self::new("move keys", &[HEAD, CODES, STORED, algorithm])
    }

    /// Copies of KV blocks.
    pub fn copy_blocks() -> Self {
        let algorithm = include_str!("shaders/copy_blocks.wgsl");
        Self::new("copy blocks", &[algorithm])
    }

    /// Results of sublayers with a norm behind them.
    pub fn add() -> Self {
        Self::new("add", &[NORM, include_str!("shaders/add.wgsl")])
    }

    /// Partial results of attention.
    pub fn attention(kv: GpuKv) -> Self {
        let floats = include_str!("shaders/attention_floats.wgsl");
        let codes = include_str!("shaders/attention_codes.wgsl");
        match kv {
            GpuKv::Floats => Self::new("attention f32", &[MATH, ATTENTION, floats]),
            GpuKv::Codes => Self::new("attention f16", &[MATH, CODES, ATTENTION, codes]),
        }
    }

    /// The merge of partial results.
    pub fn merge() -> Self {
        let algorithm = include_str!("shaders/merge.wgsl");
        Self::new("merge", &[MATH, HEAD, algorithm])
    }

    /// Products with matrices of a format; floats have no tiles.
    pub fn product(format: WeightFormat, way: ProductWay) -> Option<Self> {
        let algorithm: &[&str] = match (format.acts(), way) {
            (ActLayout::Q8_256, ProductWay::Columns) => &[PRODUCT, OF_256],
            (ActLayout::Q8_256, ProductWay::Tiles) => &[PRODUCT, TILE, TILE_256],
            (ActLayout::Q8_32, ProductWay::Columns) => &[PRODUCT, OF_32],
            (ActLayout::Q8_32, ProductWay::Tiles) => &[PRODUCT, TILE, TILE_32],
            (ActLayout::F32, ProductWay::Columns) => &[PRODUCT, OF_FLOATS],
            (ActLayout::F32, ProductWay::Tiles) => return None,
        };
        let name = format!("matmul {format:?} {way:?}").to_lowercase();
        let pieces = [algorithm, &[text_of(format)]].concat();
        Some(Self::new(&name, &pieces))
    }
}

/// The functions that algorithms call.
fn text_of(format: WeightFormat) -> &'static str {
    match format {
        WeightFormat::Q4_K => include_str!("shaders/format/q4_k.wgsl"),
        WeightFormat::Q6_K => include_str!("shaders/format/q6_k.wgsl"),
        WeightFormat::Q8_0 => include_str!("shaders/format/q8_0.wgsl"),
        WeightFormat::Q4_0 => include_str!("shaders/format/q4_0.wgsl"),
        WeightFormat::F16 => include_str!("shaders/format/f16.wgsl"),
        WeightFormat::F32 => include_str!("shaders/format/f32.wgsl"),
    }
}

/// Every kernel.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![
        Shader::operations(),
        Shader::quantize(),
        Shader::add(),
        Shader::heads(),
        Shader::move_keys(),
        Shader::copy_blocks(),
        Shader::attention(GpuKv::Floats),
        Shader::attention(GpuKv::Codes),
        Shader::merge(),
    ];
    for format in WeightFormat::ALL {
        let ways = [ProductWay::Columns, ProductWay::Tiles];
        let of_format = ways.map(|way| Shader::product(format, way));
        all.extend(of_format.into_iter().flatten());
    }
    all
}

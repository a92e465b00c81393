//! The texts of the kernels: pieces of WGSL, one behind the other.
//!
//! As on the CPU, kernels are formats + algorithms and not their product: a format is a file with
//! the functions that an algorithm calls. There is no preprocessor. It knows no driver.

use crate::{GpuKv, WeightFormat};

/// The text of a kernel. Its entry point is `main`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shader {
    /// Its name, such as `matmul q4_k`.
    pub name: &'static str,
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
const HEAD: &str = include_str!("shaders/head.wgsl");
const NORM: &str = include_str!("shaders/norm.wgsl");
const STORED: &str = include_str!("shaders/stored.wgsl");
const CODES: &str = include_str!("shaders/codes16.wgsl");
const ATTENTION: &str = include_str!("shaders/attention.wgsl");

impl Shader {
    /// A kernel of these pieces, behind memory and exact floats.
    fn new(name: &'static str, pieces: &[&str]) -> Self {
        let text = [&[MEMORY, EXACT][..], pieces].concat().join("\n");
        Self { name, text }
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

    /// Products with matrices of a format.
    pub fn product(format: WeightFormat) -> Self {
        macro_rules! of {
            ($name:literal, $algorithm:ident) => {{
                let format = include_str!(concat!("shaders/format/", $name, ".wgsl"));
                Self::new(concat!("matmul ", $name), &[PRODUCT, format, $algorithm])
            }};
        }
        match format {
            WeightFormat::Q4_K => of!("q4_k", OF_256),
            WeightFormat::Q6_K => of!("q6_k", OF_256),
            WeightFormat::Q8_0 => of!("q8_0", OF_32),
            WeightFormat::Q4_0 => of!("q4_0", OF_32),
            WeightFormat::F16 => of!("f16", OF_FLOATS),
            WeightFormat::F32 => of!("f32", OF_FLOATS),
        }
    }
}

/// Every kernel.
pub fn shaders() -> Vec<Shader> {
    let products = WeightFormat::ALL.into_iter().map(Shader::product);
    std::iter::once(Shader::quantize())
        .chain(products)
        .collect()
}

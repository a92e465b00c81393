//! The texts of the kernels: pieces of WGSL, one behind the other.
//!
//! As on the CPU, kernels are formats + algorithms and not their product: a format is a file with
//! the functions that an algorithm calls. There is no preprocessor. It knows no driver.

use crate::WeightFormat;

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

impl Shader {
    /// A kernel of these pieces, behind memory and exact floats.
    fn new(name: &'static str, pieces: &[&str]) -> Self {
        let text = [&[MEMORY, EXACT][..], pieces].concat().join("\n");
        Self { name, text }
    }

    /// Rows of activations.
    pub fn quantize() -> Self {
        let algorithm = include_str!("shaders/quantize.wgsl");
        Self::new("quantize", &[MATH, algorithm])
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

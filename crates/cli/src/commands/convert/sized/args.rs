//! The options of a wished size.

use std::path::PathBuf;

use atta::{TensorType, convert::target::DEFAULT_TYPES};
use clap::Args;

use super::super::args::type_named;
use crate::args::value;

/// The most bits that a weight can be asked to have: those of F32.
const MAX_BITS: f64 = 32.0;

/// A wished size, and how to reach it.
#[derive(Debug, Default, Args)]
pub(in crate::commands) struct SizeArgs {
    /// Choose the type of each tensor so that DST has at most SIZE
    #[arg(long, value_name = "SIZE", value_parser = value::size, group = "target")]
    #[arg(conflicts_with_all = ["mix", "split"])]
    pub(in crate::commands::convert) target_size: Option<u64>,
    /// The same for a file of at most BITS per weight, all of the file counted
    #[arg(long, value_name = "BITS", value_parser = bits, group = "target")]
    #[arg(conflicts_with_all = ["mix", "split"])]
    pub(in crate::commands::convert) target_bpw: Option<f64>,
    /// Types to choose among, such as q3_k,q4_k,q6_k for llama.cpp [default: t2, t3, t4, q5_0,
    /// q5_k, q6_k, q8_0, and the type that a tensor has]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = tensor_type)]
    #[arg(requires = "target")]
    pub(in crate::commands::convert) types: Vec<TensorType>,
    /// Measure on TEXT how much each part of the model matters, and how far DST is from SRC
    ///
    /// Takes some sixty passes over 2,000 tokens, and files beside DST for that time. Without it,
    /// the importance of parts is that which is usual for their role.
    #[arg(long, value_name = "TEXT", requires = "target")]
    pub(in crate::commands::convert) calibrate: Option<PathBuf>,
}

impl SizeArgs {
    /// Whether a size is wished.
    pub(in crate::commands::convert) fn is_given(&self) -> bool {
        self.target_size.is_some() || self.target_bpw.is_some()
    }

    /// The size in bytes for a model of so many weights.
    pub(super) fn bytes(&self, n_weights: u64) -> u64 {
        let by_bits = || self.target_bpw.unwrap_or(MAX_BITS) * n_weights as f64 / 8.0;
        self.target_size.unwrap_or_else(|| by_bits() as u64)
    }

    /// The types to choose among.
    pub(super) fn types(&self) -> Vec<TensorType> {
        match self.types.is_empty() {
            true => DEFAULT_TYPES.to_vec(),
            false => self.types.clone(),
        }
    }
}

fn bits(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|bits| *bits > 0.0 && *bits <= MAX_BITS)
        .ok_or_else(|| "expected bits per weight, above 0 and up to 32, such as 3.2".to_owned())
}

fn tensor_type(name: &str) -> Result<TensorType, String> {
    type_named(name)
        .filter(|ty| atta::convert::quantize::supports(*ty))
        .ok_or_else(|| "expected types that can be quantized to, such as q3_k,q4_k,q6_k".to_owned())
}

//! `params.json`, and the properties of Meta's models that it does not have.
//!
//! Sources of context lengths and rope scaling: the programs that Meta published with the weights
//! (`llama/model.py`, `llama_models/llama3/args.py`), and the model cards.

use std::{f64::consts::PI, fs::File, io::Read as _, path::Path};

use serde_json::{Map, Value};

use super::wrong;
use crate::Error;

/// Longer files are refused; real ones have 200 bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The known fields. Those from `multiple_of` on, except `head_dim`, are ignored: the MLP's width
/// follows from its matrices, and the others are settings of programs.
const KNOWN: [&str; 16] = [
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "norm_eps",
    "rope_theta",
    "use_scaled_rope",
    "rope_scaling_factor",
    "rope_high_freq_factor",
    "multiple_of",
    "ffn_dim_multiplier",
    "max_seq_len",
    "max_batch_size",
    "model_parallel_size",
    "head_dim",
];

/// The parameters of a model.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Params {
    pub(super) d_model: u64,
    pub(super) n_layers: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    /// The vocabulary size; `None` if the field is absent or -1.
    pub(super) n_vocab: Option<u64>,
    pub(super) n_ctx: u64,
    pub(super) eps: f64,
    pub(super) rope_base: f64,
    /// Frequency divisors, `[d_head / 2]`, if rope is scaled.
    pub(super) rope_factors: Option<Vec<f32>>,
    /// Assumptions about parameters that the file does not have.
    pub(super) assumptions: Vec<String>,
}

impl Params {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let mut json = Vec::new();
        File::open(path)
            .map_err(io)?
            .take(MAX_BYTES + 1)
            .read_to_end(&mut json)
            .map_err(io)?;
        Self::parse(&json).map_err(|why| wrong(path, why))
    }

    fn parse(json: &[u8]) -> Result<Self, String> {
        if json.len() as u64 > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let fields: Map<String, Value> = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let fields = ParamFields(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect(),
        );
        if let Some((name, value)) = fields
            .0
            .iter()
            .find(|(name, _)| !KNOWN.contains(&name.as_str()))
        {
            return Err(format!("{name} is {value}, which is not supported"));
        }
        fields.params()
    }
}

/// The fields that are not null.
struct ParamFields(Map<String, Value>);

impl ParamFields {
    fn params(&self) -> Result<Params, String> {
        let d_model = self.count("dim")?;
        let n_heads = self.count("n_heads")?;
        if !d_model.is_multiple_of(2 * n_heads) {
            return Err(format!(
                "{n_heads} heads do not divide a dim of {d_model} into even widths"
            ));
        }
        let d_head = d_model / n_heads;
        if self.number("head_dim")?.is_some_and(|d| d != d_head as f64) {
            return Err(format!(
                "head_dim is {}, expected {d_head}",
                self.0["head_dim"]
            ));
        }
        let n_vocab = match self.number("vocab_size")? {
            None | Some(-1.0) => None,
            Some(_) => Some(self.count("vocab_size")?),
        };
        let n_kv_heads = if self.0.contains_key("n_kv_heads") {
            self.count("n_kv_heads")?
        } else {
            n_heads
        };
        let eps = self.positive("norm_eps", 1e-5)?;
        let rope_base = self.positive("rope_theta", 10_000.0)?;
        let is_scaled = self.is_scaled()?;
        let n_ctx = n_ctx(is_scaled, rope_base, eps);
        let factor = self.positive("rope_scaling_factor", usual_factor(d_model))?;
        let high = self.positive("rope_high_freq_factor", 4.0)?;
        let factors = || {
            (0..d_head / 2)
                .map(|i| divisor(rope_base.powf((2 * i) as f64 / d_head as f64), factor, high))
        };
        let rope_factors = is_scaled.then(|| factors().collect());
        let n_layers = self.count("n_layers")?;
        let mut assumptions = vec![format!(
            "params.json has no context length: {n_ctx} is assumed"
        )];
        if is_scaled && !self.0.contains_key("rope_scaling_factor") {
            assumptions.push(format!(
                "params.json has no rope scaling factor: {factor} is assumed"
            ));
        }
        Ok(Params {
            d_model,
            n_layers,
            n_heads,
            n_kv_heads,
            n_vocab,
            n_ctx,
            eps,
            rope_base,
            rope_factors,
            assumptions,
        })
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        value
            .as_f64()
            .map(Some)
            .ok_or_else(|| format!("{name} is {value}, expected a number"))
    }

    fn count(&self, name: &str) -> Result<u64, String> {
        // Larger counts are refused.
        const MAX: u64 = 1 << 24;
        let value = self
            .0
            .get(name)
            .ok_or_else(|| format!("{name} is missing"))?;
        let count = value.as_u64().filter(|n| (1..=MAX).contains(n));
        count.ok_or_else(|| format!("{name} is {value}, expected 1 to {MAX}"))
    }

    fn positive(&self, name: &str, default: f64) -> Result<f64, String> {
        let number = self.number(name)?.unwrap_or(default);
        if number > 0.0 {
            Ok(number)
        } else {
            Err(format!("{name} is {number}, expected a number above 0"))
        }
    }

    fn is_scaled(&self) -> Result<bool, String> {
        let Some(value) = self.0.get("use_scaled_rope") else {
            return Ok(false);
        };
        value
            .as_bool()
            .ok_or_else(|| format!("use_scaled_rope is {value}, expected true or false"))
    }
}

/// The training context of Llama 3.1, 3, Code Llama, 2, and 1.
fn n_ctx(is_scaled: bool, rope_base: f64, eps: f64) -> u64 {
    match (is_scaled, rope_base) {
        (true, _) => 131_072,
        (_, 500_000.0) => 8192,
        (_, 1_000_000.0) => 16_384,
        _ if eps == 1e-5 => 4096,
        _ => 2048,
    }
}

/// The rope scaling factor: 32 for Llama 3.2 1B and 3B, 8 for the larger Llama 3.1 to 3.3.
fn usual_factor(d_model: u64) -> f64 {
    if d_model < 4096 { 32.0 } else { 8.0 }
}

/// The frequency divisor of a pair with wavelength `2 pi period`: 1 for short wavelengths, the
/// factor for long ones, a ramp between.
fn divisor(period: f64, factor: f64, high: f64) -> f32 {
    const LOW: f64 = 1.0;
    const N_CTX_ORIG: f64 = 8192.0;
    let turns = N_CTX_ORIG / (2.0 * PI * period);
    let smooth = ((turns - LOW) / (high - LOW)).clamp(0.0, 1.0);
    (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Params, String> {
        Params::parse(json.as_bytes())
    }

    #[test]
    fn llama_2_has_few_fields() {
        let json = r#"{"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32,
            "norm_eps": 1e-05, "vocab_size": -1}"#;
        let params = parse(json).unwrap();
        assert_eq!(
            (
                params.n_kv_heads,
                params.n_vocab,
                params.n_ctx,
                params.rope_base
            ),
            (32, None, 4096, 10_000.0)
        );
        assert_eq!(params.rope_factors, None);
    }

    #[test]
    fn llama_3_scales_its_rope() {
        let json = |d: u64| {
            format!(
                r#"{{"dim": {d}, "n_heads": 32, "n_layers": 1, "n_kv_heads": 8,
                "vocab_size": 128256, "ffn_dim_multiplier": 1.3, "multiple_of": 1024,
                "norm_eps": 1e-5,
                "rope_theta": 500000.0, "use_scaled_rope": true}}"#
            )
        };
        let params = parse(&json(4096)).unwrap();
        assert_eq!((params.n_vocab, params.n_ctx), (Some(128_256), 131_072));
        let factors = params.rope_factors.unwrap();
        assert_eq!((factors.len(), factors[0], factors[63]), (64, 1.0, 8.0));
        assert!(
            factors.windows(2).all(|pair| pair[0] <= pair[1]) && (1.0..8.0).contains(&factors[32])
        );
        assert_eq!(parse(&json(2048)).unwrap().rope_factors.unwrap()[31], 32.0);
    }

    #[test]
    fn parameters_that_are_unknown_or_make_no_sense_are_refused() {
        let with = |more: &str| {
            parse(&format!(
                r#"{{"dim": 64, "n_heads": 4, "n_layers": 2, {more}}}"#
            ))
            .unwrap_err()
        };
        assert_eq!(
            with(r#""moe": {"num_experts": 8}"#),
            r#"moe is {"num_experts":8}, which is not supported"#
        );
        assert_eq!(
            with(r#""n_kv_heads": 0"#),
            "n_kv_heads is 0, expected 1 to 16777216"
        );
        assert_eq!(
            with(r#""norm_eps": "x""#),
            "norm_eps is \"x\", expected a number"
        );
        assert_eq!(
            with(r#""norm_eps": 0"#),
            "norm_eps is 0, expected a number above 0"
        );
        assert_eq!(
            with(r#""vocab_size": -2"#),
            "vocab_size is -2, expected 1 to 16777216"
        );
        assert_eq!(with(r#""head_dim": 32"#), "head_dim is 32, expected 16");
        assert_eq!(
            with(r#""use_scaled_rope": 1"#),
            "use_scaled_rope is 1, expected true or false"
        );
        assert!(
            parse(r#"{"dim": 64, "n_heads": 3, "n_layers": 2}"#)
                .unwrap_err()
                .contains("even widths")
        );
        assert_eq!(parse("{}"), Err("dim is missing".into()));
        assert!(parse("[]").is_err() && parse("").is_err() && parse(&"[".repeat(100_000)).is_err());
        assert!(
            parse(&" ".repeat(2 << 20))
                .unwrap_err()
                .contains("is longer than")
        );
    }
}

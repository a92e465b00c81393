//! The rope parameters of a configuration: as GGUF keys, as tensors of factors, and as the values
//! that transformers computes with.
//!
//! Transformers 5 writes `rope_parameters`, one object or one per layer type; transformers 4 wrote
//! `rope_theta`, `rope_scaling` and others at the top level. Source of the formulas:
//! `modeling_rope_utils.py` of transformers.

use std::f64::consts::PI;

use serde_json::{Map, Value};

use super::{config::Config, keys::Keys};
use crate::Error;

/// The rope parameters of a configuration.
pub(super) struct Rope<'a> {
    config: &'a Config,
    /// Parameters of layers with full attention.
    full: Map<String, Value>,
    /// Parameters of layers with a sliding window, if they differ.
    sliding: Option<Map<String, Value>>,
}

/// `rope_type`: how rope is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeType {
    Default,
    Linear,
    Dynamic,
    Yarn,
    Llama3,
    LongRope,
    /// The first pairs of a head turn, the others do not.
    Proportional,
    /// The base is multiplied by `alpha^(d_head / (d_head - 2))` (Hunyuan).
    NtkAlpha,
}

/// Fields that transformers 4 wrote at the top level.
const MIRRORED: [&str; 3] = [
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
];

impl<'a> Rope<'a> {
    pub(super) fn new(config: &'a Config) -> Result<Self, Error> {
        let new = config.object_opt("rope_parameters")?;
        let old = config.object_opt("rope_scaling")?;
        let of = |kind: &str| new.and_then(|all| all.get(kind)?.as_object().cloned());
        let mut full = of("full_attention")
            .or(new.or(old).cloned())
            .unwrap_or_default();
        for (name, value) in MIRRORED
            .iter()
            .filter_map(|name| Some((name, config.get(name)?)))
        {
            full.entry(*name).or_insert_with(|| value.clone());
        }
        // Nomic BERT, ModernBERT and GPT-NeoX had names of their own.
        for (name, usual) in [
            ("rotary_emb_base", "rope_theta"),
            ("global_rope_theta", "rope_theta"),
            ("rotary_pct", "partial_rotary_factor"),
        ] {
            if let Some(value) = config.get(name) {
                full.entry(usual).or_insert_with(|| value.clone());
            }
        }
        let local = config
            .any(&["rope_local_base_freq", "local_rope_theta"])
            .map(|(_, theta)| theta)
            .map(|theta| Map::from_iter([("rope_theta".to_owned(), theta.clone())]));
        Ok(Self {
            config,
            full,
            sliding: of("sliding_attention").or(local),
        })
    }

    pub(super) fn kind(&self) -> Result<RopeType, Error> {
        let name = ["rope_type", "type"]
            .into_iter()
            .find_map(|key| self.full.get(key));
        match name.map(|name| name.as_str().unwrap_or_default()) {
            None | Some("default") => Ok(RopeType::Default),
            Some("linear") => Ok(RopeType::Linear),
            Some("dynamic") => Ok(match self.number_opt("alpha")? {
                Some(_) => RopeType::NtkAlpha,
                None => RopeType::Dynamic,
            }),
            Some("yarn") => Ok(RopeType::Yarn),
            Some("llama3") => Ok(RopeType::Llama3),
            Some("longrope" | "su") => Ok(RopeType::LongRope),
            Some("proportional") => Ok(RopeType::Proportional),
            Some(_) => Err(self
                .config
                .unsupported("rope_type", name.unwrap_or(&Value::Null))),
        }
    }

    /// A number; 0 and null count as absent, as in transformers.
    fn number_opt(&self, name: &str) -> Result<Option<f64>, Error> {
        match self.full.get(name).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => match super::config::number(value) {
                Some(x) => Ok(Some(x).filter(|&x| x != 0.0)),
                None => Err(self
                    .config
                    .wrong(format!("{name} is {value}, expected a number"))),
            },
        }
    }

    fn number(&self, name: &str) -> Result<f64, Error> {
        self.number_opt(name)?
            .ok_or_else(|| self.config.wrong(format!("{name} of the rope is missing")))
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.full
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or(default)
    }

    /// The base frequency of layers with full attention.
    pub(super) fn theta(&self) -> Result<f64, Error> {
        let theta = self.number_opt("rope_theta")?.unwrap_or(10_000.0);
        match self.kind()? {
            RopeType::NtkAlpha => {
                let d = self.config.count(&["head_dim"])? as f64;
                Ok(theta * self.number("alpha")?.powf(d / (d - 2.0)))
            }
            _ => Ok(theta),
        }
    }

    /// The base frequency of layers with a sliding window, if it differs.
    pub(super) fn theta_swa(&self) -> Result<Option<f64>, Error> {
        let Some(sliding) = &self.sliding else {
            return Ok(None);
        };
        if let Some(kind) = sliding.get("rope_type").filter(|kind| *kind != "default") {
            return Err(self
                .config
                .unsupported("rope_type of sliding_attention", kind));
        }
        match sliding
            .get("rope_theta")
            .map(|theta| super::config::number(theta).ok_or(theta))
        {
            Some(Err(theta)) => Err(self
                .config
                .wrong(format!("rope_theta is {theta}, expected a number"))),
            other => Ok(other.and_then(Result::ok)),
        }
    }

    /// The fraction of a head that is rotated; of a proportional rope all, since factors say which
    /// pairs turn.
    pub(super) fn partial(&self) -> Result<f64, Error> {
        match self.kind()? {
            RopeType::Proportional => Ok(1.0),
            _ => self.share(),
        }
    }

    fn share(&self) -> Result<f64, Error> {
        Ok(self.number_opt("partial_rotary_factor")?.unwrap_or(1.0))
    }

    /// The context length of the original training.
    pub(super) fn n_ctx_orig(&self) -> Result<u64, Error> {
        match self.number_opt("original_max_position_embeddings")? {
            Some(n) if n >= 1.0 => Ok(n as u64),
            _ => self.config.count(&["max_position_embeddings"]),
        }
    }

    /// Whether the ends of YaRN's ramp are rounded to whole pairs.
    pub(super) fn is_truncated(&self) -> bool {
        self.flag("truncate", true)
    }

    /// The factor that multiplies rotated elements (`attention_factor`).
    pub(super) fn magnitude(&self) -> Result<f64, Error> {
        match (self.kind()?, self.number_opt("attention_factor")?) {
            (RopeType::Yarn | RopeType::LongRope, Some(given)) => Ok(given),
            (RopeType::Yarn, None) => self.yarn_magnitude(),
            (RopeType::LongRope, None) => match self.long_mscale()? {
                Some(given) => Ok(given),
                None => self.long_magnitude(),
            },
            _ => Ok(1.0),
        }
    }

    /// What YaRN multiplies scores by, as a multiple of the usual logarithm.
    pub(super) fn mscale_all_dim(&self) -> Result<Option<f64>, Error> {
        self.number_opt("mscale_all_dim")
    }

    fn yarn_magnitude(&self) -> Result<f64, Error> {
        let factor = self.number("factor")?;
        let of = |mscale: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * mscale * factor.ln() + 1.0
            }
        };
        Ok(
            match (
                self.number_opt("mscale")?,
                self.number_opt("mscale_all_dim")?,
            ) {
                (Some(one), Some(all)) => of(one) / of(all),
                _ => of(1.0),
            },
        )
    }

    /// The factor of Phi-3.5 MoE, which must be that of short contexts and of long ones.
    fn long_mscale(&self) -> Result<Option<f64>, Error> {
        let short = self.number_opt("short_mscale")?;
        match self.number_opt("long_mscale")? {
            long if long == short => Ok(long),
            long => Err(self.config.unsupported("long_mscale", &long.into())),
        }
    }

    fn long_magnitude(&self) -> Result<f64, Error> {
        let original = self.n_ctx_orig()? as f64;
        let n_ctx = self.config.count(&["max_position_embeddings"])? as f64;
        let factor = self.number_opt("factor")?.unwrap_or(n_ctx / original);
        Ok(if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / original.ln()).sqrt()
        })
    }

    /// Pairs of elements that are rotated by each of a token's positions (in time, height, width
    /// and one more), which are the same for text.
    pub(super) fn sections(&self, usual: [i32; 3]) -> Result<Vec<i32>, Error> {
        let mut sections = match self.full.get("mrope_section").filter(|s| !s.is_null()) {
            None => usual.to_vec(),
            Some(given) => {
                let count = |n: &Value| n.as_i64().and_then(|n| i32::try_from(n).ok());
                let counts: Option<Vec<i32>> = given
                    .as_array()
                    .and_then(|all| all.iter().map(count).collect());
                counts
                    .filter(|all| all.len() <= 4 && all.iter().all(|&n| n >= 0))
                    .ok_or_else(|| self.config.unsupported("mrope_section", given))?
            }
        };
        sections.resize(4, 0);
        Ok(sections)
    }

    /// Writes the keys of all architectures with rope.
    pub(super) fn write(&self, keys: &mut Keys) -> Result<(), Error> {
        keys.number("rope.freq_base", self.theta()?);
        if let Some(theta) = self.theta_swa()? {
            keys.number("rope.freq_base_swa", theta);
        }
        match self.kind()? {
            RopeType::Default | RopeType::Llama3 | RopeType::LongRope | RopeType::Proportional => {}
            RopeType::Linear => {
                keys.text("rope.scaling.type", "linear");
                keys.number("rope.scaling.factor", self.number("factor")?);
            }
            RopeType::Dynamic => self.write_dynamic(keys)?,
            RopeType::NtkAlpha => write_ntk_alpha(keys),
            RopeType::Yarn => self.write_yarn(keys)?,
        }
        Ok(())
    }

    /// Writes dynamic NTK scaling, in keys of our own. `context_length` is the scaled one.
    fn write_dynamic(&self, keys: &mut Keys) -> Result<(), Error> {
        let factor = self.number("factor")?;
        let n_ctx = self.config.count(&["max_position_embeddings"])?;
        keys.text("rope.scaling.type", "dynamic");
        keys.number("rope.scaling.factor", factor);
        keys.count("rope.scaling.original_context_length", n_ctx);
        keys.count("context_length", (n_ctx as f64 * factor) as u64);
        Ok(())
    }

    fn write_yarn(&self, keys: &mut Keys) -> Result<(), Error> {
        keys.text("rope.scaling.type", "yarn");
        keys.number("rope.scaling.factor", self.number("factor")?);
        keys.count("rope.scaling.original_context_length", self.n_ctx_orig()?);
        for name in ["beta_fast", "beta_slow"] {
            if let Some(beta) = self.number_opt(name)? {
                keys.number(&format!("rope.scaling.yarn_{name}"), beta);
            }
        }
        match (
            self.number_opt("attention_factor")?,
            self.number_opt("mscale")?,
            self.number_opt("mscale_all_dim")?,
        ) {
            (Some(given), ..) => keys.number("rope.scaling.yarn_attn_factor", given),
            (None, Some(1.0), Some(all)) => keys.number("rope.scaling.yarn_log_multiplier", all),
            (None, Some(_), Some(_)) => {
                keys.number("rope.scaling.yarn_attn_factor", self.yarn_magnitude()?)
            }
            _ => {}
        }
        if let Some(beta) = self.number_opt("llama_4_scaling_beta")? {
            keys.number("attention.temperature_scale", beta);
        }
        Ok(())
    }

    /// Llama 3's frequency divisors, `[d_rope / 2]`: 1 for short wavelengths, the factor for long
    /// ones, a ramp between.
    pub(super) fn llama3_factors(&self, d_rope: usize) -> Result<Vec<f32>, Error> {
        let factor = self.number("factor")?;
        let theta = self.theta()?;
        let [low, high] = [
            self.number("low_freq_factor")?,
            self.number("high_freq_factor")?,
        ];
        let n_ctx_orig = self.number("original_max_position_embeddings")?;
        let divisor = |i: usize| {
            let wave = 2.0 * PI * theta.powf((2 * i) as f64 / d_rope as f64);
            let ramp = ((n_ctx_orig / wave - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - ramp) / factor + ramp)) as f32
        };
        match low < high {
            true => Ok((0..d_rope / 2).map(divisor).collect()),
            false => Err(self.config.wrong(format!(
                "low_freq_factor is {low}, expected less than high_freq_factor"
            ))),
        }
    }

    /// The frequency divisors of a proportional rope, `[d_rope / 2]`: 1 for the pairs that turn,
    /// and so much for the others that they stand still.
    pub(super) fn proportional_factors(&self, d_rope: usize) -> Result<Vec<f32>, Error> {
        let n_turning = (d_rope as f64 * self.share()? / 2.0) as usize;
        let divisor = |i: usize| if i < n_turning { 1.0 } else { 1e30 };
        Ok((0..d_rope / 2).map(divisor).collect())
    }

    /// The `short_factor` or `long_factor` of longrope.
    pub(super) fn long_factors(&self, name: &str) -> Result<Vec<f32>, Error> {
        let list = self.full.get(name).and_then(Value::as_array);
        let list = list.and_then(|list| {
            list.iter()
                .map(super::config::number)
                .collect::<Option<Vec<_>>>()
        });
        let list = list.ok_or_else(|| {
            self.config
                .wrong(format!("{name} of the rope is no list of numbers"))
        })?;
        Ok(list.into_iter().map(|x| x as f32).collect())
    }
}

/// Writes the keys beside a stretched base, as llama.cpp's converter does: configurations have a
/// context of 32k, where the models' report has 256k.
fn write_ntk_alpha(keys: &mut Keys) {
    const N_CTX: u64 = 256 << 10;
    keys.text("rope.scaling.type", "none");
    keys.number("rope.scaling.factor", 1.0);
    keys.count("rope.scaling.original_context_length", N_CTX);
    keys.count("context_length", N_CTX);
}

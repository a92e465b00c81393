//! The multipliers of Falcon-H1, which GGUF has in the weights.
//!
//! A tensor is multiplied by one factor after the other, in the order of llama.cpp's
//! `conversion/falcon_h1.py`, so that every weight is rounded as there.

use atta_model::Role;

use super::config::{Config, number};
use crate::{Error, RowSource};

/// Factors of rows: those up to a bound, in the order of multiplication.
type RowFactors = Vec<(u64, Vec<f32>)>;

/// The factors of each tensor that has some.
#[derive(Default)]
pub(super) struct Multipliers(Vec<(Role, RowFactors)>);

impl Multipliers {
    /// Reads the multipliers of a configuration.
    pub(super) fn read(c: &Config) -> Result<Self, Error> {
        let one = |field: &str| Ok::<_, Error>(c.number_opt(&[field])?.unwrap_or(1.0) as f32);
        let all = |factors: &[f32]| vec![(u64::MAX, factors.to_vec())];
        let [gate, down] = list(c, "mlp_multipliers")?;
        let [input, key] = [one("attention_in_multiplier")?, one("key_multiplier")?];
        Ok(Self(vec![
            (Role::TokenEmbd, all(&[one("embedding_multiplier")?])),
            (Role::Output, all(&[one("lm_head_multiplier")?])),
            (Role::AttnQ, all(&[input])),
            (Role::AttnK, all(&[key, input])),
            (Role::AttnV, all(&[input])),
            (Role::AttnOutput, all(&[one("attention_out_multiplier")?])),
            (Role::SsmIn, of_inputs(c, one("ssm_in_multiplier")?)?),
            (Role::SsmOut, all(&[one("ssm_out_multiplier")?])),
            (Role::FfnGate, all(&[gate])),
            (Role::FfnDown, all(&[down])),
        ]))
    }

    /// Whether the weights of a tensor are multiplied.
    pub(super) fn change(&self, role: Role) -> bool {
        self.0.iter().any(|(of, _)| *of == role)
    }

    /// The rows of a tensor, `d_row` wide, multiplied.
    pub(super) fn apply(
        &self,
        role: Role,
        d_row: usize,
        rows: Box<dyn RowSource>,
    ) -> Box<dyn RowSource> {
        let factors = self.0.iter().find(|(of, _)| *of == role);
        match factors.map(|(_, factors)| factors.clone()) {
            Some(factors) => Box::new(Multiplied {
                rows,
                d_row,
                factors,
            }),
            None => rows,
        }
    }
}

/// The factors of the input projection: those of `z`, `x`, `b`, `c` and `dt` behind the common one.
fn of_inputs(c: &Config, common: f32) -> Result<RowFactors, Error> {
    let d_inner = c.count(&["mamba_d_ssm"])?;
    let d_states = c.count(&["mamba_n_groups"])?;
    let d_states = d_states.saturating_mul(c.count(&["mamba_d_state"])?);
    let factors: [f32; 5] = list(c, "ssm_multipliers")?;
    let widths = [d_inner, d_inner, d_states, d_states, u64::MAX];
    let mut end = 0u64;
    let rows = widths.into_iter().zip(factors).map(|(n, factor)| {
        end = end.saturating_add(n);
        (end, vec![common, factor])
    });
    Ok(rows.collect())
}

/// A list of numbers; ones where it is absent.
fn list<const N: usize>(c: &Config, field: &str) -> Result<[f32; N], Error> {
    let Some(listed) = c.list_opt(field)? else {
        return Ok([1.0; N]);
    };
    let numbers: Option<Vec<f32>> = listed.iter().map(|x| Some(number(x)? as f32)).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| c.unsupported(field, &listed.into()))
}

/// Rows times their factors.
struct Multiplied {
    rows: Box<dyn RowSource>,
    d_row: usize,
    factors: RowFactors,
}

impl RowSource for Multiplied {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        self.rows.read(first, out)?;
        for (i, row) in (first..=u64::MAX).zip(out.chunks_mut(self.d_row)) {
            let factors = self.factors.iter().find(|(end, _)| i < *end);
            for factor in factors.iter().flat_map(|(_, factors)| factors) {
                row.iter_mut().for_each(|x| *x *= factor);
            }
        }
        Ok(())
    }
}

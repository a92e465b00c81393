//! Rotary positions as plain data, and the angles that follow from it.
//!
//! Every scaling of the rotation comes down to an angle per pair and position, a magnitude, and the
//! elements that form a pair. Two kinds of scaling (dynamic NTK, longrope) depend on the size of
//! the context, not on its current length, so that cached keys and queries are always rotated
//! alike.

use atta_kernels::math::{ln, pow};

use super::Presence;

/// Rotary position embedding (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The first `d_rope` elements of a head are rotated; even.
    pub d_rope: usize,
    /// Pair `i` turns by `position / base^(2i / d_rope)`.
    pub base: f32,
    /// Which elements form a pair.
    pub pairing: Pairing,
    /// How positions beyond the training length are mapped.
    pub scaling: RopeScaling,
    /// The rotated elements are multiplied by this: the attention factor of YaRN and longrope.
    pub magnitude: f32,
    /// Whether the angles may be divided by a tensor of factors (Llama 3).
    pub factors: Presence,
}

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(2i, 2i + 1)`: GGUF's NORM.
    Adjacent,
    /// `(i, i + d_rope / 2)`: GGUF's NEOX.
    Halves,
}

/// How the rotation is stretched to longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All angles are divided by `factor`.
    Linear {
        /// At least 1 in practice.
        factor: f32,
    },
    /// In a context of `n_ctx > n_ctx_orig` the base is multiplied by
    /// `(factor * n_ctx / n_ctx_orig - (factor - 1))^(d_rope / (d_rope - 2))`: dynamic NTK.
    Dynamic {
        /// At least 1.
        factor: f32,
        /// Positions of the original training.
        n_ctx_orig: usize,
    },
    /// Slow pairs as in `Linear`, fast pairs not at all, a ramp between them (Peng et al. 2023,
    /// section 3.2).
    Yarn(Yarn),
    /// Angles are divided by one of two tensors of factors, `[d_rope / 2]`: the short ones in
    /// contexts of up to `n_ctx_orig` positions, else the long ones (Ding et al. 2024).
    Long {
        /// Positions of the original training.
        n_ctx_orig: usize,
        /// Whether the tensors must be there; without them, angles stay as they are.
        factors: Presence,
    },
}

/// The numbers of YaRN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// By which the slow pairs are slowed further, at least 1.
    pub factor: f32,
    /// Positions of the original training.
    pub n_ctx_orig: usize,
    /// Pairs that turn more often than this within `n_ctx_orig` stay as they are.
    pub beta_fast: f32,
    /// Pairs that turn less often than this are slowed by all of `factor`.
    pub beta_slow: f32,
    /// Where the ramp between the two begins and ends.
    pub ends: RampEnds,
}

/// Where YaRN's ramp between fast and slow pairs begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampEnds {
    /// At the whole pairs around those that turn exactly `beta_fast` and `beta_slow` times.
    Whole,
    /// Between pairs, if need be.
    Exact,
}

/// The tensors of rope factors of a model, `[d_rope / 2]` each, where it has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Factors<'a> {
    /// Those of every context (Llama 3).
    pub all: Option<&'a [f32]>,
    /// Longrope's for contexts of the original length.
    pub short: Option<&'a [f32]>,
    /// Longrope's for longer ones.
    pub long: Option<&'a [f32]>,
}

impl Rope {
    /// The angle by which each pair turns per position, `[d_rope / 2]`, in radians, in a context of
    /// `n_ctx` positions. `factors` are the model's tensors of rope factors.
    pub fn inv_freq(&self, factors: Factors<'_>, n_ctx: usize) -> Vec<f64> {
        let base = self.base_of(n_ctx);
        let divisors = self.divisors(factors, n_ctx);
        (0..self.d_rope / 2)
            .map(|i| {
                let exponent = (2 * i) as f64 / self.d_rope as f64;
                let divisor = divisors.map_or(1.0, |f| f64::from(f[i]));
                pow(base, -exponent) / divisor * self.slowing(i)
            })
            .collect()
    }

    /// Contexts of the same regime rotate alike, so that keys can be moved between them.
    pub fn regime(&self, n_ctx: usize) -> usize {
        match self.scaling {
            RopeScaling::Long { n_ctx_orig, .. } => usize::from(n_ctx > n_ctx_orig),
            RopeScaling::Dynamic { n_ctx_orig, .. } if n_ctx > n_ctx_orig => n_ctx,
            _ => 0,
        }
    }

    /// The base, stretched where the scaling does that.
    fn base_of(&self, n_ctx: usize) -> f64 {
        let base = f64::from(self.base);
        match self.scaling {
            RopeScaling::Dynamic { factor, n_ctx_orig } if n_ctx > n_ctx_orig => {
                let factor = f64::from(factor);
                let d = self.d_rope as f64;
                let stretch = factor * n_ctx as f64 / n_ctx_orig as f64 - (factor - 1.0);
                base * pow(stretch, d / (d - 2.0))
            }
            _ => base,
        }
    }

    fn divisors<'a>(&self, factors: Factors<'a>, n_ctx: usize) -> Option<&'a [f32]> {
        match self.scaling {
            RopeScaling::Long { n_ctx_orig, .. } if n_ctx > n_ctx_orig => factors.long,
            RopeScaling::Long { .. } => factors.short,
            _ => factors.all.filter(|_| self.factors != Presence::Absent),
        }
    }

    /// The factor of the angle of pair `i`.
    fn slowing(&self, i: usize) -> f64 {
        match self.scaling {
            RopeScaling::Linear { factor } => 1.0 / f64::from(factor),
            RopeScaling::Yarn(yarn) => {
                let ramp = yarn.ramp(i, self.d_rope, f64::from(self.base));
                ramp / f64::from(yarn.factor) + (1.0 - ramp)
            }
            _ => 1.0,
        }
    }
}

impl Yarn {
    /// How much pair `i` is slowed: 0 not at all, 1 by all of `factor`.
    fn ramp(&self, i: usize, d_rope: usize, base: f64) -> f64 {
        let [low, high] =
            [self.beta_fast, self.beta_slow].map(|beta| self.pair_of(beta, d_rope, base));
        let (low, high) = match self.ends {
            RampEnds::Whole => (low.floor(), high.ceil()),
            RampEnds::Exact => (low, high),
        };
        let low = low.max(0.0);
        let high = high.min(d_rope as f64 - 1.0);
        ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }

    /// The pair that turns `n` times within `n_ctx_orig`, as a fraction; Peng et al., section 3.2
    /// solved for the pair.
    fn pair_of(&self, n: f32, d_rope: usize, base: f64) -> f64 {
        let turns = self.n_ctx_orig as f64 / (f64::from(n) * std::f64::consts::TAU);
        d_rope as f64 * ln(turns) / (2.0 * ln(base))
    }
}

/// `1 + 0.1 weight ln factor`: with a weight of 1 what YaRN multiplies queries and keys by (Peng et
/// al. 2023, section 3.4).
pub fn yarn_magnitude(factor: f32, weight: f32) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        1.0 + 0.1 * f64::from(weight) * ln(f64::from(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> Rope {
        let pairing = Pairing::Halves;
        let factors = Presence::Absent;
        Rope {
            d_rope: 8,
            base: 10_000.0,
            pairing,
            scaling,
            magnitude: 1.0,
            factors,
        }
    }

    fn angles(scaling: RopeScaling, n_ctx: usize) -> Vec<f64> {
        rope(scaling).inv_freq(
            Factors {
                short: Some(&[1.0; 4]),
                long: Some(&[2.0; 4]),
                all: None,
            },
            n_ctx,
        )
    }

    #[test]
    fn yarn_slows_slow_pairs_by_all_of_the_factor_and_fast_ones_not_at_all() {
        let yarn = Yarn {
            factor: 4.0,
            n_ctx_orig: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ends: RampEnds::Whole,
        };
        let plain = angles(RopeScaling::None, 1);
        let slowed = angles(RopeScaling::Yarn(yarn), 1);
        // FusedIn 4096 positions the pairs turn 652, 65, 6.5 and 0.65 times: 32 and 1 lie at pairs
        // 1.3 and 2.8.
        let ratios: Vec<f64> = plain
            .iter()
            .zip(&slowed)
            .map(|(plain, slowed)| plain / slowed)
            .collect();
        assert_eq!(ratios[..2], [1.0, 1.0]);
        assert!(
            (ratios[2] - 1.0 / (0.5 / 4.0 + 0.5)).abs() < 1e-12,
            "{ratios:?}"
        );
        assert_eq!(ratios[3], 4.0);
        let exact = angles(
            RopeScaling::Yarn(Yarn {
                ends: RampEnds::Exact,
                ..yarn
            }),
            1,
        );
        // Pair 2 is (2 - 1.309) / (2.814 - 1.309) along the ramp.
        assert!(
            (plain[2] / exact[2] - 1.0 / (0.4591 / 4.0 + 0.5409)).abs() < 1e-3,
            "{exact:?}"
        );
    }

    #[test]
    fn dynamic_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_the_stretch() {
        let scaling = RopeScaling::Dynamic {
            factor: 2.0,
            n_ctx_orig: 100,
        };
        assert_eq!(angles(scaling, 100), angles(RopeScaling::None, 100));
        let plain = angles(RopeScaling::None, 1);
        let stretched = angles(scaling, 300);
        // 2 · 300 / 100 - 1 = 5.
        assert_eq!(stretched[0], 1.0);
        assert!((plain[3] / stretched[3] - 5.0).abs() < 1e-9);
    }

    #[test]
    fn longrope_turns_by_the_room_that_a_sequence_has() {
        let scaling = RopeScaling::Long {
            n_ctx_orig: 100,
            factors: Presence::Required,
        };
        let short = angles(scaling, 100);
        let long = angles(scaling, 101);
        assert!(
            short
                .iter()
                .zip(&long)
                .all(|(short, long)| *short == 2.0 * long)
        );
        assert_ne!(rope(scaling).regime(100), rope(scaling).regime(101));
        assert_eq!(rope(scaling).regime(101), rope(scaling).regime(4000));
    }

    #[test]
    fn the_magnitude_of_yarn_is_that_of_the_paper() {
        assert!((yarn_magnitude(4.0, 1.0) - 1.138_629_436_111_989).abs() < 1e-15);
        assert_eq!(
            (yarn_magnitude(0.5, 1.0), yarn_magnitude(16.0, 0.0)),
            (1.0, 1.0)
        );
    }
}

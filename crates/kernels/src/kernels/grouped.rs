//! Products of rows that belong to different matrices of one shape, in one region: the experts of a
//! layer.
//!
//! The rows of the input lie group after group, and each group has a matrix of its own, which is
//! found when a thread turns to it. So one region does the eight experts of a single token as well
//! as the crowd of a prompt, and the work is divided by row tiles of all groups. What a row's
//! result is does not depend on its group's other rows.

use super::{Factors, Input, Product};
use crate::tiles::{self, Band, Bands};
use crate::{Activation, Activations, Kernels, Matrix, Pool};

/// The matrix of a group, by the group's index, and its bias, `[d_out]`.
type Choose<'a> = &'a (dyn Fn(usize) -> (Matrix<'a>, Option<&'a [f32]>) + Sync);

/// Products of groups of rows: `y = W[g] x + b[g]` for the rows of group `g`.
pub struct Groups<'a> {
    /// Group `g` has the rows from `bounds[g] - bounds[0]` to `bounds[g + 1] - bounds[0]` of the
    /// input; ascending.
    pub bounds: &'a [usize],
    /// Weights and bias of a group, `[d_out, d_in]` and `[d_out]`, all of one shape. If they are
    /// the same rows of larger matrices, only those columns of `out` are written.
    pub w: Choose<'a>,
    /// Where `y` goes, `[n_rows, d_out]`.
    pub out: &'a mut [f32],
}

impl std::fmt::Debug for Groups<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

/// The first halves of gated feed-forward blocks, one per group: `out = activation(gate[g] x) ·
/// (up[g] x)`, each with its bias.
pub struct GatedGroups<'a> {
    /// As in [`Groups`].
    pub bounds: &'a [usize],
    /// Weights and bias of a group, `[d_ff, d_in]` and `[d_ff]`, all of one shape.
    pub gate: Choose<'a>,
    /// Weights and bias of a group, `[d_ff, d_in]` and `[d_ff]`, all of one shape.
    pub up: Choose<'a>,
    /// Applied to the gate.
    pub activation: Activation,
    /// `[n_rows, d_ff]`.
    pub out: &'a mut [f32],
}

impl std::fmt::Debug for GatedGroups<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatedGroups")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl Kernels {
    /// Products of groups of rows of `x` with a matrix for each group, in one region.
    ///
    /// # Panics
    /// If shapes do not agree, the bounds are not in order, or `x` was not filled in the layout
    /// that a matrix reads.
    pub fn matmul_groups(self, pool: &Pool, x: &Activations, job: Groups<'_>) {
        let Groups { bounds, w, out } = job;
        let n_out = out.len();
        let mut parts = self.bands(x, bounds, out).only(w(0).0.rows());
        tiles::deal_in_turn(pool, &mut parts, |turn, Band { group, rows, strip }| {
            let (w, bias) = w(group);
            self.product_of(
                &Product::new(x, w, bias, n_out),
                Input {
                    x,
                    rows,
                    prefetch_distance: turn.skip(),
                },
                strip,
            );
        });
    }

    /// Gated products of groups of rows of `x` with two matrices for each group, in one region.
    ///
    /// # Panics
    /// As [`matmul_groups`](Self::matmul_groups).
    pub fn matmul_gated_groups(self, pool: &Pool, x: &Activations, job: GatedGroups<'_>) {
        let GatedGroups {
            bounds,
            gate,
            up,
            activation,
            out,
        } = job;
        let n_out = out.len();
        let mut parts = self.bands(x, bounds, out).only(up(0).0.rows());
        tiles::deal_in_turn(pool, &mut parts, |turn, Band { group, rows, strip }| {
            let factor = |(w, bias)| Product::new(x, w, bias, n_out);
            let factors = Factors {
                gate: factor(gate(group)),
                up: factor(up(group)),
                activation,
            };
            self.gated_of(
                &factors,
                Input {
                    x,
                    rows,
                    prefetch_distance: turn.skip(),
                },
                strip,
            );
        });
    }

    fn bands<'a>(self, x: &Activations, bounds: &'a [usize], out: &'a mut [f32]) -> Bands<'a> {
        let n_rows = bounds.last().map_or(0, |last| last - bounds[0]);
        assert_eq!(n_rows, x.n_rows(), "groups hold every row of the input");
        Bands::new(out, bounds, self.table().tile_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::TYPES;
    use crate::testing::{Random, bits, pool};
    use crate::{Gated, Job, Store};

    const SHAPE: [usize; 2] = [70, 256];
    /// Of four groups one without rows and one of many; offsets as in the middle of a longer list.
    const BOUNDS: [usize; 5] = [9, 10, 10, 16, 58];

    fn filled(k: Kernels, x: &[f32], d: usize, w: Matrix<'_>) -> Activations {
        let mut a = Activations::new(x.len() / d, d);
        a.fill(k, &pool(1), (x.len() / d, d), w.layout(), |t, row| {
            row.copy_from_slice(&x[t * d..(t + 1) * d])
        });
        a
    }

    /// The weights of four groups of each type, and inputs.
    fn for_each_case(check: impl Fn(Kernels, &[Matrix<'_>], &[f32])) {
        let (mut random, [d_out, d_in]) = (Random(5), SHAPE);
        for ty in TYPES {
            let bytes: Vec<Vec<u8>> = (0..4)
                .map(|_| random.weights(ty, d_out, d_in, 0.1))
                .collect();
            let w: Vec<_> = bytes
                .iter()
                .map(|bytes| Matrix::new(ty, d_out, d_in, bytes).unwrap())
                .collect();
            let x = random.floats((BOUNDS[4] - BOUNDS[0]) * d_in);
            Kernels::available()
                .into_iter()
                .for_each(|isa| check(Kernels::named(isa).unwrap(), &w, &x));
        }
    }

    /// A bias for each group, or none.
    fn biases(has_bias: bool) -> [Option<Vec<f32>>; 4] {
        [0, 1, 2, 3].map(|seed| has_bias.then(|| Random(30 + seed).floats(SHAPE[0])))
    }

    /// The rows of group `g` in a buffer of rows of `d`.
    fn part(g: usize, d: usize) -> std::ops::Range<usize> {
        (BOUNDS[g] - BOUNDS[0]) * d..(BOUNDS[g + 1] - BOUNDS[0]) * d
    }

    #[test]
    fn a_group_of_rows_gets_the_bits_of_a_product_of_its_own() {
        let [d_out, d_in] = SHAPE;
        for has_bias in [false, true] {
            let b = biases(has_bias);
            for_each_case(|k, w, x| {
                let mut expected = vec![0.0; x.len() / d_in * d_out];
                for g in [0, 2, 3] {
                    let (input, out) = (
                        filled(k, &x[part(g, d_in)], d_in, w[g]),
                        &mut expected[part(g, d_out)],
                    );
                    k.matmul(
                        &pool(1),
                        &input,
                        &mut [Job {
                            w: w[g],
                            bias: b[g].as_deref(),
                            out,
                            mode: Store::Set,
                        }],
                    );
                }
                let mut out = vec![f32::NAN; expected.len()];
                k.matmul_groups(
                    &pool(3),
                    &filled(k, x, d_in, w[0]),
                    Groups {
                        bounds: &BOUNDS,
                        w: &|g| (w[g], b[g].as_deref()),
                        out: &mut out,
                    },
                );
                assert!(
                    bits(&out) == bits(&expected),
                    "{k:?} {}",
                    w[0].tensor_type()
                );
            });
        }
    }

    #[test]
    fn a_gated_group_of_rows_gets_the_bits_of_a_gated_product_of_its_own() {
        let ([d_out, d_in], activation) = (SHAPE, Activation::Silu);
        for has_bias in [false, true] {
            let b = biases(has_bias);
            for_each_case(|k, w, x| {
                let mut expected = vec![0.0; x.len() / d_in * d_out];
                for g in [0, 2, 3] {
                    let (input, out) = (
                        filled(k, &x[part(g, d_in)], d_in, w[g]),
                        &mut expected[part(g, d_out)],
                    );
                    let (gate, up) = (w[g], w[3 - g]);
                    let (gate_bias, up_bias) = (b[g].as_deref(), b[3 - g].as_deref());
                    let job = Gated {
                        gate,
                        up,
                        gate_bias,
                        up_bias,
                        activation,
                        out,
                    };
                    k.matmul_gated(&pool(1), &input, job);
                }
                let (mut out, input) = (vec![f32::NAN; expected.len()], filled(k, x, d_in, w[0]));
                let (gate, up) = (&|g: usize| (w[g], b[g].as_deref()), &|g: usize| {
                    (w[3 - g], b[3 - g].as_deref())
                });
                k.matmul_gated_groups(
                    &pool(3),
                    &input,
                    GatedGroups {
                        bounds: &BOUNDS,
                        gate,
                        up,
                        activation,
                        out: &mut out,
                    },
                );
                assert!(
                    bits(&out) == bits(&expected),
                    "{k:?} {}",
                    w[0].tensor_type()
                );
            });
        }
    }

    #[test]
    #[should_panic(expected = "every row of the input")]
    fn groups_that_leave_rows_out_are_refused() {
        let (k, bytes) = (Kernels::detect(), vec![0; 8 * 4]);
        let w = Matrix::new(atta_formats::TensorType::F32, 2, 4, &bytes).unwrap();
        let input = filled(k, &[0.0; 12], 4, w);
        k.matmul_groups(
            &pool(1),
            &input,
            Groups {
                bounds: &[0, 1, 2],
                w: &|_| (w, None),
                out: &mut [0.0; 6],
            },
        );
    }
}

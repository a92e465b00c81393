//! Several activation rows: 256 weights of sixteen rows become a panel of integers, in which a
//! weight of each row lies beside the others, so that lane = weight row.
//!
//! ```text
//! for each block of 256 weights, in order:
//!     w[k][r] = (code − offset)·scale, 16 bits
//!     for four activation rows at once:  isum[t][r] = Σ w[k][r]·x[t][k]
//!     out[t][r] += the f32 rule
//! ```
//! Nothing is added across lanes, and an element of an activation row is a scalar factor.
//!
//! It refuses to know formats; `unpack.rs` fills panels. The one idea: scales are multiplied into
//! the codes once, which is exact (the products fit 16 bits), and serve all activation rows.

use super::GROUPS;
use crate::activations::Quants;
use crate::algo::matmul::RowTile;
use crate::format::{KQuant, Quant32};
use crate::isa::rvv::{Rvv, vector};

/// Weight rows of a panel, those of a row tile.
pub(super) const ROWS: usize = 16;
/// Activation rows that are multiplied at once.
const FOUR: usize = 4;
/// Integers of one weight of each row.
pub(super) type Column = [i16; ROWS];

/// 256 weights of each row, and what belongs to them; zeros where there is no row.
#[repr(align(64))]
pub(super) struct Panel {
    /// `(code − offset)·scale`.
    pub(super) w: [Column; 256],
    /// Minima of sub-blocks.
    pub(super) minima: [Column; 16],
    /// `d·K` of each group of 32, or in the first place of all.
    pub(super) d: [[f32; ROWS]; GROUPS],
    /// As `d`, the second factors.
    pub(super) second: [[f32; ROWS]; GROUPS],
    /// Groups of 32 that there are, in formats with blocks of 32.
    n_groups: usize,
}

impl Panel {
    const EMPTY: Self = Self {
        w: [[0; ROWS]; 256],
        minima: [[0; ROWS]; 16],
        d: [[0.0; ROWS]; GROUPS],
        second: [[0.0; ROWS]; GROUPS],
        n_groups: 0,
    };
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(super) fn k_quant<F: KQuant, const LONG: bool>(isa: Rvv<LONG>, mut row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("riscv_v::panel");
    let w = row_tile.w;
    let mut panel = Panel::EMPTY;
    let n_whole = F::blocks(w.row(0)).len();
    for b in 0..n_whole + usize::from(F::tail(w.row(0)).is_some()) {
        for r in 0..w.d_out() {
            match F::blocks(w.row(r)).get(b) {
                Some(block) => isa.unpack::<F>(block, &mut panel, r),
                None => {
                    let tail = F::tail(w.row(r)).expect("rows end alike");
                    isa.unpack::<F>(&tail, &mut panel, r);
                }
            }
        }
        for t in (0..row_tile.rows.len()).step_by(FOUR) {
            add_block::<F, LONG>(isa, &panel, &mut row_tile, b, t);
        }
    }
}

/// Adds block `b` of activation rows `t` to `t + 3` of the row tile.
#[inline(always)]
fn add_block<F: KQuant, const LONG: bool>(
    isa: Rvv<LONG>,
    panel: &Panel,
    row_tile: &mut RowTile<'_>,
    b: usize,
    t: usize,
) {
    let x = row_tile.x.q8_256();
    let at = places(x, row_tile, b, t);
    let isums = isa.panel_sums(&panel.w, at.map(|at| &x.codes[at].0[..]));
    let n_minima = if F::MINS { F::GROUPS } else { 0 };
    for ((out, isum), at) in outs(row_tile, t).zip(&isums).zip(at) {
        let sums = &x.sums[at].of(F::GROUPS).whole[..n_minima];
        isa.add_rows_of_block(out, panel, isum, sums, x.scales[at]);
    }
}

/// Where block `b` of four activation rows is, the last one in place of those that are missing.
#[inline(always)]
fn places<S: Copy + Send, M: Copy + Send>(
    x: &Quants<S, M>,
    row_tile: &RowTile<'_>,
    b: usize,
    t: usize,
) -> [usize; FOUR] {
    let last = row_tile.rows.len() - 1;
    let at = |i: usize| x.at(b, row_tile.rows.start + (t + i).min(last));
    [at(0), at(1), at(2), at(3)]
}

/// The results of the row tile from activation row `t` on.
#[inline(always)]
fn outs<'a>(row_tile: &'a mut RowTile<'_>, t: usize) -> impl Iterator<Item = &'a mut [f32; ROWS]> {
    let outs = row_tile.acc[t * row_tile.width..].chunks_exact_mut(row_tile.width);
    outs.map(|out| out.first_chunk_mut().expect("as wide as a panel"))
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
pub(super) fn quant_32<F: Quant32, const LONG: bool>(isa: Rvv<LONG>, mut row_tile: RowTile<'_>) {
    let w = row_tile.w;
    let mut panel = Panel::EMPTY;
    let n_groups = F::blocks(w.row(0)).len() * F::GROUPS;
    for b in 0..n_groups.div_ceil(GROUPS) {
        panel.n_groups = GROUPS.min(n_groups - GROUPS * b);
        for r in 0..w.d_out() {
            for j in 0..panel.n_groups {
                let (block, g) = F::group(F::blocks(w.row(r)), GROUPS * b + j);
                isa.unpack_32::<F>(block, g, &mut panel, [r, j]);
            }
        }
        for t in (0..row_tile.rows.len()).step_by(FOUR) {
            add_groups(isa, &panel, &mut row_tile, b, t);
        }
    }
}

/// Adds groups of 32 that meet block `b` of activation rows `t` to `t + 3` of the row tile.
#[inline(always)]
fn add_groups<const LONG: bool>(
    isa: Rvv<LONG>,
    panel: &Panel,
    row_tile: &mut RowTile<'_>,
    b: usize,
    t: usize,
) {
    let x = row_tile.x.q8_32();
    let at = places(x, row_tile, b, t);
    for (j, w) in panel.w.as_chunks::<32>().0[..panel.n_groups]
        .iter()
        .enumerate()
    {
        let isums = isa.panel_sums(w, at.map(|at| &x.codes[at].0[32 * j..][..32]));
        for ((out, isum), at) in outs(row_tile, t).zip(&isums).zip(at) {
            let sum = f32::from(x.sums[at][j]);
            let factors = [&panel.d[j], &panel.second[j]];
            isa.add_rows_of_group(out, isum, factors, sum, x.scales[at][j]);
        }
    }
}

impl<const LONG: bool> Rvv<LONG> {
    /// `Σ w[k]·x[k]` of each weight row and four activation rows; as many as there are columns, a
    /// multiple of 8.
    #[inline(always)]
    fn panel_sums(self, w: &[Column], x: [&[i8]; FOUR]) -> [[i32; ROWS]; FOUR] {
        let n = w.len();
        assert!(n > 0 && n.is_multiple_of(8) && x.iter().all(|x| x.len() == n));
        let mut out = [[0; ROWS]; FOUR];
        // SAFETY: the token proves vectors; reads `n` columns and, eight at a time, as many codes
        // of each row; writes four times sixteen sums.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vmv.v.i v8, 0",
                "vmv.v.i v12, 0",
                "vmv.v.i v16, 0",
                "vmv.v.i v20, 0",
                "vsetivli zero, 16, {halves}",
                "2:",
                ".irp k, 0, 2, 4, 6",
                "vle16.v v0, ({w})",
                "addi {w}, {w}, 32",
                "lb {a}, \\k({x0})",
                "lb {b}, \\k({x1})",
                "lb {c}, \\k({x2})",
                "lb {d}, \\k({x3})",
                "vle16.v v2, ({w})",
                "addi {w}, {w}, 32",
                "vwmacc.vx v8, {a}, v0",
                "vwmacc.vx v12, {b}, v0",
                "vwmacc.vx v16, {c}, v0",
                "vwmacc.vx v20, {d}, v0",
                "lb {a}, \\k+1({x0})",
                "lb {b}, \\k+1({x1})",
                "lb {c}, \\k+1({x2})",
                "lb {d}, \\k+1({x3})",
                "vwmacc.vx v8, {a}, v2",
                "vwmacc.vx v12, {b}, v2",
                "vwmacc.vx v16, {c}, v2",
                "vwmacc.vx v20, {d}, v2",
                ".endr",
                "addi {x0}, {x0}, 8",
                "addi {x1}, {x1}, 8",
                "addi {x2}, {x2}, 8",
                "addi {x3}, {x3}, 8",
                "addi {n}, {n}, -8",
                "bnez {n}, 2b",
                "vsetivli zero, 16, {words}",
                ".irp p, 8, 12, 16, 20",
                "vse32.v v\\p, ({out})",
                "addi {out}, {out}, 64",
                ".endr";
                halves = const Self::HALVES_16,
                words = const Self::WORDS_16,
                w = inout(reg) w.as_ptr() => _,
                x0 = inout(reg) x[0].as_ptr() => _,
                x1 = inout(reg) x[1].as_ptr() => _,
                x2 = inout(reg) x[2].as_ptr() => _,
                x3 = inout(reg) x[3].as_ptr() => _,
                out = inout(reg) out.as_mut_ptr() => _,
                n = inout(reg) n => _,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
            );
        }
        out
    }

    /// `out += dx·(d·isum − dmin·Σ min·sum)` of each weight row.
    #[inline(always)]
    fn add_rows_of_block(
        self,
        out: &mut [f32; ROWS],
        panel: &Panel,
        isum: &[i32; ROWS],
        sums: &[i16],
        dx: f32,
    ) {
        assert!(sums.len() <= panel.minima.len(), "more sums than minima");
        // SAFETY: the token proves vectors; reads as many sums as there are and columns of minima
        // for them, and of all other operands sixteen elements, one for each row.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vmv.v.i v8, 0",
                "beqz {n}, 3f",
                "vsetivli zero, 16, {halves}",
                "2:",
                "lh {t}, 0({sums})",
                "addi {sums}, {sums}, 2",
                "vle16.v v0, ({minima})",
                "addi {minima}, {minima}, 32",
                "vwmacc.vx v8, {t}, v0",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vsetivli zero, 16, {words}",
                "3:",
                "vle32.v v4, ({isum})",
                "vle32.v v12, ({d})",
                "vle32.v v16, ({dmin})",
                "vle32.v v20, ({out})",
                "vfcvt.f.x.v v4, v4",
                "vfcvt.f.x.v v8, v8",
                "vfmul.vv v4, v4, v12",
                "vfmul.vv v8, v8, v16",
                "vfsub.vv v4, v4, v8",
                "vfmul.vf v4, v4, {dx}",
                "vfadd.vv v20, v20, v4",
                "vse32.v v20, ({out})";
                halves = const Self::HALVES_16,
                words = const Self::WORDS_16,
                sums = inout(reg) sums.as_ptr() => _,
                minima = inout(reg) panel.minima.as_ptr() => _,
                n = inout(reg) sums.len() => _,
                t = out(reg) _,
                isum = in(reg) isum.as_ptr(),
                d = in(reg) panel.d[0].as_ptr(),
                dmin = in(reg) panel.second[0].as_ptr(),
                dx = in(freg) dx,
                out = in(reg) out.as_mut_ptr(),
            );
        }
    }

    /// `out += (d·dx)·isum`, then `out += (m·dx)·Σx`, of each weight row; `factors` are `d` and
    /// `m`, which is 0 in formats without minima.
    #[inline(always)]
    fn add_rows_of_group(
        self,
        out: &mut [f32; ROWS],
        isum: &[i32; ROWS],
        factors: [&[f32; ROWS]; 2],
        sum: f32,
        dx: f32,
    ) {
        // SAFETY: the token proves vectors; reads sixteen elements of each operand, one for each
        // row.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vle32.v v4, ({isum})",
                "vle32.v v8, ({d})",
                "vle32.v v12, ({m})",
                "vle32.v v16, ({out})",
                "vfcvt.f.x.v v4, v4",
                "vfmul.vf v8, v8, {dx}",
                "vfmul.vf v12, v12, {dx}",
                "vfmul.vv v4, v4, v8",
                "vfmul.vf v12, v12, {sum}",
                "vfadd.vv v16, v16, v4",
                "vfadd.vv v16, v16, v12",
                "vse32.v v16, ({out})";
                words = const Self::WORDS_16,
                isum = in(reg) isum.as_ptr(),
                d = in(reg) factors[0].as_ptr(),
                m = in(reg) factors[1].as_ptr(),
                sum = in(freg) sum,
                dx = in(freg) dx,
                out = in(reg) out.as_mut_ptr(),
            );
        }
    }
}

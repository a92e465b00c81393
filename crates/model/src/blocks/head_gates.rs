//! Gates of the results of attention: the sigmoid of a number per element or per head.
//!
//! ```text
//! y = y ⊙ sigmoid(gate)                           two regions, if there is a gate
//! ```
//! Gates per element come from the projection of queries, behind the query of each head; gates per
//! head have a projection of their own.

use atta_kernels::Activation;

use super::Pass;
use crate::spec::{Attention, OutputGate};

/// Takes the queries from between the gates, if a projection returned both.
pub(super) fn take_queries(p: &mut Pass<'_>, a: &Attention) {
    if a.gate != OutputGate::Elements {
        return;
    }
    let n = p.rows.len();
    let d_q = a.d_q();
    let both = &p.s.mixer;
    p.pool.for_each_row(&mut p.s.q[..n * d_q], d_q, |row, q| {
        let both = both[2 * row * d_q..].chunks_exact(2 * a.d_head);
        for (q, both) in q.chunks_exact_mut(a.d_head).zip(both) {
            q.copy_from_slice(&both[..a.d_head]);
        }
    });
}

/// `y = y ⊙ sigmoid(gate)`, if the attention has one.
pub(super) fn gate_heads(p: &mut Pass<'_>, a: &Attention) {
    match a.gate {
        OutputGate::None => {}
        OutputGate::Elements => gate_elements(p, a),
        OutputGate::Heads => gate_whole_heads(p, a),
    }
}

fn gate_elements(p: &mut Pass<'_>, a: &Attention) {
    let kernels = p.kernels;
    let n = p.rows.len();
    let d_q = a.d_q();
    let s = &mut *p.s;
    // The gate of a head is behind its query, which is no longer needed.
    let both = &mut s.mixer[..2 * n * d_q];
    let heads = &s.heads;
    p.pool.for_each_row(both, 2 * a.d_head, |i, both| {
        let y = &heads[i * a.d_head..(i + 1) * a.d_head];
        kernels.gate_row(Activation::Sigmoid, &mut both[a.d_head..], y);
    });
    let both = &s.mixer;
    p.pool
        .for_each_row(&mut s.heads[..n * d_q], a.d_head, |i, y| {
            y.copy_from_slice(&both[2 * i * a.d_head + a.d_head..][..a.d_head]);
        });
}

/// A vector of ones: as many gates as are made sigmoids at once.
static ONES: [f32; 64] = [1.0; 64];

fn gate_whole_heads(p: &mut Pass<'_>, a: &Attention) {
    let kernels = p.kernels;
    let n = p.rows.len();
    let s = &mut *p.s;
    for gates in s.mixer[..n * a.n_heads].chunks_mut(ONES.len()) {
        let ones = &ONES[..gates.len()];
        kernels.gate_row(Activation::Sigmoid, gates, ones);
    }
    let gates = &s.mixer;
    p.pool
        .for_each_row(&mut s.heads[..n * a.d_q()], a.d_head, |i, y| {
            y.iter_mut().for_each(|y| *y *= gates[i]);
        });
}

//! Changes of each field of a latent vector and of longrope.

use atta_model::spec::{KvSource, Latent, LatentUp, LayerSpec, Presence, RopeScaling};

use super::{LayerChange, rope};

pub(super) fn changes() -> Vec<LayerChange> {
    vec![
        ("latent.d_latent", |l| latent(l).d_latent -= 2),
        ("latent.d_key", |l| latent(l).d_key += 2),
        ("latent.d_value", |l| latent(l).d_value += 2),
        ("latent.d_query", |l| {
            let d = &mut latent(l).d_query;
            *d = d.is_none().then_some(8);
        }),
        ("latent.eps", |l| latent(l).eps += 0.1),
        ("latent.up", |l| {
            let up = &mut latent(l).up;
            *up = match up {
                LatentUp::Split => LatentUp::Joint,
                LatentUp::Joint => LatentUp::Split,
            };
        }),
        ("kv", |l| l.attention_mut().kv = KvSource::PROJECTED),
    ]
}

fn latent(l: &mut LayerSpec) -> &mut Latent {
    match &mut l.attention_mut().kv {
        KvSource::Latent(latent) => latent,
        other => panic!("{other:?} is no latent vector"),
    }
}

/// Without factors, the original context enters no computation.
pub(super) fn long_changes(has_factors: bool) -> Vec<LayerChange> {
    if !has_factors {
        return vec![("rope.scaling.factors", |l| {
            long(l, |_, factors| *factors = Presence::Required)
        })];
    }
    vec![
        ("rope.scaling.factors", |l| {
            long(l, |_, factors| *factors = Presence::Absent)
        }),
        ("rope.scaling.n_ctx_orig", |l| {
            // On the other side of both the sequence and the context of the tests.
            long(l, |n, _| *n = if *n > 128 { 8 } else { 128 })
        }),
    ]
}

fn long(l: &mut LayerSpec, change: impl FnOnce(&mut usize, &mut Presence)) {
    let RopeScaling::Long {
        n_ctx_orig,
        factors,
    } = &mut rope(l).scaling
    else {
        unreachable!("asked of a longrope")
    };
    change(n_ctx_orig, factors);
}

//! A change of each field of a state space.

use atta_model::spec::{LayerSpec, Mamba, Mamba2, Mixer, Presence, StateNorms};

use super::{LayerChange, convolve};

pub(crate) fn of_mamba(m: &Mamba, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("n_taps", |l| mamba(l).n_taps += 1),
        ("d_inner", |l| mamba(l).d_inner += 1),
        ("d_state", |l| mamba(l).d_state += 1),
        ("d_rank", |l| mamba(l).d_rank += 2),
        ("other parts", |l| {
            mamba(l).d_rank += 2;
            mamba(l).d_state -= 1;
        }),
        ("mixer", convolve),
        ("norms", |l| {
            mamba(l).norms = match mamba(l).norms {
                StateNorms::None => StateNorms::Unit { eps: 1e-6 },
                StateNorms::Unit { .. } | StateNorms::Weighted { .. } => StateNorms::None,
            };
        }),
    ];
    if m.norms != StateNorms::None {
        all.push(("norms.eps", |l| {
            if let StateNorms::Unit { eps } | StateNorms::Weighted { eps } = &mut mamba(l).norms {
                *eps *= 2.0;
            }
        }));
    }
    all.push(match in_file("blk.{l}.ssm_conv1d.bias") {
        true => ("conv_bias", |l| mamba(l).conv_bias = Presence::Absent),
        false => ("conv_bias", |l| mamba(l).conv_bias = Presence::Required),
    });
    all
}

fn mamba(l: &mut LayerSpec) -> &mut Mamba {
    match &mut l.mixer {
        Mixer::Mamba(mamba) => mamba,
        other => panic!("{other:?} is no state space of channels"),
    }
}

pub(crate) fn of_mamba2(m: &Mamba2, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("n_taps", |l| mamba2(l).n_taps += 1),
        ("n_heads", |l| mamba2(l).n_heads *= 2),
        ("heads of half the width", |l| {
            mamba2(l).n_heads *= 2;
            mamba2(l).d_head /= 2;
        }),
        ("d_head", |l| mamba2(l).d_head += 1),
        ("n_groups", |l| mamba2(l).n_groups *= 2),
        ("d_state", |l| mamba2(l).d_state += 1),
        ("min_step", |l| mamba2(l).min_step += 0.5),
        ("mixer", convolve),
    ];
    if m.min_step > 0.0 {
        all.push(("no min_step", |l| mamba2(l).min_step = 0.0));
    }
    all.push(match in_file("blk.{l}.ssm_conv1d.bias") {
        true => ("conv_bias", |l| mamba2(l).conv_bias = Presence::Absent),
        false => ("conv_bias", |l| mamba2(l).conv_bias = Presence::Required),
    });
    if in_file("blk.{l}.ssm_norm.weight") {
        all.push(("norm", |l| mamba2(l).norm = Presence::Absent));
        all.push(("eps", |l| mamba2(l).eps *= 2.0));
    } else {
        all.push(("norm", |l| mamba2(l).norm = Presence::Required));
    }
    all
}

fn mamba2(l: &mut LayerSpec) -> &mut Mamba2 {
    match &mut l.mixer {
        Mixer::Mamba2(mamba) => mamba,
        Mixer::AttentionAndMamba2(both) => &mut both.mamba,
        other => panic!("{other:?} is no state space"),
    }
}

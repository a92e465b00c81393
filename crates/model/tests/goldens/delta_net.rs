//! A change of each field of a gated delta net.

use atta_model::spec::{
    DeltaNet, GateRows, KeySharing, LayerSpec, Mixer, NetDecay, NetGate, NetTensors,
};

use super::{LayerChange, convolve};

pub(crate) fn changes(net: &DeltaNet) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = sizes().into();
    all.extend(tensors());
    all.push(("gate", |l| {
        let gate = &mut delta(l).gate;
        *gate = match gate {
            NetGate::Silu => NetGate::Sigmoid,
            NetGate::Sigmoid => NetGate::Silu,
        };
    }));
    all.push(("l2_eps", |l| delta(l).l2_eps += 1e-2));
    all.push(("eps", |l| delta(l).eps *= 2.0));
    all.push(("mixer", convolve));
    if let NetDecay::Heads(_) = net.decay {
        all.push(("decay.rows", |l| {
            if let NetDecay::Heads(rows) = &mut delta(l).decay {
                *rows = match rows {
                    GateRows::Apart => GateRows::ByKeyHead,
                    GateRows::ByKeyHead => GateRows::Apart,
                };
            }
        }));
    }
    all
}

fn sizes() -> [LayerChange; 6] {
    [
        ("n_taps", |l| delta(l).n_taps += 1),
        ("n_heads", |l| delta(l).n_heads *= 2),
        ("n_key_heads", |l| delta(l).n_key_heads *= 2),
        ("d_key", |l| delta(l).d_key += 1),
        ("d_value", |l| delta(l).d_value += 1),
        ("sharing", |l| {
            let net = delta(l);
            // Where each head has keys of its own, both mean the same.
            if net.n_heads > net.n_key_heads {
                net.sharing = match net.sharing {
                    KeySharing::InTurn => KeySharing::Neighbours,
                    KeySharing::Neighbours => KeySharing::InTurn,
                };
            }
        }),
    ]
}

fn tensors() -> [LayerChange; 4] {
    [
        ("tensors", |l| {
            let tensors = &mut delta(l).tensors;
            *tensors = match tensors {
                NetTensors::Joint => NetTensors::Apart,
                NetTensors::Apart => NetTensors::Joint,
            };
        }),
        ("decay", |l| {
            let decay = &mut delta(l).decay;
            *decay = match decay {
                NetDecay::Heads(_) => NetDecay::Channels { rank: 12 },
                NetDecay::Channels { .. } => NetDecay::Heads(GateRows::Apart),
            };
        }),
        ("decay.rank", |l| {
            if let NetDecay::Channels { rank } = &mut delta(l).decay {
                *rank += 1;
            }
        }),
        ("gate_rank", |l| {
            let rank = &mut delta(l).gate_rank;
            *rank = rank.is_none().then_some(12);
        }),
    ]
}

fn delta(l: &mut LayerSpec) -> &mut DeltaNet {
    match &mut l.mixer {
        Mixer::DeltaNet(net) => net,
        other => panic!("{other:?} is no delta net"),
    }
}

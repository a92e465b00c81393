//! A change of each field of a mixture of experts.

use atta_model::spec::{
    Activation, ExpertGroups, Ffn, Gating, GroupScore, LayerSpec, Moe, Presence, SharedExpert,
    WeightedSide,
};

use super::LayerChange;

pub(crate) fn changes(layer: &LayerSpec, in_file: impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let Some(moe) = layer.moe() else {
        return Vec::new();
    };
    let mut all = of_all();
    all.push(match in_file("blk.{l}.exp_probs_b.bias") {
        true => ("selection_bias", |l| {
            moe_of(l).selection_bias = Presence::Absent
        }),
        false => ("selection_bias", |l| {
            moe_of(l).selection_bias = Presence::Required
        }),
    });
    all.push(match in_file("blk.{l}.ffn_down.bias") {
        true => ("sum_bias", |l| moe_of(l).sum_bias = Presence::Absent),
        false => ("sum_bias", |l| moe_of(l).sum_bias = Presence::Required),
    });
    if moe.router_norm.is_some() {
        all.push(("router_norm.eps", |l| {
            moe_of(l).router_norm = moe_of(l).router_norm.map(|eps| 2.0 * eps);
        }));
    }
    if let Ffn::MlpAndMoe(_) = &layer.ffn {
        all.extend(beside_mlp());
    }
    if moe.shared.is_some() {
        all.extend(of_shared());
    }
    if moe.groups.is_some() {
        all.extend(of_groups());
    }
    if let Gating::SparseMixer { .. } = moe.gating {
        all.push(("gating.tolerance", |l| {
            if let Gating::SparseMixer { tolerance } = &mut moe_of(l).gating {
                *tolerance *= 2.0;
            }
        }));
    }
    all
}

fn of_all() -> Vec<LayerChange> {
    vec![
        ("moe", |l| l.ffn = Ffn::Gated(l.mlp_mut().clone())),
        ("n_experts", |l| moe_of(l).n_experts -= 1),
        ("n_used", |l| moe_of(l).n_used -= 1),
        ("router_norm", |l| {
            let norm = &mut moe_of(l).router_norm;
            *norm = norm.is_none().then_some(1e-2);
        }),
        ("has_gates", |l| moe_of(l).has_gates ^= true),
        ("renormalize", |l| moe_of(l).renormalize ^= true),
        ("weights_scale", |l| moe_of(l).weights_scale *= 1.1),
        ("gating", |l| {
            let gating = &mut moe_of(l).gating;
            *gating = match gating {
                Gating::Softmax => Gating::Sigmoid,
                Gating::Sigmoid | Gating::SparseMixer { .. } => Gating::Softmax,
            };
        }),
        ("groups", toggle_groups),
        ("weighted", |l| {
            let weighted = &mut moe_of(l).weighted;
            *weighted = match weighted {
                WeightedSide::Input => WeightedSide::Output,
                WeightedSide::Output => WeightedSide::Input,
            };
        }),
        ("router_bias", |l| {
            let bias = &mut moe_of(l).router_bias;
            *bias = match *bias {
                Presence::Absent => Presence::Required,
                _ => Presence::Absent,
            };
        }),
        ("shared", toggle_shared),
    ]
}

fn toggle_groups(l: &mut LayerSpec) {
    let groups = &mut moe_of(l).groups;
    *groups = groups.is_none().then_some(ExpertGroups {
        n_groups: 2,
        n_used: 1,
        score: GroupScore::Best,
    });
}

fn toggle_shared(l: &mut LayerSpec) {
    let moe = moe_of(l);
    moe.shared = match moe.shared {
        Some(_) => None,
        None => Some(SharedExpert {
            mlp: moe.expert.clone(),
            is_gated: false,
        }),
    };
}

fn beside_mlp() -> Vec<LayerChange> {
    vec![
        ("experts alone", |l| l.ffn = Ffn::Moe(moe_of(l).clone())),
        ("norms beside experts", |l| {
            if let Ffn::MlpAndMoe(both) = &mut l.ffn {
                both.eps *= 2.0;
            }
        }),
        ("expert.d_ff", |l| moe_of(l).expert.d_ff -= 2),
        ("expert.activation", |l| {
            moe_of(l).expert.activation = Activation::Silu
        }),
        ("expert.bias", |l| {
            moe_of(l).expert.bias = Presence::Required
        }),
    ]
}

fn of_shared() -> Vec<LayerChange> {
    vec![
        ("shared.d_ff", |l| shared(l).mlp.d_ff -= 2),
        ("shared.activation", |l| {
            shared(l).mlp.activation = Activation::GeluTanh
        }),
        ("shared.bias", |l| shared(l).mlp.bias = Presence::Optional),
        ("shared.is_gated", |l| shared(l).is_gated ^= true),
    ]
}

fn of_groups() -> Vec<LayerChange> {
    vec![
        ("groups.n_groups", |l| groups(l).n_groups /= 2),
        ("groups.n_used", |l| groups(l).n_used += 1),
        ("groups.score", |l| {
            let score = &mut groups(l).score;
            *score = match score {
                GroupScore::Best => GroupScore::BestTwo,
                GroupScore::BestTwo => GroupScore::Best,
            };
        }),
    ]
}

fn moe_of(l: &mut LayerSpec) -> &mut Moe {
    match &mut l.ffn {
        Ffn::Moe(m) => m,
        Ffn::MlpAndMoe(both) => &mut both.moe,
        _ => panic!("a layer without experts"),
    }
}

fn groups(l: &mut LayerSpec) -> &mut ExpertGroups {
    moe_of(l).groups.as_mut().unwrap()
}

fn shared(l: &mut LayerSpec) -> &mut SharedExpert {
    moe_of(l).shared.as_mut().unwrap()
}

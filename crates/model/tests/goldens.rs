//! Every registry row against the oracle and against Hugging Face transformers, and every field of its spec: a field
//! whose change goes unnoticed would be a field that nobody reads.

mod support;

use atta_model::{
    arch::REGISTRY,
    oracle,
    spec::{
        Activation, Ffn, LayerSpec, Mask, Mixer, Mlp, ModelSpec, Moe, Norm, Pairing, Presence, QkNorm, RopeScaling,
        Wiring,
    },
};
use support::{Golden, forward, goldens, nmse};

#[test]
fn every_registry_row_has_a_golden() {
    let goldens = goldens();
    for row in REGISTRY {
        assert!(goldens.iter().any(|g| g.arch == row.name), "{} has no tiny model", row.name);
    }
}

#[test]
fn the_oracle_agrees_with_transformers() {
    for g in goldens() {
        let got = oracle::logits(&g.model(), &g.tokens).unwrap();
        let nmse = nmse(&got, &g.logits);
        assert!(nmse <= g.nmse, "{}: nmse {nmse:e}, allowed {:e}", g.name, g.nmse);
    }
}

#[test]
fn the_forward_pass_agrees_with_the_oracle() {
    for g in goldens() {
        let model = g.model();
        let nmse = nmse(&forward(&model, &g.tokens), &oracle::logits(&model, &g.tokens).unwrap());
        assert!(nmse <= 1e-10, "{}: nmse {nmse:e}", g.name);
    }
}

#[test]
fn changing_any_field_of_a_spec_makes_its_golden_fail() {
    for g in goldens() {
        let spec = g.model().spec().clone();
        for (what, change) in changes(&g, &spec) {
            let mut changed = spec.clone();
            change(&mut changed);
            assert_ne!(changed, spec, "{}: {what} changes nothing", g.name);
            must_fail(&g, &what, changed);
        }
    }
}

/// A changed spec does not fit the file, or gives other logits; and then oracle and forward pass still agree.
fn must_fail(g: &Golden, what: &str, spec: ModelSpec) {
    let Ok(model) = g.with_spec(spec) else { return };
    let got = forward(&model, &g.tokens);
    let distance = nmse(&got, &g.logits);
    // Some changes give NaN or infinity, which is another way to fail.
    assert!(distance.is_nan() || distance > 10.0 * g.nmse, "{}: {what} goes unnoticed, nmse {distance:e}", g.name);
    let disagreement = nmse(&got, &oracle::logits(&model, &g.tokens).unwrap());
    assert!(disagreement <= 1e-10, "{}: {what}: oracle and forward pass differ, nmse {disagreement:e}", g.name);
}

type Change = (String, Box<dyn Fn(&mut ModelSpec)>);

/// One change for each field. `n_ctx_train` is not among them: it limits sessions and enters no computation.
fn changes(g: &Golden, spec: &ModelSpec) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut add = |what: &str, change: fn(&mut ModelSpec)| all.push((what.to_owned(), Box::new(change)));
    add("d_model", |s| s.d_model += 2);
    add("n_vocab", |s| s.n_vocab -= 1);
    add("embed_scale", |s| s.embed_scale = 1.5);
    add("the number of layers", |s| s.layers.truncate(s.layers.len() - 1));
    add("head.norm.eps", |s| double_eps(&mut s.head.norm));
    add("head.logit_scale", |s| s.head.logit_scale = 0.5);
    add("head.softcap", |s| s.head.softcap = Some(2.0));
    for l in 0..spec.layers.len() {
        let in_file = |tensor: &str| g.files().directory().tensor(&tensor.replace("{l}", &l.to_string())).is_some();
        for (what, change) in layer_changes(&spec.layers[l], in_file).into_iter().chain(moe_changes(&spec.layers[l])) {
            all.push((format!("layers[{l}].{what}"), Box::new(move |s| change(&mut s.layers[l]))));
        }
    }
    all
}

type LayerChange = (&'static str, fn(&mut LayerSpec));

fn layer_changes(layer: &LayerSpec, in_file: impl Fn(&str) -> bool) -> Vec<LayerChange> {
    // Forbids a tensor that is there, or demands one that is not.
    let presence = |tensor, forbid: fn(&mut LayerSpec), demand| if in_file(tensor) { forbid } else { demand };
    let mut all: Vec<LayerChange> = vec![
        ("residual_scale", |l| l.residual_scale = 0.5),
        ("wiring.pre[0].eps", |l| double_eps(&mut pre_norms(l)[0])),
        ("wiring.pre[1].eps", |l| double_eps(&mut pre_norms(l)[1])),
        ("n_heads", |l| attention(l).n_heads *= 2),
        ("n_kv_heads", |l| attention(l).n_kv_heads *= 2),
        ("d_head", |l| attention(l).d_head += 2),
        ("mask", |l| attention(l).mask = Mask::Window(7)),
        ("scale", |l| attention(l).scale *= 1.5),
        ("softcap", |l| attention(l).softcap = Some(1.0)),
        ("qk_norm", toggle_qk_norm),
        ("rope", |l| attention(l).rope = None),
        ("rope.d_rope", |l| rope(l).d_rope -= 2),
        ("rope.base", |l| rope(l).base *= 1.2),
        ("rope.pairing", flip_pairing),
        ("rope.scaling", stretch),
        ("d_ff", |l| mlp(l).d_ff += 2),
        ("activation", |l| mlp(l).activation = Activation::GeluTanh),
        (
            "rope.factors",
            presence(
                "rope_freqs.weight",
                |l| rope(l).factors = Presence::Absent,
                |l| rope(l).factors = Presence::Required,
            ),
        ),
        (
            "qkv_bias",
            presence(
                "blk.{l}.attn_q.bias",
                |l| attention(l).qkv_bias = Presence::Absent,
                |l| attention(l).qkv_bias = Presence::Required,
            ),
        ),
        (
            "out_bias",
            presence(
                "blk.{l}.attn_output.bias",
                |l| attention(l).out_bias = Presence::Absent,
                |l| attention(l).out_bias = Presence::Required,
            ),
        ),
        (
            "mlp.bias",
            presence("blk.{l}.ffn_up.bias", |l| mlp(l).bias = Presence::Absent, |l| mlp(l).bias = Presence::Required),
        ),
    ];
    if matches!(layer.attention().qk_norm, QkNorm::PerHead { .. }) {
        all.push(("qk_norm.eps", |l| {
            if let QkNorm::PerHead { eps } = &mut attention(l).qk_norm {
                *eps *= 2.0;
            }
        }));
    }
    all
}

fn moe_changes(layer: &LayerSpec) -> Vec<LayerChange> {
    let Some(moe) = layer.moe() else { return Vec::new() };
    let mut all: Vec<LayerChange> = vec![
        ("moe", |l| l.ffn = Ffn::Gated(mlp(l).clone())),
        ("n_experts", |l| moe_of(l).n_experts -= 1),
        ("n_used", |l| moe_of(l).n_used -= 1),
        ("renormalize", |l| moe_of(l).renormalize ^= true),
        ("weights_scale", |l| moe_of(l).weights_scale *= 1.1),
        ("shared", |l| {
            let moe = moe_of(l);
            moe.shared = if moe.shared.is_some() { None } else { Some(moe.expert.clone()) };
        }),
    ];
    if moe.shared.is_some() {
        all.push(("shared.d_ff", |l| shared(l).d_ff -= 2));
        all.push(("shared.activation", |l| shared(l).activation = Activation::GeluTanh));
        all.push(("shared.bias", |l| shared(l).bias = Presence::Optional));
    }
    all
}

fn moe_of(l: &mut LayerSpec) -> &mut Moe {
    let Ffn::Moe(m) = &mut l.ffn else { panic!("a layer without experts") };
    m
}

fn shared(l: &mut LayerSpec) -> &mut Mlp {
    moe_of(l).shared.as_mut().unwrap()
}

fn attention(l: &mut LayerSpec) -> &mut atta_model::spec::Attention {
    let Mixer::Attention(a) = &mut l.mixer;
    a
}

fn rope(l: &mut LayerSpec) -> &mut atta_model::spec::Rope {
    attention(l).rope.as_mut().unwrap()
}

fn mlp(l: &mut LayerSpec) -> &mut atta_model::spec::Mlp {
    match &mut l.ffn {
        Ffn::Gated(m) => m,
        Ffn::Moe(m) => &mut m.expert,
    }
}

fn pre_norms(l: &mut LayerSpec) -> &mut [Norm; 2] {
    let Wiring::Sequential { pre } = &mut l.wiring;
    pre
}

fn double_eps(norm: &mut Norm) {
    let Norm::Rms { eps } = norm;
    *eps *= 2.0;
}

fn toggle_qk_norm(l: &mut LayerSpec) {
    let a = attention(l);
    a.qk_norm = match a.qk_norm {
        QkNorm::None => QkNorm::PerHead { eps: 1e-6 },
        QkNorm::PerHead { .. } => QkNorm::None,
    };
}

fn flip_pairing(l: &mut LayerSpec) {
    let pairing = &mut rope(l).pairing;
    *pairing = match pairing {
        Pairing::Adjacent => Pairing::Halves,
        Pairing::Halves => Pairing::Adjacent,
    };
}

fn stretch(l: &mut LayerSpec) {
    let scaling = &mut rope(l).scaling;
    *scaling = match scaling {
        RopeScaling::None => RopeScaling::Linear { factor: 2.0 },
        RopeScaling::Linear { .. } => RopeScaling::None,
    };
}

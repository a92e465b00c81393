//! Every registry row against the oracle and against Hugging Face transformers, and every field of
//! its spec: a field whose change goes unnoticed would be a field that no code reads.

#[path = "goldens/alt_up.rs"]
mod alt_up;
#[path = "goldens/delta_net.rs"]
mod delta_net;
#[path = "goldens/experts.rs"]
mod experts;
#[path = "goldens/latent.rs"]
mod latent;
#[path = "goldens/ngrams.rs"]
mod ngrams;
#[path = "goldens/state_spaces.rs"]
mod state_spaces;
#[path = "goldens/streams.rs"]
mod streams;
mod support;

use atta_model::{
    arch::REGISTRY,
    spec::{
        Activation, Attention, DenseHead, Ffn, Indexer, KvSource, LayerEmbed, LayerSpec, Mask,
        Mixer, Mlp, ModelSpec, Norm, OutputGate, Outputs, Pairing, Positions, Presence, QkNorm,
        RampEnds, Rope, RopeScaling, ScoreActivation, ScoreHead, ScoreInput, ShortConv,
        Temperature, TokenTypes, Wiring, Xielu, Yarn,
    },
};
use support::{Golden, goldens_and_encoders, nmse};

#[test]
fn every_registry_row_has_a_golden() {
    let goldens = goldens_and_encoders();
    for row in REGISTRY {
        assert!(
            goldens.iter().any(|g| g.arch == row.name),
            "{} has no tiny model",
            row.name
        );
    }
}

#[test]
fn the_oracle_agrees_with_transformers() {
    for g in goldens_and_encoders() {
        let got = g.by_oracle(&g.model());
        let nmse = nmse(&got, &g.logits);
        assert!(
            nmse <= g.nmse,
            "{}: nmse {nmse:e}, allowed {:e}",
            g.name,
            g.nmse
        );
    }
}

#[test]
fn the_forward_pass_agrees_with_the_oracle() {
    for g in goldens_and_encoders() {
        let model = g.model();
        let nmse = nmse(&g.by_forward(&model), &g.by_oracle(&model));
        assert!(nmse <= 1e-10, "{}: nmse {nmse:e}", g.name);
    }
}

// Half of the models each, so that two processors share the longest of these tests.
#[test]
fn changing_any_field_of_a_spec_makes_its_golden_fail() {
    change_every_field(goldens_and_encoders().iter().step_by(2));
}

#[test]
fn changing_any_field_of_a_spec_makes_its_golden_fail_for_the_other_models() {
    change_every_field(goldens_and_encoders().iter().skip(1).step_by(2));
}

fn change_every_field<'a>(goldens: impl Iterator<Item = &'a Golden>) {
    for g in goldens {
        let spec = g.model().spec().clone();
        for (what, change) in changes(g, &spec) {
            let mut changed = spec.clone();
            change(&mut changed);
            assert_ne!(changed, spec, "{}: {what} changes nothing", g.name);
            must_fail(g, &what, changed);
        }
    }
}

/// A changed spec does not fit the file, or gives other logits; and then oracle and forward pass
/// still agree.
fn must_fail(g: &Golden, what: &str, spec: ModelSpec) {
    let Ok(model) = g.with_spec(spec) else { return };
    let got = g.by_forward(&model);
    if got.len() != g.logits.len() {
        return; // other results
    }
    let distance = nmse(&got, &g.logits);
    // Some changes give NaN or infinity, which is another way to fail.
    assert!(
        distance.is_nan() || distance > 10.0 * g.nmse,
        "{}: {what} goes unnoticed, nmse {distance:e}",
        g.name
    );
    let disagreement = nmse(&got, &g.by_oracle(&model));
    assert!(
        disagreement <= 1e-10,
        "{}: {what}: oracle and forward pass differ, nmse {disagreement:e}",
        g.name
    );
}

type Change = (String, Box<dyn Fn(&mut ModelSpec)>);

/// One change for each field. `n_ctx_train` is not among them: it limits sessions and enters no
/// computation.
fn changes(g: &Golden, spec: &ModelSpec) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut add =
        |what: &str, change: fn(&mut ModelSpec)| all.push((what.to_owned(), Box::new(change)));
    add("d_model", |s| s.d_model += 2);
    add("n_vocab", |s| s.n_vocab -= 1);
    add("embed_scale", |s| s.embed_scale *= 1.5);
    add("positions", |s| {
        s.positions = match s.positions {
            Positions::None => Positions::Learned(128),
            Positions::Learned(_) => Positions::None,
        }
    });
    add("token_types", |s| {
        s.token_types = match s.token_types {
            TokenTypes::None => TokenTypes::Learned(2),
            TokenTypes::Learned(n) => TokenTypes::Learned(n + 1),
        }
    });
    add("embed_norm", |s| change_norm(&mut s.embed_norm));
    add("the number of layers", |s| {
        s.layers.truncate(s.layers.len() - 1)
    });
    add("head.norm", |s| change_norm(&mut s.head.norm));
    add("head.outputs", |s| {
        s.head.outputs = match s.head.outputs {
            Outputs::Logits => Outputs::Hidden,
            Outputs::Hidden => Outputs::Dense(DenseHead {
                d_inner: 8,
                d_out: s.d_model,
            }),
            Outputs::Dense(_) | Outputs::Scores(_) => Outputs::Hidden,
        }
    });
    if spec.head.outputs != Outputs::Logits {
        all.extend(head_changes(spec));
        return with_layers(g, spec, all);
    }
    add("head.logit_scale", |s| s.head.logit_scale *= 0.5);
    add("head.softcap", |s| {
        s.head.softcap = s.head.softcap.is_none().then_some(0.02)
    });
    match g.files().directory().tensor("output.bias") {
        Some(_) => add("head.bias", |s| s.head.bias = Presence::Absent),
        None => add("head.bias", |s| s.head.bias = Presence::Required),
    }
    all.extend(alt_up::of_model(spec));
    if spec.layer_embed.is_some() {
        all.extend(layer_embed_changes());
    }
    all.extend(streams::changes(spec));
    with_layers(g, spec, all)
}

/// A change of each field of a head that computes scores or a vector.
fn head_changes(spec: &ModelSpec) -> Vec<Change> {
    let dense = |what: &str, change: fn(&mut DenseHead)| -> Change {
        let of_spec = move |s: &mut ModelSpec| match &mut s.head.outputs {
            Outputs::Dense(head) => change(head),
            other => panic!("{other:?} is not dense"),
        };
        (format!("head.dense.{what}"), Box::new(of_spec))
    };
    let scores = |what: &str, change: fn(&mut ScoreHead)| -> Change {
        let of_spec = move |s: &mut ModelSpec| match &mut s.head.outputs {
            Outputs::Scores(head) => change(head),
            other => panic!("{other:?} has no scores"),
        };
        (format!("head.scores.{what}"), Box::new(of_spec))
    };
    match spec.head.outputs {
        Outputs::Logits | Outputs::Hidden => Vec::new(),
        Outputs::Dense(_) => vec![
            dense("d_inner", |head| head.d_inner += 1),
            dense("d_out", |head| head.d_out += 1),
        ],
        Outputs::Scores(_) => vec![
            scores("n", |head| head.n += 1),
            scores("reads", |head| {
                head.reads = match head.reads {
                    ScoreInput::First => ScoreInput::Mean,
                    ScoreInput::Mean => ScoreInput::First,
                }
            }),
            scores("activation", |head| {
                head.activation = match head.activation {
                    ScoreActivation::Tanh => ScoreActivation::Gelu,
                    ScoreActivation::Gelu => ScoreActivation::Tanh,
                }
            }),
            scores("bias", |head| {
                head.bias = match head.bias {
                    Presence::Absent => Presence::Required,
                    Presence::Required | Presence::Optional => Presence::Absent,
                }
            }),
            scores("norm", |head| change_norm(&mut head.norm)),
        ],
    }
}

/// Adds the changes of every layer.
fn with_layers(g: &Golden, spec: &ModelSpec, mut all: Vec<Change>) -> Vec<Change> {
    for l in 0..spec.layers.len() {
        let in_file = |tensor: &str| {
            g.files()
                .directory()
                .tensor(&tensor.replace("{l}", &l.to_string()))
                .is_some()
        };
        // Scores may be of the first token alone, whose temperature is 1.
        let is_of_first = matches!(
            spec.head.outputs,
            Outputs::Scores(ScoreHead {
                reads: ScoreInput::First,
                ..
            })
        ) && l + 1 == spec.layers.len();
        for (what, change) in layer_changes(&spec.layers[l], &in_file)
            .into_iter()
            .chain(experts::changes(&spec.layers[l], in_file))
            .filter(|(what, _)| !(is_of_first && *what == "temperature"))
        {
            all.push((
                format!("layers[{l}].{what}"),
                Box::new(move |s| change(&mut s.layers[l])),
            ));
        }
    }
    all
}

fn layer_embed_changes() -> Vec<Change> {
    let change = |what: &str, change: fn(&mut LayerEmbed)| -> Change {
        let of_spec = move |s: &mut ModelSpec| change(s.layer_embed.as_mut().unwrap());
        (format!("layer_embed.{what}"), Box::new(of_spec))
    };
    vec![
        ("layer_embed".to_owned(), Box::new(|s| s.layer_embed = None)),
        change("d", |e| e.d += 1),
        change("activation", |e| e.activation = Activation::Silu),
        change("eps", |e| e.eps *= 1.5),
    ]
}

type LayerChange = (&'static str, fn(&mut LayerSpec));

fn layer_changes(layer: &LayerSpec, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("residual_scale", |l| l.residual_scale *= 0.5),
        ("wiring", rewire),
        ("wiring.pre[0]", |l| change_pre(l, 0)),
        ("wiring.pre[1]", |l| change_pre(l, 1)),
        ("wiring.post[0]", |l| change_post(l, 0)),
        ("wiring.post[1]", |l| change_post(l, 1)),
        ("ffn", |l| {
            l.ffn = match l.ffn.clone() {
                Ffn::None => Ffn::Plain(SMALL_MLP),
                Ffn::Gated(m) => Ffn::Plain(m),
                Ffn::Plain(m) => Ffn::Gated(m),
                Ffn::Sparse(m) => Ffn::Gated(m.mlp),
                Ffn::Moe(m) => Ffn::Plain(m.expert),
                Ffn::MlpAndMoe(both) => Ffn::Gated(both.mlp),
            };
        }),
    ];
    all.extend(match &layer.mixer {
        Mixer::Attention(a) => attention_changes(a, in_file),
        Mixer::DeltaNet(net) => delta_net::changes(net),
        Mixer::ShortConv(_) => conv_changes(),
        Mixer::Mamba(m) => state_spaces::of_mamba(m, in_file),
        Mixer::Mamba2(m) => state_spaces::of_mamba2(m, in_file),
        Mixer::AttentionAndMamba2(both) => {
            let mut all = attention_changes(&both.attention, in_file);
            all.extend(state_spaces::of_mamba2(&both.mamba, in_file));
            all.push(("mixer.attention alone", |l| {
                l.mixer = Mixer::Attention(l.attention_mut().clone());
            }));
            all
        }
        Mixer::None => vec![("mixer", convolve as fn(&mut LayerSpec))],
    });
    all.extend(alt_up::of_layer(layer));
    if layer.ngrams.is_some() {
        all.extend(ngrams::changes());
    }
    if let Some(mlp) = layer.mlp() {
        all.extend(mlp_changes(mlp, in_file));
    }
    all.push(match in_file("blk.{l}.layer_output_scale.weight") {
        true => ("out_scale", |l| l.out_scale = Presence::Absent),
        false => ("out_scale", |l| l.out_scale = Presence::Required),
    });
    let changes_something = |(_, change): &LayerChange| {
        let mut changed = layer.clone();
        change(&mut changed);
        changed != *layer
    };
    // A parallel layer has no second norm to change.
    all.retain(changes_something);
    all
}

/// An MLP of no layer.
const SMALL_MLP: Mlp = Mlp {
    d_ff: 4,
    activation: Activation::Relu2,
    bias: Presence::Absent,
    sub_norm: None,
};

fn mlp_changes(mlp: &Mlp, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("mlp.sub_norm", |l| change_norm(&mut l.mlp_mut().sub_norm)),
        ("d_ff", |l| l.mlp_mut().d_ff += 2),
        ("activation", |l| {
            let activation = &mut l.mlp_mut().activation;
            *activation = match activation {
                Activation::Silu => Activation::GeluTanh,
                Activation::Gelu
                | Activation::GeluTanh
                | Activation::Relu2
                | Activation::Xielu(_)
                | Activation::Clamped { .. } => Activation::Silu,
            };
        }),
    ];
    all.push(
        match in_file("blk.{l}.ffn_up.bias") || in_file("blk.{l}.ffn_up_exps.bias") {
            true => ("mlp.bias", |l| l.mlp_mut().bias = Presence::Absent),
            false => ("mlp.bias", |l| l.mlp_mut().bias = Presence::Required),
        },
    );
    if let Activation::Clamped { .. } = mlp.activation {
        all.push(("activation.alpha", |l| clamped(l, |alpha, _| *alpha *= 1.2)));
        all.push(("activation.limit", |l| clamped(l, |_, limit| *limit *= 1.2)));
    }
    if let Activation::Xielu(_) = mlp.activation {
        all.extend(xielu_changes());
    }
    all
}

fn xielu_changes() -> [LayerChange; 4] {
    [
        ("activation.alpha_p", |l| xielu(l).alpha_p *= 1.2),
        ("activation.alpha_n", |l| xielu(l).alpha_n *= 1.2),
        ("activation.beta", |l| xielu(l).beta *= 1.2),
        ("activation.eps", |l| xielu(l).eps = -0.5),
    ]
}

fn xielu(l: &mut LayerSpec) -> &mut Xielu {
    match &mut l.mlp_mut().activation {
        Activation::Xielu(numbers) => numbers,
        other => panic!("{other:?} is no xIELU"),
    }
}

fn attention_changes(a: &Attention, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("attention.sub_norm", |l| {
            change_norm(&mut l.attention_mut().sub_norm)
        }),
        ("n_heads", |l| l.attention_mut().n_heads *= 2),
        ("n_kv_heads", |l| l.attention_mut().n_kv_heads *= 2),
        ("d_head", |l| l.attention_mut().d_head += 2),
        ("mask", |l| {
            let mask = &mut l.attention_mut().mask;
            *mask = match mask {
                Mask::Causal | Mask::Window(_) => Mask::Window(7),
                Mask::Chunk(n) => Mask::Chunk(*n + 1),
                Mask::Full => Mask::Around(7),
                Mask::Around(n) => Mask::Around(*n + 1),
            };
        }),
        ("scale", |l| l.attention_mut().scale *= 1.5),
        ("temperature", change_temperature),
        ("softcap", |l| {
            let cap = &mut l.attention_mut().softcap;
            *cap = if cap.is_some() { None } else { Some(1.0) };
        }),
        ("slopes", |l| {
            let slopes = &mut l.attention_mut().slopes;
            *slopes = if slopes.is_some() { None } else { Some(4.0) };
        }),
        ("slopes.max", |l| {
            let slopes = &mut l.attention_mut().slopes;
            slopes.iter_mut().for_each(|max| *max *= 1.5);
        }),
        ("rope", toggle_rope),
        ("gate", |l| {
            let gate = &mut l.attention_mut().gate;
            *gate = match gate {
                OutputGate::None => OutputGate::Elements,
                OutputGate::Elements | OutputGate::Heads => OutputGate::None,
            };
        }),
    ];
    if a.indexer.is_some() {
        all.extend(indexer_changes());
    }
    all.extend(kv_changes(a, in_file));
    all.extend(presence_changes(in_file));
    all.extend(a.rope.iter().flat_map(|rope| rope_changes(rope, in_file)));
    all.extend(qk_norm_changes(a, in_file));
    if a.temperature.is_some() {
        all.push(("temperature.n_ctx_orig", |l| {
            change_temperature_by(l, |t| t.n_ctx_orig /= 2)
        }));
        all.push(("temperature.offset", |l| {
            change_temperature_by(l, |t| t.offset += 3)
        }));
    }
    all
}

fn indexer_changes() -> [LayerChange; 6] {
    fn indexer(l: &mut LayerSpec) -> &mut Indexer {
        let indexer = &mut l.attention_mut().indexer;
        indexer.as_mut().expect("asked of a layer with an indexer")
    }
    [
        ("indexer", |l| l.attention_mut().indexer = None),
        ("indexer.n_heads", |l| indexer(l).n_heads += 1),
        ("indexer.d_head", |l| indexer(l).d_head += 1),
        ("indexer.block_len", |l| indexer(l).block_len += 1),
        ("indexer.n_blocks", |l| indexer(l).n_blocks -= 1),
        ("indexer.eps", |l| indexer(l).eps *= 4.0),
    ]
}

fn qk_norm_changes(a: &Attention, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    match a.qk_norm {
        QkNorm::None => vec![("qk_norm", toggle_qk_norm)],
        // Without weights there are no such norms.
        QkNorm::LayerPerHead { .. } if !in_file("blk.{l}.attn_q_norm.weight") => {
            vec![("qk_norm.presence", |l| {
                let eps = 1e-6;
                let presence = Presence::Required;
                l.attention_mut().qk_norm = QkNorm::LayerPerHead { eps, presence };
            })]
        }
        QkNorm::PerHeadIfThere { .. } if !in_file("blk.{l}.attn_q_norm.weight") => {
            vec![("qk_norm", |l| {
                l.attention_mut().qk_norm = QkNorm::PerHead { eps: 1e-6 };
            })]
        }
        _ => vec![("qk_norm", toggle_qk_norm), ("qk_norm.eps", double_qk_eps)],
    }
}

fn kv_changes(a: &Attention, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    if a.latent().is_some() {
        return latent::changes();
    }
    let KvSource::Own { v_norm, .. } = a.kv else {
        // Two layers further back is the next one that may have as many heads of the same width.
        return vec![
            ("kv.layer", |l| {
                if let KvSource::Layer(source) = &mut l.attention_mut().kv {
                    *source = source.saturating_sub(2);
                }
            }),
            ("kv", |l| l.attention_mut().kv = KvSource::PROJECTED),
        ];
    };
    let mut all: Vec<LayerChange> = vec![("kv.v_norm", |l| {
        let KvSource::Own { v_norm, .. } = &mut l.attention_mut().kv else {
            return;
        };
        *v_norm = v_norm.is_none().then_some(0.1);
    })];
    if v_norm.is_some() {
        all.push(("kv.v_norm.eps", |l| {
            if let KvSource::Own {
                v_norm: Some(eps), ..
            } = &mut l.attention_mut().kv
            {
                *eps *= 2.0;
            }
        }));
    }
    let has_v = in_file("blk.{l}.attn_v.weight") || in_file("blk.{l}.attn_qkv.weight");
    all.push(match has_v {
        true => ("kv.v_proj", |l| set_v_proj(l, Presence::Absent)),
        false => ("kv.v_proj", |l| set_v_proj(l, Presence::Required)),
    });
    all
}

fn set_v_proj(l: &mut LayerSpec, presence: Presence) {
    if let KvSource::Own { v_proj, .. } = &mut l.attention_mut().kv {
        *v_proj = presence;
    }
}

fn conv_changes() -> Vec<LayerChange> {
    vec![("n_taps", |l| short_conv(l).n_taps += 1)]
}

/// Another mixer that needs no attention beside it.
fn convolve(l: &mut LayerSpec) {
    l.mixer = Mixer::ShortConv(ShortConv { n_taps: 3 });
}

fn short_conv(l: &mut LayerSpec) -> &mut ShortConv {
    match &mut l.mixer {
        Mixer::ShortConv(conv) => conv,
        other => panic!("{other:?} is no short convolution"),
    }
}

/// Forbids tensors that are there, or demands those that are not.
fn presence_changes(in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let change = |what,
                  tensors: &[&str],
                  forbid: fn(&mut LayerSpec),
                  demand: fn(&mut LayerSpec)|
     -> LayerChange {
        (
            what,
            if tensors.iter().any(|t| in_file(t)) {
                forbid
            } else {
                demand
            },
        )
    };
    vec![
        change(
            "qkv_bias",
            &["blk.{l}.attn_q.bias", "blk.{l}.attn_qkv.bias"],
            |l| l.attention_mut().qkv_bias = Presence::Absent,
            |l| l.attention_mut().qkv_bias = Presence::Required,
        ),
        change(
            "out_bias",
            &["blk.{l}.attn_output.bias"],
            |l| l.attention_mut().out_bias = Presence::Absent,
            |l| l.attention_mut().out_bias = Presence::Required,
        ),
        change(
            "sinks",
            &["blk.{l}.attn_sinks.weight"],
            |l| l.attention_mut().sinks = Presence::Absent,
            |l| l.attention_mut().sinks = Presence::Required,
        ),
    ]
}

fn rope_changes(r: &Rope, in_file: &impl Fn(&str) -> bool) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = vec![
        ("rope.d_rope", |l| rope(l).d_rope -= 2),
        ("rope.base", |l| rope(l).base *= 1.2),
        ("rope.pairing", flip_pairing),
        ("rope.scaling", stretch),
        ("rope.magnitude", |l| rope(l).magnitude *= 1.2),
    ];
    all.push(match in_file("rope_freqs.weight") {
        true => ("rope.factors", |l| rope(l).factors = Presence::Absent),
        false => ("rope.factors", |l| rope(l).factors = Presence::Required),
    });
    match r.scaling {
        RopeScaling::Long { .. } => {
            let is_stretched = in_file("rope_factors_long.weight");
            all.retain(|(what, _)| is_stretched || *what != "rope.scaling");
            all.extend(latent::long_changes(is_stretched));
        }
        RopeScaling::Yarn(_) => all.extend([
            (
                "rope.scaling.factor",
                (|l| yarn(l).factor *= 1.5) as fn(&mut LayerSpec),
            ),
            ("rope.scaling.n_ctx_orig", |l| yarn(l).n_ctx_orig *= 3),
            ("rope.scaling.beta_fast", |l| yarn(l).beta_fast *= 1.5),
            ("rope.scaling.beta_slow", |l| yarn(l).beta_slow *= 1.5),
            ("rope.scaling.ends", |l| {
                let ends = &mut yarn(l).ends;
                *ends = if *ends == RampEnds::Whole {
                    RampEnds::Exact
                } else {
                    RampEnds::Whole
                };
            }),
        ]),
        RopeScaling::Dynamic { .. } => all.extend([
            (
                "rope.scaling.factor",
                (|l| dynamic(l, |factor, _| *factor *= 1.5)) as fn(&mut LayerSpec),
            ),
            ("rope.scaling.n_ctx_orig", |l| dynamic(l, |_, n| *n += 9)),
        ]),
        RopeScaling::Linear { .. } => all.push(("rope.scaling.factor", |l| {
            if let RopeScaling::Linear { factor } = &mut rope(l).scaling {
                *factor *= 1.5;
            }
        })),
        RopeScaling::None => {}
    }
    all
}

fn rope(l: &mut LayerSpec) -> &mut Rope {
    l.attention_mut().rope.as_mut().unwrap()
}

fn yarn(l: &mut LayerSpec) -> &mut Yarn {
    let RopeScaling::Yarn(yarn) = &mut rope(l).scaling else {
        unreachable!("asked of a YaRN rope")
    };
    yarn
}

fn clamped(l: &mut LayerSpec, change: impl FnOnce(&mut f32, &mut f32)) {
    let Activation::Clamped { alpha, limit } = &mut l.mlp_mut().activation else {
        unreachable!("asked of a clamped one")
    };
    change(alpha, limit);
}

fn dynamic(l: &mut LayerSpec, change: impl FnOnce(&mut f32, &mut usize)) {
    let RopeScaling::Dynamic { factor, n_ctx_orig } = &mut rope(l).scaling else {
        unreachable!("asked of a dynamic one")
    };
    change(factor, n_ctx_orig);
}

fn toggle_rope(l: &mut LayerSpec) {
    let plain = Rope {
        d_rope: 4,
        base: 100.0,
        pairing: Pairing::Halves,
        scaling: RopeScaling::None,
        magnitude: 1.0,
        factors: Presence::Absent,
    };
    let rope = &mut l.attention_mut().rope;
    *rope = if rope.is_some() { None } else { Some(plain) };
}

fn change_temperature(l: &mut LayerSpec) {
    let temperature = &mut l.attention_mut().temperature;
    *temperature = match temperature {
        Some(t) => Some(Temperature {
            slope: 1.5 * t.slope,
            ..*t
        }),
        None => Some(Temperature {
            slope: 0.5,
            n_ctx_orig: 10,
            offset: 0,
        }),
    };
}

fn change_temperature_by(l: &mut LayerSpec, change: fn(&mut Temperature)) {
    l.attention_mut().temperature.iter_mut().for_each(change);
}

/// The other wiring, with what norms there are.
fn rewire(l: &mut LayerSpec) {
    l.wiring = match l.wiring {
        Wiring::Sequential { pre, .. } => Wiring::Parallel {
            pre: pre[0].unwrap_or(Norm::Rms { eps: 1e-5 }),
            pre_ffn: pre[1],
        },
        Wiring::Parallel { pre, pre_ffn } => Wiring::Sequential {
            pre: [Some(pre), pre_ffn.or(Some(pre))],
            post: [None; 2],
        },
        Wiring::PostNorm { norms } => Wiring::Parallel {
            pre: norms[0],
            pre_ffn: Some(norms[1]),
        },
        Wiring::Streams => Wiring::Sequential {
            pre: [None; 2],
            post: [None; 2],
        },
    };
}

/// Doubles the epsilon of a norm that is there, or asks for one that is not.
fn change_norm(norm: &mut Option<Norm>) {
    match norm {
        Some(norm) => double_eps(norm),
        None => *norm = Some(Norm::Rms { eps: 1e-6 }),
    }
}

fn change_pre(l: &mut LayerSpec, i: usize) {
    match &mut l.wiring {
        Wiring::Sequential { pre, .. } => change_norm(&mut pre[i]),
        Wiring::Parallel { pre, .. } if i == 0 => double_eps(pre),
        Wiring::Parallel { pre_ffn, .. } => change_norm(pre_ffn),
        Wiring::PostNorm { norms } => double_eps(&mut norms[i]),
        Wiring::Streams => {}
    }
}

fn change_post(l: &mut LayerSpec, i: usize) {
    if let Wiring::Sequential { post, .. } = &mut l.wiring {
        change_norm(&mut post[i]);
    }
}

fn double_eps(norm: &mut Norm) {
    let (Norm::Rms { eps } | Norm::Layer { eps } | Norm::LayerNoBias { eps }) = norm;
    *eps *= 2.0;
}

fn toggle_qk_norm(l: &mut LayerSpec) {
    let a = l.attention_mut();
    a.qk_norm = match a.qk_norm {
        QkNorm::None => QkNorm::PerHead { eps: 1e-6 },
        QkNorm::PerHead { eps } if a.rope.is_some() => QkNorm::RotatedPerHead { eps },
        QkNorm::RotatedPerHead { eps } => QkNorm::PerHead { eps },
        QkNorm::PerHead { .. }
        | QkNorm::PerHeadIfThere { .. }
        | QkNorm::Unit { .. }
        | QkNorm::Whole { .. } => QkNorm::None,
        QkNorm::LayerPerHead { eps, .. } => QkNorm::LayerPerHead {
            eps,
            presence: Presence::Absent,
        },
    };
}

fn double_qk_eps(l: &mut LayerSpec) {
    match &mut l.attention_mut().qk_norm {
        QkNorm::None => {}
        QkNorm::PerHead { eps }
        | QkNorm::PerHeadIfThere { eps }
        | QkNorm::RotatedPerHead { eps }
        | QkNorm::LayerPerHead { eps, .. }
        | QkNorm::Unit { eps }
        | QkNorm::Whole { eps } => *eps *= 2.0,
    }
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
        _ => RopeScaling::None,
    };
}

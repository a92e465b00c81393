//! Measured costs of models in part are those of the models that are loaded in part.

use std::{num::NonZeroUsize, ops::ControlFlow, path::PathBuf};

use atta_engine::{
    Engine, LoadOptions, MeasuredStep, Omission, Reduction, ReductionCost, Sensitivity,
    SessionOptions, Threads,
};
use atta_eval::{
    Error,
    perplexity::{Baseline, Chunks, PerplexityReport, Scores, write_row},
    sensitivity::{Measurement, TrialProgress},
};

/// Seven layers, which can be computed apart.
const HOME: &str = "crates/cli/assets/home.gguf";
/// Layers that attend to keys and values of others; each has embeddings of tokens.
const SHARED: &str = "tests/golden/models/gemma4.gguf";
/// Two layers, whose experts are five.
const EXPERTS: &str = "tests/golden/models/mixtral.gguf";

const N_CTX: usize = 24;

fn options(reduction: &Reduction) -> LoadOptions {
    LoadOptions {
        threads: Threads::Count(NonZeroUsize::MIN),
        reduction: reduction.clone(),
        session: session(),
        ..LoadOptions::default()
    }
}

fn session() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(N_CTX),
        // Smaller than a chunk.
        n_batch: Some(10),
        ..SessionOptions::default()
    }
}

fn open(name: &str, reduction: &Reduction) -> Engine {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    Engine::open(&path, &options(reduction)).unwrap()
}

fn chunks(engine: &Engine) -> Chunks {
    let n_vocab = engine.spec().n_vocab as u32;
    let ids = (0..2 * N_CTX as u32).map(|i| 3 + (i * i + 7 * i) % (n_vocab - 3));
    Chunks::new(ids.collect(), N_CTX, None).unwrap()
}

fn measure(
    name: &str,
    max_layers: usize,
    progress: &mut dyn FnMut(TrialProgress) -> ControlFlow<()>,
) -> Result<Sensitivity, Error> {
    let engine = open(name, &Reduction::default());
    let measurement = Measurement {
        engine: &engine,
        chunks: &chunks(&engine),
        session: session(),
        open: &mut |reduction| Ok(open(name, reduction)),
        progress,
    };
    measurement.run(max_layers)
}

fn measured(name: &str, max_layers: usize) -> Sensitivity {
    measure(name, max_layers, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// What a model that is loaded in part costs.
fn cost_of(name: &str, reduction: &Reduction) -> ReductionCost {
    let whole = open(name, &Reduction::default());
    let part = open(name, reduction);
    let chunks = chunks(&whole);
    let mut scores = Scores::compared(&part, &chunks).unwrap();
    let mut sessions = [&whole, &part].map(|engine| engine.session(&session()).unwrap());
    let [of_whole, of_part] = &mut sessions;
    for i in 0..chunks.len() {
        let mut rows = Vec::new();
        let row = |logits: &[f32], _| write_row(logits, &mut rows).unwrap();
        let _ = chunks.evaluate(i, of_whole, || true, row).unwrap();
        let mut rows = Baseline::new(&rows[..], whole.spec().n_vocab);
        let compare = |logits: &[f32], token| {
            scores.push_compared(logits, token, rows.next_row().unwrap());
        };
        let _ = chunks.evaluate(i, of_part, || true, compare).unwrap();
    }
    let divergence = PerplexityReport::new(&scores).divergence.unwrap();
    ReductionCost {
        kld: divergence.kld.value as f32,
        ppl_ratio: divergence.ppl_ratio.value as f32,
        same_top: divergence.same_top.value as f32,
    }
}

fn without(layers: &[usize]) -> Reduction {
    Reduction {
        layers: Omission::Layers(layers.to_vec()),
        n_experts: None,
    }
}

/// Every cost in `measured` is that of a model that is loaded in part, to the last bit.
fn assert_costs(name: &str, measured: &Sensitivity) {
    for (l, kld) in measured
        .skip
        .iter()
        .enumerate()
        .filter(|(_, kld)| kld.is_finite())
    {
        assert_eq!(
            cost_of(name, &without(&[l])).kld,
            *kld,
            "{name} without layer {l}"
        );
    }
    let order: Vec<usize> = measured.layers.iter().map(|step| step.to).collect();
    for (i, step) in measured.layers.iter().enumerate() {
        let cost = cost_of(name, &without(&order[..=i]));
        assert_eq!(cost, step.cost, "{name} without {:?}", &order[..=i]);
    }
}

fn tried(measured: &Sensitivity) -> Vec<usize> {
    let all = measured.skip.iter().enumerate();
    all.filter_map(|(l, kld)| kld.is_finite().then_some(l))
        .collect()
}

#[test]
fn layers_that_are_computed_apart_cost_what_they_cost_together() {
    let measured = measured(HOME, usize::MAX);
    assert_eq!(tried(&measured), [2, 3, 4]);
    assert_eq!(measured.n_tokens, 2 * 11);
    assert!(measured.experts.is_empty());
    assert_costs(HOME, &measured);
}

#[test]
fn layers_that_others_read_are_not_tried_and_the_others_are_measured_too() {
    let measured = measured(SHARED, 1);
    let spec = open(SHARED, &Reduction::default()).spec().clone();
    let candidates: Vec<usize> = Sensitivity::candidates(&spec).collect();
    assert!(
        !candidates.is_empty() && candidates.len() < spec.layers.len() - 4,
        "{candidates:?}"
    );
    assert_eq!(tried(&measured), candidates);
    assert!(measured.layers.len() <= 1);
    assert_costs(SHARED, &measured);
}

#[test]
fn fewer_experts_are_measured() {
    let measured = measured(EXPERTS, usize::MAX);
    assert!(tried(&measured).is_empty());
    let reduction = Reduction {
        layers: Omission::Nothing,
        n_experts: Some(1),
    };
    let cost = cost_of(EXPERTS, &reduction);
    assert!(cost.kld > 0.0);
    assert_eq!(measured.experts, [MeasuredStep { to: 1, cost }]);
}

#[test]
fn the_layer_that_adds_least_is_left_out_next() {
    let measured = measured(HOME, 2);
    let least = |l: &&usize| measured.skip[**l];
    let all = tried(&measured);
    let first = all
        .iter()
        .min_by(|a, b| least(a).total_cmp(&least(b)))
        .unwrap();
    let steps: Vec<usize> = measured.layers.iter().map(|step| step.to).collect();
    assert_eq!(steps.first(), Some(first));
    assert!(steps.len() <= 2);
    if let [first, second] = steps[..] {
        for other in all.into_iter().filter(|l| ![first, second].contains(l)) {
            let cost = cost_of(HOME, &without(&[first, other]));
            assert!(cost.kld >= measured.layers[1].cost.kld, "{other}");
        }
    }
}

#[test]
fn a_measurement_that_is_cancelled_ends() {
    let mut n_trials = 0;
    let cancelled = measure(HOME, 1, &mut |trial| {
        assert_eq!((trial.round, trial.n_done, trial.n_all), (0, n_trials, 6));
        n_trials += 1;
        match n_trials {
            1..=2 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    assert_eq!(n_trials, 3);
}

#[test]
fn a_model_that_predicts_nothing_is_refused() {
    let error = measure("tests/golden/models/bert.gguf", 1, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(error.unwrap_err().to_string().contains("encoder"));
}

//! Refusals, and that they leave nothing behind: failing weights, odd specs, foreign states.

mod support;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use atta_kernels::{Kernels, Pool};
use atta_model::{
    AdapterSet, Batch, Cpu, Error, Executor, ExecutorSize, Input, KvType, Model, Output, Row,
    Share, Want,
    spec::{Activation, Attention, Ffn, KvSource, Mask, Mlp, ModelSpec, Norm, Presence, Rope},
};
use atta_store::{Budget, ChunkGuard, InMemory, ModelFiles, WeightGroup, Weights};
use support::{append, bits, cpu, forward, golden};

/// Weights that cannot be read from the `n`th group on, until they are mended.
struct Failing {
    weights: InMemory,
    left: AtomicUsize,
    is_mended: Arc<AtomicBool>,
}

impl Weights for Failing {
    fn chunk<'a>(
        &'a self,
        group: WeightGroup<'a>,
        i: usize,
    ) -> Result<ChunkGuard<'a>, atta_store::Error> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 && !self.is_mended.load(Ordering::Relaxed) {
            return Err(atta_store::Error::NotInPlan);
        }
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        self.weights.chunk(group, i)
    }

    fn files(&self) -> &ModelFiles {
        self.weights.files()
    }
}

#[test]
fn a_step_that_fails_halfway_takes_its_rows_back() {
    let g = golden("qwen2");
    let spec = g.model().spec().clone();
    let expected = bits(&forward(&g.model(), &g.tokens));
    // Embedding, four groups for each of two layers, head: ten, the first step takes them all.
    for n_units in 10..20 {
        let is_mended = Arc::new(AtomicBool::new(false));
        let failing = Model::with_source(
            spec.clone(),
            g.files(),
            &Budget::unlimited(),
            |files, plan| {
                let left = AtomicUsize::new(n_units);
                Ok::<_, Error>(Box::new(Failing {
                    weights: InMemory::new(files, plan)?,
                    left,
                    is_mended: is_mended.clone(),
                }) as _)
            },
        );
        let mut cpu = cpu(&Arc::new(failing.unwrap()), 1, KvType::F32);
        let seq = cpu.new_seq().unwrap();
        let mut batch = Batch::default();
        let mut out = Output::default();
        let mut logits = append(&mut cpu, seq, &g.tokens[..20], 64);
        g.tokens[20..]
            .iter()
            .enumerate()
            .for_each(|(i, &id)| batch.push_token(seq, 20 + i, id, Want::Logits));
        assert!(
            matches!(cpu.step(&batch, &mut out), Err(Error::Store(_))),
            "{n_units}"
        );
        assert_eq!(cpu.seqs().len(seq).unwrap(), 20);
        is_mended.store(true, Ordering::Relaxed);
        logits.extend(append(&mut cpu, seq, &g.tokens[20..], 64));
        assert!(bits(&logits) == expected, "{n_units}");
    }
}

#[test]
fn an_empty_batch_is_no_work() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 2, KvType::F16);
    cpu.step(&Batch::default(), &mut Output::default()).unwrap();
}

#[test]
#[should_panic(expected = "asked for something else")]
fn a_row_that_asked_for_logits_has_no_residual() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 1, KvType::F16);
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    let mut out = Output::default();
    batch.push_token(seq, 0, 1, Want::Logits);
    batch.push_token(seq, 1, 2, Want::Hidden);
    cpu.step(&batch, &mut out).unwrap();
    out.hidden(0);
}

#[test]
fn the_id_of_a_dropped_sequence_never_means_another() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 1, KvType::F16);
    let old = cpu.new_seq().unwrap();
    cpu.drop_seq(old).unwrap();
    let new = cpu.new_seq().unwrap();
    assert_eq!(old.index, new.index);
    assert!(matches!(cpu.seqs().len(old), Err(Error::NoSequence(id)) if id == old));
    assert!(cpu.fork(old).is_err() && cpu.truncate(old, 0).is_err() && cpu.drop_seq(old).is_err());
}

#[test]
fn rows_of_the_wrong_kind_and_executors_of_nothing_are_refused() {
    let model = golden("llama-plain").model();
    let mut cpu = cpu(&model, 1, KvType::F16);
    let seq = cpu.new_seq().unwrap();
    for input in [
        Input::Hidden(0),
        Input::Hidden(usize::MAX),
        Input::Embedding(0),
    ] {
        let batch = Batch {
            rows: vec![Row {
                seq,
                pos: 0,
                input,
                want: Want::Nothing,
                is_checkpoint: false,
                adapters: AdapterSet::EMPTY,
                segment: 0,
            }],
            ..Batch::default()
        };
        assert!(matches!(
            cpu.step(&batch, &mut Output::default()),
            Err(Error::Row { row: 0, .. })
        ));
    }
    let budget = Budget::limited(1 << 34);
    let make = |options: ExecutorSize| {
        let pool = Arc::new(atta_kernels::Pool::new(std::num::NonZeroUsize::MIN));
        atta_model::Cpu::new(
            model.clone(),
            atta_kernels::Kernels::detect(),
            pool,
            &budget,
            options,
        )
        .err()
    };
    let part = |layers: std::ops::Range<usize>, embed: bool, head: bool| {
        let part = Some(Share {
            layers,
            embed,
            head,
        });
        make(ExecutorSize {
            part,
            ..ExecutorSize::default()
        })
    };
    for refused in [
        part(0..99, true, true),
        part(1..1, false, false),
        part(1..2, true, false),
        part(0..1, true, true),
    ] {
        assert!(matches!(refused, Some(Error::Options(_))), "{refused:?}");
    }
    let default = ExecutorSize::default;
    let n_batch = make(ExecutorSize {
        n_batch: 0,
        ..default()
    });
    assert!(matches!(n_batch, Some(Error::Options(_))));
    let n_ctx = |n_ctx| make(ExecutorSize { n_ctx, ..default() });
    assert!(matches!(n_ctx(usize::MAX), Some(Error::Options(_))));
    assert!(matches!(n_ctx(1 << 30), Some(Error::Store(_))));
    assert_eq!(budget.used(), 0, "what was refused keeps nothing");
}

#[test]
fn layers_that_need_others_are_not_computed_alone() {
    let g = golden("gemma4");
    // Layer 4 reads the keys and values of layer 3; all layers read embeddings of tokens.
    for layers in [0..3, 4..7] {
        let share = Share::of_layers(g.model().spec(), layers.clone());
        let source = |files, plan| -> Result<Box<dyn Weights>, Error> {
            Ok(Box::new(InMemory::new(files, plan)?))
        };
        let spec = g.model().spec().clone();
        let part = Model::with_share(spec, share, g.files(), &Budget::unlimited(), source);
        assert_eq!(part.is_ok(), layers == (0..3), "{layers:?}");
        let size = ExecutorSize {
            part: Some(Share::of_layers(g.model().spec(), layers.clone())),
            ..ExecutorSize::default()
        };
        let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
        let budget = Budget::unlimited();
        let cpu = Cpu::new(g.model(), Kernels::detect(), pool, &budget, size);
        assert_eq!(cpu.is_ok(), layers == (0..3), "{layers:?}");
    }
}

#[test]
fn keys_and_values_are_those_of_an_earlier_layer_of_the_same_kind() {
    let g = golden("gemma4");
    let from = |source: usize| {
        let mut spec = g.model().spec().clone();
        spec.layers[4].attention_mut().kv = KvSource::Layer(source);
        spec.check().is_ok()
    };
    assert!(from(0) && from(1));
    // Of no window, itself, one that has none of its own, and one that is not there.
    for source in [2, 4, 5, 7] {
        assert!(!from(source), "{source}");
    }
}

fn attention(spec: &mut ModelSpec) -> &mut Attention {
    spec.layers[0].attention_mut()
}

fn rope(spec: &mut ModelSpec) -> &mut Rope {
    attention(spec).rope.as_mut().unwrap()
}

#[test]
fn specs_that_describe_no_model_are_refused() {
    let g = golden("llama3-rope");
    let layer_norm = Some(Norm::Layer { eps: 1e-5 });
    let changes: [&dyn Fn(&mut ModelSpec); 19] = [
        &|s| s.layers.clear(),
        &|s| s.layers = vec![s.layers[0].clone(); 5000],
        &|s| s.d_model = 0,
        &|s| s.n_vocab = usize::MAX,
        &|s| s.n_ctx_train = 0,
        &|s| attention(s).n_kv_heads = 0,
        &|s| attention(s).n_heads = 0,
        &|s| attention(s).n_kv_heads = attention(s).n_heads + 1,
        &|s| attention(s).d_head = 2048,
        &|s| attention(s).n_heads = usize::MAX,
        &|s| attention(s).mask = Mask::Window(0),
        &|s| attention(s).mask = Mask::Chunk(0),
        &|s| rope(s).d_rope = 3,
        &|s| rope(s).d_rope = 4096,
        &|s| {
            rope(s).d_rope -= 2;
            assert_ne!(rope(s).factors, Presence::Absent);
        },
        &|s| attention(s).sub_norm = layer_norm,
        &|s| s.layers[1].mlp_mut().sub_norm = layer_norm,
        &|s| {
            s.layers[1].mlp_mut().activation = Activation::Clamped {
                alpha: f32::NAN,
                limit: 1.0,
            }
        },
        &|s| {
            let activation = Activation::Clamped {
                alpha: 1.0,
                limit: 1.0,
            };
            s.layers[1].ffn = Ffn::Plain(Mlp {
                activation,
                ..s.layers[1].mlp_mut().clone()
            });
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut spec = g.model().spec().clone();
        change(&mut spec);
        assert!(
            matches!(g.with_spec(spec), Err(Error::Spec(_))),
            "change {i}"
        );
    }
}

#[test]
fn more_threads_take_little_more_memory() {
    let model = golden("qwen2").model();
    let activations = |n_threads: usize| {
        let budget = Budget::unlimited();
        let pool = Arc::new(atta_kernels::Pool::new(
            std::num::NonZeroUsize::new(n_threads).unwrap(),
        ));
        let options = ExecutorSize {
            n_ctx: 131_072,
            ..ExecutorSize::default()
        };
        let _cpu = atta_model::Cpu::new(
            model.clone(),
            atta_kernels::Kernels::detect(),
            pool,
            &budget,
            options,
        )
        .unwrap();
        budget
            .items()
            .iter()
            .find(|i| i.name == "activations")
            .unwrap()
            .bytes
    };
    let one = activations(1);
    let four = activations(4);
    // Partial results of attention: 1,024 chunks of 4 rows at the most.
    assert!(four - one < 4 << 20, "{one} and {four}");
}

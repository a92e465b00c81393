//! Draft heads, and hidden states that are tapped: against numpy, against the oracle, and against
//! the layers of a model computed alone.

mod support;

use std::{fs, path::PathBuf, sync::Arc};

use atta_model::{
    Batch, Cpu, DraftHeadFile, Error, Executor, Input, KvType, Model, Output, Share, Want, arch,
    oracle,
    spec::{JoinKind, ModelSpec, Tap},
};
use atta_store::{Budget, ModelFiles};
use support::{cpu, golden, nmse, random_file::random_file};

/// Rows with hidden states of the target, and rows with the head's own.
const N_TAPPED: usize = 8;
const N_CARRIED: usize = 2;

fn tokens() -> Vec<u32> {
    (0..N_TAPPED + N_CARRIED)
        .map(|i| (5 + 7 * i as u32) % 96)
        .collect()
}

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/draft");
    folder.join(name)
}

fn files(name: &str) -> ModelFiles {
    ModelFiles::open(&file(name)).unwrap()
}

fn read(name: &str) -> DraftHeadFile {
    let files = files(&format!("{name}.gguf"));
    match name {
        "eagle3" => DraftHeadFile::read(&files).unwrap(),
        _ => DraftHeadFile::of_model(&files).unwrap(),
    }
}

fn bind(name: &str, spec: ModelSpec) -> Result<Arc<Model>, Error> {
    let files = files(&format!("{name}.gguf"));
    let head = Model::with_spec(spec, files, &Budget::unlimited())?;
    Ok(Arc::new(match name {
        "eagle3" => head.with_embedding_of(&golden("qwen3-untied").model()),
        _ => head,
    }))
}

fn head(name: &str) -> Arc<Model> {
    bind(name, read(name).spec).unwrap()
}

/// Expected results: hidden states of the target, then logits and states of the head.
struct Expected {
    states: Vec<Vec<f32>>,
    logits: Vec<f32>,
    own: Vec<f32>,
}

fn expected(name: &str, spec: &ModelSpec) -> Expected {
    let bytes = fs::read(file(&format!("{name}.golden"))).unwrap();
    let (numbers, _) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|x| f32::from_le_bytes(*x)).collect();
    let join = spec.join.as_ref().unwrap();
    let d_states = join.taps.len() * join.d_target;
    let (states, rest) = numbers.split_at(N_TAPPED * d_states);
    let (logits, own) = rest.split_at(tokens().len() * join.n_guessed);
    Expected {
        states: states.chunks_exact(d_states).map(<[f32]>::to_vec).collect(),
        logits: logits.to_vec(),
        own: own.to_vec(),
    }
}

/// Logits and states of the forward pass, in batches of the target's rows and of one own state.
fn by_forward(model: &Arc<Model>, states: &[Vec<f32>], n_first: usize) -> oracle::Drafted {
    let mut cpu = cpu(model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let mut drafted = oracle::Drafted {
        logits: Vec::new(),
        states: Vec::new(),
    };
    let d = model.spec().d_model;
    let cuts = [0, n_first].into_iter().chain(N_TAPPED..tokens().len());
    let ends = [n_first].into_iter().chain(N_TAPPED..=tokens().len());
    for (start, end) in cuts.zip(ends) {
        let mut batch = Batch {
            taps: vec![model.spec().join.as_ref().unwrap().own_tap(1)],
            ..Batch::default()
        };
        for pos in start..end {
            let token = tokens()[pos];
            match states.get(pos) {
                Some(states) => batch.push_tapped(seq, pos, token, states, Want::Logits),
                None => {
                    let state = &drafted.states[(pos - 1) * d..];
                    batch.push_carried(seq, pos, token, state, Want::Logits);
                }
            }
        }
        let mut out = Output::default();
        cpu.step(&batch, &mut out).unwrap();
        for row in 0..batch.rows.len() {
            drafted.logits.extend(out.logits(row));
            drafted.states.extend(out.tapped(row));
        }
    }
    drafted
}

#[test]
fn heads_agree_with_numpy_and_with_the_oracle_in_any_batches() {
    for name in ["eagle3", "qwen35-mtp"] {
        let model = head(name);
        let expected = expected(name, model.spec());
        let drafted = by_forward(&model, &expected.states, 3);
        for (got, want) in [
            (&drafted.logits, &expected.logits),
            (&drafted.states, &expected.own),
        ] {
            let nmse = nmse(got, want);
            assert!(nmse <= 1e-10, "{name}: nmse {nmse:e}");
        }
        let whole = by_forward(&model, &expected.states, N_TAPPED);
        assert_eq!(whole.logits, drafted.logits, "{name}");
        must_agree(name, &model, &expected.states, &drafted);
    }
}

/// Compares the forward pass of a head, which took its own states for the last rows, with the
/// oracle.
fn must_agree(name: &str, model: &Model, states: &[Vec<f32>], drafted: &oracle::Drafted) {
    let d = model.spec().d_model;
    let own = drafted.states[(N_TAPPED - 1) * d..].chunks_exact(d);
    let own = own.take(N_CARRIED).map(<[f32]>::to_vec);
    let states: Vec<Vec<f32>> = states.iter().cloned().chain(own).collect();
    let naive = oracle::drafted(model, &tokens(), &states).unwrap();
    let nmse = nmse(&drafted.logits, &naive.logits);
    assert!(nmse <= 1e-10, "{name}: nmse {nmse:e}");
}

#[test]
fn layers_with_experts_and_with_latent_attention_agree_with_the_oracle() {
    for name in ["glm4moe-air", "deepseek3"] {
        let golden = golden(name);
        let key = format!("{}.nextn_predict_layers", golden.arch);
        let metadata = golden.metadata(&key, |w| w.set_u32(&key, 1));
        let spec = arch::lower_nextn(&metadata).unwrap();
        let n_blocks = golden.model().spec().layers.len();
        assert_eq!(spec.join.as_ref().unwrap().first_block, n_blocks - 1);
        let d = spec.d_model;
        let files = ModelFiles::from_static(name, random_file(&spec).leak()).unwrap();
        let model = Arc::new(Model::with_spec(spec, files, &Budget::unlimited()).unwrap());
        let state = |i: usize| (0..d).map(|j| ((i * d + j) as f32).sin()).collect();
        let states: Vec<Vec<f32>> = (0..N_TAPPED).map(state).collect();
        let drafted = by_forward(&model, &states, 5);
        must_agree(name, &model, &states, &drafted);
    }
}

#[test]
fn changing_any_field_of_what_a_head_reads_makes_its_golden_fail() {
    let changes: [fn(&mut ModelSpec); 6] = [
        |s| s.join.as_mut().unwrap().eps *= 3.0,
        |s| s.join.as_mut().unwrap().d_target += 2,
        |s| s.join.as_mut().unwrap().n_guessed -= 1,
        |s| s.join.as_mut().unwrap().first_block = 1,
        |s| s.join.as_mut().unwrap().taps.push(Tap::Before(0)),
        |s| {
            let join = s.join.as_mut().unwrap();
            join.kind = match join.kind {
                JoinKind::Projected => JoinKind::Beside { keeps_norm: false },
                JoinKind::Beside { keeps_norm } => JoinKind::Beside {
                    keeps_norm: !keeps_norm,
                },
            };
        },
    ];
    for name in ["eagle3", "qwen35-mtp"] {
        for (i, change) in changes.iter().enumerate() {
            let mut spec = read(name).spec;
            change(&mut spec);
            let Ok(model) = bind(name, spec) else {
                continue;
            };
            let expected = expected(name, &read(name).spec);
            let drafted = by_forward(&model, &expected.states, N_TAPPED);
            let nmse = nmse(&drafted.logits, &expected.logits);
            assert!(nmse.is_nan() || nmse > 1e-5, "{name}, change {i}: {nmse:e}");
        }
    }
}

#[test]
fn a_layer_behind_the_last_one_is_read_with_its_own_embedding_head_and_norm() {
    let spec = read("bigrams-mtp").spec;
    assert_eq!((spec.layers.len(), spec.n_nextn), (1, 0));
    let model = head("bigrams-mtp");
    let target = ModelFiles::open(&file("bigrams-mtp.gguf")).unwrap();
    let target = Arc::new(Model::load(target, &Budget::unlimited()).unwrap());
    // The token after the next one is that which follows the next one, whatever is in front.
    let states = vec![vec![0.5; spec.d_model]; 3];
    let drafted = oracle::drafted(&model, &[9, 40, 77], &states).unwrap();
    let plain = oracle::logits(&target, &[9, 40, 77]).unwrap();
    let nmse = nmse(&drafted.logits, &plain);
    assert!(nmse < 1e-6, "{nmse:e}");
}

#[test]
fn tapped_states_are_the_residuals_between_layers() {
    let golden = golden("smollm2");
    let model = golden.model();
    let n_layers = model.spec().layers.len();
    let d = model.spec().d_model;
    let mut taps: Vec<Tap> = (0..=n_layers).rev().map(Tap::Before).collect();
    taps.push(Tap::Normed);
    let mut whole = cpu(&model, 1, KvType::F32);
    let mut batch = tokens_of(&mut whole, &golden.tokens, Want::Nothing);
    batch.taps = taps;
    let mut out = Output::default();
    whole.step(&batch, &mut out).unwrap();
    for l in 1..=n_layers {
        let part = Arc::new(golden.part(Share {
            layers: 0..l,
            embed: true,
            head: false,
        }));
        let mut part = part_of(&part);
        let batch = tokens_of(&mut part, &golden.tokens, Want::Hidden);
        let mut of_part = Output::default();
        part.step(&batch, &mut of_part).unwrap();
        for row in 0..golden.tokens.len() {
            let at = (n_layers - l) * d;
            assert_eq!(out.tapped(row)[at..][..d], *of_part.hidden(row), "{l}");
        }
    }
    let normed: Vec<f32> = (0..golden.tokens.len())
        .flat_map(|row| out.tapped(row)[(n_layers + 1) * d..].to_vec())
        .collect();
    let nmse = nmse(&normed, &oracle::normed(&model, &golden.tokens).unwrap());
    assert!(nmse <= 1e-10, "{nmse:e}");
}

fn tokens_of(cpu: &mut Cpu, tokens: &[u32], want: Want) -> Batch {
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    for (pos, &id) in tokens.iter().enumerate() {
        batch.push_token(seq, pos, id, want);
    }
    batch
}

fn part_of(model: &Arc<Model>) -> Cpu {
    let size = atta_model::ExecutorSize {
        n_ctx: 64,
        n_batch: 64,
        kv: KvType::F32,
        part: Some(model.share().clone()),
        ..atta_model::ExecutorSize::default()
    };
    let pool = Arc::new(atta_kernels::Pool::new(std::num::NonZeroUsize::MIN));
    let kernels = atta_kernels::Kernels::detect();
    Cpu::new(Arc::clone(model), kernels, pool, &Budget::unlimited(), size).unwrap()
}

#[test]
fn rows_that_a_head_or_a_model_does_not_take_are_refused() {
    let head = head("eagle3");
    let mut cpu = cpu(&head, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let mut out = Output::default();
    let mut plain = Batch::default();
    plain.push_token(seq, 0, 5, Want::Logits);
    assert!(matches!(cpu.step(&plain, &mut out), Err(Error::Row { .. })));
    let mut mixed = Batch::default();
    mixed.push_tapped(seq, 0, 5, &[0.1; 120], Want::Nothing);
    mixed.push_carried(seq, 1, 6, &[0.1; 40], Want::Nothing);
    assert!(matches!(
        cpu.step(&mixed, &mut out),
        Err(Error::Row { row: 1, .. })
    ));
    let mut short = Batch::default();
    short.push_tapped(seq, 0, 5, &[0.1; 120], Want::Nothing);
    short.hidden.pop();
    assert!(matches!(cpu.step(&short, &mut out), Err(Error::Row { .. })));
    let mut unknown = Batch::default();
    unknown.push_carried(seq, 0, 96, &[0.1; 40], Want::Nothing);
    assert!(matches!(
        cpu.step(&unknown, &mut out),
        Err(Error::Token { .. })
    ));
    // A model that is no head.
    let model = golden("qwen3-untied").model();
    let mut cpu = support::cpu(&model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    let mut joined = Batch::default();
    joined.push_carried(seq, 0, 5, &[0.1; 40], Want::Nothing);
    assert!(matches!(joined.rows[0].input, Input::Carried { .. }));
    assert!(matches!(
        cpu.step(&joined, &mut out),
        Err(Error::Row { .. })
    ));
    let mut tapped = tokens_of(&mut cpu, &[1], Want::Nothing);
    tapped.rows[0].seq = seq;
    tapped.taps = vec![Tap::Before(3)];
    assert!(matches!(
        cpu.step(&tapped, &mut out),
        Err(Error::Options(_))
    ));
}

#[test]
fn a_head_of_another_model_is_refused_by_what_differs() {
    let head = read("eagle3");
    assert!(head.check(golden("qwen3-untied").model().spec()).is_ok());
    let error = head.check(golden("qwen35").model().spec()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("its hidden states are 40, the model's 32"),
        "{error}"
    );
    let mut shallow = golden("qwen3-untied").model().spec().clone();
    shallow.layers.truncate(1);
    let error = head.check(&shallow).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("enters layer 2, the model has 1"),
        "{error}"
    );
    // A model without a layer to predict with, and a file that is no head.
    let plain = golden("qwen3-untied");
    assert!(matches!(
        DraftHeadFile::of_model(&plain.files()),
        Err(Error::NoDraftHead)
    ));
    let error = DraftHeadFile::read(&plain.files()).unwrap_err();
    assert!(
        matches!(error, Error::UnknownArchitecture { .. }),
        "{error}"
    );
}

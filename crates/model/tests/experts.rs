//! Mixtures of experts: who is asked for which expert, and files that lie about theirs.

mod support;

use std::sync::{Arc, Mutex};

use atta_formats::{TensorType, Value, Writer};
use atta_model::{
    Batch, Error, Executor, ExecutorSize, KvType, Model, Output, Want,
    spec::{Activation, ExpertGroups, Ffn, Gating, GroupScore, Moe, Norm, Presence},
};
use atta_store::{Budget, ChunkGuard, Extent, InMemory, ModelFiles, WeightGroup, Weights};
use support::{Golden, append, bits, cpu, cpu_with, forward, golden};

const MODELS: [&str; 7] = [
    "mixtral",
    "qwen2moe",
    "qwen2moe-old",
    "qwen3moe",
    "gpt-oss",
    "granitemoe-shared",
    "phimoe",
];

/// The experts asked for at once, and their layer.
type Request = (usize, Vec<u32>);

/// Weights that write down which experts they are asked for, and that cannot be read once `left`
/// groups were.
struct Watched {
    weights: InMemory,
    state: Arc<Mutex<State>>,
}

struct State {
    requests: Vec<Request>,
    left: usize,
}

impl Weights for Watched {
    fn chunk<'a>(
        &'a self,
        group: WeightGroup<'a>,
        i: usize,
    ) -> Result<ChunkGuard<'a>, atta_store::Error> {
        let mut state = self.state.lock().unwrap();
        state.left = state
            .left
            .checked_sub(1)
            .ok_or(atta_store::Error::NotInPlan)?;
        if let WeightGroup::Experts(l, ids) = &group {
            state.requests.push((*l, ids.to_vec()));
        }
        self.weights.chunk(group, i)
    }

    fn files(&self) -> &ModelFiles {
        self.weights.files()
    }
}

fn watched(g: &Golden) -> (Arc<Model>, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(State {
        requests: Vec::new(),
        left: usize::MAX,
    }));
    let spec = g.model().spec().clone();
    let model = Model::with_source(spec, g.files(), &Budget::unlimited(), |files, plan| {
        Ok::<_, Error>(Box::new(Watched {
            weights: InMemory::new(files, plan)?,
            state: state.clone(),
        }) as _)
    });
    (Arc::new(model.unwrap()), state)
}

fn moe(model: &Model, l: usize) -> Moe {
    model.spec().layers[l].moe().unwrap().clone()
}

#[test]
fn each_expert_is_asked_for_once_per_batch_and_few_at_a_time() {
    for g in MODELS.map(golden) {
        let (model, state) = watched(&g);
        forward(&model, &g.tokens);
        let requests = std::mem::take(&mut state.lock().unwrap().requests);
        for l in 0..model.spec().layers.len() {
            let groups: Vec<_> = requests
                .iter()
                .filter(|(layer, _)| *layer == l)
                .map(|(_, ids)| ids)
                .collect();
            let mut all = groups
                .iter()
                .copied()
                .flatten()
                .copied()
                .collect::<Vec<_>>();
            let moe = moe(&model, l);
            let n_asked = all.len();
            all.dedup();
            assert!(
                all.is_sorted() && all.len() == n_asked,
                "{}: {groups:?}",
                g.name
            );
            assert_eq!(
                all.len(),
                moe.n_experts,
                "{}: {} tokens need all of them",
                g.name,
                g.tokens.len()
            );
            assert!(
                groups.iter().all(|ids| ids.len() <= moe.n_used),
                "{}: {groups:?}",
                g.name
            );
        }
    }
}

#[test]
fn a_token_alone_asks_for_its_own_experts_and_no_others() {
    for g in MODELS.map(golden) {
        let (model, state) = watched(&g);
        let mut cpu = cpu(&model, 2, KvType::F16);
        let seq = cpu.new_seq().unwrap();
        for &id in &g.tokens {
            state.lock().unwrap().requests.clear();
            append(&mut cpu, seq, &[id], 1);
            let state = state.lock().unwrap();
            assert_eq!(state.requests.len(), model.spec().layers.len());
            assert!(
                state
                    .requests
                    .iter()
                    .all(|(l, ids)| ids.len() == moe(&model, *l).n_used),
                "{:?}",
                state.requests
            );
        }
    }
}

#[test]
fn an_executor_of_single_rows_gives_the_same_bits() {
    for g in MODELS.map(golden) {
        let model = g.model();
        let options = ExecutorSize {
            n_ctx: 128,
            n_seqs: 1,
            n_batch: 1,
            kv: KvType::F32,
            ..ExecutorSize::default()
        };
        let mut cpu = cpu_with(&model, 2, options);
        let seq = cpu.new_seq().unwrap();
        let got = append(&mut cpu, seq, &g.tokens, 1);
        assert!(
            bits(&got) == bits(&forward(&model, &g.tokens)),
            "{}",
            g.name
        );
    }
}

#[test]
fn a_step_whose_experts_cannot_be_read_takes_its_rows_back() {
    let g = golden("qwen2moe");
    let expected = bits(&forward(&g.model(), &g.tokens));
    // The embedding in two portions; in each of two layers two groups of attention, router, two of
    // the shared expert, two groups of experts; head.
    for n_units in 0..17 {
        let (model, state) = watched(&g);
        let mut cpu = cpu(&model, 1, KvType::F32);
        let seq = cpu.new_seq().unwrap();
        let mut batch = Batch::default();
        let mut out = Output::default();
        g.tokens
            .iter()
            .enumerate()
            .for_each(|(pos, &id)| batch.push_token(seq, pos, id, Want::Logits));
        state.lock().unwrap().left = n_units;
        assert!(
            matches!(cpu.step(&batch, &mut out), Err(Error::Store(_))),
            "{n_units}"
        );
        assert_eq!(cpu.seqs().len(seq).unwrap(), 0);
        state.lock().unwrap().left = 17;
        assert!(
            bits(&append(&mut cpu, seq, &g.tokens, 128)) == expected,
            "{n_units}"
        );
    }
}

#[test]
fn a_token_costs_the_experts_that_it_goes_to() {
    for g in MODELS.map(golden) {
        let model = g.model();
        let files = g.files();
        let is_matrix =
            |t: &&atta_formats::TensorInfo| t.shape.dims().len() > 1 && !t.name.ends_with(".bias");
        let tensors = files.directory().tensors().iter().filter(is_matrix);
        let moe = moe(&model, 0);
        let mut macs = tensors
            .map(|t| match t.name.contains("_exps") {
                true => t.shape.n_elements() / moe.n_experts as u64 * moe.n_used as u64,
                false => t.shape.n_elements(),
            })
            .sum::<u64>();
        if files.directory().tensor("output.weight").is_some() {
            macs -= files
                .directory()
                .tensor("token_embd.weight")
                .unwrap()
                .shape
                .n_elements();
        }
        // The gate of the shared expert is a matrix of one row, stored as a vector.
        let gate = moe.shared.filter(|shared| shared.is_gated);
        macs += gate.map_or(0, |_| {
            (model.spec().layers.len() * model.spec().d_model) as u64
        });
        assert_eq!(model.matmul_cost().macs, macs, "{}", g.name);
        assert_eq!(model.matmul_cost().bytes, 4 * macs, "{}", g.name);
    }
}

fn groups(n_groups: usize, n_used: usize, score: GroupScore) -> Option<ExpertGroups> {
    Some(ExpertGroups {
        n_groups,
        n_used,
        score,
    })
}

#[test]
fn specs_of_impossible_experts_are_refused() {
    let g = golden("qwen2moe");
    let changes: [fn(&mut Moe); 13] = [
        |m| m.n_experts = 0,
        |m| m.n_experts = usize::MAX,
        |m| m.n_used = 0,
        |m| m.n_used = m.n_experts + 1,
        |m| (m.n_experts, m.n_used) = (1 << 24, 1 << 24),
        |m| m.expert.d_ff = 0,
        |m| m.expert.sub_norm = Some(Norm::Rms { eps: 1e-5 }),
        |m| {
            m.expert.activation = Activation::Clamped {
                alpha: 1.0,
                limit: 0.0,
            }
        },
        |m| m.shared.as_mut().unwrap().mlp.d_ff = 0,
        |m| m.shared.as_mut().unwrap().mlp.bias = Presence::Optional,
        |m| m.gating = Gating::SparseMixer { tolerance: 0.0 },
        |m| m.groups = groups(4, 1, GroupScore::Best),
        |m| m.groups = groups(6, 6, GroupScore::BestTwo),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut spec = g.model().spec().clone();
        let Ffn::Moe(moe) = &mut spec.layers[1].ffn else {
            unreachable!()
        };
        change(moe);
        assert!(
            matches!(g.with_spec(spec), Err(Error::Spec(_))),
            "change {i}"
        );
    }
}

/// A tensor of a file, in f32.
struct Tensor {
    name: String,
    dims: Vec<u64>,
    data: Vec<u8>,
}

/// The file of a golden with other metadata (`None`: the key is left out) and other tensors.
fn rewritten(
    g: &Golden,
    keys: &[(&str, Option<Value<'_>>)],
    change: impl FnOnce(&mut Vec<Tensor>),
) -> Result<Arc<Model>, Error> {
    let files = g.files();
    let tensor = |t: &atta_formats::TensorInfo| {
        let data = files
            .bytes(Extent {
                shard: t.shard,
                offset: t.offset,
                bytes: t.n_bytes,
            })
            .unwrap()
            .to_vec();
        Tensor {
            name: t.name.clone(),
            dims: t.shape.dims().to_vec(),
            data,
        }
    };
    let mut tensors: Vec<Tensor> = files.directory().tensors().iter().map(tensor).collect();
    change(&mut tensors);
    let mut w = Writer::new();
    let is_kept = |key: &str| keys.iter().all(|(changed, _)| *changed != key);
    files
        .directory()
        .metadata()
        .iter()
        .filter(|(key, _)| is_kept(key))
        .for_each(|(key, value)| w.set_value(key, value));
    keys.iter()
        .filter_map(|(key, value)| Some((key, (*value)?)))
        .for_each(|(key, value)| w.set_value(key, value));
    tensors
        .iter()
        .for_each(|t| w.add_tensor(&t.name, &t.dims, TensorType::F32).unwrap());
    let layout = w.finish().unwrap();
    let mut bytes = layout.header;
    for (place, tensor) in layout.tensors.iter().zip(&tensors) {
        bytes.resize(place.offset as usize, 0);
        bytes.extend(&tensor.data);
    }
    bytes.resize(layout.file_bytes as usize, 0);
    let budget = Budget::unlimited();
    let files = ModelFiles::from_static("rewritten", bytes.leak()).unwrap();
    Model::load(files, &budget).map(Arc::new)
}

/// The error of a file with one key changed.
fn complaint(name: &str, key: &str, value: Option<Value<'_>>) -> String {
    rewritten(&golden(name), &[(key, value)], |_| ())
        .err()
        .map_or_else(|| "accepted".to_owned(), |e| e.to_string())
}

#[test]
fn a_file_rewritten_as_it_was_is_the_same_model() {
    let g = golden("qwen2moe");
    let model = rewritten(&g, &[], |_| ()).unwrap();
    assert!(bits(&forward(&model, &g.tokens)) == bits(&forward(&g.model(), &g.tokens)));
}

/// Impossible metadata: a tiny model, a key, its value (`-`: none), and on the next line how the
/// error begins.
const LIES: &str = "\
mixtral | llama.expert_count | 0
    tensor blk.0.ffn_gate.weight [20, 36] is missing
mixtral | llama.expert_count | -
    tensor blk.0.ffn_gate.weight [20, 36] is missing
mixtral | llama.expert_count | 4
    tensor blk.0.ffn_gate_inp.weight: expected [4, 36], got [5, 36]
mixtral | llama.expert_count | 4294967295
    metadata key llama.expert_count is 4294967295
mixtral | llama.expert_used_count | 0
    metadata key llama.expert_used_count is 0
mixtral | llama.expert_used_count | -
    metadata key llama.expert_used_count is missing
mixtral | llama.expert_used_count | 6
    unsupported model: layer 0: 6 of 5 experts in use
mixtral | llama.expert_feed_forward_length | 21
    tensor blk.0.ffn_gate_exps.weight: expected [5, 21, 36]
mixtral | llama.expert_weights_scale | 0.0
    metadata key llama.expert_weights_scale is 0
mixtral | llama.expert_weights_scale | NaN
    metadata key llama.expert_weights_scale is NaN
mixtral | llama.expert_gating_func | 4
    unsupported model: llama.expert_gating_func is 4
qwen2moe | qwen2moe.expert_count | 0
    metadata key qwen2moe.expert_count is 0, expected 1 to
qwen2moe | qwen2moe.expert_count | -
    metadata key qwen2moe.expert_count is missing
qwen2moe | qwen2moe.expert_used_count | 7
    unsupported model: layer 0: 7 of 6 experts in use
qwen2moe | qwen2moe.expert_shared_feed_forward_length | 0
    metadata key qwen2moe.expert_shared_feed
qwen2moe-old | qwen2moe.feed_forward_length | 3
    tensor blk.0.ffn_gate_exps.weight: expected [7, 1, 32]
qwen3moe | qwen3moe.expert_count | 0
    metadata key qwen3moe.expert_count is 0
qwen3moe | qwen3moe.expert_used_count | 9
    unsupported model: layer 0: 9 of 8 experts in use
qwen3moe | qwen3moe.expert_group_count | 4
    unsupported model: qwen3moe.expert_group_used_count is 0
glm4moe | glm4moe.expert_group_count | 3
    unsupported model: layer 1: 8 experts in 3 groups
glm4moe | glm4moe.expert_group_count | 8
    unsupported model: layer 1: 3 experts of 2 groups of 1
glm4moe | glm4moe.expert_group_count | 4294967295
    metadata key glm4moe.expert_group_count is 4294967295
glm4moe | glm4moe.expert_group_used_count | 1
    unsupported model: layer 1: 3 experts of 1 groups of 2
glm4moe | glm4moe.expert_group_used_count | 5
    unsupported model: glm4moe.expert_group_used_count is 5
glm4moe | glm4moe.expert_shared_count | 3
    tensor blk.1.ffn_gate_shexp.weight: expected [36, 32], got [24, 32]
glm4moe | glm4moe.expert_shared_count | 16777216
    unsupported model: layer 1: a shared d_ff of 201326592
glm4moe | glm4moe.leading_dense_block_count | 2
    tensor blk.1.ffn_gate.weight [44, 32] is missing
qwen3moe | qwen3moe.leading_dense_block_count | 1
    unsupported model: qwen3moe.leading_dense_block
ernie4_5-moe | ernie4_5-moe.interleave_moe_layer_step | 0
    metadata key ernie4_5-moe.interleave_moe_layer_step is 0
ernie4_5-moe | ernie4_5-moe.interleave_moe_layer_step | 3
    tensor blk.2.ffn_gate_inp.weight [6, 32] is missing
ernie4_5-moe | ernie4_5-moe.leading_dense_block_count | 4294967295
    tensor blk.3.ffn_gate.weight [44, 32] is missing
granitemoe-shared | granitemoe.expert_shared_feed_forward_length | -
    tensor blk.0.ffn_gate_shexp.weight is in the file
granitemoe | granitemoe.expert_shared_count | 1
    tensor blk.0.ffn_gate_shexp.weight [12, 32] is missing
gpt-oss | gpt-oss.expert_count | 0
    metadata key gpt-oss.expert_count is 0
gpt-oss | gpt-oss.expert_count | 4
    tensor blk.0.ffn_gate_inp.weight: expected [4, 32], got [5, 32]
gpt-oss | gpt-oss.expert_used_count | 6
    unsupported model: layer 0: 6 of 5 experts in use
gpt-oss | gpt-oss.expert_gating_func | 4
    unsupported model: gpt-oss.expert_gating_func is 4
gpt-oss | gpt-oss.attention.sliding_window | -
    metadata key gpt-oss.attention.sliding_window is missing
qwen3 | qwen3.expert_count | 8
    unsupported model: qwen3.expert_count is 8
qwen2 | qwen2.expert_count | 8
    unsupported model: qwen2.expert_count is 8
llama-plain | llama.expert_count | 8
    metadata key llama.expert_used_count is missing";

/// The value of a key in [`LIES`].
fn lie(text: &str) -> Option<Value<'static>> {
    match text {
        "-" => None,
        _ if text.contains(['.', 'N']) => Some(Value::F32(text.parse().unwrap())),
        _ => Some(Value::U32(text.parse().unwrap())),
    }
}

#[test]
fn metadata_that_lies_about_experts_is_refused() {
    let lines: Vec<&str> = LIES.lines().map(str::trim).collect();
    for case in lines.chunks(2) {
        let mut fields = case[0].split(" | ");
        let mut field = || fields.next().unwrap();
        let name = field();
        let key = field();
        let value = field();
        let got = complaint(name, key, lie(value));
        assert!(got.starts_with(case[1]), "{name}: {key} {value}: {got}");
    }
}

#[test]
fn weights_of_experts_are_normalized_and_scaled_as_the_metadata_says() {
    let g = golden("qwen3moe");
    let spec = |key, value| {
        rewritten(&g, &[(key, Some(value))], |_| ())
            .unwrap()
            .spec()
            .layers[0]
            .moe()
            .unwrap()
            .clone()
    };
    assert!(!spec("qwen3moe.expert_weights_norm", Value::Bool(false)).renormalize);
    assert_eq!(
        spec("qwen3moe.expert_weights_scale", Value::F32(2.5)).weights_scale,
        2.5
    );
    assert!(
        complaint(
            "qwen3moe",
            "qwen3moe.expert_weights_norm",
            Some(Value::U32(2))
        )
        .contains("expert_weights_norm")
    );
}

#[test]
fn expert_tensors_that_are_missing_left_over_or_misshapen_are_refused() {
    let change =
        |name: &str, change: fn(&mut Vec<Tensor>)| rewritten(&golden(name), &[], change).err();
    fn find<'a>(tensors: &'a mut [Tensor], name: &str) -> &'a mut Tensor {
        tensors.iter_mut().find(|t| t.name == name).unwrap()
    }
    let missing = change("mixtral", |t| {
        t.retain(|t| t.name != "blk.1.ffn_up_exps.weight")
    });
    assert!(matches!(missing, Some(Error::MissingTensor { name, .. })
            if name == "blk.1.ffn_up_exps.weight"));
    let missing = change("qwen2moe", |t| {
        t.retain(|t| t.name != "blk.0.ffn_gate_inp_shexp.weight")
    });
    assert!(matches!(missing, Some(Error::MissingTensor { .. })));
    let left_over = change("qwen3moe", |t| {
        t.push(Tensor {
            name: "blk.0.ffn_gate_inp.bias".into(),
            dims: vec![8],
            data: vec![0; 32],
        });
    });
    assert!(
        matches!(left_over, Some(Error::UnusedTensor(name)) if name == "blk.0.ffn_gate_inp.bias")
    );
    let turned = change("mixtral", |t| {
        find(t, "blk.0.ffn_down_exps.weight").dims = vec![5, 20, 36]
    });
    assert!(matches!(turned, Some(Error::Shape { .. })));
    let flat = change("mixtral", |t| {
        find(t, "blk.0.ffn_gate_exps.weight").dims = vec![100, 36]
    });
    assert!(matches!(flat, Some(Error::Shape { expected, .. }) if expected == [5, 20, 36]));
    let as_a_matrix = change("qwen2moe", |t| {
        find(t, "blk.0.ffn_gate_inp_shexp.weight").dims = vec![1, 40]
    });
    assert!(as_a_matrix.is_none(), "one row may be written either way");
}

#[test]
fn a_router_of_no_numbers_gives_no_numbers_and_no_panic() {
    for g in ["qwen3moe", "phimoe"].map(golden) {
        let model = rewritten(&g, &[], |tensors| {
            for t in tensors
                .iter_mut()
                .filter(|t| t.name.ends_with("ffn_gate_inp.weight"))
            {
                t.data = f32::NAN.to_le_bytes().repeat(t.data.len() / 4);
            }
        });
        let logits = forward(&model.unwrap(), &g.tokens);
        assert!(logits.iter().all(|z| z.is_nan()), "{}", g.name);
    }
}

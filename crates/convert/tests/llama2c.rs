//! llama2.c and LEAP files, compared byte for byte with those of `tests/oracles/llama2c_golden.py`,
//! and round trips.

use std::ops::ControlFlow;
use std::{path::PathBuf, sync::Arc};

use atta_convert::{
    Checkpoint, Error, MappedRows, RowSource, Tensor,
    llama2c::{self, LeapFormat, Report},
};
use atta_formats::{Gguf, SharedBytes, TensorType, Writer};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/llama2c")
        .join(name)
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn open(name: &str) -> Checkpoint {
    llama2c::open(&path(name), None).unwrap()
}

/// The tensors in the order of the script.
const NAMES: [&str; 12] = [
    "token_embd.weight",
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_down.weight",
    "ffn_up.weight",
    "output_norm.weight",
    "output.weight",
];

/// The weights of the script.
fn weights(number: u64, n: usize) -> Vec<f32> {
    const MASK: u64 = 0xffff_ffff;
    let weight = |i: u64| {
        let mut h = (i * 2_654_435_761 + number * 40503) & MASK;
        h ^= h >> 15;
        h = (h * 2_246_822_519) & MASK;
        h ^= h >> 13;
        ((h >> 8) as i64 - (1 << 23)) as f32 / (1 << 23) as f32
    };
    (0..n as u64).map(weight).collect()
}

fn expected(tensor: &Tensor) -> Vec<f32> {
    let (layer, name) = match tensor.name.strip_prefix("blk.") {
        Some(rest) => rest
            .split_once('.')
            .map(|(l, name)| (l.parse().unwrap(), name))
            .unwrap(),
        None => (0, &*tensor.name),
    };
    let k = NAMES.iter().position(|n| *n == name).unwrap() as u64;
    weights(100 * layer + k, (tensor.n_rows() * tensor.d_row()) as usize)
}

fn read(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; (tensor.n_rows() * tensor.d_row()) as usize];
    tensor.rows.read(0, &mut out).unwrap();
    out
}

/// The model file, its vocabulary, and the report.
fn written(checkpoint: &Checkpoint, to: LeapFormat) -> (Vec<u8>, Vec<u8>, Report) {
    let mut model = Vec::new();
    let mut tokenizer = Vec::new();
    let mut last = (0, 0);
    let report = llama2c::write(
        checkpoint,
        to,
        &mut model,
        &mut tokenizer,
        &mut |done, all| {
            last = (done, all);
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert_eq!(last, (model.len() as u64, model.len() as u64));
    (model, tokenizer, report)
}

/// A checkpoint of the same sizes with unrounded weights.
fn exact(name: &str) -> Checkpoint {
    struct Exact(Vec<f32>, usize);
    impl RowSource for Exact {
        fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
            out.copy_from_slice(&self.0[first as usize * self.1..][..out.len()]);
            Ok(())
        }
    }
    let mut checkpoint = open(name);
    for tensor in &mut checkpoint.tensors {
        tensor.rows = Box::new(Exact(expected(tensor), tensor.d_row() as usize));
    }
    checkpoint
}

#[test]
fn versions_0_and_1_are_read_to_the_bit() {
    for name in ["small-v0.bin", "small-v0-tied.bin", "small-v1.bin"] {
        let checkpoint = open(name);
        let tied = name.contains("tied");
        assert_eq!(
            checkpoint.tensors.len(),
            2 + 2 * 9 + usize::from(!tied),
            "{name}"
        );
        for tensor in &checkpoint.tensors {
            assert_eq!(read(tensor), expected(tensor), "{name}: {}", tensor.name);
            assert_eq!(tensor.ty, TensorType::F32);
        }
    }
}

#[test]
fn the_metadata_are_those_of_llama() {
    let layout = open("small-v1.bin").metadata.finish().unwrap();
    let m = Gguf::parse(Arc::new(layout.header), layout.file_bytes)
        .unwrap()
        .metadata;
    let counts = [
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "context_length",
        "rope.dimension_count",
    ];
    let counts = counts.map(|key| m.u32(&format!("llama.{key}")).unwrap().unwrap());
    assert_eq!(counts, [8, 12, 2, 6, 4]);
    assert_eq!(m.f32("llama.rope.freq_base"), Ok(Some(10000.0)));
    let tokens = m.strs("tokenizer.ggml.tokens").unwrap().unwrap();
    let token = |id| str::from_utf8(tokens.get(id).unwrap()).unwrap();
    assert_eq!(
        [0, 1, 2, 3, 259, 260].map(token),
        ["<unk>", "<s>", "</s>", "<0x00>", "▁t", "▁▁é"]
    );
    let kinds = m.i32s("tokenizer.ggml.token_type").unwrap().unwrap();
    assert_eq!(
        [0, 1, 2, 3, 258, 259].map(|id| kinds.get(id).unwrap()),
        [2, 3, 3, 6, 6, 1]
    );
    assert_eq!(
        m.f32s("tokenizer.ggml.scores").unwrap().unwrap().get(260),
        Some(-1.5)
    );
}

#[test]
fn version_2_is_read_within_half_a_code() {
    for (name, group, ty) in [
        ("wide-v2.bin", 64, TensorType::Q8_0),
        ("narrow-v2.bin", 32, TensorType::Q8_0),
    ] {
        for tensor in open(name)
            .tensors
            .iter()
            .filter(|tensor| tensor.dims.len() == 2)
        {
            assert_eq!(tensor.ty, ty);
            let got = read(tensor);
            let want = expected(tensor);
            for (got, want) in got.chunks(group).zip(want.chunks(group)) {
                let half = want.iter().fold(0.0f32, |max, w| max.max(w.abs())) / 254.0 * 1.0001;
                assert!(
                    got.iter()
                        .zip(want)
                        .all(|(got, want)| (got - want).abs() <= half),
                    "{name}: {}",
                    tensor.name
                );
            }
        }
    }
}

#[test]
fn what_is_written_is_what_the_script_wrote() {
    let from_v0 = open("small-v0.bin");
    assert!(written(&from_v0, LeapFormat::F32).0 == golden("small-v1.bin"));
    for (name, group) in [("wide-v2.bin", 64), ("narrow-v2.bin", 32)] {
        let (model, tokenizer, report) = written(&exact(name), LeapFormat::Int8 { group_size: 64 });
        assert!(model == golden(name), "{name}");
        assert!(tokenizer == golden("tokenizer.bin"));
        assert_eq!((report.group_size, report.dropped.len()), (Some(group), 0));
    }
}

#[test]
fn int8_says_what_it_loses() {
    let report = written(&exact("wide-v2.bin"), LeapFormat::Int8 { group_size: 64 }).2;
    assert_eq!(report.rounding_errors.len(), 8);
    // Uniform weights from -1 to 1: steps of 1/127, errors of a quarter step on average, half a
    // step at most.
    for (kind, loss) in report.rounding_errors {
        assert!(
            (0.0035..0.0045).contains(&loss.mean()),
            "{kind}: {}",
            loss.mean()
        );
        assert!(
            (0.007..0.009).contains(&loss.max()),
            "{kind}: {}",
            loss.max()
        );
    }
}

#[test]
fn a_gguf_file_on_the_way_changes_nothing() {
    for name in ["small-v1.bin", "narrow-v2.bin"] {
        let (direct, ..) = written(&open(name), LeapFormat::F32);
        let (through, tokenizer, report) = written(&through_gguf(open(name)), LeapFormat::F32);
        assert!(direct == through && (name != "small-v1.bin" || direct == golden(name)));
        assert!(tokenizer == golden("tokenizer.bin") && report.rounding_errors.is_empty());
    }
}

/// A checkpoint after a round trip through an F32 GGUF file.
fn through_gguf(checkpoint: Checkpoint) -> Checkpoint {
    let mut writer = checkpoint.metadata.clone();
    for tensor in &checkpoint.tensors {
        writer
            .add_tensor(&tensor.name, &tensor.dims, TensorType::F32)
            .unwrap();
    }
    let layout = writer.finish().unwrap();
    let mut file = layout.header.clone();
    file.resize(layout.file_bytes as usize, 0);
    for (tensor, place) in checkpoint.tensors.iter().zip(&layout.tensors) {
        let bytes: Vec<u8> = read(tensor).iter().flat_map(|w| w.to_le_bytes()).collect();
        file[place.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let file: SharedBytes = Arc::new(file);
    let gguf = Gguf::parse(file.clone(), layout.file_bytes).unwrap();
    let mut metadata = Writer::new();
    gguf.metadata
        .iter()
        .for_each(|(key, value)| metadata.set_value(key, value));
    let tensors = gguf.tensors.iter().map(|t| {
        let dims = t.shape.dims().to_vec();
        let rows = Box::new(MappedRows::new(file.clone(), t.offset, &dims, t.ty).unwrap());
        Tensor {
            name: t.name.clone(),
            dims,
            ty: t.ty,
            rows,
        }
    });
    Checkpoint {
        metadata,
        tensors: tensors.collect(),
        files: Vec::new(),
    }
}

#[test]
fn int8_that_is_written_again_keeps_its_codes() {
    let first = open("narrow-v2.bin");
    let (model, ..) = written(&first, LeapFormat::Int8 { group_size: 64 });
    let again = llama2c::parse(
        &path("again"),
        Arc::new(model),
        &path("t"),
        &golden("tokenizer.bin"),
    )
    .unwrap();
    for (a, b) in first.tensors.iter().zip(&again.tensors) {
        let close = |(a, b): (f32, f32)| (a - b).abs() <= 2.0 * f32::EPSILON * a.abs();
        assert!(read(a).into_iter().zip(read(b)).all(close), "{}", a.name);
    }
}

/// The error of writing a checkpoint.
fn refusal(checkpoint: &Checkpoint, to: LeapFormat) -> String {
    let nothing = &mut |_, _| ControlFlow::Continue(());
    llama2c::write(checkpoint, to, &mut Vec::new(), &mut Vec::new(), nothing)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_model_that_llama2c_would_compute_otherwise_is_refused() {
    type Change<'a> = &'a dyn Fn(&mut Writer);
    let changed = |change: Change<'_>| {
        let mut checkpoint = open("small-v1.bin");
        change(&mut checkpoint.metadata);
        refusal(&checkpoint, LeapFormat::F32)
    };
    let cases: [(Change<'_>, &str); 10] = [
        (
            &|m| m.set_f32("llama.rope.freq_base", 5e5),
            "its rope has a base of 500000, there it is 10000",
        ),
        (
            &|m| m.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-6),
            "epsilon of 1e-6, there it is 1e-5",
        ),
        (
            &|m| m.set_f32("llama.rope.scaling.factor", 4.0),
            "its rope is scaled",
        ),
        (
            &|m| m.set_u32("llama.rope.dimension_count", 2),
            "only 2 elements of a head are rotated",
        ),
        (
            &|m| m.set_u32("llama.attention.key_length", 8),
            "its heads are 8 wide, there they are 4",
        ),
        (
            &|m| m.set_f32("llama.attention.scale", 0.25),
            "its attention is another",
        ),
        (
            &|m| m.set_str("tokenizer.ggml.model", "gpt2"),
            "its tokens are merged as gpt2",
        ),
        (
            &|m| m.set_u32("tokenizer.ggml.bos_token_id", 5),
            "tokenizer.ggml.bos_token_id is 5, in these programs it is 1",
        ),
        (
            &|m| m.set_f32s("tokenizer.ggml.scores", &[0.0]),
            "it has 1 scores of 261 tokens",
        ),
        (&|m| m.set_u32("llama.attention.head_count", 3), "3 heads"),
    ];
    for (change, why) in cases {
        let got = changed(change);
        assert!(got.contains(why), "{got:?} does not say {why:?}");
    }
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    struct Bad(f32);
    impl RowSource for Bad {
        fn read(&self, _: u64, out: &mut [f32]) -> Result<(), Error> {
            out.fill(1.0);
            out[out.len() - 1] = self.0;
            Ok(())
        }
    }
    let int8 = LeapFormat::Int8 { group_size: 64 };
    let norms = ("wide-v2.bin", "output_norm.weight", int8);
    for (file, name, to) in [
        ("small-v1.bin", "blk.1.ffn_down.weight", LeapFormat::F32),
        norms,
    ] {
        for value in [f32::NAN, f32::INFINITY] {
            let mut checkpoint = open(file);
            let tensor = checkpoint
                .tensors
                .iter_mut()
                .find(|tensor| tensor.name == name)
                .unwrap();
            tensor.rows = Box::new(Bad(value));
            let why = refusal(&checkpoint, to);
            assert!(
                why.contains(&format!("holds a weight of {value}")),
                "{name}: {why}"
            );
        }
    }
}

#[test]
fn tensors_without_a_place_and_places_without_a_tensor_are_refused() {
    let mut checkpoint = open("small-v1.bin");
    checkpoint.tensors[1].name = "blk.0.attn_q.bias".into();
    let why = refusal(&checkpoint, LeapFormat::F32);
    assert!(why.ends_with("it has no blk.0.attn_norm.weight"), "{why}");
    let mut checkpoint = open("small-v1.bin");
    checkpoint.tensors.last_mut().unwrap().name = "rope_freqs.weight".into();
    assert!(
        refusal(&checkpoint, LeapFormat::F32)
            .ends_with("the format has no tensor rope_freqs.weight")
    );
    let mut checkpoint = open("small-v1.bin");
    checkpoint.tensors[0].dims = vec![8, 261];
    assert!(
        refusal(&checkpoint, LeapFormat::F32)
            .ends_with("token_embd.weight is [8, 261], expected [261, 8]")
    );
}

#[test]
fn widths_without_groups_are_refused() {
    let why = refusal(&open("small-v1.bin"), LeapFormat::Int8 { group_size: 64 });
    assert!(
        why.ends_with("widths of 8 and 12 have no groups of 64 halved to 32 or more"),
        "{why}"
    );
    assert!(
        refusal(&open("narrow-v2.bin"), LeapFormat::Int8 { group_size: 0 })
            .contains("no groups of 0")
    );
}

#[test]
fn what_the_format_has_no_place_for_is_said() {
    let mut checkpoint = open("small-v1.bin");
    checkpoint
        .metadata
        .set_str("tokenizer.chat_template", "{{ messages }}");
    let mut kinds = vec![1; 261];
    kinds[..259].fill(6);
    kinds[..3].copy_from_slice(&[2, 3, 3]);
    kinds[260] = 4;
    checkpoint
        .metadata
        .set_i32s("tokenizer.ggml.token_type", &kinds);
    let report = written(&checkpoint, LeapFormat::F32).2;
    assert_eq!(
        report.dropped,
        [
            "the chat template",
            "the types of 1 tokens, which become text"
        ]
    );
}

/// The error of reading files.
fn unreadable(model: &[u8], tokenizer: &[u8]) -> String {
    let model: SharedBytes = Arc::new(model.to_vec());
    llama2c::parse("m.bin".as_ref(), model, "t.bin".as_ref(), tokenizer)
        .err()
        .unwrap()
        .to_string()
}

#[test]
fn lengths_are_right_to_the_byte() {
    let model = golden("small-v1.bin");
    let tokenizer = golden("tokenizer.bin");
    let short = unreadable(&model[..20_957], &tokenizer);
    assert_eq!(
        short,
        "m.bin: version 1 of its sizes has 20960 bytes, 3 are missing"
    );
    let long = unreadable(&[&model[..], &[0; 5]].concat(), &tokenizer);
    assert_eq!(
        long,
        "m.bin: version 1 of its sizes has 20960 bytes, 5 are left over"
    );
    let short = unreadable(&model, &tokenizer[..3649]);
    assert_eq!(short, "t.bin: ends in token 260, and the model has 261");
    let long = unreadable(&model, &[&tokenizer[..], b"!"].concat());
    assert_eq!(
        long,
        "t.bin: 1 bytes are left over behind the 261 tokens that the model has"
    );
    for n in (0..model.len()).step_by(1001).chain(0..260) {
        unreadable(&model[..n], &tokenizer);
    }
}

#[test]
fn vocabularies_that_are_none_are_refused() {
    let model = golden("small-v1.bin");
    let tokens = |score: &dyn Fn(usize) -> f32| -> Vec<u8> {
        let entry = |id| [&score(id).to_le_bytes()[..], &1u32.to_le_bytes(), b"x"].concat();
        [vec![0; 4], (0..261).flat_map(entry).collect()].concat()
    };
    let why = unreadable(&model, &tokens(&|id| id as f32));
    assert!(
        why.ends_with("at 3 to 258, and scores that only count up, but it is not that of Llama 3"),
        "{why}"
    );
    assert!(unreadable(&model, &tokens(&|_| 0.0)).ends_with("at 3 to 258"));
    assert_eq!(
        unreadable(&model, &tokens(&|_| f32::NAN)),
        "t.bin: token 0 has a score of NaN"
    );
    let lying = [&[0; 8][..], &u32::MAX.to_le_bytes(), b"x"].concat();
    assert_eq!(
        unreadable(&model, &lying),
        "t.bin: ends in token 0, and the model has 261"
    );
    assert_eq!(unreadable(&model, b"x"), "t.bin: 1 bytes are no vocabulary");
}

#[test]
fn a_model_without_a_vocabulary_beside_it_says_so() {
    let lonely = std::env::temp_dir().join(format!("atta-llama2c-{}", std::process::id()));
    std::fs::create_dir_all(&lonely).unwrap();
    std::fs::copy(path("small-v1.bin"), lonely.join("m.bin")).unwrap();
    let why = llama2c::open(&lonely.join("m.bin"), None)
        .err()
        .unwrap()
        .to_string();
    let named = llama2c::open(&lonely.join("m.bin"), Some(&path("tokenizer.bin")));
    assert!(
        why.contains("contains no vocabulary, and there is no") && why.contains("tokenizer.bin;"),
        "{why}"
    );
    assert_eq!(named.unwrap().files.len(), 1);
    // Windows removes no file that is mapped.
    std::fs::remove_dir_all(&lonely).unwrap();
}

/// A vocabulary of Llama 3's size as LEAP writes it: bytes by rank, names of special tokens, ranks
/// as scores.
fn llama3_tokens() -> Vec<u8> {
    let one = (0..=255u8).map(|a| vec![a]);
    let two = (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| vec![a, b]));
    let three = (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| vec![a, b, b'c']));
    let special = (0..256).map(|i| format!("<|special {i}|>").into_bytes());
    let mut bytes = vec![0; 4];
    for (id, token) in one
        .chain(two)
        .chain(three)
        .take(128_000)
        .chain(special)
        .enumerate()
    {
        bytes.extend((id as f32).to_le_bytes());
        bytes.extend((token.len() as u32).to_le_bytes());
        bytes.extend(token);
    }
    bytes[..4].copy_from_slice(&15u32.to_le_bytes());
    bytes
}

#[test]
fn the_vocabulary_of_llama_3_goes_to_gguf_and_back_to_leap() {
    let [d, d_ff, n_layers, n_heads, n_vocab, n_ctx] = [2i32, 2, 1, 1, 128_256, 4];
    let mut model = Vec::new();
    for v in [
        0x616B_3432u32 as i32,
        1,
        d,
        d_ff,
        n_layers,
        n_heads,
        n_heads,
        n_vocab,
        n_ctx,
    ] {
        model.extend(v.to_le_bytes());
    }
    model.push(1);
    model.resize(256, 0);
    let n_weights = 3 * d + n_vocab * d + 4 * d * d + 3 * d * d_ff;
    model.extend((0..n_weights).flat_map(|i| (i as f32).to_le_bytes()));
    let tokens = llama3_tokens();
    let checkpoint = llama2c::parse(
        "m.bin".as_ref(),
        Arc::new(model.clone()),
        "t.bin".as_ref(),
        &tokens,
    )
    .unwrap();
    let about = checkpoint.describe().unwrap().metadata;
    assert_eq!(about.str("tokenizer.ggml.pre").unwrap(), Some("llama-bpe"));
    assert_eq!(
        about.u32("tokenizer.ggml.bos_token_id").unwrap(),
        Some(128_000)
    );
    assert_eq!(
        about
            .strs("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .get(32),
        Some("Ġ".as_bytes())
    );
    let mut model_again = Vec::new();
    let mut tokens_again = Vec::new();
    let on = &mut |_, _| ControlFlow::Continue(());
    llama2c::write(
        &checkpoint,
        LeapFormat::F32,
        &mut model_again,
        &mut tokens_again,
        on,
    )
    .unwrap();
    assert!(model_again == model && tokens_again == tokens);
}

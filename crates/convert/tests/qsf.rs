//! QSF files through GGUF files and back, models of other kinds as QSF files, and the weights of
//! QSF's blocks as those of ggml.

#[allow(dead_code, reason = "shared with other tests")]
mod temp_dir;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_convert::{
    Checkpoint, ConvertOptions, MIXES, MappedRows, Plan, SourceOptions, Tensor, TypeSelection,
    convert, gguf, open,
    qsf::{self, TensorCosine},
};
use atta_formats::{
    SharedBytes, TensorType, Writer,
    qsf::{Header, LayerEntry, Tables},
};
use temp_dir::TempDir;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn source(path: &Path) -> Checkpoint {
    open(path, &SourceOptions::default(), &mut Vec::new()).unwrap()
}

fn to_gguf(checkpoint: &Checkpoint, dst: &Path, types: TypeSelection) {
    let options = ConvertOptions {
        types,
        ..ConvertOptions::default()
    };
    convert(
        checkpoint,
        dst,
        &options,
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
}

fn to_qsf(mut checkpoint: Checkpoint, dst: &Path) -> Vec<u8> {
    qsf::write(&mut checkpoint, dst, &mut |_| ControlFlow::Continue(())).unwrap();
    fs::read(dst).unwrap()
}

fn mix(name: &str) -> TypeSelection {
    TypeSelection {
        mix: MIXES.iter().find(|mix| mix.name == name),
        ..TypeSelection::default()
    }
}

/// All weights by name.
fn weights(checkpoint: &Checkpoint) -> Vec<(String, Vec<u32>)> {
    let mut all: Vec<_> = checkpoint
        .tensors
        .iter()
        .map(|tensor| {
            let mut weights = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
            tensor.rows.read(0, &mut weights).unwrap();
            (
                tensor.name.clone(),
                weights.iter().map(|w: &f32| w.to_bits()).collect(),
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_plain_file_comes_back_byte_for_byte_from_gguf() {
    let scratch = TempDir::new("back");
    let (there, back) = (scratch.file("there.gguf"), scratch.file("back.qsf"));
    to_gguf(
        &source(&golden("qsf/plain.qsf")),
        &there,
        TypeSelection::default(),
    );
    assert!(to_qsf(source(&there), &back) == fs::read(golden("qsf/plain.qsf")).unwrap());
}

#[test]
fn a_compressed_file_comes_back_with_the_same_weights() {
    let scratch = TempDir::new("compressed");
    let (there, back) = (scratch.file("there.gguf"), scratch.file("back.qsf"));
    let compressed = source(&golden("qsf/compressed.qsf"));
    assert_eq!(
        weights(&compressed),
        weights(&source(&golden("qsf/plain.qsf")))
    );
    to_gguf(&compressed, &there, TypeSelection::default());
    to_qsf(source(&there), &back);
    let back = source(&back);
    assert_eq!(weights(&back), weights(&compressed));
    assert_eq!(back.tensors.len(), compressed.tensors.len());
}

#[test]
fn damaged_layers_are_noticed_in_every_byte() {
    let scratch = TempDir::new("damage");
    let path = scratch.file("damaged.qsf");
    for name in ["qsf/plain.qsf", "qsf/compressed.qsf"] {
        let file = fs::read(golden(name)).unwrap();
        // Somewhere in both layers.
        for at in (1500..25_000).step_by(997) {
            let mut file = file.clone();
            file[at] ^= 4;
            fs::write(&path, file).unwrap();
            let damaged = open(&path, &SourceOptions::default(), &mut Vec::new());
            let error = damaged
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains("checksum"), "{name}, {at}: {error}");
        }
    }
}

#[test]
fn models_of_any_kind_come_back_from_the_extension() {
    let scratch = TempDir::new("kinds");
    for name in [
        "llama-plain",
        "llama-bias",
        "qwen2",
        "mixtral",
        "gemma3",
        "gpt2",
    ] {
        let original = golden(&format!("models/{name}.gguf"));
        let (there, back) = (scratch.file("there.qsf"), scratch.file("back.gguf"));
        let file = to_qsf(source(&original), &there);
        let header = Header(*file.first_chunk().unwrap());
        assert_eq!(
            header.arch() == Header::LLAMA,
            name == "llama-plain",
            "{name}"
        );
        to_gguf(&source(&there), &back, TypeSelection::default());
        let [original, again] = [&original, &back].map(|path| gguf::open(path).unwrap());
        fs::remove_file(&back).unwrap();
        assert_eq!(weights(&again), weights(&original), "{name}");
        let metadata = |checkpoint: &Checkpoint| {
            let metadata = checkpoint.describe().unwrap().metadata;
            metadata
                .iter()
                .map(|(key, value)| format!("{key} {value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(metadata(&again), metadata(&original), "{name}");
    }
}

#[test]
fn a_damaged_tensor_of_the_extension_is_named() {
    let scratch = TempDir::new("tensor");
    let path = scratch.file("model.qsf");
    let mut file = to_qsf(source(&golden("models/llama-plain.gguf")), &path);
    let header = Header(*file.first_chunk().unwrap());
    file[header.embedding_at() as usize + 99] ^= 1;
    fs::write(&path, file).unwrap();
    let error = open(&path, &SourceOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("token_embd.weight: the checksum"),
        "{error}"
    );
}

#[test]
fn blocks_of_qsf_become_blocks_of_ggml_with_the_same_weights() {
    let scratch = TempDir::new("exact");
    let mut checkpoint = source(&golden("qsf/plain.qsf"));
    let mut types = mix("Q4_1");
    qsf::for_types(&mut checkpoint, &mut types).unwrap();
    let path = scratch.file("exact.gguf");
    to_gguf(&checkpoint, &path, types);
    let exact = gguf::open(&path).unwrap();
    // Without rows in another order.
    let plain = source(&golden("qsf/plain.qsf"));
    let is_same = |name: &str| !name.contains("attn_q") && !name.contains("attn_k");
    let chosen = |checkpoint: &Checkpoint| -> Vec<_> {
        let all = weights(checkpoint).into_iter();
        all.filter(|(name, _)| is_same(name)).collect()
    };
    assert_eq!(chosen(&exact), chosen(&plain));
    for tensor in exact.tensors.iter().filter(|tensor| tensor.dims.len() > 1) {
        assert!(
            [TensorType::Q4_0, TensorType::Q4_1].contains(&tensor.ty),
            "{tensor:?}"
        );
    }
    assert!(
        !exact
            .describe()
            .unwrap()
            .metadata
            .iter()
            .any(|(key, _)| key.contains("pairing"))
    );
}

/// The attention of the first layer of the story model.
fn attention() -> Checkpoint {
    let mut checkpoint = source(&golden("stories.gguf"));
    let is_part = |name: &str| name.starts_with("blk.0.attn_") && name.ends_with(".weight");
    checkpoint
        .tensors
        .retain(|tensor| is_part(&tensor.name) && tensor.dims.len() > 1);
    assert_eq!(checkpoint.tensors.len(), 4);
    checkpoint
}

fn cosines(types: &TypeSelection) -> Vec<TensorCosine> {
    let checkpoint = attention();
    let plan = Plan::new(&checkpoint, types, None).unwrap();
    qsf::cosines(&checkpoint, &plan, None, 2).unwrap()
}

#[test]
fn more_bits_are_nearer() {
    let least = |name: &str| {
        let all = cosines(&mix(name));
        assert_eq!(all.len(), 4);
        all.iter().map(|found| found.cosine).fold(1.0, f64::min)
    };
    let [ternary, two, four] = ["QSFT", "QSF2", "QSF4"].map(least);
    assert!(0.85 < ternary && ternary < two && two < four && four < 1.0);
    assert!(two > 0.93 && four > 0.995, "{two} {four}");
}

#[test]
fn tensors_below_the_least_cosine_get_one_bit_more() {
    let mut types = mix("QSF2");
    let low = cosines(&types);
    assert_eq!(qsf::raise(&low, 0.99, &mut types), low.len());
    let plan = Plan::new(&attention(), &types, None).unwrap();
    assert!(plan.steps.iter().all(|step| step.ty == TensorType::QSF3));
    assert_eq!(qsf::raise(&low, 0.5, &mut types), 0);
}

#[test]
fn the_plans_recipe_gives_two_bits_to_most_of_a_layer() {
    let checkpoint = source(&golden("stories.gguf"));
    let plan = Plan::new(&checkpoint, &mix("QSF_MIXED"), None).unwrap();
    let of = |is: fn(&&str) -> bool| -> Vec<TensorType> {
        let steps = plan.steps.iter();
        let named = steps.map(|step| (&checkpoint.tensors[step.tensor], step.ty));
        let matrices = named.filter(|(tensor, _)| tensor.dims.len() > 1);
        matrices
            .filter(|(tensor, _)| is(&tensor.name.as_str()))
            .map(|(_, ty)| ty)
            .collect()
    };
    const TWO: [&str; 5] = ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"];
    let two = of(|name| TWO.iter().any(|part| name.contains(part)));
    assert!(two.len() > 9 && two.iter().all(|ty| *ty == TensorType::QSF2));
    let four = of(|name| !TWO.iter().any(|part| name.contains(part)));
    assert!(four.len() > 4 && four.iter().all(|ty| *ty == TensorType::QSF4));
}

/// A model of four tensors with measured sensitivities, as a file.
fn small() -> Vec<u8> {
    let mut metadata = Writer::new();
    metadata.set_str("general.architecture", "qwen2");
    metadata.set_u32("qwen2.block_count", 1);
    metadata.set_f32s("atta.sensitivity.tensor", &[0.5, 1.5, 2.5, 3.5]);
    metadata.set_f32s("atta.sensitivity.skip", &[0.25]);
    let tensor = |(name, dims): (&str, &[u64])| {
        let n = 4 * dims.iter().product::<u64>();
        let bytes: Vec<u8> = (0..n).map(|i| i as u8 & 0x3f).collect();
        let rows = MappedRows::new(Arc::new(bytes), 0, dims, TensorType::F32).unwrap();
        Tensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            ty: TensorType::F32,
            rows: Box::new(rows),
        }
    };
    let tensors = [
        ("token_embd.weight", &[3, 4][..]),
        ("blk.0.attn_q.weight", &[2, 4]),
        ("blk.0.attn_k_norm.weight", &[4]),
        ("output_norm.weight", &[4]),
    ];
    let checkpoint = Checkpoint {
        metadata,
        tensors: tensors.map(tensor).into_iter().collect(),
        files: Vec::new(),
    };
    let scratch = TempDir::new("small");
    to_qsf(checkpoint, &scratch.file("small.qsf"))
}

#[test]
fn sensitivities_that_were_measured_are_in_the_file() {
    let file = small();
    let entry = LayerEntry(*file[Header::BYTES..].first_chunk().unwrap());
    assert_eq!((entry.importance(), entry.n_tensors()), (0.25, 2));
    let bytes: SharedBytes = Arc::new(file);
    let found = Tables::read(&bytes).unwrap().sensitivities.unwrap();
    assert_eq!(found.tensors, [0.5, 1.5, 2.5, 3.5]);
    assert_eq!(found.layers, [0.25]);
}

/// `UPDATE_GOLDEN=1` rewrites it.
#[test]
fn the_seed_of_the_fuzz_target_is_a_file_that_is_written() {
    let path = golden("../../fuzz/seeds/qsf/extension.qsf");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, small()).unwrap();
    }
    assert!(fs::read(path).unwrap() == small());
}

#[test]
fn every_flipped_bit_of_a_small_file_is_noticed_or_harmless() {
    let scratch = TempDir::new("flips");
    let path = scratch.file("model.qsf");
    let file = small();
    fs::write(&path, &file).unwrap();
    let want = weights(&source(&path));
    for at in 0..file.len() {
        let mut file = file.clone();
        file[at] ^= 1 << (at % 8);
        fs::write(&path, file).unwrap();
        if let Ok(found) = open(&path, &SourceOptions::default(), &mut Vec::new()) {
            assert_eq!(weights(&found), want, "byte {at}");
        }
    }
}

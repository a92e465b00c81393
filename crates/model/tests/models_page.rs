//! `docs/models.md`: what we run and what it was compared with, written by this test from the
//! registry, the tiny models and the kernels. `UPDATE_GOLDEN=1 cargo test -p atta-model --test
//! models_page` rewrites it.

mod support;

use std::{collections::BTreeMap, fmt::Write, fs, num::NonZeroUsize, path::PathBuf, sync::Arc};

use atta_formats::TensorType;
use atta_kernels::{Kernels, Layouts, Matrix, Pool};
use atta_model::{Cpu, Executor, ExecutorSize, KvType, arch::REGISTRY};
use atta_store::Budget;
use support::{Golden, append, goldens_and_encoders, nmse};

const HEAD: &str = "# Models and block types

<!-- Written by crates/model/tests/models_page.rs: UPDATE_GOLDEN=1 cargo test -p atta-model --test models_page -->

## Architectures

Each has tiny random models in [`tests/golden/models`](../tests/golden/models), written with the logits that Hugging
Face transformers computes for them; [`tests/oracles/README.md`](../tests/oracles/README.md) says what each is there
for. The numbers are the largest NMSE, over the models of a row, to transformers' logits: of the oracle (naive, f64
sums), of the forward pass (scalar kernels, f32 state), and, measured by hand with `models_llama.py`, of llama.cpp where
it computes the same.

| `general.architecture` | what it is | models | oracle | forward pass | llama.cpp |
|---|---|---|---|---|---|
";

const TYPES: &str = "
## Block types

Decoded weights are those of gguf-py, bit for bit (`tests/golden/codec`). Types that run are multiplied without being
decoded first, with inputs of f32 or rounded to int8, and the kernels' tests compare that with the decoded weights. A
matrix of any other type is refused by name.

| type | bits per weight | weights per block | decoded | runs, with inputs of |
|---|---|---|---|---|
";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_says_what_was_measured() {
    let path = root().join("docs/models.md");
    let text = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let on_disk = fs::read_to_string(&path).unwrap_or_default();
    let first = text
        .lines()
        .zip(on_disk.lines())
        .find(|(new, old)| new != old);
    assert!(
        on_disk == text,
        "docs/models.md is out of date: {first:#?}\nrewrite it: UPDATE_GOLDEN=1 cargo test -p atta-model --test models_page"
    );
}

fn page() -> String {
    let goldens = goldens_and_encoders();
    let llama_cpp = llama_cpp();
    let mut page = HEAD.to_owned();
    for row in REGISTRY {
        let models: Vec<&Golden> = goldens.iter().filter(|g| g.arch == row.name).collect();
        let names = models
            .iter()
            .map(|g| g.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let oracle = worst(&models, by_oracle);
        let ours = worst(&models, forward);
        let theirs = peer(&models, &llama_cpp);
        let what = summary(row.name);
        writeln!(
            page,
            "| `{}` | {what} | {names} | {oracle} | {ours} | {theirs} |",
            row.name
        )
        .unwrap();
    }
    page.push_str(TYPES);
    TensorType::ALL
        .iter()
        .for_each(|&ty| page.push_str(&type_row(ty)));
    page
}

/// The first paragraph of the file that lowers an architecture.
fn summary(arch: &str) -> String {
    let file = format!("crates/model/src/arch/{}.rs", arch.replace('-', "_"));
    let source = fs::read_to_string(root().join(file)).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    lines
        .collect::<Vec<_>>()
        .join(" ")
        .trim_end_matches('.')
        .to_owned()
}

/// One digit, so that a math library that rounds otherwise changes nothing.
fn worst(models: &[&Golden], logits: fn(&Golden) -> Vec<f32>) -> String {
    let distances = models.iter().map(|g| nmse(&logits(g), &g.logits));
    // `f64::max` passes over NaN.
    let distances = distances.inspect(|nmse| assert!(nmse.is_finite(), "{nmse}"));
    format!("{:.0e}", distances.fold(0.0, f64::max))
}

fn by_oracle(g: &Golden) -> Vec<f32> {
    g.by_oracle(&g.model())
}

/// The forward pass with kernels that give the same bits on every machine.
fn forward(g: &Golden) -> Vec<f32> {
    let options = ExecutorSize {
        n_ctx: 128,
        n_seqs: 1,
        n_batch: 128,
        kv: KvType::F32,
        ..ExecutorSize::default()
    };
    let kernels = Kernels::named("scalar").unwrap();
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let mut cpu = Cpu::new(g.model(), kernels, pool, &Budget::unlimited(), options).unwrap();
    if g.first_of_second.is_some() {
        return g.encode(kernels, &mut cpu, &g.model());
    }
    let seq = cpu.new_seq().unwrap();
    append(&mut cpu, seq, &g.tokens, g.tokens.len())
}

/// By model, llama.cpp's distance, or why it has none.
fn llama_cpp() -> BTreeMap<String, serde_json::Value> {
    serde_json::from_slice(&fs::read(root().join("tests/golden/models/llama_cpp.json")).unwrap())
        .unwrap()
}

fn peer(models: &[&Golden], measured: &BTreeMap<String, serde_json::Value>) -> String {
    let of = |g: &Golden| {
        measured
            .get(&g.name)
            .cloned()
            .unwrap_or_else(|| "not measured".into())
    };
    let worst = models
        .iter()
        .filter_map(|g| of(g).as_f64())
        .reduce(f64::max);
    let differs = models
        .iter()
        .filter_map(|g| Some(format!("{}: {}", g.name, of(g).as_str()?)));
    worst
        .map(|worst| format!("{worst:.0e}"))
        .into_iter()
        .chain(differs)
        .collect::<Vec<_>>()
        .join("; ")
}

fn type_row(ty: TensorType) -> String {
    let bits = 8.0 * ty.block_bytes() as f64 / ty.block_len() as f64;
    let has_golden = root().join(format!("tests/golden/codec/{ty}.txt")).exists();
    assert_eq!(
        has_golden,
        ty.has_codec() && !ty.is_own(),
        "{ty}: every type of ggml that is decoded has a golden"
    );
    let decoded = if ty.has_codec() { "yes" } else { "–" };
    let bytes = vec![0; ty.block_bytes()];
    let runs = match Matrix::new(ty, 1, ty.block_len(), &bytes).map(Matrix::layout) {
        Ok(Layouts::F32) => "f32",
        Ok(_) => "int8",
        Err(_) => "–",
    };
    format!(
        "| {ty} | {} | {} | {decoded} | {runs} |\n",
        (bits * 1e4).round() / 1e4,
        ty.block_len()
    )
}

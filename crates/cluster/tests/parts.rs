//! A model cut in three, each part with the tensors of its layers only, computes what the whole
//! file computes, bit for bit.

mod own_types;
mod scratch;

use std::{
    fs,
    num::NonZeroUsize,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_cluster::part::{Part, PartFile, PartIndex, index_of, model_id, open_model, tensors_of};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Backend, Batch, CpuBackend, Error, Executor, ExecutorSize, KvType, Model, Output, Share, Want,
    arch, spec::ModelSpec,
};
use atta_store::{Budget, Extent, InMemory, ModelFiles, Weights};
use own_types::OwnTypes;
use scratch::Scratch;

const TOKENS: [u32; 7] = [1, 5, 2, 9, 4, 4, 7];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

fn bind(spec: &ModelSpec, share: Share, files: ModelFiles) -> Result<Model, Error> {
    Model::with_share(
        spec.clone(),
        share,
        files,
        &Budget::unlimited(),
        |files, plan| Ok::<Box<dyn Weights>, Error>(Box::new(InMemory::new(files, plan)?)),
    )
}

fn executor(model: Model) -> Box<dyn Executor> {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let size = ExecutorSize {
        n_ctx: 64,
        n_seqs: 1,
        kv: KvType::F32,
        part: Some(model.share().clone()),
        ..ExecutorSize::default()
    };
    let backend = CpuBackend::new(Kernels::detect(), pool);
    backend
        .open(Arc::new(model), &size, &Budget::unlimited())
        .unwrap()
}

/// The hidden states or logits of each stage, as bits.
fn run(mut stages: Vec<Box<dyn Executor>>) -> Vec<Vec<u32>> {
    let last = stages.len() - 1;
    let mut batch = Batch::default();
    let mut outputs = Vec::new();
    for (i, stage) in stages.iter_mut().enumerate() {
        let seq = stage.new_seq().unwrap();
        let want = if i == last {
            Want::Logits
        } else {
            Want::Hidden
        };
        if i == 0 {
            let tokens = TOKENS.iter().enumerate();
            tokens.for_each(|(pos, id)| batch.push_token(seq, pos, *id, want));
        }
        batch.rows.iter_mut().for_each(|row| row.want = want);
        let mut out = Output::default();
        let ticket = stage.submit(&batch).unwrap();
        stage.collect(ticket, &mut out).unwrap();
        let rows = 0..TOKENS.len();
        let row = |i: usize| {
            if want == Want::Logits {
                out.logits(i)
            } else {
                out.hidden(i)
            }
        };
        let bits = rows
            .clone()
            .flat_map(|i| row(i).iter().map(|x| x.to_bits()));
        outputs.push(bits.collect());
        if i < last {
            batch.clear();
            rows.for_each(|pos| batch.push_hidden(seq, pos, out.hidden(pos), Want::Hidden));
        }
    }
    outputs
}

/// Fills a part with what a share needs, in pieces as they come from a peer.
fn pull(from: &Part<PartFile>, to: &mut Part<PartFile>, names: &[String]) {
    for range in to.missing(|name| names.iter().any(|wanted| wanted == name)) {
        for start in range.clone().step_by(1000) {
            let mut piece = vec![0; (range.end - start).min(1000) as usize];
            from.serve(start, &mut piece).unwrap();
            to.fill(start, &piece).unwrap();
        }
    }
    to.commit().unwrap();
}

/// A whole file as a part from which others are filled.
fn served(directory: &Path, path: &Path, index: &PartIndex) -> Part<PartFile> {
    let copy = directory.join("whole.gguf");
    fs::copy(path, &copy).unwrap();
    fs::write(PartFile::index_path(&copy), index.to_bytes()).unwrap();
    PartFile::open(&copy).unwrap()
}

fn three_parts_equal_the_whole(name: &str, path: &Path) {
    let open = || ModelFiles::open(path).unwrap();
    let files = open();
    let spec = arch::lower(files.directory().metadata()).unwrap();
    let index = index_of(&files).unwrap();
    let scratch = Scratch::new(name);
    let whole = served(scratch.path(), path, &index[0]);
    let n = spec.layers.len();
    let cuts = [0, 1.min(n - 1), (n / 2 + 1).min(n - 1), n];
    let ranges = cuts
        .windows(2)
        .filter(|cut| cut[0] < cut[1])
        .map(|cut| cut[0]..cut[1]);
    let ranges: Vec<Range<usize>> = ranges.collect();
    let mut parts = Vec::new();
    for (i, layers) in ranges.iter().enumerate() {
        let share = Share::of_layers(&spec, layers.clone());
        let path = scratch.path().join(format!("part{i}.gguf"));
        let mut part = PartFile::create(&path, &index[0]).unwrap();
        pull(
            &whole,
            &mut part,
            &tensors_of(&share, &spec, &files).unwrap(),
        );
        assert_eq!(model_id(&[part.index().clone()]), model_id(&index));
        assert!(
            part.index().held_bytes() < index[0].held_bytes(),
            "{name} {i}"
        );
        let (spec, files) = open_model(&path).unwrap();
        parts.push(executor(bind(&spec, share, files).unwrap()));
    }
    let of_whole = |layers: &Range<usize>| {
        let share = Share::of_layers(&spec, layers.clone());
        executor(bind(&spec, share, open()).unwrap())
    };
    let expected = run(ranges.iter().map(of_whole).collect());
    let found = run(parts);
    assert!(found == expected, "{name}");
    let logits = run(vec![of_whole(&(0..n))]);
    assert!(found.last() == logits.last(), "{name}: the logits");
}

#[test]
fn llama_in_three_parts_equals_the_whole() {
    three_parts_equal_the_whole("llama", &golden("llama-plain.gguf"));
}

#[test]
fn qwen2_with_biases_in_three_parts_equals_the_whole() {
    three_parts_equal_the_whole("qwen2", &golden("qwen2.gguf"));
}

#[test]
fn t3_with_checksums_and_mean_rows_in_three_parts_equals_the_whole() {
    let file = OwnTypes::new("llama-yarn", &["token_embd.mean", "output.mean"]);
    three_parts_equal_the_whole("t3", file.path());
}

#[test]
fn a_layer_that_the_part_lacks_is_an_error_with_its_tensor() {
    let path = golden("llama-plain.gguf");
    let files = ModelFiles::open(&path).unwrap();
    let spec = arch::lower(files.directory().metadata()).unwrap();
    let index = index_of(&files).unwrap();
    let scratch = Scratch::new("lacks");
    let part_path = scratch.path().join("part.gguf");
    let whole = served(scratch.path(), &path, &index[0]);
    let first = Share::of_layers(&spec, 0..1);
    let mut part = PartFile::create(&part_path, &index[0]).unwrap();
    assert!(
        open_model(&part_path)
            .unwrap_err()
            .to_string()
            .contains("header")
    );
    pull(
        &whole,
        &mut part,
        &tensors_of(&first, &spec, &files).unwrap(),
    );
    let open = || open_model(&part_path).unwrap().1;
    assert!(bind(&spec, first, open()).is_ok());
    let error = bind(&spec, Share::of_layers(&spec, 1..2), open()).unwrap_err();
    assert!(error.to_string().contains("lacks blk.1."), "{error}");
    let info = &files.directory().tensor("blk.1.attn_q.weight").unwrap();
    let extent = Extent {
        shard: 0,
        offset: info.offset + 1,
        bytes: 1,
    };
    let error = open().read(extent).unwrap_err();
    assert!(
        error.to_string().ends_with("lacks blk.1.attn_q.weight"),
        "{error}"
    );
}

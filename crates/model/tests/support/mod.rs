//! What the tests of this crate share: the tiny models of `tests/golden/models`, and a short way to
//! run one.
#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

pub(crate) mod adapters;
pub(crate) mod hybrid;
pub(crate) mod means;
pub(crate) mod quantized;
pub(crate) mod random_file;

use std::{fs, num::NonZeroUsize, path::PathBuf, sync::Arc};

use atta_formats::{Gguf, Metadata, TensorInfo, Writer};
use atta_kernels::{Kernels, Pool};
use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorSize, KvType, Model, Output, SeqId, Share, Want, oracle,
    spec::{ModelSpec, Outputs, ScoreInput},
};
use atta_store::{Budget, InMemory, ModelFiles, Weights};

/// A tiny random model with the logits that Hugging Face transformers computes for it.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) arch: String,
    pub(crate) tokens: Vec<u32>,
    /// [tokens.len(), n_vocab].
    pub(crate) logits: Vec<f32>,
    pub(crate) nmse: f64,
    /// Of an encoder: the first token of a second text. Instead of logits it has hidden states,
    /// `[tokens.len(), d_model]`, or scores.
    pub(crate) first_of_second: Option<usize>,
    file: GoldenFile,
}

/// Where a tiny model comes from.
enum GoldenFile {
    /// A file, of an architecture of the registry.
    Path(PathBuf),
    /// A test, which made its spec and a file for it.
    Made(Box<ModelSpec>, &'static [u8]),
}

impl Golden {
    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match &self.file {
            GoldenFile::Path(path) => fs::read(path).unwrap(),
            GoldenFile::Made(_, bytes) => bytes.to_vec(),
        }
    }

    pub(crate) fn files(&self) -> ModelFiles {
        match &self.file {
            GoldenFile::Path(path) => ModelFiles::open(path).unwrap(),
            GoldenFile::Made(_, bytes) => ModelFiles::from_static(&self.name, bytes).unwrap(),
        }
    }

    pub(crate) fn model(&self) -> Arc<Model> {
        match &self.file {
            GoldenFile::Path(_) => {
                Arc::new(Model::load(self.files(), &Budget::unlimited()).unwrap())
            }
            GoldenFile::Made(spec, _) => self.with_spec((**spec).clone()).unwrap(),
        }
    }

    /// Whether a test made its spec.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.file, GoldenFile::Made(..))
    }

    /// Whether its layers can be computed apart: none reads keys and values of another one, or
    /// n-grams.
    pub(crate) fn is_separable(&self) -> bool {
        let model = self.model();
        let spec = model.spec();
        let has_ids = spec.ngrams().is_none_or(|(l, _)| l == 0);
        has_ids && spec.alt_up.is_none() && spec.attentions().all(|a| a.kv_layer().is_none())
    }

    /// A part of it.
    pub(crate) fn part(&self, share: Share) -> Model {
        let source = |files, plan| -> Result<Box<dyn Weights>, Error> {
            Ok(Box::new(InMemory::new(files, plan)?))
        };
        let spec = self.model().spec().clone();
        Model::with_share(spec, share, self.files(), &Budget::unlimited(), source).unwrap()
    }

    pub(crate) fn with_spec(&self, spec: ModelSpec) -> Result<Arc<Model>, Error> {
        Model::with_spec(spec, self.files(), &Budget::unlimited()).map(Arc::new)
    }
}

impl Golden {
    /// What the oracle computes of its tokens with `model`.
    pub(crate) fn by_oracle(&self, model: &Model) -> Vec<f32> {
        match (self.first_of_second, model.spec().head.outputs) {
            (_, Outputs::Logits) => oracle::logits(model, &self.tokens).unwrap(),
            (_, Outputs::Hidden) => oracle::normed(model, &self.tokens).unwrap(),
            (_, Outputs::Dense(_)) => oracle::dense(model, &self.tokens).unwrap(),
            (first_of_second, Outputs::Scores(_)) => {
                oracle::scores(model, &self.tokens, first_of_second.unwrap()).unwrap()
            }
        }
    }

    /// What the forward pass computes of its tokens with `model`, with f32 state.
    pub(crate) fn by_forward(&self, model: &Arc<Model>) -> Vec<f32> {
        match model.spec().head.outputs {
            Outputs::Logits => forward(model, &self.tokens),
            _ => self.encode(Kernels::detect(), &mut cpu(model, 1, KvType::F32), model),
        }
    }

    /// The rows of its tokens, which want hidden states.
    pub(crate) fn push_rows(&self, batch: &mut Batch, seq: SeqId) {
        for (pos, &id) in self.tokens.iter().enumerate() {
            batch.push_token(seq, pos, id, Want::Hidden);
            let is_second = self.first_of_second.is_some_and(|first| pos >= first);
            batch.set_segment(is_second.into());
        }
    }

    /// Hidden states, or scores, that an executor computes of its tokens.
    pub(crate) fn encode(&self, kernels: Kernels, cpu: &mut Cpu, model: &Model) -> Vec<f32> {
        let mut batch = Batch::default();
        let mut out = Output::default();
        let seq = cpu.new_seq().unwrap();
        self.push_rows(&mut batch, seq);
        cpu.step(&batch, &mut out).unwrap();
        self.results(kernels, model, &out, 0)
    }

    /// Hidden states, or scores, of the rows of a batch from `first` on.
    pub(crate) fn results(
        &self,
        kernels: Kernels,
        model: &Model,
        out: &Output,
        first: usize,
    ) -> Vec<f32> {
        let d = model.spec().d_model;
        let mut normed = vec![0.0; d];
        let rows = (first..first + self.tokens.len()).flat_map(|row| {
            model.output_norm(kernels, out.hidden(row), &mut normed);
            normed.clone()
        });
        let rows: Vec<f32> = rows.collect();
        let mean = || -> Vec<f32> {
            let of = |i: usize| rows.chunks(d).map(|x| f64::from(x[i])).sum::<f64>();
            (0..d)
                .map(|i| (of(i) / self.tokens.len() as f64) as f32)
                .collect()
        };
        match model.spec().head.outputs {
            Outputs::Scores(head) => match head.reads {
                ScoreInput::First => model.scores(kernels, &rows[..d]).unwrap(),
                ScoreInput::Mean => model.scores(kernels, &mean()).unwrap(),
            },
            Outputs::Dense(_) => model.dense(&mean()),
            Outputs::Logits | Outputs::Hidden => rows,
        }
    }
}

/// What an altered file says of a tensor: its name and dimensions, or that it is not there.
pub(crate) type Told = Option<(String, Vec<u64>)>;

impl Golden {
    /// Its metadata keys that begin with the name of the architecture, without that name.
    pub(crate) fn keys(&self) -> Vec<String> {
        let files = self.files();
        let prefix = format!("{}.", self.arch);
        let keys = files.directory().metadata().iter();
        keys.filter_map(|(key, _)| Some(key.strip_prefix(&prefix)?.to_owned()))
            .collect()
    }

    /// Its metadata without the key `without`, as `set` changes it.
    pub(crate) fn metadata(&self, without: &str, set: impl Fn(&mut Writer)) -> Metadata {
        let header = self.writer(without, set).finish().unwrap().header;
        let n_bytes = header.len() as u64;
        Gguf::parse(Arc::new(header), n_bytes).unwrap().metadata
    }

    fn writer(&self, without: &str, set: impl Fn(&mut Writer)) -> Writer {
        let mut w = Writer::new();
        let files = self.files();
        let kept = files
            .directory()
            .metadata()
            .iter()
            .filter(|(key, _)| *key != without);
        kept.for_each(|(key, value)| w.set_value(key, value));
        set(&mut w);
        w
    }

    /// A file with other metadata and other tensors, whose bytes are those of the file as far as
    /// they go.
    pub(crate) fn altered(
        &self,
        set: impl Fn(&mut Writer),
        tell: impl Fn(&TensorInfo) -> Told,
    ) -> ModelFiles {
        let bytes = self.altered_bytes(set, tell);
        ModelFiles::from_static(&self.name, bytes.leak()).unwrap()
    }

    /// The bytes of [`altered`](Self::altered).
    pub(crate) fn altered_bytes(
        &self,
        set: impl Fn(&mut Writer),
        tell: impl Fn(&TensorInfo) -> Told,
    ) -> Vec<u8> {
        let mut w = self.writer("", set);
        let old = self.bytes();
        let tensors: Vec<TensorInfo> = self.files().directory().tensors().to_vec();
        let told: Vec<_> = tensors.iter().filter_map(|t| Some((tell(t)?, t))).collect();
        told.iter()
            .for_each(|((name, dims), t)| w.add_tensor(name, dims, t.ty).unwrap());
        let layout = w.finish().unwrap();
        let mut bytes = layout.header.clone();
        bytes.resize(layout.file_bytes as usize, 0);
        for (new, (_, old_info)) in layout.tensors.iter().zip(&told) {
            let n = new.n_bytes.min(old_info.n_bytes) as usize;
            let to = new.offset as usize;
            let from = old_info.offset as usize;
            bytes[to..to + n].copy_from_slice(&old[from..from + n]);
        }
        bytes
    }
}

/// All tiny models that write texts.
pub(crate) fn goldens() -> Vec<Golden> {
    let all = goldens_and_encoders().into_iter();
    all.filter(|g| g.first_of_second.is_none()).collect()
}

/// All tiny models that make vectors or scores of texts.
pub(crate) fn encoders() -> Vec<Golden> {
    let all = goldens_and_encoders().into_iter();
    all.filter(|g| g.first_of_second.is_some()).collect()
}

/// All tiny models.
pub(crate) fn goldens_and_encoders() -> Vec<Golden> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let index = fs::read(folder.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let golden = |row| Golden {
        name: text(row, "name"),
        arch: text(row, "arch"),
        tokens: row["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_u64().unwrap() as u32)
            .collect(),
        logits: floats(&fs::read(folder.join(text(row, "logits"))).unwrap()),
        nmse: row["nmse"].as_f64().unwrap(),
        first_of_second: row["first_of_second"].as_u64().map(|n| n as usize),
        file: GoldenFile::Path(folder.join(text(row, "gguf"))),
    };
    index["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(golden)
        .collect()
}

/// All tiny models; where tests run by emulation every third.
pub(crate) fn some_goldens() -> Vec<Golden> {
    let step = if cfg!(target_arch = "x86_64") { 1 } else { 3 };
    goldens().into_iter().step_by(step).collect()
}

/// The tiny model of that name.
pub(crate) fn golden(name: &str) -> Golden {
    let mut all = goldens_and_encoders().into_iter();
    all.find(|g| g.name == name).unwrap()
}

/// A model of files.
pub(crate) fn load(files: ModelFiles) -> Arc<Model> {
    Arc::new(Model::load(files, &Budget::unlimited()).unwrap())
}

/// The little model of stories, in Q8_0: the one file here whose matrices are as those that people
/// have.
pub(crate) fn stories() -> Arc<Model> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    load(ModelFiles::open(&path).unwrap())
}

/// Tokens of a model in no order.
pub(crate) fn tokens(model: &Model, n: usize) -> Vec<u32> {
    let n_vocab = model.spec().n_vocab as u32;
    (0..n as u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 8) % n_vocab)
        .collect()
}

/// An executor for small tests: 128 positions, 4 sequences.
pub(crate) fn cpu(model: &Arc<Model>, n_threads: usize, kv: KvType) -> Cpu {
    let options = ExecutorSize {
        n_ctx: 128,
        n_seqs: 4,
        n_batch: 128,
        kv,
        ..ExecutorSize::default()
    };
    cpu_with(model, n_threads, options)
}

pub(crate) fn cpu_with(model: &Arc<Model>, n_threads: usize, options: ExecutorSize) -> Cpu {
    cpu_by(Kernels::detect(), model, n_threads, options)
}

/// The same by an instruction set that is not the best.
pub(crate) fn cpu_by(
    kernels: Kernels,
    model: &Arc<Model>,
    n_threads: usize,
    options: ExecutorSize,
) -> Cpu {
    let pool = Arc::new(Pool::new(NonZeroUsize::new(n_threads).unwrap()));
    Cpu::new(model.clone(), kernels, pool, &Budget::unlimited(), options).unwrap()
}

/// Appends tokens in chunks of `n_batch`; the logits of all of them.
pub(crate) fn append(cpu: &mut Cpu, seq: SeqId, tokens: &[u32], n_batch: usize) -> Vec<f32> {
    let mut batch = Batch::default();
    let mut out = Output::default();
    let mut logits = Vec::new();
    for chunk in tokens.chunks(n_batch) {
        batch.clear();
        let pos = cpu.seqs().len(seq).unwrap();
        chunk
            .iter()
            .enumerate()
            .for_each(|(i, &id)| batch.push_token(seq, pos + i, id, Want::Logits));
        cpu.step(&batch, &mut out).unwrap();
        (0..chunk.len()).for_each(|i| logits.extend_from_slice(out.logits(i)));
    }
    logits
}

/// The logits of a whole sequence by the forward pass with f32 state.
pub(crate) fn forward(model: &Arc<Model>, tokens: &[u32]) -> Vec<f32> {
    let mut cpu = cpu(model, 1, KvType::F32);
    let seq = cpu.new_seq().unwrap();
    append(&mut cpu, seq, tokens, tokens.len())
}

/// `Σ (a - b)² / Σ b²`.
pub(crate) fn nmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let error: f64 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    error / b.iter().map(|&b| square(f64::from(b))).sum::<f64>()
}

/// The bytes of logits: equal means equal.
pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|z| z.to_bits()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

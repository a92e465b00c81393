//! LoRA adapters of random numbers for the tiny models, and models with an adapter merged.

use std::sync::Arc;

use atta_formats::{
    TensorInfo, TensorType, Writer, decode_rows,
    f16::{f16_to_f32, f32_to_bf16, f32_to_f16},
};
use atta_model::{Adapter, AdapterScale, AdapterSet, Error, Model};
use atta_store::{Budget, ModelFiles};

use super::{Golden, load};

/// The two matrices for a tensor of a model's file, outermost first, of all its experts.
pub(crate) struct MadePair {
    name: String,
    a: Vec<f32>,
    a_dims: Vec<u64>,
    b: Vec<f32>,
    b_dims: Vec<u64>,
}

/// A tensor that a made file has twice.
#[derive(Clone, Copy)]
struct Copied {
    from: &'static str,
    to: &'static str,
}

/// An adapter that a test made.
pub(crate) struct MadeAdapter {
    arch: String,
    alpha: f32,
    pub(crate) pairs: Vec<MadePair>,
}

fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Numbers in blocks of a type, rounded.
fn encoded(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    let block = |x: &[f32]| {
        let largest = x.iter().fold(1e-9_f32, |max, x| max.max(x.abs()));
        let d = f16_to_f32(f32_to_f16(largest / 127.0));
        let codes = x.iter().map(move |x| (x / d).round() as i8 as u8);
        let codes: Vec<u8> = codes.collect();
        [&f32_to_f16(d).to_le_bytes()[..], &codes].concat()
    };
    match ty {
        TensorType::F16 => numbers
            .iter()
            .flat_map(|x| f32_to_f16(*x).to_le_bytes())
            .collect(),
        TensorType::BF16 => numbers
            .iter()
            .flat_map(|x| f32_to_bf16(*x).to_le_bytes())
            .collect(),
        TensorType::Q8_0 => numbers.chunks(32).flat_map(block).collect(),
        _ => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

impl MadePair {
    /// Random matrices of this rank for a tensor.
    fn random(info: &TensorInfo, rank: u64, seed: u64) -> Self {
        let dims = info.shape.dims();
        let (outer, [d_out, d_in]) = match dims {
            [outer @ .., d_out, d_in] => (outer, [*d_out, *d_in]),
            _ => (&[][..], [1, dims[0]]),
        };
        let (a_last, b_rows) = match info.name == "token_embd.weight" {
            true => ([d_out, rank], d_in),
            false => ([rank, d_in], d_out),
        };
        let a_dims = [outer, &a_last].concat();
        let b_dims = [outer, &[b_rows, rank]].concat();
        let mut next = random(seed);
        let mut numbers = |dims: &[u64], size: f32| -> Vec<f32> {
            let n = dims.iter().product::<u64>();
            (0..n).map(|_| size * next()).collect()
        };
        Self {
            name: info.name.clone(),
            a: numbers(&a_dims, 1.0 / (d_in as f32).sqrt()),
            a_dims,
            b: numbers(&b_dims, 0.1),
            b_dims,
        }
    }

    /// `W + s B A`; of the embedding `W + s A Bᵀ`.
    fn merge_into(&self, w: &mut [f32], s: f64) {
        let [a_rows, a_cols] = self.a_dims[self.a_dims.len() - 2..] else {
            unreachable!()
        };
        let [b_rows, rank] = self.b_dims[self.b_dims.len() - 2..] else {
            unreachable!()
        };
        let [a_rows, a_cols, b_rows, rank] = [a_rows, a_cols, b_rows, rank].map(|n| n as usize);
        let is_embedding = self.name == "token_embd.weight";
        let (d_out, d_in) = if is_embedding {
            (a_rows, b_rows)
        } else {
            (b_rows, a_cols)
        };
        let experts = w.chunks_mut(d_out * d_in);
        let factors = self
            .a
            .chunks(a_rows * a_cols)
            .zip(self.b.chunks(b_rows * rank));
        for (w, (a, b)) in experts.zip(factors) {
            for (i, w) in w.iter_mut().enumerate() {
                let (row, col) = (i / d_in, i % d_in);
                let product = |j: usize| match is_embedding {
                    true => f64::from(a[row * rank + j]) * f64::from(b[col * rank + j]),
                    false => f64::from(b[row * rank + j]) * f64::from(a[j * d_in + col]),
                };
                *w = (f64::from(*w) + s * (0..rank).map(product).sum::<f64>()) as f32;
            }
        }
    }
}

impl MadeAdapter {
    /// A file of it with tensors of this type, where rows are whole blocks, and metadata that `set`
    /// changes.
    pub(crate) fn file(&self, ty: TensorType, set: impl Fn(&mut Writer)) -> &'static [u8] {
        let mut w = Writer::new();
        w.set_str("general.type", "adapter");
        w.set_str("general.architecture", &self.arch);
        w.set_str("adapter.type", "lora");
        w.set_f32("adapter.lora.alpha", self.alpha);
        set(&mut w);
        let all = self.pairs.iter().flat_map(|pair| {
            let name = |end| format!("{}.{end}", pair.name);
            [
                (name("lora_a"), &pair.a_dims, &pair.a),
                (name("lora_b"), &pair.b_dims, &pair.b),
            ]
        });
        let all: Vec<_> = all.collect();
        let type_of = |dims: &[u64]| match dims[dims.len() - 1] % ty.block_len() as u64 {
            0 => ty,
            _ => TensorType::F32,
        };
        for (name, dims, _) in &all {
            w.add_tensor(name, dims, type_of(dims)).unwrap();
        }
        let layout = w.finish().unwrap();
        let mut bytes = layout.header.clone();
        bytes.resize(layout.file_bytes as usize, 0);
        for (info, (_, _, numbers)) in layout.tensors.iter().zip(&all) {
            let encoded = encoded(info.ty, numbers);
            bytes[info.offset as usize..][..encoded.len()].copy_from_slice(&encoded);
        }
        bytes.leak()
    }

    /// The adapter, read from such a file.
    pub(crate) fn load(&self, model: &Model) -> Result<Adapter, Error> {
        load_adapter(model, &self.arch, self.file(TensorType::F32, |_| {}))
    }

    fn scale(&self, pair: &MadePair, scale: f32) -> f64 {
        let rank = *pair.b_dims.last().unwrap();
        f64::from(scale) * f64::from(self.alpha) / rank as f64
    }
}

/// Reads an adapter for a model of an architecture.
pub(crate) fn load_adapter(
    model: &Model,
    arch: &str,
    bytes: &'static [u8],
) -> Result<Adapter, Error> {
    let files = ModelFiles::from_static("adapter", bytes).unwrap();
    Adapter::load(model.spec(), arch, &files, &Budget::unlimited())
}

impl Golden {
    /// The same model with all tensors in F32, and with adapters merged at some scales.
    pub(crate) fn merged(&self, adapters: &[(&MadeAdapter, f32)]) -> Arc<Model> {
        self.merged_with(adapters, None)
    }

    fn merged_with(&self, adapters: &[(&MadeAdapter, f32)], copied: Option<Copied>) -> Arc<Model> {
        let files = self.files();
        let old = self.bytes();
        let mut w = self.writer("", |_| {});
        let infos = files.directory().tensors().iter();
        let copy = copied.and_then(|c| Some((c.to, files.directory().tensor(c.from)?)));
        let infos = infos.map(|t| (t.name.as_str(), t)).chain(copy);
        for (name, t) in infos.clone() {
            w.add_tensor(name, t.shape.dims(), TensorType::F32).unwrap();
        }
        let layout = w.finish().unwrap();
        let mut file = layout.header.clone();
        file.resize(layout.file_bytes as usize, 0);
        for (new, (name, t)) in layout.tensors.iter().zip(infos) {
            let bytes = &old[t.offset as usize..][..t.n_bytes as usize];
            let mut numbers = vec![0.0; t.shape.n_elements() as usize];
            let d = *t.shape.dims().last().unwrap() as usize;
            decode_rows(t.ty, d, bytes, &mut numbers).unwrap();
            for (adapter, scale) in adapters {
                for pair in adapter.pairs.iter().filter(|pair| pair.name == name) {
                    pair.merge_into(&mut numbers, adapter.scale(pair, *scale));
                }
            }
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            file[new.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        load(ModelFiles::from_static(&self.name, file.leak()).unwrap())
    }

    /// An adapter with random matrices for every tensor that may have one; not for an embedding
    /// that is the head, too.
    pub(crate) fn adapter(&self, rank: u64, seed: u64) -> MadeAdapter {
        let model = self.model();
        let files = self.files();
        let directory = files.directory();
        let is_tied = directory.tensor("output.weight").is_none();
        let has_scale = |name: &str| {
            let stem = name.trim_end_matches("weight");
            directory.tensor(&format!("{stem}scale")).is_some()
        };
        let single = |(i, info): (usize, &TensorInfo)| {
            let pair = MadePair::random(info, rank, seed * 1000 + i as u64);
            let one = self.with_pairs(vec![pair]);
            one.load(&model).ok().map(|_| one)
        };
        let candidates = directory.tensors().iter().enumerate().filter(|(_, info)| {
            let is_table = info.name == "token_embd.weight" && is_tied;
            info.shape.dims().len() > 1 && !is_table && !has_scale(&info.name)
        });
        let pairs = candidates.filter_map(single).flat_map(|one| one.pairs);
        self.with_pairs(pairs.collect())
    }

    /// An adapter with random matrices for one tensor.
    pub(crate) fn adapter_of(&self, info: &TensorInfo, rank: u64) -> MadeAdapter {
        self.with_pairs(vec![MadePair::random(info, rank, 7)])
    }

    /// An adapter of zeros with matrices of these shapes, outermost first.
    pub(crate) fn adapter_of_shapes(&self, name: &str, dims: [&[u64]; 2]) -> MadeAdapter {
        let [a, b] = dims.map(|dims| vec![0.0; dims.iter().product::<u64>() as usize]);
        let [a_dims, b_dims] = dims.map(<[u64]>::to_vec);
        let name = name.to_owned();
        let pair = MadePair {
            name,
            a,
            a_dims,
            b,
            b_dims,
        };
        self.with_pairs(vec![pair])
    }

    /// The same model with its tied embedding as a head of its own, and the adapter merged into the
    /// embedding alone.
    pub(crate) fn merged_and_untied(&self, adapter: &MadeAdapter) -> Arc<Model> {
        let head = Copied {
            from: "token_embd.weight",
            to: "output.weight",
        };
        self.merged_with(&[(adapter, 1.0)], Some(head))
    }

    fn with_pairs(&self, pairs: Vec<MadePair>) -> MadeAdapter {
        MadeAdapter {
            arch: self.arch.clone(),
            alpha: 6.0,
            pairs,
        }
    }
}

/// A set of adapters by index, with their scales.
pub(crate) fn set(scales: &[(usize, f32)]) -> AdapterSet {
    let mut set = AdapterSet::EMPTY;
    for &(adapter, scale) in scales {
        set.push(AdapterScale { adapter, scale }).unwrap();
    }
    set
}

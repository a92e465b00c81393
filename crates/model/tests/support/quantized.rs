//! Models of quantized matrices: the tiny ones made wider, with blocks of random codes in place of
//! their weights. What such a model says means nothing, but it is computed as that of the files
//! that people have.

use std::sync::Arc;

use atta_formats::{TensorType, Writer, decode, f16::f32_to_f16};
use atta_model::{Model, Placement, Role, TensorReq, arch, spec::Presence};
use atta_store::{Budget, ModelFiles};

use super::Golden;

/// What the matrices of a model are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Blocks {
    /// Blocks of 32 weights, in widths that are no multiples of 256.
    Of32,
    /// Blocks of 256 weights, but of 32 where a width is no multiple of that.
    Of256,
    /// Q4_K and Q6_K, as most files have, but blocks of 32 where a width is no multiple of 256.
    Common,
    /// Blocks of 64 weights with a scale for each 16 of them, and one for each matrix or expert.
    Nvfp4,
}

impl Blocks {
    /// The sizes that are written over those of a tiny model.
    fn sizes(self, is_absorbed: bool) -> [(&'static str, u32); 19] {
        let [d_model, d_ff, d_head, d_expert, d_inner] = match self {
            Self::Of32 => [96, 160, 32, 64, 160],
            Self::Of256 | Self::Common => [256, 512, 64, 256, 256],
            Self::Nvfp4 => [192, 320, 64, 128, 192],
        };
        // Codes of four bits choose other experts and blocks than decoded weights do.
        let n_chosen = if self == Self::Nvfp4 { 1024 } else { 24 };
        // 8 more elements are rotated, beside a latent vector in the absorbed form.
        let d_latent_head = d_head + 8;
        let [d_k, d_v] = match is_absorbed {
            true => [d_inner + 8, d_inner],
            false => [d_head; 2],
        };
        [
            ("context_length", 1024),
            ("embedding_length", d_model),
            ("feed_forward_length", d_ff),
            ("attention.key_length", d_k),
            ("attention.value_length", d_v),
            ("attention.key_length_mla", d_latent_head),
            ("attention.value_length_mla", d_head),
            ("attention.kv_lora_rank", d_inner),
            ("attention.q_lora_rank", d_model),
            ("attention.key_length_swa", d_head),
            ("attention.value_length_swa", d_head),
            ("embedding_length_per_layer_input", d_expert),
            ("laurel.rank", d_expert),
            ("expert_feed_forward_length", d_expert),
            ("expert_shared_feed_forward_length", d_expert),
            ("ssm.inner_size", d_inner),
            ("kda.head_dim", d_expert),
            ("hyper_connection.low_rank", d_expert),
            ("attention.indexer.top_k", n_chosen),
        ]
    }

    /// The width of what the steps of a state space of channels are projected from.
    fn d_rank(self) -> u32 {
        match self {
            Self::Of32 => 96,
            Self::Of256 | Self::Common => 256,
            Self::Nvfp4 => 64,
        }
    }

    /// Different ones for matrices that are multiplied together. Routers too have codes: of floats
    /// they could choose differently on an instruction set that rounds them otherwise.
    fn type_of(self, req: &TensorReq) -> TensorType {
        use TensorType::*;
        let is_wide = self != Self::Of32 && req.shape.last().unwrap().is_multiple_of(256);
        let [of_32, of_256] = match req.role {
            role if role.placement() == Placement::Resident => return F32,
            // What it chooses by codes of four bits is not what it chooses by decoded weights.
            Role::FfnGateInp if self == Self::Nvfp4 => return F32,
            role if self == Self::Nvfp4
                && !matches!(role.placement(), Placement::Embed | Placement::LayerEmbed) =>
            {
                return NVFP4;
            }
            Role::TokenEmbd | Role::PerLayerTokenEmbd | Role::Output => [Q8_0, Q6_K],
            Role::AttnV | Role::FfnDown if self == Self::Common => [Q8_0, Q6_K],
            _ if self == Self::Common => [Q4_0, Q4_K],
            Role::AttnQ | Role::FfnGate | Role::FfnGateShexp => [Q4_0, Q4_K],
            Role::AttnK | Role::FfnUp | Role::FfnUpExps => [Q5_1, Q5_K],
            Role::AttnV | Role::FfnDown | Role::FfnDownExps => [Q5_0, Q6_K],
            Role::AttnOutput | Role::FfnGateExps | Role::FfnDownShexp => [Q4_1, Q3_K],
            Role::FfnUpShexp => [IQ4_NL, Q2_K],
            _ => [IQ4_NL, IQ4_XS],
        };
        if is_wide { of_256 } else { of_32 }
    }
}

/// Where the f16 scales of a block are, and how many times the first each is if weights are to have
/// no mean.
fn scales(ty: TensorType) -> &'static [(usize, f32)] {
    use TensorType::*;
    match ty {
        Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS => &[(0, 1.0)],
        Q4_1 => &[(0, 1.0), (2, -7.5)],
        Q5_1 => &[(0, 1.0), (2, -15.5)],
        Q2_K => &[(80, 1.0), (82, 1.5)],
        Q3_K => &[(108, 1.0)],
        Q4_K => &[(0, 1.0), (2, 7.5)],
        Q5_K => &[(0, 1.0), (2, 15.5)],
        Q6_K => &[(208, 1.0)],
        NVFP4 => &[],
        _ => panic!("{ty} is in no mixture"),
    }
}

/// A seeded stream of numbers (xorshift64*, Vigna 2014).
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    }

    /// The bytes of a tensor: weights of a norm around 1, and of a matrix such that its products
    /// are as large as its inputs.
    fn tensor(&mut self, ty: TensorType, req: &TensorReq) -> Vec<u8> {
        let n: usize = req.shape.iter().product();
        if ty == TensorType::F32 {
            let mean = match req.role {
                // The logarithm of a decay.
                Role::SsmA => -1.0,
                role if role.name().ends_with(".bias") => 0.0,
                _ => 1.0,
            };
            return (0..n)
                .flat_map(|_| (mean + f32::from(self.byte()) / 512.0 - 0.25).to_le_bytes())
                .collect();
        }
        let size = 1.0 / (*req.shape.last().unwrap() as f32).sqrt();
        (0..n / ty.block_len())
            .flat_map(|_| self.block(ty, size))
            .collect()
    }

    /// A block of random codes whose weights are `size` in the mean of squares.
    fn block(&mut self, ty: TensorType, size: f32) -> Vec<u8> {
        let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| self.byte()).collect();
        let mut weights = vec![0.0f32; ty.block_len()];
        set_scales(ty, &mut block, 1.0);
        decode(ty, &block, &mut weights).unwrap();
        let mean_square = weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32;
        set_scales(ty, &mut block, size / mean_square.sqrt());
        block
    }
}

fn set_scales(ty: TensorType, block: &mut [u8], d: f32) {
    if ty == TensorType::NVFP4 {
        // Powers of two, between which a factor of the whole matrix would make the difference.
        let exponent = (2.0 * d).log2().round() as i32 + 7;
        block[..4].fill((exponent.clamp(1, 14) << 3) as u8);
    }
    for &(at, times) in scales(ty) {
        block[at..at + 2].copy_from_slice(&f32_to_f16(d * times).to_le_bytes());
    }
}

/// The factors of a matrix, one or one per expert, if the model is of such.
fn factors(blocks: Blocks, req: &TensorReq) -> Vec<f32> {
    let n = match req.role.placement() {
        Placement::Experts => req.shape[0],
        Placement::Layer(_) | Placement::LastLayer(_) | Placement::Head => 1,
        Placement::Resident | Placement::Embed | Placement::LayerEmbed => 0,
    };
    let factor = |i: usize| 0.5 + (i % 3) as f32 * 0.75;
    (0..if blocks == Blocks::Nvfp4 { n } else { 0 })
        .map(|i| factor(i + req.role as usize))
        .collect()
}

impl Golden {
    /// The same architecture, wider and of other weights; with those optional tensors that the file
    /// has.
    pub(crate) fn quantized(&self, blocks: Blocks) -> Arc<Model> {
        self.made_of(blocks, false)
    }

    /// The model [`Self::quantized`] with its weights decoded, and multiplied by their factors.
    pub(crate) fn decoded(&self, blocks: Blocks) -> Arc<Model> {
        self.made_of(blocks, true)
    }

    fn made_of(&self, blocks: Blocks, is_decoded: bool) -> Arc<Model> {
        let has = |key: &str| self.keys().iter().any(|k| k == key);
        let mut sizes = blocks.sizes(has("attention.key_length_mla")).to_vec();
        // With groups it is a number of heads.
        if has("ssm.time_step_rank") && !has("ssm.group_count") {
            sizes.push(("ssm.time_step_rank", blocks.d_rank()));
        }
        if has("dense_2_feat_in") {
            let (_, d_model) = sizes[1];
            sizes.push(("dense_2_feat_in", d_model));
        }
        let sizes: Vec<_> = sizes
            .iter()
            .map(|(key, size)| (format!("{}.{key}", self.arch), *size))
            .collect();
        let files = self.files();
        let set = |w: &mut Writer| {
            for (key, size) in &sizes {
                // In a list of layers those without stay so.
                match files.directory().metadata().u32s(key) {
                    Ok(Some(list)) => {
                        let list = list.iter().map(|n| n.min(1) as i32 * *size as i32);
                        w.set_i32s(key, &list.collect::<Vec<_>>());
                    }
                    _ => w.set_u32(key, *size),
                }
            }
        };
        let mut reqs = arch::lower(&self.metadata("", set)).unwrap().tensors();
        reqs.retain(|req| {
            req.presence == Presence::Required || files.directory().tensor(&req.name()).is_some()
        });
        let tensors = tensors(&reqs, blocks);
        let tensors = if is_decoded {
            tensors.iter().map(Tensor::decoded).collect()
        } else {
            tensors
        };
        let bytes = file(self.writer("", set), &tensors);
        let files = ModelFiles::from_static(&self.name, bytes.leak()).unwrap();
        Arc::new(Model::load(files, &Budget::unlimited()).unwrap())
    }
}

/// A tensor of a made-up file, and the factors that the file has for it.
struct Tensor {
    name: String,
    dims: Vec<u64>,
    ty: TensorType,
    bytes: Vec<u8>,
    factors: Vec<f32>,
}

impl Tensor {
    /// The same weights as floats, with the factors in them.
    fn decoded(&self) -> Self {
        let mut weights = vec![0.0; self.dims.iter().product::<u64>() as usize];
        decode(self.ty, &self.bytes, &mut weights).unwrap();
        let of_factor = weights.len() / self.factors.len().max(1);
        for (weights, factor) in weights.chunks_mut(of_factor).zip(&self.factors) {
            weights.iter_mut().for_each(|w| *w *= factor);
        }
        Self {
            name: self.name.clone(),
            dims: self.dims.clone(),
            ty: TensorType::F32,
            bytes: weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
            factors: Vec::new(),
        }
    }

    /// The tensor that holds the factors.
    fn scale(&self) -> Option<Self> {
        let stem = self.name.strip_suffix("weight")?;
        (!self.factors.is_empty()).then(|| Self {
            name: format!("{stem}scale"),
            dims: vec![self.factors.len() as u64],
            ty: TensorType::F32,
            bytes: self.factors.iter().flat_map(|f| f.to_le_bytes()).collect(),
            factors: Vec::new(),
        })
    }
}

fn tensors(reqs: &[TensorReq], blocks: Blocks) -> Vec<Tensor> {
    let mut random = Random(1);
    // The name of a router's factor may be that of the norm of its inputs.
    let has_norm = reqs.iter().any(|req| req.role == Role::FfnGateInpScale);
    let tensor = |req: &TensorReq| {
        let ty = blocks.type_of(req);
        Tensor {
            name: req.name(),
            dims: req.shape.iter().map(|&d| d as u64).collect(),
            ty,
            bytes: random.tensor(ty, req),
            factors: match has_norm && req.role == Role::FfnGateInp {
                true => Vec::new(),
                false => factors(blocks, req),
            },
        }
    };
    reqs.iter().map(tensor).collect()
}

fn file(mut w: Writer, tensors: &[Tensor]) -> Vec<u8> {
    let scales: Vec<Tensor> = tensors.iter().filter_map(Tensor::scale).collect();
    let all = || tensors.iter().chain(&scales);
    for tensor in all() {
        w.add_tensor(&tensor.name, &tensor.dims, tensor.ty).unwrap();
    }
    let layout = w.finish().unwrap();
    let mut bytes = layout.header;
    for (tensor, info) in all().zip(&layout.tensors) {
        bytes.resize(info.offset as usize, 0);
        bytes.extend(&tensor.bytes);
    }
    bytes.resize(layout.file_bytes as usize, 0);
    bytes
}

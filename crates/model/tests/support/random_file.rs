//! A model file of random weights for any spec, for mechanisms that no architecture has yet. The
//! tests of *engine* use it, too.

use atta_formats::{TensorType, Writer};
use atta_model::{TensorReq, spec::ModelSpec};

/// A file with the tensors of a spec, all in f32.
pub(crate) fn random_file(spec: &ModelSpec) -> Vec<u8> {
    let reqs = spec.tensors();
    let mut writer = Writer::new();
    for req in &reqs {
        let dims: Vec<u64> = req.shape.iter().map(|&d| d as u64).collect();
        writer
            .add_tensor(&req.name(), &dims, TensorType::F32)
            .unwrap();
    }
    let layout = writer.finish().unwrap();
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut bytes = layout.header;
    for (req, info) in reqs.iter().zip(&layout.tensors) {
        bytes.resize(info.offset as usize, 0);
        let n: usize = req.shape.iter().product();
        (0..n).for_each(|_| bytes.extend(weight(req, random()).to_le_bytes()));
    }
    bytes.resize(layout.file_bytes as usize, 0);
    bytes
}

/// A weight from a number between -1 and 1: around 1 for norms, and such that products of matrices
/// are as large as their inputs.
fn weight(req: &TensorReq, x: f32) -> f32 {
    match req.shape[..] {
        [_] if req.role.name().ends_with("bias") => 0.1 * x,
        [_] => 1.0 + 0.25 * x,
        _ => x * (3.0 / *req.shape.last().unwrap() as f32).sqrt(),
    }
}

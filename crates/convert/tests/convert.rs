//! Converted files have the bytes that the quantizers make, for single matrices and for experts;
//! failed conversions leave no file, and stopped ones none of the final name.

#[allow(dead_code, reason = "shared with other tests")]
mod temp_dir;

use std::{ops::ControlFlow, sync::Arc};

use atta_convert::{
    Checkpoint, ConvertOptions, Error, ImportanceMatrix, MappedRows, Tensor, TypeSelection,
    convert, gguf, quantize::quantize,
};
use atta_formats::{TensorType, Writer};
use temp_dir::TempDir;

const NAME: &str = "blk.0.ffn_up_exps.weight";

/// A checkpoint of one F32 tensor.
fn checkpoint(name: &str, dims: &[u64], weights: &[f32]) -> Checkpoint {
    let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    let rows = MappedRows::new(Arc::new(bytes), 0, dims, TensorType::F32).unwrap();
    let tensor = Tensor {
        name: name.to_owned(),
        dims: dims.to_vec(),
        ty: TensorType::F32,
        rows: Box::new(rows),
    };
    let mut metadata = Writer::new();
    metadata.set_str("general.architecture", "llama");
    Checkpoint {
        metadata,
        tensors: vec![tensor],
        files: Vec::new(),
    }
}

fn options(ty: TensorType) -> ConvertOptions {
    let overrides = vec![(".".parse().unwrap(), ty)];
    ConvertOptions {
        types: TypeSelection {
            overrides,
            ..TypeSelection::default()
        },
        n_threads: 3,
        ..ConvertOptions::default()
    }
}

fn on(_: atta_convert::Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn weights(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * i % 97) as f32 - 48.0) / 300.0)
        .collect()
}

#[test]
fn experts_are_quantized_with_an_importance_of_their_own() {
    let scratch = TempDir::new("experts");
    let dims = [3, 700, 256];
    let d = 256;
    let weights = weights(3 * 700 * d);
    let mut importance = ImportanceMatrix::default();
    let columns = |x: usize| {
        (0..d)
            .map(move |j| if j % 3 == x { 9.0 } else { 0.1 })
            .collect::<Vec<f32>>()
    };
    (0..3).for_each(|x| importance.entry_mut(NAME).add_expert(x, 3, &columns(x), d));
    let options = ConvertOptions {
        importance: Some(importance.clone()),
        ..options(TensorType::Q4_K)
    };
    let path = scratch.file("a.gguf");
    convert(&checkpoint(NAME, &dims, &weights), &path, &options, &mut on).unwrap();

    let written = gguf::open(&path).unwrap();
    let all = importance.entry(NAME).unwrap().weights();
    let mut want = vec![0; 3 * 700 * 144];
    for (x, out) in want.chunks_mut(700 * 144).enumerate() {
        let from = x * 700 * d;
        let to = (x + 1) * 700 * d;
        quantize(
            TensorType::Q4_K,
            &weights[from..to],
            d,
            Some(&all[x * d..(x + 1) * d]),
            out,
        )
        .unwrap();
    }
    assert!(written.tensors[0].rows.stored().unwrap() == want);
}

#[test]
fn a_weight_that_overflows_the_scales_of_a_type_is_refused() {
    let scratch = TempDir::new("large");
    let mut weights = weights(512);
    weights[300] = 1e6;
    let checkpoint = checkpoint("blk.0.ffn_up.weight", &[2, 256], &weights);
    let path = scratch.file("a.gguf");
    let error = convert(&checkpoint, &path, &options(TensorType::F16), &mut on).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("blk.0.ffn_up.weight: a weight of 1000000 is too large for F16"),
        "{error}"
    );
    assert_eq!(scratch.names().len(), 0);
    convert(&checkpoint, &path, &options(TensorType::Q8_0), &mut on).unwrap();
}

#[test]
fn a_stopped_conversion_leaves_no_file_of_the_final_name() {
    let scratch = TempDir::new("stop");
    let checkpoint = checkpoint("blk.0.ffn_up.weight", &[2, 256], &weights(512));
    let stop = &mut |_: atta_convert::Progress<'_>| ControlFlow::Break(());
    let path = scratch.file("a.gguf");
    let stopped = convert(&checkpoint, &path, &options(TensorType::Q8_0), stop);
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert!(!path.exists());
    convert(&checkpoint, &path, &options(TensorType::Q8_0), &mut on).unwrap();
    assert_eq!(scratch.names().len(), 1);
}

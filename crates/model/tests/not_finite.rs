//! Damaged weights: whatever matrix they are in, a step says that it has computed no numbers.

mod support;

use std::sync::Arc;

use atta_formats::TensorType;
use atta_model::{Batch, Error, Executor, KvType, Model, Output, Want};
use atta_store::{Budget, ModelFiles};
use support::{cpu, golden, goldens};

/// The first row that is not finite, of a few tokens with a model in whose file these bytes are
/// written; 0 if the file is refused, as one is with NaN in a tensor that is read at load.
fn first_not_finite(
    file: &[u8],
    tokens: &[u32],
    kv: KvType,
    changes: &[(u64, &[u8])],
) -> Option<usize> {
    let mut bytes = file.to_vec();
    for (at, new) in changes {
        bytes[*at as usize..][..new.len()].copy_from_slice(new);
    }
    let files = ModelFiles::from_static("model.gguf", bytes.leak()).unwrap();
    let model = match Model::load(files, &Budget::unlimited()) {
        Err(Error::Value { .. }) => return Some(0),
        model => Arc::new(model.unwrap()),
    };
    let mut cpu = cpu(&model, 1, kv);
    let seq = cpu.new_seq().unwrap();
    let mut batch = Batch::default();
    let mut out = Output::default();
    for (pos, &id) in tokens.iter().enumerate() {
        batch.push_token(
            seq,
            pos,
            id,
            if pos + 1 == tokens.len() {
                Want::Logits
            } else {
                Want::Nothing
            },
        );
    }
    cpu.step(&batch, &mut out).unwrap();
    out.first_not_finite(0..tokens.len())
}

#[test]
fn nan_in_any_matrix_reaches_the_result() {
    for g in goldens() {
        let file = g.bytes();
        let files = g.files();
        let matrices = files
            .directory()
            .tensors()
            .iter()
            // An indexer that would choose all positions is not computed.
            .filter(|t| t.shape.dims().len() > 1 && !t.name.contains(".indexer."));
        for t in matrices.filter(|t| t.ty == TensorType::F32) {
            // All rows of the table of tokens, so that the tokens of the text are among them; of
            // experts, all.
            let nan: Vec<u8> = f32::NAN.to_le_bytes().repeat(t.n_bytes as usize / 4);
            for kv in [KvType::F16, KvType::F32] {
                let found = first_not_finite(&file, &g.tokens[..4], kv, &[(t.offset, &nan)]);
                assert!(found.is_some(), "{}: {}", g.name, t.name);
            }
        }
        assert_eq!(
            first_not_finite(&file, &g.tokens[..4], KvType::F16, &[]),
            None,
            "{}",
            g.name
        );
    }
}

#[test]
fn a_damaged_row_of_the_table_is_found_at_its_token() {
    let g = golden("llama-plain");
    let file = g.bytes();
    let files = g.files();
    let table = files.directory().tensor("token_embd.weight").unwrap();
    let tokens = [5, 6, 7, 8];
    let row = 4 * table.shape.dims()[1];
    let found = first_not_finite(
        &file,
        &tokens,
        KvType::F16,
        &[(table.offset + 7 * row, &f32::NAN.to_le_bytes())],
    );
    assert_eq!(found, Some(2));
}

#[test]
fn a_residual_whose_squares_overflow_is_not_finite() {
    let g = golden("llama-plain");
    let file = g.bytes();
    let files = g.files();
    let t = files.directory().tensor("blk.0.ffn_down.weight").unwrap();
    let found = first_not_finite(
        &file,
        &g.tokens[..4],
        KvType::F16,
        &[(t.offset, &1e30f32.to_le_bytes())],
    );
    assert!(found.is_some());
}

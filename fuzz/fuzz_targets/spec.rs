//! Arbitrary bytes as the metadata of a model, or of a draft head: an accepted spec can be planned,
//! its ropes give finite angles, and the layers that its measurements name can be left out.
#![no_main]

use atta_formats::{Gguf, SharedBytes};
use atta_model::{KvElem, KvType, Sensitivity, arch, parse_guessed, spec::Factors};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The most ropes checked per input, so that one with thousands of layers does not take long.
const MAX_ROPES: usize = 8;

fuzz_target!(|file: &[u8]| {
    let shared: SharedBytes = Arc::new(file.to_vec());
    // The bytes as the beginning of a longer file, so that no tensor data is needed.
    let Ok(header) = Gguf::parse(shared, (file.len() as u64).saturating_mul(1000)) else {
        return;
    };
    // The bytes are a list of tokens, too.
    if let Ok(ids) = parse_guessed(file, 1 << 16) {
        assert!(ids.iter().all(|&id| id < 1 << 16));
    }
    let heads = [
        arch::lower_draft_head(&header.metadata, Some(file.len().max(1))),
        arch::lower_nextn(&header.metadata),
    ];
    for head in heads.into_iter().flatten() {
        head.check().expect("what was lowered was checked");
        let tensors = head.tensors();
        assert!(tensors.iter().all(|req| req.shape.iter().all(|&d| d > 0)));
    }
    let Ok(spec) = arch::lower(&header.metadata) else {
        return;
    };
    spec.check().expect("what was lowered was checked");
    for req in spec.tensors() {
        assert!(req.shape.iter().all(|&d| d > 0), "{req:?}");
        // Of experts, the rows of each.
        let rows = req.shape[req.shape.len().saturating_sub(2)];
        assert!(
            req.fused_in
                .as_ref()
                .is_none_or(|fused| fused.rows.end <= fused.n_rows && fused.rows.len() == rows)
        );
    }
    let kv = KvType {
        k: KvElem::F16,
        v: KvElem::F32,
        ..KvType::default()
    };
    assert_eq!(spec.state_bytes(kv, 1 << 20).len(), spec.layers.len());
    if let Ok(Some(measured)) = Sensitivity::read(&header.metadata, &spec) {
        let layers: Vec<usize> = measured.layers.iter().map(|step| step.to).collect();
        let mut less = spec.clone();
        less.leave_out(&layers)
            .expect("measured layers can be left out");
        less.check().expect("a model in part is a model");
    }
    for a in spec.attentions().take(MAX_ROPES) {
        assert!(a.first_visible(1 << 20) <= 1 << 20);
        assert!(a.temperature.is_none_or(|t| !t.at(1 << 20).is_nan()));
        for n_ctx in [1, 4096, 1 << 20] {
            let angles = a
                .rope
                .iter()
                .flat_map(|rope| rope.inv_freq(Factors::default(), n_ctx));
            angles.for_each(|angle| assert!(angle.is_finite(), "{:?}", a.rope));
        }
    }
});

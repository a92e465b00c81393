//! QSF files run as they are: against logits that a script computed from the plan's layout, and
//! from memory and from the disk alike. See `tests/oracles/qsf_golden.py`.

mod support;

use std::{path::PathBuf, sync::Arc};

use atta_model::{Model, oracle};
use atta_store::{Budget, ModelFiles};
use support::{bits, forward, nmse};

const TOKENS: [u32; 4] = [1, 5, 32, 7];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/qsf")
        .join(name)
}

fn files() -> ModelFiles {
    ModelFiles::open(&golden("plain.qsf")).unwrap()
}

fn model() -> Arc<Model> {
    Arc::new(Model::load(files(), &Budget::unlimited()).unwrap())
}

#[test]
fn a_plain_file_has_the_logits_that_the_script_computed() {
    let bytes = std::fs::read(golden("plain.logits")).unwrap();
    let want: Vec<f32> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect();
    let model = model();
    let by_oracle = nmse(&oracle::logits(&model, &TOKENS).unwrap(), &want);
    assert!(by_oracle < 1e-10, "{by_oracle:e}");
    let by_forward = nmse(&forward(&model, &TOKENS), &want);
    assert!(by_forward < 1e-3, "{by_forward:e}");
}

#[test]
fn a_file_that_is_not_mapped_has_the_same_tensors() {
    let mapped = files();
    let read = files().unmapped(&Budget::unlimited()).unwrap();
    assert_eq!(mapped.directory().tensors(), read.directory().tensors());
    let keys = |files: &ModelFiles| -> Vec<String> {
        let keys = files.directory().metadata().iter();
        keys.map(|(key, value)| format!("{key} {value}")).collect()
    };
    assert_eq!(keys(&mapped), keys(&read));
    let model = Arc::new(Model::load(read, &Budget::unlimited()));
    drop(model);
    let budget = Budget::unlimited();
    budget.set_limit(64);
    assert!(files().unmapped(&budget).is_err());
    let again = bits(&forward(&self::model(), &TOKENS));
    assert_eq!(again, bits(&forward(&self::model(), &TOKENS)));
}

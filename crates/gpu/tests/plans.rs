//! How models are divided, without a driver.

use std::path::Path;

use atta_gpu::{GpuPlan, GpuWish};
use atta_model::spec::{Ffn, ModelSpec};
use atta_model::{ExecutorSize, KvType, arch};
use atta_store::ModelFiles;

fn plan(name: &str, wish: &GpuWish) -> Result<GpuPlan, String> {
    plan_of(name, wish, |_| {})
}

/// The plan of a tiny model whose spec is changed.
fn plan_of(
    name: &str,
    wish: &GpuWish,
    change: impl FnOnce(&mut ModelSpec),
) -> Result<GpuPlan, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models");
    let files = ModelFiles::open(&folder.join(format!("{name}.gguf"))).unwrap();
    let size = ExecutorSize {
        n_ctx: 64,
        n_batch: 8,
        kv: KvType::F16,
        ..ExecutorSize::default()
    };
    let mut spec = arch::lower(files.directory().metadata()).unwrap();
    change(&mut spec);
    let plan = GpuPlan::of(&spec, files.directory(), wish, &size);
    plan.map_err(|error| error.to_string())
}

#[test]
fn all_layers_are_on_the_gpu_unless_fewer_are_wanted() {
    let all = plan("llama-plain", &GpuWish::default()).unwrap();
    assert_eq!(all.share.n_layers, all.n_layers);
    let some = GpuWish {
        n_layers: Some(1),
        max_bytes: None,
    };
    let some = plan("llama-plain", &some).unwrap();
    assert_eq!(some.share.n_layers, 1);
    assert!(some.bytes < all.bytes);
}

#[test]
fn a_budget_takes_as_many_layers_as_fit() {
    let all = plan("llama-plain", &GpuWish::default()).unwrap();
    let within = |max_bytes| {
        let wish = GpuWish {
            n_layers: None,
            max_bytes: Some(max_bytes),
        };
        plan("llama-plain", &wish).unwrap()
    };
    assert_eq!(within(all.bytes), all);
    let fewer = within(all.bytes - 1);
    assert_eq!(fewer.share.n_layers, all.n_layers - 1);
    assert!(fewer.bytes < all.bytes);
}

#[test]
fn layers_before_one_that_kernels_lack_stay_on_the_cpu() {
    let with_many_experts = |spec: &mut ModelSpec| {
        if let Ffn::Moe(experts) = &mut spec.layers[0].ffn {
            experts.n_used = 65;
        }
    };
    let plan = plan_of("mixtral", &GpuWish::default(), with_many_experts).unwrap();
    assert_eq!(plan.share.n_layers, plan.n_layers - 1);
    let why = plan.why_not_more.unwrap();
    assert!(why.contains("layer 0 has more than 64 experts"), "{why}");
}

#[test]
fn what_kernels_lack_is_named() {
    for (name, what) in [
        ("bert", "it is an encoder"),
        ("gemma3n", "it has several residual streams"),
    ] {
        let why = plan(name, &GpuWish::default()).unwrap_err();
        assert!(why.contains(what), "{name}: {why}");
    }
    let too_many = GpuWish {
        n_layers: Some(99),
        max_bytes: None,
    };
    let why = plan("llama-plain", &too_many).unwrap_err();
    assert!(why.contains("99 layers"), "{why}");
}

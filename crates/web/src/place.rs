//! The last layers of a model on the page's GPU.
//!
//! Knows no page: the device is opened by [`PageHost`], how a model is divided is a matter of
//! atta-gpu. What cannot run there is an error in words, and the page decides whether the CPU alone
//! will do.

use std::sync::Arc;

use atta_engine::{Budget, LoadOptions, ModelFiles, arch};
use atta_gpu::{GpuBackend, GpuPlan, GpuWish, OpenGpu, SharedHost};
use serde_json::{Map, Value, json};

use crate::{gpu::PageHost, ranges::Page};

/// What the page wants to lie on the GPU.
pub(crate) fn wish(json: &[u8]) -> Result<GpuWish, String> {
    let fields: Map<String, Value> =
        serde_json::from_slice(json).map_err(|error| format!("gpu: {error}"))?;
    let number = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) => Ok(Some(n)),
            None => Err(format!("gpu: {name} is {value}, expected a whole number")),
        },
    };
    Ok(GpuWish {
        n_layers: number("layers")?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        max_bytes: number("bytes")?,
    })
}

/// The options with the page's GPU beside the CPU as the backend.
///
/// # Errors
/// No GPU, a model that it cannot run, or that is larger than its budget, in words.
pub(crate) fn placed(
    files: &ModelFiles,
    options: LoadOptions,
    wish: &GpuWish,
) -> Result<LoadOptions, String> {
    let plan = plan(files, &options, wish)?;
    let told = json!({
        "layers": plan.share.n_layers,
        "nLayers": plan.n_layers,
        "bytes": plan.bytes,
    });
    let max_bytes = wish.max_bytes.unwrap_or(u64::MAX);
    let opener = move || {
        let host = PageHost::open(Page)?;
        host.tell(&told);
        Ok(OpenGpu {
            host: SharedHost::new(host),
            budget: Budget::limited(max_bytes),
        })
    };
    // The page's statistics have no GPU from then on.
    let on_fallback = |_: &_| {};
    let pool = options.open_pool().map_err(|error| error.to_string())?;
    let kernels = options.kernels().map_err(|error| error.to_string())?;
    let threads = Arc::clone(&pool);
    let backend = GpuBackend::new(
        Box::new(opener),
        kernels,
        threads,
        plan,
        Box::new(on_fallback),
    );
    let backend = backend.map_err(|error| error.to_string())?;
    Ok(LoadOptions {
        backend: Some(Arc::new(backend)),
        pool: Some(pool),
        ..options
    })
}

fn plan(files: &ModelFiles, options: &LoadOptions, wish: &GpuWish) -> Result<GpuPlan, String> {
    let directory = files.directory();
    let spec = arch::lower(directory.metadata()).map_err(|error| error.to_string())?;
    let size = options.session.executor_size(&spec);
    let plan = GpuPlan::of(&spec, directory, wish, &size).map_err(|error| error.to_string())?;
    match wish.max_bytes.filter(|&most| plan.bytes > most) {
        None => Ok(plan),
        Some(most) => Err(format!(
            "{} layers and the head need {} bytes on the GPU, gpuBudget is {most}",
            plan.share.n_layers, plan.bytes
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_has_layers_and_bytes_or_is_an_error_in_words() {
        let both = wish(br#"{"layers": 3, "bytes": 5000000000}"#).unwrap();
        assert_eq!(
            (both.n_layers, both.max_bytes),
            (Some(3), Some(5_000_000_000))
        );
        assert_eq!(wish(br#"{"layers": null}"#).unwrap(), GpuWish::default());
        for json in ["", "[]", r#"{"layers": -1}"#, r#"{"bytes": "1"}"#] {
            let error = wish(json.as_bytes()).unwrap_err();
            assert!(error.starts_with("gpu: "), "{error}");
        }
    }
}

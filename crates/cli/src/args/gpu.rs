//! The options for running a model on a GPU.

use clap::Args;

#[cfg(any(feature = "gpu", feature = "cli-extras"))]
use super::value;

/// How much of a model runs on a GPU. Small builds have no such options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "GPU")]
pub(crate) struct GpuFlags {
    /// Run the last layers and the head on a GPU: its number or a part of its name, as `atta doctor
    /// --gpu` shows them; auto: the best one if it is faster than the CPU, which a few layers of
    /// the model are measured for, else the CPU alone, with the reason; off: the CPU alone
    /// [default: off]
    #[cfg(any(feature = "gpu", feature = "cli-extras"))]
    #[arg(long, value_name = "auto|off|INDEX|NAME")]
    pub(crate) gpu: Option<String>,
    /// Number of layers on the GPU, the last ones of the model; auto: all, or as many as
    /// --gpu-budget or the GPU has room for [default: auto]
    #[cfg(any(feature = "gpu", feature = "cli-extras"))]
    #[arg(long, value_name = "N|auto", requires = "gpu", value_parser = layers)]
    pub(crate) gpu_layers: Option<GpuLayers>,
    /// Memory limit on the GPU for all models, such as 6G [default: what the driver grants]
    #[cfg(any(feature = "gpu", feature = "cli-extras"))]
    #[arg(long, value_name = "SIZE", requires = "gpu", value_parser = value::size_or_0)]
    pub(crate) gpu_budget: Option<u64>,
}

/// Layers on a GPU.
#[cfg(any(feature = "gpu", feature = "cli-extras"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuLayers {
    /// As many as there is room for.
    Auto,
    /// So many.
    Count(usize),
}

#[cfg(any(feature = "gpu", feature = "cli-extras"))]
fn layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" => Ok(GpuLayers::Auto),
        _ => match text.parse() {
            Ok(n) => Ok(GpuLayers::Count(n)),
            Err(_) => Err("expected a number of layers, or auto".to_owned()),
        },
    }
}

impl GpuFlags {
    /// The GPU that is wanted; `None`: none.
    #[cfg(any(feature = "gpu", feature = "cli-extras"))]
    pub(crate) fn wanted(&self) -> Option<&str> {
        self.gpu.as_deref().filter(|name| *name != "off")
    }

    /// The GPU that is wanted: none.
    #[cfg(not(any(feature = "gpu", feature = "cli-extras")))]
    #[expect(clippy::unused_self, reason = "other builds have flags")]
    pub(crate) fn wanted(&self) -> Option<&str> {
        None
    }
}

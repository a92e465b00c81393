//! `--gpu`: runs the last layers of a model on a GPU, and says so before.
//!
//! It knows the names of GPUs and how much of a model a user wants there; how a model is divided
//! is a matter of atta-gpu. A program that plays a GPU is taken only if it is asked for by name.

use std::{path::Path, sync::Arc};

use atta::LoadOptions;
use atta_gpu::{GpuBackend, GpuKind, GpuPlan, GpuWish, HostInfo, NativeHost, SharedHost};

use crate::{
    args::{GpuFlags, gpu::GpuLayers},
    failure::{Failure, one_line},
    load,
    report::{bytes, say},
};

/// The options with a GPU beside the CPU as the backend, if one is wanted.
///
/// # Errors
/// A GPU that is not there, or a model that GPUs cannot run, unless the wish was `auto`.
pub(crate) fn plan(
    model: Option<&Path>,
    flags: &GpuFlags,
    options: LoadOptions,
) -> Result<LoadOptions, Failure> {
    let Some(name) = flags.wanted() else {
        return Ok(options);
    };
    refuse_others(&options)?;
    let divided = choose(name).and_then(|(index, info)| {
        let plan = divide(model, flags, &options)?;
        Ok((index, info, plan))
    });
    match divided {
        Ok((index, info, plan)) => open(index, &info, &plan, flags, options),
        Err(Failure::Failed(why)) if name == "auto" => {
            say(&format!("atta: gpu: {why}; running on the CPU"));
            Ok(options)
        }
        Err(failure) => Err(failure),
    }
}

/// Refuses what only the CPU can do.
fn refuse_others(options: &LoadOptions) -> Result<(), Failure> {
    let refuse = |what: &str| Err(Failure::Usage(format!("--gpu does not work with {what}")));
    match options {
        _ if options.backend.is_some() => refuse("--ring"),
        _ if !options.reduction.is_whole() => refuse("--quality and --experts"),
        _ => Ok(()),
    }
}

/// The number of the GPU that is wanted.
fn choose(name: &str) -> Result<(usize, HostInfo), Failure> {
    let adapters = NativeHost::adapters();
    let found = match (name, name.parse()) {
        ("auto", _) => best(&adapters),
        (_, Ok(index)) => Some(index).filter(|&index| index < adapters.len()),
        _ => {
            let name = name.to_lowercase();
            let has = |info: &HostInfo| info.name.to_lowercase().contains(&name);
            adapters.iter().position(has)
        }
    };
    match found {
        Some(index) => Ok((index, adapters[index].clone())),
        None if name == "auto" => Err(Failure::Failed(
            "there is no GPU".to_owned() + &names(&adapters),
        )),
        None => Err(Failure::Failed(format!(
            "there is no GPU {}{}",
            one_line(name),
            names(&adapters)
        ))),
    }
}

/// The first GPU with memory of its own, else the first other one that is no program.
fn best(adapters: &[HostInfo]) -> Option<usize> {
    let of = |wanted: &dyn Fn(GpuKind) -> bool| adapters.iter().position(|info| wanted(info.kind));
    let discrete = of(&|kind| kind == GpuKind::Discrete);
    discrete.or_else(|| of(&|kind| kind != GpuKind::Software))
}

/// The GPUs that are there, for an error.
fn names(adapters: &[HostInfo]) -> String {
    let names = adapters.iter().enumerate().map(|(i, info)| {
        let kind = match info.kind {
            GpuKind::Software => ", a program that plays one",
            _ => "",
        };
        format!("{i} ({}{kind})", one_line(&info.name))
    });
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" among {}", names.join(", ")),
    }
}

/// How much of the model lies on the GPU.
fn divide(
    model: Option<&Path>,
    flags: &GpuFlags,
    options: &LoadOptions,
) -> Result<GpuPlan, Failure> {
    let files = load::files(model)?;
    let wish = GpuWish {
        n_layers: match flags.gpu_layers {
            None | Some(GpuLayers::Auto) => None,
            Some(GpuLayers::Count(n)) => Some(n),
        },
        max_bytes: flags.gpu_budget,
    };
    let size = |spec: &_| options.session.executor_size(spec);
    let plan = GpuPlan::of(files.directory(), &wish, size).map_err(failed)?;
    match flags.gpu_budget.filter(|&most| plan.bytes > most) {
        None => Ok(plan),
        Some(most) => Err(Failure::Failed(format!(
            "{} layers and the head need {} on the GPU, --gpu-budget is {}",
            plan.share.n_layers,
            bytes(plan.bytes),
            bytes(most)
        ))),
    }
}

fn open(
    index: usize,
    info: &HostInfo,
    plan: &GpuPlan,
    flags: &GpuFlags,
    options: LoadOptions,
) -> Result<LoadOptions, Failure> {
    let opener = move || Ok(SharedHost::new(NativeHost::open(index)?));
    say(&format!(
        "atta: gpu: {}, {}: {} of {} layers and the head, {}",
        one_line(&info.name),
        info.interface,
        plan.share.n_layers,
        plan.n_layers,
        bytes(plan.bytes)
    ));
    let pool = options.open_pool()?;
    let max_bytes = flags.gpu_budget.unwrap_or(u64::MAX);
    let kernels = options.kernels()?;
    let threads = Arc::clone(&pool);
    let backend = GpuBackend::new(Box::new(opener), kernels, threads, plan.share, max_bytes);
    let backend = backend.map_err(failed)?;
    Ok(LoadOptions {
        backend: Some(Arc::new(backend)),
        pool: Some(pool),
        ..options
    })
}

fn failed(error: atta_gpu::Error) -> Failure {
    Failure::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: GpuKind) -> HostInfo {
        HostInfo {
            name: format!("{kind:?}"),
            interface: "Vulkan",
            driver: String::new(),
            kind,
            buffer_bytes: 1 << 30,
            subgroup: [8, 8],
        }
    }

    #[test]
    fn the_best_gpu_has_memory_of_its_own_and_is_no_program() {
        let of = |kinds: &[GpuKind]| {
            let adapters: Vec<HostInfo> = kinds.iter().map(|kind| info(*kind)).collect();
            best(&adapters)
        };
        use GpuKind::{Discrete, Integrated, Software};
        assert_eq!(of(&[Software, Integrated, Discrete]), Some(2));
        assert_eq!(of(&[Software, Integrated]), Some(1));
        assert_eq!(of(&[Software]), None);
    }
}

//! `--gpu`: runs the last layers of a model on a GPU, and says so before.
//!
//! It knows the names of GPUs and how much of a model a user wants there; how a model is divided
//! is a matter of atta-gpu. A software GPU is taken only if it is asked for by name.

use std::{path::Path, sync::Arc};

use atta::{LoadOptions, arch, system};
use atta_gpu::{
    GpuBackend, GpuKind, GpuPlan, GpuWish, Gpus, HostInfo, NativeHost, OpenGpu, Trial, TrialResult,
};

use crate::{
    args::{GpuFlags, gpu::GpuLayers},
    failure::{Failure, one_line},
    load,
    report::{bytes, say},
};

/// The part of free memory that is planned with where nothing else limits it, in percent.
const ROOM_PERCENT: u64 = 80;

/// Divides the models of a process between the CPU and its GPUs; each GPU is opened once.
pub(crate) struct GpuPlanner {
    gpus: Arc<Gpus>,
    n_models: u64,
}

/// A model, and the options that it is loaded with.
struct Wanted<'a> {
    model: Option<&'a Path>,
    flags: &'a GpuFlags,
    options: &'a LoadOptions,
}

/// Whether `auto` measures, or takes the GPU that is there.
#[derive(Clone, Copy, PartialEq)]
enum Auto {
    Measured,
    Assumed,
}

impl GpuPlanner {
    /// For so many models, among which memory of GPUs is divided.
    pub(crate) fn new(n_models: usize) -> Self {
        Self {
            gpus: Arc::default(),
            n_models: n_models.max(1) as u64,
        }
    }

    /// The options with a GPU beside the CPU as the backend, if one is wanted.
    ///
    /// # Errors
    /// A GPU that is not there, or a model that GPUs cannot run, unless the wish was `auto`.
    pub(crate) fn plan(
        &self,
        model: Option<&Path>,
        flags: &GpuFlags,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        self.plan_by(model, flags, options, Auto::Measured)
    }

    /// The same for a model that is not loaded: `auto` is the best GPU, and nothing is measured.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub(crate) fn outline(
        &self,
        model: Option<&Path>,
        flags: &GpuFlags,
        options: LoadOptions,
    ) -> Result<LoadOptions, Failure> {
        self.plan_by(model, flags, options, Auto::Assumed)
    }

    fn plan_by(
        &self,
        model: Option<&Path>,
        flags: &GpuFlags,
        options: LoadOptions,
        auto: Auto,
    ) -> Result<LoadOptions, Failure> {
        let Some(name) = flags.wanted() else {
            return Ok(options);
        };
        refuse_others(&options)?;
        let wanted = Wanted {
            model,
            flags,
            options: &options,
        };
        match self.on_gpu(name, &wanted, auto) {
            Ok(divided) => Ok(divided),
            Err(Failure::Failed(why)) if name == "auto" => {
                say(&format!("atta: gpu: {why}; running on the CPU"));
                Ok(options)
            }
            Err(failure) => Err(failure),
        }
    }

    fn on_gpu(&self, name: &str, wanted: &Wanted<'_>, auto: Auto) -> Result<LoadOptions, Failure> {
        let (index, info) = choose(name)?;
        let max_bytes = wanted.flags.gpu_budget.unwrap_or(u64::MAX);
        let gpu = self.gpus.open(index, max_bytes).map_err(failed)?;
        let files = load::files(wanted.model)?;
        let spec = arch::lower(files.directory().metadata());
        let spec = spec.map_err(|error| Failure::Failed(error.to_string()))?;
        let size = wanted.options.session.executor_size(&spec);
        let plan = self.divide(&gpu, wanted.flags, |wish| {
            GpuPlan::of(&spec, files.directory(), wish, &size).map_err(failed)
        })?;
        let pool = wanted.options.open_pool()?;
        let kernels = wanted.options.kernels()?;
        if name == "auto" && auto == Auto::Measured {
            let trial = Trial {
                gpu: &gpu,
                spec: &spec,
                files: &files,
                plan: &plan,
                size: &size,
                kernels,
                pool: Arc::clone(&pool),
            };
            judge(&info, &trial.run().map_err(failed)?)?;
        }
        say_plan(&info, &plan);
        let gpus = Arc::clone(&self.gpus);
        let opener = Box::new(move || gpus.open(index, max_bytes));
        let threads = Arc::clone(&pool);
        let on_fallback = |loss: &_| say(&format!("atta: gpu: {loss}; going on with the CPU"));
        let backend = GpuBackend::new(opener, kernels, threads, plan, Box::new(on_fallback));
        Ok(LoadOptions {
            backend: Some(Arc::new(backend.map_err(failed)?)),
            pool: Some(pool),
            ..wanted.options.clone()
        })
    }

    /// How much of the model lies on the GPU: what `plan` makes of a wish.
    fn divide(
        &self,
        gpu: &OpenGpu,
        flags: &GpuFlags,
        plan: impl Fn(&GpuWish) -> Result<GpuPlan, Failure>,
    ) -> Result<GpuPlan, Failure> {
        let n_layers = match flags.gpu_layers {
            None | Some(GpuLayers::Auto) => None,
            Some(GpuLayers::Count(n)) => Some(n),
        };
        let within = |max_bytes| {
            plan(&GpuWish {
                n_layers,
                max_bytes,
            })
        };
        let of_each = |all: u64| all / self.n_models;
        if let Some(most) = flags.gpu_budget.map(of_each) {
            return fitting(within(Some(most))?, most);
        }
        let whole = within(None)?;
        let all = whole.bytes.saturating_mul(self.n_models);
        let room = match (n_layers, gpu.host.info().shares_memory()) {
            (Some(_), _) => return Ok(whole),
            (None, true) => system::memory_available(0).unwrap_or(u64::MAX),
            (None, false) => match gpu.room(all).map_err(failed)? {
                room if room == all => return Ok(whole),
                room => room,
            },
        };
        within(Some(of_each(room / 100 * ROOM_PERCENT)))
    }
}

/// Refuses a plan that does not fit a budget.
fn fitting(plan: GpuPlan, most: u64) -> Result<GpuPlan, Failure> {
    match plan.bytes <= most {
        true => Ok(plan),
        false => Err(Failure::Failed(format!(
            "{} layers and the head need {} on the GPU, --gpu-budget has {} for each model",
            plan.share.n_layers,
            bytes(plan.bytes),
            bytes(most)
        ))),
    }
}

/// Says what a trial has measured, and refuses a GPU that is no gain.
fn judge(info: &HostInfo, result: &TrialResult) -> Result<(), Failure> {
    let name = one_line(&info.name);
    let TrialResult {
        n_layers, cpu, gpu, ..
    } = result;
    let ms = |s: f64| 1000.0 * s;
    say(&format!(
        "atta: gpu: {name}: a token of a prompt takes {:.2} ms, {:.2} ms on the CPU, and a \
         written one {:.2} ms, {:.2} ms on the CPU, by {n_layers} layers that were measured",
        ms(gpu.prompt_s),
        ms(cpu.prompt_s),
        ms(gpu.token_s),
        ms(cpu.token_s),
    ));
    if result.takes_gpu() {
        return Ok(());
    }
    Err(Failure::Failed(match result.is_exact {
        true => format!("the CPU is faster than {name}"),
        false => format!("{name} does not compute the CPU's bits"),
    }))
}

fn say_plan(info: &HostInfo, plan: &GpuPlan) {
    say(&format!(
        "atta: gpu: {}, {}: {} of {} layers and the head, {}",
        one_line(&info.name),
        info.interface,
        plan.share.n_layers,
        plan.n_layers,
        bytes(plan.bytes)
    ));
    if let Some(why) = &plan.why_not_more {
        let why = one_line(why);
        say(&format!("atta: gpu: more layers stay on the CPU: {why}"));
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
            GpuKind::Software => ", software",
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

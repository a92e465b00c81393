//! `atta doctor --gpu`: the GPUs, and whether their kernels compute the CPU's bits.
//!
//! It runs every kernel on small buffers and no model.

use atta_gpu::{CASES, GpuKind, Host, HostInfo, NativeHost};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, one_line},
    json,
    output::Stdout,
    progress::Progress,
    report::bytes,
};

/// A GPU, and the kernels whose results differ.
struct GpuReport {
    info: HostInfo,
    faults: Vec<Fault>,
}

/// A kernel that does not compute the CPU's bits, or a GPU that cannot be used.
struct Fault {
    what: &'static str,
    reason: String,
}

pub(super) fn run(is_json: bool) -> Result<(), Failure> {
    let mut progress = Progress::new();
    progress.busy(|| "comparing kernels with the processor's".to_owned());
    let adapters = NativeHost::adapters().into_iter().enumerate();
    let reports: Vec<GpuReport> = adapters.map(|(i, info)| GpuReport::of(i, info)).collect();
    progress.clear();
    if reports.is_empty() {
        let why = "no GPU: no driver of Vulkan, Metal or DirectX 12 offers one";
        return Err(Failure::Failed(why.to_owned()));
    }
    print(&reports, is_json)?;
    match reports.iter().filter(|r| !r.faults.is_empty()).count() {
        0 => Ok(()),
        n => Err(Failure::Failed(format!(
            "{n} of {} GPUs do not compute the CPU's bits",
            reports.len()
        ))),
    }
}

fn print(reports: &[GpuReport], is_json: bool) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if is_json {
        let all: Vec<Value> = reports.iter().map(GpuReport::to_json).collect();
        out.line(&json::pretty(&json!({ "gpus": all })))?;
    } else {
        for (i, report) in reports.iter().enumerate() {
            out.write(&report.text(i))?;
        }
    }
    out.flush()
}

impl GpuReport {
    /// Compares all kernels of an adapter with those of the processor.
    fn of(index: usize, info: HostInfo) -> Self {
        let mut host = match NativeHost::open(index) {
            Ok(host) => host,
            Err(error) => {
                let faults = vec![Fault {
                    what: "device",
                    reason: error.to_string(),
                }];
                return Self { info, faults };
            }
        };
        let faults = CASES.iter().filter_map(|case| {
            let error = case.run(&mut host as &mut dyn Host).err()?;
            Some(Fault {
                what: case.name,
                reason: error.to_string(),
            })
        });
        let faults = faults.collect();
        Self { info, faults }
    }

    fn text(&self, index: usize) -> String {
        let HostInfo {
            name,
            interface,
            driver,
            buffer_bytes,
            ..
        } = &self.info;
        let kind = kind(self.info.kind);
        let kind = match self.info.shares_memory() {
            true => format!("{kind}, with the memory of this machine"),
            false => kind.to_owned(),
        };
        let buffers = bytes(*buffer_bytes);
        let mut text = format!(
            "{index}  {}: {kind}, {interface}, driver {}, buffers of up to {buffers}\n",
            one_line(name),
            one_line(driver),
        );
        if self.faults.is_empty() {
            text += &format!("   all {} comparisons: the CPU's bits\n", CASES.len());
        }
        for fault in &self.faults {
            text += &format!("   {}: {}\n", fault.what, one_line(&fault.reason));
        }
        text
    }

    fn to_json(&self) -> Value {
        let fault = |fault: &Fault| json!({ "kernel": fault.what, "reason": fault.reason });
        json!({
            "name": self.info.name,
            "kind": kind(self.info.kind),
            "interface": self.info.interface,
            "driver": self.info.driver,
            "buffer_bytes": self.info.buffer_bytes,
            "shares_memory": self.info.shares_memory(),
            "subgroup": self.info.subgroup,
            "comparisons": CASES.len(),
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
        })
    }
}

/// The GPUs of this machine, which are not tested.
pub(super) fn names() -> Option<Vec<String>> {
    let name = |info: &HostInfo| {
        format!(
            "{} ({}, {})",
            one_line(&info.name),
            kind(info.kind),
            info.interface
        )
    };
    Some(NativeHost::adapters().iter().map(name).collect())
}

fn kind(kind: GpuKind) -> &'static str {
    match kind {
        GpuKind::Discrete => "discrete",
        GpuKind::Integrated => "integrated",
        GpuKind::Virtual => "virtual",
        GpuKind::Software => "software",
        GpuKind::Unknown => "of unknown kind",
    }
}

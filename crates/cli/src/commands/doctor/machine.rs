//! The machine: figures of the system, and measured rates.

use std::{fs, num::NonZeroUsize, path::Path, time::Duration};

use atta::{
    Kernels, Pool, disk_rate,
    system::{self, MachineMemory},
};
use atta_cluster::measure::{self, NodeRates, ThreadRate};
use serde_json::{Value, json};

use crate::report::bytes;

/// Time of reading from disk.
const DISK_TIME: Duration = Duration::from_millis(500);
/// Longest file of the system that is read, bytes.
const MAX_FILE: usize = 4096;

/// The machine and its rates.
pub(super) struct Machine {
    pub(super) processor: String,
    /// Instruction sets of this processor and build, best first.
    pub(super) isas: Vec<&'static str>,
    /// Processors that this process may use.
    pub(super) n_cpus: usize,
    /// Threads that are used without `-j`.
    pub(super) n_threads: usize,
    pub(super) memory_rates: Vec<ThreadRate>,
    pub(super) rates: NodeRates,
    /// Private memory that this process can have.
    pub(super) memory_limit: u64,
    /// Memory that is free for models now.
    pub(super) available: Option<u64>,
    /// Memory of the machine.
    pub(super) installed: Option<u64>,
    pub(super) swap: Option<u64>,
    /// The chosen mode of transparent huge pages.
    pub(super) huge_pages: Option<String>,
    /// How the frequency of the processor is chosen.
    pub(super) governor: Option<String>,
    pub(super) celsius: Option<f32>,
    pub(super) is_throttled: bool,
    pub(super) is_virtual: bool,
}

/// A line of the report.
pub(super) struct ReportLine {
    pub(super) name: &'static str,
    pub(super) text: String,
}

impl Machine {
    /// Measures this machine, and the disk that holds a file.
    pub(super) fn measure(file: Option<&Path>) -> Self {
        let kernels = Kernels::detect();
        let n_threads = NonZeroUsize::new(Pool::default_threads()).unwrap_or(NonZeroUsize::MIN);
        let memory_rates = measure::memory_rates(kernels, n_threads);
        let best = ThreadRate::best(&memory_rates);
        let disk = file.and_then(|file| disk_rate(file, DISK_TIME).ok());
        let memory = MachineMemory::read();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: system::processor_name(),
            isas: Kernels::available(),
            n_cpus: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            n_threads: n_threads.get(),
            rates: NodeRates {
                n_threads: best.n_threads,
                read_bytes_per_s: best.read_bytes_per_s,
                macs_per_s: kernels.int8_peak(&Pool::new(n_threads)),
                disk_bytes_per_s: disk.unwrap_or(0.0),
            },
            memory_rates,
            memory_limit: system::memory_limit(),
            available: system::memory_available(0),
            installed: memory.map(|memory| memory.memory),
            swap: memory.map(|memory| memory.swap),
            huge_pages: first_bytes("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            governor: first_bytes("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .map(|text| text.trim().to_owned()),
            celsius: measure::celsius(),
            is_throttled: measure::is_throttled(),
            is_virtual: info.split_whitespace().any(|flag| flag == "hypervisor"),
        }
    }

    /// The report.
    pub(super) fn lines(&self) -> Vec<ReportLine> {
        let line = |name, text| ReportLine { name, text };
        let mut lines = vec![
            line("processor", self.processor_text()),
            line("kernels", self.isas.join(", ")),
            line("memory", self.memory_text()),
            line("memory reads", self.reads_text()),
            line(
                "arithmetic",
                format!("{:.0} int8 GMAC/s", self.rates.macs_per_s / 1e9),
            ),
            line("disk reads", self.disk_text()),
        ];
        if let Some(mode) = &self.huge_pages {
            lines.push(line("huge pages", mode.clone()));
        }
        if let Some(celsius) = self.celsius {
            let hot = if self.is_throttled {
                ", slowed by heat"
            } else {
                ""
            };
            lines.push(line("temperature", format!("{celsius:.0} °C{hot}")));
        }
        lines
    }

    fn processor_text(&self) -> String {
        let name = match self.processor.is_empty() {
            true => std::env::consts::ARCH,
            false => &self.processor,
        };
        let Self {
            n_cpus, n_threads, ..
        } = self;
        format!("{name}: {n_cpus} usable, {n_threads} threads by default")
    }

    fn memory_text(&self) -> String {
        let known = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), bytes);
        let mut text = format!("{} free for models", known(self.available));
        if let Some(installed) = self.installed {
            text += &format!(" of {}", bytes(installed));
        }
        if self.is_limited() {
            text += &format!(", limited to {}", bytes(self.memory_limit));
        }
        text
    }

    /// Whether a control group allows less than the machine has.
    pub(super) fn is_limited(&self) -> bool {
        self.installed.is_some_and(|n| self.memory_limit < n)
    }

    fn reads_text(&self) -> String {
        let rates = self.memory_rates.iter().map(|rate| {
            let n = rate.n_threads;
            let s = if n.get() == 1 { "" } else { "s" };
            format!("{:.1} GB/s with {n} thread{s}", rate.read_bytes_per_s / 1e9)
        });
        rates.collect::<Vec<_>>().join(", ")
    }

    fn disk_text(&self) -> String {
        match self.rates.disk_bytes_per_s {
            rate if rate > 0.0 => format!("{:.2} GB/s", rate / 1e9),
            _ => "not measured: --disk FILE names a file to read".to_owned(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let reads = self.memory_rates.iter().map(
            |rate| json!({ "threads": rate.n_threads, "read_bytes_per_s": rate.read_bytes_per_s }),
        );
        let disk = Some(self.rates.disk_bytes_per_s).filter(|&rate| rate > 0.0);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "processor": self.processor,
            "isas": self.isas,
            "cpus": self.n_cpus,
            "threads": self.n_threads,
            "memory_limit_bytes": self.memory_limit,
            "memory_available_bytes": self.available,
            "memory_installed_bytes": self.installed,
            "swap_bytes": self.swap,
            "memory_reads": reads.collect::<Vec<_>>(),
            "int8_mac_per_s": self.rates.macs_per_s,
            "disk_bytes_per_s": disk,
            "huge_pages": self.huge_pages,
            "governor": self.governor,
            "celsius": self.celsius,
            "is_throttled": self.is_throttled,
            "is_virtual": self.is_virtual,
        })
    }
}

/// The beginning of a short file of the system.
fn first_bytes(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.chars().take(MAX_FILE).collect())
}

/// The word in brackets: the one of several values that is chosen.
fn chosen(text: &str) -> Option<String> {
    let inner = text.split_once('[')?.1;
    Some(inner.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_word_stands_in_brackets() {
        assert_eq!(
            chosen("always [madvise] never\n").as_deref(),
            Some("madvise")
        );
        assert_eq!(chosen("always"), None);
    }
}

//! Measures how fast this machine computes and reads, and what memory it has for models.
//!
//! The memory is read with 1, 2, 4 … threads: small machines read fastest with fewer than they
//! have. The rates are kept in a file, and measured again for another processor, program or
//! directory, and after a week.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use atta_kernels::{Kernels, Pool};
use atta_store::{disk_rate, system};
use serde::{Deserialize, Serialize};

use crate::{
    disk::sync_directory,
    node::PROGRAM,
    part::PartFile,
    plan::{NodeMeasure, NodeSpeed},
    wire::message::NodeNumbers,
};

/// Most bytes that are read from memory, per pass: larger than the caches of small machines.
const MEMORY_BYTES: u64 = 96 << 20;
/// Time of reading from disk.
const DISK_TIME: Duration = Duration::from_millis(700);
/// How long rates stay right.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most bytes of the file of rates.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// How much faster more threads must read to be used.
const GAIN: f64 = 1.03;
/// The part of available memory that a model may take, percent; the rest is the system's.
const MEMORY_PERCENT: u64 = 80;

/// Temperature from which a slow processor is taken for a throttled one, °C.
const HOT_CELSIUS: f64 = 75.0;
/// Part of its maximum below which the frequency of a processor that is hot is not its own choice.
const FULL_FREQUENCY: f64 = 0.8;

/// Parts of the measured limits that products of matrices reach: the medians of
/// `docs/performance.md`.
const MEMORY_SHARE: f64 = 0.85;
const ARITHMETIC_SHARE: f64 = 0.6;

/// Speeds of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRates {
    /// Threads with which the memory is read fastest.
    pub n_threads: NonZeroUsize,
    /// Weights read from memory with these threads, bytes/s.
    pub read_bytes_per_s: f64,
    /// Multiply-adds of bytes with all threads, 1/s.
    pub macs_per_s: f64,
    /// Reads of the disk that holds models, bytes/s; 0 where there is no model to read, and for a
    /// disk that is not to be streamed from.
    pub disk_bytes_per_s: f64,
}

impl NodeRates {
    /// The numbers of a node's card: what products of matrices reach of the measured limits.
    pub fn numbers(&self) -> NodeNumbers {
        NodeNumbers {
            read_bytes_per_s: self.read_bytes_per_s * MEMORY_SHARE,
            macs_per_s: self.macs_per_s * ARITHMETIC_SHARE,
            disk_bytes_per_s: self.disk_bytes_per_s,
        }
    }
}

impl NodeNumbers {
    /// A node of a plan, with so much memory for a model.
    pub fn measure(&self, name: &str, ram_bytes: u64) -> NodeMeasure {
        NodeMeasure {
            name: name.to_owned(),
            ram_bytes,
            speed: NodeSpeed::Rates {
                read_bytes_per_s: self.read_bytes_per_s,
                macs_per_s: self.macs_per_s,
            },
            disk_bytes_per_s: self.disk_bytes_per_s,
        }
    }
}

/// Whether rates of an earlier run will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Those of the last week.
    Cached,
    /// Measured now.
    Anew,
}

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct NodeProbe<'a> {
    /// Kernels that compute.
    pub kernels: Kernels,
    /// Most threads.
    pub n_threads: NonZeroUsize,
    /// Directories that hold models.
    pub models: &'a [PathBuf],
    /// The file that keeps the rates.
    pub kept_in: &'a Path,
}

/// The file of rates.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The machine and program that they belong to.
    machine: String,
    /// Seconds since 1970.
    measured_at: u64,
    rates: NodeRates,
}

impl NodeProbe<'_> {
    /// The rates of this machine. Measuring takes about two seconds, and all processors.
    ///
    /// # Errors
    /// The file of rates cannot be written. A file that cannot be read is replaced, and a disk that
    /// cannot be read counts as one that is not streamed from.
    pub fn rates(&self, freshness: Freshness) -> io::Result<NodeRates> {
        let machine = self.machine();
        let now = SystemTime::now();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let kept = read_kept(self.kept_in).filter(|kept| {
            let age = now.checked_sub(kept.measured_at);
            let is_recent = age.is_some_and(|age| age <= MAX_AGE.as_secs());
            freshness == Freshness::Cached && is_recent && kept.machine == machine
        });
        if let Some(mut kept) = kept {
            // The first model may have come since.
            if kept.rates.disk_bytes_per_s == 0.0
                && let Some(rate) = self.disk()
            {
                kept.rates.disk_bytes_per_s = rate;
                write_kept(self.kept_in, &kept)?;
            }
            return Ok(kept.rates);
        }
        let kept = Kept {
            machine,
            measured_at: now,
            rates: self.measure(),
        };
        write_kept(self.kept_in, &kept)?;
        Ok(kept.rates)
    }

    fn measure(&self) -> NodeRates {
        let pool = Pool::new(self.n_threads);
        let macs_per_s = self.kernels.int8_peak(&pool);
        drop(pool);
        let best = ThreadRate::best(&memory_rates(self.kernels, self.n_threads));
        NodeRates {
            n_threads: best.n_threads,
            // Whole numbers come back from JSON as they were.
            read_bytes_per_s: best.read_bytes_per_s.round(),
            macs_per_s: macs_per_s.round(),
            disk_bytes_per_s: self.disk().unwrap_or(0.0),
        }
    }

    /// The rate of the disk that holds the largest model, if there is one and it can be read.
    fn disk(&self) -> Option<f64> {
        let model = largest_model(self.models)?;
        Some(disk_rate(&model, DISK_TIME).ok()?.round())
    }

    /// What other rates would belong to.
    fn machine(&self) -> String {
        let models: Vec<_> = self
            .models
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        format!(
            "{PROGRAM}; {}; {}; {} threads; {}",
            system::processor_name(),
            self.kernels.isa(),
            self.n_threads,
            models.join(":")
        )
    }
}

/// How fast some threads read memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadRate {
    /// How many threads.
    pub n_threads: NonZeroUsize,
    /// Bytes per second that they read together.
    pub read_bytes_per_s: f64,
}

impl ThreadRate {
    /// The best of some rates, in the order of threads: more threads must be worth it.
    pub fn best(rates: &[Self]) -> Self {
        let none = Self {
            n_threads: NonZeroUsize::MIN,
            read_bytes_per_s: 0.0,
        };
        rates.iter().fold(none, |best, rate| {
            let is_better = rate.read_bytes_per_s > best.read_bytes_per_s * GAIN;
            if is_better { *rate } else { best }
        })
    }
}

/// Measures how fast 1, 2, 4 … and `most` threads read memory. Takes a fraction of a second for
/// each.
pub fn memory_rates(kernels: Kernels, most: NonZeroUsize) -> Vec<ThreadRate> {
    let half = system::memory_available(0).unwrap_or(u64::MAX) / 2;
    let n_bytes = MEMORY_BYTES.min(half) as usize;
    let rate = |n_threads| ThreadRate {
        n_threads,
        read_bytes_per_s: kernels.read_bandwidth(&Pool::new(n_threads), n_bytes),
    };
    thread_counts(most).into_iter().map(rate).collect()
}

/// 1, 2, 4 … and all threads.
fn thread_counts(most: NonZeroUsize) -> Vec<NonZeroUsize> {
    let powers = std::iter::successors(Some(NonZeroUsize::MIN), |n| {
        n.checked_mul(NonZeroUsize::MIN.saturating_add(1))
    });
    powers.take_while(|n| *n < most).chain([most]).collect()
}

/// The largest whole model, whose disk is measured; a part has holes, which are read in no time.
fn largest_model(directories: &[PathBuf]) -> Option<PathBuf> {
    let entries = directories.iter().filter_map(|d| fs::read_dir(d).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let is_whole = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "gguf") && !PartFile::index_path(path).exists()
    };
    let sized = paths.filter(is_whole).filter_map(|path| {
        let metadata = path.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((metadata.len(), path))
    });
    sized.max().map(|(_, path)| path)
}

/// The rates of an earlier run, if they can be read and are rates.
fn read_kept(path: &Path) -> Option<Kept> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    let kept: Kept = serde_json::from_slice(&bytes).ok()?;
    let NodeRates {
        read_bytes_per_s: read,
        macs_per_s: macs,
        disk_bytes_per_s: disk,
        ..
    } = kept.rates;
    let are_rates = [read, macs, disk + 1.0]
        .iter()
        .all(|rate| rate.is_finite() && *rate > 0.0);
    are_rates.then_some(kept)
}

fn write_kept(path: &Path, kept: &Kept) -> io::Result<()> {
    let bytes = serde_json::to_vec(kept).map_err(io::Error::other)?;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension("new");
    File::create(&new)?.write_all(&bytes)?;
    fs::rename(&new, path)?;
    sync_directory(path)
}

/// Memory that models may take on this machine now, bytes: the given budget, else four
/// fifths of the available memory. `None` where the system does not tell that.
pub fn memory_for_models(budget: Option<u64>) -> Option<u64> {
    budget.or_else(|| Some(system::memory_available(0)? / 100 * MEMORY_PERCENT))
}

/// The temperature of the hottest sensor, °C, if there is one.
pub fn celsius() -> Option<f32> {
    let reading = system::read_thermal(Path::new("/sys"))?;
    Some(reading.celsius as f32)
}

/// Whether this machine is hot and its fastest core runs below its full frequency; false where the
/// system does not tell that.
pub fn is_throttled() -> bool {
    let reading = system::read_thermal(Path::new("/sys"));
    reading.is_some_and(|at| at.celsius >= HOT_CELSIUS && at.frequency < FULL_FREQUENCY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("atta-node-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn probe<'a>(models: &'a [PathBuf], kept_in: &'a Path) -> NodeProbe<'a> {
        NodeProbe {
            kernels: Kernels::detect(),
            n_threads: NonZeroUsize::MIN,
            models,
            kept_in,
        }
    }

    #[test]
    fn rates_are_kept_for_the_same_machine_and_for_a_week() {
        let directory = directory("kept");
        let kept_in = directory.join("state").join("rates.json");
        fs::write(directory.join("m.gguf"), vec![1; 1 << 20]).unwrap();
        let models = [directory.clone()];
        let probe = probe(&models, &kept_in);
        let rates = probe.rates(Freshness::Cached).unwrap();
        assert!(rates.read_bytes_per_s > 1e6 && rates.macs_per_s > 1e6);
        assert!(rates.disk_bytes_per_s > 0.0);
        let edit = |rates: NodeRates, machine: String, age: u64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let measured_at = now.as_secs() - age;
            let kept = Kept {
                machine,
                measured_at,
                rates,
            };
            write_kept(&kept_in, &kept).unwrap();
            probe.rates(Freshness::Cached).unwrap() == rates
        };
        let other = NodeRates {
            macs_per_s: 7.0,
            ..rates
        };
        assert!(edit(other, probe.machine(), 60));
        assert!(!edit(other, "another".to_owned(), 60), "another machine");
        assert!(!edit(other, probe.machine(), 8 * 24 * 3600), "too old");
        let nonsense = NodeRates {
            macs_per_s: 0.0,
            ..rates
        };
        assert!(!edit(nonsense, probe.machine(), 60), "no rate");
        fs::write(&kept_in, b"{").unwrap();
        assert!(probe.rates(Freshness::Cached).is_ok());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_disk_is_measured_when_the_first_model_has_come() {
        let directory = directory("disk");
        let kept_in = directory.join("rates.json");
        let models = [directory.clone()];
        let probe = probe(&models, &kept_in);
        let without = probe.rates(Freshness::Cached).unwrap();
        assert_eq!(without.disk_bytes_per_s, 0.0);
        fs::write(directory.join("m.gguf"), vec![1; 1 << 20]).unwrap();
        let rates = probe.rates(Freshness::Cached).unwrap();
        assert!(rates.disk_bytes_per_s > 0.0);
        let others = NodeRates {
            disk_bytes_per_s: 0.0,
            ..rates
        };
        assert_eq!(others, without);
        assert_eq!(probe.rates(Freshness::Cached).unwrap(), rates);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn without_a_whole_model_nothing_is_streamed() {
        let directory = directory("none");
        let part = directory.join("p.gguf");
        fs::write(&part, [0; 4096]).unwrap();
        fs::write(PartFile::index_path(&part), b"").unwrap();
        assert_eq!(largest_model(std::slice::from_ref(&directory)), None);
        fs::write(directory.join("a.gguf"), [0; 9]).unwrap();
        fs::write(directory.join("b.gguf"), [0; 10]).unwrap();
        let found = largest_model(&[PathBuf::from("/no/such"), directory.clone()]);
        assert_eq!(found, Some(directory.join("b.gguf")));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn threads_double_up_to_all() {
        let counts = |n| thread_counts(NonZeroUsize::new(n).unwrap());
        let numbers = |n| counts(n).iter().map(|n| n.get()).collect::<Vec<_>>();
        assert_eq!(numbers(1), [1]);
        assert_eq!(numbers(4), [1, 2, 4]);
        assert_eq!(numbers(6), [1, 2, 4, 6]);
    }

    #[test]
    fn a_budget_is_taken_as_it_is() {
        assert_eq!(memory_for_models(Some(5)), Some(5));
    }
}

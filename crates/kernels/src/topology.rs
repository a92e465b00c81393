//! The number of threads that this process can usefully run, and binding a thread to a CPU. Linux
//! reports topology and quotas; elsewhere the number is that of the standard library.
//!
//! Two threads on one core compete for the same multipliers, and threads beyond the quota of a
//! control group are stopped in the middle of a region. So the default is the number of distinct
//! physical cores in the affinity mask, at most the quota. Everything here reads the system and
//! nothing else.

use crate::Error;

/// The number of [`crate::Pool::default_threads`].
pub(crate) fn default_threads() -> usize {
    let logical = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    imp::usable_cores().unwrap_or(logical).clamp(1, logical)
}

pub(crate) use imp::{pin, try_to_pin};

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(crate) use imp::allowed_cpus;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use super::{Error, quota};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Binds the calling thread to `cpu`.
    pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
        if cpu >= CpuSet::MAX_CPU {
            return Err(Error::Pin {
                cpu,
                reason: format!("cpu numbers end at {}", CpuSet::MAX_CPU - 1),
            });
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|error| Error::Pin {
            cpu,
            reason: error.to_string(),
        })
    }

    /// Checks that the calling thread can be bound to `cpu`; its affinity stays as it is.
    pub(crate) fn try_to_pin(cpu: usize) -> Result<(), Error> {
        let blame = |error: rustix::io::Errno| Error::Pin {
            cpu,
            reason: error.to_string(),
        };
        let before = sched_getaffinity(None).map_err(blame)?;
        pin(cpu)?;
        sched_setaffinity(None, &before).map_err(blame)
    }

    /// The CPUs in the affinity mask of the calling thread, ascending.
    pub(crate) fn allowed_cpus() -> Option<Vec<usize>> {
        let set = sched_getaffinity(None).ok()?;
        Some(
            (0..CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .collect(),
        )
    }

    pub(super) fn usable_cores() -> Option<usize> {
        let cores = physical_cores(Path::new("/sys/devices/system/cpu"), &allowed_cpus()?)?;
        Some(quota::cpus(Path::new("/")).map_or(cores, |quota| cores.min(quota)))
    }

    /// Number of distinct cores among `cpus`: two CPUs are on one core if they have the same list
    /// of siblings.
    pub(super) fn physical_cores(sys: &Path, cpus: &[usize]) -> Option<usize> {
        let siblings = |cpu: &usize| {
            let list = sys.join(format!("cpu{cpu}/topology/thread_siblings_list"));
            std::fs::read_to_string(list)
                .ok()
                .filter(|list| !list.trim().is_empty())
        };
        Some(
            cpus.iter()
                .map(siblings)
                .collect::<Option<BTreeSet<String>>>()?
                .len(),
        )
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use super::Error;

    /// Always fails: binding is not implemented for this system.
    pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
        Err(Error::Pin {
            cpu,
            reason: "not offered on this system".into(),
        })
    }

    pub(crate) fn try_to_pin(cpu: usize) -> Result<(), Error> {
        pin(cpu)
    }

    pub(super) fn usable_cores() -> Option<usize> {
        None
    }
}

/// CPU quotas of control groups, as files below a root.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod quota {
    use std::path::{Path, PathBuf};

    /// Whole CPUs that the strictest quota of this process's group and its ancestors allows, at
    /// least 1.
    pub(super) fn cpus(root: &Path) -> Option<usize> {
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let quota = groups
            .lines()
            .filter_map(|line| of_group(root, line))
            .fold(f64::INFINITY, f64::min);
        quota.is_finite().then(|| (quota as usize).max(1))
    }

    /// `line` is `id:controllers:path`; version 2 has id 0 and no controllers.
    fn of_group(root: &Path, line: &str) -> Option<f64> {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?.trim_start_matches('/');
        if controllers.is_empty() {
            return strictest(&root.join("sys/fs/cgroup"), path, v2);
        }
        controllers
            .split(',')
            .find(|&controller| controller == "cpu")?;
        // In a container, the group may be mounted as the root, and its path may not exist below
        // the mount.
        strictest(&root.join("sys/fs/cgroup/cpu"), path, v1)
            .or_else(|| strictest(&root.join("sys/fs/cgroup").join(controllers), path, v1))
    }

    fn strictest(mount: &Path, group: &str, read: fn(&Path) -> Option<f64>) -> Option<f64> {
        let group: PathBuf = mount.join(group);
        let groups = group
            .ancestors()
            .take_while(|directory| directory.starts_with(mount));
        groups.filter_map(read).reduce(f64::min)
    }

    /// `cpu.max` is `quota period` in microseconds; without a quota `max period`.
    fn v2(directory: &Path) -> Option<f64> {
        let text = std::fs::read_to_string(directory.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        ratio(quota, period)
    }

    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`; without a quota the former is −1.
    fn v1(directory: &Path) -> Option<f64> {
        let read = |name| std::fs::read_to_string(directory.join(name)).ok();
        ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
    }

    fn ratio(quota: &str, period: &str) -> Option<f64> {
        let quota: f64 = quota.trim().parse().ok()?;
        let period: f64 = period.trim().parse().ok()?;
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
            let root =
                std::env::temp_dir().join(format!("atta-quota-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            root
        }

        #[test]
        fn a_v2_quota_of_any_ancestor_counts() {
            let root = root(
                "v2",
                &[
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                    ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
                ],
            );
            assert_eq!(cpus(&root), Some(2));
            std::fs::remove_dir_all(root).unwrap();
        }

        #[test]
        fn a_v1_quota_counts_and_is_at_least_one() {
            let root = root(
                "v1",
                &[
                    ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/docker/x\n"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ],
            );
            assert_eq!(cpus(&root), Some(1));
            std::fs::remove_dir_all(root).unwrap();
        }

        #[test]
        fn no_quota_is_none() {
            let root = root(
                "none",
                &[
                    ("proc/self/cgroup", "3:cpu:/\n0::/\n"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
                    ("sys/fs/cgroup/cpu.max", "max 100000"),
                ],
            );
            assert_eq!(cpus(&root), None);
            assert_eq!(cpus(Path::new("/nonexistent")), None);
            std::fs::remove_dir_all(root).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_thread_and_no_more_than_cpus() {
        let logical = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        assert!((1..=logical).contains(&default_threads()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn siblings_are_one_core() {
        let sys = std::env::temp_dir().join(format!("atta-topology-{}", std::process::id()));
        for (cpu, list) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let directory = sys.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("thread_siblings_list"), format!("{list}\n")).unwrap();
        }
        assert_eq!(imp::physical_cores(&sys, &[0, 1, 2, 3]), Some(2));
        assert_eq!(imp::physical_cores(&sys, &[1, 3]), Some(1));
        assert_eq!(
            imp::physical_cores(&sys, &[0, 4]),
            None,
            "an unreadable topology is no answer"
        );
        std::fs::remove_dir_all(sys).unwrap();
    }
}

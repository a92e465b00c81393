//! Linux and Android: affinity masks, siblings in sysfs, quotas of control groups.

use super::quota;
use crate::Error;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
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

pub(crate) fn usable_cores() -> Option<usize> {
    let cores = physical_cores(Path::new("/sys/devices/system/cpu"), &allowed_cpus()?)?;
    Some(quota::cpus(Path::new("/")).map_or(cores, |quota| cores.min(quota)))
}

/// Number of distinct cores among `cpus`: two CPUs are on one core if they have the same list
/// of siblings.
pub(crate) fn physical_cores(sys: &Path, cpus: &[usize]) -> Option<usize> {
    let siblings = |cpu: &usize| {
        let list = sys.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        std::fs::read_to_string(list)
            .ok()
            .filter(|list| !list.trim().is_empty())
    };
    // Not a set: the code for it would be larger than all of this module.
    let mut cores = Vec::new();
    for cpu in cpus {
        let core = siblings(cpu)?;
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    Some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_one_core() {
        let sys = std::env::temp_dir().join(format!("atta-topology-{}", std::process::id()));
        for (cpu, list) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let directory = sys.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("thread_siblings_list"), format!("{list}\n")).unwrap();
        }
        assert_eq!(physical_cores(&sys, &[0, 1, 2, 3]), Some(2));
        assert_eq!(physical_cores(&sys, &[1, 3]), Some(1));
        assert_eq!(
            physical_cores(&sys, &[0, 4]),
            None,
            "an unreadable topology is no answer"
        );
        std::fs::remove_dir_all(sys).unwrap();
    }
}

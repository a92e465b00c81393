//! The most private memory that this process can have: memory and swap of the machine, or the limit
//! of a control group if that is less, and never more than a process can address.
//!
//! Linux reports all of it in files, Windows, macOS and iOS by calls. On other systems only the
//! address space counts: an absurd context length is refused there too, and one that is merely too
//! long for the machine is left to the system.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::usage::{Usage, kib};
use crate::os::facts;

/// Bytes that a process can address: 47 bits on the 64-bit processors of today, and half the range
/// of a shorter pointer, which is the most that Rust allocates.
const ADDRESSABLE: u64 = if usize::BITS == 64 {
    1 << 47
} else {
    isize::MAX as u64
};

/// The memory of a machine, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// What all processes share.
    pub memory: u64,
    /// What swap or page files can take beyond it.
    pub swap: u64,
}

impl MachineMemory {
    /// Reads it; `None` if the system does not report it.
    pub fn read() -> Option<Self> {
        Self::below(Path::new("/")).or_else(facts::machine)
    }

    /// That of a system whose files are below `root`.
    fn below(root: &Path) -> Option<Self> {
        let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        Some(Self {
            memory: kib(&info, "MemTotal:")?,
            swap: kib(&info, "SwapTotal:").unwrap_or(0),
        })
    }

    fn sum(self) -> u64 {
        self.memory.saturating_add(self.swap)
    }
}

/// The most private memory that this process can have, bytes.
pub fn memory_limit() -> u64 {
    let called = [facts::machine().map(MachineMemory::sum), facts::limit()];
    let called = called.into_iter().flatten();
    called.fold(below(Path::new("/")), u64::min)
}

/// Maps the directory of a control group and its limit to a number of bytes.
type Measure<'a> = &'a dyn Fn(&Path, u64) -> u64;

/// Bytes that this process can have without taking memory from others: those that the machine
/// reports as available, or the rest of a control group's limit if that is less. In a control
/// group or a job of Windows, the private memory of this process beyond `kept` bytes counts as
/// free. `None` if the system does not report it.
pub fn memory_available(kept: u64) -> Option<u64> {
    let own = Usage::now().map_or(0, |usage| usage.private());
    available(Path::new("/"), own.saturating_sub(kept)).or_else(|| {
        let left = facts::limit().map_or(u64::MAX, |limit| limit.saturating_sub(own.min(kept)));
        Some(facts::available()?.min(left))
    })
}

/// [`memory_available`] for a system whose files are below `root`; in a control group, `own` bytes
/// count as free.
fn available(root: &Path, own: u64) -> Option<u64> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = kib(&info, "MemAvailable:")?;
    let left = |directory: &Path, limit: u64| {
        limit.saturating_sub(anonymous(directory).saturating_sub(own))
    };
    Some(groups(root, &left).map_or(machine, |group| machine.min(group)))
}

/// Bytes that the processes of a group use and the system cannot reclaim.
fn anonymous(directory: &Path) -> u64 {
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let value = |key: &str| {
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    // Version 1 counts a group without its children, and names the sums `total_`.
    let of = |v1: &str, v2: &str| value(v1).or_else(|| value(v2)).unwrap_or(0);
    of("total_rss", "anon").saturating_add(of("total_shmem", "shmem"))
}

/// The limit of a system whose files are below `root`.
fn below(root: &Path) -> u64 {
    let machine = MachineMemory::below(root).map(MachineMemory::sum);
    [machine, groups(root, &|_, limit| limit)]
        .into_iter()
        .flatten()
        .fold(ADDRESSABLE, u64::min)
}

/// The smallest result of `measure` over the control groups of this process and their ancestors.
/// Swap is not added to their limits: such a limit is meant for memory.
fn groups(root: &Path, measure: Measure<'_>) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups
        .lines()
        .filter_map(|line| of_group(&root.join("sys/fs/cgroup"), line, measure))
        .min()
}

/// `line` is `id:controllers:path`, without controllers in version 2. If both versions are in use,
/// version 2 is mounted as `unified`.
fn of_group(mounts: &Path, line: &str, measure: Measure<'_>) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let group = fields.next()?.trim_start_matches('/');
    let v2 = |mount: &Path| strictest(mount, group, "memory.max", measure);
    match controllers {
        "" => [v2(mounts), v2(&mounts.join("unified"))]
            .into_iter()
            .flatten()
            .min(),
        _ if controllers
            .split(',')
            .any(|controller| controller == "memory") =>
        {
            let mount = mounts.join("memory");
            strictest(&mount, group, "memory.limit_in_bytes", measure)
        }
        _ => None,
    }
}

/// The smallest result of `measure` over a group and its ancestors, with the limits in their files
/// `name`. In a container the group may be mounted as the root, and its path may not exist.
fn strictest(mount: &Path, group: &str, name: &str, measure: Measure<'_>) -> Option<u64> {
    let group: PathBuf = mount.join(group);
    let directories = group
        .ancestors()
        .take_while(|directory| directory.starts_with(mount));
    // Without a limit the file holds `max`, or in version 1 a number larger than any machine.
    let limit = |directory: &Path| {
        fs::read_to_string(directory.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    directories
        .filter_map(|directory| Some(measure(directory, limit(directory)?)))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of a system of 8 MiB with these files.
    fn limit(name: &str, files: &[(&str, &str)]) -> u64 {
        with_files(name, files, below)
    }

    /// The available bytes of a system of 8 MiB, 7 of them available, with these files.
    fn with_files<T>(name: &str, files: &[(&str, &str)], measure: impl FnOnce(&Path) -> T) -> T {
        let root = std::env::temp_dir().join(format!("atta-limit-{name}-{}", std::process::id()));
        let machine = (
            "proc/meminfo",
            "MemTotal:  6144 kB\nSwapTotal:  2048 kB\nMemAvailable:  7168 kB\n",
        );
        for (path, text) in files.iter().chain([&machine]) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let measured = measure(&root);
        fs::remove_dir_all(root).unwrap();
        measured
    }

    #[test]
    fn what_others_of_a_group_have_is_not_available() {
        let v2 = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "5000000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 3000000\nfile 900000\nshmem 500000\nanon_thp 7\n",
            ),
        ];
        let v1 = [
            ("proc/self/cgroup", "4:memory:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000000\n"),
            (
                "sys/fs/cgroup/memory/a/memory.stat",
                "rss 1\nshmem 2\ncache 900000\ntotal_rss 3000000\ntotal_shmem 500000\n",
            ),
        ];
        for files in [&v2, &v1] {
            let left = with_files("others", files, |root| available(root, 1_000_000));
            assert_eq!(left, Some(2_500_000));
        }
        assert_eq!(
            with_files("alone", &v2[..2], |root| available(root, 0)),
            Some(5_000_000)
        );
        assert_eq!(
            with_files("no-group", &[], |root| available(root, 0)),
            Some(7 << 20)
        );
    }

    #[test]
    fn without_groups_it_is_memory_and_swap() {
        assert_eq!(limit("machine", &[]), 8 << 20);
        let unlimited = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
        ];
        assert_eq!(limit("max", &unlimited), 8 << 20);
        let huge = [
            ("proc/self/cgroup", "4:memory:/\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
        ];
        assert_eq!(limit("huge", &huge), 8 << 20);
    }

    #[test]
    fn a_v2_limit_of_the_group_or_of_any_ancestor_counts() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "3000000\n"),
            ("sys/fs/cgroup/a/memory.max", "2000000\n"),
            ("sys/fs/cgroup/c/memory.max", "1000\n"),
        ];
        assert_eq!(limit("v2", &files), 2_000_000);
        assert_eq!(limit("v2-own", &files[..2]), 3_000_000);
    }

    #[test]
    fn a_v1_limit_counts_also_where_the_group_is_the_root_of_a_container() {
        let files = [
            (
                "proc/self/cgroup",
                "5:cpu:/\n4:hugetlb,memory:/docker/x\n0::/\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n"),
            ("sys/fs/cgroup/cpu/memory.limit_in_bytes", "1000\n"),
        ];
        assert_eq!(limit("v1", &files), 1_000_000);
        let hybrid = [
            ("proc/self/cgroup", "4:memory:/x\n0::/y\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3000000\n"),
            ("sys/fs/cgroup/unified/y/memory.max", "2000000\n"),
        ];
        assert_eq!(limit("hybrid", &hybrid), 2_000_000);
    }

    #[test]
    fn a_system_that_says_nothing_has_an_address_space() {
        assert_eq!(below(Path::new("no/such/root")), ADDRESSABLE);
        assert_eq!(available(Path::new("no/such/root"), 0), None);
        assert!((1 << 20..=ADDRESSABLE).contains(&memory_limit()));
    }
}

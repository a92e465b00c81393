//! CPU quotas of control groups, as files below a root.

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
        let root = std::env::temp_dir().join(format!("atta-quota-{name}-{}", std::process::id()));
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

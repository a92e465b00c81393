//! The memory of this process as the system reports it: in `/proc` on Linux, by calls on Windows
//! and macOS; elsewhere every figure is `None`.
//!
//! It refuses to know what the memory is for; the budget does.

use std::fs;

use crate::os::facts;

/// Memory of this process by kind, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Heap, stacks, private maps. On Windows all that the system has promised, touched or not; on
    /// macOS with compressed pages.
    pub rss_anon: u64,
    /// Pages of mapped files, which the kernel may drop at will.
    pub rss_file: u64,
    /// Shared memory.
    pub rss_shmem: u64,
    /// The peak of the sum of all three.
    pub hwm: u64,
}

impl Usage {
    /// Reads the current figures.
    pub fn now() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok();
        status.map_or_else(facts::usage, |status| Self::from_status(&status))
    }

    fn from_status(status: &str) -> Option<Self> {
        Some(Self {
            rss_anon: kib(status, "RssAnon:")?,
            rss_file: kib(status, "RssFile:")?,
            rss_shmem: kib(status, "RssShmem:")?,
            hwm: kib(status, "VmHWM:")?,
        })
    }

    /// Private and shared memory, which no file backs.
    pub fn private(&self) -> u64 {
        self.rss_anon + self.rss_shmem
    }
}

/// Bytes that this process read from storage, page faults of mapped files included. On Windows all
/// bytes that it read, from the cache and from sockets too, but not those of page faults.
pub fn read_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok();
    io.map_or_else(facts::read_bytes, |io| {
        let line = io.lines().find_map(|line| line.strip_prefix("read_bytes:"));
        line?.trim().parse().ok()
    })
}

/// The value of a line such as `VmHWM:    1234 kB`, bytes.
pub(super) fn kib(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value
        .trim()
        .strip_suffix("kB")?
        .trim_end()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_file_is_read_by_its_keys() {
        let status = "Name:\tatta\nVmHWM:\t    9 kB\nRssAnon:\t       4 kB\nRssFile:\t 3 kB\nRssShmem:\t 2 kB\n";
        let usage = Usage::from_status(status).unwrap();
        assert_eq!(
            usage,
            Usage {
                rss_anon: 4096,
                rss_file: 3072,
                rss_shmem: 2048,
                hwm: 9216
            }
        );
        assert_eq!(usage.private(), 6144);
        assert_eq!(Usage::from_status("RssAnon: 4 kB"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_less_than_it_may() {
        let usage = Usage::now().unwrap();
        assert!(usage.private() > 0 && usage.private() < crate::system::memory_limit());
    }
}

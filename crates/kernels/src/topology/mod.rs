//! The number of threads that this process can usefully run, and binding a thread to a CPU. Linux
//! reports topology and quotas, Windows and Apple's systems topology and kinds of cores; elsewhere
//! the number is that of the standard library.
//!
//! Two threads on one core compete for the same multipliers, threads beyond the quota of a control
//! group are stopped in the middle of a region, and a region waits for its slowest thread. So the
//! default is the number of distinct physical cores in the affinity mask, of the fastest kind where
//! the system tells kinds apart, at most the quota. Everything here reads the system and nothing
//! else.

#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(target_vendor = "apple", path = "apple.rs")]
#[cfg_attr(
    not(any(
        target_os = "linux",
        target_os = "android",
        windows,
        target_vendor = "apple"
    )),
    path = "unknown.rs"
)]
mod imp;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod quota;

/// The number of [`crate::Pool::default_threads`].
pub(crate) fn default_threads() -> usize {
    let logical = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    imp::usable_cores().unwrap_or(logical).clamp(1, logical)
}

pub(crate) use imp::{pin, try_to_pin};

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(crate) use imp::allowed_cpus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_thread_and_no_more_than_cpus() {
        let logical = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        assert!((1..=logical).contains(&default_threads()));
    }
}

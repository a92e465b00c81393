//! Pages of a mapped file that cannot be read: a bus error, which ends a program unless it is
//! caught.
//!
//! It happens when another process truncates the file, or when the disk fails. The handler replaces
//! the rest of that map by zeros and marks it as damaged; `Weights::end` checks the mark
//! ([`Watch::is_damaged`]) before a step returns a result. Other bus errors end the program as
//! usual.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most maps that are watched at the same time; further maps are not.
const N_WATCHED: usize = 256;

static MAPS: [WatchedMap; N_WATCHED] = [const { WatchedMap::new() }; N_WATCHED];

/// A map that is being watched. Its fields are atomic, because the handler may run at any time; it
/// is global, because the handler gets only the address.
struct WatchedMap {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    is_damaged: AtomicBool,
}

impl WatchedMap {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }
}

/// Watches one map until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch(Option<usize>);

impl Watch {
    /// Watches `bytes`, unless too many maps are watched.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let is_free = |map: &WatchedMap| !map.is_taken.swap(true, Ordering::AcqRel);
        let index = MAPS.iter().position(is_free);
        if let Some(map) = index.map(|i| &MAPS[i]) {
            let start = bytes.as_ptr().addr();
            map.is_damaged.store(false, Ordering::Release);
            map.start.store(start, Ordering::Release);
            map.end.store(start + bytes.len(), Ordering::Release);
        }
        Self(index)
    }

    /// Whether a part of the map could not be read and was replaced by zeros.
    pub(crate) fn is_damaged(&self) -> bool {
        self.0
            .is_some_and(|i| MAPS[i].is_damaged.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(map) = self.0.map(|i| &MAPS[i]) {
            map.end.store(0, Ordering::Release);
            map.start.store(0, Ordering::Release);
            map.is_taken.store(false, Ordering::Release);
        }
    }
}

/// Catches bus errors in mapped models from now on, for the whole process: a step with a bus error
/// returns an error instead. The program calls this, not the library, because signals belong to the
/// program. Does nothing on systems without signals.
pub fn catch_bus_errors() {
    #[cfg(unix)]
    handler::install();
}

#[cfg(unix)]
mod handler {
    use super::{MAPS, Ordering, WatchedMap};

    /// Replaces the previous handler of bus errors.
    pub(super) fn install() {
        // SAFETY: the structure is plain data for which zeros are valid; the handler is
        // async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    }

    /// Uses system calls and atomics only, as a signal handler must.
    extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid structure, which for this signal has an address.
        let at = unsafe { (*info).si_addr() }.addr();
        if !MAPS.iter().any(|map| replace_by_zeros(map, at)) {
            // The instruction runs again after this handler and ends the program.
            // SAFETY: a plain system call.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        }
    }

    /// Replaces the pages from that of `at` to the end of the map by zeros, if `at` is in this map.
    fn replace_by_zeros(map: &WatchedMap, at: usize) -> bool {
        let start = map.start.load(Ordering::Acquire);
        let end = map.end.load(Ordering::Acquire);
        // If the entry changed between the loads, its map is new and the fault is not in it.
        if !(start..end).contains(&at) || map.start.load(Ordering::Acquire) != start {
            return false;
        }
        map.is_damaged.store(true, Ordering::Release);
        // SAFETY: a plain system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let from = at - at % page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the pages belong to a read-only map that is alive, since its watch is; they keep
        // their addresses and become readable zeros.
        let zeros = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(from),
                end - from,
                libc::PROT_READ,
                flags,
                -1,
                0,
            )
        };
        zeros != libc::MAP_FAILED
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};

    use super::{super::Map, *};

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no signals")]
    fn a_file_that_becomes_shorter_is_damaged_and_the_process_survives() {
        catch_bus_errors();
        let path = std::env::temp_dir().join(format!("atta-bus-{}", std::process::id()));
        fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let map = Map::new(&File::open(&path).unwrap()).unwrap();
        assert!(!map.is_damaged());
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(4096)
            .unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!((map.as_ref()[0], map.is_damaged()), (7, false));
        assert_eq!((map.as_ref()[500_000], map.is_damaged()), (0, true));
        assert_eq!((map.as_ref()[(1 << 20) - 1], map.as_ref()[0]), (0, 7));
    }

    #[test]
    fn a_dropped_watch_frees_its_entry() {
        for _ in 0..2 * N_WATCHED {
            assert!(Watch::new(&[1]).0.is_some());
        }
    }
}

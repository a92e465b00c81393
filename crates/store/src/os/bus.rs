//! Pages of a mapped file that cannot be read: a bus error, which ends a program unless it is
//! caught.
//!
//! It happens when another process truncates the file, or when the disk fails. The handler puts
//! zeros in the place of the rest of that map and notes that it did; whoever computes asks before
//! it hands out a result ([`Watch::is_damaged`]). Bus errors elsewhere end the program as ever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maps that can be watched at the same time; further ones are not.
const PLACES: usize = 256;

static MAPS: [Place; PLACES] = [const { Place::new() }; PLACES];

/// A map that is being watched. All of it is atomic, since a handler may look at any time; and it
/// is global, since a handler gets nothing from the program but the address.
struct Place {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    is_damaged: AtomicBool,
}

impl Place {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }
}

/// The watch over one map; it ends with the map.
#[derive(Debug)]
pub(crate) struct Watch(Option<usize>);

impl Watch {
    /// Watches `bytes`, if there is a place left.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let free = |place: &Place| !place.is_taken.swap(true, Ordering::AcqRel);
        let place = MAPS.iter().position(free);
        if let Some(Place {
            start,
            end,
            is_damaged,
            ..
        }) = place.map(|i| &MAPS[i])
        {
            is_damaged.store(false, Ordering::Release);
            start.store(bytes.as_ptr().addr(), Ordering::Release);
            end.store(bytes.as_ptr().addr() + bytes.len(), Ordering::Release);
        }
        Self(place)
    }

    /// Whether a part of the map could not be read and is zeros now.
    pub(crate) fn is_damaged(&self) -> bool {
        self.0
            .is_some_and(|i| MAPS[i].is_damaged.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(place) = self.0.map(|i| &MAPS[i]) {
            place.end.store(0, Ordering::Release);
            place.start.store(0, Ordering::Release);
            place.is_taken.store(false, Ordering::Release);
        }
    }
}

/// Catches bus errors in mapped models from now on, for the whole process: a step that met one
/// returns an error instead. A program calls it, and not the library, because signals belong to the
/// program. Does nothing where there are none.
pub fn catch_bus_errors() {
    #[cfg(unix)]
    handler::install();
}

#[cfg(unix)]
mod handler {
    use super::{MAPS, Ordering, Place};

    /// Takes the place of what the process did with bus errors before.
    pub(super) fn install() {
        // SAFETY: the structure is plain data for which zeros are valid; the handler does only what
        // is allowed in one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    }

    /// Allowed here are system calls and atomics, and nothing else.
    extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid structure, which for this signal has an address.
        let at = unsafe { (*info).si_addr() }.addr();
        if !MAPS.iter().any(|place| mend(place, at)) {
            // The instruction is run again after this and ends the program as it would have.
            // SAFETY: a plain system call.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        }
    }

    /// Puts zeros from the page of `at` to the end of the map, if it is in that map.
    fn mend(place: &Place, at: usize) -> bool {
        let (start, end) = (
            place.start.load(Ordering::Acquire),
            place.end.load(Ordering::Acquire),
        );
        // A place that changed hands between the two looks is of no map that the fault could be in.
        if !(start..end).contains(&at) || place.start.load(Ordering::Acquire) != start {
            return false;
        }
        place.is_damaged.store(true, Ordering::Release);
        // SAFETY: a plain system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let from = at - at % page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the pages belong to a read-only map that is alive, since its watch is; they keep
        // their addresses and become readable zeros, which is what a bus error leaves no
        // better alternative to.
        let mended = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(from),
                end - from,
                libc::PROT_READ,
                flags,
                -1,
                0,
            )
        };
        mended != libc::MAP_FAILED
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};

    use super::{super::Map, *};

    #[test]
    fn a_file_that_becomes_shorter_is_damaged_and_nobody_dies() {
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
    fn a_place_is_free_again_when_its_map_goes() {
        for _ in 0..2 * PLACES {
            assert!(Watch::new(&[1]).0.is_some());
        }
    }
}

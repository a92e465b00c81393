//! Private pages: the memory behind a region.
//!
//! Knows no slot. The one idea: systems give pages by anonymous maps; WebAssembly has no maps, and
//! takes them from the allocator, whose largest piece there is half of what can be addressed.

use std::io;

/// The most bytes that are asked for in one piece.
pub(super) const MAX_BYTES: usize = if cfg!(target_family = "wasm") {
    1 << 30
} else {
    isize::MAX as usize
};

#[cfg(not(target_family = "wasm"))]
pub(super) use mapped::Pages;

#[cfg(target_family = "wasm")]
pub(super) use allocated::Pages;

#[cfg(not(target_family = "wasm"))]
mod mapped {
    use super::*;

    /// Zeroed pages.
    pub(in crate::os) struct Pages(memmap2::MmapRaw);

    impl Pages {
        /// At least one page.
        ///
        /// # Errors
        /// The error of a system that cannot give so much memory.
        pub(in crate::os) fn new(n_bytes: usize) -> io::Result<Self> {
            let map = memmap2::MmapMut::map_anon(n_bytes.max(1))?;
            Ok(Self(memmap2::MmapRaw::from(map)))
        }

        /// The first byte.
        pub(in crate::os) fn as_mut_ptr(&self) -> *mut u8 {
            self.0.as_mut_ptr()
        }

        /// Requests huge pages for these bytes, and brings all of them into memory; false if the
        /// system does not do so at once.
        // Miri has no `madvise`.
        #[cfg(all(target_os = "linux", not(miri)))]
        pub(in crate::os) fn populate(&self, start: usize, n_bytes: usize) -> bool {
            let advise = |advice| self.0.advise_range(advice, start, n_bytes);
            let _ = advise(memmap2::Advice::HugePage);
            advise(memmap2::Advice::PopulateWrite).is_ok()
        }

        /// Does nothing.
        #[cfg(not(all(target_os = "linux", not(miri))))]
        pub(in crate::os) fn populate(&self, _: usize, _: usize) -> bool {
            false
        }
    }
}

#[cfg(target_family = "wasm")]
mod allocated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::*;
    use crate::os::ALIGN;

    /// Zeroed pages.
    pub(in crate::os) struct Pages {
        start: *mut u8,
        layout: Layout,
    }

    // SAFETY: the pages belong to this value alone, as those of a `Box` do.
    unsafe impl Send for Pages {}
    // SAFETY: a shared value gives a pointer, and its user answers for what it does with it.
    unsafe impl Sync for Pages {}

    impl Pages {
        /// At least one page.
        ///
        /// # Errors
        /// Memory that cannot grow so far.
        pub(in crate::os) fn new(n_bytes: usize) -> io::Result<Self> {
            let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
            let layout = Layout::from_size_align(n_bytes.max(1), ALIGN).map_err(|_| no_memory())?;
            // SAFETY: the size is not 0.
            let start = unsafe { alloc_zeroed(layout) };
            match start.is_null() {
                true => Err(no_memory()),
                false => Ok(Self { start, layout }),
            }
        }

        /// The first byte.
        pub(in crate::os) fn as_mut_ptr(&self) -> *mut u8 {
            self.start
        }

        /// All of them are in memory.
        pub(in crate::os) fn populate(&self, _: usize, _: usize) -> bool {
            true
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: `alloc_zeroed` gave the pointer for this layout, and nothing freed it.
            unsafe { dealloc(self.start, self.layout) };
        }
    }
}

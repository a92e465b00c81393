//! Memory for the arguments of calls, which JavaScript writes.

use std::{
    alloc::{Layout, alloc, dealloc},
    ptr,
};

/// Enough for all that the C interface takes.
const ALIGN: usize = 16;

fn layout(n_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(n_bytes.max(1), ALIGN).ok()
}

/// Allocates bytes, whose values mean nothing; NULL if there is no memory for them.
#[unsafe(no_mangle)]
pub extern "C" fn atta_web_alloc(n_bytes: usize) -> *mut u8 {
    // SAFETY: the size is not 0.
    layout(n_bytes).map_or(ptr::null_mut(), |layout| unsafe { alloc(layout) })
}

/// Frees bytes; NULL is ignored.
///
/// # Safety
/// `atta_web_alloc` gave `start` for as many bytes, and nothing has freed it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_web_free(start: *mut u8, n_bytes: usize) {
    if let Some(layout) = layout(n_bytes).filter(|_| !start.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(start, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_no_bytes_are_no_error() {
        for n in [0, 1, 100] {
            let start = atta_web_alloc(n);
            assert!(!start.is_null() && start.addr().is_multiple_of(ALIGN));
            // SAFETY: it was allocated above.
            unsafe { atta_web_free(start, n) };
        }
        // SAFETY: NULL is ignored.
        unsafe { atta_web_free(ptr::null_mut(), 5) };
        assert!(atta_web_alloc(usize::MAX).is_null());
    }
}

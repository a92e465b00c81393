//! Private memory for weights: pages in one piece, huge ones where the system has them, divided
//! into slots; several pieces where the system gives no large ones.
//!
//! The disk writes into pages of 2 MiB three times as fast as into pages of 4 KiB, because a
//! request consists of fewer pages. Every page is touched when the region is made, so that the
//! planned memory is the used memory, and no reader waits for the kernel to find a page. A slot is
//! owned: its holder may write to it and send it to another thread.

use std::{
    io,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::pages::{MAX_BYTES, Pages};

/// Addresses and lengths of direct reads are multiples of this, bytes. Disks want 512 or 4,096.
pub(crate) const ALIGN: usize = 4096;

/// The size of a huge page on most systems, bytes.
const HUGE: usize = if cfg!(target_family = "wasm") {
    ALIGN
} else {
    2 << 20
};

/// A part of a region. The region lives as long as any of its slots.
pub(crate) struct Slot {
    start: *mut u8,
    len: usize,
    _region: Arc<Pages>,
}

// SAFETY: a slot is the only way to its bytes, as a `Box<[u8]>` is.
unsafe impl Send for Slot {}
// SAFETY: a shared slot can only be read.
unsafe impl Sync for Slot {}

impl Slot {
    /// Allocates a slot for each of these sizes, all in one region if it can be in one piece. Every
    /// slot begins at a multiple of [`ALIGN`].
    ///
    /// # Errors
    /// The error of a system that cannot give so much memory.
    pub(crate) fn carve(sizes: &[usize]) -> io::Result<Vec<Self>> {
        let mut slots = Vec::with_capacity(sizes.len());
        let mut rest = sizes;
        while !rest.is_empty() {
            let n = n_together(rest)?;
            let (now, later) = rest.split_at(n);
            Self::carve_region(now, &mut slots)?;
            rest = later;
        }
        Ok(slots)
    }

    /// Allocates one region for these sizes.
    fn carve_region(sizes: &[usize], slots: &mut Vec<Self>) -> io::Result<()> {
        let total: usize = sizes.iter().map(|len| len.next_multiple_of(ALIGN)).sum();
        // Untouched pages cost nothing, so the bytes for alignment are free.
        let room = total.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Arc::new(Pages::new(room)?);
        let skip = region.as_mut_ptr().align_offset(HUGE).min(HUGE);
        touch(&region, skip, total);
        let mut at = skip;
        slots.extend(sizes.iter().map(|&len| {
            // SAFETY: `at + len` is at most `skip + total`, which lies inside the region.
            let start = unsafe { region.as_mut_ptr().add(at) };
            at += len.next_multiple_of(ALIGN);
            Self {
                start,
                len,
                _region: region.clone(),
            }
        }));
        Ok(())
    }
}

/// How many of these slots have one region: at least one of them.
fn n_together(sizes: &[usize]) -> io::Result<usize> {
    let mut total = 0usize;
    for (n, len) in sizes.iter().enumerate() {
        let padded = len.checked_next_multiple_of(ALIGN);
        let sum = padded.and_then(|padded| total.checked_add(padded));
        match sum {
            Some(sum) if sum <= MAX_BYTES || n == 0 => total = sum,
            None if n == 0 => return Err(io::ErrorKind::OutOfMemory.into()),
            _ => return Ok(n),
        }
    }
    Ok(sizes.len())
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot's bytes are initialised (a fresh map is zeros), inside the region, and
        // in no other slot.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the slot is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Brings every page into memory, huge ones if the system has them; if it refuses those, reads are
/// slower.
fn touch(region: &Pages, start: usize, len: usize) {
    if region.populate(start, len) {
        return;
    }
    for at in (start..start + len).step_by(ALIGN) {
        // SAFETY: `at` lies inside the region, and no slot of it exists yet. A volatile write is
        // not optimized away.
        unsafe { region.as_mut_ptr().add(at).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_and_disjoint() {
        let mut slots = Slot::carve(&[5, 4096, 0, 4097, 1]).unwrap();
        assert_eq!(
            slots.iter().map(|s| s.len()).collect::<Vec<_>>(),
            [5, 4096, 0, 4097, 1]
        );
        assert!(
            slots
                .iter()
                .all(|s| s.as_ptr().addr().is_multiple_of(ALIGN) && s.iter().all(|&b| b == 0))
        );
        for (i, slot) in slots.iter_mut().enumerate() {
            slot.fill(i as u8 + 1);
        }
        assert!(
            slots
                .iter()
                .enumerate()
                .all(|(i, s)| s.iter().all(|&b| b == i as u8 + 1))
        );
        let last = slots.pop().unwrap();
        drop(slots);
        assert_eq!(*last, [5]);
    }

    #[test]
    fn slots_that_are_too_large_together_have_regions_of_their_own() {
        let most = MAX_BYTES / ALIGN * ALIGN;
        assert_eq!(n_together(&[1, most - ALIGN, 1]).unwrap(), 2);
        assert_eq!(n_together(&[most, 1]).unwrap(), 1);
        assert_eq!(n_together(&[most + ALIGN, 1]).unwrap(), 1);
        assert!(n_together(&[usize::MAX]).is_err());
    }

    #[test]
    fn empty_and_huge_regions_do_not_panic() {
        assert!(Slot::carve(&[]).unwrap().is_empty());
        assert!(Slot::carve(&[0]).unwrap()[0].is_empty());
        assert!(Slot::carve(&[usize::MAX, 5]).is_err());
        // Miri aborts where a system refuses.
        assert!(cfg!(miri) || Slot::carve(&[isize::MAX as usize]).is_err());
    }
}

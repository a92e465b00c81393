//! Private memory for weights: one map, in huge pages where the system has them, divided into
//! slots.
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

/// Addresses and lengths of direct reads are multiples of this, bytes. Disks want 512 or 4,096.
pub(crate) const ALIGN: usize = 4096;

/// The size of a huge page on most systems, bytes.
const HUGE: usize = 2 << 20;

/// A part of a region. The region lives as long as any of its slots.
pub(crate) struct Slot {
    start: *mut u8,
    len: usize,
    _region: Arc<memmap2::MmapRaw>,
}

// SAFETY: a slot is the only way to its bytes, as a `Box<[u8]>` is.
unsafe impl Send for Slot {}
// SAFETY: a shared slot can only be read.
unsafe impl Sync for Slot {}

impl Slot {
    /// Allocates one region with a slot for each of these sizes. Every slot begins at a multiple of
    /// [`ALIGN`].
    ///
    /// # Errors
    /// The error of a system that cannot give so much memory.
    pub(crate) fn carve(sizes: &[usize]) -> io::Result<Vec<Self>> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let total = sizes.iter().try_fold(0usize, |sum, &len| {
            sum.checked_add(len.checked_next_multiple_of(ALIGN)?)
        });
        let total = total.ok_or_else(too_large)?;
        if total == 0 {
            return sizes.iter().map(|_| Self::empty()).collect();
        }
        // Untouched pages cost nothing, so the bytes for alignment are free.
        let room = total.checked_add(HUGE).ok_or_else(too_large)?;
        let region = memmap2::MmapMut::map_anon(room)?;
        let skip = region.as_ptr().align_offset(HUGE).min(HUGE);
        let region = Arc::new(memmap2::MmapRaw::from(region));
        touch(&region, skip, total);
        let mut at = skip;
        Ok(sizes
            .iter()
            .map(|&len| {
                // SAFETY: `at + len` is at most `skip + total`, which lies inside the map.
                let start = unsafe { region.as_mut_ptr().add(at) };
                at += len.next_multiple_of(ALIGN);
                Self {
                    start,
                    len,
                    _region: region.clone(),
                }
            })
            .collect())
    }

    fn empty() -> io::Result<Self> {
        let region = Arc::new(memmap2::MmapRaw::from(memmap2::MmapMut::map_anon(1)?));
        Ok(Self {
            start: region.as_mut_ptr(),
            len: 0,
            _region: region,
        })
    }
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

/// Requests huge pages and brings every page into memory. If the system refuses huge pages, reads
/// are slower.
fn touch(region: &memmap2::MmapRaw, start: usize, len: usize) {
    // Miri has no `madvise`.
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let _ = region.advise_range(memmap2::Advice::HugePage, start, len);
        if region
            .advise_range(memmap2::Advice::PopulateWrite, start, len)
            .is_ok()
        {
            return;
        }
    }
    for at in (start..start + len).step_by(ALIGN) {
        // SAFETY: `at` lies inside the map, and no slot of it exists yet. A volatile write is not
        // optimized away.
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
    fn empty_and_huge_regions_do_not_panic() {
        assert!(Slot::carve(&[]).unwrap().is_empty());
        assert!(Slot::carve(&[0]).unwrap()[0].is_empty());
        assert!(Slot::carve(&[usize::MAX, 5]).is_err());
        // Miri aborts where a system refuses.
        assert!(cfg!(miri) || Slot::carve(&[usize::MAX / 4]).is_err());
    }
}

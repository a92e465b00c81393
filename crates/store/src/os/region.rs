//! Private memory for weights: one map, in huge pages where the system has them, cut into slots.
//!
//! The disk writes into pages of 2 MiB three times as fast as into pages of 4 KiB, because a
//! request is made of fewer of them. Every page is touched when the region is made, so that what
//! was planned is what is used, and no reader waits for the kernel to find a page. A slot is owned:
//! whoever holds it may write, and it can go to another thread.

use std::{
    io,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// What addresses and lengths of direct reads are multiples of, bytes. Disks want 512 or 4,096.
pub(crate) const ALIGN: usize = 4096;

/// The size of a huge page, bytes, or close enough where it is another.
const HUGE: usize = 2 << 20;

/// A part of a region. Its region lives as long as any slot of it.
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
    /// Slots of these sizes, each of which is rounded up to a multiple of [`ALIGN`] and begins at
    /// one, in one region.
    ///
    /// # Errors
    /// What the system says if it has no such memory.
    pub(crate) fn carve(sizes: &[usize]) -> io::Result<Vec<Self>> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let total = sizes.iter().try_fold(0usize, |sum, &len| {
            sum.checked_add(len.checked_next_multiple_of(ALIGN)?)
        });
        let total = total.ok_or_else(too_large)?;
        if total == 0 {
            return sizes.iter().map(|_| Self::empty()).collect();
        }
        // Pages that are never touched cost nothing, so the room for alignment is free.
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

/// Asks for huge pages and brings every page in. Both are wishes: without them everything works,
/// only slower.
fn touch(region: &memmap2::MmapRaw, start: usize, len: usize) {
    #[cfg(target_os = "linux")]
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
        // SAFETY: `at` lies inside the map, of which no slot exists yet. A volatile write is not
        // optimized away.
        unsafe { region.as_mut_ptr().add(at).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_apart_and_their_own() {
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
    fn nothing_and_too_much_are_no_panic() {
        assert!(Slot::carve(&[]).unwrap().is_empty());
        assert!(Slot::carve(&[0]).unwrap()[0].is_empty());
        assert!(Slot::carve(&[usize::MAX, 5]).is_err());
        assert!(Slot::carve(&[usize::MAX / 4]).is_err());
    }
}

//! Windows: cores and their kinds, processor groups, affinity of threads.
//!
//! CPUs are counted through all groups: those of group 1 follow those of group 0.

use std::{mem::offset_of, ptr};

use windows_sys::Win32::System::{
    SystemInformation::{
        GROUP_AFFINITY, GetLogicalProcessorInformationEx, PROCESSOR_RELATIONSHIP,
        RelationProcessorCore, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX,
    },
    Threading::{
        GetActiveProcessorCount, GetActiveProcessorGroupCount, GetCurrentProcess, GetCurrentThread,
        GetProcessAffinityMask, SetThreadGroupAffinity,
    },
};

use crate::Error;

/// Binds the calling thread to `cpu`.
pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
    bind(cpu, ptr::null_mut())
}

/// Checks that the calling thread can be bound to `cpu`; its affinity stays as it is.
pub(crate) fn try_to_pin(cpu: usize) -> Result<(), Error> {
    let mut before = GROUP_AFFINITY::default();
    bind(cpu, &raw mut before)?;
    // SAFETY: the affinity is the one that the system just gave.
    unsafe { SetThreadGroupAffinity(GetCurrentThread(), &raw const before, ptr::null_mut()) };
    Ok(())
}

fn bind(cpu: usize, before: *mut GROUP_AFFINITY) -> Result<(), Error> {
    let blame = |reason: String| Error::Pin { cpu, reason };
    let affinity = place(cpu).ok_or_else(|| blame("there are fewer".into()))?;
    // SAFETY: both structures are alive, or the second is none.
    let done = unsafe { SetThreadGroupAffinity(GetCurrentThread(), &raw const affinity, before) };
    if done == 0 {
        return Err(blame(std::io::Error::last_os_error().to_string()));
    }
    Ok(())
}

/// The group of a CPU and its bit.
fn place(cpu: usize) -> Option<GROUP_AFFINITY> {
    let mut first = 0;
    // SAFETY: plain calls.
    for group in 0..unsafe { GetActiveProcessorGroupCount() } {
        // SAFETY: as above.
        let n = unsafe { GetActiveProcessorCount(group) } as usize;
        if (first..first + n).contains(&cpu) {
            return Some(GROUP_AFFINITY {
                Mask: 1 << (cpu - first),
                Group: group,
                Reserved: [0; 3],
            });
        }
        first += n;
    }
    None
}

/// A core: how fast its kind is, greater for faster, and its CPUs by group.
#[derive(Clone, Copy)]
struct Core {
    class: u8,
    affinity: GROUP_AFFINITY,
}

/// Cores of the fastest kind that this process may use.
pub(crate) fn usable_cores() -> Option<usize> {
    let allowed = allowed_mask();
    let is_allowed = |core: &Core| allowed.is_none_or(|mask| core.affinity.Mask & mask != 0);
    let usable: Vec<Core> = cores()?.into_iter().filter(is_allowed).collect();
    let fastest = usable.iter().map(|core| core.class).max()?;
    Some(usable.iter().filter(|core| core.class == fastest).count())
}

/// The CPUs of this process on a machine with one group; `None` with more, whose masks a process
/// does not have.
fn allowed_mask() -> Option<usize> {
    let mut process = 0;
    let mut system = 0;
    // SAFETY: both numbers are alive.
    let done =
        unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut process, &raw mut system) };
    // SAFETY: a plain call.
    let is_one = unsafe { GetActiveProcessorGroupCount() } == 1;
    (done != 0 && is_one && process != 0).then_some(process)
}

fn cores() -> Option<Vec<Core>> {
    let mut size = 0;
    // SAFETY: without a buffer the call only says how large one must be.
    unsafe {
        GetLogicalProcessorInformationEx(RelationProcessorCore, ptr::null_mut(), &raw mut size)
    };
    // Entries hold pointers' sizes and begin at multiples of 8.
    let mut buffer = vec![0u64; (size as usize).div_ceil(8)];
    // SAFETY: the buffer has at least as many bytes as said.
    let done = unsafe {
        GetLogicalProcessorInformationEx(
            RelationProcessorCore,
            buffer.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    (done != 0).then(|| read_cores(bytes.get(..size as usize).unwrap_or_default()))
}

/// Reads entries, which each say their sizes; those that are cut off are left out.
fn read_cores(mut bytes: &[u8]) -> Vec<Core> {
    const SIZE: usize = offset_of!(SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX, Size);
    const CORE: usize = offset_of!(SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX, Anonymous);
    const CLASS: usize = CORE + offset_of!(PROCESSOR_RELATIONSHIP, EfficiencyClass);
    const MASK: usize = CORE + offset_of!(PROCESSOR_RELATIONSHIP, GroupMask);
    const GROUP: usize = MASK + offset_of!(GROUP_AFFINITY, Group);
    let mut cores = Vec::new();
    while let Some(size) = array(bytes, SIZE).map(u32::from_ne_bytes) {
        let core = || {
            Some(Core {
                class: *bytes.get(CLASS)?,
                affinity: GROUP_AFFINITY {
                    Mask: usize::from_ne_bytes(array(bytes, MASK)?),
                    Group: u16::from_ne_bytes(array(bytes, GROUP)?),
                    Reserved: [0; 3],
                },
            })
        };
        cores.extend(core());
        let Some(rest) = bytes.get((size as usize).max(1)..) else {
            break;
        };
        bytes = rest;
    }
    cores
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_a_cpu_that_exists_and_to_no_other() {
        try_to_pin(0).unwrap();
        let error = try_to_pin(1 << 20).unwrap_err().to_string();
        assert!(error.contains("there are fewer"), "{error}");
    }

    #[test]
    fn there_is_a_core_and_cut_entries_are_left_out() {
        assert!(usable_cores().unwrap() >= 1);
        assert!(read_cores(&[0; 7]).is_empty());
        assert!(read_cores(&[]).is_empty());
    }
}

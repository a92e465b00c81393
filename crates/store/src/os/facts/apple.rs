//! What macOS and iOS say of memory: `sysctl`, the pages of the virtual memory system, the ledger
//! of this process. An app on iOS is told how much it may still take; on macOS there is no limit
//! but the machine's memory.

use std::ffi::CStr;

#[cfg(target_os = "macos")]
use libc::{
    HOST_VM_INFO64, HOST_VM_INFO64_COUNT, KERN_SUCCESS, host_statistics64, vm_statistics64,
};

use crate::system::{MachineMemory, Usage};

unsafe extern "C" {
    // In libc only with a note that another crate has it, which would be one for one function.
    #[cfg(target_os = "macos")]
    fn mach_host_self() -> libc::mach_port_t;
    #[cfg(not(target_os = "macos"))]
    fn os_proc_available_memory() -> libc::size_t;
}

/// Memory, and the swap files that exist now.
pub(crate) fn machine() -> Option<MachineMemory> {
    let swap: Option<libc::xsw_usage> = value(c"vm.swapusage");
    Some(MachineMemory {
        memory: value(c"hw.memsize")?,
        swap: swap.map_or(0, |swap| swap.xsu_total),
    })
}

/// Reads one value of the system of a type that any bytes make.
fn value<T: Copy>(name: &CStr) -> Option<T> {
    let (value, size) = read(name)?;
    (size == size_of::<T>()).then_some(value)
}

/// Reads a text of at most `N` bytes, its zero included.
fn text<const N: usize>(name: &CStr) -> Option<[u8; N]> {
    read(name).map(|(text, _)| text)
}

/// A value that any bytes make, and how many bytes of it the system wrote; the others are zeros.
fn read<T: Copy>(name: &CStr) -> Option<(T, usize)> {
    let mut bytes = std::mem::MaybeUninit::<T>::zeroed();
    let mut size = size_of::<T>();
    // SAFETY: the buffer has as many bytes as said, and the name ends with a zero.
    let failed = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            bytes.as_mut_ptr().cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    // SAFETY: `T` is numbers, and zeros are valid ones.
    (failed == 0).then(|| (unsafe { bytes.assume_init() }, size))
}

/// The name of the processor.
pub(crate) fn processor() -> Option<String> {
    let name: [u8; 64] = text(c"machdep.cpu.brand_string")?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_str().ok()?.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Pages that are free or were not used for long.
#[cfg(target_os = "macos")]
pub(crate) fn available() -> Option<u64> {
    let mut pages = std::mem::MaybeUninit::<vm_statistics64>::zeroed();
    let mut n = HOST_VM_INFO64_COUNT;
    // SAFETY: the count is that of the structure.
    let status = unsafe {
        host_statistics64(
            mach_host_self(),
            HOST_VM_INFO64,
            pages.as_mut_ptr().cast(),
            &raw mut n,
        )
    };
    // SAFETY: numbers, and zeros are valid ones.
    let pages = unsafe { pages.assume_init() };
    // SAFETY: a plain call.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let free = u64::from(pages.free_count) + u64::from(pages.inactive_count);
    (status == KERN_SUCCESS).then_some(free * page)
}

#[cfg(not(target_os = "macos"))]
pub(crate) fn available() -> Option<u64> {
    // SAFETY: a plain call.
    Some(unsafe { os_proc_available_memory() } as u64)
}

/// `None`: there are no groups of processes with limits.
pub(crate) fn limit() -> Option<u64> {
    None
}

/// Private memory is the footprint, which Activity Monitor calls memory: compressed pages too.
#[cfg(target_os = "macos")]
pub(crate) fn usage() -> Option<Usage> {
    let ledger = ledger()?;
    Some(Usage {
        rss_anon: ledger.ri_phys_footprint,
        rss_file: ledger
            .ri_resident_size
            .saturating_sub(ledger.ri_phys_footprint),
        rss_shmem: 0,
        hwm: ledger
            .ri_lifetime_max_phys_footprint
            .max(ledger.ri_resident_size),
    })
}

#[cfg(target_os = "macos")]
pub(crate) fn read_bytes() -> Option<u64> {
    Some(ledger()?.ri_diskio_bytesread)
}

#[cfg(target_os = "macos")]
fn ledger() -> Option<libc::rusage_info_v4> {
    let mut ledger = std::mem::MaybeUninit::<libc::rusage_info_v4>::zeroed();
    let pid = std::process::id().cast_signed();
    // SAFETY: the structure is the one of this flavor.
    let failed =
        unsafe { libc::proc_pid_rusage(pid, libc::RUSAGE_INFO_V4, ledger.as_mut_ptr().cast()) };
    // SAFETY: numbers, and zeros are valid ones.
    (failed == 0).then(|| unsafe { ledger.assume_init() })
}

/// `None`: the ledger of a process is not public there.
#[cfg(not(target_os = "macos"))]
pub(crate) fn usage() -> Option<Usage> {
    None
}

#[cfg(not(target_os = "macos"))]
pub(crate) fn read_bytes() -> Option<u64> {
    None
}

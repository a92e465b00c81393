//! What Windows says of memory: `GlobalMemoryStatusEx`, the limits of a job object, the counters of
//! this process; and the name of the processor, which is in the registry.

use std::ptr;

use windows_sys::Win32::System::{
    JobObjects::{
        JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
        JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation,
        QueryInformationJobObject,
    },
    ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS_EX},
    Registry::{HKEY_LOCAL_MACHINE, RRF_RT_REG_SZ, RegGetValueW},
    SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX},
    Threading::{GetCurrentProcess, GetProcessIoCounters, IO_COUNTERS},
};

use crate::system::{MachineMemory, Usage};

/// Physical memory, and the page files as swap.
pub(crate) fn machine() -> Option<MachineMemory> {
    let status = memory_status()?;
    Some(MachineMemory {
        memory: status.ullTotalPhys,
        swap: status.ullTotalPageFile.saturating_sub(status.ullTotalPhys),
    })
}

/// Free and standby memory, as far as the system would still promise it.
pub(crate) fn available() -> Option<u64> {
    let status = memory_status()?;
    Some(status.ullAvailPhys.min(status.ullAvailPageFile))
}

fn memory_status() -> Option<MEMORYSTATUSEX> {
    let mut status = MEMORYSTATUSEX {
        dwLength: size_of::<MEMORYSTATUSEX>() as u32,
        ..Default::default()
    };
    // SAFETY: the structure is alive and says its own size.
    let done = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    (done != 0).then_some(status)
}

/// The most memory that the job object of this process leaves it; `None` without one.
pub(crate) fn limit() -> Option<u64> {
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    // SAFETY: no handle stands for the job of this process, and the size is that of the structure.
    let done = unsafe {
        QueryInformationJobObject(
            ptr::null_mut(),
            JobObjectExtendedLimitInformation,
            (&raw mut limits).cast(),
            size_of_val(&limits) as u32,
            ptr::null_mut(),
        )
    };
    let flags = limits.BasicLimitInformation.LimitFlags;
    let own = (JOB_OBJECT_LIMIT_PROCESS_MEMORY, limits.ProcessMemoryLimit);
    let of_all = (JOB_OBJECT_LIMIT_JOB_MEMORY, limits.JobMemoryLimit);
    let set = [own, of_all]
        .into_iter()
        .filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, bytes)| bytes as u64)
        .min()
        .filter(|_| done != 0)
}

/// The name of the first processor.
pub(crate) fn processor() -> Option<String> {
    let wide = |text: &str| -> Vec<u16> { text.encode_utf16().chain([0]).collect() };
    let key = wide(r"HARDWARE\DESCRIPTION\System\CentralProcessor\0");
    let value = wide("ProcessorNameString");
    let mut name = [0u16; 128];
    let mut size = size_of_val(&name) as u32;
    // SAFETY: both texts end with zeros, and the buffer has as many bytes as said.
    let failed = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            value.as_ptr(),
            RRF_RT_REG_SZ,
            ptr::null_mut(),
            name.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let text = String::from_utf16_lossy(&name);
    let text = text.trim_end_matches('\0').trim();
    (failed == 0 && !text.is_empty()).then(|| text.to_owned())
}

/// Private memory is what the system has promised, touched or not: limits count that. Wine leaves
/// `PrivateUsage` zero, and Windows gives `PagefileUsage` the same number.
pub(crate) fn usage() -> Option<Usage> {
    let mut counters = PROCESS_MEMORY_COUNTERS_EX {
        cb: size_of::<PROCESS_MEMORY_COUNTERS_EX>() as u32,
        ..Default::default()
    };
    let size = counters.cb;
    // SAFETY: the longer structure begins with the shorter one, and says its own size.
    let done =
        unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), (&raw mut counters).cast(), size) };
    let private = counters.PrivateUsage.max(counters.PagefileUsage) as u64;
    let usage = Usage {
        rss_anon: private,
        rss_file: (counters.WorkingSetSize as u64).saturating_sub(private),
        rss_shmem: 0,
        hwm: counters.PeakWorkingSetSize.max(counters.PeakPagefileUsage) as u64,
    };
    (done != 0).then_some(usage)
}

/// All reads of files and sockets, from the cache too, without page faults of maps.
pub(crate) fn read_bytes() -> Option<u64> {
    let mut counters = IO_COUNTERS::default();
    // SAFETY: the structure is alive.
    let done = unsafe { GetProcessIoCounters(GetCurrentProcess(), &raw mut counters) };
    (done != 0).then_some(counters.ReadTransferCount)
}

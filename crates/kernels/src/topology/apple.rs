//! Apple's systems: the fast cores, by `sysctl`. The system binds no thread to a processor.

use std::ffi::CStr;

use crate::Error;

/// Always fails: these systems choose the processor of a thread themselves.
pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
    Err(Error::Pin {
        cpu,
        reason: "this system binds no threads".into(),
    })
}

pub(crate) fn try_to_pin(cpu: usize) -> Result<(), Error> {
    pin(cpu)
}

/// Performance cores of Apple's own processors; the cores of others.
pub(crate) fn usable_cores() -> Option<usize> {
    number(c"hw.perflevel0.physicalcpu").or_else(|| number(c"hw.physicalcpu"))
}

fn number(name: &CStr) -> Option<usize> {
    let mut value = 0i32;
    let mut size = size_of_val(&value);
    // SAFETY: the buffer has as many bytes as said, and the name ends with a zero.
    let failed = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            (&raw mut value).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    let value = usize::try_from(value).ok().filter(|&n| n > 0)?;
    (failed == 0).then_some(value)
}

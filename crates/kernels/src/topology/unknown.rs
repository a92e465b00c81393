//! Systems whose processors are not told apart.

use crate::Error;

/// Always fails: binding is not implemented for this system.
pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
    Err(Error::Pin {
        cpu,
        reason: "not offered on this system".into(),
    })
}

pub(crate) fn try_to_pin(cpu: usize) -> Result<(), Error> {
    pin(cpu)
}

pub(crate) fn usable_cores() -> Option<usize> {
    None
}

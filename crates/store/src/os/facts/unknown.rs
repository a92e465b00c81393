//! Systems that say nothing by calls.

use crate::system::{MachineMemory, Usage};

pub(crate) fn machine() -> Option<MachineMemory> {
    None
}

pub(crate) fn available() -> Option<u64> {
    None
}

pub(crate) fn limit() -> Option<u64> {
    None
}

pub(crate) fn usage() -> Option<Usage> {
    None
}

pub(crate) fn processor() -> Option<String> {
    None
}

pub(crate) fn read_bytes() -> Option<u64> {
    None
}

//! Returns freed memory to the system.

/// Returns freed memory that the allocator keeps to the system. GNU's allocator keeps much after
/// many small allocations, such as those of a vocabulary; with others nothing is done.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and touches no memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has the allocator return large buffers as soon as they are freed, for a process that runs for
/// long. GNU's allocator otherwise keeps up to twice the largest buffer so far in each of its
/// arenas, eight for each processor; with others nothing is done.
pub fn return_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a number of the allocator, which stops adjusting that itself.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Bytes; the allocator's own first threshold.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 128 << 10;

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

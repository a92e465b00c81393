//! Memory that was freed, given back to the system.

/// Gives back what the allocator keeps of freed memory. GNU's keeps much after many small pieces,
/// such as those of a vocabulary; elsewhere nothing is done.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

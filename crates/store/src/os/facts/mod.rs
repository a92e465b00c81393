//! Memory of the machine and of this process, on systems that say it by calls: Windows, macOS, iOS.
//!
//! Linux says it in files, which `system` reads; there, and on systems that say nothing, every
//! answer here is `None`.

#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(target_vendor = "apple", path = "apple.rs")]
#[cfg_attr(not(any(windows, target_vendor = "apple")), path = "unknown.rs")]
mod imp;

pub(crate) use imp::{available, limit, machine, processor, read_bytes, usage};

#[cfg(all(test, any(windows, target_os = "macos")))]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_more_memory_than_is_free_and_a_process_less() {
        let machine = machine().unwrap();
        let available = available().unwrap();
        assert!((1..machine.memory).contains(&available));
        let usage = usage().unwrap();
        assert!(usage.rss_anon > 0 && usage.rss_anon < machine.memory + machine.swap);
        assert!(usage.hwm >= usage.rss_file);
        assert!(processor().is_some_and(|name| !name.contains('\0')));
    }

    #[test]
    fn memory_that_is_written_to_is_counted() {
        let before = usage().unwrap().rss_anon;
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(usage().unwrap().rss_anon >= before + (60 << 20));
        drop(bytes);
    }
}

//! The name of the processor.

use std::fs;

use crate::os::facts;

/// The name of the first processor as the system has it, such as `AMD EPYC 9R14`; empty if it does
/// not say.
pub fn processor_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").ok();
    let name = info.map_or_else(facts::processor, |info| named_in(&info));
    name.unwrap_or_default()
}

/// The first of these keys that a processor of `/proc/cpuinfo` has.
fn named_in(info: &str) -> Option<String> {
    let value = |key: &str| {
        let line = info.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let known = ["model name", "Model", "Hardware", "CPU part"];
    known.into_iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_is_taken() {
        let named = |info: &str| named_in(info);
        let pi = "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5\n";
        assert_eq!(named(pi).unwrap(), "Raspberry Pi 5");
        assert_eq!(named("model name : A B\n").unwrap(), "A B");
        assert_eq!(named("processor : 0\n"), None);
    }
}

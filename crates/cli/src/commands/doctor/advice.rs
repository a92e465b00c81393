//! What slows a machine down, and the remedy, in sentences.

use super::machine::Machine;
use crate::report::bytes;

/// A disk below this rate streams large models slower than one token per second, bytes/s.
const SLOW_DISK: f64 = 1e9;

/// Instruction sets that multiply bytes without a product of bytes: prompts take several times as
/// long as with one.
const WITHOUT_DOT: [&str; 4] = ["scalar", "sse41", "avx2", "neon"];

/// Notes on a machine; one says so if there is nothing to mend.
pub(super) fn advice(machine: &Machine) -> Vec<String> {
    let notes = [
        build(),
        arithmetic(machine),
        threads(machine),
        limit(machine),
        heat(machine),
        governor(machine),
        disk(machine),
        neighbours(machine),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    match notes.is_empty() {
        true => vec!["nothing slows this machine down".to_owned()],
        false => notes,
    }
}

fn build() -> Option<String> {
    cfg!(debug_assertions).then(|| {
        "this build of atta is for debugging and slow: `cargo build --release` makes a fast one"
            .to_owned()
    })
}

fn arithmetic(machine: &Machine) -> Option<String> {
    let best = machine.isas.first()?;
    WITHOUT_DOT.contains(best).then(|| {
        format!("prompts are slow: {best} is the best instruction set, without products of bytes")
    })
}

fn threads(machine: &Machine) -> Option<String> {
    let n = machine.rates.n_threads.get();
    (n < machine.n_threads).then(|| {
        let s = if n == 1 { "" } else { "s" };
        format!(
            "memory is read fastest with {n} thread{s}: -j {n} may write faster than the default"
        )
    })
}

fn limit(machine: &Machine) -> Option<String> {
    machine.is_limited().then(|| {
        format!(
            "a control group limits memory to {} of the {} that the machine has",
            bytes(machine.memory_limit),
            bytes(machine.installed.unwrap_or(0))
        )
    })
}

fn heat(machine: &Machine) -> Option<String> {
    machine.is_throttled.then(|| {
        "heat slows the processor down: cool it, or let `atta serve --cool 70` pause in time"
            .to_owned()
    })
}

fn governor(machine: &Machine) -> Option<String> {
    let name = machine.governor.as_deref()?;
    (name == "powersave").then(|| {
        "the processor saves power (governor powersave): with some drivers it stays slow, and \
         `cpupower frequency-set -g performance` changes that"
            .to_owned()
    })
}

fn disk(machine: &Machine) -> Option<String> {
    let rate = machine.rates.disk_bytes_per_s;
    (rate > 0.0 && rate < SLOW_DISK).then(|| {
        format!(
            "the disk reads {:.2} GB/s: models that do not fit into memory are slow from it",
            rate / 1e9
        )
    })
}

fn neighbours(machine: &Machine) -> Option<String> {
    machine.is_virtual.then(|| {
        "this is a virtual machine: others on the same hardware change its speed".to_owned()
    })
}

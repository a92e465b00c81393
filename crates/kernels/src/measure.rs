//! Measures the two upper bounds of speed: the peak rate of byte dot products and the read
//! bandwidth.

use crate::{Kernels, Pool};
use std::time::{Duration, Instant};

/// Approximate time of one measurement of the peak; short enough that the clock frequency stays.
const PEAK_TIME: Duration = Duration::from_millis(20);
/// Parts per thread, so that threads that arrive late or are interrupted do not decide the result.
const PARTS: usize = 16;

/// Ways of reading memory, `(streams, prefetch distance in bytes)`: the fastest one differs between
/// machines.
pub(crate) const WAYS: [(usize, usize); 5] = [(1, 0), (1, 2048), (1, 4096), (4, 0), (4, 1024)];

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64().max(1e-9)
}

impl Kernels {
    /// Multiplications of bytes per second, each with its addition, of all threads of the pool
    /// together: the best of three loops over registers with the dot product of this
    /// instruction set. Takes about 0.1 s. AVX2's is that of pairs of products added in 16
    /// bits, which kernels reach with codes of four bits; those of eight take four instructions,
    /// not two.
    pub fn int8_peak(self, pool: &Pool) -> f64 {
        let mut rounds = 1000;
        // Doubled until the rounds fill the time.
        while seconds(|| {
            std::hint::black_box(self.dots(rounds));
        }) < PEAK_TIME.as_secs_f64() / PARTS as f64
        {
            rounds *= 2;
        }
        let parts = PARTS * pool.n_threads();
        let run = || {
            let macs = std::sync::atomic::AtomicU64::new(0);
            let time = seconds(|| {
                pool.for_each(parts, |_| {
                    macs.fetch_add(self.dots(rounds), std::sync::atomic::Ordering::Relaxed);
                });
            });
            macs.into_inner() as f64 / time
        };
        (0..3).map(|_| run()).fold(0.0, f64::max)
    }

    /// Bytes per second that all threads of the pool together read from a buffer of `bytes` bytes,
    /// the best of several ways of reading. The buffer, allocated for the purpose, should be
    /// larger than all caches: 1 GiB is. The threads read long stretches of it each.
    pub fn read_bandwidth(self, pool: &Pool, bytes: usize) -> f64 {
        let buffer = vec![1u8; bytes.max(1)];
        let part = buffer.len().div_ceil(PARTS * pool.n_threads());
        let parts: Vec<&[u8]> = buffer.chunks(part).collect();
        let run = |way| {
            buffer.len() as f64
                / seconds(|| pool.for_each(parts.len(), |i| self.read(parts[i], way)))
        };
        (0..2).flat_map(|_| WAYS).map(run).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;

    #[test]
    fn every_isa_has_a_peak_and_a_bandwidth() {
        for k in Kernels::available()
            .into_iter()
            .map(|name| Kernels::named(name).unwrap())
        {
            let (peak, read) = (k.int8_peak(&pool(1)), k.read_bandwidth(&pool(2), 1 << 16));
            assert!(
                peak.is_finite() && peak > 1e6 && read.is_finite() && read > 1e6,
                "{} {peak} {read}",
                k.isa()
            );
        }
    }
}

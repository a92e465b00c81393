//! How many threads compute a step: all of them a prompt, and a single token as many as it takes.
//!
//! A token of text is bound by memory, which fewer threads may read as fast as all of them, or
//! faster; those that are not needed only take power. So its first steps try fewer threads: step by
//! step in turn with more, by bisection, until the fewest are found that reach [`ENOUGH`] of the
//! best speed. The search is repeated, since a busy neighbour may have decided it. This file knows
//! how long steps take and wait, not what they compute. Results do not depend on the number of
//! threads.

use crate::Pool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The part of the best speed that is enough.
const ENOUGH: f64 = 0.97;
/// Steps of each number of threads, in turn with those of the other: the fastest one counts, so
/// that a disturbance has to meet all of them.
const N_TRIALS: usize = 4;
/// A first step so many times slower than the best one ends the trial.
const HOPELESS: f64 = 1.3;
/// Steps before the first trial, which find caches and pages as they are not later.
const N_WARM_UP: usize = 2;

/// Steps after which a search is repeated that found fewer threads to be enough.
const N_BEFORE_FEWER: usize = 128;
/// The same of one that found that all are needed.
const N_BEFORE_ALL: usize = 1024;

/// Numbers of threads for the steps of executors that share a pool.
#[derive(Debug)]
pub struct StepThreads {
    n_prompt: usize,
    decode: Mutex<Decode>,
}

/// The search for the number of threads of a single token.
#[derive(Clone, Debug)]
struct Decode {
    /// The fewest threads that are known to be enough.
    enough: Tried,
    /// More threads than so many are needed.
    too_few: usize,
    /// Fewer threads that are being tried; `None` when the search is over.
    candidate: Option<Tried>,
    n_steps: usize,
    /// All threads; 0 where nothing is searched.
    n_most: usize,
    best: Duration,
}

/// A number of threads, and its fastest step.
#[derive(Clone, Copy, Debug)]
struct Tried {
    n: usize,
    n_steps: usize,
    fastest: Duration,
}

impl Tried {
    fn new(n: usize) -> Self {
        Self {
            n,
            n_steps: 0,
            fastest: Duration::MAX,
        }
    }

    fn add(&mut self, time: Duration) {
        self.n_steps += 1;
        self.fastest = self.fastest.min(time);
    }
}

impl StepThreads {
    /// All threads of the pool.
    pub fn all(pool: &Pool) -> Self {
        Self::fixed(pool.n_threads(), pool.n_threads())
    }

    /// All threads of the pool for prompts, and as many as measured for single tokens.
    pub fn measured(pool: &Pool) -> Self {
        let n = pool.n_threads();
        Self {
            n_prompt: n,
            decode: Mutex::new(Decode::search(n)),
        }
    }

    /// These numbers.
    pub fn fixed(n_decode: usize, n_prompt: usize) -> Self {
        Self {
            n_prompt,
            decode: Mutex::new(Decode::fixed(n_decode)),
        }
    }

    /// Threads of a step with many rows.
    pub fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// Threads of a step with one row, as far as they are known.
    pub fn n_decode(&self) -> usize {
        self.lock().enough.n
    }

    /// Runs a step of `n_rows` rows, whose regions the pool computes with the right number of
    /// threads. `waited` is the time in which steps have waited for bytes so far.
    pub fn run<T>(
        &self,
        pool: &Pool,
        n_rows: usize,
        waited: &dyn Fn() -> Duration,
        step: impl FnOnce() -> T,
    ) -> T {
        if n_rows != 1 {
            let _limit = Limit::new(pool, self.n_prompt);
            return step();
        }
        let n = self.lock().next();
        let _limit = Limit::new(pool, n);
        // Not every system has a clock; those without have one thread. A step with fewer threads
        // than it asked for tells nothing.
        if !self.lock().is_search() || pool.n_allowed() < n {
            return step();
        }
        let waited_before = waited();
        let start = Instant::now();
        let result = step();
        let waited = waited().saturating_sub(waited_before);
        self.lock()
            .record(n, start.elapsed().saturating_sub(waited));
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Decode> {
        self.decode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fewer threads in the regions of a pool until it is dropped.
struct Limit<'a>(&'a Pool);

impl<'a> Limit<'a> {
    fn new(pool: &'a Pool, n: usize) -> Self {
        pool.limit(n);
        Self(pool)
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        self.0.limit(usize::MAX);
    }
}

impl Decode {
    fn fixed(n: usize) -> Self {
        Self {
            enough: Tried::new(n),
            too_few: n,
            candidate: None,
            n_steps: 0,
            n_most: 0,
            best: Duration::MAX,
        }
    }

    fn search(n: usize) -> Self {
        let mut search = Self {
            too_few: 0,
            n_most: n,
            ..Self::fixed(n)
        };
        search.choose_candidate();
        search
    }

    fn is_search(&self) -> bool {
        self.n_most > 1
    }

    /// Between too few and enough threads, unless they are next to each other.
    fn choose_candidate(&mut self) {
        let n = (self.too_few + self.enough.n) / 2;
        let is_near = self.enough.n - self.too_few <= (self.n_most / 8).max(1);
        self.candidate = (!is_near && n > 0).then(|| Tried::new(n));
    }

    /// Threads of the next step: the candidate's turn comes after those that are enough.
    fn next(&self) -> usize {
        let candidate = self.candidate.filter(|candidate| {
            self.n_steps >= N_WARM_UP && candidate.n_steps < self.enough.n_steps
        });
        candidate.map_or(self.enough.n, |candidate| candidate.n)
    }

    fn record(&mut self, n: usize, time: Duration) {
        self.n_steps += 1;
        let Some(candidate) = &mut self.candidate else {
            return self.repeat_when_due();
        };
        if self.n_steps <= N_WARM_UP {
            return;
        }
        if n == candidate.n {
            candidate.add(time);
        } else if n == self.enough.n {
            self.enough.add(time);
        }
        self.best = self.best.min(time);
        let candidate = *candidate;
        let speed = self.best.as_secs_f64() / candidate.fastest.as_secs_f64().max(1e-9);
        if candidate.n_steps > 0 && speed * HOPELESS < 1.0 {
            self.reject(candidate.n);
        } else if candidate.n_steps >= N_TRIALS && self.enough.n_steps >= N_TRIALS {
            match speed >= ENOUGH {
                true => self.accept(candidate),
                false => self.reject(candidate.n),
            }
        }
    }

    fn repeat_when_due(&mut self) {
        let n_before = match self.enough.n < self.n_most {
            true => N_BEFORE_FEWER,
            false => N_BEFORE_ALL,
        };
        if self.is_search() && self.n_steps >= n_before {
            *self = Self::search(self.n_most);
        }
    }

    fn accept(&mut self, candidate: Tried) {
        self.enough = Tried {
            n_steps: 0,
            ..candidate
        };
        self.choose_candidate();
    }

    fn reject(&mut self, n: usize) {
        self.too_few = n;
        self.enough.n_steps = 0;
        self.choose_candidate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice of `most` threads, and how many steps it took.
    fn search(most: usize, millis: impl Fn(usize, usize) -> u64) -> (usize, usize) {
        let mut decode = Decode::search(most);
        let mut n_steps = 0;
        while decode.candidate.is_some() {
            let n = decode.next();
            decode.record(n, Duration::from_millis(millis(n, n_steps)));
            n_steps += 1;
            assert!(n_steps < 200);
        }
        (decode.enough.n, n_steps)
    }

    #[test]
    fn fewer_threads_that_are_as_fast_are_enough() {
        // Two threads read as fast as four, or faster.
        for of_many in [100, 130] {
            let millis = |n, _| [150, 100, of_many, of_many][n - 1];
            assert_eq!(search(4, millis).0, 2);
        }
        assert_eq!(search(1, |_, _| 100), (1, 0));
        assert_eq!(search(16, |n, _| 1000 / n.min(5) as u64).0, 6);
    }

    #[test]
    fn threads_that_are_all_needed_cost_few_slow_steps() {
        let (n, n_steps) = search(2, |n, _| [180, 100][n - 1]);
        assert_eq!(n, 2);
        assert!(n_steps <= N_WARM_UP + 2, "{n_steps}");
        assert_eq!(search(8, |n, _| 1000 / n as u64).0, 8);
    }

    #[test]
    fn a_disturbance_of_some_steps_does_not_decide() {
        let millis = |n: usize, step: usize| {
            let disturbed = if (2..7).contains(&step) { 3 } else { 1 };
            disturbed * [110, 100][n - 1]
        };
        assert_eq!(search(2, millis).0, 2);
    }

    #[test]
    fn a_choice_under_a_busy_neighbour_is_corrected_later() {
        let mut decode = Decode::search(2);
        let mut run = |n_steps, millis: [u64; 2]| {
            for _ in 0..n_steps {
                let n = decode.next();
                decode.record(n, Duration::from_millis(millis[n - 1]));
            }
            decode.enough.n
        };
        assert_eq!(run(40, [200, 200]), 1);
        assert_eq!(run(N_BEFORE_FEWER, [190, 100]), 2);
        assert_eq!(run(N_BEFORE_ALL, [190, 100]), 2);
    }

    #[test]
    fn a_limit_keeps_threads_out_and_all_work_is_done() {
        let pool = crate::testing::pool(4);
        let threads = StepThreads::fixed(2, 3);
        let count = |n_rows| {
            let used = Mutex::new(std::collections::HashSet::new());
            threads.run(&pool, n_rows, &|| Duration::ZERO, || {
                for _ in 0..50 {
                    pool.for_each(64, |_| {
                        used.lock().unwrap().insert(std::thread::current().id());
                    });
                }
            });
            used.into_inner().unwrap().len()
        };
        for _ in 0..20 {
            assert!((1..=2).contains(&count(1)));
            assert!((1..=3).contains(&count(9)));
        }
        assert_eq!((threads.n_decode(), threads.n_prompt()), (2, 3));
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "no threads")]
    fn threads_that_are_not_allowed_stay_out_and_a_search_ignores_such_steps() {
        let pool = crate::testing::pool(4);
        let threads = StepThreads::measured(&pool);
        let used = Mutex::new(std::collections::HashSet::new());
        let step = || {
            threads.run(&pool, 1, &|| Duration::ZERO, || {
                pool.for_each(64, |_| {
                    used.lock().unwrap().insert(std::thread::current().id());
                });
            });
        };
        pool.allow(std::num::NonZeroUsize::MIN);
        (0..100).for_each(|_| step());
        assert_eq!(used.lock().unwrap().len(), 1);
        assert_eq!(threads.lock().n_steps, 0, "none of them was recorded");
        pool.allow(std::num::NonZeroUsize::MAX);
        step();
        assert_eq!(threads.lock().n_steps, 1);
        // Those that were never allowed to work end with the pool.
        pool.allow(std::num::NonZeroUsize::MIN);
        drop(pool);
    }
}

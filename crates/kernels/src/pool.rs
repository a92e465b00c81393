//! The thread pool: persistent workers that spin briefly for the next region, then park.
//!
//! A region is one closure that every participating thread runs; the closure itself takes its work
//! from a counter (see `tiles.rs`), so any number of threads can finish it. The one idea: **a
//! region never waits for a worker that has not entered it**. The caller works from the first
//! moment, and at the end closes the region and waits only for the workers inside. Workers that the
//! system has not scheduled (more threads than cores, a busy neighbour) therefore cost nothing. The
//! pool knows nothing of tensors.
//!
//! Spinning is bounded to [`SPIN_MAX`] and halved each time no region came, so an idle or
//! oversubscribed pool sleeps.

use crate::tiles::{self, Indices, Rows};
use crate::{Error, topology};
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread, ThreadId};
use std::time::{Duration, Instant};

/// Longest wait for the next region before a worker parks: about a serial section between two
/// regions of a token.
const SPIN_MAX: Duration = Duration::from_micros(40);
/// Shortest wait: below this, spinning costs more than it can save.
const SPIN_MIN: Duration = Duration::from_micros(2);
/// Rounds in which the caller spins for the last worker before it yields its core.
const JOIN_SPINS: u32 = 4096;

/// A value on its own cache lines, so that spinning threads do not slow the others. 128: adjacent
/// lines are fetched in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// The closure of a region. Its lifetime is that of the region, see [`Pool::run`].
type Work = &'static (dyn Fn() + Sync);

struct PoolState {
    /// Counts regions; workers watch it.
    epoch: Padded<AtomicUsize>,
    /// [`CLOSED`], or the number of workers inside the region.
    gate: Padded<AtomicUsize>,
    /// The work of the region. Written by the caller while the gate is closed and no worker is
    /// inside.
    work: UnsafeCell<Option<Work>>,
    /// The first panic of a worker in this region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Per worker: it is parked, or about to park.
    parked: Vec<Padded<AtomicBool>>,
    /// How many threads may take part in regions, the caller included.
    n_active: AtomicUsize,
    /// What `n_active` may be at most, whatever a step asks for.
    n_allowed: AtomicUsize,
    stop: AtomicBool,
    spin: Duration,
}

/// Flag in [`PoolState::gate`]: no worker may enter.
const CLOSED: usize = 1 << (usize::BITS - 1);

// SAFETY: `work` is the only field that is not `Sync`. The thread that holds `Pool::region` writes
// it while the gate is closed and empty, and read by workers that have entered the
// gate; the gate's Release store and Acquire exchange order the two.
unsafe impl Sync for PoolState {}

impl PoolState {
    /// Enters the open region, if there is one.
    fn enter(&self) -> bool {
        let mut gate = self.gate.0.load(Ordering::Relaxed);
        while gate & CLOSED == 0 {
            match self.gate.0.compare_exchange_weak(
                gate,
                gate + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
        false
    }

    /// Runs the work of the open region as a worker; a panic is kept for the caller.
    fn join_region(&self) {
        if !self.enter() {
            return;
        }
        // SAFETY: between entering and leaving, the caller waits in `close`, so `work` is not
        // written and the closure it points to is alive.
        let work = unsafe { *self.work.get() };
        let work = work.expect("the gate is only open while there is work");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(panic);
        }
        self.gate.0.fetch_sub(1, Ordering::Release);
    }

    /// Keeps further workers out and waits for those inside.
    fn close(&self) {
        self.gate.0.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0;
        while self.gate.0.load(Ordering::Acquire) != CLOSED {
            spins += 1;
            if spins < JOIN_SPINS {
                spin_loop()
            } else {
                thread::yield_now()
            }
        }
    }

    /// Waits until the epoch is no longer `seen`: spins for `budget`, then parks. Returns the
    /// budget of the next wait.
    fn wait(&self, worker: usize, seen: usize, budget: Duration) -> Duration {
        if self.is_active(worker) && self.spin_for_change(seen, budget) {
            return (budget * 2).min(self.spin);
        }
        let parked = &self.parked[worker].0;
        loop {
            // Sequentially consistent on both sides: either the caller sees the flag, or this
            // worker sees the new epoch. The fence is for emulators: in qemu 7.2 the load can
            // overtake the store, which aarch64 forbids.
            parked.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.epoch.0.load(Ordering::SeqCst) != seen && self.is_active(worker) {
                parked.store(false, Ordering::Relaxed);
                return (budget / 2).max(SPIN_MIN.min(self.spin));
            }
            thread::park();
        }
    }

    /// Whether a worker may take part in regions. One that may not stays parked: waking skips it.
    fn is_active(&self, worker: usize) -> bool {
        worker < self.n_active.load(Ordering::SeqCst)
    }

    fn spin_for_change(&self, seen: usize, budget: Duration) -> bool {
        let mut start = None;
        loop {
            for _ in 0..16 {
                if self.epoch.0.load(Ordering::Acquire) != seen {
                    return true;
                }
                spin_loop();
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= budget {
                return false;
            }
        }
    }

    fn work_until_stopped(&self, worker: usize) {
        let mut seen = 0;
        let mut budget = self.spin;
        loop {
            budget = self.wait(worker, seen, budget);
            seen = self.epoch.0.load(Ordering::Acquire);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if self.is_active(worker) {
                self.join_region();
            }
        }
    }
}

/// Closes the region even if the work panics on the caller, so that the closure outlives all its
/// users.
struct CloseOnDrop<'a>(&'a PoolState);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
        // SAFETY: the gate is closed and empty, so no worker reads `work`, and the caller holds
        // `Pool::region`.
        unsafe { *self.0.work.get() = None };
    }
}

/// A pool of threads, the caller's included.
///
/// One region runs at a time; work submitted from inside a region, or by a second thread during
/// one, runs on its caller alone. Dropping the pool ends and joins its threads.
pub struct Pool {
    shared: Arc<PoolState>,
    /// Held by the thread whose region is running; holds the thread that is bound to `cpu`.
    region: Mutex<Option<ThreadId>>,
    /// The CPU of the caller, if threads are bound.
    cpu: Option<usize>,
    workers: Vec<(Thread, JoinHandle<()>)>,
}

impl Pool {
    /// A pool of `n_threads` threads, the caller's included. If the system refuses a thread, the
    /// pool has fewer.
    pub fn new(n_threads: NonZeroUsize) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::spawn(n_threads.get(), cores, None)
            .unwrap_or_else(|_| unreachable!("nothing is pinned"))
    }

    /// A pool with one thread per CPU of `cpus`, bound to it. A calling thread is bound to the
    /// first of them in its first region, and stays bound after the pool is dropped. Making a pool
    /// binds neither the caller nor threads that it starts later.
    ///
    /// # Errors
    /// [`Error::NoCpus`] for an empty list; [`Error::Pin`] if the system refuses a CPU or cannot
    /// bind threads.
    pub fn with_cpus(cpus: &[usize]) -> Result<Self, Error> {
        let &first = cpus.first().ok_or(Error::NoCpus)?;
        topology::try_to_pin(first)?;
        let n_cores = (0..cpus.len())
            .filter(|&i| !cpus[..i].contains(&cpus[i]))
            .count();
        Self::spawn(cpus.len(), n_cores, Some(cpus))
    }

    /// Starts `n` threads for `n_cores` cores, each bound to its CPU if `cpus` are given.
    fn spawn(n: usize, n_cores: usize, cpus: Option<&[usize]>) -> Result<Self, Error> {
        let shared = Arc::new(PoolState {
            epoch: Padded(AtomicUsize::new(0)),
            gate: Padded(AtomicUsize::new(CLOSED)),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
            parked: (0..n).map(|_| Padded(AtomicBool::new(false))).collect(),
            n_active: AtomicUsize::new(usize::MAX),
            n_allowed: AtomicUsize::new(usize::MAX),
            stop: AtomicBool::new(false),
            spin: if n > n_cores {
                Duration::ZERO
            } else {
                SPIN_MAX
            },
        });
        let mut pool = Self {
            shared,
            region: Mutex::new(None),
            cpu: cpus.map(|cpus| cpus[0]),
            workers: Vec::new(),
        };
        let (report, reports) = std::sync::mpsc::channel();
        for worker in 1..n {
            let shared = pool.shared.clone();
            let report = report.clone();
            let cpu = cpus.map(|cpus| cpus[worker]);
            let main = move || {
                let pinned = cpu.map_or(Ok(()), topology::pin);
                let failed = pinned.is_err();
                // The pool waits for all reports; the send fails only if it was dropped.
                let _ = report.send(pinned);
                drop(report);
                if !failed {
                    shared.work_until_stopped(worker);
                }
            };
            let Ok(handle) = thread::Builder::new()
                .name(format!("atta-{worker}"))
                .spawn(main)
            else {
                break;
            };
            pool.workers.push((handle.thread().clone(), handle));
        }
        drop(report);
        reports.iter().collect::<Result<(), Error>>()?;
        Ok(pool)
    }

    /// Number of threads, the caller's included.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Lets at most `n` threads take part in regions from now on, the caller included.
    pub(crate) fn limit(&self, n: usize) {
        self.shared
            .n_active
            .store(n.min(self.n_allowed()), Ordering::SeqCst);
    }

    /// Allows at most `n` threads in all regions from now on, the caller included, for all who use
    /// the pool: on a machine that is hot. Results do not depend on it.
    pub fn allow(&self, n: NonZeroUsize) {
        self.shared.n_allowed.store(n.get(), Ordering::SeqCst);
        self.limit(usize::MAX);
    }

    /// How many threads are [allowed](Self::allow); more than there are without a limit.
    pub(crate) fn n_allowed(&self) -> usize {
        self.shared.n_allowed.load(Ordering::SeqCst)
    }

    /// Runs `work` on the caller and on every worker that arrives before the caller is done.
    pub(crate) fn run(&self, work: &(dyn Fn() + Sync)) {
        if self.workers.is_empty() && self.cpu.is_none() {
            return work();
        }
        // A panic leaves the value in order: the bound thread is set before the work begins.
        let mut region = match self.region.try_lock() {
            Ok(region) => region,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return work(),
        };
        self.bind(&mut region);
        self.open(work);
        let close = CloseOnDrop(&self.shared);
        work();
        drop(close);
        let panic = self
            .shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(region);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Binds the caller to the CPU of the pool, unless it is bound already.
    fn bind(&self, bound: &mut Option<ThreadId>) {
        let Some(cpu) = self.cpu else { return };
        let caller = thread::current().id();
        if bound.replace(caller) != Some(caller) {
            // It succeeded when the pool was made. If it fails now, only speed suffers.
            let _ = topology::pin(cpu);
        }
    }

    /// Publishes `work` and wakes the workers. The caller must close the region before `work` goes
    /// out of scope.
    fn open(&self, work: &(dyn Fn() + Sync)) {
        let shared = &*self.shared;
        // Drops the panic of a worker in an earlier region whose caller panicked itself: the
        // caller's panic was propagated instead.
        shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // SAFETY: only the lifetime is changed. `run` closes the region, also when unwinding,
        // before `work` ends.
        let work = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), Work>(work) };
        // SAFETY: the gate is closed and empty, so no worker reads `work`, and the caller holds
        // `Pool::region`.
        unsafe { *shared.work.get() = Some(work) };
        shared.gate.0.store(0, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for (worker, (thread, _)) in (1..).zip(&self.workers) {
            let parked = &self.shared.parked[worker].0;
            if !self.shared.is_active(worker) {
                break;
            }
            if parked.load(Ordering::SeqCst) && parked.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }

    /// Calls `f(i)` once for each `i < n`, as one region. A panic in `f` is propagated after all
    /// threads have stopped.
    pub fn for_each(&self, n: usize, f: impl Fn(usize) + Sync) {
        tiles::deal(self, &mut Indices(n), |i, ()| f(i));
    }

    /// Calls `f(t, row t)` once for each row of `out`, `[n, d]`, as one region.
    ///
    /// # Panics
    /// If `out` is not a whole number of rows; and with a panic of `f`.
    pub fn for_each_row<T: Send>(
        &self,
        out: &mut [T],
        d: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let mut rows = Rows::new(out, d);
        tiles::deal(self, &mut rows, f);
    }

    /// Physical cores that the affinity mask and the CPU quota of the control group (v1 and v2)
    /// leave to this process; logical ones where the topology cannot be read.
    pub fn default_threads() -> usize {
        topology::default_threads()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Those that are not allowed are to end, too.
        self.shared.n_active.store(usize::MAX, Ordering::SeqCst);
        self.wake();
        for (_, handle) in self.workers.drain(..) {
            // A worker catches the panics of its work, so the result is always `Ok`.
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("n_threads", &self.n_threads())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(n: usize) -> Pool {
        Pool::new(NonZeroUsize::new(n).unwrap())
    }

    /// How often to try: rarely under Miri, which is a thousand times slower.
    fn rounds(n: usize) -> usize {
        if cfg!(miri) { n.div_ceil(400) } else { n }
    }

    #[test]
    fn every_index_is_visited_once() {
        for n_threads in [1, 2, 5] {
            let pool = pool(n_threads);
            for n in [0, 1, 2, 7, 1000] {
                let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                pool.for_each(n, |i| {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    seen.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                    "{n_threads} threads, {n}"
                );
            }
        }
    }

    #[test]
    fn many_short_regions_neither_hang_nor_lose_work() {
        let pool = pool(4);
        let total = AtomicUsize::new(0);
        let n_rounds = rounds(20_000);
        for round in 0..n_rounds {
            pool.for_each(8, |i| {
                total.fetch_add(i, Ordering::Relaxed);
            });
            if round % 1000 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
        assert_eq!(total.into_inner(), n_rounds * 28);
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "neither threads nor unwinding")]
    fn regions_from_several_threads_and_nested_ones_complete() {
        let pool = pool(3);
        let total = AtomicUsize::new(0);
        let n_rounds = rounds(200);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..n_rounds {
                        pool.for_each(4, |_| {
                            pool.for_each(3, |_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 3 * n_rounds * 12);
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "neither threads nor unwinding")]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        for n_threads in [1, 4] {
            let pool = pool(n_threads);
            for bad in 0..rounds(20) {
                let region = || pool.for_each(20, |i| assert!(i != bad, "part {i}"));
                let panic = catch_unwind(AssertUnwindSafe(region)).unwrap_err();
                assert_eq!(
                    *panic.downcast_ref::<String>().unwrap(),
                    format!("part {bad}")
                );
                pool.for_each(20, |_| ());
            }
        }
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "neither threads nor unwinding")]
    fn idle_workers_are_parked() {
        let pool = pool(3);
        pool.for_each(100, |_| ());
        let parked = || {
            pool.shared.parked[1..]
                .iter()
                .all(|parked| parked.0.load(Ordering::SeqCst))
        };
        let start = Instant::now();
        while !parked() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "workers still spin"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_list_of_no_cpus_is_an_error() {
        assert!(matches!(Pool::with_cpus(&[]), Err(Error::NoCpus)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_are_pinned_when_they_compute_and_missing_cpus_are_errors() {
        // On threads of their own, because these stay pinned.
        thread::spawn(|| {
            let allowed = topology::allowed_cpus().unwrap();
            let cpu = allowed[0];
            for cpus in [vec![cpu], vec![cpu, cpu]] {
                let pool = Pool::with_cpus(&cpus).unwrap();
                assert_eq!(pool.n_threads(), cpus.len());
                thread::scope(|scope| {
                    scope.spawn(|| {
                        assert_eq!(
                            topology::allowed_cpus().unwrap(),
                            allowed,
                            "made, and not used"
                        );
                        pool.for_each(10, |_| assert_eq!(topology::allowed_cpus().unwrap(), [cpu]));
                    });
                });
            }
            assert_eq!(topology::allowed_cpus().unwrap(), allowed);
            assert!(matches!(
                Pool::with_cpus(&[cpu, 1 << 20]),
                Err(Error::Pin { cpu: 1_048_576, .. })
            ));
            assert!(matches!(
                Pool::with_cpus(&[1 << 20]),
                Err(Error::Pin { cpu: 1_048_576, .. })
            ));
        })
        .join()
        .unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_pinned_pool_spins_wherever_it_is_made_unless_cpus_are_shared() {
        thread::spawn(|| {
            let allowed = topology::allowed_cpus().unwrap();
            topology::pin(allowed[0]).unwrap();
            let spin = |cpus: &[usize]| Pool::with_cpus(cpus).map(|pool| pool.shared.spin);
            assert_eq!(spin(&[allowed[0]; 2]).unwrap(), Duration::ZERO);
            if let [a, b, ..] = allowed[..] {
                assert_eq!(spin(&[a, b]).unwrap(), SPIN_MAX);
            }
        })
        .join()
        .unwrap();
    }
}

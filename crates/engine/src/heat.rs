//! Heat: how hot the machine is, as the program says, and how much less is computed for that.
//!
//! Knows no sensor; phones tell their programs a level (iOS: `ProcessInfo.thermalState`, Android:
//! `PowerManager.getCurrentThermalStatus`). The one idea: a level allows some of the threads and
//! demands a rest after each step, and changes no bit of a text.

use std::{
    num::NonZeroUsize,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::Engine;

/// How hot the machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heat {
    /// All threads compute.
    #[default]
    Nominal,
    /// Half of the threads.
    Elevated,
    /// A quarter of the threads, which rest after each step for as long as it took, a second at
    /// most.
    Critical,
    /// As [`Critical`](Self::Critical), and nothing is to be generated: who asks for events waits
    /// until the level falls ([`Engine::wait_while_paused`]). The worker of the server does.
    Emergency,
}

/// The longest rest; a generation can be cancelled behind it.
const MAX_REST: Duration = Duration::from_secs(1);

impl Heat {
    /// Threads that may compute, out of `n`.
    fn n_threads(self, n: usize) -> NonZeroUsize {
        let n = match self {
            Self::Nominal => return NonZeroUsize::MAX,
            Self::Elevated => n / 2,
            Self::Critical | Self::Emergency => n / 4,
        };
        NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
    }

    /// The rest after a step that took this time.
    fn rest(self, step: Duration) -> Duration {
        match self {
            Self::Nominal | Self::Elevated => Duration::ZERO,
            Self::Critical | Self::Emergency => step.min(MAX_REST),
        }
    }
}

/// The level of an engine, and those who wait for another one.
#[derive(Debug, Default)]
pub(crate) struct HeatControl {
    heat: Mutex<Heat>,
    changed: Condvar,
}

impl HeatControl {
    fn lock(&self) -> MutexGuard<'_, Heat> {
        self.heat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, heat: Heat) {
        *self.lock() = heat;
        self.changed.notify_all();
    }

    /// Waits while `demand` of the level is longer than the time since the beginning, for
    /// `time` at most. Returns the level at the end.
    fn wait(&self, time: Duration, demand: impl Fn(Heat) -> Duration) -> Heat {
        let start = Instant::now();
        let mut heat = self.lock();
        loop {
            let left = demand(*heat).min(time).saturating_sub(start.elapsed());
            if left.is_zero() {
                return *heat;
            }
            let waited = self.changed.wait_timeout(heat, left);
            heat = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Rests after a step that took this time; less if the level falls meanwhile.
    pub(crate) fn rest(&self, step: Duration) {
        if *self.lock() != Heat::Nominal {
            self.wait(Duration::MAX, |heat| heat.rest(step));
        }
    }
}

impl Engine {
    /// Says how hot the machine is, from any thread. It concerns all that shares the threads of
    /// this engine from the next step on; a rest that is too long for the new level ends now.
    pub fn set_heat(&self, heat: Heat) {
        let pool = self.pool();
        pool.allow(heat.n_threads(pool.n_threads()));
        self.heat_control().set(heat);
    }

    /// How hot the machine is, as was said last.
    pub fn heat(&self) -> Heat {
        *self.heat_control().lock()
    }

    /// Waits while nothing is to be generated, for this time at most. Whether generations may go on
    /// now.
    pub fn wait_while_paused(&self, time: Duration) -> bool {
        let demand = |heat| match heat {
            Heat::Emergency => Duration::MAX,
            _ => Duration::ZERO,
        };
        self.heat_control().wait(time, demand) != Heat::Emergency
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, thread};

    use super::*;
    use crate::{GenerateOptions, LoadOptions, SessionOptions, Threads};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_hotter_machine_has_fewer_threads_but_one_at_least() {
        let threads = |heat: Heat| [1, 2, 8].map(|n| heat.n_threads(n).get().min(n));
        assert_eq!(threads(Heat::Nominal), [1, 2, 8]);
        assert_eq!(threads(Heat::Elevated), [1, 1, 4]);
        assert_eq!(threads(Heat::Critical), [1, 1, 2]);
    }

    #[test]
    fn a_rest_is_as_long_as_the_step_and_never_longer_than_a_second() {
        assert_eq!(Heat::Elevated.rest(SECOND), Duration::ZERO);
        assert_eq!(Heat::Critical.rest(SECOND / 8), SECOND / 8);
        assert_eq!(Heat::Critical.rest(9 * SECOND), SECOND);
    }

    #[test]
    fn a_level_that_falls_ends_rests_and_pauses() {
        let control = HeatControl::default();
        control.set(Heat::Emergency);
        thread::scope(|scope| {
            scope.spawn(|| {
                let ended = control.wait(1000 * SECOND, |heat| match heat {
                    Heat::Emergency => Duration::MAX,
                    _ => Duration::ZERO,
                });
                assert_eq!(ended, Heat::Critical);
            });
            control.set(Heat::Critical);
        });
    }

    #[test]
    fn a_text_is_the_same_at_every_level_and_a_paused_engine_says_so() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
        let threads = Threads::Count(NonZeroUsize::new(2).unwrap());
        let options = LoadOptions {
            threads,
            ..LoadOptions::default()
        };
        let engine = Engine::open(&path, &options).unwrap();
        let text = |heat| {
            engine.set_heat(heat);
            let mut session = engine.session(&SessionOptions::default()).unwrap();
            let options = GenerateOptions {
                n_predict: 8,
                ..GenerateOptions::default()
            };
            let events = session.generate(&[1, 40, 50], &options).unwrap();
            events.for_each(|event| drop(event.unwrap()));
            session.tokens().to_vec()
        };
        let cool = text(Heat::Nominal);
        assert_eq!(text(Heat::Elevated), cool);
        assert_eq!(text(Heat::Critical), cool);
        assert!(engine.wait_while_paused(Duration::ZERO));
        engine.set_heat(Heat::Emergency);
        assert!(!engine.wait_while_paused(Duration::from_millis(1)));
        assert_eq!(engine.heat(), Heat::Emergency);
    }
}

//! Thermal throttling: on a machine that gets hot, the models compute for a fraction of the time.
//!
//! Knows neither models nor requests. The one idea: a policy turns temperature readings into a duty
//! cycle, which falls by a step per hot reading and rises by a step after several cool ones.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use atta_store::system::{ThermalReading, read_thermal, thermal_zones};

use crate::ServeError;

/// At which temperature to throttle, and where temperatures are read.
#[derive(Clone, Debug)]
pub struct ThermalOptions {
    /// Throttle above this temperature, in degrees Celsius.
    pub celsius: f64,
    /// Root of the sysfs tree that is read: `/sys`.
    pub sys: PathBuf,
    /// Time between readings.
    pub interval: Duration,
}

/// Steps of a full duty cycle.
const N_STEPS: u32 = 8;
/// Steps of the lowest duty cycle.
const MIN_STEPS: u32 = 2;
/// A reading is cool below the limit minus this many degrees.
const MARGIN: f64 = 5.0;
/// Consecutive cool readings that raise the duty cycle by a step.
const N_COOL_READINGS: u32 = 5;
/// If every core runs below this fraction of its maximum frequency and the reading is not cool, the
/// system itself is throttling.
const SLOWED: f64 = 0.5;
/// The longest pause; commands to a worker wait until it ends.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The duty cycle that follows from the readings so far.
#[derive(Debug)]
struct Policy {
    hot: f64,
    steps: u32,
    n_cool: u32,
}

impl Policy {
    fn new(hot: f64) -> Self {
        Self {
            hot,
            steps: N_STEPS,
            n_cool: 0,
        }
    }

    fn read(&mut self, ThermalReading { celsius, frequency }: ThermalReading) {
        let is_cool = celsius < self.hot - MARGIN;
        self.n_cool = if is_cool { self.n_cool + 1 } else { 0 };
        if celsius > self.hot || (frequency < SLOWED && !is_cool) {
            self.steps = (self.steps - 1).max(MIN_STEPS);
        } else if self.n_cool == N_COOL_READINGS {
            self.steps = (self.steps + 1).min(N_STEPS);
            self.n_cool = 0;
        }
    }

    fn duty(&self) -> f64 {
        f64::from(self.steps) / f64::from(N_STEPS)
    }
}

/// Reads the sensors and tells workers how long to pause.
pub(crate) struct ThermalThrottle {
    options: ThermalOptions,
    state: Mutex<State>,
}

struct State {
    policy: Policy,
    last: ThermalReading,
    n_pauses: u64,
}

/// Throttle statistics for `/metrics`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThermalStatus {
    pub(crate) celsius: f64,
    pub(crate) duty: f64,
    pub(crate) n_pauses: u64,
}

impl ThermalThrottle {
    pub(crate) fn new(options: ThermalOptions) -> Result<Self, ServeError> {
        let last = read_thermal(&options.sys)
            .ok_or_else(|| ServeError::NoTemperature(thermal_zones(&options.sys)))?;
        let policy = Policy::new(options.celsius);
        Ok(Self {
            options,
            state: Mutex::new(State {
                policy,
                last,
                n_pauses: 0,
            }),
        })
    }

    /// Time between readings.
    pub(crate) fn interval(&self) -> Duration {
        self.options.interval
    }

    /// Reads the sensors and updates the duty cycle. Without a reading nothing changes.
    pub(crate) fn update(&self) {
        let Some(reading) = read_thermal(&self.options.sys) else {
            return;
        };
        let mut state = self.state();
        state.last = reading;
        state.policy.read(reading);
    }

    /// How long to pause after computing for `work`.
    pub(crate) fn pause(&self, work: Duration) -> Duration {
        let mut state = self.state();
        let duty = state.policy.duty();
        if duty == 1.0 {
            return Duration::ZERO;
        }
        state.n_pauses += 1;
        work.mul_f64(1.0 / duty - 1.0).min(MAX_PAUSE)
    }

    pub(crate) fn status(&self) -> ThermalStatus {
        let state = self.state();
        ThermalStatus {
            celsius: state.last.celsius,
            duty: state.policy.duty(),
            n_pauses: state.n_pauses,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cool(celsius: f64) -> ThermalReading {
        ThermalReading {
            celsius,
            frequency: 1.0,
        }
    }

    #[test]
    fn duty_falls_at_once_comes_back_slowly_and_stays_between() {
        let mut policy = Policy::new(80.0);
        let mut after = |n: usize, reading| {
            (0..n).for_each(|_| policy.read(reading));
            policy.duty()
        };
        assert_eq!(after(10, cool(80.0)), 1.0, "it is not above");
        assert_eq!(after(1, cool(80.1)), 0.875);
        assert_eq!(after(100, cool(95.0)), 0.25, "never less");
        assert_eq!(after(100, cool(77.0)), 0.25, "neither hot nor cool");
        assert_eq!(after(4, cool(60.0)), 0.25);
        assert_eq!(after(1, cool(60.0)), 0.375);
        assert_eq!(
            after(4, cool(60.0)) + after(1, cool(77.0)) + after(4, cool(60.0)),
            3.0 * 0.375,
            "not in a row"
        );
        assert_eq!(after(1000, cool(60.0)), 1.0, "never more");
    }

    #[test]
    fn processors_that_were_slowed_down_are_hot_unless_they_are_cool() {
        let slow = |celsius| ThermalReading {
            celsius,
            frequency: 0.3,
        };
        let mut policy = Policy::new(80.0);
        policy.read(slow(50.0));
        assert_eq!(policy.duty(), 1.0, "they have nothing to do");
        policy.read(slow(78.0));
        assert_eq!(policy.duty(), 0.875);
    }

    #[test]
    fn pauses_are_as_long_as_the_duty_says_and_never_longer_than_a_second() {
        let sys = Sys::new("pauses");
        sys.write("class/thermal/thermal_zone0/temp", "90000\n");
        let throttle = ThermalThrottle::new(sys.options()).unwrap();
        assert_eq!(throttle.pause(Duration::from_millis(100)), Duration::ZERO);
        (0..4).for_each(|_| throttle.update());
        assert_eq!(throttle.status().duty, 0.5);
        assert_eq!(
            throttle.pause(Duration::from_millis(100)),
            Duration::from_millis(100)
        );
        assert_eq!(throttle.pause(Duration::from_secs(100)), MAX_PAUSE);
        assert_eq!(throttle.status().n_pauses, 2);
    }

    #[test]
    fn a_machine_that_says_nothing_is_refused_at_the_start_and_left_alone_later() {
        let sys = Sys::new("nothing");
        assert!(matches!(
            ThermalThrottle::new(sys.options()),
            Err(ServeError::NoTemperature(_))
        ));
        sys.write("class/thermal/thermal_zone0/temp", "90000");
        let throttle = ThermalThrottle::new(sys.options()).unwrap();
        throttle.update();
        std::fs::remove_dir_all(&sys.0).unwrap();
        throttle.update();
        assert_eq!(throttle.status().duty, 0.875);
    }

    /// A folder like `/sys`, until it is dropped.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let sys = Self(
                std::env::temp_dir().join(format!("atta-throttle-{name}-{}", std::process::id())),
            );
            std::fs::create_dir_all(&sys.0).unwrap();
            sys
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn options(&self) -> ThermalOptions {
            ThermalOptions {
                celsius: 80.0,
                sys: self.0.clone(),
                interval: Duration::from_secs(1),
            }
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

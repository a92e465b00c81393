//! Manners of a guest: on a machine that gets hot, the model computes for a part of the time only.
//!
//! Knows neither models nor requests. The one idea: readings go in, and what comes out is a duty,
//! the part of the time that is computed, which goes down step by step while it is hot and comes
//! back slowly when it is not.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::ServeError;

/// When a machine is too hot, and who says so.
#[derive(Clone, Debug)]
pub struct Cooling {
    /// The highest temperature that is right, in degrees Celsius.
    pub celsius: f64,
    /// Where the system says how it is: `/sys`.
    pub sys: PathBuf,
    /// Time from one reading to the next.
    pub interval: Duration,
}

/// Parts of a whole duty, of which one is given up or won back at a time.
const PARTS: u32 = 8;
/// The lowest duty.
const MIN_PARTS: u32 = 2;
/// Degrees below the highest right temperature at which it is cool.
const MARGIN: f64 = 5.0;
/// Cool readings, one after another, until a part comes back.
const N_COOL: u32 = 5;
/// Where no processor reaches this part of its highest frequency, and it is not cool, the system
/// has slowed them down.
const SLOWED: f64 = 0.5;
/// The longest pause: commands wait for its end.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How the machine is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    /// Of the hottest zone.
    celsius: f64,
    /// That of the fastest processor, as a part of its highest one; 1 if none is known.
    frequency: f64,
}

/// How much of the time is computed, from what was read so far.
#[derive(Debug)]
struct Policy {
    hot: f64,
    parts: u32,
    n_cool: u32,
}

impl Policy {
    fn new(hot: f64) -> Self {
        Self {
            hot,
            parts: PARTS,
            n_cool: 0,
        }
    }

    fn read(&mut self, Reading { celsius, frequency }: Reading) {
        let is_cool = celsius < self.hot - MARGIN;
        self.n_cool = if is_cool { self.n_cool + 1 } else { 0 };
        if celsius > self.hot || (frequency < SLOWED && !is_cool) {
            self.parts = (self.parts - 1).max(MIN_PARTS);
        } else if self.n_cool == N_COOL {
            self.parts = (self.parts + 1).min(PARTS);
            self.n_cool = 0;
        }
    }

    fn duty(&self) -> f64 {
        f64::from(self.parts) / f64::from(PARTS)
    }
}

/// Watches the machine, and tells who computes when to pause.
pub(crate) struct Manners {
    cooling: Cooling,
    state: Mutex<State>,
}

struct State {
    policy: Policy,
    last: Reading,
    n_pauses: u64,
}

/// How it is going, for whoever wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mood {
    pub(crate) celsius: f64,
    pub(crate) duty: f64,
    pub(crate) n_pauses: u64,
}

impl Manners {
    pub(crate) fn new(cooling: Cooling) -> Result<Self, ServeError> {
        let last =
            read(&cooling.sys).ok_or_else(|| ServeError::NoTemperature(zones(&cooling.sys)))?;
        let policy = Policy::new(cooling.celsius);
        Ok(Self {
            cooling,
            state: Mutex::new(State {
                policy,
                last,
                n_pauses: 0,
            }),
        })
    }

    /// Time from one look to the next.
    pub(crate) fn interval(&self) -> Duration {
        self.cooling.interval
    }

    /// Looks how the machine is. Where nothing can be read, all stays as it was.
    pub(crate) fn look(&self) {
        let Some(reading) = read(&self.cooling.sys) else {
            return;
        };
        let mut state = self.state();
        state.last = reading;
        state.policy.read(reading);
    }

    /// How long to pause after work of this time.
    pub(crate) fn pause(&self, work: Duration) -> Duration {
        let mut state = self.state();
        let duty = state.policy.duty();
        if duty == 1.0 {
            return Duration::ZERO;
        }
        state.n_pauses += 1;
        work.mul_f64(1.0 / duty - 1.0).min(MAX_PAUSE)
    }

    pub(crate) fn mood(&self) -> Mood {
        let state = self.state();
        Mood {
            celsius: state.last.celsius,
            duty: state.policy.duty(),
            n_pauses: state.n_pauses,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the system says of its temperature and its processors; nothing without a temperature.
fn read(sys: &Path) -> Option<Reading> {
    let zones = entries(&zones(sys), "thermal_zone");
    let celsius = zones.filter_map(|zone| Some(number(&zone.join("temp"))? / 1000.0));
    // Others are what sensors say that do not work.
    let celsius = celsius
        .filter(|celsius| (-50.0..200.0).contains(celsius))
        .max_by(f64::total_cmp)?;
    let processors = entries(&sys.join("devices/system/cpu"), "cpu").map(|cpu| cpu.join("cpufreq"));
    let frequency = |of: PathBuf| {
        Some(number(&of.join("scaling_cur_freq"))? / number(&of.join("cpuinfo_max_freq"))?)
    };
    let frequency = processors
        .filter_map(frequency)
        .filter(|part| part.is_finite())
        .max_by(f64::total_cmp);
    Some(Reading {
        celsius,
        frequency: frequency.unwrap_or(1.0),
    })
}

fn zones(sys: &Path) -> PathBuf {
    sys.join("class/thermal")
}

/// What is called so, with a number behind it.
fn entries(folder: &Path, name: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let is_one = move |path: &PathBuf| {
        let number = path
            .file_name()
            .and_then(|file| file.to_str()?.strip_prefix(name));
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
    };
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_one)
}

/// The number that is all of a file.
fn number(path: &Path) -> Option<f64> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(64)
        .read_to_string(&mut text)
        .ok()?;
    Some(text.trim().parse::<i64>().ok()? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cool(celsius: f64) -> Reading {
        Reading {
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
        let slow = |celsius| Reading {
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
        let manners = Manners::new(sys.cooling()).unwrap();
        assert_eq!(manners.pause(Duration::from_millis(100)), Duration::ZERO);
        (0..4).for_each(|_| manners.look());
        assert_eq!(manners.mood().duty, 0.5);
        assert_eq!(
            manners.pause(Duration::from_millis(100)),
            Duration::from_millis(100)
        );
        assert_eq!(manners.pause(Duration::from_secs(100)), MAX_PAUSE);
        assert_eq!(manners.mood().n_pauses, 2);
    }

    #[test]
    fn the_hottest_zone_and_the_fastest_processor_are_read() {
        let sys = Sys::new("read");
        assert_eq!(read(&sys.0), None);
        for (zone, text) in [
            ("0", "41000\n"),
            ("1", "63500"),
            ("2", "-274000\n"),
            ("3", "no number"),
            ("x", "99000"),
        ] {
            sys.write(&format!("class/thermal/thermal_zone{zone}/temp"), text);
        }
        sys.write("class/thermal/thermal_zone4/temp", &"9".repeat(1000));
        sys.write("class/thermal/thermal_zone5/type", "no temperature");
        assert_eq!(read(&sys.0), Some(cool(63.5)));
        for (cpu, now, max) in [
            ("cpu0", "600000\n", "2000000\n"),
            ("cpu1", "500000\n", "2000000\n"),
            ("cpu2", "1", "0"),
        ] {
            sys.write(
                &format!("devices/system/cpu/{cpu}/cpufreq/scaling_cur_freq"),
                now,
            );
            sys.write(
                &format!("devices/system/cpu/{cpu}/cpufreq/cpuinfo_max_freq"),
                max,
            );
        }
        sys.write("devices/system/cpu/cpufreq/scaling_cur_freq", "1");
        assert_eq!(
            read(&sys.0),
            Some(Reading {
                celsius: 63.5,
                frequency: 0.3
            })
        );
    }

    #[test]
    fn a_machine_that_says_nothing_is_refused_at_the_start_and_left_alone_later() {
        let sys = Sys::new("nothing");
        assert!(matches!(
            Manners::new(sys.cooling()),
            Err(ServeError::NoTemperature(_))
        ));
        sys.write("class/thermal/thermal_zone0/temp", "90000");
        let manners = Manners::new(sys.cooling()).unwrap();
        manners.look();
        std::fs::remove_dir_all(&sys.0).unwrap();
        manners.look();
        assert_eq!(manners.mood().duty, 0.875);
    }

    /// A folder like `/sys`, until it is dropped.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let sys = Self(
                std::env::temp_dir().join(format!("atta-manners-{name}-{}", std::process::id())),
            );
            std::fs::create_dir_all(&sys.0).unwrap();
            sys
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn cooling(&self) -> Cooling {
            Cooling {
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

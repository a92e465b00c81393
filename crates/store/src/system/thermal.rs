//! Temperatures and clock frequencies, as Linux reports them in sysfs.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// One look at the sensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThermalReading {
    /// Temperature of the hottest zone, °C.
    pub celsius: f64,
    /// Frequency of the fastest core as a fraction of its maximum; 1 if unknown.
    pub frequency: f64,
}

/// Reads temperatures and frequencies below the root of a sysfs tree, `/sys`; `None` if no zone
/// has a temperature.
pub fn read_thermal(sys: &Path) -> Option<ThermalReading> {
    let zones = entries(&thermal_zones(sys), "thermal_zone");
    let celsius = zones.filter_map(|zone| Some(number(&zone.join("temp"))? / 1000.0));
    // Broken sensors report values outside this range.
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
    Some(ThermalReading {
        celsius,
        frequency: frequency.unwrap_or(1.0),
    })
}

/// The folder of the zones.
pub fn thermal_zones(sys: &Path) -> PathBuf {
    sys.join("class/thermal")
}

/// Entries of `folder` that are called `name` and a number.
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

/// Parses a file that holds one number.
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

    /// Zones, and what their files say.
    const ZONES: [(&str, &str); 5] = [
        ("0", "41000\n"),
        ("1", "63500"),
        ("2", "-274000\n"),
        ("3", "no number"),
        ("x", "99000"),
    ];

    #[test]
    fn the_hottest_zone_and_the_fastest_processor_are_read() {
        let sys = Sys::new("read");
        assert_eq!(read_thermal(&sys.0), None);
        for (zone, text) in ZONES {
            sys.write(&format!("class/thermal/thermal_zone{zone}/temp"), text);
        }
        sys.write("class/thermal/thermal_zone4/temp", &"9".repeat(1000));
        sys.write("class/thermal/thermal_zone5/type", "no temperature");
        assert_eq!(
            read_thermal(&sys.0),
            Some(ThermalReading {
                celsius: 63.5,
                frequency: 1.0
            })
        );
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
            read_thermal(&sys.0),
            Some(ThermalReading {
                celsius: 63.5,
                frequency: 0.3
            })
        );
    }

    /// A folder like `/sys`, until it is dropped.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let sys = Self(
                std::env::temp_dir().join(format!("atta-thermal-{name}-{}", std::process::id())),
            );
            std::fs::create_dir_all(&sys.0).unwrap();
            sys
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

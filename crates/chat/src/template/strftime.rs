//! `strftime` for templates that tell the model the date. Knows no clock and no time zones. Names
//! are English, as in the C locale.

use minijinja::{Error, ErrorKind};

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// From 1 to 9999.
    pub year: u16,
    /// From 1.
    pub month: u8,
    /// Of the month, from 1.
    pub day: u8,
    /// From 0 to 23.
    pub hour: u8,
    /// From 0 to 59.
    pub minute: u8,
    /// From 0 to 60.
    pub second: u8,
}

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const SECONDS_PER_DAY: u64 = 86_400;

impl DateTime {
    /// UTC from seconds since 1970; times after 9999 become the last second of 9999.
    pub fn from_unix(seconds: u64) -> Self {
        // 9999-12-31 23:59:59
        let seconds = seconds.min(253_402_300_799);
        let days = seconds / SECONDS_PER_DAY;
        let rest = seconds % SECONDS_PER_DAY;
        let mut year = 1970;
        let mut day = days as u32;
        while day >= year_days(year) {
            day -= year_days(year);
            year += 1;
        }
        let mut month = 1;
        while day >= month_days(year, month) {
            day -= month_days(year, month);
            month += 1;
        }
        let hour = (rest / 3600) as u8;
        let minute = (rest / 60 % 60) as u8;
        let second = (rest % 60) as u8;
        Self {
            year,
            month,
            day: day as u8 + 1,
            hour,
            minute,
            second,
        }
    }

    /// Local time from seconds since 1970; `offset`: seconds east of UTC.
    pub fn from_unix_with_offset(seconds: u64, offset: i32) -> Self {
        Self::from_unix(seconds.saturating_add_signed(offset.into()))
    }

    /// Days of the year before this one.
    fn days_before(&self) -> u32 {
        let months = 1..self.month.clamp(1, 12);
        months
            .map(|month| month_days(self.year, month))
            .sum::<u32>()
            + u32::from(self.day.max(1))
            - 1
    }

    /// Day of the week, Sunday is 0.
    fn weekday(&self) -> u32 {
        let years = u32::from(self.year.max(1)) - 1;
        // The first day of the year 1 was a Monday.
        (years * 365 + years / 4 - years / 100 + years / 400 + self.days_before() + 1) % 7
    }

    /// Hour of a 12-hour clock.
    fn hour12(&self) -> u32 {
        (u32::from(self.hour) + 11) % 12 + 1
    }

    /// Formats as `strftime`.
    ///
    /// # Errors
    /// An unknown directive.
    pub(super) fn format(&self, format: &str) -> Result<String, Error> {
        let mut out = String::with_capacity(format.len());
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let directive = chars.next();
            let (padded, directive) = if directive == Some('-') {
                (false, chars.next())
            } else {
                (true, directive)
            };
            let written = directive.and_then(|directive| self.directive(directive, padded));
            out.push_str(&written.ok_or_else(|| unknown(directive))?);
        }
        Ok(out)
    }

    fn directive(&self, directive: char, padded: bool) -> Option<String> {
        let number = |value: u32, width: usize| {
            if padded {
                format!("{value:0width$}")
            } else {
                value.to_string()
            }
        };
        let day = DAYS[self.weekday() as usize];
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        Some(match directive {
            'a' => day[..3].to_owned(),
            'A' => day.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'B' => month.to_owned(),
            'd' => number(self.day.into(), 2),
            'e' => format!("{:2}", self.day),
            'm' => number(self.month.into(), 2),
            'y' => number(u32::from(self.year) % 100, 2),
            'Y' => self.year.to_string(),
            'H' => number(self.hour.into(), 2),
            'I' => number(self.hour12(), 2),
            'M' => number(self.minute.into(), 2),
            'S' => number(self.second.into(), 2),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'j' => number(self.days_before() + 1, 3),
            'w' => self.weekday().to_string(),
            'u' => ((self.weekday() + 6) % 7 + 1).to_string(),
            'F' => self.format("%Y-%m-%d").ok()?,
            'T' | 'X' => self.format("%H:%M:%S").ok()?,
            'R' => self.format("%H:%M").ok()?,
            'D' | 'x' => self.format("%m/%d/%y").ok()?,
            'c' => self.format("%a %b %e %H:%M:%S %Y").ok()?,
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn unknown(directive: Option<char>) -> Error {
    let directive = directive.map_or(String::new(), String::from);
    Error::new(
        ErrorKind::InvalidOperation,
        format!("a date is asked for with %{directive}, which is not known here"),
    )
}

fn is_leap(year: u16) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

fn year_days(year: u16) -> u32 {
    365 + u32::from(is_leap(year))
}

fn month_days(year: u16, month: u8) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates_as_python_has_them() {
        // datetime.fromtimestamp(…, timezone.utc).strftime(…)
        for (seconds, want) in [
            (
                0,
                "Thu Thursday 01 1 Jan January 01 1970 70 00:00:00 12 AM 001 4",
            ),
            (
                951_827_696,
                "Tue Tuesday 29 29 Feb February 02 2000 00 12:34:56 12 PM 060 2",
            ),
            (
                1_767_225_599,
                "Wed Wednesday 31 31 Dec December 12 2025 25 23:59:59 11 PM 365 3",
            ),
            (
                4_107_542_400,
                "Mon Monday 01 1 Mar March 03 2100 00 00:00:00 12 AM 060 1",
            ),
        ] {
            let got = DateTime::from_unix(seconds)
                .format("%a %A %d %-d %b %B %m %Y %y %H:%M:%S %I %p %j %w");
            assert_eq!(got.unwrap(), want);
        }
        assert_eq!(
            DateTime::from_unix(u64::MAX).format("%F %T").unwrap(),
            "9999-12-31 23:59:59"
        );
    }

    #[test]
    fn an_offset_moves_the_clock_and_the_date() {
        let at = |offset| {
            DateTime::from_unix_with_offset(1_767_225_599, offset)
                .format("%F %R")
                .unwrap()
        };
        assert_eq!(
            [at(0), at(-5 * 3600), at(1), at(14 * 3600)],
            [
                "2025-12-31 23:59",
                "2025-12-31 18:59",
                "2026-01-01 00:00",
                "2026-01-01 13:59",
            ]
        );
    }

    #[test]
    fn a_directive_that_is_not_known_is_an_error() {
        for format in ["%Q", "%", "%-", "50%"] {
            assert!(
                DateTime::from_unix(0)
                    .format(format)
                    .unwrap_err()
                    .to_string()
                    .contains('%')
            );
        }
        assert_eq!(DateTime::from_unix(0).format("100%% é").unwrap(), "100% é");
    }
}

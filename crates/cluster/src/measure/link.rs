//! Measures a link by questions: the round trip of short ones, and the rate of long answers.
//!
//! ```text
//! echo of 0 bytes, 32 times      -> rtt_p50, rtt_p90
//! echo of 60 KiB, 1 MiB in all   -> bytes/s
//! ```
//! A question of [`wire::message`](crate::wire::message) is `echo { n_bytes }`, its answer so many
//! bytes of padding. What TLS and JSON cost is part of the numbers, and so is a handshake where
//! every question has a connection of its own; rows, whose connections stay open, are faster. The
//! rate counts the time of a long answer beyond that of a short one, since a plan counts the round
//! trip by itself.

use std::time::{Duration, Instant};

use crate::{
    control::NodeName,
    plan::LinkMeasure,
    wire::message::{Answer, LinkNumbers, MAX_ECHO_BYTES, Question},
};

/// Short questions.
const N_SHORT: usize = 32;
/// Bytes of all long answers.
const BURST_BYTES: u64 = 1 << 20;
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// The fastest link that is believed, bytes/s: long answers may take no longer than short ones.
const MAX_RATE: f64 = 1e11;

/// Times of questions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSamples {
    /// Round trips of short questions.
    pub short: Vec<Duration>,
    /// Bytes of long answers, and the time of each.
    pub long: Vec<(u64, Duration)>,
}

/// Measures the link to a node. `ask` asks it for an answer of so many bytes and returns the bytes
/// that came.
///
/// # Errors
/// Those of `ask`.
pub fn measure_link<E>(mut ask: impl FnMut(u32) -> Result<u64, E>) -> Result<LinkMeasure, E> {
    let mut samples = LinkSamples::default();
    let mut timed = |n_bytes: u32| {
        let begin = Instant::now();
        let n_came = ask(n_bytes)?;
        Ok((n_came, begin.elapsed()))
    };
    // The first one may open a connection.
    timed(0)?;
    for _ in 0..N_SHORT {
        samples.short.push(timed(0)?.1);
    }
    for _ in 0..BURST_BYTES.div_ceil(MAX_ECHO_BYTES.into()) {
        samples.long.push(timed(MAX_ECHO_BYTES)?);
    }
    Ok(samples.measure())
}

/// Measures the link to a node, by questions that `ask` carries; `Err` is one line for people.
///
/// # Errors
/// The node does not answer, or not with an echo.
pub fn measure_link_to(
    node: &NodeName,
    mut ask: impl FnMut(&[u8], Duration) -> Result<Vec<u8>, String>,
) -> Result<LinkNumbers, String> {
    let echo = |n_bytes: u32| {
        let question = Question::Echo { n_bytes }.to_bytes();
        let question = question.map_err(|error| error.to_string())?;
        let answer = ask(&question, DEADLINE)?;
        match Answer::parse(&answer) {
            Ok(Answer::Echo { .. }) => Ok(answer.len() as u64),
            Ok(_) => Err(format!("{node} does not echo")),
            Err(error) => Err(format!("{node}: {error}")),
        }
    };
    measure_link(echo).map(LinkNumbers::from)
}

impl From<LinkMeasure> for LinkNumbers {
    fn from(link: LinkMeasure) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            rtt_p50_us: micros(link.rtt_p50),
            rtt_p90_us: micros(link.rtt_p90),
            bytes_per_s: link.bytes_per_s,
        }
    }
}

impl From<LinkNumbers> for LinkMeasure {
    fn from(link: LinkNumbers) -> Self {
        Self {
            rtt_p50: Duration::from_micros(link.rtt_p50_us),
            rtt_p90: Duration::from_micros(link.rtt_p90_us),
            bytes_per_s: link.bytes_per_s,
        }
    }
}

impl LinkSamples {
    /// The numbers that a plan counts with.
    pub fn measure(&self) -> LinkMeasure {
        let mut short = self.short.clone();
        short.sort_unstable();
        let at = |percent: usize| {
            let i = (short.len() * percent / 100).min(short.len().saturating_sub(1));
            short.get(i).copied().unwrap_or_default()
        };
        let rtt_p50 = at(50);
        let bytes: u64 = self.long.iter().map(|(bytes, _)| bytes).sum();
        let times = self
            .long
            .iter()
            .map(|(_, time)| time.saturating_sub(rtt_p50));
        let time: Duration = times.sum();
        let rate = bytes as f64 / time.as_secs_f64();
        LinkMeasure {
            rtt_p50,
            rtt_p90: at(90),
            bytes_per_s: if rate.is_finite() {
                rate.clamp(1.0, MAX_RATE)
            } else {
                MAX_RATE
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_is_the_median_and_the_rate_is_what_long_answers_take_longer() {
        let ms = Duration::from_millis;
        let samples = LinkSamples {
            short: [2, 2, 2, 2, 2, 1, 9, 9, 2, 30].map(ms).to_vec(),
            long: vec![(1000, ms(12)), (1000, ms(32))],
        };
        let measure = samples.measure();
        assert_eq!(measure.rtt_p50, ms(2));
        assert_eq!(measure.rtt_p90, ms(30));
        assert!((measure.bytes_per_s - 50_000.0).abs() < 1.0);
    }

    #[test]
    fn a_link_without_samples_or_without_delay_still_has_numbers_that_a_plan_takes() {
        for samples in [
            LinkSamples::default(),
            LinkSamples {
                short: vec![Duration::from_millis(3)],
                long: vec![(9, Duration::from_millis(1))],
            },
        ] {
            let rate = samples.measure().bytes_per_s;
            assert!(rate.is_finite() && rate > 0.0);
        }
    }

    #[test]
    fn questions_are_short_then_long_and_an_error_ends_them() {
        let mut asked = Vec::new();
        let found = measure_link(|n_bytes| {
            asked.push(n_bytes);
            Ok::<_, ()>(n_bytes.into())
        });
        assert!(found.is_ok());
        let n_bytes: u64 = asked.iter().map(|n| u64::from(*n)).sum();
        assert_eq!(asked.iter().filter(|n| **n == 0).count(), N_SHORT + 1);
        assert!((BURST_BYTES..BURST_BYTES * 2).contains(&n_bytes));
        let mut left = 40;
        let failed = measure_link(|_| {
            left -= 1;
            if left == 0 { Err("gone") } else { Ok(0) }
        });
        assert_eq!(failed, Err("gone"));
    }
}

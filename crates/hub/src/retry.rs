//! Retries with exponential backoff.

use std::{thread, time::Duration};

use crate::{Error, Event};

/// If a server asks for a longer pause than this, the request fails.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A failure that may be retried.
#[derive(Debug)]
pub(crate) struct TransientError {
    pub(crate) url: String,
    pub(crate) why: String,
    /// The pause that the server asks for, `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

/// Counts consecutive failures.
pub(crate) struct Retries {
    n_retries: u32,
    pause: Duration,
    n_failed: u32,
}

impl Retries {
    /// Allows `n_retries` consecutive failures; `pause` follows the first of them.
    pub(crate) fn new(n_retries: u32, pause: Duration) -> Self {
        Self {
            n_retries,
            pause,
            n_failed: 0,
        }
    }

    /// Ends a run of failures, because bytes were received.
    pub(crate) fn reset(&mut self) {
        self.n_failed = 0;
    }

    /// Waits before the next attempt, each time twice as long.
    ///
    /// # Errors
    /// The failure itself, if there were too many or the server asks for too long a pause.
    pub(crate) fn back_off(
        &mut self,
        error: TransientError,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Error> {
        let TransientError {
            url,
            why,
            retry_after,
        } = error;
        let pause = retry_after.unwrap_or(self.pause * 2u32.saturating_pow(self.n_failed.min(10)));
        self.n_failed += 1;
        if self.n_failed > self.n_retries || pause > MAX_WAIT {
            let times = if self.n_failed > 1 {
                format!(" ({} times)", self.n_failed)
            } else {
                String::new()
            };
            return Err(Error::Connection {
                url,
                why: why + &times,
            });
        }
        on_event(Event::Retrying { why: &why, pause });
        thread::sleep(pause);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(retry_after: Option<Duration>) -> TransientError {
        TransientError {
            url: "u".to_owned(),
            why: "w".to_owned(),
            retry_after,
        }
    }

    #[test]
    fn retries_end_unless_bytes_are_received() {
        let mut retries = Retries::new(2, Duration::ZERO);
        let fail = |retries: &mut Retries| retries.back_off(failure(None), &mut |_| ());
        for _ in 0..3 {
            assert!(fail(&mut retries).is_ok() && fail(&mut retries).is_ok());
            retries.reset();
        }
        assert!(fail(&mut retries).is_ok() && fail(&mut retries).is_ok());
        assert_eq!(
            fail(&mut retries).unwrap_err().to_string(),
            "u: w (3 times)"
        );
    }

    #[test]
    fn a_retry_after_of_a_day_is_an_error() {
        let mut retries = Retries::new(5, Duration::ZERO);
        assert!(
            retries
                .back_off(failure(Some(Duration::from_secs(86_400))), &mut |_| ())
                .is_err()
        );
    }
}

//! How often, and how long apart, something is tried again.

use std::{thread, time::Duration};

use crate::{Error, Event};

/// A server that asks for a longer pause is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Something failed that may go better next time.
#[derive(Debug)]
pub(crate) struct Hitch {
    pub(crate) url: String,
    pub(crate) why: String,
    /// How long the server wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

/// What is left of ours.
pub(crate) struct Patience {
    n_retries: u32,
    pause: Duration,
    n_failed: u32,
}

impl Patience {
    /// For `n_retries` failures in a row, the first of which is followed by this pause.
    pub(crate) fn new(n_retries: u32, pause: Duration) -> Self {
        Self {
            n_retries,
            pause,
            n_failed: 0,
        }
    }

    /// Something came; what follows is no failure in a row.
    pub(crate) fn restore(&mut self) {
        self.n_failed = 0;
    }

    /// Waits, each time twice as long.
    ///
    /// # Errors
    /// The failure itself, if it was one too many.
    pub(crate) fn bear(
        &mut self,
        hitch: Hitch,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Error> {
        let Hitch {
            url,
            why,
            retry_after,
        } = hitch;
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
        observer(Event::Retrying { why: &why, pause });
        thread::sleep(pause);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hitch(retry_after: Option<Duration>) -> Hitch {
        Hitch {
            url: "u".to_owned(),
            why: "w".to_owned(),
            retry_after,
        }
    }

    #[test]
    fn it_ends_unless_something_comes() {
        let mut patience = Patience::new(2, Duration::ZERO);
        let bear = |patience: &mut Patience| patience.bear(hitch(None), &mut |_| ());
        for _ in 0..3 {
            assert!(bear(&mut patience).is_ok() && bear(&mut patience).is_ok());
            patience.restore();
        }
        assert!(bear(&mut patience).is_ok() && bear(&mut patience).is_ok());
        assert_eq!(
            bear(&mut patience).unwrap_err().to_string(),
            "u: w (3 times)"
        );
    }

    #[test]
    fn a_server_is_not_waited_for_forever() {
        let mut patience = Patience::new(5, Duration::ZERO);
        assert!(
            patience
                .bear(hitch(Some(Duration::from_secs(86_400))), &mut |_| ())
                .is_err()
        );
    }
}

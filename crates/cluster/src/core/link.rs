//! Whether the other side of a link is alive: pings, and how many went unanswered.

use super::{Time, Timing};

/// One link, as the side sees it that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// When the next ping is due.
    next: Time,
    /// Pings sent since the other side was heard.
    n_unanswered: u32,
    n_sent: u32,
}

impl Link {
    /// Records that anything came from the other side.
    pub fn heard(&mut self) {
        self.n_unanswered = 0;
    }

    /// Whether so many pings went unanswered that the other side may be dead.
    pub fn is_suspect(&self) -> bool {
        self.n_unanswered > Timing::MAX_MISSED
    }

    /// Whether so many went unanswered that repairs wait for it no longer.
    pub fn is_silent(&self) -> bool {
        self.n_unanswered > Timing::MAX_SILENT
    }

    /// The number of the ping to send now, if one is due.
    pub fn due(&mut self, now: Time, timing: &Timing) -> Option<u32> {
        let every = timing.ping.filter(|_| now >= self.next)?;
        self.next = now + every;
        self.n_unanswered = self.n_unanswered.saturating_add(1);
        self.n_sent = self.n_sent.wrapping_add(1);
        Some(self.n_sent)
    }

    /// When the next ping is due.
    pub fn next(&self) -> Time {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn four_missed_pings_make_a_link_suspect_and_a_word_clears_it() {
        let timing = Timing::default();
        let mut link = Link::default();
        let tenth = |i: u32| Duration::from_millis(100) * i;
        for i in 0..4 {
            assert!(link.due(tenth(i), &timing).is_some() && !link.is_suspect());
            assert_eq!(link.due(tenth(i), &timing), None, "one per interval");
        }
        assert_eq!(link.due(tenth(4), &timing), Some(5));
        assert!(link.is_suspect());
        link.heard();
        assert!(!link.is_suspect() && link.next() == tenth(5));
        let silent = Timing {
            ping: None,
            ..timing
        };
        assert_eq!(link.due(tenth(9), &silent), None);
    }
}

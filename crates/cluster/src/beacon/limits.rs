//! How often beacons are sent, looked at and followed.
//!
//! Knows no socket and no clock: times are those since the start. The one idea: whatever arrives,
//! the work for it has a bound, since beacons can be sent by any machine of the network.

use std::{net::SocketAddr, time::Duration};

/// Most beacons whose MAC is checked in one second.
const MAX_LOOKS: u32 = 20;
/// Most nodes and addresses that are remembered.
const MAX_HEARD: usize = 16;
/// Time between two times that a node and its address are told.
const QUIET: Duration = Duration::from_secs(10);
/// Time between two beacons of a process, at least.
const SHORTEST: Duration = Duration::from_millis(250);
/// Time between two beacons that were not asked for.
const PERIOD: Duration = Duration::from_secs(5);

/// Processes that were heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The running second, and how many beacons were looked at in it.
    second: u64,
    n_looks: u32,
    nodes: Vec<HeardNode>,
}

#[derive(Debug)]
struct HeardNode {
    sender: [u8; 16],
    address: SocketAddr,
    told: Duration,
}

impl Heard {
    /// Whether one more beacon may be looked at.
    pub(super) fn may_look(&mut self, now: Duration) -> bool {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.n_looks = 0;
        }
        self.n_looks = self.n_looks.saturating_add(1);
        self.n_looks <= MAX_LOOKS
    }

    /// Notes where a process takes connections. Whether to connect to it.
    pub(super) fn note(&mut self, now: Duration, sender: [u8; 16], address: SocketAddr) -> bool {
        let told = now;
        let is_due = |node: &HeardNode| now.saturating_sub(node.told) >= QUIET;
        let node = HeardNode {
            sender,
            address,
            told,
        };
        let is_same = |known: &&mut HeardNode| known.sender == sender && known.address == address;
        if let Some(known) = self.nodes.iter_mut().find(is_same) {
            let is_due = is_due(known);
            if is_due {
                *known = node;
            }
            return is_due;
        }
        if self.nodes.len() < MAX_HEARD {
            self.nodes.push(node);
            return true;
        }
        // The place of the oldest one, unless that was told lately.
        let oldest = self.nodes.iter_mut().min_by_key(|known| known.told);
        let Some(oldest) = oldest.filter(|known| is_due(known)) else {
            return false;
        };
        *oldest = node;
        true
    }
}

/// When the next beacon is sent.
#[derive(Debug)]
pub(super) struct Pace {
    /// Times to the next beacons, the last one first; behind them comes `period`.
    first: Vec<Duration>,
    period: Option<Duration>,
    /// Time to the answer to a question, different for each process.
    delay: Duration,
    sent: Option<Duration>,
    next: Option<Duration>,
}

impl Pace {
    /// For a process that is there to be found. `delay`: a byte at random, so that not all
    /// answer at once.
    pub(super) fn of_node(delay: u8) -> Self {
        Self {
            first: vec![Duration::from_secs(2), Duration::from_millis(500)],
            period: Some(PERIOD),
            delay: Duration::from_micros(200) * u32::from(delay),
            sent: None,
            next: Some(Duration::ZERO),
        }
    }

    /// For a process that asks for a short time. Some beacons may be lost.
    pub(super) fn of_asker() -> Self {
        Self {
            first: vec![Duration::from_millis(150); 2],
            period: None,
            delay: Duration::ZERO,
            sent: None,
            next: Some(Duration::ZERO),
        }
    }

    /// Whether the next beacons are questions.
    pub(super) fn is_asking(&self) -> bool {
        !self.first.is_empty() || self.period.is_none()
    }

    /// Time to the next beacon; `None`: no more are sent.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        self.next.map(|next| next.saturating_sub(now))
    }

    /// A beacon was sent.
    pub(super) fn sent(&mut self, now: Duration) {
        let gap = self.first.pop().or(self.period);
        self.sent = Some(now);
        self.next = gap.map(|gap| now + gap);
    }

    /// Another process asks who is there.
    pub(super) fn asked(&mut self, now: Duration) {
        let earliest = self.sent.map_or(now, |sent| sent + SHORTEST);
        let due = earliest.max(now + self.delay);
        self.next = self.next.map(|next| next.min(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(i: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], i))
    }

    #[test]
    fn twenty_beacons_are_looked_at_in_a_second() {
        let mut heard = Heard::default();
        let mut looks = |now: Duration| (0..1000).filter(|_| heard.may_look(now)).count();
        assert_eq!(looks(Duration::ZERO), 20);
        assert_eq!(looks(Duration::from_millis(999)), 0);
        assert_eq!(looks(SECOND), 20);
        assert_eq!(looks(SECOND * 3600), 20);
    }

    #[test]
    fn a_node_is_told_once_in_ten_seconds_for_each_of_its_addresses() {
        let mut heard = Heard::default();
        assert!(heard.note(Duration::ZERO, [1; 16], at(1)));
        assert!(!heard.note(SECOND * 9, [1; 16], at(1)));
        assert!(heard.note(SECOND * 9, [1; 16], at(2)));
        assert!(heard.note(SECOND * 9, [2; 16], at(1)));
        assert!(heard.note(SECOND * 10, [1; 16], at(1)));
        assert!(!heard.note(SECOND * 19, [1; 16], at(1)));
    }

    #[test]
    fn a_flood_of_addresses_is_sixteen_in_ten_seconds() {
        let mut heard = Heard::default();
        let mut n_told = |now: Duration| {
            let told = (0..1000).filter(|i| heard.note(now, [3; 16], at(*i)));
            told.count()
        };
        assert_eq!(n_told(Duration::ZERO), 16);
        assert_eq!(n_told(SECOND * 9), 0);
        assert_eq!(n_told(SECOND * 10), 16);
        assert_eq!(heard.nodes.len(), 16);
    }

    #[test]
    fn a_node_answers_soon_and_not_too_often() {
        let mut pace = Pace::of_node(100);
        let mut sent = Vec::new();
        for ms in 0..20_000 {
            let now = Duration::from_millis(ms);
            if pace.left(now) == Some(Duration::ZERO) {
                sent.push((ms, pace.is_asking()));
                pace.sent(now);
            }
        }
        let expected = [0, 500, 2500, 7500, 12500, 17500];
        assert!(sent.iter().map(|(ms, _)| *ms).eq(expected), "{sent:?}");
        assert!(
            sent.iter()
                .map(|(_, asks)| *asks)
                .eq([true, true, false, false, false, false])
        );

        let now = Duration::from_millis(20_000);
        pace.asked(now);
        let answer = now + Duration::from_millis(20);
        assert_eq!(pace.left(now), Some(answer - now));
        pace.sent(answer);
        // Asked again and again, it answers four times a second.
        pace.asked(answer);
        pace.asked(answer);
        assert_eq!(pace.left(answer), Some(SHORTEST));
    }

    #[test]
    fn an_asker_asks_three_times() {
        let mut pace = Pace::of_asker();
        let mut sent = Vec::new();
        for ms in 0..10_000 {
            let now = Duration::from_millis(ms);
            if pace.left(now) == Some(Duration::ZERO) {
                assert!(pace.is_asking());
                sent.push(ms);
                pace.sent(now);
            }
        }
        assert_eq!(sent, [0, 150, 300]);
        pace.asked(Duration::from_secs(10));
        assert_eq!(pace.left(Duration::from_secs(10)), None);
    }
}

//! The parts of a cached text that a new text has, too, at other positions.
//!
//! Knows tokens only. The one idea: the cached text is divided into windows of half the least
//! length. A run of at least that length contains one of them, so a table of the windows finds it.

use std::{collections::HashMap, ops::Range};

/// Equal windows of the cached text that are tried at a position of the new one.
const MAX_TRIED: usize = 8;

/// Tokens of a cached text that a new text has, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommonRun {
    /// Position of the first one in the new text.
    pub(super) to: usize,
    /// Positions in the cached text.
    pub(super) from: Range<usize>,
}

impl CommonRun {
    /// Positions in the new text.
    pub(super) fn destination(&self) -> Range<usize> {
        self.to..self.to + self.from.len()
    }
}

/// Where a search goes on: both texts are searched in order.
#[derive(Clone, Copy)]
struct Cursor {
    new: usize,
    cached: usize,
}

/// Finds the runs of at least `n_min` tokens that `new` has in common with `cached` behind their
/// first `n_new` and `n_cached` tokens, in the order of both.
pub(super) fn common_runs(
    new: &[u32],
    cached: &[u32],
    [n_new, n_cached]: [usize; 2],
    n_min: usize,
) -> Vec<CommonRun> {
    let width = n_min.div_ceil(2).max(1);
    let windows = windows(cached, n_cached, width);
    let mut start = Cursor {
        new: n_new,
        cached: n_cached,
    };
    let mut runs = Vec::new();
    let mut at = n_new;
    while let Some(window) = new.get(at..at + width) {
        let found = windows.get(window).map_or(&[][..], Vec::as_slice);
        let tried = found.iter().filter(|&&i| i >= start.cached).take(MAX_TRIED);
        let around = tried.map(|&i| around(new, cached, start, Cursor { new: at, cached: i }));
        match around.max_by_key(|run| run.from.len()) {
            Some(run) if run.from.len() >= n_min => {
                start = Cursor {
                    new: run.destination().end,
                    cached: run.from.end,
                };
                at = start.new;
                runs.push(run);
            }
            _ => at += 1,
        }
    }
    runs
}

/// The windows of a text from token `start` on, with their positions in order.
fn windows(ids: &[u32], start: usize, width: usize) -> HashMap<&[u32], Vec<usize>> {
    let mut windows: HashMap<&[u32], Vec<usize>> = HashMap::new();
    let rest = ids.get(start..).unwrap_or_default();
    for (i, window) in rest.chunks_exact(width).enumerate() {
        windows.entry(window).or_default().push(start + i * width);
    }
    windows
}

/// The longest run around a pair of equal tokens; it begins at `start` or later.
fn around(new: &[u32], cached: &[u32], start: Cursor, at: Cursor) -> CommonRun {
    let before = new[start.new..at.new].iter().rev();
    let before = before.zip(cached[start.cached..at.cached].iter().rev());
    let n_before = before.take_while(|(a, b)| a == b).count();
    let behind = new[at.new..].iter().zip(&cached[at.cached..]);
    let n_behind = behind.take_while(|(a, b)| a == b).count();
    CommonRun {
        to: at.new - n_before,
        from: at.cached - n_before..at.cached + n_behind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(to: usize, from: Range<usize>) -> CommonRun {
        CommonRun { to, from }
    }

    #[test]
    fn what_follows_a_changed_line_is_found_wherever_it_begins() {
        let cached: Vec<u32> = (0..1000).collect();
        for n_line in [0, 1, 17, 40] {
            let line = vec![5000; n_line];
            let new = [&cached[..20], &line, &cached[30..]].concat();
            let found = common_runs(&new, &cached, [20, 20], 64);
            assert_eq!(found, [run(20 + n_line, 30..1000)]);
        }
    }

    #[test]
    fn every_run_of_the_least_length_is_found_and_no_shorter_one() {
        let cached: Vec<u32> = (0..300).collect();
        for start in 10..60 {
            let new = |n: usize| [&[900; 7], &cached[start..start + n], &[901; 9]].concat();
            let found = common_runs(&new(33), &cached, [0, 0], 33);
            assert_eq!(found, [run(7, start..start + 33)]);
            assert_eq!(common_runs(&new(32), &cached, [0, 0], 33), []);
        }
    }

    #[test]
    fn several_runs_are_found_in_the_order_of_both_texts() {
        let cached: Vec<u32> = (0..400).collect();
        let new = [&cached[200..300], &[7; 5], &cached[320..], &cached[..90]].concat();
        let found = common_runs(&new, &cached, [0, 0], 20);
        assert_eq!(found, [run(0, 200..300), run(105, 320..400)]);
    }

    #[test]
    fn texts_of_one_token_over_and_over_are_searched_in_little_time() {
        let [new, cached] = [vec![3; 20_000], vec![3; 15_000]];
        let found = common_runs(&new, &cached, [10, 10], 256);
        assert_eq!(found, [run(10, 10..15_000)]);
    }
}

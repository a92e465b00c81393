//! The byte map: a bar per layer, divided by role, as wide as the terminal.

use super::bytes::{RoleBytes, TensorBytes, TensorRole};
use crate::{report, terminal};

/// Columns where the terminal does not report its width.
const DEFAULT_WIDTH: usize = 80;
const MIN_WIDTH: usize = 40;
const MAX_WIDTH: usize = 160;
/// Columns beside the bar, for the name and the size of a row.
const BESIDE: usize = 28;
/// The most bars; of more layers, several share a bar.
const MAX_BARS: usize = 48;

/// The width and the colours of the map.
#[derive(Clone, Copy)]
pub(super) struct ByteMap {
    width: usize,
    has_colours: bool,
}

impl ByteMap {
    /// The map for standard output.
    pub(super) fn stdout() -> Self {
        let width = terminal::width().unwrap_or(DEFAULT_WIDTH);
        let width = width.clamp(MIN_WIDTH, MAX_WIDTH);
        let has_colours = terminal::has_colours();
        Self { width, has_colours }
    }

    /// The lines; the first is the legend.
    pub(super) fn draw(self, bytes: &TensorBytes) -> Vec<String> {
        let rows = rows(bytes);
        let sums: Vec<u64> = rows.iter().map(|(_, row)| sum(row)).collect();
        let most = sums.iter().copied().max().unwrap_or(0);
        let used = TensorRole::ALL
            .into_iter()
            .filter(|role| rows.iter().any(|(_, row)| row[*role as usize] > 0));
        let legend: Vec<String> = used
            .map(|role| format!("{} {}", self.paint(role, 1), role.name()))
            .collect();
        let mut lines = vec![format!("bytes: {}", legend.join("  "))];
        lines.extend(rows.iter().zip(sums).map(|((name, row), sum)| {
            let size = report::bytes(sum);
            format!("  {name:<14} {size:>10} {}", self.bar(row, most))
        }));
        lines
    }

    /// A part begins where the part before it ends, so that rounding errors do not add up.
    fn bar(self, row: &RoleBytes, most: u64) -> String {
        let width = (self.width - BESIDE) as f64;
        let column = |bytes: f64| (bytes / most.max(1) as f64 * width).round() as usize;
        let mut done = 0.0;
        let parts = TensorRole::ALL.into_iter().map(|role| {
            let start = column(done);
            done += row[role as usize] as f64;
            self.paint(role, column(done) - start)
        });
        parts.collect()
    }

    fn paint(self, role: TensorRole, n: usize) -> String {
        let (block, colour) = match role {
            TensorRole::Attention => ('█', 36),
            TensorRole::Ffn => ('▓', 33),
            TensorRole::Experts => ('▒', 35),
            TensorRole::Embedding => ('▚', 32),
            TensorRole::Output => ('▞', 34),
            TensorRole::Other => ('░', 37),
        };
        let text: String = std::iter::repeat_n(block, n).collect();
        if self.has_colours && n > 0 {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text
        }
    }
}

fn sum(row: &RoleBytes) -> u64 {
    row.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
}

/// The roles outside of layers first, then the layers, several to a row if there are many.
fn rows(bytes: &TensorBytes) -> Vec<(String, RoleBytes)> {
    let mut rows = Vec::new();
    for role in TensorRole::ALL {
        let mut row = RoleBytes::default();
        row[role as usize] = bytes.outside[role as usize];
        if sum(&row) > 0 {
            rows.push((role.name().to_owned(), row));
        }
    }
    let layers: Vec<(u32, &RoleBytes)> = bytes.layers.iter().map(|(l, row)| (*l, row)).collect();
    let n_each = layers.len().div_ceil(MAX_BARS).max(1);
    rows.extend(layers.chunks(n_each).map(|run| (name(run), total(run))));
    rows
}

fn name(run: &[(u32, &RoleBytes)]) -> String {
    match run {
        [(l, _)] => format!("layer {l}"),
        _ => format!("layers {}-{}", run[0].0, run[run.len() - 1].0),
    }
}

fn total(run: &[(u32, &RoleBytes)]) -> RoleBytes {
    let mut total = RoleBytes::default();
    for (_, row) in run {
        total
            .iter_mut()
            .zip(*row)
            .for_each(|(sum, bytes)| *sum = sum.saturating_add(*bytes));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(bytes: &TensorBytes, has_colours: bool) -> Vec<String> {
        ByteMap {
            width: 80,
            has_colours,
        }
        .draw(bytes)
    }

    #[test]
    fn the_longest_bar_fills_the_line_and_parts_add_up() {
        let mut bytes = TensorBytes {
            outside: [0, 0, 0, 25, 0, 0],
            ..TensorBytes::default()
        };
        bytes.layers.insert(0, [33, 33, 33, 0, 0, 1]);
        let lines = map(&bytes, false);
        assert_eq!(
            lines[0],
            "bytes: █ attention  ▓ ffn  ▒ experts  ▚ embedding  ░ other"
        );
        let blocks = |line: &str| line.chars().filter(|c| "█▓▒▚░".contains(*c)).count();
        assert_eq!((blocks(&lines[1]), blocks(&lines[2])), (13, 52));
        assert!(lines[1].starts_with("  embedding ") && lines[2].starts_with("  layer 0 "));
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert!(map(&bytes, true)[1].contains("\x1b[32m▚"));
    }

    #[test]
    fn many_layers_share_bars_and_absurd_sizes_are_borne() {
        let mut bytes = TensorBytes::default();
        for l in 0..100 {
            bytes.layers.insert(l * 40_000_000, [u64::MAX; 6]);
        }
        let lines = map(&bytes, false);
        assert!(
            lines.len() <= 1 + MAX_BARS && lines[1].starts_with("  layers 0-80000000 "),
            "{}",
            lines[1]
        );
        assert_eq!(map(&TensorBytes::default(), false).len(), 1);
    }
}

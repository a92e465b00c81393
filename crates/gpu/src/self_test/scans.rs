//! States of heads, taken through positions by every rule, beside those of the CPU.

use super::{Contents, Probe, bytes_of};
use crate::quantize::NONE;
use crate::samples::Samples;
use crate::{Bindings, Error, Scan, ScanKeys, ScanRule, Shader};
use atta_kernels::{Decay, Scan as CpuScan, Strided};

const N_ROWS: usize = 5;
/// Rows of two runs, each in its order: one behind the state of block 0, one behind none.
const RUNS: [&[u32]; 2] = [&[2, 0, 1], &[4, 3]];
/// Where states begin in a block.
const STATE: usize = 5;

/// Heads, those of keys, and the widths of keys and values: less than all lanes, off them, all of
/// them; off the rows of a workgroup.
const SHAPES: [[usize; 4]; 3] = [[4, 2, 20, 6], [3, 3, 128, 8], [2, 1, 256, 5]];
/// Channels with states of their own.
const CHANNELS: [[usize; 4]; 2] = [[1, 1, 16, 37], [1, 1, 20, 8]];

/// The inputs of a scan.
struct ScanSample {
    rule: ScanRule,
    shape: [usize; 4],
    /// Queries and keys of a row, then a number that nothing reads.
    qk: Vec<f32>,
    v: Vec<f32>,
    /// Of rows, or the rates of elements.
    decays: Vec<f32>,
    gains: Vec<f32>,
    skips: Vec<f32>,
    before: Vec<f32>,
}

pub(super) fn check(probe: &mut Probe<'_>) -> Result<(), Error> {
    for rule in ScanRule::ALL {
        let shapes = match rule {
            ScanRule::Elements => &CHANNELS[..],
            _ => &SHAPES,
        };
        for &shape in shapes {
            for is_in_turn in [false, true] {
                let sample = ScanSample::new(rule, shape);
                let got = sample.on_gpu(probe, is_in_turn)?;
                let expected = sample.on_cpu(probe, is_in_turn);
                let what = format!("{rule:?} of {shape:?}, in turn: {is_in_turn}");
                probe.same_floats(&what, &got, &expected)?;
            }
        }
    }
    Ok(())
}

impl ScanSample {
    fn new(rule: ScanRule, shape: [usize; 4]) -> Self {
        let [n_heads, n_key_heads, d_key, d_value] = shape;
        let mut samples = Samples((d_key + d_value) as u64);
        let d_values = n_heads * d_value;
        let sizes = |x: Vec<f32>, sign: f32| x.iter().map(|x| sign * x.abs()).collect();
        // Rates are below 0.
        let (n_decays, sign) = match rule {
            ScanRule::Heads | ScanRule::DeltaOfHeads => (N_ROWS * n_heads, 1.0),
            ScanRule::DeltaOfChannels => (N_ROWS * n_heads * d_key, 1.0),
            ScanRule::Elements => (d_values * d_key, -1.0),
        };
        let n_gains = match rule {
            ScanRule::Elements => d_values,
            _ => n_heads,
        };
        Self {
            rule,
            shape,
            qk: samples.floats(N_ROWS * (2 * n_key_heads * d_key + 1)),
            v: samples.floats(N_ROWS * d_values),
            decays: sizes(samples.floats(n_decays), sign),
            gains: sizes(samples.floats(N_ROWS * n_gains), 1.0),
            skips: samples.floats(n_gains),
            before: samples.floats(d_values * d_key),
        }
    }

    /// From a row of queries and keys to the next.
    fn d_row(&self) -> usize {
        self.qk.len() / N_ROWS
    }

    fn block_words(&self) -> usize {
        STATE + self.before.len() + 1
    }

    /// The runs, then their rows.
    fn tables(&self) -> Vec<u8> {
        let block = self.block_words() as u32;
        let rows_at = (4 * RUNS.len()) as u32;
        let n = RUNS.map(|rows| rows.len() as u32);
        let runs = [
            [0, block, rows_at, n[0]],
            [NONE, 2 * block, rows_at + n[0], n[1]],
        ];
        let words = runs.as_flattened().iter().chain(RUNS.into_iter().flatten());
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Buffers with the inputs, room for results behind them, and states.
    fn fill(&self, probe: &mut Probe<'_>) -> Result<Bindings, Error> {
        let mut states = vec![0.0; 3 * self.block_words()];
        states[STATE..STATE + self.before.len()].copy_from_slice(&self.before);
        let out = vec![0.0; self.v.len()];
        probe.fill(&Contents {
            weights: &bytes_of(&[&self.skips[..], &self.decays].concat()),
            n_acts: 1,
            values: &[&self.qk[..], &self.v, &self.decays, &self.gains, &out].concat(),
            tables: &self.tables(),
            kv: &bytes_of(&states),
        })
    }

    /// Results of all rows, then the states behind both runs.
    fn on_gpu(&self, probe: &mut Probe<'_>, is_in_turn: bool) -> Result<Vec<u32>, Error> {
        let bindings = self.fill(probe)?;
        let scan = self.scan(is_in_turn);
        probe.run(&Shader::scan(self.rule), |p| scan.dispatch(p, bindings))?;
        let mut got = probe.words(bindings.values, scan.out as usize, self.v.len())?;
        for block in 1..3 {
            let at = block * self.block_words() + STATE;
            got.extend(probe.words(bindings.kv, at, self.before.len())?);
        }
        Ok(got)
    }

    fn scan(&self, is_in_turn: bool) -> Scan {
        let [n_heads, n_key_heads, d_key, d_value] = self.shape.map(|n| n as u32);
        let v = self.qk.len() as u32;
        let decays = v + self.v.len() as u32;
        let gains = decays + self.decays.len() as u32;
        Scan {
            qkv: [0, n_key_heads * d_key, v],
            d_rows: [self.d_row() as u32, n_heads * d_value],
            decays: match self.rule {
                ScanRule::Elements => self.skips.len() as u32,
                _ => decays,
            },
            gains,
            d_key,
            d_value,
            n_heads,
            keys: match is_in_turn {
                true => ScanKeys::InTurn(n_key_heads),
                false => ScanKeys::Neighbours(n_heads / n_key_heads),
            },
            skip: self.skips().map(|_| 0),
            state: STATE as u32,
            runs: 0,
            n_runs: RUNS.len() as u32,
            out: gains + self.gains.len() as u32,
        }
    }

    /// Of the rules that add values.
    fn skips(&self) -> Option<&[f32]> {
        match self.rule {
            ScanRule::Heads | ScanRule::Elements => Some(&self.skips),
            ScanRule::DeltaOfHeads | ScanRule::DeltaOfChannels => None,
        }
    }

    fn decay(&self) -> Decay<'_> {
        let rows = part(&self.decays, self.decays.len() / N_ROWS, 0);
        match self.rule {
            ScanRule::Heads | ScanRule::DeltaOfHeads => Decay::OfHeads(rows),
            ScanRule::DeltaOfChannels => Decay::OfChannels(rows),
            ScanRule::Elements => Decay::OfElements(&self.decays),
        }
    }

    fn on_cpu(&self, probe: &Probe<'_>, is_in_turn: bool) -> Vec<f32> {
        let [n_heads, n_key_heads, d_key, d_value] = self.shape;
        let mut out = vec![0.0; self.v.len()];
        let mut states = Vec::new();
        for (rows, before) in RUNS.into_iter().zip([Some(&self.before[..]), None]) {
            let mut after = vec![0.0; self.before.len()];
            let scan = CpuScan {
                n_heads,
                key_head: &|h| match is_in_turn {
                    true => h % n_key_heads,
                    false => h / (n_heads / n_key_heads),
                },
                d_key,
                d_value,
                is_delta: self.skips().is_none(),
                skip: self.skips(),
                rows,
                q: part(&self.qk, self.d_row(), 0),
                k: part(&self.qk, self.d_row(), n_key_heads * d_key),
                v: part(&self.v, n_heads * d_value, 0),
                decay: self.decay(),
                gain: part(&self.gains, self.gains.len() / N_ROWS, 0),
                before,
                after: &mut after,
                out: &mut out,
            };
            probe.kernels.scan(&probe.pool, scan);
            states.extend(after);
        }
        [out, states].concat()
    }
}

fn part(data: &[f32], stride: usize, at: usize) -> Strided<'_> {
    Strided { data, stride, at }
}

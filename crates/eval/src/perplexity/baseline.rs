//! Saved log-probabilities of a model, to compare others with: the layout of llama.cpp's
//! `--kl-divergence-base` files (`tools/perplexity/perplexity.cpp`), so that either program reads
//! files of the other.
//!
//! Little-endian: `_logits_`, then `n_ctx`, `n_vocab`, `n_chunks` as i32, then the ids of all
//! chunks as i32, then a row for each scored token: f32 step, f32 lowest, `n_vocab` codes as u16,
//! one more code if that is odd. The log-probability is `step * code + lowest`; log-probabilities
//! more than 16 nats below the best have code 0. So a row is off by up to 1.2e-4 nats, and a model
//! is found to diverge from its own file by about 1e-7 nats.
//!
//! Knows bytes, and no files: the caller opens them.

use std::io::{self, Read, Write};

use crate::Error;
use atta_engine::{Engine, log_sum_exp};

use super::{Chunks, MIN_CHUNK, n_scored};

const MAGIC: &[u8; 8] = b"_logits_";
/// Before the ids.
const PREFIX_BYTES: usize = 20;
/// Step and lowest, in front of the codes of a row.
const SCALE_BYTES: usize = 8;
/// Logits lower than the best by more than this are equal.
const RANGE: f32 = 16.0;

/// The part before the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineHeader {
    /// The text.
    pub chunks: Chunks,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
}

impl BaselineHeader {
    /// Reads it. Nothing is allocated that the reader does not have.
    ///
    /// # Errors
    /// What cannot be read, or is no such file.
    pub fn read(from: &mut impl Read) -> Result<Self, Error> {
        let mut prefix = [0; PREFIX_BYTES];
        from.read_exact(&mut prefix).map_err(unreadable)?;
        if &prefix[..8] != MAGIC {
            return Err(Error::Baseline(
                "it does not begin with _logits_".to_owned(),
            ));
        }
        let field = |i: usize| {
            i32::from_le_bytes(
                prefix[8 + 4 * i..][..4]
                    .try_into()
                    .expect("4 bytes were cut out"),
            )
        };
        let sizes = [field(0), field(1), field(2)];
        let [n_ctx, n_vocab, n_chunks] = sizes.map(|n| usize::try_from(n).unwrap_or(0));
        if n_ctx < MIN_CHUNK || n_vocab == 0 || n_chunks == 0 {
            return Err(Error::Baseline(format!(
                "n_ctx, n_vocab, n_chunks are {sizes:?}"
            )));
        }
        let mut bytes = Vec::new();
        let n_bytes = 4 * n_ctx as u64 * n_chunks as u64;
        from.take(n_bytes)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if bytes.len() as u64 != n_bytes {
            return Err(Error::Baseline(format!(
                "it ends in its token ids, {} bytes of {n_bytes}",
                bytes.len()
            )));
        }
        let ids: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|id| u32::from_le_bytes(id.try_into().expect("chunks of 4")))
            .collect();
        match ids.iter().find(|&&id| id as usize >= n_vocab) {
            Some(id) => Err(Error::Baseline(format!(
                "it has token {id} in a vocabulary of {n_vocab}"
            ))),
            None => Ok(Self {
                chunks: Chunks::new(ids, n_ctx, None)?,
                n_vocab,
            }),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sizes = [self.chunks.n_ctx(), self.n_vocab, self.chunks.len()].map(|n| n as u32);
        let words = sizes
            .iter()
            .chain(self.chunks.ids())
            .flat_map(|word| word.to_le_bytes());
        MAGIC.iter().copied().chain(words).collect()
    }

    /// Bytes of the rows of a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        n_scored(self.chunks.n_ctx()) as u64 * row_bytes(self.n_vocab) as u64
    }

    /// Bytes of a file whose first `n_chunks` chunks are there.
    pub fn file_bytes(&self, n_chunks: usize) -> u64 {
        (PREFIX_BYTES + 4 * self.chunks.ids().len()) as u64 + n_chunks as u64 * self.chunk_bytes()
    }

    /// Refuses a baseline of another vocabulary.
    ///
    /// # Errors
    /// [`Error::Baseline`], which names both sizes.
    pub fn check(&self, engine: &Engine) -> Result<(), Error> {
        let n_vocab = engine.spec().n_vocab;
        if self.n_vocab == n_vocab {
            return Ok(());
        }
        Err(Error::Baseline(format!(
            "it was saved by a model of {} tokens, and this one has {n_vocab}",
            self.n_vocab
        )))
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::Baseline(match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    })
}

fn row_bytes(n_vocab: usize) -> usize {
    SCALE_BYTES + 2 * n_vocab.next_multiple_of(2)
}

/// The rows of a baseline, read one by one.
#[derive(Debug)]
pub struct Baseline<R> {
    from: R,
    bytes: Vec<u8>,
    n_vocab: usize,
}

impl<R: Read> Baseline<R> {
    /// `from` stands at the first row.
    pub fn new(from: R, n_vocab: usize) -> Self {
        Self {
            from,
            bytes: Vec::new(),
            n_vocab,
        }
    }

    /// The next row. Nothing is allocated that the reader does not have.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn next_row(&mut self) -> Result<LogprobRow<'_>, Error> {
        let n_bytes = row_bytes(self.n_vocab) as u64;
        self.bytes.clear();
        let n_read = self
            .from
            .by_ref()
            .take(n_bytes)
            .read_to_end(&mut self.bytes)
            .map_err(unreadable)?;
        if n_read as u64 != n_bytes {
            return Err(unreadable(io::ErrorKind::UnexpectedEof.into()));
        }
        let (scale, codes) = self.bytes.split_at(SCALE_BYTES);
        let float = |at: usize| {
            f32::from_le_bytes(scale[at..at + 4].try_into().expect("4 bytes were cut out"))
        };
        Ok(LogprobRow {
            step: float(0),
            lowest: float(4),
            codes: &codes[..2 * self.n_vocab],
        })
    }
}

/// Log-probabilities before a token.
#[derive(Clone, Copy, Debug)]
pub struct LogprobRow<'a> {
    step: f32,
    lowest: f32,
    /// u16 little-endian, `[n_vocab]`.
    codes: &'a [u8],
}

impl LogprobRow<'_> {
    /// `ln p` of token `i`, which is below `n_vocab`.
    pub(super) fn log_prob(&self, i: usize) -> f32 {
        self.step
            * f32::from(u16::from_le_bytes([
                self.codes[2 * i],
                self.codes[2 * i + 1],
            ]))
            + self.lowest
    }
}

/// Writes the row of `logits`, `[n_vocab]`, 2 bytes each.
///
/// # Errors
/// What cannot be written.
pub fn write_row(logits: &[f32], to: &mut impl Write) -> io::Result<()> {
    let best = logits.iter().copied().fold(f32::MIN, f32::max);
    let lowest = logits
        .iter()
        .copied()
        .fold(f32::MAX, f32::min)
        .max(best - RANGE);
    let step = (best - lowest) / f32::from(u16::MAX);
    let log_total = log_sum_exp(logits);
    to.write_all(&step.to_le_bytes())?;
    to.write_all(&((f64::from(lowest) - log_total) as f32).to_le_bytes())?;
    let code = |logit: f32| {
        if step > 0.0 {
            ((logit - lowest) / step).round_ties_even() as u16
        } else {
            0
        }
    };
    let padding = std::iter::repeat_n(0, logits.len() % 2);
    let bytes: Vec<u8> = logits
        .iter()
        .map(|&l| code(l))
        .chain(padding)
        .flat_map(u16::to_le_bytes)
        .collect();
    to.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> BaselineHeader {
        BaselineHeader {
            chunks: Chunks::new((0..10).collect(), 5, None).unwrap(),
            n_vocab: 11,
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = header().to_bytes();
        assert_eq!(
            BaselineHeader::read(&mut bytes.as_slice()).unwrap(),
            header()
        );
        assert_eq!(bytes.len() as u64, header().file_bytes(0));
        // Rows of 8 bytes and 12 codes, two of them to a chunk.
        assert_eq!(
            (header().chunk_bytes(), header().file_bytes(2)),
            (64, header().file_bytes(0) + 128)
        );
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let good = header().to_bytes();
        for n in 0..good.len() {
            assert!(BaselineHeader::read(&mut &good[..n]).is_err(), "{n} bytes");
        }
        let changed = |at: usize, value: i32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            BaselineHeader::read(&mut bytes.as_slice())
                .unwrap_err()
                .to_string()
        };
        assert!(changed(0, 0).contains("_logits_"));
        for value in [0, -1, 3, i32::MIN] {
            assert!(
                changed(8, value).contains("n_ctx, n_vocab, n_chunks"),
                "{value}"
            );
        }
        assert!(changed(8, i32::MAX).contains("ends in its token ids"));
        assert!(changed(16, i32::MAX).contains("ends in its token ids"));
        assert!(changed(20, 11).contains("token 11"));
    }

    #[test]
    fn rows_end_where_the_file_does() {
        let mut rows = Baseline::new([0u8; 40].as_slice(), 11);
        assert_eq!(rows.next_row().unwrap().log_prob(10), 0.0);
        assert!(
            rows.next_row()
                .unwrap_err()
                .to_string()
                .contains("ends too early")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd_for_a_header(
            rest in prop::collection::vec(any::<u8>(), 0..200),
            small: [u8; 3],
        ) {
            let sizes = small.map(|n| u32::from(n % 8).to_le_bytes());
            for prefix in [MAGIC.to_vec(), [&MAGIC[..], &sizes.concat()].concat()] {
                let bytes = [prefix, rest.clone()].concat();
                if let Ok(header) = BaselineHeader::read(&mut bytes.as_slice()) {
                    prop_assert!(bytes.starts_with(&header.to_bytes()));
                }
            }
        }

        #[test]
        fn a_row_is_right_to_a_step(logits in prop::collection::vec(-12.0f32..12.0, 1..40)) {
            let mut bytes = Vec::new();
            write_row(&logits, &mut bytes).unwrap();
            prop_assert_eq!(bytes.len(), row_bytes(logits.len()));
            let mut rows = Baseline::new(bytes.as_slice(), logits.len());
            let row = rows.next_row().unwrap();
            let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            for (i, &logit) in logits.iter().enumerate() {
                let want = f64::from(logit.max(best - RANGE)) - total.ln();
                prop_assert!((f64::from(row.log_prob(i)) - want).abs() < 1.3e-4, "{i}");
            }
        }
    }
}

//! Reads and writes files of llama2.c and LEAP: `.bin` models of versions 0, 1 and 2, with a
//! `tokenizer.bin` beside them.
//!
//! The files have sizes and weights only. The programs have an RMS epsilon of 1e-5, the rope base,
//! and heads of width `d_model / n_heads` as constants. Rows of q and k are in the order of GGUF's
//! llama, with adjacent pairs rotated, so no row is permuted.
//!
//! The rope base is 10000 in llama2.c (`run.c`) and 500000 in LEAP, whose BOS and EOS ids fit only
//! Llama 3. So a vocabulary of Llama 3's size means LEAP, and any other size llama2.c, for reading
//! and writing.
//!
//! Sources: `export.py`, `run.c` and `tokenizer.py` of karpathy/llama2.c; LEAP's files are those of
//! versions 1 and 2.

mod compat;
mod files;
mod header;
mod int8_rows;
mod layout;
mod metadata;
mod read;
mod rounding;
mod vocab;
mod write;

pub use files::{TokenizerFile, convert, tokenizer_file, tokenizer_path};
pub(crate) use read::add_vocabulary;
pub use read::{open, parse};
pub use rounding::RoundingError;
pub use write::{LeapFormat, Report, write};

/// RMS epsilon, a constant of both programs.
const EPS: f32 = 1e-5;

/// Vocabulary size of Llama 3, its 256 special tokens included.
const LLAMA3_VOCAB: u64 = 128_256;

/// The rope base: pair `i` of a head of width `d` rotates by `position / base^(2i / d)`.
fn rope_base(n_vocab: u64) -> f32 {
    if n_vocab == LLAMA3_VOCAB {
        500_000.0
    } else {
        10_000.0
    }
}

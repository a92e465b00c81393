//! Files of llama2.c and LEAP: `.bin` models of versions 0, 1 and 2, and the `tokenizer.bin` beside
//! them.
//!
//! They say sizes and weights, and nothing of what is computed: whoever reads them knows an RMS
//! epsilon of 1e-5, a rope base and heads of `d_model / n_heads`. Rows of q and k lie as GGUF's
//! llama has them, neighbours rotated together, so that no weight moves in either direction.
//!
//! The rope base is 10000 in llama2.c (`run.c`) and 500000 in LEAP, whose ids of the first and last
//! token fit only Llama 3. So a vocabulary of Llama 3's size means LEAP, and every other one means
//! llama2.c, in reading and in writing.
//!
//! Sources: `export.py`, `run.c` and `tokenizer.py` of karpathy/llama2.c; LEAP's files are those of
//! versions 1 and 2.

mod files;
mod fit;
mod groups;
mod header;
mod layout;
mod loss;
mod metadata;
mod read;
mod vocab;
mod write;

pub use files::{convert, tokenizer_path};
pub use loss::Loss;
pub use read::{open, parse};
pub use write::{Leap, Report, write};

/// What a file of one of the two programs means beyond what it says.
const EPS: f32 = 1e-5;

/// Tokens of Llama 3, its 256 special ones included.
const LLAMA3_VOCAB: u64 = 128_256;

/// What pair `i` of a head of `d` turns by is `position / base^(2i / d)`.
fn rope_base(n_vocab: u64) -> f32 {
    if n_vocab == LLAMA3_VOCAB {
        500_000.0
    } else {
        10_000.0
    }
}

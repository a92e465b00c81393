//! Text to token ids and back, from the metadata of a GGUF file. SentencePiece (merges, unigram),
//! byte pair encoding with llama.cpp's pre-tokenizers, and WordPiece. This crate reads no file,
//! knows no model and adds no BOS; it only says whether a prompt should begin with one. Token for
//! token it agrees with llama.cpp, except for WordPiece, where it agrees with BERT.
//!
//! The one idea: token texts stay in the mapped file. The heap holds an index of ids (8 bytes per
//! token), the merges (8 bytes each) and a byte per token, so that a vocabulary of 128k takes 5 MB,
//! not 50.
//!
//! ```
//! # use atta_formats::{Gguf, Writer};
//! use atta_tokenizer::{Special, StreamDecoder, Tokenizer};
//! # let mut writer = Writer::new();
//! # writer.set_str("tokenizer.ggml.model", "llama");
//! # writer.set_strs("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "▁", "a", "▁a", "<0x0A>"]);
//! # writer.set_f32s("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, -1.0, -2.0, -0.5, 0.0]);
//! # writer.set_i32s("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1, 6]);
//! # let header = writer.finish()?.header;
//! # let n_bytes = header.len() as u64;
//! # let metadata = Gguf::parse(std::sync::Arc::new(header), n_bytes)?.metadata;
//! let tokenizer = Tokenizer::from_metadata(&metadata)?;
//! let ids = tokenizer.encode("a a\n", Special::Plain);
//! assert_eq!(ids, [5, 5, 6]);
//!
//! let mut stream = StreamDecoder::new(&tokenizer);
//! let text: String = ids.iter().map(|&id| stream.push(id)).collect();
//! assert_eq!(text + &stream.flush(), "a a\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bpe;
pub mod bytes;
mod characters;
mod charsmap;
mod error;
mod index;
mod merge;
mod merges;
mod partition;
mod pre;
mod roles;
mod spm;
mod stream;
mod tokenizer;
mod unicode;
mod unigram;
mod vocab;
mod words;
mod wpm;

pub use error::Error;
pub use stream::{Control, StreamDecoder};
pub use tokenizer::{Special, Tokenizer};
pub use vocab::TokenKind;

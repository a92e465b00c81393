//! `tokenizer.bin`: the vocabulary format of llama2.c.
//!
//! ```text
//! 0 u32 length of the longest token then for each token of the model: f32 score, u32 length, bytes
//! ```
//! The file has neither the number of tokens nor their types. In SentencePiece vocabularies the
//! first three tokens are `<unk>`, `<s>` and `</s>`, and the next 256 are the bytes `<0xXX>`. The
//! file has spaces for SentencePiece's U+2581, and line breaks around `<s>` and `</s>`.

use std::io::{self, Write};

use atta_formats::{Metadata, Writer};

use super::LLAMA3_VOCAB;
use crate::vocab;

/// SentencePiece's character for a space.
const SPACE_MARK: &str = "\u{2581}";
/// The token of byte 0.
const FIRST_BYTE: usize = 3;
/// Tokens of Llama 3 without the special ones.
const LLAMA3_RANKS: usize = 128_000;

/// A token of the file.
struct FileToken<'a> {
    score: f32,
    text: &'a [u8],
}

/// The type of a token, with GGUF's numbers.
#[derive(Clone, Copy)]
enum TokenType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    Byte = 6,
}

/// Reads a vocabulary of `n_vocab` tokens into the metadata.
pub(super) fn read(bytes: &[u8], n_vocab: u64, writer: &mut Writer) -> Result<(), String> {
    let tokens = tokens(bytes, n_vocab)?;
    if n_vocab == LLAMA3_VOCAB && are_ranks(&tokens) {
        return vocab::write_llama3(
            &tokens.iter().map(|token| token.text).collect::<Vec<_>>(),
            writer,
        );
    }
    if !are_bytes(tokens.iter().map(|token| token.text)) {
        return Err(not_sentencepiece(&tokens));
    }
    let texts: Vec<Vec<u8>> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| text(id, token.text))
        .collect();
    let scores: Vec<f32> = tokens.iter().map(|token| token.score).collect();
    let kinds: Vec<i32> = (0..tokens.len()).map(|id| kind(id) as i32).collect();
    writer.set_str("tokenizer.ggml.model", "llama");
    writer.set_str("tokenizer.ggml.pre", "default");
    writer.set_strs("tokenizer.ggml.tokens", &texts);
    writer.set_f32s("tokenizer.ggml.scores", &scores);
    writer.set_i32s("tokenizer.ggml.token_type", &kinds);
    writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
    writer.set_u32("tokenizer.ggml.bos_token_id", 1);
    writer.set_u32("tokenizer.ggml.eos_token_id", 2);
    writer.set_bool("tokenizer.ggml.add_bos_token", true);
    writer.set_bool("tokenizer.ggml.add_space_prefix", true);
    Ok(())
}

fn tokens(bytes: &[u8], n_vocab: u64) -> Result<Vec<FileToken<'_>>, String> {
    // The length of the longest token, which C programs use for a buffer, is not needed.
    let mut rest = bytes
        .get(4..)
        .ok_or_else(|| format!("{} bytes are no vocabulary", bytes.len()))?;
    let mut tokens = Vec::new();
    for id in 0..n_vocab {
        let ends = || format!("ends in token {id}, and the model has {n_vocab}");
        let (token, behind) = token(rest).ok_or_else(ends)?;
        if !token.score.is_finite() {
            return Err(format!("token {id} has a score of {}", token.score));
        }
        rest = behind;
        tokens.push(token);
    }
    match rest.len() {
        0 => Ok(tokens),
        n => Err(format!(
            "{n} bytes are left over behind the {n_vocab} tokens that the model has"
        )),
    }
}

/// The first token, and the bytes behind it.
fn token(bytes: &[u8]) -> Option<(FileToken<'_>, &[u8])> {
    let (score, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (text, behind) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
    Some((
        FileToken {
            score: f32::from_le_bytes(*score),
            text,
        },
        behind,
    ))
}

/// Whether the tokens after the first three are `<0x00>` to `<0xFF>`.
fn are_bytes<'a>(texts: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut texts = texts.skip(FIRST_BYTE);
    (0..256).all(|byte| {
        texts
            .next()
            .is_some_and(|text| text == format!("<0x{byte:02X}>").as_bytes())
    })
}

/// Whether scores are ranks: the score of each token is its id.
fn are_ranks(tokens: &[FileToken<'_>]) -> bool {
    tokens
        .iter()
        .enumerate()
        .all(|(id, token)| token.score == id as f32)
}

fn not_sentencepiece(tokens: &[FileToken<'_>]) -> String {
    let ranks = if are_ranks(tokens) {
        ", and scores that only count up, but it is not that of Llama 3"
    } else {
        ""
    };
    format!("is no SentencePiece vocabulary: no tokens <0x00> to <0xFF> at 3 to 258{ranks}")
}

/// The text of a token as SentencePiece spells it.
fn text(id: usize, text: &[u8]) -> Vec<u8> {
    match kind(id) {
        TokenType::Control => text.trim_ascii().to_vec(),
        TokenType::Normal => text
            .split(|&b| b == b' ')
            .collect::<Vec<_>>()
            .join(SPACE_MARK.as_bytes()),
        TokenType::Unknown | TokenType::Byte => text.to_vec(),
    }
}

/// A vocabulary that llama2.c or LEAP can use, as the scores and bytes of the file.
pub(super) struct TokenizerBin {
    tokens: Vec<(f32, Vec<u8>)>,
    /// Tokens whose type the file cannot express.
    n_others: usize,
}

impl TokenizerBin {
    /// Takes the vocabulary of a model, if it is SentencePiece or Llama 3's.
    pub(super) fn new(metadata: &Metadata) -> Result<Self, String> {
        let message = |error: atta_formats::Error| error.to_string();
        let texts = metadata
            .strs("tokenizer.ggml.tokens")
            .map_err(message)?
            .ok_or("it has no tokens")?;
        let is_llama3 = texts.len() as u64 == LLAMA3_VOCAB;
        check_roles(metadata, is_llama3)?;
        if is_llama3 {
            let token = |(id, text): (usize, &[u8])| Ok((id as f32, ranked(id, text)?));
            return Ok(Self {
                tokens: texts
                    .iter()
                    .enumerate()
                    .map(token)
                    .collect::<Result<_, String>>()?,
                n_others: 0,
            });
        }
        let scores = metadata
            .f32s("tokenizer.ggml.scores")
            .map_err(message)?
            .ok_or("its tokens have no scores")?;
        if scores.len() != texts.len() {
            return Err(format!(
                "it has {} scores of {} tokens",
                scores.len(),
                texts.len()
            ));
        }
        if !are_bytes(texts.iter()) {
            return Err("its tokens 3 to 258 are not <0x00> to <0xFF>, as llama2.c assumes".into());
        }
        let tokens = scores
            .iter()
            .zip(texts.iter().enumerate().map(|(id, text)| plain(id, text)))
            .collect();
        let kinds = metadata
            .i32s("tokenizer.ggml.token_type")
            .map_err(message)?;
        let n_others = kinds.map_or(0, |kinds| {
            kinds
                .iter()
                .enumerate()
                .filter(|&(id, k)| k != kind(id) as i32)
                .count()
        });
        Ok(Self { tokens, n_others })
    }

    /// Describes what the file cannot express.
    pub(super) fn dropped(&self, metadata: &Metadata) -> Vec<String> {
        let template = metadata
            .get("tokenizer.chat_template")
            .map(|_| "the chat template".to_owned());
        let kinds = (self.n_others > 0)
            .then(|| format!("the types of {} tokens, which become text", self.n_others));
        template.into_iter().chain(kinds).collect()
    }

    /// Writes the file.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let longest = self
            .tokens
            .iter()
            .map(|(_, text)| text.len())
            .max()
            .unwrap_or(0);
        out.write_all(&(longest as u32).to_le_bytes())?;
        for (score, text) in &self.tokens {
            out.write_all(&score.to_le_bytes())?;
            out.write_all(&(text.len() as u32).to_le_bytes())?;
            out.write_all(text)?;
        }
        Ok(())
    }
}

/// Checks the tokenizer model and the BOS and EOS ids, which are constants of the programs.
fn check_roles(metadata: &Metadata, is_llama3: bool) -> Result<(), String> {
    let text = |key: &str| {
        metadata
            .str(key)
            .map(|text| text.unwrap_or("unknown"))
            .map_err(|error| error.to_string())
    };
    let model = text("tokenizer.ggml.model")?;
    let pre = text("tokenizer.ggml.pre")?;
    match (is_llama3, model, pre) {
        (false, "llama", _) | (true, "gpt2", "llama-bpe" | "llama3" | "llama-v3") => {}
        _ => {
            return Err(format!(
                "its tokens are merged as {model} ({pre}) does; the programs support \
                 SentencePiece and Llama 3"
            ));
        }
    }
    let roles: &[(&str, u32)] = match is_llama3 {
        // LEAP has the end tokens of Llama 3 as constants.
        true => &[("tokenizer.ggml.bos_token_id", 128_000)],
        false => &[
            ("tokenizer.ggml.bos_token_id", 1),
            ("tokenizer.ggml.eos_token_id", 2),
        ],
    };
    for (key, expected) in roles {
        match metadata.u32(key).map_err(|e| e.to_string())? {
            Some(id) if id != *expected => {
                return Err(format!("{key} is {id}, in these programs it is {expected}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The bytes of a token of Llama 3; special tokens are written by name.
fn ranked(id: usize, text: &[u8]) -> Result<Vec<u8>, String> {
    if id >= LLAMA3_RANKS {
        return Ok(text.to_vec());
    }
    let bytes = str::from_utf8(text).ok().and_then(vocab::unspell);
    bytes.ok_or_else(|| format!("its token {id} is not spelled by bytes"))
}

/// The text of a token as llama2.c spells it.
fn plain(id: usize, text: &[u8]) -> Vec<u8> {
    match kind(id) {
        TokenType::Control => [b"\n", text, b"\n"].concat(),
        TokenType::Normal => String::from_utf8_lossy(text)
            .replace(SPACE_MARK, " ")
            .into_bytes(),
        TokenType::Unknown | TokenType::Byte => text.to_vec(),
    }
}

fn kind(id: usize) -> TokenType {
    match id {
        0 => TokenType::Unknown,
        1 | 2 => TokenType::Control,
        _ if id < FIRST_BYTE + 256 => TokenType::Byte,
        _ => TokenType::Normal,
    }
}

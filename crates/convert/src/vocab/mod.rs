//! Converts the vocabulary and the chat template of a checkpoint to GGUF metadata.
//!
//! It refuses to know how text is tokenized, which is up to `atta-tokenizer`. The one idea: every
//! source (tokenizer.json, SentencePiece, tiktoken, vocab.json) becomes one `GgufVocab`; added
//! tokens, special tokens and templates are then processed in the same way for all.
//!
//! Only [`VocabFiles::open`] does I/O; everything else works on bytes in memory.

mod added_tokens;
mod byte_level;
mod characters;
mod expressions;
mod files;
mod gpt2;
mod hugging_face;
mod pre;
mod sentencepiece;
mod special_tokens;
mod table;
mod template;
mod tiktoken;
mod unigram;
mod word_piece;

use std::path::Path;

use atta_formats::Writer;
use serde_json::Value;

pub use files::VocabFiles;

pub(crate) use byte_level::unspell;

use crate::Error;
use added_tokens::AddedToken;
use hugging_face::TokenizerJson;
use special_tokens::{Ids, TokenizerConfigs};
use table::TokenTable;

/// Options of [`read`].
#[derive(Clone, Default, Debug)]
pub struct VocabOptions {
    /// The pre-tokenizer (`tokenizer.ggml.pre`), for a vocabulary whose pre-tokenizer is not
    /// recognized.
    pub pre: Option<String>,
}

/// Writes the vocabulary of a directory into the metadata, with one token for each of the `n_vocab`
/// rows of the embedding. Returns warnings for the user, one sentence each.
///
/// # Errors
/// [`Error::File`] if there is no vocabulary, if it is not supported, or if files contradict each
/// other; [`Error::PreTokenizer`] if its pre-tokenizer is unknown.
pub fn read(
    dir: &Path,
    n_vocab: u64,
    options: &VocabOptions,
    out: &mut Writer,
) -> Result<Vec<String>, Error> {
    write(&VocabFiles::open(dir)?, n_vocab, options, out)
}

/// As [`read`], for files in memory.
///
/// # Errors
/// Those of [`read`].
pub fn write(
    files: &VocabFiles,
    n_vocab: u64,
    options: &VocabOptions,
    out: &mut Writer,
) -> Result<Vec<String>, Error> {
    let file = files.get("tokenizer.json");
    let json = file.as_ref().map(TokenizerJson::parse).transpose()?;
    let source = VocabSource {
        files,
        json: json.as_ref(),
        options,
    };
    let mut found = source.find(TokenTable::new(files, n_vocab)?)?;
    if let Some(pre) = options.pre.as_ref().filter(|&pre| *pre != found.pre) {
        return Err(files.wrong(format!(
            "the pre-tokenizer {pre} does not apply: this vocabulary can only have {}",
            found.pre
        )));
    }
    let configs = TokenizerConfigs::parse(files)?;
    found.add_space_prefix = found
        .add_space_prefix
        .map(|default| configs.add_prefix_space().unwrap_or(default));
    let roles = configs.roles(
        &mut found,
        json.as_ref()
            .map_or(&Value::Null, |json| &json.post_processor),
    );
    found.write(out);
    roles.write(out);
    template::write(files, &configs, out)?;
    Ok(found.warnings)
}

/// Tokens of a `tokenizer.model`: those of SentencePiece, or `n_ranked` where tiktoken made it,
/// whose files leave out special tokens.
pub(crate) fn n_tokens(files: &VocabFiles, n_ranked: u64) -> u64 {
    match files.get(files::MODEL) {
        Some(file) if file.bytes.first() == Some(&sentencepiece::FIRST_BYTE) => {
            sentencepiece::n_pieces(file.bytes)
        }
        _ => n_ranked,
    }
}

/// Writes the vocabulary of Llama 3 into the metadata, from the bytes of its tokens in order of
/// ids.
pub(crate) fn write_llama3(tokens: &[&[u8]], out: &mut Writer) -> Result<(), String> {
    let files = VocabFiles::default();
    let message = |error: Error| error.to_string();
    let mut found = tiktoken::llama3_vocabulary(
        tokens,
        TokenTable::new(&files, tokens.len() as u64).map_err(message)?,
    )?;
    let roles = TokenizerConfigs::parse(&files)
        .map_err(message)?
        .roles(&mut found, &Value::Null);
    found.write(out);
    roles.write(out);
    Ok(())
}

/// A vocabulary as GGUF metadata.
struct GgufVocab {
    table: TokenTable,
    /// `tokenizer.ggml.model`.
    model: &'static str,
    /// `tokenizer.ggml.pre`.
    pre: String,
    /// `left right`, best first.
    merges: Option<Vec<String>>,
    /// `tokenizer.ggml.add_space_prefix`.
    add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`.
    remove_extra_whitespaces: Option<bool>,
    /// `tokenizer.ggml.precompiled_charsmap`.
    charsmap: Option<Vec<u8>>,
    /// Ids of special tokens that the source itself names; other files have precedence.
    ids: Ids,
    /// `tokenizer.ggml.normalizer.lowercase`.
    lowercase: Option<bool>,
    /// `tokenizer.ggml.normalizer.strip_accents`.
    strip_accents: Option<bool>,
    /// Whether a text begins with BOS, if no other file says so.
    add_bos: Option<bool>,
    warnings: Vec<String>,
}

impl GgufVocab {
    fn new(table: TokenTable, model: &'static str, pre: impl Into<String>) -> Self {
        Self {
            table,
            model,
            pre: pre.into(),
            merges: None,
            add_space_prefix: None,
            remove_extra_whitespaces: None,
            charsmap: None,
            ids: Ids::default(),
            lowercase: None,
            strip_accents: None,
            add_bos: None,
            warnings: Vec::new(),
        }
    }

    fn write(&self, out: &mut Writer) {
        out.set_str("tokenizer.ggml.model", self.model);
        out.set_str("tokenizer.ggml.pre", &self.pre);
        self.table.write(out);
        if let Some(merges) = &self.merges {
            out.set_strs("tokenizer.ggml.merges", merges);
        }
        if let Some(charsmap) = &self.charsmap {
            out.set_u8s("tokenizer.ggml.precompiled_charsmap", charsmap);
        }
        for (key, value) in [
            ("tokenizer.ggml.add_space_prefix", self.add_space_prefix),
            (
                "tokenizer.ggml.remove_extra_whitespaces",
                self.remove_extra_whitespaces,
            ),
            ("tokenizer.ggml.normalizer.lowercase", self.lowercase),
            (
                "tokenizer.ggml.normalizer.strip_accents",
                self.strip_accents,
            ),
        ] {
            if let Some(value) = value {
                out.set_bool(key, value);
            }
        }
    }
}

/// The files of a vocabulary and the options.
struct VocabSource<'a> {
    files: &'a VocabFiles,
    json: Option<&'a TokenizerJson<'a>>,
    options: &'a VocabOptions,
}

impl VocabSource<'_> {
    /// Reads the first format that is present, in llama.cpp's order.
    fn find(&self, table: TokenTable) -> Result<GgufVocab, Error> {
        let model = self.files.get(files::MODEL);
        if let Some(file) = model
            .as_ref()
            .filter(|file| file.bytes.first() == Some(&sentencepiece::FIRST_BYTE))
        {
            return sentencepiece::vocabulary(file, self, table);
        }
        if let Some(json) = self.json {
            return json.vocabulary(self, table);
        }
        let tiktoken = || self.files.get("tiktoken.model");
        let tiktoken = || tiktoken().or_else(|| self.files.with_extension(".tiktoken"));
        if let Some(file) = model.or_else(tiktoken) {
            return tiktoken::vocabulary(&file, self, table);
        }
        if let Some(file) = self.files.get("tekken.json") {
            return tiktoken::tekken::vocabulary(&file, table);
        }
        if let Some((vocab, merges)) = self
            .files
            .get("vocab.json")
            .zip(self.files.get("merges.txt"))
        {
            return gpt2::vocabulary(&vocab, &merges, self, table);
        }
        let expected = "expected tokenizer.json, tokenizer.model, *.tiktoken, tekken.json, or \
                        vocab.json and merges.txt";
        Err(self.files.wrong(format!("no vocabulary: {expected}")))
    }

    /// The added tokens of all files.
    fn added(&self) -> Result<Vec<AddedToken>, Error> {
        let mut added = added_tokens::beside(self.files)?;
        added.extend(self.json.iter().flat_map(|json| json.added.iter().cloned()));
        Ok(added)
    }
}

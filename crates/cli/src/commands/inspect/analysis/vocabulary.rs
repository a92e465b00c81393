//! The tokenizer that a file describes.

use atta::{Metadata, tokenizer::Tokenizer};

/// A vocabulary in short.
pub(super) struct Vocabulary {
    /// The file's name for it: `llama`, `gpt2`, `bert`.
    pub(super) model: String,
    /// The pre-tokenizer.
    pub(super) pre: Option<String>,
    pub(super) n_tokens: usize,
    /// Special tokens: role, id, text.
    pub(super) roles: Vec<(&'static str, u32, String)>,
    /// End-of-generation tokens.
    pub(super) eog: Vec<u32>,
    pub(super) adds_bos: bool,
    pub(super) adds_eos: bool,
}

impl Vocabulary {
    /// Reads the metadata of a file.
    pub(super) fn of(metadata: &Metadata) -> Result<Self, String> {
        let tokenizer = Tokenizer::from_metadata(metadata).map_err(|error| error.to_string())?;
        let text = |key| metadata.str(key).ok().flatten().map(str::to_owned);
        let roles = [
            ("bos", tokenizer.bos()),
            ("eos", tokenizer.eos()),
            ("eot", tokenizer.eot()),
            ("unknown", tokenizer.unknown()),
            ("padding", tokenizer.padding()),
        ];
        let spelled = |id| String::from_utf8_lossy(tokenizer.token_text(id)).into_owned();
        let roles = roles
            .into_iter()
            .filter_map(|(role, id)| Some((role, id?, spelled(id?))));
        Ok(Self {
            model: text("tokenizer.ggml.model").unwrap_or_default(),
            pre: text("tokenizer.ggml.pre"),
            n_tokens: tokenizer.n_vocab(),
            roles: roles.collect(),
            eog: tokenizer.eog().to_vec(),
            adds_bos: tokenizer.add_bos(),
            adds_eos: tokenizer.add_eos(),
        })
    }

    /// The algorithm that the file's name means.
    pub(super) fn algorithm(&self) -> &'static str {
        match self.model.as_str() {
            "llama" => "SentencePiece",
            "bert" => "WordPiece",
            _ => "byte pair encoding",
        }
    }
}

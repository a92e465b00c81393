//! How a file says that text is cut into tokens.

use atta::{Metadata, tokenizer::Tokenizer};

/// Of a vocabulary what a person asks about.
pub(super) struct Vocabulary {
    /// As the file has it: `llama`, `gpt2`, `bert`.
    pub(super) model: String,
    /// What is done with a text before.
    pub(super) pre: Option<String>,
    pub(super) n_tokens: usize,
    /// Tokens with a role: role, id, text.
    pub(super) roles: Vec<(&'static str, u32, String)>,
    /// Where a generation ends.
    pub(super) eog: Vec<u32>,
    pub(super) adds_bos: bool,
    pub(super) adds_eos: bool,
}

impl Vocabulary {
    /// What the metadata says, or why it cannot be read.
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

    /// The algorithm behind the file's word for it.
    pub(super) fn algorithm(&self) -> &'static str {
        match self.model.as_str() {
            "llama" => "SentencePiece",
            "bert" => "WordPiece",
            _ => "byte pair encoding",
        }
    }
}

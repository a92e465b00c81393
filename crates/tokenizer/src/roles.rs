//! Special tokens: BOS, EOS, EOT, EOM, unknown, padding, and all end-of-generation tokens.
//!
//! Knows no algorithm. The one idea: metadata first, token texts second, because many files name
//! only one of their end tokens. The texts, defaults and exceptions are those of
//! `llama_vocab::impl::load` in llama.cpp, so that generation ends at the same tokens.

use crate::Error;
use crate::partition::Strip;
use crate::vocab::{TokenKind, Vocab};
use atta_formats::Metadata;

/// The special tokens of a vocabulary, and whether BOS and EOS are added.
#[derive(Clone, Default, Debug)]
pub(crate) struct Roles {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) eot: Option<u32>,
    pub(crate) eom: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) padding: Option<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
    /// The tokens between two texts that a model compares.
    pub(crate) between: Vec<u32>,
    /// End-of-generation tokens, sorted.
    pub(crate) eog: Vec<u32>,
    pub(crate) frame: Frame,
}

/// The tokens around a text, which decide the metadata keys that name them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) enum Frame {
    #[default]
    BosEos,
    /// `[CLS]` and `[SEP]` of BERT are used as BOS and EOS.
    ClsSep,
}

impl Frame {
    /// The keys of BOS (the first one present wins), of EOS, and of whether EOS is added: one of
    /// them is enough.
    fn keys(
        self,
    ) -> (
        &'static [&'static str],
        &'static str,
        &'static [&'static str],
    ) {
        match self {
            Self::BosEos => (
                &["tokenizer.ggml.bos_token_id"],
                "tokenizer.ggml.eos_token_id",
                &[ADD_EOS],
            ),
            // Files of today say in `add_sep_token` whether there are two `[SEP]` between texts.
            Self::ClsSep => (
                &["tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"],
                SEPARATOR,
                &[ADD_SEP, ADD_EOS],
            ),
        }
    }
}

const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_SEP: &str = "tokenizer.ggml.add_sep_token";
/// GGUF spells it "seperator".
const SEPARATOR: &str = "tokenizer.ggml.seperator_token_id";

/// Texts of tokens that end a generation, whatever the metadata says.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A fill-in-the-middle token. If no key names it, it is found by its text.
struct FimRole {
    keys: &'static [&'static str],
    /// In order of preference.
    texts: &'static [&'static str],
    /// Whether the token ends a generation.
    ends: bool,
}

#[rustfmt::skip]
const FIM_ROLES: &[FimRole] = &[
    FimRole {
        keys: &["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"],
        texts: &[
            "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
            "▁<PRE>", "<|code_prefix|>", "<|prefix|>",
        ],
        ends: false,
    },
    FimRole {
        keys: &["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"],
        texts: &[
            "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
            "▁<SUF>", "<|code_suffix|>", "<|suffix|>",
        ],
        ends: false,
    },
    FimRole {
        keys: &["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"],
        texts: &[
            "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
            "▁<MID>", "<|code_middle|>", "<|middle|>",
        ],
        ends: false,
    },
    FimRole {
        keys: &["tokenizer.ggml.fim_pad_token_id"],
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        ends: true,
    },
    FimRole {
        keys: &["tokenizer.ggml.fim_rep_token_id"],
        texts: &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
        ends: true,
    },
    FimRole {
        keys: &["tokenizer.ggml.fim_sep_token_id"],
        texts: &["<|file_sep|>"],
        ends: true,
    },
];

/// Tokens of gpt-oss that are visible in the output.
const VISIBLE_TEXTS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

impl Roles {
    /// Overrides the defaults in `self` with the metadata, then looks for special tokens by their
    /// texts and corrects their types.
    pub(crate) fn find(
        mut self,
        metadata: &Metadata,
        vocab: &mut Vocab,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let (bos_keys, eos_key, add_eos_keys) = self.frame.keys();
        for key in bos_keys.iter().rev() {
            self.bos = read_id(metadata, vocab, key, warnings)?.or(self.bos);
        }
        self.bos = self.bos.filter(|&id| vocab.holds(id));
        for (key, id) in [
            (eos_key, &mut self.eos),
            ("tokenizer.ggml.eot_token_id", &mut self.eot),
            ("tokenizer.ggml.eom_token_id", &mut self.eom),
            ("tokenizer.ggml.unknown_token_id", &mut self.unknown),
            ("tokenizer.ggml.padding_token_id", &mut self.padding),
        ] {
            *id = read_id(metadata, vocab, key, warnings)?.or(id.filter(|&id| vocab.holds(id)));
        }
        self.add_bos = metadata
            .bool("tokenizer.ggml.add_bos_token")?
            .unwrap_or(self.add_bos);
        let mut add_eos = None;
        for key in add_eos_keys {
            add_eos = metadata
                .bool(key)?
                .map(|add| add || add_eos == Some(true))
                .or(add_eos);
        }
        self.add_eos = add_eos.unwrap_or(self.add_eos);
        self.find_separators(metadata, vocab, warnings)?;
        self.find_fim(metadata, vocab, warnings)?;
        self.find_ends(vocab);
        Ok(self)
    }

    /// Between two texts stands the end of the first, and a separator if the metadata asks for one
    /// beside it.
    fn find_separators(
        &mut self,
        metadata: &Metadata,
        vocab: &Vocab,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        self.between.extend(self.eos.filter(|_| self.add_eos));
        let has_own = matches!(self.frame, Frame::BosEos) && metadata.bool(ADD_SEP)? == Some(true);
        if has_own {
            let separator = read_id(metadata, vocab, SEPARATOR, warnings)?;
            self.between.extend(separator.or(self.eos));
        }
        Ok(())
    }

    pub(crate) fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    fn find_fim(
        &mut self,
        metadata: &Metadata,
        vocab: &mut Vocab,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        for FimRole { keys, texts, ends } in FIM_ROLES {
            let mut id = None;
            for key in *keys {
                id = read_id(metadata, vocab, key, warnings)?.or(id);
            }
            let by_text = || texts.iter().find_map(|text| vocab.id(text.as_bytes()));
            let found = id.is_none().then(by_text).flatten();
            if let Some(found) = found {
                vocab.set_kind(found, TokenKind::Control);
            }
            self.eog.extend(id.or(found).filter(|_| *ends));
        }
        Ok(())
    }

    fn find_ends(&mut self, vocab: &mut Vocab) {
        for id in END_TEXTS
            .iter()
            .filter_map(|text| vocab.id(text.as_bytes()))
            .collect::<Vec<_>>()
        {
            vocab.set_kind(id, TokenKind::Control);
            self.eog.push(id);
        }
        for text in VISIBLE_TEXTS {
            set_kind(vocab, text, TokenKind::UserDefined);
        }
        self.eog
            .extend([self.eos, self.eot, self.eom].into_iter().flatten());
        self.exempt_ends_of_parts(vocab);
        self.eog.sort_unstable();
        self.eog.dedup();
    }

    /// Removes tokens that end a part of an answer in some families, and answers in others.
    fn exempt_ends_of_parts(&mut self, vocab: &mut Vocab) {
        let has = |text: &str| self.ends_at(vocab, text);
        let is_gpt_oss = has("<|return|>") && has("<|call|>");
        let is_solar_open = has("<|calls|>") && has("<|flush|>");
        let is_plain_s = has("<|tool_response>") || has("<|plamo:eos|>");
        if is_gpt_oss || is_solar_open {
            self.exempt(vocab, "<|end|>", TokenKind::UserDefined);
        }
        if is_plain_s {
            self.exempt(vocab, "</s>", TokenKind::Normal);
        }
    }

    /// Whether the token with this text ends a generation.
    fn ends_at(&self, vocab: &Vocab, text: &str) -> bool {
        vocab
            .id(text.as_bytes())
            .is_some_and(|id| self.eog.contains(&id))
    }

    /// Removes a token from the end-of-generation tokens, for families that use it otherwise.
    fn exempt(&mut self, vocab: &mut Vocab, text: &str, kind: TokenKind) {
        if self.ends_at(vocab, text) {
            let exempted = vocab.id(text.as_bytes());
            self.eog.retain(|&id| Some(id) != exempted);
            set_kind(vocab, text, kind);
        }
    }
}

fn set_kind(vocab: &mut Vocab, text: &str, kind: TokenKind) {
    if let Some(id) = vocab.id(text.as_bytes()) {
        vocab.set_kind(id, kind);
    }
}

/// Reads a token id. An id outside the vocabulary is ignored with a warning.
fn read_id(
    metadata: &Metadata,
    vocab: &Vocab,
    key: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<u32>, Error> {
    let Some(id) = metadata.i64(key)? else {
        return Ok(None);
    };
    let valid = u32::try_from(id).ok().filter(|&id| vocab.holds(id));
    // Files write -1 for "none".
    if valid.is_none() && id != -1 && id != i64::from(u32::MAX) {
        warnings.push(format!(
            "{key} is {id}, but there are {} tokens; it is ignored",
            vocab.len()
        ));
    }
    Ok(valid)
}

/// Finds the tokens with `lstrip` or `rstrip`. GGUF has no key for them; llama.cpp goes by model
/// names.
pub(crate) fn strip(metadata: &Metadata, vocab: &Vocab) -> Strip {
    let id = |text: &str| vocab.id(text.as_bytes());
    let named = |key: &str, names: &[&str]| {
        let value = metadata.shown(key).to_lowercase();
        names.iter().any(|name| value.contains(name))
    };
    let mut strip = Strip::default();
    if named(
        "tokenizer.ggml.pre",
        &["jina-v2-de", "jina-v2-es", "jina-v2-code"],
    ) {
        strip.left.extend(id("<mask>"));
    } else if named("general.name", &["phi-3", "phi3"]) {
        let special = vocab
            .texts()
            .map(|(id, _)| id)
            .filter(|&id| vocab.kind(id).is_special());
        let exempt = ["<unk>", "<s>", "<|endoftext|>"].map(id);
        strip.right.extend(
            special
                .chain(id("</s>"))
                .filter(|&id| !exempt.contains(&Some(id))),
        );
        strip.right.sort_unstable();
    } else if named("general.name", &["modern-bert"]) {
        strip.left.extend(id("[MASK]"));
    }
    strip
}

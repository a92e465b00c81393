//! The tokenizer: a vocabulary, an algorithm, and the special tokens.
//!
//! Knows no file and no model. The one idea: the metadata decides everything when the tokenizer is
//! built; encoding and decoding are pure functions.

use crate::bpe::Bpe;
use crate::partition::{Context, Fragment, Partition, Strip};
use crate::pre::{Alphabet, Scheme, Whole};
use crate::roles::{self, Frame, Roles};
use crate::spm::Spm;
use crate::unigram::Unigram;
use crate::vocab::{SPACE_MARK, TokenKind, Vocab, spelled_byte};
use crate::wpm::Wpm;
use crate::{Error, bytes};
use atta_formats::Metadata;
use std::borrow::Cow;

const MODEL: &str = "tokenizer.ggml.model";

/// Whether the texts of control tokens are parsed as those tokens (llama.cpp's `parse_special`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// Control tokens are treated as plain text: for text from untrusted sources.
    Plain,
    /// Control tokens are recognised: for prompts and rendered chat templates.
    Parse,
}

/// Converts text to token ids and back.
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    roles: Roles,
    /// Matches the tokens that are always recognised.
    always: Partition,
    /// Matches the tokens that are recognised if special tokens are parsed.
    parsed: Partition,
    strip: Strip,
    warnings: Vec<String>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("n_vocab", &self.n_vocab())
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

enum Algorithm {
    Spm(Spm),
    Unigram(Unigram),
    Bpe(Bpe),
    Wpm(Wpm),
}

impl Algorithm {
    fn warning(&self) -> Option<String> {
        let n_unusable = match self {
            Self::Spm(_) | Self::Unigram(_) | Self::Wpm(_) => 0,
            Self::Bpe(bpe) => bpe.merges.n_unusable,
        };
        (n_unusable > 0)
            .then(|| format!("{n_unusable} merges name texts that are no tokens; they are ignored"))
    }
}

impl Tokenizer {
    /// Builds a tokenizer from the metadata of a GGUF file. Token texts stay there.
    ///
    /// # Errors
    /// If a key is missing or of the wrong type, if arrays are shorter than the vocabulary, or if
    /// the vocabulary is neither SentencePiece (`llama`, and `t5` for unigram models) nor byte pair
    /// encoding (`gpt2`, `gemma4`) nor WordPiece (`bert`).
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let model = vocab_model(metadata, &mut warnings)?;
        let mut vocab = Vocab::new(metadata)?;
        let mut roles = defaults(&model).find(metadata, &mut vocab, &mut warnings)?;
        // Files of gemma 4 have a wrong `add_bos_token`.
        roles.add_bos |=
            matches!(model, VocabModel::Bpe(scheme) if scheme.whole == Whole::Newlines);
        let algorithm = match model {
            VocabModel::Bpe(scheme) => Algorithm::Bpe(Bpe::new(metadata, &vocab, scheme)?),
            VocabModel::Wpm => Algorithm::Wpm(Wpm::new(metadata, roles.unknown)?),
            VocabModel::Unigram => {
                vocab = vocab.with_scores(metadata)?;
                Algorithm::Unigram(Unigram::new(metadata, &vocab, roles.unknown)?)
            }
            VocabModel::Spm => {
                vocab = vocab.with_scores(metadata)?;
                let add_space_prefix = metadata
                    .bool("tokenizer.ggml.add_space_prefix")?
                    .unwrap_or(true);
                Algorithm::Spm(Spm::new(&vocab, roles.unknown, add_space_prefix))
            }
        };
        warnings.extend(algorithm.warning());
        let always = Partition::new(&vocab, |kind| kind == TokenKind::UserDefined);
        let parsed = Partition::new(&vocab, TokenKind::is_special);
        let strip = roles::strip(metadata, &vocab);
        Ok(Self {
            vocab,
            algorithm,
            roles,
            always,
            parsed,
            strip,
            warnings,
        })
    }

    /// Problems of the vocabulary to show to the user, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tokens of a text, without BOS and EOS. The text may be any bytes. SentencePiece encodes
    /// invalid UTF-8 as byte tokens; byte pair encoding replaces each invalid byte by U+FFFD;
    /// WordPiece drops it. llama.cpp does the same.
    pub fn encode(&self, text: impl AsRef<[u8]>, special: Special) -> Vec<u32> {
        self.encode_parts(
            text.as_ref(),
            self.partition(special),
            SpacePrefix::Everywhere,
        )
    }

    /// The tokens of a text that continues another one, without the space that SentencePiece adds
    /// in front of a text. If special tokens are parsed, the space that it adds after each of them
    /// stays.
    pub fn encode_after(&self, text: &str, special: Special) -> Vec<u32> {
        let prefix = if special == Special::Parse {
            SpacePrefix::AfterSpecial
        } else {
            SpacePrefix::Never
        };
        self.encode_parts(text.as_bytes(), self.partition(special), prefix)
    }

    fn partition(&self, special: Special) -> &Partition {
        match special {
            Special::Plain => &self.always,
            Special::Parse => &self.parsed,
        }
    }

    fn encode_parts(&self, text: &[u8], partition: &Partition, prefix: SpacePrefix) -> Vec<u32> {
        let mut begins = prefix == SpacePrefix::Everywhere;
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        for fragment in partition.split(
            &Context {
                vocab: &self.vocab,
                strip: &self.strip,
            },
            text,
        ) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(ref range) => match &self.algorithm {
                    Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, &text[range.clone()], &mut ids),
                    Algorithm::Spm(spm) => {
                        spm.encode(&self.vocab, &text[range.clone()], begins, &mut ids)
                    }
                    Algorithm::Unigram(unigram) => {
                        unigram.encode(&self.vocab, &text[range.clone()], begins, &mut ids)
                    }
                    Algorithm::Wpm(wpm) => wpm.encode(&self.vocab, &text[range.clone()], &mut ids),
                },
            }
            begins = prefix != SpacePrefix::Never && matches!(fragment, Fragment::Token(_));
        }
        ids
    }

    /// The text of tokens as bytes. Control tokens are left out, and the space that SentencePiece
    /// adds in front of a text is removed. Not always UTF-8: a token may be a part of a character.
    ///
    /// WordPiece is not reversible: there is one space between words, and none before `.`, `,`, `!`
    /// and `?`.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let (first, rest) = ids.split_at(ids.len().min(1));
        let first = first.iter().flat_map(|&id| {
            let bytes = self.visible_bytes(id, TextPosition::First);
            bytes.into_owned()
        });
        first.chain(self.decode_after(rest)).collect()
    }

    /// The text of tokens that continue another text, as bytes: a space in front of it stays.
    pub fn decode_after(&self, ids: &[u32]) -> Vec<u8> {
        let mut text = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            text.extend_from_slice(&self.visible_bytes(id, TextPosition::Later));
        }
        text
    }

    /// The bytes of a token of any type; control tokens give their own text. Empty for unused
    /// tokens and for ids from `n_vocab` on.
    pub fn token_bytes(&self, id: u32) -> Cow<'_, [u8]> {
        let text = self.vocab.text(id);
        match self.vocab.kind(id) {
            TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => Cow::Borrowed(text),
            TokenKind::Normal => self.normal_bytes(text),
            TokenKind::Byte => Cow::Owned(spelled_byte(text).into_iter().collect()),
            TokenKind::Unused | TokenKind::Undefined => Cow::Borrowed(&[]),
        }
    }

    fn normal_bytes<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        match &self.algorithm {
            Algorithm::Bpe(bpe) if bpe.alphabet() == Alphabet::Bytes => {
                Cow::Owned(from_alphabet(text))
            }
            _ => unmark_spaces(text),
        }
    }

    /// Whether decoding the tokens of a text gives the text back, as a rule. False for WordPiece
    /// and unigram models, which normalize a text.
    pub fn is_lossless(&self) -> bool {
        !matches!(self.algorithm, Algorithm::Wpm(_) | Algorithm::Unigram(_))
    }

    /// The bytes that a token adds to the decoded text.
    pub(crate) fn visible_bytes(&self, id: u32, position: TextPosition) -> Cow<'_, [u8]> {
        if self.vocab.kind(id).is_hidden() {
            return Cow::Borrowed(&[]);
        }
        let bytes = self.token_bytes(id);
        let is_extra = match &self.algorithm {
            Algorithm::Spm(spm) => spm.add_space_prefix && position == TextPosition::First,
            Algorithm::Unigram(unigram) => {
                unigram.add_space_prefix && position == TextPosition::First
            }
            Algorithm::Wpm(_) => {
                position == TextPosition::First || matches!(&*bytes, b" ." | b" ," | b" !" | b" ?")
            }
            Algorithm::Bpe(_) => false,
        };
        match bytes.strip_prefix(b" ") {
            Some(rest) if is_extra => Cow::Owned(rest.to_vec()),
            _ => bytes,
        }
    }

    /// The text of a token as the vocabulary spells it; empty for ids from `n_vocab` on.
    pub fn token_text(&self, id: u32) -> &[u8] {
        self.vocab.text(id)
    }

    /// The type of a token, corrected where its text shows that the file is wrong.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// The token with exactly this text, such as `<|im_end|>`.
    pub fn token_id(&self, text: impl AsRef<[u8]>) -> Option<u32> {
        self.vocab.id(text.as_ref())
    }

    /// The number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// BOS, begin of text; `[CLS]` of WordPiece.
    pub fn bos(&self) -> Option<u32> {
        self.roles.bos
    }

    /// EOS, end of text; `[SEP]` of WordPiece.
    pub fn eos(&self) -> Option<u32> {
        self.roles.eos
    }

    /// EOT, end of turn, if the metadata names it.
    pub fn eot(&self) -> Option<u32> {
        self.roles.eot
    }

    /// The token of text that no other token covers.
    pub fn unknown(&self) -> Option<u32> {
        self.roles.unknown
    }

    /// The padding token.
    pub fn padding(&self) -> Option<u32> {
        self.roles.padding
    }

    /// Whether a prompt begins with BOS, by the metadata or by llama.cpp's default for the
    /// vocabulary. False if there is no BOS.
    pub fn add_bos(&self) -> bool {
        self.roles.add_bos && self.roles.bos.is_some()
    }

    /// The tokens between two texts that a model compares, such as a query and a document.
    pub fn between_texts(&self) -> &[u32] {
        &self.roles.between
    }

    /// Whether a text ends with EOS, by the metadata or by llama.cpp's default for the vocabulary.
    /// False if there is no EOS.
    pub fn add_eos(&self) -> bool {
        self.roles.add_eos && self.roles.eos.is_some()
    }

    /// Whether this is an end-of-generation token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.roles.is_eog(id)
    }

    /// All end-of-generation tokens, in ascending order.
    pub fn eog(&self) -> &[u32] {
        &self.roles.eog
    }

    /// Heap memory of the tokenizer.
    pub fn heap_bytes(&self) -> usize {
        let algorithm = match &self.algorithm {
            Algorithm::Spm(spm) => spm.heap_bytes(),
            Algorithm::Unigram(unigram) => unigram.heap_bytes(),
            Algorithm::Bpe(bpe) => bpe.heap_bytes(),
            Algorithm::Wpm(_) => 0,
        };
        self.vocab.heap_bytes() + algorithm + self.always.heap_bytes() + self.parsed.heap_bytes()
    }
}

/// Where SentencePiece adds a space: in front of the text and after special tokens, after special
/// tokens only, or nowhere.
#[derive(Clone, Copy, PartialEq)]
enum SpacePrefix {
    Everywhere,
    AfterSpecial,
    Never,
}

/// Whether a token is the first one of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextPosition {
    First,
    Later,
}

/// The value of `tokenizer.ggml.model`, with the pre-tokenizer of byte pair encoding.
enum VocabModel {
    Spm,
    Unigram,
    Bpe(Scheme),
    Wpm,
}

fn vocab_model(metadata: &Metadata, warnings: &mut Vec<String>) -> Result<VocabModel, Error> {
    match metadata.str(MODEL)?.ok_or(Error::Missing { key: MODEL })? {
        "llama" => Ok(VocabModel::Spm),
        "t5" => Ok(VocabModel::Unigram),
        "bert" => Ok(VocabModel::Wpm),
        "gemma4" => Ok(VocabModel::Bpe(scheme_by_name("gemma4", warnings))),
        "gpt2" => Ok(VocabModel::Bpe(scheme_by_name(
            metadata.str("tokenizer.ggml.pre")?.unwrap_or_default(),
            warnings,
        ))),
        other => Err(Error::Model {
            got: other.to_owned(),
        }),
    }
}

/// A wrong pre-tokenizer degrades the output without an obvious sign, so the warning is loud.
fn scheme_by_name(name: &str, warnings: &mut Vec<String>) -> Scheme {
    let problem = match (name, Scheme::by_name(name)) {
        (_, Some(scheme)) => return scheme,
        ("", None) => "tokenizer.ggml.pre is missing".to_owned(),
        (name, None) => format!("the pre-tokenizer \"{name}\" (tokenizer.ggml.pre) is unknown"),
    };
    warnings.push(format!(
        "{problem}: the default one is used, and GENERATION QUALITY WILL BE DEGRADED; convert the \
         model anew"
    ));
    Scheme::DEFAULT
}

/// The special tokens that llama.cpp assumes if the metadata does not name them.
fn defaults(model: &VocabModel) -> Roles {
    match model {
        VocabModel::Spm => Roles {
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_bos: true,
            ..Roles::default()
        },
        VocabModel::Unigram => Roles {
            eos: Some(1),
            unknown: Some(2),
            padding: Some(0),
            add_eos: true,
            ..Roles::default()
        },
        VocabModel::Wpm => Roles {
            bos: Some(101),
            eos: Some(102),
            unknown: Some(100),
            padding: Some(0),
            add_bos: true,
            add_eos: true,
            frame: Frame::ClsSep,
            ..Roles::default()
        },
        VocabModel::Bpe(scheme) => Roles {
            bos: scheme.default_bos.then_some(11),
            eos: (scheme.alphabet == Alphabet::Bytes).then_some(11),
            add_bos: scheme.add_bos,
            ..Roles::default()
        },
    }
}

/// Decodes a text in the byte-level alphabet to bytes. Characters outside the alphabet are kept.
fn from_alphabet(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match bytes::from_char(c) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// Replaces each U+2581 by a space.
fn unmark_spaces(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = text
        .windows(SPACE_MARK.len())
        .position(|window| window == SPACE_MARK)
    else {
        return Cow::Borrowed(text);
    };
    let mut out = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some(&byte) = rest.first() {
        let (next, n) = if rest.starts_with(SPACE_MARK) {
            (b' ', SPACE_MARK.len())
        } else {
            (byte, 1)
        };
        out.push(next);
        rest = &rest[n..];
    }
    Cow::Owned(out)
}

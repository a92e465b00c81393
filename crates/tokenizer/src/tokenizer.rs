//! The tokenizer: a vocabulary, an algorithm, and the tokens with a role.
//!
//! Knows no file and no model. The one idea: everything is decided by the metadata when it is
//! built; encoding and decoding are then pure.

use crate::bpe::Bpe;
use crate::partition::{Context, Fragment, Partition, Strip};
use crate::pre::{Alphabet, Scheme, Whole};
use crate::roles::{self, Frame, Roles};
use crate::spm::Spm;
use crate::vocab::{SPACE_MARK, TokenKind, Vocab, spelled_byte};
use crate::wpm::Wpm;
use crate::{Error, bytes};
use atta_formats::Metadata;
use std::borrow::Cow;

const MODEL: &str = "tokenizer.ggml.model";

/// Whether control tokens written out in a text are those tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// They are text like any other: for text from a stranger.
    Plain,
    /// They are recognised: for prompts and chat templates.
    Parse,
}

/// Text to ids and back.
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    roles: Roles,
    /// Cuts out what is always a token.
    always: Partition,
    /// Cuts out what is a token when special tokens are parsed.
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

enum Model {
    Spm(Spm),
    Bpe(Bpe),
    Wpm(Wpm),
}

impl Model {
    fn warning(&self) -> Option<String> {
        let n_unusable = match self {
            Self::Spm(_) | Self::Wpm(_) => 0,
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
    /// the vocabulary is neither SentencePiece (`llama`) nor byte pair encoding (`gpt2`,
    /// `gemma4`) nor WordPiece (`bert`).
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let family = family(metadata, &mut warnings)?;
        let mut vocab = Vocab::new(metadata)?;
        let mut roles = defaults(&family).find(metadata, &mut vocab, &mut warnings)?;
        // Files of gemma 4 say otherwise and are wrong.
        roles.add_bos |= matches!(family, Family::Bpe(scheme) if scheme.whole == Whole::Newlines);
        let model = match family {
            Family::Bpe(scheme) => Model::Bpe(Bpe::new(metadata, &vocab, scheme)?),
            Family::Wpm => Model::Wpm(Wpm::new(metadata, roles.unknown)?),
            Family::Spm => {
                vocab = vocab.with_scores(metadata)?;
                let add_space_prefix = metadata
                    .bool("tokenizer.ggml.add_space_prefix")?
                    .unwrap_or(true);
                Model::Spm(Spm::new(&vocab, roles.unknown, add_space_prefix))
            }
        };
        warnings.extend(model.warning());
        let always = Partition::new(&vocab, |kind| kind == TokenKind::UserDefined);
        let parsed = Partition::new(&vocab, TokenKind::is_special);
        let strip = roles::strip(metadata, &vocab);
        Ok(Self {
            vocab,
            model,
            roles,
            always,
            parsed,
            strip,
            warnings,
        })
    }

    /// What is odd about the vocabulary, one sentence each; a user should see them.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tokens of a text, without BOS and EOS.
    ///
    /// The text may be any bytes. SentencePiece vocabularies encode invalid UTF-8 as it is, in byte
    /// tokens; byte pair encoding sees one U+FFFD for each such byte; WordPiece drops it.
    /// llama.cpp does the same.
    pub fn encode(&self, text: impl AsRef<[u8]>, special: Special) -> Vec<u32> {
        self.encode_parts(text.as_ref(), self.partition(special), Prefix::Everywhere)
    }

    /// The tokens of a text that goes on after another one: without the space that SentencePiece
    /// puts in front of a text. It puts one behind special tokens too, which stays if they are
    /// parsed; plain text has none.
    pub fn encode_after(&self, text: &str, special: Special) -> Vec<u32> {
        let prefix = if special == Special::Parse {
            Prefix::BehindSpecial
        } else {
            Prefix::Never
        };
        self.encode_parts(text.as_bytes(), self.partition(special), prefix)
    }

    fn partition(&self, special: Special) -> &Partition {
        match special {
            Special::Plain => &self.always,
            Special::Parse => &self.parsed,
        }
    }

    fn encode_parts(&self, text: &[u8], partition: &Partition, prefix: Prefix) -> Vec<u32> {
        let mut begins = prefix == Prefix::Everywhere;
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        for fragment in partition.cut(
            &Context {
                vocab: &self.vocab,
                strip: &self.strip,
            },
            text,
        ) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(ref range) => match &self.model {
                    Model::Bpe(bpe) => bpe.encode(&self.vocab, &text[range.clone()], &mut ids),
                    Model::Spm(spm) => {
                        spm.encode(&self.vocab, &text[range.clone()], begins, &mut ids)
                    }
                    Model::Wpm(wpm) => wpm.encode(&self.vocab, &text[range.clone()], &mut ids),
                },
            }
            begins = prefix != Prefix::Never && matches!(fragment, Fragment::Token(_));
        }
        ids
    }

    /// The bytes of the text that tokens stand for: control tokens are invisible, and the space
    /// that SentencePiece puts in front of a text is taken away again. Not always UTF-8: a
    /// token may be half a character.
    ///
    /// WordPiece does not keep what a text looked like. There are spaces between its words, but
    /// none before `.`, `,`, `!` and `?`.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut text = Vec::with_capacity(ids.len() * 4);
        for (i, &id) in ids.iter().enumerate() {
            let at = if i == 0 { Place::First } else { Place::Later };
            text.extend_from_slice(&self.visible_bytes(id, at));
        }
        text
    }

    /// The bytes that a token stands for, whatever its kind; control tokens stand for their own
    /// text. Empty for unused tokens and for ids from `n_vocab` on.
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
        match &self.model {
            Model::Bpe(bpe) if bpe.alphabet() == Alphabet::Bytes => Cow::Owned(from_alphabet(text)),
            _ => unmark_spaces(text),
        }
    }

    /// Whether the tokens of a text stand for its bytes, as a rule. Not those of WordPiece.
    pub fn is_lossless(&self) -> bool {
        !matches!(self.model, Model::Wpm(_))
    }

    /// What a token adds to the text.
    pub(crate) fn visible_bytes(&self, id: u32, place: Place) -> Cow<'_, [u8]> {
        if self.vocab.kind(id).is_hidden() {
            return Cow::Borrowed(&[]);
        }
        let bytes = self.token_bytes(id);
        let is_extra = match &self.model {
            Model::Spm(spm) => spm.add_space_prefix && place == Place::First,
            Model::Wpm(_) => {
                place == Place::First || matches!(&*bytes, b" ." | b" ," | b" !" | b" ?")
            }
            Model::Bpe(_) => false,
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

    /// The kind of a token, corrected where its text shows that the file is wrong about it.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// The token whose text in the vocabulary is exactly this, as in `<|im_end|>`.
    pub fn token_id(&self, text: impl AsRef<[u8]>) -> Option<u32> {
        self.vocab.id(text.as_ref())
    }

    /// The number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// Begin of text; `[CLS]` of WordPiece.
    pub fn bos(&self) -> Option<u32> {
        self.roles.bos
    }

    /// End of text; `[SEP]` of WordPiece.
    pub fn eos(&self) -> Option<u32> {
        self.roles.eos
    }

    /// End of turn, if the metadata name it.
    pub fn eot(&self) -> Option<u32> {
        self.roles.eot
    }

    /// What stands for text without tokens.
    pub fn unknown(&self) -> Option<u32> {
        self.roles.unknown
    }

    /// Padding.
    pub fn padding(&self) -> Option<u32> {
        self.roles.padding
    }

    /// Whether a prompt begins with BOS: what the metadata say, else what is usual for the
    /// vocabulary. False if there is no BOS.
    pub fn add_bos(&self) -> bool {
        self.roles.add_bos && self.roles.bos.is_some()
    }

    /// Whether a text to be evaluated ends with EOS.
    pub fn add_eos(&self) -> bool {
        self.roles.add_eos && self.roles.eos.is_some()
    }

    /// Whether generation ends at this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.roles.is_eog(id)
    }

    /// All tokens at which generation ends, in ascending order.
    pub fn eog(&self) -> &[u32] {
        &self.roles.eog
    }

    /// Bytes of heap that the tokenizer holds on to.
    pub fn heap_bytes(&self) -> usize {
        let model = match &self.model {
            Model::Spm(spm) => spm.heap_bytes(),
            Model::Bpe(bpe) => bpe.heap_bytes(),
            Model::Wpm(_) => 0,
        };
        self.vocab.heap_bytes() + model + self.always.heap_bytes() + self.parsed.heap_bytes()
    }
}

/// Where SentencePiece puts a space: in front of a text, and behind special tokens.
#[derive(Clone, Copy, PartialEq)]
enum Prefix {
    Everywhere,
    BehindSpecial,
    Never,
}

/// Where a token stands in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    First,
    Later,
}

/// The kinds of vocabularies.
enum Family {
    Spm,
    /// With the pre-tokenizer and its habits.
    Bpe(Scheme),
    Wpm,
}

fn family(metadata: &Metadata, warnings: &mut Vec<String>) -> Result<Family, Error> {
    match metadata.str(MODEL)?.ok_or(Error::Missing { key: MODEL })? {
        "llama" => Ok(Family::Spm),
        "bert" => Ok(Family::Wpm),
        "gemma4" => Ok(Family::Bpe(scheme_by_name("gemma4", warnings))),
        "gpt2" => Ok(Family::Bpe(scheme_by_name(
            metadata.str("tokenizer.ggml.pre")?.unwrap_or_default(),
            warnings,
        ))),
        other => Err(Error::Model {
            got: other.to_owned(),
        }),
    }
}

/// A wrong pre-tokenizer gives text that is subtly off, so it is worth a loud warning.
fn scheme_by_name(name: &str, warnings: &mut Vec<String>) -> Scheme {
    let problem = match (name, Scheme::by_name(name)) {
        (_, Some(scheme)) => return scheme,
        ("", None) => "tokenizer.ggml.pre is missing".to_owned(),
        (name, None) => format!("the pre-tokenizer \"{name}\" (tokenizer.ggml.pre) is unknown"),
    };
    warnings.push(format!(
        "{problem}: the default one is used, and GENERATION QUALITY WILL BE DEGRADED; convert the model anew"
    ));
    Scheme::DEFAULT
}

/// What llama.cpp assumes where the metadata say nothing.
fn defaults(family: &Family) -> Roles {
    match family {
        Family::Spm => Roles {
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_bos: true,
            ..Roles::default()
        },
        Family::Wpm => Roles {
            bos: Some(101),
            eos: Some(102),
            unknown: Some(100),
            padding: Some(0),
            add_bos: true,
            add_eos: true,
            frame: Frame::ClsSep,
            ..Roles::default()
        },
        Family::Bpe(scheme) => Roles {
            bos: scheme.default_bos.then_some(11),
            eos: (scheme.alphabet == Alphabet::Bytes).then_some(11),
            add_bos: scheme.add_bos,
            ..Roles::default()
        },
    }
}

/// The bytes of a text in the alphabet of byte-level vocabularies; other characters stand for
/// themselves.
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

/// The text with a space for each U+2581.
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

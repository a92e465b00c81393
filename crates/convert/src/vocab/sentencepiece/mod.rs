//! `tokenizer.model` of SentencePiece: pieces with scores (`llama` in GGUF).
//!
//! Knows no other file except the added tokens. The one idea: a model is a list of pieces and two
//! short lists of settings; few settings matter; the user is warned about settings that GGUF cannot
//! express.
//!
//! Source: `sentencepiece_model.proto` of google/sentencepiece, for field numbers and defaults.

mod wire;

use super::added_tokens::{self, SpaceSpelling};
use super::files::VocabFile;
use super::special_tokens::Ids;
use super::table::{TokenEntry, TokenTable, TokenType};
use super::{GgufVocab, VocabSource};
use crate::Error;
use wire::{FieldValue, WireFields};

/// The first byte of a model: the key of its first piece.
pub(super) const FIRST_BYTE: u8 = 0x0A;

const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

/// The settings of `TrainerSpec` and `NormalizerSpec` that matter.
struct ModelSettings<'a> {
    model_type: u64,
    /// Ids of special tokens; -1 for none.
    ids: [(&'static str, i64); 4],
    normalizer: &'a [u8],
    has_charsmap: bool,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
    whitespace_is_suffix: bool,
}

impl Default for ModelSettings<'_> {
    fn default() -> Self {
        Self {
            model_type: UNIGRAM,
            ids: [("unk", 0), ("bos", 1), ("eos", 2), ("pad", -1)],
            normalizer: b"",
            has_charsmap: false,
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            whitespace_is_suffix: false,
        }
    }
}

/// Pieces of a model, up to its first damaged field.
pub(super) fn n_pieces(bytes: &[u8]) -> u64 {
    let fields = WireFields::of(bytes).map_while(Result::ok);
    let pieces = fields.filter(|field| matches!(field, (1, FieldValue::Bytes(_))));
    pieces.count() as u64
}

/// Reads the vocabulary of a model, with the added tokens of other files.
pub(super) fn vocabulary(
    file: &VocabFile<'_>,
    source: &VocabSource<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    let cut = |at| file.wrong(format!("no field of a SentencePiece model at byte {at}"));
    let mut settings = ModelSettings::default();
    let mut id = 0;
    let mut beyond = 0;
    for field in WireFields::of(file.bytes) {
        match field.map_err(cut)? {
            (1, FieldValue::Bytes(piece)) => {
                let token =
                    token(piece).ok_or_else(|| file.wrong(format!("piece {id} is damaged")))?;
                beyond += u64::from(!table.replace(id, token));
                id += 1;
            }
            (2, FieldValue::Bytes(spec)) => settings
                .read_trainer(spec)
                .ok_or_else(|| file.wrong("trainer_spec is damaged"))?,
            (3, FieldValue::Bytes(spec)) => {
                settings
                    .read_normalizer(spec)
                    .ok_or_else(|| file.wrong("normalizer_spec is damaged"))?;
            }
            _ => {}
        }
    }
    settings.refuse_unsupported(file)?;
    if id == 0 {
        return Err(file.wrong("a SentencePiece model without pieces"));
    }
    table.has_scores = true;
    let mut found = GgufVocab::new(table, "llama", "default");
    if beyond > 0 {
        found.warnings.push(format!(
            "{beyond} pieces are left out: the embedding has only {} rows",
            found.table.len()
        ));
    }
    settings.apply(&mut found);
    added_tokens::put(&mut found, source.added()?, SpaceSpelling::Marked);
    Ok(found)
}

/// Parses a `SentencePiece` message: text, score and type.
fn token(piece: &[u8]) -> Option<TokenEntry> {
    let mut token = TokenEntry::new("", TokenType::Normal);
    for field in WireFields::of(piece) {
        match field.ok()? {
            (1, FieldValue::Bytes(text)) => token.text = text.to_vec(),
            (2, FieldValue::Fixed32(bits)) => token.score = f32::from_bits(bits),
            (3, FieldValue::Varint(kind)) => token.kind = kind_of(kind)?,
            _ => {}
        }
    }
    if token.kind == TokenType::UserDefined {
        // User-defined tokens are matched in plain text, which has plain spaces.
        token.text = String::from_utf8_lossy(&token.text)
            .replace('▁', " ")
            .into_bytes();
    }
    Some(token)
}

/// The token type; GGUF has the same numbers.
fn kind_of(number: u64) -> Option<TokenType> {
    use TokenType::{Byte, Control, Normal, Unknown, Unused, UserDefined};
    [Normal, Unknown, Control, UserDefined, Unused, Byte]
        .into_iter()
        .find(|&kind| kind as u64 == number)
}

impl<'a> ModelSettings<'a> {
    fn read_trainer(&mut self, spec: &[u8]) -> Option<()> {
        for field in WireFields::of(spec) {
            match field.ok()? {
                (3, FieldValue::Varint(kind)) => self.model_type = kind,
                (24, FieldValue::Varint(flag)) => self.whitespace_is_suffix = flag != 0,
                (number @ 40..=43, FieldValue::Varint(id)) => {
                    self.ids[number as usize - 40].1 = i64::from(id as i32)
                }
                _ => {}
            }
        }
        Some(())
    }

    fn read_normalizer(&mut self, spec: &'a [u8]) -> Option<()> {
        for field in WireFields::of(spec) {
            match field.ok()? {
                (1, FieldValue::Bytes(name)) => self.normalizer = name,
                (2, FieldValue::Bytes(charsmap)) => self.has_charsmap = !charsmap.is_empty(),
                (3, FieldValue::Varint(flag)) => self.add_dummy_prefix = flag != 0,
                (4, FieldValue::Varint(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, FieldValue::Varint(flag)) => self.escape_whitespaces = flag != 0,
                _ => {}
            }
        }
        Some(())
    }

    fn refuse_unsupported(&self, file: &VocabFile<'_>) -> Result<(), Error> {
        match self.model_type {
            BPE if !self.escape_whitespaces => {
                Err(file.wrong("escape_whitespaces is false, which GGUF cannot express"))
            }
            BPE if self.whitespace_is_suffix => {
                Err(file.wrong("treat_whitespace_as_suffix is true, which GGUF cannot express"))
            }
            BPE => Ok(()),
            UNIGRAM => Err(file.wrong(
                "a SentencePiece model of type unigram (UGM) is not supported: expected BPE",
            )),
            other => Err(file.wrong(format!(
                "a SentencePiece model of type {other} is not supported: expected BPE (2)"
            ))),
        }
    }

    fn apply(&self, found: &mut GgufVocab) {
        found.add_space_prefix = Some(self.add_dummy_prefix);
        found.remove_extra_whitespaces = Some(self.remove_extra_whitespaces);
        let held = self
            .ids
            .iter()
            .filter_map(|&(name, id)| Some((name, u32::try_from(id).ok()?)));
        found.ids = held
            .filter(|&(_, id)| found.table.holds(id.into()))
            .collect::<Ids>();
        if self.has_charsmap {
            let name = String::from_utf8_lossy(self.normalizer);
            found
                .warnings
                .push(format!("the normalizer {name} will not be applied"));
        }
        if self.remove_extra_whitespaces {
            found.warnings.push(
                "repeated spaces will not be removed, although remove_extra_whitespaces is set"
                    .to_owned(),
            );
        }
    }
}

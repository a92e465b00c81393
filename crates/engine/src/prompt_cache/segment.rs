//! Segments: the state of consecutive positions of one text as bytes, with its tokens, the key of
//! the text in front, and the name of the model.
//!
//! ```text
//! magic "ATTASEGM"
//! u32 LE: version, first position, n tokens, bytes of the label | u64 LE: bytes of the state
//! key of the text in front [32] | tokens, u32 LE [n] | label, UTF-8 | state | checksum [32]
//! ```
//! The key identifies the text in front of the state (`key.rs`); the checksum is BLAKE3 of all
//! bytes before it; the label is the name of the model, for display. The bytes may be hostile: key,
//! length and checksum are verified, and the model crate checks the header of the state itself.

use std::{
    io::{self, Write},
    ops::Range,
};

use atta_model::StateCoverage;

use super::{
    includes,
    key::{KEY_BYTES, Key},
};

/// The first bytes of every segment.
pub(crate) const MAGIC: &[u8; 8] = b"ATTASEGM";

/// Version of the layout above, also part of every key.
pub(crate) const VERSION: u32 = 1;

/// Bytes in front of the tokens.
const HEAD_BYTES: usize = 32 + KEY_BYTES;

/// Maximum bytes of a label; a longer one is cut.
const MAX_LABEL_BYTES: usize = 200;

/// PicoLM's cache files begin with this number, little-endian.
const PICOLM_MAGIC: u32 = 0x4B56_4350;

/// Why a cache file or a saved session cannot be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheFileError {
    /// A cache file of PicoLM.
    #[error(
        "it is a cache file of PicoLM, which does not say of which tokens, and will not be overwritten"
    )]
    PicoLm,
    /// A file of another kind.
    #[error("it is no saved state of a prompt, and will not be overwritten")]
    NotOurs,
    /// Another version of the format.
    #[error("it is a saved state of format version {0}, expected {VERSION}")]
    Version(u32),
    /// Shorter or longer than its header says.
    #[error("its length does not match its header")]
    Length,
    /// Changed bytes.
    #[error("its checksum does not match")]
    Checksum,
    /// The state of another model, or of the same one with other settings.
    #[error(
        "it is the state of another model, or of another version, instruction set, kind of context or type of keys and values"
    )]
    Foreign,
    /// Another text or position than the file name says.
    #[error("it is the state of another text than its name says")]
    Misplaced,
    /// A state that does not fit its tokens.
    #[error("its state does not fit this session")]
    State,
}

impl CacheFileError {
    /// Whether the file is of another kind, so that it must not be overwritten.
    pub(crate) fn is_foreign_file(self) -> bool {
        matches!(self, Self::PicoLm | Self::NotOurs)
    }
}

/// A parsed segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// Position of its first token.
    pub(crate) start: usize,
    /// Key of the text in front of it.
    pub(crate) parent: Key,
    /// Ids, u32 LE.
    tokens: &'a [u8],
    label: &'a [u8],
    pub(crate) state: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a segment without looking at its state.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, CacheFileError> {
        check_magic(bytes)?;
        let head = bytes.get(..HEAD_BYTES).ok_or(CacheFileError::Length)?;
        let field =
            |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        if field(8) != VERSION {
            return Err(CacheFileError::Version(field(8)));
        }
        let state_bytes = u64::from_le_bytes(head[24..32].try_into().expect("eight bytes"));
        let parts = [
            4 * u64::from(field(16)),
            field(20).into(),
            state_bytes,
            KEY_BYTES as u64,
        ];
        let mut rest = &bytes[HEAD_BYTES..];
        let mut part = |n_bytes: u64| {
            let (part, after) = usize::try_from(n_bytes)
                .ok()
                .and_then(|n| rest.split_at_checked(n))
                .ok_or(CacheFileError::Length)?;
            rest = after;
            Ok(part)
        };
        let [tokens, label, state, _] = [
            part(parts[0])?,
            part(parts[1])?,
            part(parts[2])?,
            part(parts[3])?,
        ];
        let parent = Key(head[32..].try_into().expect("the rest of the head"));
        match rest {
            [] => Ok(Self {
                start: field(12) as usize,
                parent,
                tokens,
                label,
                state,
                bytes,
            }),
            _ => Err(CacheFileError::Length),
        }
    }

    /// Verifies the checksum.
    pub(crate) fn verify(&self) -> Result<(), CacheFileError> {
        let (content, checksum) = self.bytes.split_at(self.bytes.len() - KEY_BYTES);
        if blake3::hash(content) == *checksum {
            Ok(())
        } else {
            Err(CacheFileError::Checksum)
        }
    }

    pub(crate) fn n_tokens(&self) -> usize {
        self.tokens.len() / 4
    }

    /// Its token ids.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.tokens
            .chunks_exact(4)
            .map(|id| u32::from_le_bytes(id.try_into().expect("four bytes")))
    }

    /// Length of the common prefix of its tokens and `ids`.
    pub(crate) fn n_shared(&self, ids: &[u32]) -> usize {
        self.tokens().zip(ids).take_while(|(a, b)| a == *b).count()
    }

    /// The positions of its tokens.
    pub(crate) fn positions(&self) -> Range<usize> {
        self.start..self.start + self.n_tokens()
    }

    /// Name of the model.
    pub(crate) fn label(&self) -> String {
        String::from_utf8_lossy(self.label).into_owned()
    }
}

/// Distinguishes files of other kinds from damaged segments. A file that was cut within the magic
/// counts as a segment.
fn check_magic(bytes: &[u8]) -> Result<(), CacheFileError> {
    let n = bytes.len().min(MAGIC.len());
    match bytes {
        _ if bytes[..n] == MAGIC[..n] => Ok(()),
        _ if bytes.starts_with(&PICOLM_MAGIC.to_le_bytes()) => Err(CacheFileError::PicoLm),
        _ => Err(CacheFileError::NotOurs),
    }
}

/// Writes a segment.
pub(crate) struct SegmentWriter<'a> {
    pub(crate) start: usize,
    pub(crate) parent: Key,
    pub(crate) tokens: &'a [u32],
    pub(crate) label: &'a str,
    pub(crate) state_bytes: u64,
    /// `None` for an executor with states of its own.
    pub(crate) coverage: Option<StateCoverage>,
}

impl SegmentWriter<'_> {
    /// Whether a saved segment makes saving this one needless: it has the same key and place,
    /// begins with the same tokens, and restores all that this one restores of them. States are not
    /// compared otherwise: exports of one text have different checkpoints.
    pub(crate) fn is_in(&self, saved: &Segment<'_>) -> bool {
        (saved.parent, saved.start) == (self.parent, self.start)
            && saved.n_shared(self.tokens) == self.tokens.len()
            && includes(
                StateCoverage::parse(saved.state).as_ref(),
                self.coverage.as_ref(),
            )
    }

    /// Size of the segment in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        (HEAD_BYTES + 4 * self.tokens.len() + self.label().len() + KEY_BYTES) as u64
            + self.state_bytes
    }

    /// Writes the segment to `out`; `state` writes the state.
    pub(crate) fn write(
        &self,
        out: &mut dyn Write,
        state: impl FnOnce(&mut dyn Write) -> Result<(), atta_model::Error>,
    ) -> Result<(), atta_model::Error> {
        // Buffered, since BLAKE3 is several times as fast on large inputs as on small ones.
        let mut buffered = io::BufWriter::with_capacity(
            1 << 17,
            Hashing {
                hasher: blake3::Hasher::new(),
                out,
            },
        );
        buffered
            .write_all(&self.head())
            .map_err(atta_model::Error::Export)?;
        state(&mut buffered)?;
        buffered.flush().map_err(atta_model::Error::Export)?;
        let Hashing { hasher, out } = buffered.get_mut();
        out.write_all(hasher.finalize().as_bytes())
            .map_err(atta_model::Error::Export)
    }

    /// The bytes in front of the state.
    fn head(&self) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        for field in [
            VERSION,
            self.start as u32,
            self.tokens.len() as u32,
            self.label().len() as u32,
        ] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        head.extend_from_slice(&self.state_bytes.to_le_bytes());
        head.extend_from_slice(&self.parent.0);
        self.tokens
            .iter()
            .for_each(|id| head.extend_from_slice(&id.to_le_bytes()));
        head.extend_from_slice(self.label().as_bytes());
        head
    }

    fn label(&self) -> &str {
        &self.label[..self.label.floor_char_boundary(MAX_LABEL_BYTES)]
    }
}

/// Hashes the bytes that it writes.
struct Hashing<'a> {
    hasher: blake3::Hasher,
    out: &'a mut dyn Write,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(label: &str) -> Vec<u8> {
        let segment = SegmentWriter {
            start: 7,
            parent: Key([3; 32]),
            tokens: &[5, 6, 70_000],
            label,
            state_bytes: 4,
            coverage: None,
        };
        let mut bytes = Vec::new();
        segment
            .write(&mut bytes, |out| {
                out.write_all(b"abcd").map_err(atta_model::Error::Export)
            })
            .unwrap();
        assert_eq!(bytes.len() as u64, segment.file_bytes());
        bytes
    }

    fn error(bytes: &[u8]) -> Option<CacheFileError> {
        Segment::read(bytes)
            .and_then(|segment| segment.verify())
            .err()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = written("a model");
        let segment = Segment::read(&bytes).unwrap();
        segment.verify().unwrap();
        assert_eq!(
            (segment.start, segment.parent, segment.state),
            (7, Key([3; 32]), &b"abcd"[..])
        );
        assert_eq!(segment.tokens().collect::<Vec<_>>(), [5, 6, 70_000]);
        assert_eq!(
            (segment.label(), segment.n_shared(&[5, 6, 7, 8])),
            ("a model".to_owned(), 2)
        );
    }

    #[test]
    fn a_label_is_cut_between_characters() {
        let bytes = written(&"ä".repeat(MAX_LABEL_BYTES));
        assert_eq!(
            Segment::read(&bytes).unwrap().label(),
            "ä".repeat(MAX_LABEL_BYTES / 2)
        );
    }

    #[test]
    fn no_flip_of_a_bit_and_no_cut_goes_unnoticed() {
        let bytes = written("m");
        for i in 0..bytes.len() {
            assert!(error(&bytes[..i]).is_some(), "cut at {i}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[i] ^= 1 << bit;
                assert!(error(&flipped).is_some(), "bit {bit} of byte {i}");
            }
        }
        assert_eq!(
            error(&[bytes.as_slice(), &[0]].concat()),
            Some(CacheFileError::Length)
        );
    }

    #[test]
    fn other_files_are_told_from_ours_and_by_name() {
        assert_eq!(
            error(b"PCVK\0\0\0\0 and so on"),
            Some(CacheFileError::PicoLm)
        );
        assert_eq!(error(b"GGUF"), Some(CacheFileError::NotOurs));
        assert_eq!(error(b"ATTA"), Some(CacheFileError::Length));
        assert!(
            CacheFileError::NotOurs.is_foreign_file() && !CacheFileError::Length.is_foreign_file()
        );
    }
}

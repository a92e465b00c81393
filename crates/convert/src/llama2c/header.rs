//! The header of a model file: version, sizes, whether the head is tied, and the group size.
//!
//! ```text
//! version 0:  0 i32 d_model, d_ff, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx;  28 data
//!             n_vocab is negative if the head is not tied
//! 1 and 2:    0 u32 "24ka";  4 i32 version;  8 the same 7 i32, n_vocab positive;  36 u8 tied;
//!             256 data
//! 2 only:     37 i32 group size
//! ```

/// "ak42" as a number.
const MAGIC: u32 = 0x616b_3432;
/// The offset of the data in versions 1 and 2.
const HEADER_BYTES: usize = 256;
/// The largest width, count or length that is accepted.
const MAX_SIZE: u64 = 1 << 24;
/// The most layers that are accepted.
const MAX_LAYERS: u64 = 4096;

/// The version of a file, which decides the type and order of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileVersion {
    /// Legacy: f32, no magic.
    V0,
    /// f32.
    V1,
    /// int8 in groups with one f32 scale each.
    V2 {
        /// Weights per group.
        group: u64,
    },
}

impl FileVersion {
    /// Weights per group, in version 2.
    pub(super) fn group(self) -> Option<u64> {
        match self {
            FileVersion::V0 | FileVersion::V1 => None,
            FileVersion::V2 { group } => Some(group),
        }
    }
}

impl std::fmt::Display for FileVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileVersion::V0 => write!(f, "version 0"),
            FileVersion::V1 => write!(f, "version 1"),
            FileVersion::V2 { group } => write!(f, "version 2 with groups of {group}"),
        }
    }
}

/// The sizes of a model (llama2.c's `Config`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) d_model: u64,
    pub(super) d_ff: u64,
    pub(super) n_layers: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) n_vocab: u64,
    pub(super) n_ctx: u64,
}

/// The header of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) version: FileVersion,
    pub(super) sizes: Sizes,
    /// Whether the head is tied to the embedding.
    pub(super) tied: bool,
}

impl Sizes {
    /// The width of a head.
    pub(super) fn d_head(&self) -> u64 {
        self.d_model / self.n_heads
    }

    /// The width of all key heads together.
    pub(super) fn d_kv(&self) -> u64 {
        self.d_head() * self.n_kv_heads
    }

    fn new(
        [d_model, d_ff, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx]: [i32; 7],
    ) -> Result<Self, String> {
        let size = |name: &str, value: i32, max: u64| match u64::try_from(value) {
            Ok(value) if (1..=max).contains(&value) => Ok(value),
            _ => Err(format!("{name} is {value}, expected 1 to {max}")),
        };
        let sizes = Self {
            d_model: size("dim", d_model, MAX_SIZE)?,
            d_ff: size("hidden_dim", d_ff, MAX_SIZE)?,
            n_layers: size("n_layers", n_layers, MAX_LAYERS)?,
            n_heads: size("n_heads", n_heads, MAX_SIZE)?,
            n_kv_heads: size("n_kv_heads", n_kv_heads, MAX_SIZE)?,
            n_vocab: size("vocab_size", n_vocab, MAX_SIZE)?,
            n_ctx: size("seq_len", n_ctx, MAX_SIZE)?,
        };
        sizes.check_heads().map(|()| sizes)
    }

    /// Checks that head counts divide the widths and that heads have an even width.
    pub(super) fn check_heads(&self) -> Result<(), String> {
        let Self {
            d_model,
            n_heads,
            n_kv_heads,
            ..
        } = self;
        if !d_model.is_multiple_of(2 * n_heads) {
            return Err(format!(
                "{n_heads} heads do not divide a dim of {d_model} into even widths"
            ));
        }
        if !n_heads.is_multiple_of(*n_kv_heads) {
            return Err(format!(
                "{n_kv_heads} key-value heads do not divide {n_heads} heads"
            ));
        }
        Ok(())
    }
}

impl Header {
    /// Parses the beginning of a file.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        match i32_at(bytes, 0)? as u32 {
            MAGIC => Self::parse_versioned(bytes),
            _ => Self::parse_v0(bytes),
        }
    }

    fn parse_v0(bytes: &[u8]) -> Result<Self, String> {
        let mut numbers = numbers(bytes, 0)?;
        let tied = numbers[5] > 0;
        numbers[5] = numbers[5].saturating_abs();
        let sizes = Sizes::new(numbers)
            .map_err(|why| format!("no ak42 at the beginning, and as version 0 {why}"))?;
        Ok(Self {
            version: FileVersion::V0,
            sizes,
            tied,
        })
    }

    fn parse_versioned(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < HEADER_BYTES {
            return Err(format!(
                "{} bytes are less than a header of {HEADER_BYTES}",
                bytes.len()
            ));
        }
        let version = match i32_at(bytes, 4)? {
            1 => FileVersion::V1,
            2 => FileVersion::V2 {
                group: group(i32_at(bytes, 37)?)?,
            },
            other => return Err(format!("version {other}, known: 0, 1 and 2")),
        };
        let tied = match bytes[36] {
            0 => false,
            1 => true,
            other => {
                return Err(format!(
                    "the byte for a shared classifier is {other}, expected 0 or 1"
                ));
            }
        };
        Ok(Self {
            version,
            sizes: Sizes::new(numbers(bytes, 8)?)?,
            tied,
        })
    }

    /// The header of versions 1 and 2 as bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Sizes {
            d_model,
            d_ff,
            n_layers,
            n_heads,
            n_kv_heads,
            n_vocab,
            n_ctx,
        } = self.sizes;
        let group = self.version.group();
        let mut out = MAGIC.to_le_bytes().to_vec();
        let numbers = [
            1 + u64::from(group.is_some()),
            d_model,
            d_ff,
            n_layers,
            n_heads,
            n_kv_heads,
            n_vocab,
            n_ctx,
        ];
        // All numbers are at most `MAX_SIZE`, so they fit i32.
        numbers
            .iter()
            .for_each(|&number| out.extend((number as i32).to_le_bytes()));
        out.push(u8::from(self.tied));
        out.extend(group.iter().flat_map(|&group| (group as i32).to_le_bytes()));
        out.resize(HEADER_BYTES, 0);
        out
    }

    /// The offset of the first weight.
    pub(super) fn data_at(&self) -> u64 {
        if self.version == FileVersion::V0 {
            28
        } else {
            HEADER_BYTES as u64
        }
    }
}

fn group(value: i32) -> Result<u64, String> {
    let group = u64::try_from(value)
        .ok()
        .filter(|group| (1..=MAX_SIZE).contains(group));
    group.ok_or_else(|| format!("group_size is {value}, expected 1 to {MAX_SIZE}"))
}

fn numbers(bytes: &[u8], at: usize) -> Result<[i32; 7], String> {
    let mut numbers = [0; 7];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = i32_at(bytes, at + 4 * i)?;
    }
    Ok(numbers)
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, String> {
    let number = bytes.get(at..).and_then(<[u8]>::first_chunk);
    number
        .map(|&b| i32::from_le_bytes(b))
        .ok_or_else(|| format!("ends in its header, after {} bytes", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: FileVersion) -> Header {
        let sizes = Sizes {
            d_model: 64,
            d_ff: 96,
            n_layers: 2,
            n_heads: 4,
            n_kv_heads: 2,
            n_vocab: 300,
            n_ctx: 16,
        };
        Header {
            version,
            sizes,
            tied: version == FileVersion::V1,
        }
    }

    #[test]
    fn an_encoded_header_is_parsed_again() {
        for version in [FileVersion::V1, FileVersion::V2 { group: 32 }] {
            let bytes = header(version).encode();
            assert_eq!(bytes.len(), 256);
            assert_eq!(Header::parse(&bytes), Ok(header(version)));
        }
    }

    #[test]
    fn a_negative_vocabulary_of_version_0_means_an_untied_head() {
        let file = |n_vocab: i32| -> Vec<u8> {
            [64, 96, 2, 4, 2, n_vocab, 16i32]
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect()
        };
        let read = |n_vocab| Header::parse(&file(n_vocab)).unwrap();
        assert_eq!(
            (read(-300), read(300).tied),
            (header(FileVersion::V0), true)
        );
        assert!(
            Header::parse(&file(i32::MIN))
                .unwrap_err()
                .contains("vocab_size")
        );
    }

    #[test]
    fn invalid_sizes_are_refused_by_name() {
        let patched = |at: usize, value: i32| {
            let mut bytes = header(FileVersion::V2 { group: 32 }).encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Header::parse(&bytes).unwrap_err()
        };
        assert_eq!(patched(4, 3), "version 3, known: 0, 1 and 2");
        assert_eq!(patched(8, 0), "dim is 0, expected 1 to 16777216");
        assert_eq!(patched(16, 5000), "n_layers is 5000, expected 1 to 4096");
        assert_eq!(patched(20, 0), "n_heads is 0, expected 1 to 16777216");
        assert_eq!(
            patched(20, 64),
            "64 heads do not divide a dim of 64 into even widths"
        );
        assert_eq!(patched(24, 3), "3 key-value heads do not divide 4 heads");
        assert_eq!(
            patched(28, -300),
            "vocab_size is -300, expected 1 to 16777216"
        );
        assert_eq!(patched(37, -1), "group_size is -1, expected 1 to 16777216");
        assert_eq!(
            patched(36, 2 | 32 << 8),
            "the byte for a shared classifier is 2, expected 0 or 1"
        );
        assert!(
            Header::parse(&[0x32, 0x34, 0x6b, 0x61, 1])
                .unwrap_err()
                .contains("less than a header")
        );
        assert!(Header::parse(&[1]).unwrap_err().contains("after 1 bytes"));
    }
}

//! The normalizer of SentencePiece: a table from texts to their replacements.
//!
//! Knows no vocabulary. The one idea: the table is a trie in two arrays, packed into words of 32
//! bits, as SentencePiece compiles it; it is walked as it stands in the file, every index checked.
//!
//! ```text
//! u32          length of the trie in bytes, little endian
//! u32 ...      its nodes: bits 0-7 and 31 the byte that leads here, bit 8 whether a value follows,
//!              bits 10-30 where the children are, shifted by 8 if bit 9 is set
//! bytes        the replacements, each ended by a zero; values are offsets into them
//! ```
//! Source: `normalizer.cc` of google/sentencepiece, and Darts-clone, whose format the trie has. The
//! longest match is replaced, as SentencePiece and llama.cpp do it; Hugging Face `tokenizers`
//! replaces whole graphemes of less than six bytes by their first match, and so loses a second
//! accent.

use atta_formats::Metadata;

use crate::Error;

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// The table; without nodes where a vocabulary has none.
#[derive(Default)]
pub(crate) struct CharsMap {
    nodes: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharsMap {
    pub(crate) fn new(metadata: &Metadata) -> Result<Self, Error> {
        let Some(bytes) = metadata.u8s(KEY)?.filter(|bytes| !bytes.is_empty()) else {
            return Ok(Self::default());
        };
        let bytes: Vec<u8> = bytes.iter().collect();
        Self::parse(&bytes).ok_or(Error::Damaged { key: KEY })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (n_bytes, rest) = bytes.split_first_chunk()?;
        let n_bytes = u32::from_le_bytes(*n_bytes) as usize;
        let (nodes, replacements) = rest.split_at_checked(n_bytes)?;
        let (nodes, []) = nodes.as_chunks() else {
            return None;
        };
        let charsmap = Self {
            nodes: nodes.iter().map(|&node| u32::from_le_bytes(node)).collect(),
            replacements: replacements.to_owned(),
        };
        (replacements.last() == Some(&0)).then_some(charsmap)
    }

    /// The replacement of the longest text of the table that `text` begins with, and the length of
    /// that text.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut found = None;
        let mut at = children(*self.nodes.first()?);
        for (i, &byte) in text.iter().enumerate() {
            at ^= u32::from(byte);
            let Some(&node) = self.nodes.get(at as usize) else {
                break;
            };
            if byte == 0 || node & (1 << 31 | 0xFF) != u32::from(byte) {
                break;
            }
            at ^= children(node);
            if node >> 8 & 1 == 1 {
                found = self.value(at).map(|value| (value, i + 1)).or(found);
            }
        }
        found
    }

    /// The replacement that a leaf names.
    fn value(&self, leaf: u32) -> Option<&[u8]> {
        let offset = self.nodes.get(leaf as usize)? & (u32::MAX >> 1);
        let rest = self.replacements.get(offset as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(&rest[..end])
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<u32>() + self.replacements.capacity()
    }
}

/// Where the children of a node are, relative to it.
fn children(node: u32) -> u32 {
    (node >> 10) << ((node & 1 << 9) >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie of "a" and "ab": the root's children are at 0x100, those of "a" at 0x200.
    fn map() -> CharsMap {
        let mut nodes = vec![0; 0x300];
        nodes[0] = 0x100 << 10;
        nodes[0x100 ^ 0x61] = (0x161 ^ 0x200) << 10 | 1 << 8 | 0x61;
        nodes[0x200] = 1 << 31;
        nodes[0x200 ^ 0x62] = (0x262 ^ 0x280) << 10 | 1 << 8 | 0x62;
        nodes[0x280] = 1 << 31 | 2;
        CharsMap {
            nodes,
            replacements: b"x\0yz\0".to_vec(),
        }
    }

    #[test]
    fn the_longest_text_is_replaced() {
        let map = map();
        assert_eq!(map.longest(b"abc"), Some((&b"yz"[..], 2)));
        assert_eq!(map.longest(b"ac"), Some((&b"x"[..], 1)));
        assert_eq!((map.longest(b"b"), map.longest(b"")), (None, None));
        assert_eq!(CharsMap::default().longest(b"a"), None);
    }

    #[test]
    fn indices_out_of_the_table_match_nothing() {
        let mut wild = map();
        wild.nodes.truncate(0x210);
        wild.nodes[0x200] = u32::MAX;
        assert_eq!(wild.longest(b"abc"), None);
        wild.nodes[0] = u32::MAX;
        assert_eq!(wild.longest(b"abc"), None);
    }
}

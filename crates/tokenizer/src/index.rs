//! A hash index from token text to id that does not copy the texts.
//!
//! Knows neither token types nor scores. The one idea: a slot holds only an id; lookups compare
//! with the token's text in the mapped file. A slot takes four bytes, and at most half of them are
//! occupied.

use crate::Error;
use atta_formats::StrArray;

const EMPTY: u32 = u32::MAX;

/// Limits the time that a vocabulary of colliding texts takes. Real ones stay far below.
const MAX_PROBES: usize = 512;

/// Open addressing with linear probing over the strings of a vocabulary.
pub(crate) struct Index {
    /// Ids or `EMPTY`; the length is a power of two.
    slots: Box<[u32]>,
}

impl Index {
    /// Indexes all texts except empty ones. Of equal texts the last one wins.
    pub(crate) fn new(texts: &StrArray) -> Result<Self, Error> {
        let mut index = Self {
            slots: vec![EMPTY; (texts.len() * 2).next_power_of_two()].into(),
        };
        for (id, text) in (0..).zip(texts.iter()) {
            if !text.is_empty() {
                index.insert(texts, id, text)?;
            }
        }
        Ok(index)
    }

    fn insert(&mut self, texts: &StrArray, id: u32, text: &[u8]) -> Result<(), Error> {
        let place = self.probe(text).take(MAX_PROBES).find(|&slot| {
            let other = self.slots[slot];
            other == EMPTY || texts.get(other as usize) == Some(text)
        });
        self.slots[place.ok_or(Error::Collisions {
            id,
            probes: MAX_PROBES,
        })?] = id;
        Ok(())
    }

    /// The id of a text.
    pub(crate) fn get(&self, texts: &StrArray, text: &[u8]) -> Option<u32> {
        self.probe(text)
            .map(|slot| self.slots[slot])
            .take_while(|&id| id != EMPTY)
            .take(MAX_PROBES)
            .find(|&id| texts.get(id as usize) == Some(text))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The slots that may hold `text`, in the order they are tried.
    fn probe(&self, text: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let first = hash(text) as usize;
        (0..=mask).map(move |i| first.wrapping_add(i) & mask)
    }
}

/// Multiply and rotate, eight bytes at a time (the scheme of FxHash), folded so that low bits
/// depend on all.
fn hash(text: &[u8]) -> u64 {
    const K: u64 = 0x517C_C1B7_2722_0A95;
    let mix = |h: u64, word: u64| (h.rotate_left(5) ^ word).wrapping_mul(K);
    let (words, tail) = text.as_chunks::<8>();
    let h = words.iter().fold(text.len() as u64, |h, &word| {
        mix(h, u64::from_le_bytes(word))
    });
    let h = mix(
        h,
        tail.iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    );
    h ^ h >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use atta_formats::{Gguf, Writer};
    use std::sync::Arc;

    fn texts(texts: &[String]) -> StrArray {
        let mut writer = Writer::new();
        writer.set_strs("texts", texts);
        let header = writer.finish().unwrap().header;
        let n_bytes = header.len() as u64;
        Gguf::parse(Arc::new(header), n_bytes)
            .unwrap()
            .metadata
            .strs("texts")
            .unwrap()
            .unwrap()
    }

    #[test]
    fn every_text_is_found_and_no_other() {
        let all: Vec<String> = (0..5000)
            .map(|i| format!("{}{i}", "x".repeat(i % 20)))
            .collect();
        let strings = texts(&all);
        let index = Index::new(&strings).unwrap();
        assert!(
            (0..)
                .zip(&all)
                .all(|(id, text)| index.get(&strings, text.as_bytes()) == Some(id))
        );
        assert_eq!(
            (index.get(&strings, b"y"), index.get(&strings, b"")),
            (None, None)
        );
    }

    #[test]
    fn the_last_of_equal_texts_counts() {
        let strings = texts(&["a".into(), "b".into(), "a".into(), String::new()]);
        assert_eq!(Index::new(&strings).unwrap().get(&strings, b"a"), Some(2));
    }

    #[test]
    fn texts_chosen_to_collide_are_an_error() {
        let collide = |text: &String| hash(text.as_bytes()) & 2047 == 0;
        let all: Vec<String> = (0..)
            .map(|i: u32| i.to_string())
            .filter(collide)
            .take(MAX_PROBES + 1)
            .collect();
        assert!(matches!(
            Index::new(&texts(&all)),
            Err(Error::Collisions { id: 512, .. })
        ));
    }
}

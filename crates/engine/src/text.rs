//! Texts of tokens and media, and what they have in common.
//!
//! A text has one position per token, and one per embedding of a medium (an image, a sound). Two
//! texts share the state of the positions in which they agree: in tokens, in the hashes of media,
//! and in adapters.

use std::sync::Arc;

use atta_model::AdapterSet;

/// Something that enters a text as embeddings instead of tokens.
#[derive(Clone, Debug)]
pub struct Media {
    /// A hash of the content, and of everything that its embeddings depend on.
    pub hash: [u8; 32],
    /// The token that stands for each position, for samplers and templates.
    pub token: u32,
    /// `[n, d_model]`.
    pub embeddings: Arc<[f32]>,
}

/// What a position of a text brings to the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TextInput<'a> {
    Token(u32),
    /// `[d_model]`.
    Embedding(&'a [f32]),
}

/// A text.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// A token per position; those of media stand for their positions.
    ids: Vec<u32>,
    /// In the order of their positions.
    media: Vec<PlacedMedia>,
    adapters: AdapterSet,
    /// Where a second text begins, which an encoder compares the first with.
    second: Option<usize>,
}

/// Tokens, and the adapters that they are computed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TokenText<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) adapters: AdapterSet,
}

/// A medium in a text.
#[derive(Clone, Debug)]
struct PlacedMedia {
    start: usize,
    /// Positions in the text: all of the medium, or the first ones if the text was truncated there.
    n: usize,
    /// Width of its embeddings.
    d_model: usize,
    media: Media,
}

impl From<Vec<u32>> for Text {
    fn from(ids: Vec<u32>) -> Self {
        Self {
            ids,
            ..Self::default()
        }
    }
}

impl Text {
    /// Appends a medium of embeddings of width `d_model`.
    pub fn push_media(&mut self, media: Media, d_model: usize) {
        let start = self.ids.len();
        let d_model = d_model.max(1);
        let n = media.embeddings.len() / d_model;
        self.ids.extend(std::iter::repeat_n(media.token, n));
        self.media.push(PlacedMedia {
            start,
            n,
            d_model,
            media,
        });
    }

    /// What follows is a second text, which an encoder compares the first with.
    pub fn begin_second(&mut self) {
        self.second = Some(self.ids.len());
    }

    /// The text of a position, of two that are compared: 0 or 1.
    pub(crate) fn segment(&self, pos: usize) -> u8 {
        self.second.is_some_and(|second| pos >= second).into()
    }

    /// Appends tokens.
    pub fn push_tokens(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
    }

    /// A token for each position.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The first `n` tokens of a text of tokens only: without media.
    pub(crate) fn tokens(&self, n: usize) -> Option<TokenText<'_>> {
        let is_plain = self.media.is_empty();
        is_plain.then_some(TokenText {
            tokens: &self.ids[..n],
            adapters: self.adapters,
        })
    }

    /// Sets the adapters that its positions are computed with.
    pub(crate) fn set_adapters(&mut self, adapters: AdapterSet) {
        self.adapters = adapters;
    }

    /// The adapters that its positions are computed with.
    pub(crate) fn adapters(&self) -> AdapterSet {
        self.adapters
    }

    /// Positions.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it has no positions.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn media_at(&self, pos: usize) -> Option<&PlacedMedia> {
        let i = self.media.partition_point(|m| m.start + m.n <= pos);
        self.media.get(i).filter(|m| m.start <= pos)
    }

    /// What a position brings to the model.
    pub(crate) fn input(&self, pos: usize) -> TextInput<'_> {
        match self.media_at(pos) {
            None => TextInput::Token(self.ids[pos]),
            Some(placed) => {
                let d = placed.d_model;
                let start = (pos - placed.start) * d;
                TextInput::Embedding(&placed.media.embeddings[start..][..d])
            }
        }
    }

    /// The position of the first medium whose embeddings are not `d_model` wide.
    pub(crate) fn other_width(&self, d_model: usize) -> Option<usize> {
        let is_other = |m: &&PlacedMedia| {
            m.d_model != d_model || !m.media.embeddings.len().is_multiple_of(d_model)
        };
        self.media.iter().find(is_other).map(|m| m.start)
    }

    /// Removes the positions from `n` on. A medium that begins before keeps its first positions,
    /// which are still those of the whole one.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.ids.truncate(n);
        self.media.retain(|m| m.start < n);
        if let Some(last) = self.media.last_mut() {
            last.n = last.n.min(n - last.start);
        }
    }

    /// Positions at the beginning in which two texts agree.
    pub(crate) fn n_common(&self, other: &Self) -> usize {
        if self.adapters != other.adapters {
            return 0;
        }
        let tokens = self.ids.iter().zip(&other.ids);
        let n_same = tokens.take_while(|(a, b)| a == b).count();
        let n_media = self.media.iter().zip(&other.media);
        let n_media = n_media.take_while(|(a, b)| a.is_same(b)).count();
        let end = match [self, other].map(|text| text.media.get(n_media)) {
            [Some(a), Some(b)] => a.n_common(b),
            [Some(only), None] | [None, Some(only)] => only.start,
            [None, None] => usize::MAX,
        };
        n_same.min(end)
    }
}

impl PlacedMedia {
    /// Whether both are the same positions of the same medium.
    fn is_same(&self, other: &Self) -> bool {
        self.n == other.n && self.is_part_of_same(other)
    }

    /// Whether both are first positions of the same medium at the same place.
    fn is_part_of_same(&self, other: &Self) -> bool {
        (self.start, self.media.hash) == (other.start, other.media.hash)
    }

    /// The position before which texts agree that have these two as their first difference.
    fn n_common(&self, other: &Self) -> usize {
        match self.is_part_of_same(other) {
            true => self.start + self.n.min(other.n),
            false => self.start.min(other.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(hash: u8, n: usize) -> Media {
        Media {
            hash: [hash; 32],
            token: 9,
            embeddings: (0..2 * n).map(|i| i as f32).collect(),
        }
    }

    fn text(hash: u8) -> Text {
        let mut text = Text::from(vec![1, 2]);
        text.push_media(media(hash, 3), 2);
        text.push_tokens(&[4, 9]);
        text
    }

    #[test]
    fn texts_agree_up_to_the_first_other_token_or_medium() {
        assert_eq!(text(7).n_common(&text(7)), 7);
        assert_eq!(text(7).n_common(&text(8)), 2, "another image");
        assert_eq!(text(7).n_common(&vec![1, 2, 9, 9, 9, 4].into()), 2);
        assert_eq!(Text::from(vec![1, 2, 3]).n_common(&vec![1, 2, 4].into()), 2);
        assert_eq!(text(7).n_common(&vec![1, 3].into()), 1);
        let mut cut = text(7);
        cut.truncate(4);
        assert_eq!(cut.n_common(&text(7)), 4, "a part of the same image");
    }

    #[test]
    fn a_text_that_is_truncated_inside_a_medium_goes_on_with_tokens() {
        let mut text = text(7);
        text.truncate(4);
        text.push_tokens(&[9, 9]);
        assert_eq!(text.input(3), TextInput::Embedding(&[2.0, 3.0]));
        assert_eq!(text.input(4), TextInput::Token(9));
        assert_eq!((text.len(), text.other_width(2)), (6, None));
        assert_eq!(text.other_width(3), Some(2));
        let mut whole = Text::from(vec![1, 2]);
        whole.push_media(media(7, 3), 2);
        assert_eq!(text.n_common(&whole), 4, "a token is no embedding");
        whole.truncate(4);
        whole.push_tokens(&[9, 9, 9]);
        assert_eq!(text.n_common(&whole), 6);
    }

    #[test]
    fn a_position_of_a_medium_brings_an_embedding() {
        let text = text(7);
        assert_eq!(text.input(1), TextInput::Token(2));
        assert_eq!(text.input(3), TextInput::Embedding(&[2.0, 3.0]));
        assert_eq!(text.input(5), TextInput::Token(4));
        assert_eq!((text.len(), text.tokens(7)), (7, None));
    }
}

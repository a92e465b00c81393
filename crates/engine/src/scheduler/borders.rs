//! Where later prompts are likely to part from this one: at the borders of its system prompt, its
//! tools and its turns.
//!
//! Knows no chat template. The one idea: templates write control tokens between the parts of a
//! conversation, and messages cannot.

use atta_tokenizer::{TokenKind, Tokenizer};

/// Control tokens that are this close are at one border, such as `<|im_end|>\n<|im_start|>user`.
const BORDER_LEN: usize = 8;

/// Borders of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Borders {
    /// Tokens up to the end of the first part: the system prompt, with the tools where they are in
    /// it.
    pub(super) first: Option<usize>,
    /// Tokens up to the last turn, that of the user or of a tool.
    pub(super) last_turn: Option<usize>,
    /// Tokens up to a place that the job names.
    pub(super) named: Option<usize>,
}

impl Borders {
    /// Finds the borders of a prompt that ends with the header of an answer.
    pub(super) fn find(&mut self, ids: &[u32], tokenizer: &Tokenizer) {
        let all = positions(ids, |id| tokenizer.kind(id) == TokenKind::Control);
        self.first = all.first().copied();
        self.last_turn = all.len().checked_sub(2).map(|i| all[i]);
    }

    /// Whether one is behind `n` tokens.
    pub(super) fn has(&self, n: usize) -> bool {
        [self.first, self.last_turn, self.named].contains(&Some(n))
    }
}

/// The tokens in front of the last control token of each border, without the start of the text.
fn positions(ids: &[u32], is_control: impl Fn(u32) -> bool) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    let control = ids.iter().enumerate().filter(|(_, id)| is_control(**id));
    for (pos, _) in control.filter(|(pos, _)| *pos >= BORDER_LEN) {
        match all.last_mut().filter(|last| pos - **last <= BORDER_LEN) {
            Some(last) => *last = pos,
            None => all.push(pos),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_tokens_close_to_each_other_are_one_border() {
        // <s> im_start system \n … im_end \n im_start user \n … im_end \n im_start assistant \n
        let turn = |n: usize| [&[5; 40][..n], &[0, 9, 0, 8, 9]].concat();
        let ids = [&[0, 0, 8, 9][..], &turn(30), &turn(20)].concat();
        assert_eq!(positions(&ids, |id| id == 0), [36, 61]);
        assert_eq!(positions(&[7; 50], |id| id == 0), [0; 0]);
    }
}

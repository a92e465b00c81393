//! Ids of calls, each of them once in a conversation.
//!
//! Knows no calls: it gives an id out, the one that a model wants if it may have it.

use std::collections::HashSet;

/// How many numbers have nine digits at most.
const NINE_DIGITS: u64 = 1_000_000_000;

/// What ids look like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `call_1` and so on; a model has no say.
    Word,
    /// Nine letters and digits: templates of Mistral refuse all others.
    Nine,
}

/// Gives out ids.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    form: Form,
    taken: HashSet<String>,
    /// Makes ids differ from those of other conversations.
    seed: Option<u64>,
    /// That of the last one.
    number: usize,
}

impl Ids {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            taken: HashSet::new(),
            seed: None,
            number: 0,
        }
    }

    /// Makes ids of this number, a random one, and of the count.
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    /// Counts one that was given out before.
    pub(super) fn take(&mut self, id: &str) {
        self.number += 1;
        self.taken.insert(id.to_owned());
    }

    /// The next one: what the model wants, if it looks right and is new, or else a number.
    pub(super) fn give(&mut self, wanted: Option<&str>) -> String {
        self.number += 1;
        match wanted.filter(|id| self.form.is_good(id) && !self.taken.contains(*id)) {
            Some(id) => {
                self.taken.insert(id.to_owned());
                id.to_owned()
            }
            None => self.made(),
        }
    }

    /// Numbers only grow, so that however many are taken, each is tried once.
    fn made(&mut self) -> String {
        loop {
            let id = match (self.form, self.seed) {
                (Form::Word, None) => format!("call_{}", self.number),
                (Form::Word, Some(seed)) => format!("call_{seed:016x}{:04x}", self.number),
                (Form::Nine, None) => format!("{:09}", self.number),
                (Form::Nine, Some(seed)) => {
                    format!("{:09}", seed.wrapping_add(self.number as u64) % NINE_DIGITS)
                }
            };
            if self.taken.insert(id.clone()) {
                return id;
            }
            self.number += 1;
        }
    }
}

impl Form {
    fn is_good(self, id: &str) -> bool {
        match self {
            Self::Word => false,
            Self::Nine => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_its_way_unless_the_id_is_taken_or_looks_wrong() {
        let mut ids = Ids::new(Form::Nine);
        ids.take("000000003");
        ids.take("abcdefghi");
        let wanted = [
            Some("ABCDEF123"),
            Some("abcdefghi"),
            Some("ABCDEF123"),
            Some("short"),
            Some("with-dash"),
            None,
        ];
        let given = wanted.map(|id| ids.give(id));
        assert_eq!(
            given,
            [
                "ABCDEF123",
                "000000004",
                "000000005",
                "000000006",
                "000000007",
                "000000008"
            ]
        );
        let mut words = Ids::new(Form::Word);
        words.take("call_2");
        assert_eq!(
            [None, Some("abcdefghi")].map(|id| words.give(id)),
            ["call_3", "call_4"]
        );
    }
    #[test]
    fn a_seed_makes_ids_of_two_conversations_differ() {
        let given = |form, seed| {
            let mut ids = Ids::new(form);
            ids.set_seed(seed);
            [ids.give(None), ids.give(None)]
        };
        assert_eq!(
            given(Form::Word, 10),
            ["call_000000000000000a0001", "call_000000000000000a0002"]
        );
        assert_eq!(
            given(Form::Nine, NINE_DIGITS - 1),
            ["000000000", "000000001"]
        );
        assert_eq!(given(Form::Nine, u64::MAX)[0].len(), 9);
    }
}

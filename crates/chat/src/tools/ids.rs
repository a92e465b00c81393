//! Ids of tool calls, unique in a conversation.

use std::collections::HashSet;

use super::place::FUNCTIONS;

/// Number of nine-digit numbers.
const NINE_DIGITS: u64 = 1_000_000_000;

/// CallFormat of ids.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdForm {
    /// `call_1` and so on; ids of the model are ignored.
    Word,
    /// Nine letters and digits: Mistral's templates refuse others.
    Nine,
    /// `functions.NAME:N`, where N counts the calls from 0: those of Kimi K2. A seed has no effect.
    Function,
}

/// Generates ids.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    form: IdForm,
    taken: HashSet<String>,
    /// Makes ids differ from those of other conversations.
    seed: Option<u64>,
    /// Number of the last id.
    number: usize,
}

impl Ids {
    pub(super) fn new(form: IdForm) -> Self {
        Self {
            form,
            taken: HashSet::new(),
            seed: None,
            number: 0,
        }
    }

    /// Ids from a random seed and a counter.
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    /// Registers an id that was used before.
    pub(super) fn take(&mut self, id: &str) {
        self.number += 1;
        self.taken.insert(id.to_owned());
    }

    /// The id of the next call, of this name: the model's own if it is well-formed and new, else a
    /// generated one.
    pub(super) fn give(&mut self, wanted: Option<&str>, name: &str) -> String {
        self.number += 1;
        match wanted.filter(|id| self.form.is_good(id) && !self.taken.contains(*id)) {
            Some(id) => {
                self.taken.insert(id.to_owned());
                id.to_owned()
            }
            None => self.made(name),
        }
    }

    /// Numbers only grow, so each is tried once.
    fn made(&mut self, name: &str) -> String {
        loop {
            let id = match (self.form, self.seed) {
                (IdForm::Word, None) => format!("call_{}", self.number),
                (IdForm::Word, Some(seed)) => format!("call_{seed:016x}{:04x}", self.number),
                (IdForm::Function, _) => format!("{FUNCTIONS}{name}:{}", self.number - 1),
                (IdForm::Nine, None) => format!("{:09}", self.number),
                (IdForm::Nine, Some(seed)) => {
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

impl IdForm {
    fn is_good(self, id: &str) -> bool {
        match self {
            Self::Word => false,
            // The parser reads no others.
            Self::Function => true,
            Self::Nine => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_its_way_unless_the_id_is_taken_or_looks_wrong() {
        let mut ids = Ids::new(IdForm::Nine);
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
        let given = wanted.map(|id| ids.give(id, "f"));
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
        let mut words = Ids::new(IdForm::Word);
        words.take("call_2");
        assert_eq!(
            [None, Some("abcdefghi")].map(|id| words.give(id, "f")),
            ["call_3", "call_4"]
        );
        let mut functions = Ids::new(IdForm::Function);
        functions.take("functions.g:0");
        functions.take("functions.f:2");
        functions.set_seed(7);
        assert_eq!(
            [None, Some("functions.f:2"), Some("functions.f:9")].map(|id| functions.give(id, "f")),
            ["functions.f:3", "functions.f:4", "functions.f:9"]
        );
    }

    #[test]
    fn a_seed_makes_ids_of_two_conversations_differ() {
        let given = |form, seed| {
            let mut ids = Ids::new(form);
            ids.set_seed(seed);
            [ids.give(None, "f"), ids.give(None, "f")]
        };
        assert_eq!(
            given(IdForm::Word, 10),
            ["call_000000000000000a0001", "call_000000000000000a0002"]
        );
        assert_eq!(
            given(IdForm::Nine, NINE_DIGITS - 1),
            ["000000000", "000000001"]
        );
        assert_eq!(given(IdForm::Nine, u64::MAX)[0].len(), 9);
    }
}

//! Regular expressions as automata, for one question: can a text of one terminal be the
//! beginning of a text of another, and how does that go on?
//!
//! Repetitions with large numbers are taken as unbounded ones: the answer may be yes where it
//! should be no.

use super::charset::{ByteSet, CharSet};
use super::expr::{Expr, Times};
use super::places::{Ends, LeafPosition, Places};
use super::plan::Cut;

/// States, one per character that is written in the expression.
pub(super) struct Automaton {
    positions: Vec<Position>,
    first: Vec<u32>,
    /// What the first byte may be.
    pub(super) first_bytes: ByteSet,
    is_sequence: bool,
}

type Position = LeafPosition<Character>;

struct Character {
    set: CharSet,
    lead: ByteSet,
    /// The part of the sequence, if the expression is one.
    part: usize,
}

/// Larger automata are not made.
const MAX_POSITIONS: usize = 1500;
const MAX_EDGES: usize = 100_000;
/// Repetitions are written out up to this many times and parts.
const MAX_COPIES: u32 = 8;
const MAX_COPIED: usize = 64;

/// How texts of one terminal go on in another.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// Whether they have a text in common.
    pub(super) has_common: bool,
    /// Where the other goes on after a text of the one: with which first bytes, and where it would
    /// have to be cut.
    pub(super) extensions: Vec<(ByteSet, Cut)>,
}

impl Automaton {
    /// `None` if it would be too large.
    pub(super) fn new(expr: &Expr) -> Option<Self> {
        let mut builder = Builder {
            places: Places::new(MAX_EDGES),
            part: 0,
        };
        let parts = match expr {
            Expr::Seq(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut whole = Ends::EMPTY;
        for (part, inner) in parts.iter().enumerate() {
            builder.part = part;
            let ends = builder.build(inner)?;
            whole = builder.places.chain(whole, ends)?;
        }
        Some(builder.finish(whole, matches!(expr, Expr::Seq(_))))
    }

    /// How texts of `self` go on in `other`. Subtracts the steps taken from `steps`; `None` if they
    /// are too few.
    pub(super) fn overlap(&self, other: &Self, steps: &mut usize) -> Option<Overlap> {
        let mut found = Overlap::default();
        let mut is_seen = vec![false; self.positions.len() * other.positions.len()];
        let mut open = Vec::new();
        let mut visit = |ours: &[u32], theirs: &[u32], open: &mut Vec<(u32, u32)>| {
            *steps = steps.checked_sub(ours.len() * theirs.len())?;
            for (&i, &j) in ours.iter().flat_map(|i| theirs.iter().map(move |j| (i, j))) {
                let seen = &mut is_seen[i as usize * other.positions.len() + j as usize];
                if !*seen
                    && self.positions[i as usize]
                        .leaf
                        .set
                        .intersects(&other.positions[j as usize].leaf.set)
                {
                    *seen = true;
                    open.push((i, j));
                }
            }
            Some(())
        };
        visit(&self.first, &other.first, &mut open)?;
        while let Some((i, j)) = open.pop() {
            let ours = &self.positions[i as usize];
            let theirs = &other.positions[j as usize];
            if ours.is_last {
                found.has_common |= theirs.is_last;
                other.extend(theirs, &mut found.extensions);
            }
            visit(&ours.next, &theirs.next, &mut open)?;
        }
        Some(found)
    }

    /// Notes every way on from a position.
    fn extend(&self, from: &Position, extensions: &mut Vec<(ByteSet, Cut)>) {
        for &next in &from.next {
            let to = &self.positions[next as usize].leaf;
            let cut = match (self.is_sequence, from.leaf.part == to.part) {
                (false, _) => Cut::Open,
                (true, true) => Cut::Around(to.part),
                (true, false) => Cut::Before(to.part),
            };
            match extensions.iter_mut().find(|(_, known)| *known == cut) {
                Some((bytes, _)) => bytes.add(to.lead),
                None => extensions.push((to.lead, cut)),
            }
        }
    }
}

struct Builder {
    places: Places<Character>,
    /// The part of the sequence that is being built.
    part: usize,
}

impl Builder {
    fn finish(mut self, whole: Ends, is_sequence: bool) -> Automaton {
        self.places.finish(&whole);
        let positions = self.places.all;
        let mut first_bytes = ByteSet::default();
        for &first in &whole.first {
            first_bytes.add(positions[first as usize].leaf.lead);
        }
        Automaton {
            positions,
            first: whole.first,
            first_bytes,
            is_sequence,
        }
    }

    fn build(&mut self, expr: &Expr) -> Option<Ends> {
        match expr {
            Expr::Set(set) => self.position(set),
            Expr::Seq(parts) => parts.iter().try_fold(Ends::EMPTY, |before, part| {
                let after = self.build(part)?;
                self.places.chain(before, after)
            }),
            Expr::Alt(choices) => choices.iter().try_fold(Ends::NOTHING, |all, choice| {
                Some(all.or(self.build(choice)?))
            }),
            Expr::Repeat(inner, times) => self.repeat(inner, *times),
            Expr::Rule(_) | Expr::Token(_) | Expr::Lexeme(_) => None,
        }
    }

    fn position(&mut self, set: &CharSet) -> Option<Ends> {
        if self.places.all.len() >= MAX_POSITIONS {
            return None;
        }
        self.places.add(Character {
            lead: set.lead_bytes(),
            set: set.clone(),
            part: self.part,
        })
    }

    fn repeat(&mut self, inner: &Expr, times: Times) -> Option<Ends> {
        let copies = times.max.unwrap_or(times.min.max(1));
        if copies > MAX_COPIES || copies as usize * inner.size() > MAX_COPIED {
            return self.unbounded(inner, times.min);
        }
        let mut whole = Ends::EMPTY;
        for copy in 0..copies {
            let is_end = copy + 1 == copies && times.max.is_none();
            let mut ends = if is_end {
                self.unbounded(inner, 1)?
            } else {
                self.build(inner)?
            };
            ends.is_nullable |= copy >= times.min;
            whole = self.places.chain(whole, ends)?;
        }
        Some(whole)
    }

    fn unbounded(&mut self, inner: &Expr, min: u32) -> Option<Ends> {
        let once = self.build(inner)?;
        let mut ends = self.places.again(once)?;
        ends.is_nullable |= min == 0;
        Some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn overlap(one: &str, other: &str) -> Overlap {
        let automaton = |regex: &str| {
            let grammar = parse(&format!("root ::= {regex}")).unwrap();
            Automaton::new(&grammar.bodies[grammar.root]).unwrap()
        };
        automaton(one)
            .overlap(&automaton(other), &mut 1_000_000)
            .unwrap()
    }

    fn cuts(one: &str, other: &str) -> Vec<Cut> {
        overlap(one, other)
            .extensions
            .into_iter()
            .map(|(_, cut)| cut)
            .collect()
    }

    #[test]
    fn a_text_goes_on_where_the_other_is_longer() {
        assert_eq!(cuts("\"if\"", "[a-z]+"), [Cut::Open]);
        assert_eq!(
            cuts("\"if\"", "\"if\" [ ]* \"(\""),
            [Cut::Before(2), Cut::Before(3)]
        );
        assert_eq!(
            cuts("\"if\"", "[a-z]+ \";\""),
            [Cut::Around(0), Cut::Before(1)]
        );
        assert_eq!(cuts("[a-z]+", "\"if\""), [Cut::Before(1)]);
        assert_eq!(cuts("\"ab\"", "\"ac\" | \"a\""), []);
        assert_eq!(cuts("[0-9]{3}", "[0-9]{2}"), []);
    }

    #[test]
    fn terminals_may_have_texts_in_common() {
        assert!(overlap("\"if\"", "[a-z]+").has_common);
        assert!(!overlap("\"if\"", "[a-z]").has_common);
        assert!(overlap("[a-z]{2}", "\"a\"{1,3}").has_common);
        assert!(!overlap("[a-z]{2,}", "[a-z]").has_common);
    }

    #[test]
    fn an_automaton_is_not_larger_than_allowed() {
        let words = Expr::seq((0..=MAX_POSITIONS).map(|_| Expr::character('a')));
        assert!(Automaton::new(&words).is_none());
    }
}

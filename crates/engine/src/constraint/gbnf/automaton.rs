//! Regular expressions as automata of positions (Glushkov 1961), for one question: can a text of one terminal be the
//! beginning of a text of another, and how does that go on?
//!
//! Repetitions with large numbers are taken as unbounded ones: the answer may be yes where it should be no.

use super::charset::{ByteSet, CharSet};
use super::expr::{Expr, Times};
use super::plan::Cut;

/// States, one per character that is written in the expression.
#[derive(Debug)]
pub(super) struct Automaton {
    positions: Vec<Position>,
    first: Vec<u32>,
    /// What the first byte may be.
    pub(super) first_bytes: ByteSet,
    is_sequence: bool,
}

#[derive(Debug)]
struct Position {
    set: CharSet,
    lead: ByteSet,
    is_last: bool,
    next: Vec<u32>,
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
    /// Where the other goes on after a text of the one: with which first bytes, and where it would have to be cut.
    pub(super) extensions: Vec<(ByteSet, Cut)>,
}

impl Automaton {
    /// `None` if it would be too large.
    pub(super) fn new(expr: &Expr) -> Option<Self> {
        let mut builder = Builder::default();
        let parts = match expr {
            Expr::Seq(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut whole = Ends::EMPTY;
        for (part, inner) in parts.iter().enumerate() {
            builder.part = part;
            let ends = builder.build(inner)?;
            whole = builder.chain(whole, ends)?;
        }
        Some(builder.finish(whole, matches!(expr, Expr::Seq(_))))
    }

    /// How texts of `self` go on in `other`; `None` if that takes more than `steps`, of which those taken are
    /// subtracted.
    pub(super) fn overlap(&self, other: &Self, steps: &mut usize) -> Option<Overlap> {
        let mut found = Overlap::default();
        let mut is_seen = vec![false; self.positions.len() * other.positions.len()];
        let mut open = Vec::new();
        let mut visit = |ours: &[u32], theirs: &[u32], open: &mut Vec<(u32, u32)>| {
            *steps = steps.checked_sub(ours.len() * theirs.len())?;
            for (&i, &j) in ours.iter().flat_map(|i| theirs.iter().map(move |j| (i, j))) {
                let seen = &mut is_seen[i as usize * other.positions.len() + j as usize];
                if !*seen && self.positions[i as usize].set.intersects(&other.positions[j as usize].set) {
                    *seen = true;
                    open.push((i, j));
                }
            }
            Some(())
        };
        visit(&self.first, &other.first, &mut open)?;
        while let Some((i, j)) = open.pop() {
            let (ours, theirs) = (&self.positions[i as usize], &other.positions[j as usize]);
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
            let to = &self.positions[next as usize];
            let cut = match (self.is_sequence, from.part == to.part) {
                (false, _) => Cut::Open,
                (true, true) => Cut::Around(from.part),
                (true, false) => Cut::Before(to.part),
            };
            match extensions.iter_mut().find(|(_, known)| *known == cut) {
                Some((bytes, _)) => bytes.add(to.lead),
                None => extensions.push((to.lead, cut)),
            }
        }
    }
}

/// Where a part begins and ends.
#[derive(Clone)]
struct Ends {
    first: Vec<u32>,
    last: Vec<u32>,
    is_nullable: bool,
}

impl Ends {
    const EMPTY: Self = Self { first: Vec::new(), last: Vec::new(), is_nullable: true };
    const NOTHING: Self = Self { first: Vec::new(), last: Vec::new(), is_nullable: false };
}

#[derive(Default)]
struct Builder {
    positions: Vec<Position>,
    n_edges: usize,
    part: usize,
}

impl Builder {
    fn finish(mut self, whole: Ends, is_sequence: bool) -> Automaton {
        let mut first_bytes = ByteSet::default();
        for &position in &whole.last {
            self.positions[position as usize].is_last = true;
        }
        for &position in &whole.first {
            first_bytes.add(self.positions[position as usize].lead);
        }
        Automaton { positions: self.positions, first: whole.first, first_bytes, is_sequence }
    }

    fn build(&mut self, expr: &Expr) -> Option<Ends> {
        match expr {
            Expr::Set(set) => self.position(set),
            Expr::Seq(parts) => parts.iter().try_fold(Ends::EMPTY, |before, part| {
                let ends = self.build(part)?;
                self.chain(before, ends)
            }),
            Expr::Alt(choices) => choices.iter().try_fold(Ends::NOTHING, |mut all, choice| {
                let ends = self.build(choice)?;
                all.first.extend(ends.first);
                all.last.extend(ends.last);
                all.is_nullable |= ends.is_nullable;
                Some(all)
            }),
            Expr::Repeat(inner, times) => self.repeat(inner, *times),
            Expr::Rule(_) | Expr::Token(_) | Expr::Lexeme(_) => None,
        }
    }

    fn position(&mut self, set: &CharSet) -> Option<Ends> {
        if self.positions.len() >= MAX_POSITIONS {
            return None;
        }
        let at = u32::try_from(self.positions.len()).ok()?;
        let (lead, set) = (set.lead_bytes(), set.clone());
        self.positions.push(Position { set, lead, is_last: false, next: Vec::new(), part: self.part });
        Some(Ends { first: vec![at], last: vec![at], is_nullable: false })
    }

    fn chain(&mut self, before: Ends, after: Ends) -> Option<Ends> {
        self.link(&before.last, &after.first)?;
        let (mut first, mut last) = (before.first, after.last);
        if before.is_nullable {
            first.extend(after.first);
        }
        if after.is_nullable {
            last.extend(before.last);
        }
        Some(Ends { first, last, is_nullable: before.is_nullable && after.is_nullable })
    }

    fn repeat(&mut self, inner: &Expr, times: Times) -> Option<Ends> {
        let copies = times.max.unwrap_or(times.min.max(1));
        if copies > MAX_COPIES || copies as usize * inner.size() > MAX_COPIED {
            return self.unbounded(inner, times.min);
        }
        let mut whole = Ends::EMPTY;
        for copy in 0..copies {
            let is_end = copy + 1 == copies && times.max.is_none();
            let mut ends = if is_end { self.unbounded(inner, 1)? } else { self.build(inner)? };
            ends.is_nullable |= copy >= times.min;
            whole = self.chain(whole, ends)?;
        }
        Some(whole)
    }

    fn unbounded(&mut self, inner: &Expr, min: u32) -> Option<Ends> {
        let mut ends = self.build(inner)?;
        self.link(&ends.last, &ends.first)?;
        ends.is_nullable |= min == 0;
        Some(ends)
    }

    fn link(&mut self, from: &[u32], to: &[u32]) -> Option<()> {
        self.n_edges += from.len() * to.len();
        if self.n_edges > MAX_EDGES {
            return None;
        }
        for &position in from {
            self.positions[position as usize].next.extend(to);
        }
        Some(())
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
        automaton(one).overlap(&automaton(other), &mut 1_000_000).unwrap()
    }

    fn cuts(one: &str, other: &str) -> Vec<Cut> {
        overlap(one, other).extensions.into_iter().map(|(_, cut)| cut).collect()
    }

    #[test]
    fn a_text_goes_on_where_the_other_is_longer() {
        assert_eq!(cuts("\"if\"", "[a-z]+"), [Cut::Open]);
        assert_eq!(cuts("\"if\"", "\"if\" [ ]* \"(\""), [Cut::Before(2), Cut::Before(3)]);
        assert_eq!(cuts("\"if\"", "[a-z]+ \";\""), [Cut::Around(0), Cut::Before(1)]);
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

//! Divides terminals until llguidance's lexer loses no text.
//!
//! The lexer reads on while any terminal that the parser would take goes on, and then takes all
//! that match exactly the text read. It never goes back. So a text is lost if a terminal could end
//! (and the next character may follow it), but another that may stand in the same place goes on
//! with that character, or with its first byte. Then the other one is divided there. Single
//! characters cannot go on, so this ends, and with a grammar that has exactly the same texts.
//!
//! The terminals of one place are found as if a rule, when it ends, could go on after any of its
//! uses: sometimes more is divided than need be. Time is bounded: when the steps are used up,
//! everything is divided.

use super::automaton::{Automaton, Overlap};
use super::charset::ByteSet;
use super::error::GbnfError;
use super::expr::Expr;
use super::flow::{Flow, Leaf};
use super::parse::limit;
use super::plan::{Cut, divide, into_characters};
use super::reduce::MAX_SIZE;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A fraction of a second.
const MAX_STEPS: usize = 1_000_000;

pub(super) fn refine(bodies: &mut [Expr], root: usize) -> Result<(), GbnfError> {
    let mut overlaps = Overlaps {
        steps: MAX_STEPS,
        ..Overlaps::default()
    };
    loop {
        limit(
            "parts of the grammar",
            bodies.iter().map(Expr::size).sum(),
            MAX_SIZE,
        )?;
        match find_cuts(bodies, root, &mut overlaps) {
            Some(cuts) if cuts.is_empty() => return Ok(()),
            Some(cuts) => {
                let mut place = 0;
                change(bodies, &mut |body| apply(body, &cuts, &mut place));
            }
            None => {
                change(bodies, &mut into_characters);
                return Ok(());
            }
        }
    }
}

fn change(bodies: &mut [Expr], with: &mut dyn FnMut(Expr) -> Expr) {
    for body in bodies {
        *body = with(std::mem::replace(body, Expr::EMPTY));
    }
}

/// Divides the terminals in the order in which `Flow` numbers them.
fn apply(expr: Expr, cuts: &HashMap<usize, Cut>, place: &mut usize) -> Expr {
    let here = *place;
    match expr {
        Expr::Lexeme(regular) => {
            *place += 1;
            match cuts.get(&here) {
                Some(cut) => divide(*regular, *cut),
                None => Expr::Lexeme(regular),
            }
        }
        Expr::Rule(_) | Expr::Token(_) => {
            *place += 1;
            expr
        }
        other => other.map(&mut |part| apply(part, cuts, place)),
    }
}

/// The terminals to be divided, by place; `None` if that takes too many steps.
fn find_cuts(bodies: &[Expr], root: usize, overlaps: &mut Overlaps) -> Option<HashMap<usize, Cut>> {
    let flow = Flow::new(bodies, root, &mut overlaps.steps)?;
    let kinds: Vec<SymbolKind> = flow
        .places
        .iter()
        .map(|place| overlaps.kind(&place.leaf.what))
        .collect();
    let large = kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| matches!(kind, SymbolKind::Large));
    let mut cuts: HashMap<usize, Cut> = large.map(|(place, _)| (place, Cut::Open)).collect();
    if cuts.is_empty() {
        Search {
            flow: &flow,
            kinds: &kinds,
            overlaps,
            cuts: &mut cuts,
        }
        .run()?;
    }
    Some(cuts)
}

/// The symbol at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SymbolKind {
    /// A terminal with this automaton.
    Terminal(usize),
    /// A terminal that is too large to look at.
    Large,
    Token,
    Rule,
}

#[derive(Default)]
struct Overlaps {
    known: HashMap<Expr, Option<usize>>,
    automata: Vec<Automaton>,
    pairs: HashMap<(usize, usize), Rc<Overlap>>,
    /// That of terminals which begin differently.
    none: Rc<Overlap>,
    steps: usize,
}

impl Overlaps {
    fn kind(&mut self, leaf: &Leaf<'_>) -> SymbolKind {
        let Leaf::Lexeme(regular) = *leaf else {
            return if matches!(leaf, Leaf::Token) {
                SymbolKind::Token
            } else {
                SymbolKind::Rule
            };
        };
        if !self.known.contains_key(regular) {
            let automaton = Automaton::new(regular).map(|automaton| {
                self.automata.push(automaton);
                self.automata.len() - 1
            });
            self.known.insert(regular.clone(), automaton);
        }
        self.known[regular].map_or(SymbolKind::Large, SymbolKind::Terminal)
    }

    fn of(&mut self, one: usize, other: usize) -> Option<Rc<Overlap>> {
        if !self.automata[one]
            .first_bytes
            .intersects(self.automata[other].first_bytes)
        {
            return Some(Rc::clone(&self.none));
        }
        if let Some(known) = self.pairs.get(&(one, other)) {
            return Some(Rc::clone(known));
        }
        let found = Rc::new(self.automata[one].overlap(&self.automata[other], &mut self.steps)?);
        self.pairs.insert((one, other), Rc::clone(&found));
        Some(found)
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }
}

/// Goes through the pairs of places that may be reached with the same text.
struct Search<'a> {
    flow: &'a Flow<'a>,
    kinds: &'a [SymbolKind],
    overlaps: &'a mut Overlaps,
    cuts: &'a mut HashMap<usize, Cut>,
}

impl Search<'_> {
    /// `None` if there were too many steps.
    fn run(mut self) -> Option<()> {
        let follow = self.follow_bytes()?;
        let mut is_seen = HashSet::from([(self.flow.start, self.flow.start)]);
        let mut open = vec![(self.flow.start, self.flow.start)];
        while let Some((i, j)) = open.pop() {
            for &one in &self.flow.rows[i] {
                for &other in &self.flow.rows[j] {
                    self.overlaps.step()?;
                    if !self.meet(one, other, &follow)? {
                        continue;
                    }
                    let next = (self.flow.next[one], self.flow.next[other]);
                    if is_seen.insert(next) {
                        open.push(next);
                    }
                }
            }
        }
        Some(())
    }

    /// The bytes that may come after each place.
    fn follow_bytes(&mut self) -> Option<Vec<ByteSet>> {
        let mut of_rows = Vec::with_capacity(self.flow.rows.len());
        for row in &self.flow.rows {
            let mut bytes = ByteSet::default();
            for &place in row {
                self.overlaps.step()?;
                if let SymbolKind::Terminal(automaton) = self.kinds[place] {
                    bytes.add(self.overlaps.automata[automaton].first_bytes);
                }
            }
            of_rows.push(bytes);
        }
        Some(self.flow.next.iter().map(|&row| of_rows[row]).collect())
    }

    /// Notes a cut if the second goes on where the first may end; true if both may end together.
    fn meet(&mut self, one: usize, other: usize, follow: &[ByteSet]) -> Option<bool> {
        let (SymbolKind::Terminal(a), SymbolKind::Terminal(b)) =
            (self.kinds[one], self.kinds[other])
        else {
            return Some(self.kinds[one] == self.kinds[other]);
        };
        let overlap = self.overlaps.of(a, b)?;
        let harmful = overlap
            .extensions
            .iter()
            .find(|(bytes, _)| bytes.intersects(follow[one]));
        if let Some(&(_, cut)) = harmful {
            self.cuts.entry(other).or_insert(cut);
        }
        Some(overlap.has_common)
    }
}

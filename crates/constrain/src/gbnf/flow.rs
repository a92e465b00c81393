//! In which order terminals may come: after each place of a grammar, the places that may be next. A
//! rule that ends goes on after any of its uses, whichever it was; so there may be more next places
//! than there really are, never fewer.

use super::expr::Expr;
use super::places::{Ends, LeafPosition, Places};
use std::collections::HashMap;

/// A terminal, token or rule, and the rule whose body holds it.
pub(super) struct Written<'a> {
    pub(super) what: Leaf<'a>,
    rule: usize,
}

pub(super) enum Leaf<'a> {
    Lexeme(&'a Expr),
    Token,
    Rule(usize),
}

/// Rows are the sets of terminals and tokens that may be next somewhere.
pub(super) struct Flow<'a> {
    /// In the order in which they are written.
    pub(super) places: Vec<LeafPosition<Written<'a>>>,
    pub(super) rows: Vec<Vec<usize>>,
    /// The row at the beginning.
    pub(super) start: usize,
    /// The row after each place.
    pub(super) next: Vec<usize>,
    bodies: Vec<Ends>,
    /// Places that name each rule.
    uses: Vec<Vec<usize>>,
}

impl<'a> Flow<'a> {
    /// Subtracts the steps taken from `steps`; `None` if they are too few.
    pub(super) fn new(bodies: &'a [Expr], root: usize, steps: &mut usize) -> Option<Self> {
        let mut builder = Builder {
            places: Places::new(*steps),
            rule: 0,
            uses: vec![Vec::new(); bodies.len()],
        };
        let mut ends = Vec::new();
        for (rule, body) in bodies.iter().enumerate() {
            builder.rule = rule;
            let whole = builder.build(body)?;
            builder.places.finish(&whole);
            ends.push(whole);
        }
        let Builder {
            places: Places { all: places, room },
            uses,
            ..
        } = builder;
        *steps = room;
        let mut flow = Self {
            places,
            rows: Vec::new(),
            start: 0,
            next: Vec::new(),
            bodies: ends,
            uses,
        };
        flow.number_rows(root, steps)?;
        Some(flow)
    }

    fn number_rows(&mut self, root: usize, steps: &mut usize) -> Option<()> {
        let mut numbers = HashMap::new();
        let mut row_of = |row: Vec<usize>, rows: &mut Vec<Vec<usize>>| {
            *numbers.entry(row.clone()).or_insert_with(|| {
                rows.push(row);
                rows.len() - 1
            })
        };
        let mut rows = Vec::new();
        self.start = row_of(self.reach(Walk::enter(self, root), steps)?, &mut rows);
        for place in 0..self.places.len() {
            let number = match self.places[place].leaf.what {
                Leaf::Rule(_) => self.start,
                Leaf::Lexeme(_) | Leaf::Token => {
                    row_of(self.reach(Walk::after(self, place), steps)?, &mut rows)
                }
            };
            self.next.push(number);
        }
        self.rows = rows;
        Some(())
    }

    /// The terminals and tokens that are reached from here, ascending.
    fn reach(&self, mut walk: Walk, steps: &mut usize) -> Option<Vec<usize>> {
        let mut found = Vec::new();
        while let Some(place) = walk.open.pop() {
            match self.places[place].leaf.what {
                Leaf::Rule(rule) => walk.enter_rule(self, rule),
                Leaf::Lexeme(_) | Leaf::Token => found.push(place),
            }
        }
        *steps = steps.checked_sub(walk.n_steps)?;
        found.sort_unstable();
        Some(found)
    }
}

/// Builds the bodies one after the other.
struct Builder<'a> {
    places: Places<Written<'a>>,
    /// The rule that is being built.
    rule: usize,
    uses: Vec<Vec<usize>>,
}

impl<'a> Builder<'a> {
    fn build(&mut self, expr: &'a Expr) -> Option<Ends> {
        match expr {
            Expr::Lexeme(regular) => self.place(Leaf::Lexeme(regular)),
            Expr::Token(_) => self.place(Leaf::Token),
            Expr::Rule(named) => {
                self.uses[*named].push(self.places.all.len());
                self.place(Leaf::Rule(*named))
            }
            Expr::Alt(choices) => choices.iter().try_fold(Ends::NOTHING, |all, choice| {
                Some(all.or(self.build(choice)?))
            }),
            Expr::Repeat(inner, times) => {
                let once = self.build(inner)?;
                let mut ends = if times.max == Some(1) {
                    once
                } else {
                    self.places.again(once)?
                };
                ends.is_nullable |= times.min == 0;
                Some(ends)
            }
            Expr::Seq(_) | Expr::Set(_) => {
                expr.children()
                    .iter()
                    .try_fold(Ends::EMPTY, |before, part| {
                        let after = self.build(part)?;
                        self.places.chain(before, after)
                    })
            }
        }
    }

    fn place(&mut self, leaf: Leaf<'a>) -> Option<Ends> {
        self.places.add(Written {
            what: leaf,
            rule: self.rule,
        })
    }
}

/// The state of a walk to the next terminals.
struct Walk {
    open: Vec<usize>,
    is_seen: Vec<bool>,
    is_entered: Vec<bool>,
    is_left: Vec<bool>,
    n_steps: usize,
}

impl Walk {
    fn new(flow: &Flow<'_>) -> Self {
        let n_rules = flow.bodies.len();
        Self {
            open: Vec::new(),
            is_seen: vec![false; flow.places.len()],
            is_entered: vec![false; n_rules],
            is_left: vec![false; n_rules],
            n_steps: (flow.places.len() + n_rules) / 64,
        }
    }

    fn enter(flow: &Flow<'_>, rule: usize) -> Self {
        let mut walk = Self::new(flow);
        walk.enter_rule(flow, rule);
        walk
    }

    fn after(flow: &Flow<'_>, place: usize) -> Self {
        let mut walk = Self::new(flow);
        walk.leave_places(flow, vec![place]);
        walk
    }

    fn enter_rule(&mut self, flow: &Flow<'_>, rule: usize) {
        if std::mem::replace(&mut self.is_entered[rule], true) {
            return;
        }
        self.add(&flow.bodies[rule].first);
        if flow.bodies[rule].is_nullable {
            self.leave_rule(flow, rule);
        }
    }

    fn leave_rule(&mut self, flow: &Flow<'_>, rule: usize) {
        if !std::mem::replace(&mut self.is_left[rule], true) {
            self.leave_places(flow, flow.uses[rule].clone());
        }
    }

    /// Goes on after these places, and after the rules that end with them.
    fn leave_places(&mut self, flow: &Flow<'_>, mut places: Vec<usize>) {
        while let Some(place) = places.pop() {
            let LeafPosition {
                leaf: Written { rule, .. },
                next,
                is_last,
            } = &flow.places[place];
            self.add(next);
            if *is_last && !std::mem::replace(&mut self.is_left[*rule], true) {
                places.extend(&flow.uses[*rule]);
            }
        }
    }

    fn add(&mut self, places: &[u32]) {
        self.n_steps += 1 + places.len();
        for place in places.iter().map(|&place| place as usize) {
            if !std::mem::replace(&mut self.is_seen[place], true) {
                self.open.push(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expr::Times;
    use super::*;

    fn terminal(c: char) -> Expr {
        Expr::Lexeme(Box::new(Expr::character(c)))
    }

    #[test]
    fn a_rule_goes_on_after_any_of_its_uses() {
        // 0 = "(" 1 ")" | 1 "."; 1 = "x"?: places 0 to 4, and 5.
        let nested = Expr::seq([terminal('('), Expr::Rule(1), terminal(')')]);
        let root = Expr::alt([nested, Expr::seq([Expr::Rule(1), terminal('.')])]);
        let bodies = [root, terminal('x').repeat(Times::OPTIONAL)];
        let flow = Flow::new(&bodies, 0, &mut 1000).unwrap();
        assert_eq!(flow.rows[flow.start], [0, 2, 4, 5]);
        assert_eq!(flow.rows[flow.next[0]], [2, 4, 5]);
        assert_eq!(flow.rows[flow.next[5]], [2, 4]);
        assert!(flow.rows[flow.next[4]].is_empty());
        assert!(Flow::new(&bodies, 0, &mut 3).is_none());
    }
}

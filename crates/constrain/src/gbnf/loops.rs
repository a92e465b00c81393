//! Repetitions of rules with some regular alternatives: each becomes a rule of its own, with the
//! alternatives where the name was, so that the regular ones can be told from the others. Texts
//! stay the same.

use super::expr::{Expr, Times};
use std::collections::HashMap;

/// Parts of a rule that is opened.
const RULE_SIZE: usize = 500;
/// Parts of all copies.
const ALL_SIZE: usize = 20_000;

pub(super) fn open_loops(bodies: &[Expr]) -> Vec<Expr> {
    let mut opener = Opener {
        bodies,
        loops: HashMap::new(),
        open: Vec::new(),
        room: ALL_SIZE,
    };
    let mut opened: Vec<Expr> = bodies
        .iter()
        .map(|body| opener.rewrite(body.clone()))
        .collect();
    let mut n_done = 0;
    while let Some((inner, times)) = opener.open.get(n_done).cloned() {
        let choices = opener.choices(&inner);
        opened.push(opener.rewrite(choices).repeat(times));
        n_done += 1;
    }
    opened
}

struct Opener<'a> {
    bodies: &'a [Expr],
    /// Numbers of the rules that are made, by what they repeat and how often.
    loops: HashMap<(Expr, Times), usize>,
    open: Vec<(Expr, Times)>,
    room: usize,
}

impl Opener<'_> {
    fn rewrite(&mut self, expr: Expr) -> Expr {
        match expr {
            Expr::Repeat(inner, times @ (Times::ANY | Times::SOME)) if self.is_worth(&inner) => {
                let next = self.bodies.len() + self.open.len();
                let key = (*inner, times);
                let rule = *self.loops.entry(key.clone()).or_insert(next);
                if rule == next {
                    self.open.push(key);
                }
                Expr::Rule(rule)
            }
            other if other.is_regular() => other,
            other => other.map(&mut |part| self.rewrite(part)),
        }
    }

    fn is_worth(&self, inner: &Expr) -> bool {
        match inner {
            Expr::Alt(choices) => choices.iter().any(|choice| self.is_worth(choice)),
            Expr::Repeat(inner, Times::OPTIONAL) => self.is_worth(inner),
            Expr::Rule(rule) => is_partly_regular(&self.bodies[*rule]),
            _ => false,
        }
    }

    /// `inner` with names of rules replaced by their alternatives, up to the limit.
    fn choices(&mut self, inner: &Expr) -> Expr {
        match inner {
            Expr::Alt(choices) => Expr::alt(choices.iter().map(|choice| self.choices(choice))),
            Expr::Repeat(inner, Times::OPTIONAL) => self.choices(inner).optional(),
            Expr::Rule(rule) if is_partly_regular(&self.bodies[*rule]) => {
                let body = &self.bodies[*rule];
                let Some(room) = self.room.checked_sub(body.size()) else {
                    return inner.clone();
                };
                self.room = room;
                body.clone()
            }
            other => other.clone(),
        }
    }
}

fn is_partly_regular(body: &Expr) -> bool {
    match body {
        Expr::Alt(choices) => choices.iter().any(Expr::is_regular) && body.size() <= RULE_SIZE,
        Expr::Repeat(inner, Times::OPTIONAL) => is_partly_regular(inner),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn a_loop_in_itself_is_opened_once() {
        let grammar = parse("root ::= item*\nitem ::= \"a\" | \"(\" item* \")\"").unwrap();
        let opened = open_loops(&grammar.bodies);
        let around = Expr::seq([Expr::character('('), Expr::Rule(2), Expr::character(')')]);
        let choices = Expr::alt([Expr::character('a'), around.clone()]);
        assert_eq!(
            opened,
            [Expr::Rule(2), choices.clone(), choices.repeat(Times::ANY)]
        );
    }
}

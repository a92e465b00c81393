//! Makes as much of a grammar regular as simple rewriting can, without changing its texts: rules
//! that end in themselves become repetitions (Arden's lemma), rules that name no others go to where
//! they are named, and so do rules that are named once.
//!
//! A regular expression can be one terminal, and a terminal is cheap. This file does not choose
//! terminals.

use super::error::GbnfError;
use super::expr::{Expr, Times};
use super::parse::{Grammar, limit};

/// No expression is nested deeper than this, so that recursion over one is safe.
pub(super) const MAX_DEPTH: usize = 150;
/// Rules are put into others up to this depth, which leaves room for what later steps wrap around
/// them.
const INLINE_DEPTH: usize = 80;
/// Parts of a rule that is put into others.
const INLINE_SIZE: usize = 2000;
/// Parts of all rules together.
pub(super) const MAX_SIZE: usize = 200_000;

/// Rounds after which the grammar is left as it is, which is right at any time.
const MAX_ROUNDS: usize = 32;

pub(super) fn reduce(grammar: &mut Grammar) -> Result<(), GbnfError> {
    forget_unused(grammar);
    checked_size(grammar)?;
    remove_endless(grammar)?;
    for _ in 0..MAX_ROUNDS {
        forget_unused(grammar);
        for rule in 0..grammar.bodies.len() {
            let body = std::mem::replace(&mut grammar.bodies[rule], Expr::EMPTY);
            grammar.bodies[rule] = without_recursion_at_ends(body, rule);
        }
        let size = checked_size(grammar)?;
        limit(
            "levels of nesting",
            grammar.bodies.iter().map(Expr::depth).max().unwrap_or(0),
            MAX_DEPTH,
        )?;
        if !inline(grammar, MAX_SIZE - size) {
            break;
        }
    }
    forget_unused(grammar);
    Ok(())
}

fn checked_size(grammar: &Grammar) -> Result<usize, GbnfError> {
    let size = grammar.bodies.iter().map(Expr::size).sum();
    limit("parts of the grammar", size, MAX_SIZE)?;
    Ok(size)
}

/// Takes out every alternative that can never end.
fn remove_endless(grammar: &mut Grammar) -> Result<(), GbnfError> {
    let ends = Endings::of(&grammar.bodies);
    for body in &mut grammar.bodies {
        *body = without_endless(std::mem::replace(body, Expr::EMPTY), &ends);
    }
    if ends[grammar.root] {
        Ok(())
    } else {
        Err(GbnfError::Endless)
    }
}

/// What can end, found from the characters up: each part is looked at once. The first nodes are the
/// rules, each waiting for its body; the others are the parts of the bodies.
struct Endings {
    /// Of each node, how many more must be able to end before it can.
    n_missing: Vec<usize>,
    /// Nodes that wait for each node.
    waiting: Vec<Vec<usize>>,
    /// Nodes that can end and have not told those that wait.
    ready: Vec<usize>,
}

impl Endings {
    /// Whether each rule can end.
    fn of(bodies: &[Expr]) -> Vec<bool> {
        let n_missing = vec![1; bodies.len()];
        let waiting = vec![Vec::new(); bodies.len()];
        let mut endings = Self {
            n_missing,
            waiting,
            ready: Vec::new(),
        };
        for (rule, body) in bodies.iter().enumerate() {
            endings.add(body, rule);
        }
        while let Some(node) = endings.ready.pop() {
            for waiting in std::mem::take(&mut endings.waiting[node]) {
                endings.one_less(waiting);
            }
        }
        endings.n_missing[..bodies.len()]
            .iter()
            .map(|&n| n == 0)
            .collect()
    }

    fn add(&mut self, expr: &Expr, waiting: usize) {
        if let Expr::Rule(rule) = expr {
            self.waiting[*rule].push(waiting);
            return;
        }
        let node = self.n_missing.len();
        self.n_missing.push(match expr {
            Expr::Alt(_) => 1,
            Expr::Repeat(_, Times { min: 0, .. }) => 0,
            other => other.children().len(),
        });
        self.waiting.push(vec![waiting]);
        if self.n_missing[node] == 0 {
            self.ready.push(node);
        }
        expr.children().iter().for_each(|part| self.add(part, node));
    }

    fn one_less(&mut self, node: usize) {
        if self.n_missing[node] == 1 {
            self.ready.push(node);
        }
        self.n_missing[node] = self.n_missing[node].saturating_sub(1);
    }
}

fn without_endless(expr: Expr, ends: &[bool]) -> Expr {
    match expr {
        Expr::Rule(rule) if !ends[rule] => Expr::NOTHING,
        other => other.map(&mut |part| without_endless(part, ends)),
    }
}

fn forget_unused(grammar: &mut Grammar) {
    let mut is_used = vec![false; grammar.bodies.len()];
    is_used[grammar.root] = true;
    let mut open = vec![grammar.root];
    while let Some(rule) = open.pop() {
        grammar.bodies[rule].each_rule(&mut |named| {
            if !std::mem::replace(&mut is_used[named], true) {
                open.push(named);
            }
        });
    }
    for (body, is_used) in grammar.bodies.iter_mut().zip(is_used) {
        if !is_used {
            *body = Expr::EMPTY;
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Left,
    Right,
}

/// x = x a | b becomes b a*, and x = a x | b becomes a* b.
fn without_recursion_at_ends(mut body: Expr, rule: usize) -> Expr {
    for end in [End::Left, End::Right] {
        if !body.names(rule) {
            return body;
        }
        let (around, base) = split(&body, rule, end);
        if around != Expr::NOTHING {
            body = join(around.repeat(Times::ANY), base, end);
        }
    }
    body
}

/// `part` before `rest`, or after it if the recursion is on the left.
fn join(part: Expr, rest: Expr, end: End) -> Expr {
    match end {
        End::Left => Expr::seq([rest, part]),
        End::Right => Expr::seq([part, rest]),
    }
}

/// The expression around the rule where the rule is at this end, and the other alternatives.
fn split(expr: &Expr, rule: usize, end: End) -> (Expr, Expr) {
    match expr {
        Expr::Rule(named) if *named == rule => (Expr::EMPTY, Expr::NOTHING),
        Expr::Alt(choices) => {
            let (around, base): (Vec<_>, Vec<_>) = choices
                .iter()
                .map(|choice| split(choice, rule, end))
                .unzip();
            (Expr::alt(around), Expr::alt(base))
        }
        Expr::Repeat(inner, Times::OPTIONAL) => {
            let (around, base) = split(inner, rule, end);
            (around, base.optional())
        }
        Expr::Seq(parts) if !parts.is_empty() => split_sequence(parts, rule, end),
        other => (Expr::NOTHING, other.clone()),
    }
}

fn split_sequence(parts: &[Expr], rule: usize, end: End) -> (Expr, Expr) {
    let (outer, rest) = match end {
        End::Left => (parts.first(), &parts[1..]),
        End::Right => (parts.last(), &parts[..parts.len() - 1]),
    };
    let (around, base) = split(outer.expect("the sequence is not empty"), rule, end);
    let with_rest = |inner| join(Expr::seq(rest.iter().cloned()), inner, end);
    (with_rest(around), with_rest(base))
}

/// Puts rules to where they are named, one level of them (rules that move are filled too, so that a
/// chain takes a logarithmic number of rounds); false if there was nothing to do.
fn inline(grammar: &mut Grammar, room: usize) -> bool {
    let mut inliner = Inliner {
        movable: movable_rules(grammar),
        room,
        is_changed: false,
    };
    for body in &mut grammar.bodies {
        *body = inliner.fill(std::mem::replace(body, Expr::EMPTY), 0);
    }
    inliner.is_changed
}

/// A rule that should stand where it is named.
struct Movable {
    body: Expr,
    depth: usize,
    size: usize,
}

/// How often each rule is named.
fn count_uses(grammar: &Grammar) -> Vec<usize> {
    let mut n_uses = vec![0_usize; grammar.bodies.len()];
    grammar
        .bodies
        .iter()
        .for_each(|body| body.each_rule(&mut |named| n_uses[named] += 1));
    n_uses
}

fn movable_rules(grammar: &Grammar) -> Vec<Option<Movable>> {
    let n_uses = count_uses(grammar);
    let is_movable = |rule: usize, body: &Expr| {
        let mut is_closed = true;
        body.each_rule(&mut |_| is_closed = false);
        rule != grammar.root
            && n_uses[rule] > 0
            && (is_closed || n_uses[rule] == 1 && !body.names(rule))
    };
    let bodies = grammar.bodies.iter().enumerate();
    let measured = |(rule, body): (usize, &Expr)| {
        let depth = body.depth();
        let size = body.size();
        let is_small = depth < INLINE_DEPTH && size <= INLINE_SIZE;
        (is_small && is_movable(rule, body)).then(|| Movable {
            body: body.clone(),
            depth,
            size,
        })
    };
    bodies.map(measured).collect()
}

struct Inliner {
    /// By rule.
    movable: Vec<Option<Movable>>,
    /// Parts by which the grammar may still grow.
    room: usize,
    is_changed: bool,
}

impl Inliner {
    /// An expression with the bodies of rules in place of their names, as far as they fit in;
    /// `level` is its own depth.
    fn fill(&mut self, expr: Expr, level: usize) -> Expr {
        let Expr::Rule(rule) = expr else {
            return expr.map(&mut |part| self.fill(part, level + 1));
        };
        match &self.movable[rule] {
            Some(Movable { body, depth, size })
                if level + depth <= INLINE_DEPTH && *size <= self.room =>
            {
                self.room -= size;
                self.is_changed = true;
                body.clone()
            }
            _ => expr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn root(source: &str) -> Expr {
        let mut grammar = parse(source).unwrap();
        reduce(&mut grammar).unwrap();
        grammar.bodies[grammar.root].clone()
    }

    #[test]
    fn rules_that_end_or_begin_in_themselves_are_repetitions() {
        assert_eq!(
            root("root ::= ws\nws ::= ([ \\t] ws)?"),
            root("root ::= [ \\t]*")
        );
        assert_eq!(
            root("root ::= root \"+\" \"1\" | \"1\""),
            root("root ::= \"1\" (\"+\" \"1\")*")
        );
        assert_eq!(
            root("root ::= a\na ::= \"x\" b | \"y\"\nb ::= \"z\" a | \"w\""),
            root("root ::= (\"x\" \"z\")* (\"x\" \"w\" | \"y\")")
        );
    }

    #[test]
    fn recursion_in_the_middle_stays() {
        assert!(!root("root ::= \"(\" root \")\" | \"x\"").is_regular());
    }

    #[test]
    fn what_never_ends_is_taken_out_or_refused() {
        assert_eq!(
            root("root ::= \"a\" | b\nb ::= \"b\" b"),
            Expr::character('a')
        );
        let mut endless = parse("root ::= \"a\" root").unwrap();
        assert_eq!(reduce(&mut endless), Err(GbnfError::Endless));
    }

    #[test]
    fn rules_that_double_each_other_do_not_grow_without_bounds() {
        let rules: String = (0..60)
            .map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1))
            .collect();
        assert!(!root(&format!("root ::= r0\n{rules}r60 ::= \"a\"")).is_regular());
    }
}

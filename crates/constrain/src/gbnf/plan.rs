//! Which parts of an expression are terminals: at first the largest possible ones, then, where that
//! does harm, the next smaller ones, down to single characters.
//!
//! When a terminal does harm is decided elsewhere (`refine`).

use super::expr::{Expr, Times, Weight};

/// Where a terminal is to be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A sequence, before this part.
    Before(usize),
    /// A sequence, on both sides of this part.
    Around(usize),
    /// A sequence between all its parts, alternatives from each other, a repetition from what it
    /// repeats.
    Open,
}

/// Makes every largest regular part a terminal.
pub(super) fn plan(expr: &Expr) -> Expr {
    if expr.is_regular() {
        return lexeme(expr.clone());
    }
    match expr {
        Expr::Seq(parts) => {
            let runs = parts.chunk_by(|a, b| a.is_regular() && b.is_regular());
            Expr::seq(runs.map(|run| match run {
                [one] => plan(one),
                run => lexeme(Expr::seq(run.iter().cloned())),
            }))
        }
        Expr::Alt(choices) => Expr::alt(choices.iter().map(plan)),
        Expr::Repeat(inner, times) => plan_repeat(inner, *times),
        other => other.clone(),
    }
}

/// Whether nothing but one terminal is left.
pub(super) fn is_one_terminal(planned: &Expr) -> bool {
    match planned {
        Expr::Lexeme(_) => true,
        Expr::Repeat(inner, Times::OPTIONAL) => is_one_terminal(inner),
        _ => false,
    }
}

/// (r | n)* with r regular and n not is r* (n r*)*, so that terminals that follow themselves become
/// one.
fn plan_repeat(inner: &Expr, times: Times) -> Expr {
    let mut choices = Choices::default();
    choices.add(inner);
    if times.max.is_some() || times.min > 1 || choices.regular.is_empty() {
        return plan(inner).repeat(times);
    }
    let regular = || Expr::alt(choices.regular.iter().cloned());
    let between = lexeme(regular().repeat(Times::ANY));
    let others = Expr::alt(choices.others.iter().map(plan));
    let other_first = Expr::seq([others, between.clone()]);
    if times.min == 0 || choices.has_empty {
        return Expr::seq([between, other_first.repeat(Times::ANY)]);
    }
    Expr::alt([
        lexeme(regular().repeat(Times::SOME)),
        Expr::seq([between, other_first.repeat(Times::SOME)]),
    ])
}

/// The alternatives of a repeated expression.
#[derive(Default)]
struct Choices {
    regular: Vec<Expr>,
    others: Vec<Expr>,
    has_empty: bool,
}

impl Choices {
    fn add(&mut self, expr: &Expr) {
        match expr {
            Expr::Alt(choices) => choices.iter().for_each(|choice| self.add(choice)),
            Expr::Repeat(inner, Times::OPTIONAL) => {
                self.has_empty = true;
                self.add(inner);
            }
            regular if regular.is_regular() => self.regular.push(regular.clone()),
            other => self.others.push(other.clone()),
        }
    }
}

/// Parts that may all be empty are repeated when the empty text is taken out, once per part before
/// them. What would grow more than this many times is divided.
const MAX_GROWTH: usize = 8;

/// A terminal for a regular expression; the empty text is left outside, since llguidance has no
/// empty terminals.
fn lexeme(expr: Expr) -> Expr {
    let Weight {
        size,
        solid_size,
        is_nullable,
    } = expr.weigh();
    if solid_size > MAX_GROWTH * size {
        return divide(expr, Cut::Open);
    }
    match expr.solid() {
        Expr::Alt(choices) if choices.is_empty() => {
            if is_nullable {
                Expr::EMPTY
            } else {
                Expr::NOTHING
            }
        }
        solid if is_nullable => Expr::Lexeme(Box::new(solid)).optional(),
        solid => Expr::Lexeme(Box::new(solid)),
    }
}

/// Divides a terminal.
pub(super) fn divide(regular: Expr, cut: Cut) -> Expr {
    match (regular, cut) {
        (Expr::Seq(mut parts), Cut::Before(at)) => {
            let rest = parts.split_off(at);
            Expr::seq([parts, rest].map(|part| lexeme(Expr::seq(part))))
        }
        (Expr::Seq(mut parts), Cut::Around(at)) => {
            let mut middle = parts.split_off(at);
            let rest = middle.split_off(1);
            Expr::seq([parts, middle, rest].map(|part| lexeme(Expr::seq(part))))
        }
        (Expr::Seq(parts), Cut::Open) => Expr::seq(parts.into_iter().map(lexeme)),
        (Expr::Alt(choices), _) => Expr::alt(choices.into_iter().map(lexeme)),
        (Expr::Repeat(inner, times), _) => lexeme(*inner).repeat(times),
        (other, _) => lexeme(other),
    }
}

/// Divides all terminals down to single characters. Their parts may be empty where they stand, so
/// nothing grows.
pub(super) fn into_characters(planned: Expr) -> Expr {
    match planned {
        Expr::Lexeme(regular) => into_characters(*regular),
        Expr::Set(set) => Expr::Lexeme(Box::new(Expr::Set(set))),
        other => other.map(&mut into_characters),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn terminals(expr: &Expr) -> usize {
        match expr {
            Expr::Lexeme(_) => 1,
            other => other.children().iter().map(terminals).sum(),
        }
    }

    fn planned(body: &str) -> Expr {
        plan(&parse(&format!("root ::= {body}")).unwrap().bodies[0])
    }

    #[test]
    fn neighbours_are_one_terminal() {
        assert!(is_one_terminal(&planned("\"a\" [b-c]* (\"d\" | \"e\")?")));
        assert_eq!(terminals(&planned("\"a\" [b]* root \"c\" \"d\"?")), 2);
    }

    #[test]
    fn what_may_be_empty_is_optional_outside() {
        let star = planned("[a]*");
        let Expr::Repeat(inner, Times::OPTIONAL) = &star else {
            panic!("{star:?}");
        };
        assert!(matches!(**inner, Expr::Lexeme(_)));
        assert_eq!(terminals(&planned(&"[a]? ".repeat(10))), 1);
        assert_eq!(terminals(&planned(&"[a]? ".repeat(100))), 100);
        assert_eq!(
            terminals(&planned(&format!("({})+", "[a]? ".repeat(100)))),
            100
        );
    }

    #[test]
    fn a_loop_keeps_its_regular_alternatives_together() {
        // [a-c]* (root [a-c]*)*
        assert_eq!(terminals(&planned("([a-b]+ | \"c\" | root)*")), 2);
    }

    #[test]
    fn division_goes_down_to_characters() {
        let both = Expr::seq([
            Expr::character('a').repeat(Times::SOME),
            Expr::character('b'),
            Expr::character('c'),
        ]);
        assert_eq!(terminals(&divide(both.clone(), Cut::Before(1))), 2);
        assert_eq!(terminals(&divide(both.clone(), Cut::Around(1))), 3);
        assert_eq!(terminals(&divide(both, Cut::Open)), 3);
        let loop_of_one = divide(Expr::character('a').repeat(Times::SOME), Cut::Open);
        assert_eq!(
            loop_of_one,
            lexeme(Expr::character('a')).repeat(Times::SOME)
        );
        assert_eq!(
            terminals(&into_characters(planned(
                "(\"ab\" | [a-c]{2} | \"d\")* root"
            ))),
            4
        );
    }
}

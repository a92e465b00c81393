//! Planned expressions as Lark in llguidance's dialect: rules `r0 r1 …`, terminals `T0 T1 …` with a
//! regular expression each. Nothing is decided here.

use super::charset::CharSet;
use super::error::GbnfError;
use super::expr::{Expr, Times};
use super::parse::limit;
use std::collections::HashMap;
use std::fmt::Write;

/// llguidance compiles rules by recursion: rules in rules and groups in them, along the longest
/// way. With a stack of 2 MiB it takes 1,500 levels, not 2,500.
const MAX_LEVELS: usize = 400;
/// llguidance allows 29 groups in one another.
const MAX_GROUPS: usize = 12;

pub(super) fn emit(bodies: &[Expr], root: usize) -> Result<String, GbnfError> {
    let mut emitter = Emitter {
        bodies,
        is_written: vec![false; bodies.len()],
        n_rules: bodies.len(),
        terminals: HashMap::new(),
        lark: format!("start: r{root}\n"),
    };
    emitter.rule(root, 0)?;
    Ok(emitter.lark)
}

struct Emitter<'a> {
    bodies: &'a [Expr],
    is_written: Vec<bool>,
    /// Rules of the grammar, and those that were made because of too many groups.
    n_rules: usize,
    terminals: HashMap<&'a Expr, usize>,
    lark: String,
}

impl<'a> Emitter<'a> {
    /// Writes a rule and, before it, those that it needs.
    fn rule(&mut self, rule: usize, level: usize) -> Result<(), GbnfError> {
        if !std::mem::replace(&mut self.is_written[rule], true) {
            let body = self.body(&self.bodies[rule], 0, level + 1)?;
            self.define(&format!("r{rule}"), &body);
        }
        Ok(())
    }

    fn define(&mut self, name: &str, body: &str) {
        writeln!(self.lark, "{name}: {body}").expect("a string takes whatever is written");
    }

    /// The text of an expression, that can stand between others.
    fn body(&mut self, expr: &'a Expr, n_groups: usize, level: usize) -> Result<String, GbnfError> {
        limit("rules and groups in one another", level, MAX_LEVELS)?;
        match expr {
            Expr::Rule(rule) => {
                self.rule(*rule, level)?;
                Ok(format!("r{rule}"))
            }
            Expr::Token(token) => Ok(token.clone()),
            Expr::Lexeme(regular) => Ok(self.terminal(regular)),
            Expr::Seq(parts) | Expr::Alt(parts) if parts.is_empty() => Ok("\"\"".to_owned()),
            _ if n_groups == MAX_GROUPS => {
                let body = self.body(expr, 0, level + 1)?;
                let name = format!("r{}", self.n_rules);
                self.n_rules += 1;
                self.define(&name, &body);
                Ok(name)
            }
            Expr::Repeat(inner, times) => Ok(format!(
                "({}){}",
                self.body(inner, n_groups + 1, level + 1)?,
                suffix(*times)
            )),
            Expr::Alt(choices) => Ok(format!("({})", self.all(choices, " | ", n_groups, level)?)),
            Expr::Seq(_) | Expr::Set(_) => self.all(expr.children(), " ", n_groups, level),
        }
    }

    fn all(
        &mut self,
        parts: &'a [Expr],
        between: &str,
        n: usize,
        level: usize,
    ) -> Result<String, GbnfError> {
        let texts: Result<Vec<String>, _> = parts
            .iter()
            .map(|part| self.body(part, n + 1, level + 1))
            .collect();
        Ok(texts?.join(between))
    }

    fn terminal(&mut self, regular: &'a Expr) -> String {
        if let Some(number) = self.terminals.get(regular) {
            return format!("T{number}");
        }
        let name = format!("T{}", self.terminals.len());
        self.terminals.insert(regular, self.terminals.len());
        let mut regex = String::new();
        write_regex(regular, &mut regex);
        self.define(&name, &format!("/{regex}/"));
        name
    }
}

fn suffix(times: Times) -> String {
    match times {
        Times::ANY => "*".to_owned(),
        Times::SOME => "+".to_owned(),
        Times::OPTIONAL => "?".to_owned(),
        Times {
            min,
            max: Some(max),
        } if min == max => format!("{{{min}}}"),
        Times { min, max } => format!(
            "{{{min},{}}}",
            max.map_or(String::new(), |max| max.to_string())
        ),
    }
}

fn write_regex(expr: &Expr, out: &mut String) {
    match expr {
        Expr::Set(set) => write_set(set, out),
        Expr::Repeat(inner, times) => {
            group(std::slice::from_ref(inner), out);
            out.push_str(&suffix(*times));
        }
        Expr::Alt(choices) => group(choices, out),
        other => other
            .children()
            .iter()
            .for_each(|part| write_regex(part, out)),
    }
}

/// Alternatives in parentheses; one single character needs none.
fn group(choices: &[Expr], out: &mut String) {
    match choices {
        [one @ Expr::Set(_)] => return write_regex(one, out),
        [Expr::Alt(inner)] => return group(inner, out),
        _ => {}
    }
    for (i, choice) in choices.iter().enumerate() {
        out.push_str(if i == 0 { "(?:" } else { "|" });
        write_regex(choice, out);
    }
    out.push(')');
}

fn write_set(set: &CharSet, out: &mut String) {
    if let [(low, high)] = set.ranges()
        && low == high
    {
        return write_scalar(*low, out);
    }
    out.push('[');
    for &(low, high) in set.ranges() {
        write_scalar(low, out);
        if low < high {
            out.push('-');
            write_scalar(high, out);
        }
    }
    out.push(']');
}

fn write_scalar(scalar: u32, out: &mut String) {
    match char::from_u32(scalar) {
        Some(c) if c.is_ascii_alphanumeric() => out.push(c),
        _ => write!(out, "\\x{{{scalar:x}}}").expect("a string takes whatever is written"),
    }
}

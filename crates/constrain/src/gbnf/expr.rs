//! Grammars as expressions over characters, built only through constructors that keep them small:
//! sequences in sequences are flattened, single characters in alternatives are one set, what
//! matches nothing disappears.
//!
//! Nothing here knows how a grammar is written or to what it is translated.

use super::charset::CharSet;

/// How often: at least `min` times, and at most `max` if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Times {
    pub(super) min: u32,
    pub(super) max: Option<u32>,
}

impl Times {
    pub(super) const ANY: Self = Self { min: 0, max: None };
    pub(super) const SOME: Self = Self { min: 1, max: None };
    pub(super) const OPTIONAL: Self = Self {
        min: 0,
        max: Some(1),
    };

    /// `*`, `+` and `?`: nesting two of them gives one of the three.
    fn is_simple(self) -> bool {
        self.min <= 1 && matches!(self.max, None | Some(1))
    }
}

/// What a text may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    /// One character.
    Set(CharSet),
    /// One after another; without members: the empty text.
    Seq(Vec<Expr>),
    /// One of these; without members: no text at all.
    Alt(Vec<Expr>),
    Repeat(Box<Expr>, Times),
    /// The rule with this number.
    Rule(usize),
    /// A token of the vocabulary, as llguidance writes it.
    Token(String),
    /// Regular and never empty: matched as one terminal.
    Lexeme(Box<Expr>),
}

impl Expr {
    pub(super) const EMPTY: Self = Self::Seq(Vec::new());
    pub(super) const NOTHING: Self = Self::Alt(Vec::new());

    pub(super) fn character(c: char) -> Self {
        Self::Set(CharSet::new([(u32::from(c), u32::from(c))]))
    }

    pub(super) fn seq(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::Seq(inner) => flat.extend(inner),
                Self::Alt(inner) if inner.is_empty() => return Self::NOTHING,
                other => flat.push(other),
            }
        }
        if flat.len() == 1 {
            flat.remove(0)
        } else {
            Self::Seq(flat)
        }
    }

    pub(super) fn alt(choices: impl IntoIterator<Item = Self>) -> Self {
        let mut set = Vec::new();
        let mut rest = Vec::new();
        let mut has_empty = false;
        let mut sort = |choice| match choice {
            Self::Set(one) => set.extend_from_slice(one.ranges()),
            Self::Seq(inner) if inner.is_empty() => has_empty = true,
            other => rest.push(other),
        };
        for choice in choices {
            match choice {
                Self::Alt(inner) => inner.into_iter().for_each(&mut sort),
                other => sort(other),
            }
        }
        if !set.is_empty() {
            rest.insert(0, Self::Set(CharSet::new(set)));
        }
        let one = if rest.len() == 1 {
            rest.remove(0)
        } else {
            Self::Alt(rest)
        };
        if has_empty { Self::optional(one) } else { one }
    }

    pub(super) fn optional(self) -> Self {
        self.repeat(Times::OPTIONAL)
    }

    pub(super) fn repeat(self, times: Times) -> Self {
        if times.max == Some(0) || self == Self::EMPTY {
            return Self::EMPTY;
        }
        if self == Self::NOTHING {
            return if times.min == 0 {
                Self::EMPTY
            } else {
                Self::NOTHING
            };
        }
        match self {
            one if times
                == (Times {
                    min: 1,
                    max: Some(1),
                }) =>
            {
                one
            }
            Self::Repeat(inner, within) if within.is_simple() && times.is_simple() => {
                let max = if within.max.is_none() || times.max.is_none() {
                    None
                } else {
                    Some(1)
                };
                Self::Repeat(
                    inner,
                    Times {
                        min: within.min * times.min,
                        max,
                    },
                )
            }
            one => Self::Repeat(Box::new(one), times),
        }
    }

    /// The parts directly within.
    pub(super) fn children(&self) -> &[Self] {
        match self {
            Self::Seq(parts) | Self::Alt(parts) => parts,
            Self::Repeat(inner, _) | Self::Lexeme(inner) => std::slice::from_ref(inner),
            Self::Set(_) | Self::Rule(_) | Self::Token(_) => &[],
        }
    }

    /// The same with other parts.
    pub(super) fn map(self, change: &mut dyn FnMut(Self) -> Self) -> Self {
        match self {
            Self::Seq(parts) => Self::seq(parts.into_iter().map(change)),
            Self::Alt(choices) => Self::alt(choices.into_iter().map(change)),
            Self::Repeat(inner, times) => change(*inner).repeat(times),
            other => other,
        }
    }

    /// Visits every rule that is named.
    pub(super) fn each_rule(&self, visit: &mut dyn FnMut(usize)) {
        if let Self::Rule(rule) = self {
            visit(*rule);
        }
        for part in self.children() {
            part.each_rule(visit);
        }
    }

    pub(super) fn names(&self, rule: usize) -> bool {
        let mut found = false;
        self.each_rule(&mut |named| found |= named == rule);
        found
    }

    /// Whether this is a regular expression: no rules, no tokens.
    pub(super) fn is_regular(&self) -> bool {
        !matches!(self, Self::Rule(_) | Self::Token(_) | Self::Lexeme(_))
            && self.children().iter().all(Self::is_regular)
    }

    /// Whether a regular expression matches the empty text.
    pub(super) fn is_nullable(&self) -> bool {
        match self {
            Self::Seq(parts) => parts.iter().all(Self::is_nullable),
            Self::Alt(choices) => choices.iter().any(Self::is_nullable),
            Self::Repeat(inner, times) => times.min == 0 || inner.is_nullable(),
            Self::Set(_) | Self::Rule(_) | Self::Token(_) | Self::Lexeme(_) => false,
        }
    }

    /// A regular expression for the same texts but the empty one.
    pub(super) fn solid(self) -> Self {
        if !self.is_nullable() {
            return self;
        }
        match self {
            Self::Seq(parts) => solid_sequence(parts),
            Self::Alt(choices) => Self::alt(choices.into_iter().map(Self::solid)),
            Self::Repeat(inner, Times { max, .. }) => inner.solid().repeat(Times { min: 1, max }),
            other => other,
        }
    }

    /// Levels of nesting.
    pub(super) fn depth(&self) -> usize {
        1 + self.children().iter().map(Self::depth).max().unwrap_or(0)
    }

    /// Number of parts, and of ranges of characters.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Set(set) => set.ranges().len(),
            other => 1 + other.children().iter().map(Self::size).sum::<usize>(),
        }
    }

    /// Of a regular expression, in one pass, so that it can be asked before `solid` is.
    pub(super) fn weigh(&self) -> Weight {
        let parts: Vec<Weight> = self.children().iter().map(Self::weigh).collect();
        let size = match self {
            Self::Set(set) => set.ranges().len(),
            _ => 1 + parts.iter().map(|part| part.size).sum::<usize>(),
        };
        let is_nullable = match self {
            Self::Seq(_) => parts.iter().all(|part| part.is_nullable),
            Self::Repeat(_, Times { min: 0, .. }) => true,
            _ => parts.iter().any(|part| part.is_nullable),
        };
        let solid_size = match self {
            _ if !is_nullable => size,
            Self::Seq(_) => solid_sequence_size(&parts),
            _ => 1 + parts.iter().map(|part| part.solid_size).sum::<usize>(),
        };
        Weight {
            size,
            solid_size,
            is_nullable,
        }
    }
}

/// How large a regular expression is, and how large it would be without the empty text.
pub(super) struct Weight {
    pub(super) size: usize,
    /// Not less than the size of what `solid` returns.
    pub(super) solid_size: usize,
    pub(super) is_nullable: bool,
}

/// Of parts that may all be empty, one is the first that is not.
fn solid_sequence(parts: Vec<Expr>) -> Expr {
    let first = |i: usize| {
        Expr::seq(std::iter::once(parts[i].clone().solid()).chain(parts[i + 1..].iter().cloned()))
    };
    Expr::alt((0..parts.len()).map(first))
}

/// The size of `solid_sequence`, which holds a part once for every part before it, and once more.
fn solid_sequence_size(parts: &[Weight]) -> usize {
    let mut after = 0;
    let mut all = 1_usize;
    for part in parts.iter().rev() {
        all = all.saturating_add(part.solid_size.saturating_add(1 + after));
        after += part.size;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a() -> Expr {
        Expr::character('a')
    }

    #[test]
    fn simple_repetitions_of_each_other_are_one() {
        assert_eq!(a().repeat(Times::SOME).optional(), a().repeat(Times::ANY));
        assert_eq!(a().optional().repeat(Times::SOME), a().repeat(Times::ANY));
        assert_eq!(a().optional().optional(), a().optional());
        assert_eq!(
            a().repeat(Times {
                min: 0,
                max: Some(0)
            }),
            Expr::EMPTY
        );
    }

    #[test]
    fn nothing_ends_a_sequence_and_is_no_choice() {
        assert_eq!(Expr::seq([a(), Expr::NOTHING]), Expr::NOTHING);
        assert_eq!(Expr::alt([a(), Expr::NOTHING]), a());
        assert_eq!(Expr::NOTHING.repeat(Times::ANY), Expr::EMPTY);
    }

    #[test]
    fn what_is_solid_is_never_empty() {
        let both = Expr::seq([a().optional(), a().repeat(Times::ANY)]);
        assert!(both.is_nullable());
        assert!(!both.solid().is_nullable());
        assert_eq!(Expr::EMPTY.solid(), Expr::NOTHING);
    }

    #[test]
    fn nothing_solid_is_larger_than_was_foretold() {
        let both = || Expr::seq([a().optional(), a().repeat(Times::ANY)]);
        let nested = Expr::seq([
            both().repeat(Times::SOME),
            Expr::alt([both(), a()]),
            both().optional(),
        ]);
        for expr in [
            a(),
            Expr::EMPTY,
            both(),
            nested,
            Expr::seq((0..50).map(|_| a().optional())),
        ] {
            let Weight {
                size,
                solid_size,
                is_nullable,
            } = expr.weigh();
            assert_eq!((size, is_nullable), (expr.size(), expr.is_nullable()));
            assert!(expr.solid().size() <= solid_size);
        }
    }
}

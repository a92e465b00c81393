//! GBNF by definition: which spans of a text each rule matches, found by repeating until nothing
//! changes. And random grammars, with texts for them.

use std::fmt::{Display, Formatter, Result, Write};

/// A small generator of random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| random.0 = random.next());
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n
    }

    /// A text with up to three characters put in, taken out, or moved.
    pub(crate) fn change(&mut self, text: &str) -> String {
        let mut characters: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(3) {
            let from = self.below(characters.len());
            let to = self.below(characters.len());
            match self.below(3) {
                0 => characters.insert(to, characters[from]),
                1 => drop(characters.remove(to)),
                _ => characters.swap(from, to),
            }
        }
        characters.into_iter().collect()
    }
}

enum Node {
    Literal(String),
    Class(bool, Vec<(char, char)>),
    Any,
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

pub(crate) struct RandomGrammar(Vec<Node>);

const ALPHABET: &[char] = &['a', 'b', 'c', ' ', 'é', 'è', '日', '本'];
const CLASSES: &[&[(char, char)]] = &[
    &[('a', 'b')],
    &[('a', 'c')],
    &[(' ', ' '), ('c', 'c')],
    &[('é', 'é')],
    &[('a', 'a'), ('é', '日')],
    &[('b', 'c')],
];
/// Texts are cut to this many characters, so that ends fit into 32 bits and the naive way takes
/// bearable time.
const MAX_CHARACTERS: usize = 16;

impl RandomGrammar {
    pub(crate) fn new(random: &mut Random) -> Self {
        let n_rules = 1 + random.below(5);
        Self((0..n_rules).map(|_| choice(random, n_rules, 0)).collect())
    }

    /// Texts that follow the grammar as far as they go, such texts with a change, and any texts.
    pub(crate) fn texts(&self, random: &mut Random, n: usize) -> Vec<String> {
        (0..n).map(|i| self.text(random, i)).collect()
    }

    fn text(&self, random: &mut Random, i: usize) -> String {
        let mut text = Vec::new();
        if i % 4 == 3 {
            let n = random.below(8);
            text.extend((0..n).map(|_| ALPHABET[random.below(ALPHABET.len())]));
        } else {
            let mut fuel = 60;
            self.derive(&self.0[0], random, &mut fuel, &mut text);
        }
        text.truncate(MAX_CHARACTERS);
        if i % 4 == 2 && !text.is_empty() {
            let at = random.below(text.len());
            match random.below(3) {
                0 => drop(text.remove(at)),
                1 => text[at] = ALPHABET[random.below(ALPHABET.len())],
                _ => text.insert(at, text[at]),
            }
        }
        text.into_iter().take(MAX_CHARACTERS).collect()
    }

    fn derive(&self, node: &Node, random: &mut Random, fuel: &mut usize, text: &mut Vec<char>) {
        if *fuel == 0 || text.len() > MAX_CHARACTERS {
            return;
        }
        *fuel -= 1;
        match node {
            Node::Literal(literal) => text.extend(literal.chars()),
            Node::Class(..) | Node::Any => {
                let offset = random.below(ALPHABET.len());
                let mut characters = ALPHABET.iter().cycle().skip(offset).take(ALPHABET.len());
                text.extend(characters.find(|&&c| fits(node, c)));
            }
            Node::Rule(rule) => self.derive(&self.0[*rule], random, fuel, text),
            Node::Sequence(parts) => parts
                .iter()
                .for_each(|part| self.derive(part, random, fuel, text)),
            Node::Choice(choices) => {
                self.derive(&choices[random.below(choices.len())], random, fuel, text)
            }
            Node::Repeat(inner, min, max) => {
                let times = min + random.below(max.unwrap_or(min + 2) - min + 1);
                (0..times).for_each(|_| self.derive(inner, random, fuel, text));
            }
        }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let mut spans = vec![vec![0_u32; text.len() + 1]; self.0.len()];
        loop {
            let before = spans.clone();
            for (rule, body) in self.0.iter().enumerate() {
                for from in 0..=text.len() {
                    spans[rule][from] = ends(body, &text, from, &spans);
                }
            }
            if spans == before {
                return spans[0][0] >> text.len() & 1 == 1;
            }
        }
    }

    /// Whether there is any text, judged without looking at characters.
    pub(crate) fn is_productive(&self) -> bool {
        let mut ends = vec![false; self.0.len()];
        for _ in 0..=self.0.len() {
            ends = self.0.iter().map(|body| can_end(body, &ends)).collect();
        }
        ends[0]
    }
}

fn can_end(node: &Node, ends: &[bool]) -> bool {
    match node {
        Node::Rule(rule) => ends[*rule],
        Node::Sequence(parts) => parts.iter().all(|part| can_end(part, ends)),
        Node::Choice(choices) => choices.iter().any(|choice| can_end(choice, ends)),
        Node::Repeat(inner, min, _) => *min == 0 || can_end(inner, ends),
        Node::Literal(_) | Node::Class(..) | Node::Any => true,
    }
}

fn choice(random: &mut Random, n_rules: usize, depth: usize) -> Node {
    let n = 1 + random.below(3);
    Node::Choice((0..n).map(|_| sequence(random, n_rules, depth)).collect())
}

fn sequence(random: &mut Random, n_rules: usize, depth: usize) -> Node {
    let n = if random.below(8) == 0 {
        0
    } else {
        1 + random.below(4)
    };
    Node::Sequence((0..n).map(|_| item(random, n_rules, depth)).collect())
}

fn item(random: &mut Random, n_rules: usize, depth: usize) -> Node {
    let one = match random.below(10) {
        0..=3 => {
            let n = 1 + random.below(3);
            Node::Literal(
                (0..n)
                    .map(|_| ALPHABET[random.below(ALPHABET.len())])
                    .collect(),
            )
        }
        4 | 5 => Node::Class(
            random.below(5) == 0,
            CLASSES[random.below(CLASSES.len())].to_vec(),
        ),
        6 if depth < 3 => choice(random, n_rules, depth + 1),
        6 => Node::Any,
        _ => Node::Rule(random.below(n_rules)),
    };
    let (min, max) = match random.below(9) {
        0 => (0, None),
        1 => (1, None),
        2 => (0, Some(1)),
        3 => {
            let min = random.below(3);
            (min, [None, Some(min + random.below(3))][random.below(2)])
        }
        _ => return one,
    };
    Node::Repeat(Box::new(one), min, max)
}

fn fits(node: &Node, c: char) -> bool {
    match node {
        Node::Class(is_negated, ranges) => {
            ranges.iter().any(|&(low, high)| low <= c && c <= high) != *is_negated
        }
        _ => true,
    }
}

/// Bit i: the node may match from here to i.
fn ends(node: &Node, text: &[char], from: usize, spans: &[Vec<u32>]) -> u32 {
    let after = |starts: u32, node: &Node| {
        (0..=text.len())
            .filter(|i| starts >> i & 1 == 1)
            .map(|i| ends(node, text, i, spans))
            .fold(0, |a, b| a | b)
    };
    match node {
        Node::Literal(literal) => {
            let n = literal.chars().count();
            let found =
                text.len() >= from + n && literal.chars().eq(text[from..from + n].iter().copied());
            u32::from(found) << (from + n).min(31)
        }
        Node::Class(..) | Node::Any => {
            u32::from(text.get(from).is_some_and(|&c| fits(node, c))) << (from + 1)
        }
        Node::Rule(rule) => spans[*rule][from],
        Node::Sequence(parts) => parts.iter().fold(1 << from, after),
        Node::Choice(choices) => choices
            .iter()
            .fold(0, |all, choice| all | after(1 << from, choice)),
        Node::Repeat(inner, min, max) => {
            let mut reached = (0..*min).fold(1 << from, |starts, _| after(starts, inner));
            let mut all = reached;
            for _ in 0..max.map_or(text.len() + 1, |max| max - min) {
                reached = after(reached, inner);
                all |= reached;
            }
            all
        }
    }
}

impl Display for RandomGrammar {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (rule, body) in self.0.iter().enumerate() {
            let name = if rule == 0 {
                "root".to_owned()
            } else {
                format!("r-{rule}")
            };
            writeln!(f, "{name} ::= {body}")?;
        }
        Ok(())
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Literal(literal) => write!(f, "\"{literal}\""),
            Self::Class(is_negated, ranges) => {
                f.write_str(if *is_negated { "[^" } else { "[" })?;
                ranges
                    .iter()
                    .try_for_each(|(low, high)| write!(f, "{low}-{high}"))?;
                f.write_char(']')
            }
            Self::Any => f.write_char('.'),
            Self::Rule(0) => f.write_str("root"),
            Self::Rule(rule) => write!(f, "r-{rule}"),
            Self::Sequence(parts) => parts.iter().try_for_each(|part| write!(f, "{part} ")),
            Self::Choice(choices) => {
                f.write_char('(')?;
                for (i, choice) in choices.iter().enumerate() {
                    write!(f, "{}{choice}", if i == 0 { "" } else { "| " })?;
                }
                f.write_char(')')
            }
            Self::Repeat(inner, 0, None) => write!(f, "{inner}*"),
            Self::Repeat(inner, 1, None) => write!(f, "{inner}+"),
            Self::Repeat(inner, 0, Some(1)) => write!(f, "{inner}?"),
            Self::Repeat(inner, min, None) => write!(f, "{inner}{{{min},}}"),
            Self::Repeat(inner, min, Some(max)) => write!(f, "{inner}{{{min},{max}}}"),
        }
    }
}

//! Parsers of option values. An error says which values are expected.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::PathBuf,
    str::FromStr,
};

/// A limit beyond every model and machine.
const MAX_POSITIONS: usize = 1 << 24;
/// More threads than any machine has cores; the operating system may refuse more.
const MAX_THREADS: usize = 1024;
const MAX_CPU: usize = 65_535;

/// The argument of `--tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// Ids on the command line.
    Ids(Vec<u32>),
    /// `@FILE`.
    File(PathBuf),
    /// `-`: standard input.
    Stdin,
}

/// A number of positions or of tokens computed at once: at least 1.
pub(crate) fn positions(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_POSITIONS)
}

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_THREADS)
}

/// Threads of single tokens, and of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCounts {
    pub(crate) decode: usize,
    pub(crate) prompt: usize,
}

impl ThreadCounts {
    /// So many for both.
    pub(crate) fn both(n: usize) -> Self {
        Self {
            decode: n,
            prompt: n,
        }
    }
}

/// `N`, or `DECODE,PROMPT`.
pub(crate) fn thread_counts(text: &str) -> Result<ThreadCounts, String> {
    let Some((decode, prompt)) = text.split_once(',') else {
        return threads(text).map(ThreadCounts::both);
    };
    Ok(ThreadCounts {
        decode: threads(decode)?,
        prompt: threads(prompt)?,
    })
}

/// A count without a limit of its own; 0 has a meaning.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "expected a whole number, 0 or more".to_owned())
}

/// The seed of the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seed {
    Fixed(u64),
    /// A new seed for each run.
    Random,
}

impl Seed {
    /// The seed to use now.
    pub(crate) fn now(self) -> u64 {
        match self {
            Self::Fixed(seed) => seed,
            Self::Random => random_seed(),
        }
    }
}

/// A number of tokens; -1: no limit.
pub(crate) fn n_tokens(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(usize::MAX),
        _ => text
            .parse()
            .map_err(|_| "expected a whole number, 0 or more, or -1 for no limit".to_owned()),
    }
}

/// A seed, or -1 for a random one.
pub(crate) fn seed(text: &str) -> Result<Seed, String> {
    if text == "-1" {
        return Ok(Seed::Random);
    }
    text.parse().map(Seed::Fixed).map_err(|_| {
        format!(
            "expected a whole number from 0 to {}, or -1 for a random one",
            u64::MAX
        )
    })
}

/// A seed from the random keys that the system gives each hasher.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A token and the addition to its logit, such as `15043+1` or `2-inf`.
pub(crate) fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let at = text.find(['+', '-'])?;
        let (id, bias) = text.split_at(at);
        // `1+-1` is refused: the sign belongs to the syntax, not to the number.
        let is_unsigned = !bias[1..].starts_with(['+', '-']);
        Some((
            id.parse().ok()?,
            bias.parse::<f32>()
                .ok()
                .filter(|bias| is_unsigned && !bias.is_nan())?,
        ))
    };
    parse().ok_or_else(|| "expected a token id and a bias, such as 15043+1 or 2-inf".to_owned())
}

/// A number; the sampler checks its range.
pub(crate) fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// A probability.
pub(crate) fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    number.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// A part of a model's quality.
pub(crate) fn quality(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|q| *q > 0.0 && *q <= 1.0);
    number.ok_or_else(|| "expected a number above 0 and at most 1".to_owned())
}

/// The argument of `--ram-budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RamBudget {
    /// The available memory.
    Auto,
    /// A limit in bytes.
    Bytes(u64),
}

impl RamBudget {
    /// The bytes, if a number was given.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// A number of bytes as [`size`] has it, or `auto`.
pub(crate) fn budget(text: &str) -> Result<RamBudget, String> {
    match text {
        "auto" => Ok(RamBudget::Auto),
        _ => size(text)
            .map(RamBudget::Bytes)
            .map_err(|expected| expected + ", or auto"),
    }
}

/// The power of two that a unit of bytes stands for.
fn exponent(unit: &str) -> Option<u8> {
    match unit.to_ascii_lowercase().as_str() {
        "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    }
}

/// A number of bytes with a unit of 1024, such as `256M`, `1.5G`, `64MiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bytes = number
        .parse::<f64>()
        .ok()
        .zip(exponent(unit))
        .map(|(number, exponent)| number * f64::from(exponent).exp2());
    match bytes {
        Some(bytes) if (1.0..1e18).contains(&bytes) => Ok(bytes as u64),
        _ => Err(
            "expected a number and a unit (K, M, G, T in powers of 1024, or B), \
             such as 256M or 1.5G"
                .to_owned(),
        ),
    }
}

/// A number of bytes as in [`size`], or 0 for none.
pub(crate) fn size_or_0(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => size(text),
    }
}

/// A number of positions, or 0 for as many as the model says.
pub(crate) fn positions_or_0(text: &str) -> Result<usize, String> {
    within(text, 0, MAX_POSITIONS)
}

pub(crate) fn within(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let number = usize::from_str(text)
        .ok()
        .filter(|n| (min..=max).contains(n));
    number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
}

/// CPUs as the kernel writes them, such as `0,2-5`, in the order given; each at most once.
pub(crate) fn cpus(text: &str) -> Result<CpuList, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let range = cpu_range(part).ok_or("expected CPUs such as 0,2-5")?;
        cpus.extend(range);
        if cpus.len() > MAX_THREADS {
            return Err(format!("expected at most {MAX_THREADS} CPUs"));
        }
    }
    match (1..cpus.len()).find(|&i| cpus[..i].contains(&cpus[i])) {
        Some(i) => Err(format!("CPU {} is named twice", cpus[i])),
        None => Ok(CpuList(cpus)),
    }
}

/// The CPUs to run on. A newtype, since clap reads a `Vec` as an option that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

fn cpu_range(part: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let cpu = |text: &str| text.trim().parse().ok().filter(|&n: &usize| n <= MAX_CPU);
    let first = cpu(first)?;
    let last = cpu(last)?;
    (first <= last).then_some(first..=last)
}

/// `1,2,3`, `@FILE` or `-`.
pub(crate) fn token_source(text: &str) -> Result<TokenSource, String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(TokenSource::File(path.into())),
        None if text == "-" => Ok(TokenSource::Stdin),
        None => token_ids(text).map(TokenSource::Ids),
    }
}

/// Ids separated by commas or spaces, with or without brackets around them; at least one.
pub(crate) fn token_ids(text: &str) -> Result<Vec<u32>, String> {
    let inner = text.trim_start_matches('\u{feff}').trim();
    let inner = inner
        .strip_prefix('[')
        .and_then(|t| t.strip_suffix(']'))
        .unwrap_or(inner);
    let words = inner
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty());
    let ids: Vec<u32> = words
        .map(|word| {
            word.parse()
                .map_err(|_| format!("{word:?} is no token id, expected ids such as 1,2,3"))
        })
        .collect::<Result<_, _>>()?;
    if ids.is_empty() {
        Err("there is no token id, expected ids such as 1,2,3".to_owned())
    } else {
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_of_1024() {
        let bytes = |text| budget(text).map(|size| size.bytes());
        for (text, size) in [
            ("7b", 7),
            ("2k", 2048),
            ("1.5M", 3 << 19),
            ("64MiB", 64 << 20),
            ("1gb", 1 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(bytes(text), Ok(Some(size)), "{text}");
        }
        assert_eq!(bytes("auto"), Ok(None));
        for text in [
            "",
            "0",
            "7",
            "256",
            "-1M",
            "5iii",
            "256Mbbb",
            "1..5G",
            "M",
            "1e9",
            "9999999999G",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_lists_are_ranges_in_the_order_given() {
        assert_eq!(cpus("0,2-5"), Ok(CpuList(vec![0, 2, 3, 4, 5])));
        assert_eq!(cpus("7, 1"), Ok(CpuList(vec![7, 1])));
        for bad in [
            "",
            ",",
            "1,",
            "5-2",
            "a",
            "1-2-3",
            "-1",
            "0-99999999999",
            "1,0-3",
        ] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bias_is_an_id_and_a_number_with_its_sign() {
        assert_eq!(logit_bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(logit_bias("2-0.5e-1"), Ok((2, -0.05)));
        assert_eq!(logit_bias("2-inf"), Ok((2, f32::NEG_INFINITY)));
        for bad in ["", "1", "+1", "-1+1", "1+", "a+1", "1+-1", "1+nan", "1:2"] {
            assert!(logit_bias(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_ids_are_read_as_tokenize_writes_them() {
        assert_eq!(token_source("1,2,3"), Ok(TokenSource::Ids(vec![1, 2, 3])));
        assert_eq!(token_ids("\u{feff}[1, 2,\n 3]\n"), Ok(vec![1, 2, 3]));
        assert_eq!(token_source("-"), Ok(TokenSource::Stdin));
        assert_eq!(token_source("@a b"), Ok(TokenSource::File("a b".into())));
        for bad in ["", "[]", "1;2", "-1", "1,x", "4294967296", "[1"] {
            assert!(token_source(bad).is_err(), "{bad}");
        }
    }
}

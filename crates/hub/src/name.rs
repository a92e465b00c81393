//! Checked names of repositories, revisions and files. A name that passed is safe in a path and in
//! a URL.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::Error;

/// The Hub's limit for the organization and for the name of a repository, bytes.
const MAX_PART_BYTES: usize = 96;
/// Longest accepted path of a file in a repository, bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Longest accepted name of one directory or file, bytes: the limit of most file systems.
const MAX_COMPONENT_BYTES: usize = 255;

/// The id of a model repository, `org/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepoId(String);

impl RepoId {
    /// The name of its directory in the cache, `models--org--name`.
    pub(crate) fn directory(&self) -> String {
        format!("models--{}", self.0.replace('/', "--"))
    }

    /// The repository of a directory in the cache.
    pub(crate) fn from_directory(name: &str) -> Option<Self> {
        name.strip_prefix("models--")?
            .replacen("--", "/", 1)
            .parse()
            .ok()
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RepoId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_name = text
            .split_once('/')
            .is_some_and(|(org, name)| is_part(org) && is_part(name));
        let why = "expected org/name, each of letters, digits, `-`, `_` and `.`";
        if is_name {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::Name {
                what: "repository",
                name: text.to_owned(),
                why,
            })
        }
    }
}

/// Whether `part` is a valid organization or repository name by the rules of the Hub. Two hyphens
/// in a row are not, so that directory names in the cache are unique.
fn is_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ends_well = part.starts_with(is_word) && part.ends_with(is_word);
    let is_plain = part.chars().all(|c| is_word(c) || c == '-' || c == '.');
    ends_well
        && is_plain
        && part.len() <= MAX_PART_BYTES
        && !part.contains("--")
        && !part.contains("..")
}

/// A branch, a tag, `refs/pr/1`, or a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(String);

impl Revision {
    /// The revision as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the revision is a commit hash, which unlike a branch or tag never moves.
    pub(crate) fn is_commit(&self) -> bool {
        is_commit(&self.0)
    }
}

impl Default for Revision {
    fn default() -> Self {
        Self("main".to_owned())
    }
}

impl FromStr for Revision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        check_path("revision", text).map(|()| Self(text.to_owned()))
    }
}

/// What to download: a repository, a revision, and which of the files. Parsed from `ORG/REPO` or
/// `ORG/REPO:FILE_OR_QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The repository.
    pub repo: RepoId,
    /// The path of a file, or a quantization such as `q4_k_m`. If absent, a four-bit quantization
    /// is preferred.
    pub file_or_quant: Option<String>,
    /// The branch, tag or commit.
    pub revision: Revision,
}

impl FromStr for Request {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (repo, wanted) = text
            .split_once(':')
            .map_or((text, None), |(repo, wanted)| (repo, Some(wanted)));
        let repo = repo.parse()?;
        wanted.map_or(Ok(()), |wanted| check_path("file", wanted))?;
        Ok(Self {
            repo,
            file_or_quant: wanted.map(str::to_owned),
            revision: Revision::default(),
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repo)?;
        self.file_or_quant
            .as_ref()
            .map_or(Ok(()), |wanted| write!(f, ":{wanted}"))
    }
}

/// Whether `text` is a commit hash.
pub(crate) fn is_commit(text: &str) -> bool {
    is_hash(text, 40)
}

/// Whether `text` is a hash of `n_digits` lower-case hexadecimal digits, and so a safe file name.
pub(crate) fn is_hash(text: &str, n_digits: usize) -> bool {
    text.len() == n_digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Refuses paths that could leave their directory, on any operating system.
pub(crate) fn check_path(what: &'static str, path: &str) -> Result<(), Error> {
    match path_problem(path) {
        None => Ok(()),
        Some(why) => Err(Error::Name {
            what,
            name: path.to_owned(),
            why,
        }),
    }
}

fn path_problem(path: &str) -> Option<&'static str> {
    let is_special =
        |c: char| c == '\\' || is_invisible(c) || (cfg!(windows) && "<>:\"|?*".contains(c));
    match path {
        _ if path.is_empty() => Some("is empty"),
        _ if path.len() > MAX_PATH_BYTES => Some("is too long"),
        _ if path.contains(is_special) => Some("has a character that is not allowed"),
        _ if path
            .split('/')
            .any(|part| part.is_empty() || part == "." || part == "..") =>
        {
            Some("leaves its directory")
        }
        _ if path.split('/').any(|part| part.len() > MAX_COMPONENT_BYTES) => {
            Some("has a part that is too long")
        }
        _ => None,
    }
}

/// Characters that could manipulate a terminal: control characters, line separators, and marks that
/// change the direction of text.
fn is_invisible(c: char) -> bool {
    let is_bidi = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A checked path with the operating system's separators.
pub(crate) fn native(path: &str) -> PathBuf {
    path.split('/').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_id_has_two_plain_parts() {
        for good in [
            "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
            "a/b",
            "_x/y_",
            "a.b/c-d",
        ] {
            let repo: RepoId = good.parse().unwrap();
            assert_eq!(RepoId::from_directory(&repo.directory()), Some(repo));
        }
        for bad in [
            "", "a", "a/", "/a", "a/b/c", "../b", "a/..", "a--b/c", "-a/b", "a/b.", "a b/c", "ä/b",
            "a\\b/c", "a/b\n",
        ] {
            assert!(bad.parse::<RepoId>().is_err(), "{bad}");
        }
        assert!(format!("a/{}", "b".repeat(97)).parse::<RepoId>().is_err());
    }

    #[test]
    fn a_request_may_name_a_file() {
        let request: Request = "a/b:sub/m-Q4_K_M.gguf".parse().unwrap();
        assert_eq!(
            (
                request.repo.to_string().as_str(),
                request.file_or_quant.as_deref()
            ),
            ("a/b", Some("sub/m-Q4_K_M.gguf"))
        );
        assert_eq!(request.to_string(), "a/b:sub/m-Q4_K_M.gguf");
        assert_eq!("a/b".parse::<Request>().unwrap().file_or_quant, None);
        for bad in [
            "a/b:",
            "a/b:../c",
            "a/b:/etc/passwd",
            "a/b:c//d",
            "a/b:c\\d",
            "a/b:\u{1b}[2J",
        ] {
            assert!(bad.parse::<Request>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_stays_below_its_directory() {
        let long = "a/".repeat(600) + "b";
        for bad in [
            "",
            "..",
            "a/../b",
            "/a",
            "a/",
            "./a",
            "a\0b",
            "a\\..\\b",
            "a\u{9b}",
            "a\u{202e}b",
            &long,
            &"x".repeat(256),
        ] {
            assert!(check_path("file", bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b..c", "...", "refs/pr/1", "Modell ä.gguf"] {
            assert!(check_path("file", good).is_ok(), "{good}");
        }
    }
}

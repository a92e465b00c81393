//! Hugging Face's environment variables and cache, and models by the names of their repositories.
//!
//! The variables are those of Hugging Face's own programs. Only `atta pull` uses the network.

use std::{
    borrow::Cow,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use atta_hub::{Cache, Error, HubOptions, Proxy, Request};

use crate::failure::Failure;

/// The most repositories that an error lists.
const MAX_LISTED: usize = 10;

/// The cache of pulled files.
pub(crate) fn cache() -> Result<Cache, Failure> {
    let directory = variable("HF_HUB_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(home()?.join("hub")));
    let directory = directory
        .ok_or_else(|| Failure::Failed("no place for models is known: set HF_HOME".to_owned()))?;
    Ok(Cache::new(directory))
}

/// The options of a connection to the hub.
pub(crate) fn options() -> Result<HubOptions, Failure> {
    let endpoint = variable("HF_ENDPOINT").map(|text| text.to_string_lossy().into_owned());
    Ok(HubOptions {
        endpoint: endpoint.unwrap_or_else(|| HubOptions::default().endpoint),
        token: token()?,
        proxy: Proxy::Environment,
        ..HubOptions::default()
    })
}

/// Whether HF_HUB_OFFLINE forbids to use the network.
pub(crate) fn is_offline() -> bool {
    let value = variable("HF_HUB_OFFLINE").map(|text| text.to_string_lossy().to_ascii_uppercase());
    value.is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.as_str()))
}

/// The file that MODEL names: a path, or the file of a pulled model.
pub(crate) fn locate(model: &Path) -> Result<PathBuf, Failure> {
    match request(model) {
        Some(request) if !model.exists() => find(&request),
        _ => Ok(model.to_owned()),
    }
}

/// The file or directory that SRC names: a path, or a pulled repository.
#[cfg(feature = "convert")]
pub(crate) fn locate_source(source: &Path) -> Result<PathBuf, Failure> {
    let Some(request) = request(source).filter(|_| !source.exists()) else {
        return Ok(source.to_owned());
    };
    let cache = cache()?;
    cache
        .find(&request)?
        .map(|pulled| pulled.path)
        .ok_or_else(|| absent(&request, &cache))
}

/// The name of a repository, and of a file in it if there is one, in the form of `atta pull`, from
/// a URL that Hugging Face's site offers: `https://huggingface.co/org/repo`, `hf.co/org/repo:Q8_0`,
/// the URL of a file.
pub(crate) fn name_of(text: &str) -> Cow<'_, str> {
    let address = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .unwrap_or(text);
    let hosts = ["huggingface.co/", "www.huggingface.co/", "hf.co/"];
    let Some(path) = hosts.iter().find_map(|host| address.strip_prefix(host)) else {
        return text.into();
    };
    let path = path
        .split(['?', '#'])
        .next()
        .unwrap_or(path)
        .trim_end_matches('/');
    let mut parts = path.splitn(5, '/');
    let (Some(org), Some(repo), what) = (parts.next(), parts.next(), parts.next()) else {
        return path.into();
    };
    match (what, parts.next(), parts.next()) {
        (Some("blob" | "resolve"), Some(_), Some(file)) => format!("{org}/{repo}:{file}").into(),
        (None, ..) | (Some("tree"), ..) => format!("{org}/{repo}").into(),
        _ => path.into(),
    }
}

/// The repository that MODEL names. `models/a.gguf` has the form of a name too, but is a mistyped
/// path.
fn request(model: &Path) -> Option<Request> {
    let request: Request = name_of(model.to_str()?).parse().ok()?;
    let is_path = request.file_or_quant.is_none()
        && model
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    (!is_path).then_some(request)
}

fn find(request: &Request) -> Result<PathBuf, Failure> {
    let cache = cache()?;
    match cache.find(request) {
        Ok(Some(pulled)) if pulled.path.is_dir() => Err(Failure::Failed(format!(
            "{request}: it has no GGUF file; `atta convert {} model.gguf` makes one",
            pulled.path.display()
        ))),
        Ok(Some(pulled)) => Ok(pulled.path),
        Ok(None) => Err(absent(request, &cache)),
        Err(error @ Error::Selection { .. }) => Err(Failure::Failed(format!(
            "{error}; to get it: `atta pull {request}`"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// The error of a repository that was not pulled.
pub(crate) fn absent(request: &Request, cache: &Cache) -> Failure {
    let repos = cache.repositories().unwrap_or_default();
    let mut names: Vec<String> = repos
        .iter()
        .take(MAX_LISTED)
        .map(ToString::to_string)
        .collect();
    if repos.len() > MAX_LISTED {
        names.push(format!("{} more", repos.len() - MAX_LISTED));
    }
    let there = if names.is_empty() {
        "is empty".to_owned()
    } else {
        format!("has {}", names.join(", "))
    };
    Failure::Failed(format!(
        "{request}: neither a file nor in the cache {}, which {there}; to get it: `atta pull \
         {request}`",
        cache.root().display()
    ))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The access token, from the environment or from the file of `hf auth login`.
fn token() -> Result<Option<String>, Failure> {
    if let Some(token) = variable("HF_TOKEN") {
        return Ok(Some(token.to_string_lossy().trim().to_owned()));
    }
    let Some(path) = home()
        .map(|home| home.join("token"))
        .filter(|path| path.exists())
    else {
        return Ok(None);
    };
    let token = fs::read_to_string(&path).map_err(|error| Failure::at(&path, error))?;
    Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// The directory of Hugging Face's programs.
fn home() -> Option<PathBuf> {
    let cache = || {
        variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(env::home_dir()?.join(".cache")))
    };
    variable("HF_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(cache()?.join("huggingface")))
}

/// An environment variable that is not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_site_are_names() {
        let names = [
            ("org/repo:q4_0", "org/repo:q4_0"),
            ("https://huggingface.co/org/repo", "org/repo"),
            ("https://huggingface.co/org/repo/tree/main", "org/repo"),
            ("hf.co/org/repo:Q8_0", "org/repo:Q8_0"),
            ("https://hf.co/org/repo/", "org/repo"),
            (
                "https://huggingface.co/org/repo/blob/main/q/m.gguf",
                "org/repo:q/m.gguf",
            ),
            (
                "https://huggingface.co/org/repo/resolve/main/m.gguf?download=true",
                "org/repo:m.gguf",
            ),
            (
                "https://example.com/org/repo",
                "https://example.com/org/repo",
            ),
        ];
        for (text, name) in names {
            assert_eq!(name_of(text), name, "{text}");
        }
    }

    #[test]
    fn paths_are_told_from_names() {
        for name in ["org/repo", "org/repo:q4_0", "org/repo:m.gguf", "a.b/c-d"] {
            assert!(request(Path::new(name)).is_some(), "{name}");
        }
        for path in [
            "model.gguf",
            "models/m.gguf",
            "models/m.GGUF",
            "./a/b",
            "/a/b",
            "a/b/c",
            "../a",
        ] {
            assert!(request(Path::new(path)).is_none(), "{path}");
        }
    }
}

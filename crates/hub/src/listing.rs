//! What a repository holds: the Hub's JSON, read with limits.

use serde_json::Value;

use crate::{
    Error, Event,
    digest::Digest,
    http::{Get, Http, Subject, Trouble, answer_error, trouble},
    name::{Request, check_path, is_commit},
    patience::Patience,
    url::Url,
};

/// Longest answer that is read, bytes. A thousand files take about half a megabyte.
const MAX_JSON_BYTES: u64 = 8 << 20;
/// The most answers that one list may come in; the Hub puts a thousand files into each.
const MAX_PAGES: usize = 100;
/// The most files of a repository.
const MAX_FILES: usize = 100_000;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// From the root of the repository, checked.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// Whom to ask, what for, and how patiently.
pub(crate) struct Asking<'a> {
    pub(crate) http: &'a Http,
    pub(crate) request: &'a Request,
    pub(crate) patience: Patience,
    pub(crate) observer: &'a mut dyn FnMut(Event<'_>),
}

impl Asking<'_> {
    /// The commit that the revision is now.
    pub(crate) fn commit(&mut self) -> Result<String, Error> {
        let url = self
            .api()
            .with_path(&["revision", self.request.revision.as_str()]);
        let (json, _) = self.json(&url)?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        commit
            .map(str::to_owned)
            .ok_or_else(|| garbage(&url, "there is no commit in its answer"))
    }

    /// All files of a commit.
    pub(crate) fn entries(&mut self, commit: &str) -> Result<Vec<Entry>, Error> {
        let mut next = Some(
            self.api()
                .with_path(&["tree", commit])
                .with_query("recursive=true"),
        );
        let mut entries = Vec::new();
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { return Ok(entries) };
            let (json, following) = self.json(&url)?;
            let page = json
                .as_array()
                .ok_or_else(|| garbage(&url, "its answer is no list of files"))?;
            for value in page.iter().filter(|value| value["type"] == "file") {
                entries.push(entry(&url, value)?);
            }
            next = following;
            if entries.len() > MAX_FILES {
                break;
            }
        }
        match next {
            None if entries.len() <= MAX_FILES => Ok(entries),
            _ => Err(garbage(
                self.http.endpoint(),
                "its list of files does not end",
            )),
        }
    }

    /// `ENDPOINT/api/models/ORG/NAME`. The slash stays a slash.
    fn api(&self) -> Url {
        let repo = self.request.repo.to_string();
        let parts: Vec<&str> = ["api", "models"]
            .into_iter()
            .chain(repo.split('/'))
            .collect();
        self.http.endpoint().with_path(&parts)
    }

    /// An answer, and the address of the one that goes on with it.
    fn json(&mut self, url: &Url) -> Result<(Value, Option<Url>), Error> {
        loop {
            match self.json_once(url) {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Hitch(hitch)) => self.patience.bear(hitch, self.observer)?,
                Err(Trouble::Final(error)) => return Err(error),
            }
        }
    }

    fn json_once(&self, url: &Url) -> Result<(Value, Option<Url>), Trouble> {
        let subject = Subject::Revision(&self.request.repo, &self.request.revision);
        let mut answer = self.http.send(&Get {
            url,
            headers: &[],
            subject,
        })?;
        let next = answer.header("link").and_then(next_link).map(|link| {
            let next = url.join(link).filter(|next| self.http.is_ours(next));
            next.ok_or_else(|| {
                answer_error(
                    url,
                    "its list of files goes on at an address that cannot be used",
                )
            })
        });
        let next = next.transpose()?;
        let bytes = answer
            .body()
            .with_config()
            .limit(MAX_JSON_BYTES)
            .read_to_vec()
            .map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => answer_error(url, "its answer is too long"),
                other => trouble(url, &other),
            })?;
        let json = serde_json::from_slice(&bytes)
            .map_err(|_| answer_error(url, "its answer is no JSON"))?;
        Ok((json, next))
    }
}

/// An answer that makes no sense.
fn garbage(url: &Url, why: &str) -> Error {
    Error::Answer {
        url: url.shown().to_owned(),
        why: why.to_owned(),
    }
}

fn entry(url: &Url, value: &Value) -> Result<Entry, Error> {
    let path = value["path"]
        .as_str()
        .ok_or_else(|| garbage(url, "a file without a path"))?;
    check_path("the hub lists a file", path)?;
    let lfs = value.get("lfs").filter(|lfs| lfs.is_object());
    let (bytes, digest) = match lfs {
        Some(lfs) => {
            let oid = lfs["oid"]
                .as_str()
                .map(|oid| oid.trim_start_matches("sha256:"));
            (&lfs["size"], oid.and_then(Digest::sha256))
        }
        None => (
            &value["size"],
            value["oid"].as_str().and_then(Digest::git_blob),
        ),
    };
    let sized = bytes.as_u64().zip(digest);
    let (bytes, digest) =
        sized.ok_or_else(|| garbage(url, &format!("no size or no hash of the file {path:?}")))?;
    Ok(Entry {
        path: path.to_owned(),
        bytes,
        digest,
    })
}

/// The address with `rel="next"` in a `Link` header (RFC 8288).
fn next_link(header: &str) -> Option<&str> {
    let links = header.split('<').filter_map(|link| link.split_once('>'));
    links
        .into_iter()
        .find(|(_, parameters)| parameters.contains("rel=\"next\""))
        .map(|(url, _)| url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Entry, Error> {
        entry(&Url::parse("http://h").unwrap(), &value)
    }

    #[test]
    fn a_large_file_goes_by_its_own_hash_and_a_small_one_by_that_of_git() {
        let (sha, git) = ("a".repeat(64), "b".repeat(40));
        let large = json!({ "path": "m.gguf", "size": 9, "oid": git, "lfs": { "oid": sha, "size": 9, "pointerSize": 1 } });
        assert_eq!(read(large).unwrap().digest, Digest::Sha256(sha));
        let small = json!({ "path": "c/d", "size": 9, "oid": git });
        assert_eq!(
            read(small).unwrap(),
            Entry {
                path: "c/d".into(),
                bytes: 9,
                digest: Digest::GitBlob(git)
            }
        );
    }

    #[test]
    fn an_entry_that_lacks_something_or_leaves_its_directory_is_an_error() {
        let git = "b".repeat(40);
        for bad in [
            json!({}),
            json!({ "path": "a", "size": 1 }),
            json!({ "path": "a", "oid": git }),
            json!({ "path": "a", "size": -1, "oid": git }),
            json!({ "path": "../a", "size": 1, "oid": git }),
            json!({ "path": "/a", "size": 1, "oid": git }),
            json!({ "path": "a", "size": 1, "oid": "../../../../../../../../../etc/cron.d/x" }),
            json!({ "path": "a", "size": 1, "oid": git, "lfs": { "oid": git, "size": 1 } }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_next_link_is_found_among_others() {
        assert_eq!(
            next_link(r#"<http://a?b,c>; rel="prev", <http://d>; rel="next""#),
            Some("http://d")
        );
        assert_eq!(next_link(r#"<http://a>; rel="prev""#), None);
    }
}

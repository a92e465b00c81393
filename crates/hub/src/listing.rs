//! The commit and the files of a revision, from the Hub's JSON API, read with limits.

use serde_json::Value;

use crate::{
    Error, Event,
    digest::Digest,
    http::{GetRequest, Http, RequestError, Subject, bad_response, client_error},
    name::{Request, check_path, is_commit},
    retry::Retries,
    url::Url,
};

/// Longer JSON is refused, bytes. A page of a thousand files takes about half a megabyte.
const MAX_JSON_BYTES: u64 = 8 << 20;
/// The most pages of a file list; the Hub puts a thousand files into each.
const MAX_PAGES: usize = 100;
/// The most files of a repository.
const MAX_FILES: usize = 100_000;

/// A file in the tree of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// Path from the root of the repository, checked.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// The Hub's JSON API for one request.
pub(crate) struct HubApi<'a> {
    pub(crate) http: &'a Http,
    pub(crate) request: &'a Request,
    pub(crate) retries: Retries,
    pub(crate) on_event: &'a mut dyn FnMut(Event<'_>),
}

impl HubApi<'_> {
    /// Resolves the revision to a commit.
    pub(crate) fn commit(&mut self) -> Result<String, Error> {
        let url = self
            .api()
            .with_path(&["revision", self.request.revision.as_str()]);
        let (json, _) = self.json(&url)?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        commit
            .map(str::to_owned)
            .ok_or_else(|| invalid_response(&url, "the response has no commit"))
    }

    /// Lists all files of a commit.
    pub(crate) fn entries(&mut self, commit: &str) -> Result<Vec<TreeEntry>, Error> {
        let mut next = Some(
            self.api()
                .with_path(&["tree", commit])
                .with_query("recursive=true"),
        );
        let mut entries = Vec::new();
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { return Ok(entries) };
            let (json, following) = self.json(&url)?;
            entries.extend(files_of_page(&url, &json)?);
            next = following;
            if entries.len() > MAX_FILES {
                break;
            }
        }
        match next {
            None if entries.len() <= MAX_FILES => Ok(entries),
            _ => Err(invalid_response(
                self.http.endpoint(),
                "the list of files does not end",
            )),
        }
    }

    /// `ENDPOINT/api/models/ORG/NAME`. The slash between organization and name is not escaped.
    fn api(&self) -> Url {
        let repo = self.request.repo.to_string();
        let parts: Vec<&str> = ["api", "models"]
            .into_iter()
            .chain(repo.split('/'))
            .collect();
        self.http.endpoint().with_path(&parts)
    }

    /// Requests JSON, with retries. Returns it with the URL of the next page.
    fn json(&mut self, url: &Url) -> Result<(Value, Option<Url>), Error> {
        loop {
            match self.json_once(url) {
                Ok(response) => return Ok(response),
                Err(RequestError::Transient(error)) => {
                    self.retries.back_off(error, self.on_event)?
                }
                Err(RequestError::Final(error)) => return Err(error),
            }
        }
    }

    fn json_once(&self, url: &Url) -> Result<(Value, Option<Url>), RequestError> {
        let subject = Subject::Revision(&self.request.repo, &self.request.revision);
        let mut response = self.http.send(&GetRequest {
            url,
            headers: &[],
            subject,
        })?;
        let next = response.header("link").and_then(next_link).map(|link| {
            let next = url.join(link).filter(|next| self.http.is_ours(next));
            next.ok_or_else(|| {
                bad_response(
                    url,
                    "the next page of the list of files has a URL that cannot be used",
                )
            })
        });
        let next = next.transpose()?;
        let bytes = response
            .body()
            .with_config()
            .limit(MAX_JSON_BYTES)
            .read_to_vec()
            .map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => bad_response(url, "the response is too long"),
                other => client_error(url, &other),
            })?;
        let json = serde_json::from_slice(&bytes)
            .map_err(|_| bad_response(url, "the response is no JSON"))?;
        Ok((json, next))
    }
}

/// A response that cannot be used.
fn invalid_response(url: &Url, why: &str) -> Error {
    Error::Response {
        url: url.shown().to_owned(),
        why: why.to_owned(),
    }
}

/// The files in one page of a list.
fn files_of_page(url: &Url, json: &Value) -> Result<Vec<TreeEntry>, Error> {
    let page = json
        .as_array()
        .ok_or_else(|| invalid_response(url, "the response is no list of files"))?;
    page.iter()
        .filter(|value| value["type"] == "file")
        .map(|value| entry(url, value))
        .collect()
}

fn size_and_digest(value: &Value) -> Option<(u64, Digest)> {
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
    bytes.as_u64().zip(digest)
}

fn entry(url: &Url, value: &Value) -> Result<TreeEntry, Error> {
    let path = value["path"]
        .as_str()
        .ok_or_else(|| invalid_response(url, "a file without a path"))?;
    check_path("the hub lists a file", path)?;
    let (bytes, digest) = size_and_digest(value).ok_or_else(|| {
        invalid_response(url, &format!("no size or no hash of the file {path:?}"))
    })?;
    Ok(TreeEntry {
        path: path.to_owned(),
        bytes,
        digest,
    })
}

/// The URL with `rel="next"` in a `Link` header (RFC 8288).
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

    fn read(value: Value) -> Result<TreeEntry, Error> {
        entry(&Url::parse("http://h").unwrap(), &value)
    }

    #[test]
    fn an_lfs_file_has_a_sha256_and_another_a_git_hash() {
        let sha = "a".repeat(64);
        let git = "b".repeat(40);
        let lfs = json!({ "oid": sha, "size": 9, "pointerSize": 1 });
        let large = json!({ "path": "m.gguf", "size": 9, "oid": git, "lfs": lfs });
        assert_eq!(read(large).unwrap().digest, Digest::Sha256(sha));
        let small = json!({ "path": "c/d", "size": 9, "oid": git });
        assert_eq!(
            read(small).unwrap(),
            TreeEntry {
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

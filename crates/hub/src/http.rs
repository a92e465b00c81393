//! Asking the Hub: who gets to see the token, where a redirect may lead, and which failures may
//! pass.

use std::time::Duration;

use ureq::{
    Agent, Body,
    http::{Response, StatusCode},
};

use crate::{
    Error,
    name::{RepoId, Revision},
    patience::Hitch,
    url::Url,
};

/// More redirects than any honest server needs.
const MAX_REDIRECTS: usize = 10;

/// How the Hub is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the Hub. Connections are encrypted unless it begins with `http://`.
    pub endpoint: String,
    /// The secret that says who asks. Nobody but the endpoint gets to see it.
    pub token: Option<String>,
    /// Through what connections are made.
    pub proxy: Proxy,
    /// How many failures in a row are put up with.
    pub n_retries: u32,
    /// How long to wait after the first failure; after each further one twice as long.
    pub pause: Duration,
    /// How long a server may say nothing.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            proxy: Proxy::None,
            n_retries: 5,
            pause: Duration::from_millis(500),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Through what connections are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Nothing.
    None,
    /// What `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    Environment,
}

/// What a request is about, for the message if it is refused.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Revision(&'a RepoId, &'a Revision),
    File(&'a RepoId, &'a str),
}

/// A request.
pub(crate) struct Get<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) subject: Subject<'a>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may go better next time.
    Hitch(Hitch),
    /// It will not.
    Final(Error),
}

/// Whom we ask.
pub(crate) struct Http {
    agent: Agent,
    endpoint: Url,
    token: Option<String>,
}

impl Http {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let endpoint = Url::parse(&options.endpoint).ok_or_else(|| {
            Error::Option(format!(
                "{:?} is no address of a hub: expected https://…",
                options.endpoint
            ))
        })?;
        let is_secret =
            |token: &String| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        if options
            .token
            .as_ref()
            .is_some_and(|token| !is_secret(token))
        {
            // Without the token itself: errors are shown, logged and sent to strangers.
            return Err(Error::Option(
                "the token for the hub has characters that no token has".to_owned(),
            ));
        }
        Ok(Self {
            agent: agent(options),
            endpoint,
            token: options.token.clone(),
        })
    }

    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// Asks, and follows where it is sent.
    pub(crate) fn send(&self, get: &Get<'_>) -> Result<Answer, Trouble> {
        let mut url = get.url.clone();
        let mut linked_etag = None;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&url, get)?;
            linked_etag =
                linked_etag.or_else(|| header(&response, "x-linked-etag").map(hash_of_etag));
            if !response.status().is_redirection() {
                return self.judge(
                    Answer {
                        url,
                        linked_etag,
                        response,
                    },
                    get.subject,
                );
            }
            url = redirect(&url, &response)?;
        }
        Err(answer_error(get.url, "it sends us in circles"))
    }

    fn send_once(&self, url: &Url, get: &Get<'_>) -> Result<Response<Body>, Trouble> {
        let mut request = self.agent.get(url.as_str());
        for (name, value) in get.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| self.is_ours(url)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| trouble(url, &error))
    }

    /// Whether this is the Hub itself and not another server that it refers to.
    pub(crate) fn is_ours(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    fn judge(&self, answer: Answer, subject: Subject<'_>) -> Result<Answer, Trouble> {
        let status = answer.response.status();
        match status.as_u16() {
            200 | 206 | 416 => Ok(answer),
            408 | 429 | 500..=599 => {
                Err(answer.hitch(&format!("the server answers with status {status}")))
            }
            // Addresses on the servers that keep the bytes hold for a while; the Hub gives us a new
            // one.
            401 | 403 if !self.is_ours(&answer.url) => {
                Err(answer.hitch(&format!("the storage refuses ({status})")))
            }
            401 | 403 | 404 => Err(Trouble::Final(refusal(&answer, status, subject))),
            other => Err(Trouble::Final(Error::Status {
                url: answer.url.shown().to_owned(),
                status: other,
            })),
        }
    }
}

/// A response that is worth reading.
pub(crate) struct Answer {
    /// Where it came from in the end.
    pub(crate) url: Url,
    /// The hash that the Hub gives for what it links to.
    pub(crate) linked_etag: Option<String>,
    response: Response<Body>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.response, name)
    }

    pub(crate) fn body(&mut self) -> &mut Body {
        self.response.body_mut()
    }

    /// A failure of this answer that may pass.
    pub(crate) fn hitch(&self, why: &str) -> Trouble {
        // Dates are not understood; then our own pause has to do.
        let retry_after = self
            .header("retry-after")
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs);
        Trouble::Hitch(Hitch {
            url: self.url.shown().to_owned(),
            why: why.to_owned(),
            retry_after,
        })
    }
}

/// An answer that nothing can be done with.
pub(crate) fn answer_error(url: &Url, why: &str) -> Trouble {
    Trouble::Final(Error::Answer {
        url: url.shown().to_owned(),
        why: why.to_owned(),
    })
}

/// What a failure between the machines comes to.
pub(crate) fn trouble(url: &Url, error: &ureq::Error) -> Trouble {
    let (url, why) = (url.shown().to_owned(), error.to_string());
    match error {
        ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::ConnectionFailed
        | ureq::Error::Protocol(_) => Trouble::Hitch(Hitch {
            url,
            why,
            retry_after: None,
        }),
        _ => Trouble::Final(Error::Connection { url, why }),
    }
}

/// A connection that did not hold.
pub(crate) fn hitch(url: &Url, why: &str) -> Trouble {
    Trouble::Hitch(Hitch {
        url: url.shown().to_owned(),
        why: why.to_owned(),
        retry_after: None,
    })
}

/// The hash in an entity tag: `"abc"`, or `W/"abc"` if it holds for another encoding of the same.
pub(crate) fn hash_of_etag(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

fn agent(options: &Options) -> Agent {
    let proxy = match options.proxy {
        Proxy::None => None,
        Proxy::Environment => ureq::Proxy::try_from_env(),
    };
    let config = Agent::config_builder()
        .user_agent(concat!("atta/", env!("CARGO_PKG_VERSION")))
        .proxy(proxy)
        .http_status_as_error(false)
        // We follow ourselves, so as to know who gets the token.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(options.timeout))
        .timeout_recv_response(Some(options.timeout))
        .timeout_per_read(Some(options.timeout))
        .build();
    config.new_agent()
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Where a redirect leads; never from an encrypted connection to one that is not.
fn redirect(url: &Url, response: &Response<Body>) -> Result<Url, Trouble> {
    let target = header(response, "location").and_then(|location| url.join(location));
    let target = target.filter(|target| target.is_https() || !url.is_https());
    target.ok_or_else(|| answer_error(url, "it sends us to an address that cannot be used"))
}

fn refusal(answer: &Answer, status: StatusCode, subject: Subject<'_>) -> Error {
    let code = answer.header("x-error-code").unwrap_or_default();
    let (Subject::Revision(repo, _) | Subject::File(repo, _)) = subject;
    if status != StatusCode::NOT_FOUND {
        return Error::Denied {
            what: repo.to_string(),
            status: status.as_u16(),
            is_gated: code == "GatedRepo",
        };
    }
    Error::NotFound(match (code, subject) {
        ("RepoNotFound", _) => format!("{repo}: the hub has no such repository"),
        ("RevisionNotFound", Subject::Revision(_, revision)) => {
            format!("{repo}: there is no revision {:?}", revision.as_str())
        }
        (_, Subject::Revision(_, revision)) => {
            format!(
                "{repo}: the hub has no such repository, or no revision {:?} of it",
                revision.as_str()
            )
        }
        (_, Subject::File(_, file)) => format!("{repo}: there is no file {file:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_break_a_request_is_refused_and_not_shown() {
        for token in ["", "hf_secret\r\nX: y", "hf secret", "hf_sécret"] {
            let options = Options {
                token: Some(token.to_owned()),
                ..Options::default()
            };
            let error = Http::new(&options).err().unwrap().to_string();
            assert!(!error.contains("ecret"), "{error}");
        }
    }

    #[test]
    fn entity_tags_are_hashes_in_quotes() {
        assert_eq!(
            [r#""a""#, r#"W/"a""#, "a"].map(hash_of_etag),
            ["a", "a", "a"]
        );
    }
}

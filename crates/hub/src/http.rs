//! HTTP requests to the Hub: which hosts receive the token, which redirects are followed, and which
//! failures are retried.

use std::time::Duration;

use ureq::{
    Agent, Body,
    http::{Response, StatusCode},
};

use crate::{
    Error,
    name::{RepoId, Revision},
    retry::TransientError,
    url::Url,
};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 10;

/// How to connect to the Hub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// URL of the Hub, as in `HF_ENDPOINT`. Connections use TLS unless it begins with `http://`.
    pub endpoint: String,
    /// Access token, as in `HF_TOKEN`. It is sent to the endpoint only, not to hosts that the
    /// endpoint redirects to.
    pub token: Option<String>,
    /// The proxy to connect through.
    pub proxy: Proxy,
    /// How many consecutive failures are retried.
    pub n_retries: u32,
    /// Pause before the first retry; each further one doubles it.
    pub pause: Duration,
    /// Timeout for connecting, for the response's headers, and for each read.
    pub timeout: Duration,
}

impl Default for HubOptions {
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

/// The proxy to connect through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// No proxy.
    None,
    /// The proxy that the environment names: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`.
    Environment,
}

/// What a request asks for, named in the error if the server refuses it.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Revision(&'a RepoId, &'a Revision),
    File(&'a RepoId, &'a str),
}

/// A GET request.
pub(crate) struct GetRequest<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) subject: Subject<'a>,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The request may succeed when retried.
    Transient(TransientError),
    /// The request will fail again.
    Final(Error),
}

/// A client of one endpoint.
pub(crate) struct Http {
    agent: Agent,
    endpoint: Url,
    token: Option<String>,
}

impl Http {
    pub(crate) fn new(options: &HubOptions) -> Result<Self, Error> {
        let endpoint = Url::parse(&options.endpoint).ok_or_else(|| {
            Error::Option(format!(
                "{:?} is no URL of a hub: expected https://…",
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
            // The message does not contain the token, because errors end up in logs and bug
            // reports.
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

    /// Sends a request and follows redirects.
    pub(crate) fn send(&self, get: &GetRequest<'_>) -> Result<HubResponse, RequestError> {
        let mut url = get.url.clone();
        let mut linked_etag = None;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&url, get)?;
            linked_etag =
                linked_etag.or_else(|| header(&response, "x-linked-etag").map(hash_of_etag));
            if !response.status().is_redirection() {
                return self.check_status(
                    HubResponse {
                        url,
                        linked_etag,
                        response,
                    },
                    get.subject,
                );
            }
            url = redirect(&url, &response)?;
        }
        Err(bad_response(get.url, "too many redirects"))
    }

    fn send_once(&self, url: &Url, get: &GetRequest<'_>) -> Result<Response<Body>, RequestError> {
        let mut request = self.agent.get(url.as_str());
        for (name, value) in get.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| self.is_ours(url)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| client_error(url, &error))
    }

    /// Whether a URL is on the endpoint itself and not on a host that the endpoint redirects to.
    pub(crate) fn is_ours(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    fn check_status(
        &self,
        response: HubResponse,
        subject: Subject<'_>,
    ) -> Result<HubResponse, RequestError> {
        let status = response.response.status();
        match status.as_u16() {
            200 | 206 | 416 => Ok(response),
            408 | 429 | 500..=599 => {
                Err(response.transient(&format!("the server answers with status {status}")))
            }
            // Signed URLs of the storage servers expire; the retry gets a new one from the Hub.
            401 | 403 if !self.is_ours(&response.url) => {
                Err(response.transient(&format!("the storage server answers with status {status}")))
            }
            401 | 403 | 404 => Err(RequestError::Final(refused(&response, status, subject))),
            other => Err(RequestError::Final(Error::Status {
                url: response.url.shown().to_owned(),
                status: other,
            })),
        }
    }
}

/// A response with status 200, 206 or 416.
pub(crate) struct HubResponse {
    /// The URL after redirects.
    pub(crate) url: Url,
    /// The `X-Linked-ETag` of the endpoint: the hash of the file that it redirects to.
    pub(crate) linked_etag: Option<String>,
    response: Response<Body>,
}

impl HubResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.response, name)
    }

    pub(crate) fn body(&mut self) -> &mut Body {
        self.response.body_mut()
    }

    /// A failure of this response that may be retried.
    pub(crate) fn transient(&self, why: &str) -> RequestError {
        // A date in `Retry-After` is ignored; the usual pause applies.
        let retry_after = self
            .header("retry-after")
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs);
        RequestError::Transient(TransientError {
            url: self.url.shown().to_owned(),
            why: why.to_owned(),
            retry_after,
        })
    }
}

/// A response that cannot be used.
pub(crate) fn bad_response(url: &Url, why: &str) -> RequestError {
    RequestError::Final(Error::Response {
        url: url.shown().to_owned(),
        why: why.to_owned(),
    })
}

/// Sorts errors of the HTTP client into transient and final ones.
pub(crate) fn client_error(url: &Url, error: &ureq::Error) -> RequestError {
    let url = url.shown().to_owned();
    let why = error.to_string();
    match error {
        ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::ConnectionFailed
        | ureq::Error::Protocol(_) => RequestError::Transient(TransientError {
            url,
            why,
            retry_after: None,
        }),
        _ => RequestError::Final(Error::Connection { url, why }),
    }
}

/// A broken connection.
pub(crate) fn broken_connection(url: &Url, why: &str) -> RequestError {
    RequestError::Transient(TransientError {
        url: url.shown().to_owned(),
        why: why.to_owned(),
        retry_after: None,
    })
}

/// The hash in an ETag: `"abc"`, or `W/"abc"` if it is weak.
pub(crate) fn hash_of_etag(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

fn agent(options: &HubOptions) -> Agent {
    let proxy = match options.proxy {
        Proxy::None => None,
        Proxy::Environment => ureq::Proxy::try_from_env(),
    };
    let config = Agent::config_builder()
        .user_agent(concat!("atta/", env!("CARGO_PKG_VERSION")))
        .proxy(proxy)
        .http_status_as_error(false)
        // `Http::send` follows redirects itself and decides which hosts receive the token.
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

/// The target of a redirect. A redirect from https to http is refused.
fn redirect(url: &Url, response: &Response<Body>) -> Result<Url, RequestError> {
    let target = header(response, "location").and_then(|location| url.join(location));
    let target = target.filter(|target| target.is_https() || !url.is_https());
    target.ok_or_else(|| bad_response(url, "it redirects to a URL that cannot be used"))
}

fn refused(response: &HubResponse, status: StatusCode, subject: Subject<'_>) -> Error {
    let code = response.header("x-error-code").unwrap_or_default();
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
            let options = HubOptions {
                token: Some(token.to_owned()),
                ..HubOptions::default()
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

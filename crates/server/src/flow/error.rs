//! Errors as clients get them. [`ApiFlavor`](crate::api::flavor::ApiFlavor) writes them in the JSON
//! of each interface.

use atta_engine::{Error, Explain, SamplingError, Setting};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::ServeError;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field that caused the error.
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

/// The class of an error, from which each interface derives its own type name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request is invalid, or asks for something that is not supported.
    Invalid,
    NotFound,
    /// The API key is missing or wrong.
    Unauthorized,
    Forbidden,
    TooLarge,
    /// The queue is full.
    Busy,
    /// A retry may succeed.
    Unavailable,
    /// A bug or a failure of the server.
    Internal,
}

/// Seconds after which a client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// An invalid request.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field that is invalid or not supported.
    pub(crate) fn field(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(name.into()),
            ..Self::bad(message)
        }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    pub(crate) fn no_model(name: &str) -> Self {
        let code = Some("model_not_found");
        Self {
            code,
            param: Some("model".to_owned()),
            ..Self::not_found(format!("model {name:?} not found"))
        }
    }

    pub(crate) fn wrong_key() -> Self {
        let code = Some("invalid_api_key");
        Self {
            code,
            ..Self::new(
                StatusCode::UNAUTHORIZED,
                "this server wants an API key, and this is none of its",
            )
        }
    }

    /// A page of another site, on a server without keys.
    pub(crate) fn foreign_origin(origin: &str) -> Self {
        let message = format!(
            "pages of {origin:?} may not use this server, because that is neither its own origin nor an app of this \
             machine: its operator can add it to the allowed origins, or set an API key"
        );
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// A `Host` that a web site could have (DNS rebinding).
    pub(crate) fn foreign_host(host: &str) -> Self {
        let message = format!(
            "this server does not answer to the name {host:?}, which a web site could let mean this machine: its \
             operator can add it to the allowed host names, or set an API key"
        );
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn busy() -> Self {
        let code = Some("queue_full");
        Self {
            code,
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests are waiting; try again later",
            )
        }
    }

    pub(crate) fn too_large(max: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {max} bytes"),
        )
    }

    /// An unsupported `Content-Encoding`.
    pub(crate) fn unknown_encoding(encoding: &str) -> Self {
        let message =
            format!("content-encoding {encoding:?} is not supported: gzip, deflate, or none");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// Something that this server, or this model, cannot do.
    pub(crate) fn not_implemented(message: impl Into<String>) -> Self {
        let code = Some("not_supported");
        Self {
            code,
            ..Self::new(StatusCode::NOT_IMPLEMENTED, message)
        }
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
    }

    /// The deadline passed before an answer that is useless unless complete.
    pub(crate) fn out_of_time() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "there was not time enough for the answer",
        )
    }

    /// A bug of the server.
    pub(crate) fn broken() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server made a mistake with this request",
        )
    }

    /// A model that does not fit into memory now, or cannot be loaded at all. Errors of the second
    /// kind name files of this machine, so the client does not get their text.
    pub(crate) fn not_loaded(name: &str, error: &ServeError) -> Self {
        let error = match error {
            ServeError::Engine(error) if error.is_about_memory() => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "the model cannot be loaded: {}",
                    error.explain(Setting::field)
                ),
            ),
            _ => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("model {name:?} cannot be loaded"),
            ),
        };
        Self {
            code: Some("model_not_loaded"),
            ..error
        }
    }

    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
    }

    /// A job that failed while it was running.
    pub(crate) fn failed(error: &Error) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.explain(Setting::field),
        )
    }

    /// A sampling parameter, by the name of its field.
    fn sampling(error: &SamplingError) -> Self {
        match error {
            SamplingError::OutOfRange { setting, .. } => {
                Self::field(setting.field(), error.explain(Setting::field))
            }
            SamplingError::BiasedToken { id, n_vocab } => Self::field(
                "logit_bias",
                format!("token {id}, of a model that has {n_vocab}"),
            ),
            other => Self::bad(other.explain(Setting::field)),
        }
    }

    /// The error about another field.
    pub(crate) fn about(self, field: &str) -> Self {
        Self {
            param: self.param.map(|_| field.to_owned()),
            ..self
        }
    }

    /// The error with the name that an interface has for the field `ours`.
    pub(crate) fn renamed(self, ours: &str, theirs: &str) -> Self {
        if self.param.as_deref() == Some(ours) {
            self.about(theirs)
        } else {
            self
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self.status {
            StatusCode::UNAUTHORIZED => ErrorKind::Unauthorized,
            StatusCode::FORBIDDEN => ErrorKind::Forbidden,
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::TooLarge,
            StatusCode::TOO_MANY_REQUESTS => ErrorKind::Busy,
            StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Unavailable,
            StatusCode::NOT_IMPLEMENTED => ErrorKind::Invalid,
            status if status.is_server_error() => ErrorKind::Internal,
            _ => ErrorKind::Invalid,
        }
    }
}

fn prompt_too_long(n_prompt: usize, n_ctx: usize) -> ApiError {
    // Claude Code reads the two numbers, and makes the conversation shorter.
    let message = format!(
        "the prompt is too long: {n_prompt} tokens > {n_ctx} maximum, the context of this server"
    );
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field("messages", message)
    }
}

/// Errors of the engine about a request, with the field that caused them.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.explain(Setting::field);
        if error.is_about_outputs() {
            return Self::bad(message);
        }
        if error.is_about_adapters() {
            return Self::field("lora", message);
        }
        match error {
            Error::PromptTooLong { n_prompt, n_ctx } => prompt_too_long(n_prompt, n_ctx),
            Error::EmptyPrompt => Self::bad(message),
            Error::Pooling(_) => Self::field("pooling", message),
            Error::Constraint(_) => Self::field("response_format", message),
            Error::Tools(_) => Self::field("tools", message),
            Error::Template(_) => Self::field("messages", message),
            Error::Sampling(error) => Self::sampling(&error),
            Error::Stop(_) => Self::field("stop", "a text of no characters occurs everywhere"),
            Error::Store(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// Has no body: the layer around all routes knows the interface, and writes it.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if matches!(self.kind(), ErrorKind::Busy | ErrorKind::Unavailable) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response.extensions_mut().insert(self);
        response
    }
}

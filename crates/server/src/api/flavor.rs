//! The interface of a request, and the JSON of its errors.

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::flow::error::{ApiError, ErrorKind};

/// The interface of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiFlavor {
    OpenAi,
    Anthropic,
    Ollama,
}

impl ApiFlavor {
    /// Decides by path and headers. atta's own paths and unknown ones have OpenAI's errors, unless
    /// a client of Anthropic sends the request.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        match path {
            "/v1/messages" => Self::Anthropic,
            path if path.starts_with("/v1/messages/") => Self::Anthropic,
            path if path.starts_with("/api/") => Self::Ollama,
            _ if headers.contains_key("anthropic-version") => Self::Anthropic,
            path if path.starts_with("/v1/models") && is_anthropics(headers) => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }

    /// The JSON of an error.
    pub(crate) fn error(self, error: &ApiError, request_id: Option<&str>) -> Value {
        let ApiError {
            message,
            param,
            code,
            ..
        } = error;
        let kind = self.kind(error.kind());
        match self {
            Self::OpenAi => {
                json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
            }
            Self::Anthropic => {
                let mut error = json!({ "type": kind, "message": named(error) });
                if let Some(code) = code {
                    error["details"] = json!({ "error_code": code });
                }
                json!({ "type": "error", "error": error, "request_id": request_id })
            }
            Self::Ollama => json!({ "error": message }),
        }
    }

    fn kind(self, kind: ErrorKind) -> &'static str {
        match (self, kind) {
            (_, ErrorKind::Unauthorized) => "authentication_error",
            (_, ErrorKind::Busy) => "rate_limit_error",
            (Self::Anthropic, ErrorKind::Forbidden) => "permission_error",
            (Self::Anthropic, ErrorKind::NotFound) => "not_found_error",
            (Self::Anthropic, ErrorKind::TooLarge) => "request_too_large",
            (Self::Anthropic, ErrorKind::Unavailable) => "overloaded_error",
            (Self::Anthropic, ErrorKind::Internal) => "api_error",
            (_, ErrorKind::Internal | ErrorKind::Unavailable) => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The response headers that hold the id of the request.
    pub(crate) fn id_headers(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::Ollama => &["x-request-id"],
            Self::Anthropic => &["x-request-id", "request-id"],
        }
    }

    /// The response that a error is, if it is one.
    pub(crate) fn respond(self, mut response: Response, request_id: &str) -> Response {
        let Some(error) = response.extensions_mut().remove::<ApiError>() else {
            return response;
        };
        let mut written = (
            response.status(),
            Json(self.error(&error, Some(request_id))),
        )
            .into_response();
        written.headers_mut().extend(
            std::mem::take(response.headers_mut())
                .into_iter()
                .filter_map(|(k, v)| Some((k?, v))),
        );
        written
    }
}

/// Whether a request to a path that OpenAI's interface has, too, comes from a client of
/// Anthropic's, which sends its version with all requests, and its key with most.
pub(crate) fn is_anthropics(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version") || headers.contains_key("x-api-key")
}

/// The message with the name of the field, for interfaces that have no other place for it.
fn named(error: &ApiError) -> String {
    match &error.param {
        Some(param) if !error.message.contains(param) => format!("{param}: {}", error.message),
        _ => error.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anthropics_errors_name_the_field_in_their_message() {
        let message = |message: &str| {
            let error = ApiError::field("tools", message);
            ApiFlavor::Anthropic.error(&error, None)["error"]["message"].clone()
        };
        assert_eq!(message("there are too many"), "tools: there are too many");
        assert_eq!(
            message("there are too many tools"),
            "there are too many tools"
        );
    }

    #[test]
    fn clients_of_the_interface_are_known_by_their_headers() {
        let of = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "x".parse().unwrap());
            is_anthropics(&headers)
        };
        assert!(of("anthropic-version") && of("x-api-key") && !of("authorization"));
    }
}

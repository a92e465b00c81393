//! Requests without a connection, for tests and fuzzing of bodies.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderValue, Method, Request, Uri, header},
};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::{Server, routes};

/// A complete response.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: String,
    /// The whole body.
    pub body: Vec<u8>,
    /// The `Warning` headers.
    pub warnings: Vec<String>,
}

// For tests only: without `run`, no model is unloaded and no job can be stopped.
impl Server {
    /// Paths that take a request with a body.
    #[doc(hidden)]
    pub fn post_paths() -> Vec<&'static str> {
        routes::posts().into_iter().map(|(path, _)| path).collect()
    }

    /// Answers a request on the calling thread; `path` is one of [`post_paths`](Self::post_paths).
    #[doc(hidden)]
    pub fn answer(&self, path: &'static str, body: Vec<u8>) -> Answer {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        let service = TowerToHyperService::new(routes::router(Arc::clone(&self.app)));
        self.runtime.block_on(async {
            let Ok(response) = service.call(request).await;
            let (head, body) = response.into_parts();
            let body = body
                .collect()
                .await
                .expect("only bodies of clients break off")
                .to_bytes();
            let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
            let kind = head.headers.get(header::CONTENT_TYPE).map(text);
            let warnings = head.headers.get_all(header::WARNING).iter().map(text);
            Answer {
                status: head.status.as_u16(),
                kind: kind.unwrap_or_default(),
                body: body.to_vec(),
                warnings: warnings.collect(),
            }
        })
    }
}

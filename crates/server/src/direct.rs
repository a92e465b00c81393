//! Requests without a connection, for tests and for fuzzing: what may come as a body is far more
//! than what may come as HTTP, which is hyper's to read.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Method, Request, Uri, header},
};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::{Server, routes};

/// What came back for a request, complete.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The type of the body.
    pub kind: String,
    /// All of it.
    pub body: Vec<u8>,
}

// Not for programs, which have `run`: nothing is unloaded here, and nothing that is under way can
// be stopped.
impl Server {
    /// Paths that take a request with a body.
    #[doc(hidden)]
    pub fn post_paths() -> Vec<&'static str> {
        routes::posts().into_iter().map(|(path, _)| path).collect()
    }

    /// Answers a request of this machine, on the thread that calls; `path` is one of
    /// [`post_paths`](Self::post_paths).
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
            let kind = head
                .headers
                .get(header::CONTENT_TYPE)
                .and_then(|kind| kind.to_str().ok());
            Answer {
                status: head.status.as_u16(),
                kind: kind.unwrap_or_default().to_owned(),
                body: body.to_vec(),
            }
        })
    }
}

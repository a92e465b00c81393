//! Requests without a connection: of a program that has atta in it as a library, and of tests.
//!
//! Knows no socket, key or signal. The one idea: the router answers them as it answers those that
//! come over HTTP, on the calling thread, so that there is one reading of each interface's JSON.
//! The runtime only lends its context: the thread polls and [parks](Parker) by itself.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use atta_engine::{AdapterSet, Engine, GenerateOptions};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, Uri, header, uri::InvalidUri},
    response::Response,
};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Runtime;

#[cfg(feature = "http")]
use crate::Server;
use crate::{
    ModelSource, ServeError, ServerOptions,
    api::llama::options::{self, OptionsTarget},
    app::App,
    flow::{
        adapters::{AdapterChoice, chosen},
        body::BodyFields,
        sampling::Defaults,
        warnings::Warnings,
    },
    models::Models,
    routes,
    runtime::{self, Parker},
    step_lock::StepLock,
    worker::Turn,
};

/// Models with the interfaces of the server, for requests of the same program.
pub struct Direct {
    app: Arc<App>,
    router: Router,
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct")
            .field("n_models", &self.app.models.names().count())
            .finish_non_exhaustive()
    }
}

impl Direct {
    /// Loads the first model. The options about connections, keys and signals have no effect.
    ///
    /// # Errors
    /// A model that does not fit into memory, an invalid chat template or default.
    pub fn new(models: Vec<ModelSource>, options: ServerOptions) -> Result<Self, ServeError> {
        options.defaults.check()?;
        let runtime = runtime::new()?;
        let step_lock = StepLock::default();
        let models = Models::new(models, &options, step_lock, Arc::new(|| {}))?;
        let app = Arc::new(App::new(models, None, options));
        Ok(Self {
            router: routes::router(Arc::clone(&app)),
            app,
            runtime: Some(runtime),
        })
    }

    /// Prepares a request, which the first [`next_within`](Exchange::next_within) sends: a `POST`
    /// with this body, or a `GET` without one.
    ///
    /// # Errors
    /// A path that is none.
    pub fn request(
        self: &Arc<Self>,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Exchange, InvalidUri> {
        let uri = Uri::try_from(path)?;
        Ok(Exchange {
            direct: Arc::clone(self),
            response: Some(Box::pin(call(self.router.clone(), request(uri, body)))),
            head: ResponseHead::default(),
            body: None,
            unread: Vec::new(),
            ready: VecDeque::new(),
            canceller: Canceller::default(),
        })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the drop")
    }

    /// Polls `work` until it is done or cancelled, or the time is over. Meanwhile it takes the
    /// turns of workers without a thread, at least one.
    fn wait<T>(
        &self,
        canceller: &Canceller,
        mut work: impl Future<Output = T> + Unpin,
        time: Duration,
    ) -> Waited<T> {
        let _context = self.runtime().enter();
        let waker = Waker::from(Arc::clone(&canceller.0.parker));
        let mut context = Context::from_waker(&waker);
        let start = Instant::now();
        loop {
            if canceller.is_cancelled() {
                return Waited::Cancelled;
            }
            if let Poll::Ready(done) = Pin::new(&mut work).poll(&mut context) {
                return Waited::Done(done);
            }
            let left = time.saturating_sub(start.elapsed());
            let goes_on = match self.app.models.turn() {
                Turn::Taken => !left.is_zero(),
                Turn::Idle => false,
                Turn::Elsewhere => canceller.0.parker.park(left),
            };
            if !goes_on {
                return Waited::TimeOver;
            }
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.app.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // A worker that panicked has told its clients.
        self.app.models.close();
    }
}

/// Cancels a request from another thread.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Cancellation>);

#[derive(Debug, Default)]
struct Cancellation {
    is_cancelled: AtomicBool,
    /// Of the thread that waits for the response.
    parker: Arc<Parker>,
}

impl Canceller {
    /// Ends the request: what waits for it returns, and nothing more is computed for it.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        Arc::clone(&self.0.parker).wake();
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }
}

/// How waiting ended.
enum Waited<T> {
    Done(T),
    Cancelled,
    TimeOver,
}

impl<T> Waited<T> {
    fn map<U>(self, each: impl FnOnce(T) -> U) -> Waited<U> {
        match self {
            Self::Done(done) => Waited::Done(each(done)),
            Self::Cancelled => Waited::Cancelled,
            Self::TimeOver => Waited::TimeOver,
        }
    }
}

/// What a response has for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A text of JSON: the response, or one event of a streamed one.
    Piece(Vec<u8>),
    /// Nothing in the time that was given.
    Waiting,
    /// Nothing more; it is complete, or was cancelled.
    End,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// How the pieces of a body are parted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Framing {
    /// One object.
    #[default]
    Whole,
    /// Server-sent events.
    Events,
    /// Lines.
    Lines,
}

impl Framing {
    fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).map(text);
        match kind.as_deref().and_then(|kind| kind.split(';').next()) {
            Some("text/event-stream") => Self::Events,
            Some("application/x-ndjson") => Self::Lines,
            _ => Self::Whole,
        }
    }

    /// The separator of two pieces.
    fn separator(self) -> Option<&'static [u8]> {
        match self {
            Self::Whole => None,
            Self::Events => Some(b"\n\n"),
            Self::Lines => Some(b"\n"),
        }
    }

    /// The JSON of a piece, if it has some.
    fn json(self, piece: &[u8]) -> Option<Vec<u8>> {
        if self != Self::Events {
            return (!piece.is_empty()).then(|| piece.to_vec());
        }
        let mut lines = piece.split(|&byte| byte == b'\n');
        let data = lines.find_map(|line| line.strip_prefix(b"data: "))?;
        (data != b"[DONE]").then(|| data.to_vec())
    }
}

#[derive(Debug, Default)]
struct ResponseHead {
    status: u16,
    framing: Framing,
    warnings: Vec<String>,
}

/// A request and its response, which is read piece by piece on the calling thread.
pub struct Exchange {
    direct: Arc<Direct>,
    /// The request, until its response begins.
    response: Option<ResponseFuture>,
    head: ResponseHead,
    /// The body while there is more of it.
    body: Option<Body>,
    /// Bytes of a piece that is not complete.
    unread: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
    canceller: Canceller,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl Exchange {
    /// The handle that cancels it.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The HTTP status; 0 before the response begins.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Takes the warnings about the request, such as those of unknown fields.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.head.warnings)
    }

    /// Waits for the next piece of the response, for this time at most.
    pub fn next_within(&mut self, time: Duration) -> Progress {
        loop {
            if self.canceller.is_cancelled() {
                (self.response, self.body) = (None, None);
                return Progress::End;
            }
            if let Some(piece) = self.ready.pop_front() {
                return Progress::Piece(piece);
            }
            if self.response.is_none() && self.body.is_none() {
                return Progress::End;
            }
            if let Waited::TimeOver = self.read(time) {
                return Progress::Waiting;
            }
        }
    }

    /// Waits for the response, or for a frame of it.
    fn read(&mut self, time: Duration) -> Waited<()> {
        let direct = Arc::clone(&self.direct);
        let canceller = self.canceller.clone();
        if let Some(response) = &mut self.response {
            let waited = direct.wait(&canceller, response, time);
            return waited.map(|response| self.begin(response));
        }
        let Some(body) = &mut self.body else {
            return Waited::Done(());
        };
        let waited = direct.wait(&canceller, body.frame(), time);
        waited.map(|frame| {
            match frame.and_then(Result::ok).map(|frame| frame.into_data()) {
                Some(data) => self.unread.extend(data.ok().iter().flatten()),
                None => self.end(),
            }
            self.part();
        })
    }

    fn begin(&mut self, response: Response) {
        self.response = None;
        let (head, body) = response.into_parts();
        self.head = ResponseHead {
            status: head.status.as_u16(),
            framing: Framing::of(&head.headers),
            warnings: warnings(&head.headers),
        };
        self.body = Some(body);
    }

    /// Takes the rest as the last piece.
    fn end(&mut self) {
        self.body = None;
        let last = std::mem::take(&mut self.unread);
        self.ready.extend(self.head.framing.json(&last));
    }

    /// Moves complete pieces to those that are ready.
    fn part(&mut self) {
        let Some(separator) = self.head.framing.separator() else {
            return;
        };
        let n = separator.len();
        while let Some(at) = self.unread.windows(n).position(|bytes| bytes == separator) {
            let piece: Vec<u8> = self.unread.drain(..at + n).collect();
            self.ready.extend(self.head.framing.json(&piece[..at]));
        }
    }
}

/// Reads the options of a generation from JSON with the fields of llama.cpp's server, among which
/// are OpenAI's for sampling. `n_ctx` is the length of the context. Without a seed it is random.
///
/// # Errors
/// Text that is no JSON object, a field that is unknown, that would change nothing, or has no such
/// value, in words.
pub fn generate_options(
    engine: &Engine,
    n_ctx: usize,
    json: &[u8],
) -> Result<GenerateOptions, String> {
    let warnings = Warnings::default();
    let target = OptionsTarget {
        tokenizer: engine.tokenizer(),
        n_ctx,
        defaults: &Defaults::default(),
    };
    let fields = BodyFields::parse(json).and_then(|fields| options::read(fields, &warnings));
    let options = fields.and_then(|fields| fields.into_options(target, &warnings));
    let options = options.map_err(|error| error.message)?;
    match warnings.take().into_iter().next() {
        Some(warning) => Err(warning),
        None => Ok(options),
    }
}

/// Reads adapters from JSON: the value of the field `lora` of requests.
///
/// # Errors
/// Text that is no such list, or adapters that were not loaded with the model, in words.
pub fn adapter_set(engine: &Engine, json: &[u8]) -> Result<AdapterSet, String> {
    let list: Vec<AdapterChoice> = serde_json::from_slice(json)
        .map_err(|error| format!("expected a list of adapters: {error}"))?;
    chosen(engine, &list).map_err(|error| error.message)
}

fn request(uri: Uri, body: Option<Vec<u8>>) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri;
    if let Some(body) = body {
        *request.method_mut() = Method::POST;
        *request.body_mut() = Body::from(body);
    }
    request
}

async fn call(router: Router, request: Request<Body>) -> Response {
    let service = TowerToHyperService::new(router);
    let Ok(response) = service.call(request).await;
    response
}

fn text(value: &HeaderValue) -> String {
    value.to_str().unwrap_or_default().to_owned()
}

/// The texts of the `Warning` headers.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(header::WARNING).iter().map(text);
    all.map(|warning| match warning.split_once('"') {
        Some((_, quoted)) => quoted.trim_end_matches('"').replace('\\', ""),
        None => warning,
    })
    .collect()
}

/// A complete response.
#[cfg(feature = "http")]
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
#[cfg(feature = "http")]
impl Server {
    /// Paths that take a request with a body.
    #[doc(hidden)]
    pub fn post_paths() -> Vec<&'static str> {
        routes::posts().into_iter().map(|(path, _)| path).collect()
    }

    /// Answers a request on the calling thread; `path` is one of [`post_paths`](Self::post_paths).
    #[doc(hidden)]
    pub fn answer(&self, path: &'static str, body: Vec<u8>) -> Answer {
        let request = request(Uri::from_static(path), Some(body));
        let router = routes::router(Arc::clone(&self.app));
        self.runtime.block_on(async {
            let (head, body) = call(router, request).await.into_parts();
            let body = body
                .collect()
                .await
                .expect("only bodies of clients break off")
                .to_bytes();
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

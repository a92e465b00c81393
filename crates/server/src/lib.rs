//! The HTTP server: OpenAI's, Anthropic's, Ollama's and llama.cpp's interfaces, streaming, for many
//! clients at once.
//!
//! Knows nothing of weights or kernels. The one idea: a request becomes jobs of a
//! [`Batcher`](atta_engine::Batcher), which a worker thread runs. `flow/` is the way of a request
//! from bytes to events, `api/` maps the JSON of each interface to it and back. The only crate with
//! async code, which runs on one thread.
//!
//! Without the feature `http` it listens to nothing and answers the requests of its own program,
//! without `interfaces` only those to OpenAI's main paths and llama.cpp's.
//!
//! **Invariant:** no path or address in a request names a file or another machine.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "some code is about connections alone")
)]

mod access;
mod api;
mod app;
mod cluster;
mod direct;
mod earlier;
mod flow;
#[cfg(feature = "http")]
mod listen;
mod metrics;
mod models;
#[cfg(feature = "interfaces")]
mod openapi;
#[cfg_attr(not(feature = "http"), path = "no_page.rs")]
mod page;
mod routes;
mod runtime;
#[cfg(feature = "http")]
mod signals;
#[cfg(feature = "http")]
mod socket;
mod step_lock;
mod thermal;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod worker;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use atta_engine::{BatcherOptions, Explain, Names, Pooling, Setting};

pub use cluster::{
    AuditStatus, ClusterEvent, ClusterMonitor, LinkStatus, NodeState, NodeStatus, NodeTotals,
    RingSpeed, RingState, RingStatus,
};
// For tests and the fuzz target.
#[cfg(feature = "http")]
#[doc(hidden)]
pub use direct::Answer;
pub use direct::{Canceller, Direct, Exchange, Progress, adapter_set, generate_options};
pub use flow::sampling::Defaults;
#[cfg(feature = "http")]
pub use listen::{Server, Stopper};
pub use models::{ModelSource, Open};
pub use thermal::ThermalOptions;
pub use tls::Tls;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where the server listens.
    pub listen: Listen,
    /// If set, all connections use TLS.
    pub tls: Option<Tls>,
    /// Keys of clients; without keys, any request is authorized.
    pub api_keys: Vec<String>,
    /// Allows other machines to connect without a key.
    pub insecure: bool,
    /// Origins of web pages that may send requests without a key. With keys, and if not empty: the
    /// only origins that may read responses.
    pub allowed_origins: Vec<String>,
    /// Further names that `Host` may have, beside those that no web site can have.
    pub allowed_hosts: Vec<String>,
    /// Slots and KV cache of each model.
    pub batcher: BatcherOptions,
    /// Defaults for fields that a request does not set.
    pub defaults: Defaults,
    /// The default pooling of embeddings; `None`: that of the model's file.
    pub pooling: Option<Pooling>,
    /// Length of the queue; further requests get status 429.
    pub max_queue: usize,
    /// Largest body of a request, in bytes.
    pub max_body: usize,
    /// Most open connections.
    pub max_connections: usize,
    /// Time limit for the head and for the body of a request to arrive.
    pub read_timeout: Duration,
    /// Deadline of an answer, from its request on; then it ends as at its length limit.
    pub max_time: Option<Duration>,
    /// A model that has been idle for this time is unloaded; the next request loads it again.
    pub idle_unload: Option<Duration>,
    /// How long running requests may take after the server was asked to stop.
    pub grace: Duration,
    /// Thermal throttling.
    pub thermal: Option<ThermalOptions>,
    /// Watches the ring of machines that runs the model, if one does.
    pub cluster: Option<Arc<dyn ClusterMonitor>>,
    /// The request log on standard error.
    pub log: Log,
}

impl ServerOptions {
    /// Whether the server listens on a loopback address.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.listen, Listen::Tcp(address) if address.ip().is_loopback())
    }

    /// The access rules.
    pub(crate) fn access(&self) -> access::Access<'_> {
        access::Access {
            has_keys: !self.api_keys.is_empty(),
            scheme: self.scheme(),
            checks_host: self.is_local() || !self.allowed_hosts.is_empty(),
            origins: &self.allowed_origins,
            hosts: &self.allowed_hosts,
        }
    }

    /// The scheme of the server's URL.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() {
            return "https";
        }
        "http"
    }
}

/// Where the server listens.
#[derive(Clone, Debug)]
pub enum Listen {
    /// An address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix(PathBuf),
}

/// The format of the request log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// No log.
    #[default]
    Off,
    /// Lines of text.
    Text,
    /// Lines of JSON.
    Json,
}

/// Why the server cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] atta_engine::Error),
    /// The address cannot be bound.
    #[error("{place}: {source}")]
    Listen {
        /// The address or the path.
        place: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{}: {why}", path.display())]
    Tls {
        /// The file that caused the error.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Thermal throttling on a machine without readable temperatures.
    #[error("{}: no thermal zone with a temperature that can be read", .0.display())]
    NoTemperature(PathBuf),
    /// An address that other machines can reach, without keys.
    #[error("{}", open_to_machines(*.0, Setting::words))]
    Open(SocketAddr),
    /// An allowed origin that admits every web page, without keys.
    #[error("{}", open_to_pages(.0, Setting::words))]
    OpenToPages(String),
    /// An allowed origin that is no origin.
    #[error("{}", not_an_origin(.0, Setting::words))]
    Origin(String),
    /// An allowed host name that no request can have.
    #[error("{}", not_a_host(.0, Setting::words))]
    Host(String),
    /// A server-wide default that no request could use.
    #[error("{0}")]
    Defaults(String),
    /// No models.
    #[error("there is no model to serve")]
    NoModel,
    /// A model without a name.
    #[error("a model has no name")]
    NoName,
    /// Two models with the same name.
    #[error("two models are called {0:?}")]
    SameName(String),
    /// An empty key.
    #[error("an empty API key would let everybody in")]
    EmptyKey,
    /// The inference thread panicked (a bug in atta).
    #[error("the server has made a mistake and has ended")]
    Broken,
    /// The runtime or the signal handlers cannot be set up.
    #[error("the server cannot start: {0}")]
    Start(#[source] std::io::Error),
}

#[cfg(feature = "http")]
impl Server {
    /// Binds the address and loads the first model; the first request for another model loads it.
    /// [`run`](Self::run) serves.
    ///
    /// # Errors
    /// An address that cannot be bound or is open to other machines, a model that does not fit into
    /// memory, an invalid chat template, thermal throttling without a temperature.
    pub fn bind(models: Vec<ModelSource>, options: ServerOptions) -> Result<Self, ServeError> {
        Self::new(models, options)
    }
}

impl Explain for ServeError {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::Engine(error) => error.explain(names),
            Self::Open(address) => open_to_machines(*address, names),
            Self::OpenToPages(origin) => open_to_pages(origin, names),
            Self::Origin(origin) => not_an_origin(origin, names),
            Self::Host(host) => not_a_host(host, names),
            _ => self.to_string(),
        }
    }
}

fn open_to_machines(address: SocketAddr, names: Names) -> String {
    format!(
        "{address} can be reached by other machines: give {}, \
         or {} if everybody who can reach it may use it",
        names(Setting::ApiKey),
        names(Setting::Insecure)
    )
}

fn open_to_pages(origin: &str, names: Names) -> String {
    format!(
        "{} {origin} lets every web page that is open in a browser of this machine use the \
         server: give {}, or {} if that is wanted",
        names(Setting::AllowOrigin),
        names(Setting::ApiKey),
        names(Setting::Insecure)
    )
}

fn not_an_origin(origin: &str, names: Names) -> String {
    format!(
        "{} {origin}: expected SCHEME://HOST or SCHEME://HOST:PORT with nothing behind it, \
         SCHEME://*, null or *",
        names(Setting::AllowOrigin)
    )
}

fn not_a_host(host: &str, names: Names) -> String {
    format!(
        "{} {host}: expected NAME or NAME:PORT, without a scheme, a path or *",
        names(Setting::AllowHost)
    )
}

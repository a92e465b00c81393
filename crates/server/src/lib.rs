//! Models behind HTTP: many clients at once, each of which gets its text token by token.
//!
//! Knows the interfaces of other servers, and nothing of weights or kernels. The one idea: what a
//! client asks for becomes jobs of a [`Batcher`](atta_engine::Batcher), which a thread of its own
//! runs; everything else is translation, of requests into jobs (`openai/`, `anthropic/`, `ollama/`)
//! and of what is heard of them into events on the wire. The only crate with async code, and that
//! is one thread too.
//!
//! No path or address in a request ever names a file or another machine.

#![forbid(unsafe_code)]

mod access;
mod api;
mod app;
mod direct;
mod flow;
mod listen;
mod metrics;
mod models;
mod openapi;
mod page;
mod routes;
mod signals;
mod socket;
mod step_lock;
mod thermal;
#[cfg(feature = "tls")]
mod tls;
mod worker;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use atta_engine::{BatcherOptions, Pooling};

// Not part of the interface: tests here and the fuzz target ask without a connection.
#[doc(hidden)]
pub use direct::Answer;
pub use flow::sampling::Defaults;
pub use listen::{Server, Stopper};
pub use models::{ModelSource, Open};
pub use thermal::ThermalOptions;
#[cfg(feature = "tls")]
pub use tls::Tls;

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where clients connect.
    pub listen: Listen,
    /// Connections are encrypted, and only such ones are taken.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// What they must know; without any, whatever they say is right.
    pub api_keys: Vec<String>,
    /// Serves other machines without a key.
    pub insecure: bool,
    /// Origins of pages that may ask without a key; with keys, the only ones that may read
    /// answers, if there are any.
    pub allowed_origins: Vec<String>,
    /// Names by which a server of this machine may be found, beside those that no web site can
    /// have.
    pub allowed_hosts: Vec<String>,
    /// Texts of a model at once, and their memory.
    pub batcher: BatcherOptions,
    /// Defaults for fields that a request does not set.
    pub defaults: Defaults,
    /// How texts become vectors where a request does not say; `None`: as the file of the model
    /// says.
    pub pooling: Option<Pooling>,
    /// Requests that may wait for a place; more are told to come back later.
    pub max_queue: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// How long the head or the body of a request may take to come.
    pub read_timeout: Duration,
    /// How long an answer may take from its request on; then it ends as at its length.
    pub max_time: Option<Duration>,
    /// A model that nobody has used for so long is taken out of memory; the next request loads it
    /// again.
    pub idle_unload: Option<Duration>,
    /// How long texts may go on after the server was asked to stop.
    pub grace: Duration,
    /// Pauses between steps while the machine is hot.
    pub thermal: Option<ThermalOptions>,
    /// Whether each request becomes a line on standard error.
    pub log: Log,
}

impl ServerOptions {
    /// Whether only this machine can reach it, by an address.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.listen, Listen::Tcp(address) if address.ip().is_loopback())
    }

    /// Whose requests it answers.
    pub(crate) fn access(&self) -> access::Access<'_> {
        access::Access {
            has_keys: !self.api_keys.is_empty(),
            scheme: self.scheme(),
            checks_host: self.is_local() || !self.allowed_hosts.is_empty(),
            origins: &self.allowed_origins,
            hosts: &self.allowed_hosts,
        }
    }

    /// How addresses of it begin.
    pub(crate) fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return "https";
        }
        "http"
    }
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub enum Listen {
    /// An address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A socket in the file system, for programs of this machine.
    Unix(PathBuf),
}

/// How requests are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// Not at all.
    #[default]
    Off,
    /// As a line for people.
    Text,
    /// As a line of JSON.
    Json,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The model cannot be used this way.
    #[error(transparent)]
    Engine(#[from] atta_engine::Error),
    /// The address cannot be had.
    #[error("{place}: {source}")]
    Listen {
        /// The address or the path.
        place: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no certificate, or no key for it.
    #[error("{}: {why}", path.display())]
    Tls {
        /// Which of both is at fault.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody knows how hot the machine is.
    #[error("{}: no thermal zone with a temperature that can be read", .0.display())]
    NoTemperature(PathBuf),
    /// Other machines would get in.
    #[error(
        "{0} can be reached by other machines: give --api-key, or --insecure if everybody who can reach it may use it"
    )]
    Open(SocketAddr),
    /// Every web page that somebody opens would get in.
    #[error(
        "--allow-origin {0} lets every web page that is open in a browser of this machine use the server: give --api-key, \
         or --insecure if that is wanted"
    )]
    OpenToPages(String),
    /// This is no origin of a page.
    #[error(
        "--allow-origin {0}: expected SCHEME://HOST or SCHEME://HOST:PORT with nothing behind it, SCHEME://*, null or *"
    )]
    Origin(String),
    /// A server-wide default that no request could use.
    #[error("{0}")]
    Defaults(String),
    /// There is nothing to serve.
    #[error("there is no model to serve")]
    NoModel,
    /// A model that nobody can ask for.
    #[error("a model has no name")]
    NoName,
    /// Two models that requests could not tell apart.
    #[error("two models are called {0:?}")]
    SameName(String),
    /// A key that everybody knows.
    #[error("an empty API key would let everybody in")]
    EmptyKey,
    /// The thread that computes has come to grief, which is a mistake of ours.
    #[error("the server has made a mistake and has ended")]
    Broken,
    /// The system has no thread or no timer.
    #[error("the server cannot start: {0}")]
    Start(#[source] std::io::Error),
}

impl Server {
    /// Listens; nobody is served until [`run`](Self::run). The first model is loaded now, the
    /// others when they are asked for.
    ///
    /// # Errors
    /// An address that cannot be had or that would let everybody in, memory that the budget does
    /// not grant, a chat template that cannot be read, a machine to be kept cool that does not
    /// say how hot it is.
    pub fn bind(models: Vec<ModelSource>, options: ServerOptions) -> Result<Self, ServeError> {
        Self::new(models, options)
    }
}

//! What may be typed behind `atta serve`, and what it means for the server.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use atta::{BatcherOptions, Engine, KvType, SessionOptions};
use atta_server::{Listen, Log, ServerOptions};
use clap::{Args, ValueEnum};

use super::{ModelFlags, value};
use crate::failure::Failure;

/// Contexts whose keys and values have room at once, where nobody says how many tokens that should be.
const CONTEXTS: usize = 4;
/// Kept texts for each that may be written.
const KEPT: usize = 2;

/// Serves a model to other programs, and to browsers, as OpenAI's interface has it.
///
/// Requests are answered at the same time: their tokens are computed together, and what several of them begin with is read once.
/// Each answer is the same, bit for bit, as if it had been the only one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta serve                                     the built-in model, at http://127.0.0.1:8080
  atta serve model.gguf --port 9000 --parallel 4
  atta serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'

Paths: /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize, /health, /metrics, /props, and a page at /")]
pub(crate) struct ServeArgs {
    /// GGUF file, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled [default: the built-in model]
    pub(crate) model: Option<PathBuf>,
    /// Address to listen at; others than those of this machine need --api-key or --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen at; 0: a free one, which is written to standard output
    #[arg(long, value_name = "PORT", default_value = "8080")]
    port: u16,
    /// Listen at this socket in the file system instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// What clients must know; may be given several times. Other users of this machine can see it here
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// A file with such keys, one in each line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Serve other machines without a key
    #[arg(long)]
    insecure: bool,
    /// What the model is called; may be given several times [default: the name of its file]
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Texts that are written at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = value::positions)]
    parallel: usize,
    /// Tokens of all texts together that have keys and values [default: four times the context]
    #[arg(long, value_name = "N", value_parser = value::positions)]
    kv_tokens: Option<usize>,
    /// Requests that may wait; more are refused with 429
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count)]
    queue: usize,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "1024", value_parser = value::positions)]
    connections: usize,
    /// How long a request may take to come, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = value::count)]
    timeout: usize,
    /// Bytes of a request at most, such as 8M
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = value::size)]
    max_body: u64,
    /// A line on standard error for each request
    #[arg(long, value_name = "HOW", value_enum)]
    log: Option<LogName>,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
}

/// How a request is written down.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogName {
    Text,
    Json,
}

impl ServeArgs {
    /// The session that memory is kept free for: one that is as long as all texts together.
    pub(crate) fn planned(&self) -> SessionOptions {
        let session = self.model_flags.session_options(KvType::default());
        let all = self.kv_tokens.or(session.n_ctx.map(|n_ctx| n_ctx.saturating_mul(CONTEXTS)));
        SessionOptions { n_ctx: all.max(session.n_ctx), ..session }
    }

    /// The server of a model that has been loaded.
    ///
    /// # Errors
    /// A file of keys that cannot be read or holds none.
    pub(crate) fn server_options(&self, engine: &Engine) -> Result<ServerOptions, Failure> {
        let session = self.model_flags.session_options(KvType::default());
        let n_ctx = session.n_ctx.unwrap_or(engine.spec().n_ctx_train.min(DEFAULT_N_CTX));
        let batcher = BatcherOptions {
            n_ctx,
            n_jobs: self.parallel,
            n_kept: self.parallel.saturating_mul(KEPT),
            n_shared: self.kv_tokens.unwrap_or(n_ctx.saturating_mul(CONTEXTS)).max(n_ctx),
            n_batch: session.n_batch.unwrap_or((n_ctx / 8).clamp(64, 512)).max(2 * self.parallel),
            kv: session.kv,
            max_gap: MAX_GAP,
        };
        let listen = match &self.unix {
            Some(path) => Listen::Unix(path.clone()),
            None => Listen::Tcp(SocketAddr::new(self.host, self.port)),
        };
        Ok(ServerOptions {
            listen,
            api_keys: self.keys()?,
            insecure: self.insecure,
            names: self.names(),
            batcher,
            max_queue: self.queue,
            max_body: usize::try_from(self.max_body).unwrap_or(usize::MAX),
            max_connections: self.connections,
            read_timeout: Duration::from_secs(self.timeout as u64),
            grace: GRACE,
            log: match self.log {
                None => Log::Off,
                Some(LogName::Text) => Log::Text,
                Some(LogName::Json) => Log::Json,
            },
        })
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path).map_err(|error| Failure::at(path, error))?;
            let lines: Vec<String> =
                text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
            if lines.is_empty() {
                return Err(Failure::at(path, "there is no key in it"));
            }
            keys.extend(lines);
        }
        match keys.iter().any(|key| key.trim().is_empty()) {
            true => Err(Failure::Usage("an empty --api-key lets everybody in: leave it away".to_owned())),
            false => Ok(keys),
        }
    }

    fn names(&self) -> Vec<String> {
        if !self.alias.is_empty() {
            return self.alias.clone();
        }
        let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        vec![self.model.as_deref().and_then(stem).unwrap_or_else(|| "atta-home".to_owned())]
    }
}

/// The longest context if none is asked for.
const DEFAULT_N_CTX: usize = 4096;
/// How long those who write wait for those whose prompts are read.
const MAX_GAP: Duration = Duration::from_millis(100);
/// How long texts may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

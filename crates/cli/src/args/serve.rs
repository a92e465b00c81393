//! What may be typed behind `atta serve`, and what it means for the server.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use atta::{BatcherOptions, GenerateOptions, KvType, Pooling, SessionOptions};
#[cfg(feature = "tls")]
use atta_server::Tls;
use atta_server::{Defaults, Listen, Log, ServerOptions, ThermalOptions};
use clap::{Args, ValueEnum};

use super::{CacheFlags, Length, ModelFlags, SamplingFlags, TemplateName, value};
use crate::{cache::Cache, failure::Failure, input};

/// Kept texts for each that may be written.
const KEPT: usize = 1;

/// Serves models to other programs, as the interfaces of OpenAI, Anthropic and Ollama have it, and
/// to browsers.
///
/// Requests are answered at the same time: their tokens are computed together, and what several of
/// them begin with is read once. Each answer is the same, bit for bit, as if it had been the only
/// one.
///
/// Sampling options are defaults for requests that do not set them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta serve                                     the built-in model, at http://127.0.0.1:8080
  atta serve model.gguf --port 9000 --parallel 4
  atta serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  atta serve model.gguf --tls-cert cert.pem --tls-key key.pem
  curl localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'
  atta serve a.gguf b.gguf --ram-budget 4G --idle-unload 300

Paths: OpenAI's /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/models; Anthropic's /v1/messages; Ollama's
/api/chat, /api/generate, /api/embed, /api/tags; llama.cpp's /completion, /infill, /apply-template, /tokenize, /props, /slots;
/health, /metrics, /openapi.json, and a page at /")]
pub(crate) struct ServeArgs {
    /// GGUF files, of a split model any of its files; or ORG/REPO[:QUANT] that was pulled. The
    /// first is loaded now, others when they are asked for [default: the built-in model]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    /// Address to listen at; others than those of this machine need --api-key or --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen at; 0: a free one, which is written to standard output
    #[arg(long, value_name = "PORT", default_value = "8080")]
    port: u16,
    /// Listen at this socket in the file system instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// Encrypt connections, with the certificates in this file of PEM: the server's first, then
    /// those that vouch for it
    #[cfg(feature = "tls")]
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        conflicts_with = "unix"
    )]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// What clients must know; may be given several times. Other users of this machine can see it
    /// here
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// A file with such keys, one in each line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Serve other machines without a key
    #[arg(long)]
    insecure: bool,
    /// Let pages of this origin use the server without a key, such as https://chat.example or app://*; may be given several
    /// times. Apps, browser extensions and pages of this machine may anyway. With a key: let only
    /// these pages read answers
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Answer to this name in the Host header, too; may be given several times. Addresses,
    /// localhost, names without a dot, .local and .internal count anyway
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// What the model is called; may be given several times. Of several models: NAME=MODEL,
    /// another name for the one that is called MODEL [default: the names of their files]
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Chat template: `chatml`, `plain`, or a Jinja file; only for a server of one model [default:
    /// the template in the model's file]
    #[arg(long, value_name = "NAME|FILE", alias = "chat-template-file")]
    pub(crate) chat_template: Option<TemplateName>,
    /// Default chat template variables as a JSON object, such as {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = value::json_object)]
    chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Texts of a model that are written at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = value::positions)]
    parallel: usize,
    /// Contexts that all texts together have room for; more texts that begin the same way are
    /// kept, too
    #[arg(long, value_name = "N", default_value = "4", value_parser = value::positions)]
    contexts: usize,
    /// How texts become vectors where a request does not say [default: as the model's file says,
    /// else last]
    #[arg(long, value_name = "HOW", value_enum)]
    pooling: Option<PoolingName>,
    /// Requests that may wait; more are refused with 429
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count)]
    queue: usize,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "1024", value_parser = value::positions)]
    connections: usize,
    /// How long a request may take to come, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = value::positions)]
    timeout: usize,
    /// Seconds that an answer may take from its request on; then it ends as at its length
    #[arg(long, value_name = "S", value_parser = value::positions)]
    max_time: Option<usize>,
    /// Seconds after which a model that nobody uses is taken out of memory; the next request loads
    /// it again
    #[arg(long, value_name = "S", value_parser = value::positions)]
    idle_unload: Option<usize>,
    /// Compute for a part of the time only, a quarter at least, while the machine is hotter than
    /// that many degrees Celsius
    #[arg(long, value_name = "DEGREES", value_parser = value::celsius)]
    cool: Option<usize>,
    /// Bytes of a request at most, such as 4M
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = value::size)]
    max_body: u64,
    /// A line on standard error for each request
    #[arg(long, value_name = "HOW", value_enum)]
    log: Option<LogName>,
    /// Directory for the state of texts that have to make room in memory, and of all when the
    /// server ends: who begins the same way goes on from there
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Bytes that it may hold, such as 256M; what was used least recently goes first [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = value::size, requires = "cache")]
    cache_size: Option<u64>,
    #[command(flatten)]
    pub(crate) model_flags: ModelFlags,
    #[command(flatten)]
    sampling: SamplingFlags,
}

/// How a request is written down.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogName {
    Text,
    Json,
}

/// Which hidden states become the vector of a text.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolingName {
    Mean,
    Last,
    Cls,
}

impl From<PoolingName> for Pooling {
    fn from(name: PoolingName) -> Self {
        match name {
            PoolingName::Mean => Self::Mean,
            PoolingName::Last => Self::Last,
            PoolingName::Cls => Self::Cls,
        }
    }
}

impl ServeArgs {
    /// The texts that memory is kept free for.
    pub(crate) fn session(&self) -> SessionOptions {
        let session = self.model_flags.session_options(KvType::default());
        let n_seqs = self.parallel.saturating_mul(1 + KEPT);
        SessionOptions {
            n_forks: n_seqs - 1,
            n_contexts: Some(self.contexts),
            ..session
        }
    }

    /// The server of a model that has been loaded for that.
    ///
    /// # Errors
    /// A file of keys that cannot be read or holds none, a path that cannot be a cache, a
    /// certificate that cannot be used.
    pub(crate) fn server_options(&self) -> Result<ServerOptions, Failure> {
        let cache = CacheFlags {
            cache: self.cache.clone(),
            cache_size: self.cache_size,
        };
        let (session, cache) = (self.session(), Cache::shared(&cache)?);
        let batcher = BatcherOptions {
            session,
            n_jobs: self.parallel,
            max_gap: MAX_GAP,
            cache,
        };
        let listen = match &self.unix {
            Some(path) => Listen::Unix(path.clone()),
            None => Listen::Tcp(SocketAddr::new(self.host, self.port)),
        };
        Ok(ServerOptions {
            listen,
            #[cfg(feature = "tls")]
            tls: self.tls()?,
            api_keys: self.keys()?,
            insecure: self.insecure,
            allowed_origins: self
                .allow_origin
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_owned())
                .collect(),
            allowed_hosts: self.allow_host.clone(),
            batcher,
            defaults: self.defaults()?,
            pooling: self.pooling.map(Pooling::from),
            max_queue: self.queue,
            max_body: usize::try_from(self.max_body).unwrap_or(usize::MAX),
            max_connections: self.connections,
            read_timeout: seconds(self.timeout),
            max_time: self.max_time.map(seconds),
            idle_unload: self.idle_unload.map(seconds),
            grace: GRACE,
            thermal: self.cool.map(|celsius| ThermalOptions {
                celsius: celsius as f64,
                sys: PathBuf::from("/sys"),
                interval: LOOK,
            }),
            log: match self.log {
                None => Log::Off,
                Some(LogName::Text) => Log::Text,
                Some(LogName::Json) => Log::Json,
            },
        })
    }

    /// Defaults for fields that a request does not set.
    fn defaults(&self) -> Result<Defaults, Failure> {
        let GenerateOptions {
            sampling,
            n_predict,
            stop,
            ..
        } = self.sampling.generate_options(Length::Story)?;
        let n_predict = Some(n_predict).filter(|&n| n < usize::MAX);
        let variables = self.chat_template_kwargs.clone().unwrap_or_default();
        Ok(Defaults {
            seed: self.sampling.seed().map(|_| sampling.seed),
            sampling,
            n_predict,
            stop,
            variables,
        })
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let Some((cert, key)) = self.tls_cert.as_deref().zip(self.tls_key.as_deref()) else {
            return Ok(None);
        };
        Tls::open(cert, key)
            .map(Some)
            .map_err(|error| Failure::Failed(error.to_string()))
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = input::read_text(path)?;
            let lines: Vec<String> = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect();
            if lines.is_empty() {
                return Err(Failure::at(path, "there is no key in it"));
            }
            keys.extend(lines);
        }
        match keys.iter().any(|key| key.trim().is_empty()) {
            true => Err(Failure::Usage(
                "an empty --api-key lets everybody in: leave it away".to_owned(),
            )),
            false => Ok(keys),
        }
    }

    /// What each model is called, in their order.
    ///
    /// # Errors
    /// An alias of no model.
    pub(crate) fn names(&self) -> Result<Vec<Vec<String>>, Failure> {
        let refuse = |why: String| Err(Failure::Usage(why));
        if self.models.len() < 2 {
            let own = || {
                vec![
                    self.models
                        .first()
                        .map_or_else(|| BUILT_IN.to_owned(), |model| name(model)),
                ]
            };
            return Ok(vec![if self.alias.is_empty() {
                own()
            } else {
                self.alias.clone()
            }]);
        }
        let mut names: Vec<Vec<String>> =
            self.models.iter().map(|model| vec![name(model)]).collect();
        for alias in &self.alias {
            let Some((alias, model)) = alias.split_once('=') else {
                return refuse(format!(
                    "--alias {alias}: of which model? Of several, it is NAME=MODEL"
                ));
            };
            match names.iter_mut().find(|names| names[0] == model) {
                Some(names) => names.push(alias.to_owned()),
                None => {
                    return refuse(format!(
                        "--alias {alias}={model}: there is no model {model:?}"
                    ));
                }
            }
        }
        Ok(names)
    }
}

/// What the model in the program is called.
const BUILT_IN: &str = "atta-home";

fn seconds(n: usize) -> Duration {
    Duration::from_secs(n as u64)
}

/// What a model is called: its file without what every model's has, or its repository without whose
/// it is.
fn name(model: &Path) -> String {
    let last = model
        .file_name()
        .unwrap_or(model.as_os_str())
        .to_string_lossy();
    let Some(stem) = last.strip_suffix(".gguf") else {
        return last.split(':').next().unwrap_or(&last).to_owned();
    };
    let is_part = |tail: &str| tail.len() == 14 && tail.get(5..9) == Some("-of-");
    match stem
        .len()
        .checked_sub(15)
        .and_then(|at| Some((stem.get(..at)?, stem.get(at + 1..)?)))
    {
        Some((start, tail)) if is_part(tail) => start.to_owned(),
        _ => stem.to_owned(),
    }
}

/// How long those who write wait for those whose prompts are read.
const MAX_GAP: Duration = Duration::from_millis(100);
/// How often the temperature is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long texts may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_after_its_file_or_its_repository() {
        let names = [
            ("a/Qwen3-0.6B-Q4_K_M.gguf", "Qwen3-0.6B-Q4_K_M"),
            ("big-00001-of-00003.gguf", "big"),
            ("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-GGUF"),
            ("HuggingFaceTB/SmolLM2-1.7B:Q4_K_M", "SmolLM2-1.7B"),
            ("short.gguf", "short"),
        ];
        for (model, expected) in names {
            assert_eq!(name(Path::new(model)), expected);
        }
    }
}

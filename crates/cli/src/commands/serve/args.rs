//! The options of `atta serve`, and the server options they mean.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atta::{BatcherOptions, GenerateOptions, KvType, Pooling, PromptCache, SessionOptions};
use atta_server::{Defaults, Listen, Log, ServerOptions, ThermalOptions, Tls};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::disk_cache::{self, CacheWish};
use crate::{
    args::{
        DefaultLength, GpuFlags, ModelFlags, RingFlags, SamplingFlags, SpeculationFlags,
        value::{self, Seed},
    },
    commands::embed::PoolingName,
    conversation::TemplateName,
    failure::Failure,
    input,
};

/// Serves models over HTTP, with the APIs of OpenAI, Anthropic, Ollama and llama.cpp, and a web
/// page.
///
/// Requests are batched, and prompts that begin alike share their KV cache. Each answer is the
/// same, bit for bit, as if it had been the only one.
///
/// Sampling options are defaults for requests that do not set them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atta serve                                     the built-in model, at http://127.0.0.1:8080
  atta serve model.gguf --port 9000 --parallel 4
  atta serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  atta serve model.gguf --tls-cert cert.pem --tls-key key.pem
  atta serve a.gguf b.gguf --ram-budget 4G --idle-unload 300
  curl localhost:8080/v1/chat/completions \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'

Paths: OpenAI's /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/models;
Anthropic's /v1/messages; Ollama's /api/chat, /api/generate, /api/embed, /api/tags; llama.cpp's
/completion, /infill, /apply-template, /tokenize, /props, /slots; /health, /metrics, /openapi.json,
and a page at /; with --ring, /api/cluster and a page at /cluster")]
pub(crate) struct ServeArgs {
    /// GGUF files (any file of a split model), or ORG/REPO[:QUANT] that was pulled. The first is
    /// loaded now, the others on demand [default: the built-in model]
    #[arg(value_name = "MODEL")]
    pub(super) models: Vec<PathBuf>,
    /// MODEL by its name.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    named: Vec<PathBuf>,
    /// IP address to listen on; an address that other machines can reach needs --api-key or
    /// --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0: a free port, which is printed
    #[arg(long, value_name = "PORT", default_value = "8080")]
    port: u16,
    /// Listen on this Unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// PEM file of the SSL certificate, followed by its chain
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        conflicts_with = "unix"
    )]
    tls_cert: Option<PathBuf>,
    /// PEM file of the SSL private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// API key; repeatable. Other users of this machine can see it in the list of processes
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// File of API keys, one per line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Serve other machines without an API key
    #[arg(long)]
    insecure: bool,
    /// CORS origin that needs no API key, such as https://chat.example or app://*; repeatable.
    /// Apps, browser extensions and pages of this machine are always allowed. With an API key,
    /// only these origins may read answers
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Accept this name in the Host header; repeatable. Addresses, localhost, names without a dot,
    /// .local and .internal are always accepted
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Model name; repeatable. With several models, NAME=MODEL adds a name to MODEL [default: file
    /// names]
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Chat template: `chatml`, `plain`, or a Jinja file; only for a server of one model [default:
    /// the template in the model's file]
    #[arg(long, value_name = "NAME|FILE", alias = "chat-template-file")]
    pub(super) chat_template: Option<TemplateName>,
    /// Default chat template variables as a JSON object, such as {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Slots: requests of a model that are decoded at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = value::positions)]
    parallel: usize,
    /// KV cache size in contexts of -c tokens, shared by all slots and cached prompts
    #[arg(long, value_name = "N", default_value = "4", value_parser = value::positions)]
    contexts: usize,
    /// Default pooling of embeddings [default: as the model's file says, else last]
    #[arg(long, value_name = "HOW", value_enum)]
    pooling: Option<PoolingName>,
    /// Requests that may wait for a slot; more are refused with status 429
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count)]
    queue: usize,
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value = "1024", value_parser = value::positions)]
    connections: usize,
    /// Timeout for reading a request, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = value::positions)]
    timeout: usize,
    /// Maximum time of an answer in seconds, from its request on; then it ends as at its length
    #[arg(long, value_name = "S", value_parser = value::positions)]
    max_time: Option<usize>,
    /// Keep-alive: unload a model that was not used for S seconds; the next request loads it again
    #[arg(long, value_name = "S", value_parser = value::positions)]
    idle_unload: Option<usize>,
    /// Thermal throttling: pause between batches while the machine is hotter than DEGREES Celsius;
    /// computes at least a quarter of the time
    #[arg(long, value_name = "DEGREES", value_parser = celsius)]
    cool: Option<usize>,
    /// Maximum size of a request, such as 4M
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = value::size)]
    max_body: u64,
    /// Log each request to standard error
    #[arg(long, value_name = "HOW", value_enum)]
    log: Option<LogName>,
    /// Directory of saved prompts: KV cache that is evicted from memory, and all of it at exit, is
    /// saved there and reused [default: ~/.cache/atta/prompts; none with --ring]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Save no prompts to disk
    #[arg(long, conflicts_with_all = ["cache", "cache_size"])]
    no_cache: bool,
    /// Size limit of that directory, such as 256M; evicts the least recently used; 0: no directory
    /// [default: 1G; by default a tenth of the free disk at most]
    #[arg(long, value_name = "SIZE", value_parser = value::size_or_0)]
    cache_size: Option<u64>,
    /// Reuse later parts of cached prompts, of at least N tokens (16 or more), where other tokens
    /// are in front of them: answers are approximate then. 0: never
    #[arg(long, value_name = "N", default_value = "0", value_parser = value::count)]
    cache_reuse: usize,
    #[command(flatten)]
    pub(super) model_flags: ModelFlags,
    #[command(flatten)]
    pub(super) speculation: SpeculationFlags,
    #[command(flatten)]
    pub(super) ring: RingFlags,
    #[command(flatten)]
    pub(super) gpu: GpuFlags,
    #[command(flatten)]
    sampling: SamplingFlags,
}

/// The format of the request log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogName {
    Text,
    Json,
}

fn celsius(text: &str) -> Result<usize, String> {
    value::within(text, 30, 120)
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected an object of JSON: {error}"))
}

impl ServeArgs {
    /// These with all models in one list, those given by their place first.
    pub(super) fn with_named_models(mut self) -> Self {
        self.models.append(&mut self.named);
        self
    }

    /// Session options with memory for all slots and cached prompts.
    pub(super) fn session(&self) -> SessionOptions {
        let session = self.model_flags.session_options(KvType::default());
        let n_seqs = self.parallel.saturating_mul(1 + CACHED_PER_SLOT);
        SessionOptions {
            n_forks: n_seqs - 1,
            n_contexts: Some(self.contexts),
            ..self.speculation.reserve(session)
        }
    }

    /// The options of the server.
    ///
    /// # Errors
    /// A file of keys that cannot be read or holds none, a path that cannot be a cache, a
    /// certificate that cannot be used.
    pub(super) fn server_options(&self) -> Result<ServerOptions, Failure> {
        Ok(ServerOptions {
            listen: match &self.unix {
                Some(path) => Listen::Unix(path.clone()),
                None => Listen::Tcp(SocketAddr::new(self.host, self.port)),
            },
            tls: self.tls()?,
            api_keys: self.keys()?,
            insecure: self.insecure,
            allowed_origins: self
                .allow_origin
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_owned())
                .collect(),
            allowed_hosts: self.allow_host.clone(),
            batcher: BatcherOptions {
                session: self.session(),
                n_jobs: self.parallel,
                max_gap: MAX_GAP,
                cache: self.cache()?,
            },
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
                interval: THERMAL_INTERVAL,
            }),
            cluster: None,
            log: match self.log {
                None => Log::Off,
                Some(LogName::Text) => Log::Text,
                Some(LogName::Json) => Log::Json,
            },
        })
    }

    /// The prompt cache, which is always a directory. Of a ring, this machine has a part of the
    /// state only, so that it has one only if one was asked for.
    fn cache(&self) -> Result<Option<Arc<PromptCache>>, Failure> {
        let wish = match &self.cache {
            Some(path) => CacheWish::In(path),
            None if self.no_cache || self.ring != RingFlags::default() => CacheWish::Off,
            None => CacheWish::Default,
        };
        let cache = disk_cache::open(wish, self.cache_size)?;
        Ok(cache.map(Arc::new))
    }

    /// Defaults for fields that a request does not set.
    fn defaults(&self) -> Result<Defaults, Failure> {
        let GenerateOptions {
            sampling,
            n_predict,
            stop,
            ..
        } = self.sampling.generate_options(DefaultLength::Unlimited)?;
        let n_predict = Some(n_predict).filter(|&n| n < usize::MAX);
        let variables = self.chat_template_kwargs.clone().unwrap_or_default();
        Ok(Defaults {
            seed: match self.sampling.seed {
                Some(Seed::Fixed(seed)) => Some(seed),
                Some(Seed::Random) | None => None,
            },
            sampling,
            n_predict,
            stop,
            variables,
            speculation: None,
            cache_reuse: self.cache_reuse,
        })
    }

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
                "an empty --api-key lets everybody in: leave it out".to_owned(),
            )),
            false => Ok(keys),
        }
    }

    /// The names of each model, in the order of the models.
    ///
    /// # Errors
    /// An alias of no model.
    pub(super) fn names(&self) -> Result<Vec<Vec<String>>, Failure> {
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

/// The name of the built-in model.
const BUILT_IN: &str = "atta-home";

fn seconds(n: usize) -> Duration {
    Duration::from_secs(n as u64)
}

/// The default name of a model: its file name without the part number and `.gguf`, or its
/// repository without the organization.
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

/// Cached prompts per slot that have sequence ids of their own.
const CACHED_PER_SLOT: usize = 1;
/// The longest pause of a decoding request while prompts are prefilled.
const MAX_GAP: Duration = Duration::from_millis(100);
/// How often the temperature is read.
const THERMAL_INTERVAL: Duration = Duration::from_secs(1);
/// How long answers may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_file_or_its_repository() {
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

//! Servers of models that answer at once: the vocabulary of the story model, and weights that are
//! dice. The fuzz target has this file too.

use std::{net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};

use atta_engine::{
    BatcherOptions, Engine, LoadOptions, SessionOptions, Threads, chat::TemplateChoice,
};
use atta_formats::{Gguf, TensorType, Writer};
use atta_server::{Defaults, Listen, Log, ModelSource, Server, ServerOptions};

const STORIES: &[u8] = include_bytes!("../../../../tests/golden/stories.gguf");

/// A template with thoughts, tools and calls.
const TEMPLATE: &str = "{% if tools %}{{ tools|tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
    {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>\n\
    {{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}\n</tool_call>{% endfor %}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n\
    {% endif %}";

/// Special texts of that template, which take the places of the last tokens.
const MARKERS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
/// Tokens that stand for nothing else.
const CONTROL: i32 = 3;

const D_MODEL: u64 = 32;
const D_FF: u64 = 64;

/// Tokens of a conversation that its models are shown.
const TALK_WINDOW: usize = 300;

/// A server of `stories`, which has no template, and of `tools`, which has one. Nothing that they
/// are asked for takes long.
pub(crate) fn server() -> Server {
    server_with(options())
}

/// The same with other options.
pub(crate) fn server_with(options: ServerOptions) -> Server {
    let source = |name: &str, template| {
        let bytes: &'static [u8] = model(template).leak();
        let threads = Threads::Count(NonZeroUsize::MIN);
        let load = LoadOptions {
            threads,
            session: session(),
            ..LoadOptions::default()
        };
        let open = move |beside| {
            Engine::from_static(
                "tiny",
                bytes,
                &LoadOptions {
                    beside,
                    ..load.clone()
                },
            )
        };
        ModelSource {
            names: vec![name.to_owned()],
            template: TemplateChoice::Model,
            talk_window: Some(TALK_WINDOW),
            open: Box::new(open),
        }
    };
    Server::bind(
        vec![source("stories", None), source("tools", Some(TEMPLATE))],
        options,
    )
    .unwrap()
}

fn session() -> SessionOptions {
    let n_ctx = Some(512);
    let n_batch = Some(32);
    SessionOptions {
        n_ctx,
        n_batch,
        n_forks: 3,
        n_contexts: Some(2),
        ..SessionOptions::default()
    }
}

/// With a port of its own and no keys.
pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        tls: None,
        api_keys: Vec::new(),
        insecure: false,
        allowed_origins: Vec::new(),
        allowed_hosts: Vec::new(),
        batcher: BatcherOptions {
            session: session(),
            n_jobs: 2,
            max_gap: Duration::from_millis(50),
            cache: None,
        },
        defaults: Defaults::default(),
        pooling: None,
        max_queue: 1,
        max_body: 100_000,
        max_connections: 1,
        read_timeout: Duration::from_secs(5),
        max_time: Some(Duration::from_secs(5)),
        idle_unload: None,
        grace: Duration::ZERO,
        thermal: None,
        cluster: None,
        log: Log::Off,
    }
}

/// The file of a model.
fn model(template: Option<&str>) -> Vec<u8> {
    let stories = Gguf::parse(Arc::new(STORIES), STORIES.len() as u64).unwrap();
    let mut writer = Writer::new();
    let vocabulary = stories
        .metadata
        .iter()
        .filter(|(key, _)| key.starts_with("tokenizer."));
    vocabulary.for_each(|(key, value)| writer.set_value(key, value));
    let texts = stories
        .metadata
        .strs("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap();
    let mut texts: Vec<Vec<u8>> = texts.iter().map(<[u8]>::to_vec).collect();
    let mut kinds: Vec<i32> = stories
        .metadata
        .i32s("tokenizer.ggml.token_type")
        .unwrap()
        .unwrap()
        .iter()
        .collect();
    // So that embeddings of one of the models have an end token.
    writer.set_bool("tokenizer.ggml.add_eos_token", template.is_none());
    if let Some(template) = template {
        writer.set_str("tokenizer.chat_template", template);
        let first = texts.len() - MARKERS.len();
        for (i, marker) in MARKERS.iter().enumerate() {
            (texts[first + i], kinds[first + i]) = (marker.as_bytes().to_vec(), CONTROL);
        }
    }
    writer.set_strs("tokenizer.ggml.tokens", &texts);
    writer.set_i32s("tokenizer.ggml.token_type", &kinds);
    writer.set_str("general.architecture", "llama");
    for (key, value) in [
        ("vocab_size", texts.len() as u64),
        ("context_length", 512),
        ("embedding_length", D_MODEL),
        ("block_count", 1),
        ("feed_forward_length", D_FF),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", D_MODEL / 2),
    ] {
        writer.set_u32(&format!("llama.{key}"), value as u32);
    }
    writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    with_weights(writer, texts.len() as u64)
}

/// The file with the weights of a layer.
fn with_weights(mut writer: Writer, n_vocab: u64) -> Vec<u8> {
    let matrices: [(&str, &[u64]); 11] = [
        ("token_embd", &[n_vocab, D_MODEL]),
        ("output_norm", &[D_MODEL]),
        ("blk.0.attn_norm", &[D_MODEL]),
        ("blk.0.attn_q", &[D_MODEL, D_MODEL]),
        ("blk.0.attn_k", &[D_MODEL / 2, D_MODEL]),
        ("blk.0.attn_v", &[D_MODEL / 2, D_MODEL]),
        ("blk.0.attn_output", &[D_MODEL, D_MODEL]),
        ("blk.0.ffn_norm", &[D_MODEL]),
        ("blk.0.ffn_gate", &[D_FF, D_MODEL]),
        ("blk.0.ffn_up", &[D_FF, D_MODEL]),
        ("blk.0.ffn_down", &[D_MODEL, D_FF]),
    ];
    for (name, shape) in matrices {
        writer
            .add_tensor(&format!("{name}.weight"), shape, TensorType::F32)
            .unwrap();
    }
    let layout = writer.finish().unwrap();
    let mut file = layout.header;
    let mut dice: u32 = 1;
    for tensor in &layout.tensors {
        file.resize(tensor.offset as usize, 0);
        for _ in 0..tensor.n_bytes / 4 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // From −1/2 to 1/2.
            let weight = (dice >> 8) as f32 / (1 << 24) as f32 - 0.5;
            file.extend_from_slice(&weight.to_le_bytes());
        }
    }
    file.resize(layout.file_bytes as usize, 0);
    file
}

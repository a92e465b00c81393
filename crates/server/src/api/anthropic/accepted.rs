//! Fields of Anthropic's interface without effect, and the reasons. docs/server.md has the same
//! table.

use crate::flow::body::Accepted;

const BETA: &str = "what this server can do is always on";
const CACHE: &str = "the beginning of a prompt is kept anyway";
const CALLERS: &str = "this server calls no tools by itself";
const CONTEXT: &str = "the messages are read as they were sent";
const COUNT: &str = "a count does not depend on it";
const MONEY: &str = "nothing costs money here, and there are no accounts";
const ONE: &str = "there is one machine and one model, and a request waits for its turn";
const SIGNED: &str = "nothing is signed here";

/// Fields of requests. The last ones are kept in requests for an answer, and have no effect on a
/// token count.
pub(super) const FIELDS: Accepted = &[
    ("anthropic_beta", BETA),
    ("anthropic_version", BETA),
    ("betas", BETA),
    ("billing_policy", MONEY),
    ("cache_control", CACHE),
    ("compaction", CONTEXT),
    ("container", CALLERS),
    ("context_management", CONTEXT),
    ("diagnostics", CACHE),
    ("fallback_credit_token", MONEY),
    ("fallbacks", ONE),
    ("inference_geo", ONE),
    ("mcp_servers", CALLERS),
    ("metadata", MONEY),
    ("output_config.task_budget", "max_tokens limits an answer"),
    ("service_tier", ONE),
    ("speed", ONE),
    ("thinking.block_binding", SIGNED),
    (
        "thinking.budget_tokens",
        "max_tokens limits an answer, its thoughts included",
    ),
    ("thinking.display", "thoughts are always part of an answer"),
    ("tools[].allowed_callers", CALLERS),
    ("tools[].cache_control", CACHE),
    (
        "tools[].defer_loading",
        "the model is told of all tools at once",
    ),
    (
        "tools[].eager_input_streaming",
        "arguments are always streamed while they are written",
    ),
    (
        "tools[].input_examples",
        "chat templates have no place for examples",
    ),
    ("user_profile_id", MONEY),
    ("workspace_id", MONEY),
    ("max_tokens", COUNT),
    ("output_format", COUNT),
    ("stop_sequences", COUNT),
    ("stream", COUNT),
    ("temperature", COUNT),
    ("top_k", COUNT),
    ("top_p", COUNT),
];

/// Fields of blocks.
pub(super) const BLOCK_FIELDS: Accepted = &[
    ("cache_control", CACHE),
    ("caller", CALLERS),
    ("citations", "answers have no citations"),
    ("encrypted_content", SIGNED),
    ("parsed_output", "the text says the same"),
    ("signature", SIGNED),
    ("toolset_name", CALLERS),
];

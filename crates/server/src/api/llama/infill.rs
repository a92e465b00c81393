//! `POST /infill`: what stands in a gap between two texts, of models that were trained for that
//! (FIM, "fill in the middle").

use std::sync::Arc;

use atta_engine::tokenizer::{Special, TokenKind};
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    options::{self, Settings},
    response::{self, AnswerPlan, Wish},
};
use crate::{
    app::App,
    flow::{
        body::{self, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        warnings::Warnings,
    },
    models::Model,
};

/// A token of the vocabulary that marks a place: the keys that name it in a file, and else its
/// text.
struct Mark {
    keys: &'static [&'static str],
    texts: &'static [&'static str],
}

const PREFIX: Mark = Mark {
    keys: &[
        "tokenizer.ggml.fim_pre_token_id",
        "tokenizer.ggml.prefix_token_id",
    ],
    texts: &[
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
    ],
};
const SUFFIX: Mark = Mark {
    keys: &[
        "tokenizer.ggml.fim_suf_token_id",
        "tokenizer.ggml.suffix_token_id",
    ],
    texts: &[
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
    ],
};
const MIDDLE: Mark = Mark {
    keys: &[
        "tokenizer.ggml.fim_mid_token_id",
        "tokenizer.ggml.middle_token_id",
    ],
    texts: &[
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
    ],
};
const REPOSITORY: Mark = Mark {
    keys: &["tokenizer.ggml.fim_rep_token_id"],
    texts: &[
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
    ],
};
const FILE: Mark = Mark {
    keys: &["tokenizer.ggml.fim_sep_token_id"],
    texts: &["<|file_sep|>"],
};

/// Files beside the one with the gap.
const MAX_EXTRA: usize = 64;

/// What may be asked for, beside [`Settings`].
#[derive(Debug, Deserialize)]
pub(crate) struct InfillRequest {
    #[serde(default)]
    input_prefix: String,
    #[serde(default)]
    input_suffix: String,
    #[serde(default)]
    input_extra: Vec<Extra>,
    /// What stands behind the prefix: the beginning of what fills the gap.
    #[serde(default)]
    prompt: String,
    model: Option<String>,
    stream: Option<bool>,
    return_tokens: Option<bool>,
    response_fields: Option<Vec<String>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Another file, which the model may look at.
#[derive(Debug, Deserialize)]
pub(crate) struct Extra {
    text: String,
    filename: Option<String>,
}

/// A gap in a text.
pub(crate) struct Gap<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) suffix: &'a str,
    pub(crate) extra: &'a [Extra],
}

impl Ask for InfillRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Fills a gap.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, plan) = prepare::begin(&app, incoming, prepared).await?;
    response::respond(answers, plan).await
}

fn prepared(
    model: &Model,
    request: InfillRequest,
    warnings: &Warnings,
) -> Result<(Prepared, AnswerPlan), ApiError> {
    let InfillRequest {
        input_prefix,
        input_suffix,
        input_extra,
        prompt: begun,
        stream,
        rest,
        ..
    } = request;
    let (prefix, suffix) = (input_prefix + &begun, input_suffix);
    let ids = prompt(
        model,
        &Gap {
            prefix: &prefix,
            suffix: &suffix,
            extra: &input_extra,
        },
    )?;
    let settings: Settings = body::understand(Value::Object(rest), options::ACCEPTED, warnings)?;
    let wish = Wish {
        is_stream: stream == Some(true),
        with_tokens: request.return_tokens == Some(true),
        fields: request.response_fields.unwrap_or_default(),
        ..Wish::default()
    };
    response::prepared(model, &[ids], settings.understand(model, warnings)?, wish)
}

/// Whether a model knows gaps.
pub(crate) fn can_fill(model: &Model) -> bool {
    [PREFIX, SUFFIX, MIDDLE]
        .iter()
        .all(|mark| mark.find(model).is_some())
}

/// The prompt in front of what fills a gap: prefix, suffix, middle, in that order, and other files
/// before them as far as half of the context holds them.
pub(crate) fn prompt(model: &Model, gap: &Gap<'_>) -> Result<Vec<u32>, ApiError> {
    let Gap {
        prefix,
        suffix,
        extra,
    } = *gap;
    let [Some(pre), Some(suf), Some(mid)] = [PREFIX, SUFFIX, MIDDLE].map(|mark| mark.find(model))
    else {
        let message = "this model cannot fill gaps: its vocabulary has no FIM tokens (fim_pre, fim_suf, fim_mid)";
        return Err(ApiError {
            param: Some("input_suffix".to_owned()),
            ..ApiError::not_implemented(message)
        });
    };
    if extra.len() > MAX_EXTRA {
        return Err(ApiError::field(
            "input_extra",
            format!("{} files, expected at most {MAX_EXTRA}", extra.len()),
        ));
    }
    let tokenizer = model.engine.tokenizer();
    let plain = |text: &str| tokenizer.encode_after(text, Special::Plain);
    let gap = [
        vec![pre],
        plain(prefix),
        vec![suf],
        plain(suffix),
        vec![mid],
    ]
    .concat();
    let mut files: Vec<u32> = extra.iter().flat_map(|file| written(model, file)).collect();
    // What stands next to the gap matters most.
    let room = (model.n_ctx / 2).saturating_sub(gap.len());
    let files = files.split_off(files.len().saturating_sub(room));
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    Ok(bos.into_iter().chain(files).chain(gap).collect())
}

/// Another file as models have seen such in training, or, where they have no token for that, as
/// plain text.
fn written(model: &Model, file: &Extra) -> Vec<u32> {
    let tokenizer = model.engine.tokenizer();
    let plain = |text: &str| tokenizer.encode_after(text, Special::Plain);
    let name = file.filename.as_deref().unwrap_or("tmp");
    match (REPOSITORY.find(model), FILE.find(model)) {
        (Some(_), Some(mark)) => [vec![mark], plain(&format!("{name}\n{}", file.text))].concat(),
        _ => plain(&format!("\n\n--- {name} ---\n\n{}\n\n", file.text)),
    }
}

impl Mark {
    /// The token, if the vocabulary has it.
    fn find(&self, model: &Model) -> Option<u32> {
        let tokenizer = model.engine.tokenizer();
        let metadata = model
            .engine
            .model()
            .weights()
            .files()
            .directory()
            .metadata();
        let named = self
            .keys
            .iter()
            .find_map(|key| metadata.u32(key).ok().flatten());
        let is_mark = |id: &u32| {
            matches!(
                tokenizer.kind(*id),
                TokenKind::Control | TokenKind::UserDefined
            )
        };
        let by_text = || {
            self.texts
                .iter()
                .find_map(|text| tokenizer.token_id(text).filter(is_mark))
        };
        named
            .filter(|&id| (id as usize) < tokenizer.n_vocab())
            .or_else(by_text)
    }
}

//! `POST /infill`: fills the gap between two texts, with models that were trained for it (FIM,
//! "fill in the middle").

use atta_engine::tokenizer::{Special, TokenKind};
use serde::Deserialize;

use super::{
    LlamaPath, LlamaPrompts,
    options::{self, LlamaShared},
};
use crate::{
    flow::{body::Accepted, error::ApiError, request::PathFields},
    models::Model,
};

/// A FIM token: the metadata keys that may name it, and its texts in vocabularies without them.
struct FimToken {
    keys: &'static [&'static str],
    texts: &'static [&'static str],
}

const PREFIX: FimToken = FimToken {
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
const SUFFIX: FimToken = FimToken {
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
const MIDDLE: FimToken = FimToken {
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
const REPOSITORY: FimToken = FimToken {
    keys: &["tokenizer.ggml.fim_rep_token_id"],
    texts: &[
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
    ],
};
const FILE: FimToken = FimToken {
    keys: &["tokenizer.ggml.fim_sep_token_id"],
    texts: &["<|file_sep|>"],
};

/// Files beside the one with the gap, at most.
const MAX_EXTRA: usize = 64;

/// The fields of `/infill` alone.
#[derive(Debug, Deserialize)]
pub(crate) struct InfillFields {
    #[serde(default)]
    input_prefix: String,
    #[serde(default)]
    input_suffix: String,
    #[serde(default)]
    input_extra: Vec<ExtraFile>,
    /// The beginning of the text that fills the gap; it is appended to the prefix.
    #[serde(default)]
    prompt: String,
    model: Option<String>,
}

/// Another file, as context.
#[derive(Debug, Deserialize)]
pub(crate) struct ExtraFile {
    text: String,
    filename: Option<String>,
}

/// A gap in a text.
pub(crate) struct Gap<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) suffix: &'a str,
    pub(crate) extra: &'a [ExtraFile],
}

impl PathFields for InfillFields {
    type Shared = LlamaShared;
    const ACCEPTED: Accepted = options::ACCEPTED;

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl LlamaPath for InfillFields {
    fn into_prompts(self, model: &Model) -> Result<LlamaPrompts, ApiError> {
        let gap = Gap {
            prefix: &(self.input_prefix + &self.prompt),
            suffix: &self.input_suffix,
            extra: &self.input_extra,
        };
        Ok(LlamaPrompts {
            is_list: false,
            ids: vec![prompt(model, &gap)?],
        })
    }
}

/// Whether the vocabulary has the tokens for filling gaps.
pub(crate) fn can_fill(model: &Model) -> bool {
    [PREFIX, SUFFIX, MIDDLE]
        .iter()
        .all(|token| token.find(model).is_some())
}

/// The prompt: other files, as far as they fit into half of the context, then prefix, suffix and
/// the middle token.
pub(crate) fn prompt(model: &Model, gap: &Gap<'_>) -> Result<Vec<u32>, ApiError> {
    let Gap {
        prefix,
        suffix,
        extra,
    } = *gap;
    let [Some(pre), Some(suf), Some(mid)] = [PREFIX, SUFFIX, MIDDLE].map(|token| token.find(model))
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
    let mut files: Vec<u32> = extra
        .iter()
        .flat_map(|file| file_ids(model, file))
        .collect();
    // The files nearest to the gap matter most.
    let room = (model.n_ctx / 2).saturating_sub(gap.len());
    let files = files.split_off(files.len().saturating_sub(room));
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    Ok(bos.into_iter().chain(files).chain(gap).collect())
}

/// A file in the format of training, or as plain text if the vocabulary has no tokens for files.
fn file_ids(model: &Model, file: &ExtraFile) -> Vec<u32> {
    let tokenizer = model.engine.tokenizer();
    let plain = |text: &str| tokenizer.encode_after(text, Special::Plain);
    let name = file.filename.as_deref().unwrap_or("tmp");
    match (REPOSITORY.find(model), FILE.find(model)) {
        (Some(_), Some(mark)) => [vec![mark], plain(&format!("{name}\n{}", file.text))].concat(),
        _ => plain(&format!("\n\n--- {name} ---\n\n{}\n\n", file.text)),
    }
}

impl FimToken {
    /// Finds the token, if the vocabulary has it.
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
        let is_special = |id: &u32| {
            matches!(
                tokenizer.kind(*id),
                TokenKind::Control | TokenKind::UserDefined
            )
        };
        let by_text = || {
            self.texts
                .iter()
                .find_map(|text| tokenizer.token_id(text).filter(is_special))
        };
        named
            .filter(|&id| (id as usize) < tokenizer.n_vocab())
            .or_else(by_text)
    }
}

//! Prompts and embedding inputs: texts, token ids, or both mixed.

use atta_engine::tokenizer::Special;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use crate::models::Model;

/// The prompts of a request. A list that holds token ids is one prompt; any other list has one
/// prompt per item.
#[derive(Debug, Deserialize)]
#[serde(try_from = "PromptJson")]
pub(crate) struct Prompts {
    prompts: Vec<Vec<PromptPart>>,
    /// Whether the request has a list of several prompts, or of lists.
    is_list: bool,
}

/// A text or a token of a prompt.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PromptPart {
    Token(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "neither a text nor a list of texts and tokens")]
enum PromptJson {
    Text(String),
    List(Vec<PromptItem>),
    Object(PromptObject),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PromptItem {
    Part(PromptPart),
    List(Vec<PromptPart>),
    Object(PromptObject),
}

/// llama.cpp's objects for prompts with media. Only their text is supported.
#[derive(Deserialize)]
#[serde(untagged)]
enum PromptObject {
    Whole(WholePrompt),
    Content { content: Vec<ContentPart> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholePrompt {
    prompt_string: String,
    #[serde(default)]
    multimodal_data: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    Text { text: String },
}

impl PromptObject {
    fn into_parts(self) -> Result<Vec<PromptPart>, &'static str> {
        let text = match self {
            Self::Whole(WholePrompt {
                multimodal_data: Some(data),
                ..
            }) if !data.is_empty() => {
                return Err("multimodal_data is not supported: this model reads text only");
            }
            Self::Whole(whole) => whole.prompt_string,
            Self::Content { content } => content
                .into_iter()
                .map(|ContentPart::Text { text }| text)
                .collect(),
        };
        Ok(vec![PromptPart::Text(text)])
    }
}

impl PromptItem {
    fn into_parts(self) -> Result<Vec<PromptPart>, &'static str> {
        match self {
            Self::Part(part) => Ok(vec![part]),
            Self::List(parts) => Ok(parts),
            Self::Object(object) => object.into_parts(),
        }
    }

    /// As a part of a list that is one prompt.
    fn into_part(self) -> Result<PromptPart, &'static str> {
        match self {
            Self::Part(part) => Ok(part),
            Self::List(_) | Self::Object(_) => {
                Err("a list with tokens is one text, which has no lists in it")
            }
        }
    }
}

impl TryFrom<PromptJson> for Prompts {
    type Error = &'static str;

    fn try_from(json: PromptJson) -> Result<Self, Self::Error> {
        let items = match json {
            PromptJson::Text(text) => return Ok(Self::one(vec![PromptPart::Text(text)])),
            PromptJson::Object(object) => return Ok(Self::one(object.into_parts()?)),
            PromptJson::List(items) => items,
        };
        let is_token = |item: &PromptItem| matches!(item, PromptItem::Part(PromptPart::Token(_)));
        if items.iter().any(is_token) {
            let parts: Result<_, _> = items.into_iter().map(PromptItem::into_part).collect();
            return Ok(Self::one(parts?));
        }
        let has_lists = items.iter().any(|item| matches!(item, PromptItem::List(_)));
        Ok(Self {
            is_list: has_lists || items.len() > 1,
            prompts: items
                .into_iter()
                .map(PromptItem::into_parts)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Limits on the prompts of a request.
#[derive(Clone, Copy)]
pub(crate) struct PromptLimits {
    /// The field that holds the prompts.
    pub(crate) field: &'static str,
    pub(crate) max: usize,
}

impl Prompts {
    fn one(parts: Vec<PromptPart>) -> Self {
        Self {
            prompts: vec![parts],
            is_list: false,
        }
    }

    /// Whether the request has a list of several prompts, or of lists, so that llama.cpp's
    /// response is a list, too.
    pub(crate) fn is_list(&self) -> bool {
        self.is_list
    }

    /// Whether one of the prompts has neither tokens nor characters.
    pub(crate) fn has_empty(&self) -> bool {
        let is_empty =
            |part: &PromptPart| matches!(part, PromptPart::Text(text) if text.is_empty());
        self.prompts.iter().any(|parts| parts.iter().all(is_empty))
    }

    /// Tokenizes the prompts.
    ///
    /// # Errors
    /// No prompt, too many of them, and ids that the model does not have.
    pub(crate) fn into_ids(
        self,
        model: &Model,
        limits: PromptLimits,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        self.tokenized(model, limits, None)
    }

    /// Tokenizes the inputs of an embedding model: as [`into_ids`](Self::into_ids), and texts get
    /// the end token if the vocabulary wants it.
    pub(crate) fn into_embedding_ids(
        self,
        model: &Model,
        limits: PromptLimits,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let tokenizer = model.engine.tokenizer();
        let end = tokenizer.eos().filter(|_| tokenizer.add_eos());
        self.tokenized(model, limits, end)
    }

    /// Appends `end` to prompts that have texts.
    fn tokenized(
        self,
        model: &Model,
        PromptLimits { field, max }: PromptLimits,
        end: Option<u32>,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let n = self.prompts.len();
        if !(1..=max).contains(&n) {
            let message = format!("{n} texts, expected 1 to {max}");
            return Err(ApiError::field(field, message));
        }
        let prompts: Vec<Vec<u32>> = self
            .prompts
            .into_iter()
            .map(|parts| prompt_ids(model, parts, end))
            .collect();
        let n_vocab = model.engine.spec().n_vocab;
        match prompts.iter().flatten().find(|&&id| id as usize >= n_vocab) {
            Some(id) => Err(ApiError::field(
                field,
                format!("token {id}, of a model that has {n_vocab}"),
            )),
            None => Ok(prompts),
        }
    }
}

/// The ids of a prompt. A text at its start gets the start token if the vocabulary wants it.
fn prompt_ids(model: &Model, parts: Vec<PromptPart>, end: Option<u32>) -> Vec<u32> {
    let is_text = |part: &PromptPart| matches!(part, PromptPart::Text(_));
    let end = end.filter(|_| parts.iter().any(is_text));
    let ids = |(i, part): (usize, PromptPart)| match part {
        PromptPart::Token(id) => vec![id],
        PromptPart::Text(text) if i == 0 => model.engine.prompt_ids(text.as_bytes()),
        PromptPart::Text(text) => model.engine.tokenizer().encode_after(&text, Special::Parse),
    };
    parts
        .into_iter()
        .enumerate()
        .flat_map(ids)
        .chain(end)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Prompts, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_with_tokens_is_one_prompt_and_another_has_one_in_each_item() {
        let contents = json!([{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }]);
        for (value, n_parts) in [
            (json!("a"), vec![1]),
            (json!([1, 2, "a", 3]), vec![4]),
            (json!(["a", "b"]), vec![1, 1]),
            (json!(["a", [1, 2, "b"]]), vec![1, 3]),
            (json!([[1], [2, 3]]), vec![1, 2]),
            (json!({ "prompt_string": "a" }), vec![1]),
            (
                json!({ "prompt_string": "a", "multimodal_data": null }),
                vec![1],
            ),
            (json!(["a", { "content": contents }]), vec![1, 1]),
            (json!([]), vec![]),
            (json!([[]]), vec![0]),
        ] {
            let prompts = read(value.clone()).unwrap().prompts;
            let found: Vec<usize> = prompts.iter().map(Vec::len).collect();
            assert_eq!(found, n_parts, "{value}");
        }
    }

    #[test]
    fn a_prompt_that_is_neither_text_nor_tokens_is_refused() {
        for wrong in [
            json!(1),
            json!([1, [2]]),
            json!([-1]),
            json!({ "content": [{ "type": "image_url" }] }),
            json!([null]),
            json!({ "prompt_string": "a", "multimodal_data": ["x"] }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_prompts_or_lists_are_a_list() {
        for (prompt, is_list) in [
            (json!("a"), false),
            (json!([1, 2]), false),
            (json!([1, "a", 2]), false),
            (json!(["a"]), false),
            (json!(["a", "b"]), true),
            (json!([[1], "b"]), true),
            (json!([[1]]), true),
        ] {
            assert_eq!(read(prompt.clone()).unwrap().is_list(), is_list, "{prompt}");
        }
    }

    #[test]
    fn a_prompt_of_empty_texts_is_empty() {
        for (value, is_empty) in [
            (json!(""), true),
            (json!(["a", ""]), true),
            (json!([[]]), true),
            (json!([["", ""]]), true),
            (json!("a"), false),
            (json!([1]), false),
            (json!(["", 1]), false),
        ] {
            assert_eq!(
                read(value.clone()).unwrap().has_empty(),
                is_empty,
                "{value}"
            );
        }
    }
}

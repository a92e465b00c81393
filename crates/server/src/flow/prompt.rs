//! Prompts and embedding inputs: texts, token ids, or both.

use atta_engine::tokenizer::Special;
use serde::Deserialize;

use crate::{flow::error::ApiError, models::Model};

/// One or several prompts: a list with token ids is one prompt, any other list has one prompt per
/// item.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Given")]
pub(crate) struct Prompt(Vec<Vec<Part>>);

/// The JSON form.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Text(String),
    List(Vec<Item>),
    Object(Object),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Part(Part),
    Parts(Vec<Part>),
    Object(Object),
}

/// A part of a prompt.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Part {
    Token(u32),
    Text(String),
}

/// llama.cpp's objects for prompts with media; only their text is supported.
#[derive(Deserialize)]
#[serde(untagged)]
enum Object {
    Whole(Whole),
    Content { content: Vec<Content> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    prompt_string: String,
    #[serde(default)]
    multimodal_data: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content {
    Text { text: String },
}

impl Object {
    fn into_parts(self) -> Result<Vec<Part>, &'static str> {
        let text = match self {
            Self::Whole(whole) if !whole.multimodal_data.is_empty() => {
                return Err("multimodal_data is not supported: this model reads text only");
            }
            Self::Whole(whole) => whole.prompt_string,
            Self::Content { content } => content
                .into_iter()
                .map(|Content::Text { text }| text)
                .collect(),
        };
        Ok(vec![Part::Text(text)])
    }
}

impl TryFrom<Given> for Prompt {
    type Error = &'static str;

    fn try_from(given: Given) -> Result<Self, Self::Error> {
        let items = match given {
            Given::Text(text) => return Ok(Self(vec![vec![Part::Text(text)]])),
            Given::Object(object) => return Ok(Self(vec![object.into_parts()?])),
            Given::List(items) => items,
        };
        if items
            .iter()
            .any(|item| matches!(item, Item::Part(Part::Token(_))))
        {
            let part = |item| match item {
                Item::Part(part) => Ok(part),
                Item::Parts(_) | Item::Object(_) => {
                    Err("a list with tokens is one text, which has no lists in it")
                }
            };
            return Ok(Self(vec![
                items.into_iter().map(part).collect::<Result<_, _>>()?,
            ]));
        }
        let parts = |item| match item {
            Item::Part(part) => Ok(vec![part]),
            Item::Parts(parts) => Ok(parts),
            Item::Object(object) => object.into_parts(),
        };
        Ok(Self(
            items.into_iter().map(parts).collect::<Result<_, _>>()?,
        ))
    }
}

/// What a request may have of them.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The field that they stand in.
    pub(crate) field: &'static str,
    pub(crate) max: usize,
}

impl Prompt {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of them is empty.
    pub(crate) fn has_empty(&self) -> bool {
        let is_nothing = |part: &Part| matches!(part, Part::Text(text) if text.is_empty());
        self.0.iter().any(|parts| parts.iter().all(is_nothing))
    }

    /// Tokenizes each prompt. `end` is appended to prompts that have texts.
    pub(crate) fn into_ids(
        self,
        model: &Model,
        Limits { field, max }: Limits,
        end: Option<u32>,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let n = self.len();
        if !(1..=max).contains(&n) {
            return Err(ApiError::field(
                field,
                format!("{n} texts, expected 1 to {max}"),
            ));
        }
        let ids = |(i, part): (usize, Part)| match part {
            Part::Token(id) => vec![id],
            Part::Text(text) if i == 0 => model.engine.prompt_ids(text.as_bytes()),
            Part::Text(text) => model.engine.tokenizer().encode_after(&text, Special::Parse),
        };
        let prompt = |parts: Vec<Part>| {
            let end = end.filter(|_| parts.iter().any(|part| matches!(part, Part::Text(_))));
            parts
                .into_iter()
                .enumerate()
                .flat_map(ids)
                .chain(end)
                .collect()
        };
        let prompts: Vec<Vec<u32>> = self.0.into_iter().map(prompt).collect();
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<Vec<usize>, String> {
        let prompt: Result<Prompt, _> = serde_json::from_value(value);
        prompt
            .map(|prompt| prompt.0.iter().map(Vec::len).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_with_tokens_is_one_text_and_another_has_one_in_each_item() {
        for (value, n_parts) in [
            (json!("a"), vec![1]),
            (json!([1, 2, "a", 3]), vec![4]),
            (json!(["a", "b"]), vec![1, 1]),
            (json!(["a", [1, 2, "b"]]), vec![1, 3]),
            (json!([[1], [2, 3]]), vec![1, 2]),
            (json!({ "prompt_string": "a" }), vec![1]),
            (
                json!(["a", { "content": [{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }] }]),
                vec![1, 1],
            ),
            (json!([]), vec![]),
            (json!([[]]), vec![0]),
        ] {
            assert_eq!(read(value.clone()), Ok(n_parts), "{value}");
        }
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
    fn nothing_is_empty_however_it_is_written() {
        let is_empty = |value: Value| serde_json::from_value::<Prompt>(value).unwrap().has_empty();
        assert!(
            is_empty(json!(""))
                && is_empty(json!(["a", ""]))
                && is_empty(json!([[]]))
                && is_empty(json!([["", ""]]))
        );
        assert!(!is_empty(json!("a")) && !is_empty(json!([1])) && !is_empty(json!(["", 1])));
    }
}

//! Prompts of `/completion`: a text, tokens, both mixed, or a list of such.

use serde_json::Value;

use crate::{flow::error::ApiError, models::Model};

/// Prompts of one request.
const MAX_PROMPTS: usize = 64;

/// The tokens of each prompt. A list of numbers, with or without texts between them, is one prompt;
/// any other list has one in each item.
pub(super) fn ids(model: &Model, prompt: &Value) -> Result<Vec<Vec<u32>>, ApiError> {
    let items = match prompt {
        Value::Array(items) if !items.iter().any(Value::is_number) => items,
        one => return Ok(vec![one_prompt(model, one)?]),
    };
    match items.len() {
        1..=MAX_PROMPTS => items.iter().map(|item| one_prompt(model, item)).collect(),
        n => Err(ApiError::field(
            "prompt",
            format!("{n} prompts, expected 1 to {MAX_PROMPTS}"),
        )),
    }
}

/// Whether a request has a list of prompts, so that its answer is a list, too.
pub(super) fn is_list(prompt: &Value) -> bool {
    prompt
        .as_array()
        .is_some_and(|items| items.iter().any(|item| item.is_array()) || items.len() > 1)
        && !prompt
            .as_array()
            .is_some_and(|items| items.iter().any(Value::is_number))
}

fn one_prompt(model: &Model, prompt: &Value) -> Result<Vec<u32>, ApiError> {
    match prompt {
        Value::String(text) => Ok(model.engine.prompt_ids(text.as_bytes())),
        Value::Array(parts) => Ok(parts
            .iter()
            .enumerate()
            .map(|part| ids_of(model, part))
            .collect::<Result<Vec<_>, _>>()?
            .concat()),
        Value::Object(fields) => match (fields.get("prompt_string"), fields.get("multimodal_data"))
        {
            (Some(Value::String(text)), None | Some(Value::Null)) => {
                Ok(model.engine.prompt_ids(text.as_bytes()))
            }
            (Some(_), Some(Value::Array(data))) if data.is_empty() => {
                one_prompt(model, &fields["prompt_string"])
            }
            (_, Some(_)) => Err(ApiError::field(
                "prompt",
                "multimodal_data is not supported: this model sees text only",
            )),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// The tokens of a part of a prompt. The first part is where a text begins.
fn ids_of(model: &Model, (i, part): (usize, &Value)) -> Result<Vec<u32>, ApiError> {
    let n_vocab = model.engine.spec().n_vocab;
    match part {
        Value::String(text) if i == 0 => Ok(model.engine.prompt_ids(text.as_bytes())),
        Value::String(text) => Ok(model
            .engine
            .tokenizer()
            .encode_after(text, atta_engine::tokenizer::Special::Parse)),
        Value::Number(_) => match part.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(id) if (id as usize) < n_vocab => Ok(vec![id]),
            _ => Err(ApiError::field(
                "prompt",
                format!("token {part}, of a model that has {n_vocab}"),
            )),
        },
        _ => Err(wrong()),
    }
}

fn wrong() -> ApiError {
    ApiError::field(
        "prompt",
        "prompt is neither a text nor a list of texts and tokens",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_texts_is_several_prompts_and_one_with_tokens_is_one() {
        for (prompt, is) in [
            (json!("a"), false),
            (json!([1, 2]), false),
            (json!([1, "a", 2]), false),
            (json!(["a"]), false),
            (json!(["a", "b"]), true),
            (json!([[1], "b"]), true),
            (json!([[1]]), true),
        ] {
            assert_eq!(is_list(&prompt), is, "{prompt}");
        }
    }
}

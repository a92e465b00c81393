//! Selects the chat template: the model's own, or one of two fallbacks.
//!
//! The fallbacks are Jinja templates too, so that there is one code path.

use std::sync::Arc;

use atta_tokenizer::Tokenizer;

use super::template::{SpecialTexts, Template, TemplateError};

/// The chat templates in a model file, and its tokenizer.
#[derive(Clone, Copy, Debug)]
pub struct ModelTemplates<'a> {
    /// Tokenizer of the model.
    pub tokenizer: &'a Arc<Tokenizer>,
    /// `tokenizer.chat_template`.
    pub default: Option<&'a str>,
    /// `tokenizer.chat_template.tool_use`: used instead where tools are given.
    pub tool_use: Option<&'a str>,
}

/// ChatML, as in OpenAI's description of it, 2023.
const CHATML: &str = "\
{%- macro calls(message) %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n' if message.content or not loop.first }}
        {{- {'name': call.function.name, 'arguments': call.function.arguments}|tojson }}
    {%- endfor %}
{%- endmacro %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + calls(message) + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}";

/// Lines with names, which even a base model can continue.
const PLAIN: &str = "\
{%- set names = {'user': 'User: ', 'assistant': 'Assistant: ', 'tool': 'Tool: '} %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- message.content + '\\n\\n' }}
    {%- else %}
        {{- names[message.role] + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- {'name': call.function.name, 'arguments': call.function.arguments}|tojson }}
        {%- endfor %}
        {{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %}";

/// Selects a chat template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TemplateChoice {
    /// The model's own, or a fallback: see [`Template::of_model`].
    #[default]
    Model,
    /// `<|im_start|>user` … `<|im_end|>`.
    ChatMl,
    /// Lines with `User:` and `Assistant:`.
    Plain,
    /// A Jinja template.
    Source(String),
}

impl TemplateChoice {
    /// Resolves the choice for a model.
    ///
    /// # Errors
    /// Those of [`Template::new`].
    pub fn template(
        &self,
        model: &ModelTemplates<'_>,
    ) -> Result<(Template, Origin), TemplateError> {
        let texts = SpecialTexts::of(model.tokenizer);
        let template = match self {
            Self::Model => return Template::of_model(model),
            Self::ChatMl => Template::chatml(texts),
            Self::Plain => Template::plain(texts),
            Self::Source(source) => Template::new(source, texts)?,
        };
        Ok((template, Origin::Choice))
    }
}

/// Where a template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The model file.
    File,
    /// The file has no template, but its vocabulary has the markers of ChatML.
    ChatMl,
    /// The file has no template and no markers: plain lines.
    Plain,
    /// It was chosen explicitly.
    Choice,
}

impl Template {
    /// The template of a model, with its template for tools where the file has one. Fallbacks:
    /// ChatML if the vocabulary has `<|im_start|>`, else lines with `User:` and `Assistant:`.
    ///
    /// # Errors
    /// Those of [`Template::new`], about the template in the file.
    pub fn of_model(model: &ModelTemplates<'_>) -> Result<(Self, Origin), TemplateError> {
        let texts = SpecialTexts::of(model.tokenizer);
        let Some(source) = model.default else {
            let has_markers = model.tokenizer.token_id("<|im_start|>").is_some();
            let default = if has_markers {
                (Self::chatml(texts), Origin::ChatMl)
            } else {
                (Self::plain(texts), Origin::Plain)
            };
            return Ok(default);
        };
        let template = Self::new(source, texts)?;
        let template = match model.tool_use {
            Some(source) => template.with_tool_use(source)?,
            None => template,
        };
        Ok((template, Origin::File))
    }

    /// `<|im_start|>user` … `<|im_end|>`.
    pub fn chatml(texts: SpecialTexts) -> Self {
        Self::new(CHATML, texts).expect("our own template is one")
    }

    /// `User:` … `Assistant:`.
    pub fn plain(texts: SpecialTexts) -> Self {
        Self::new(PLAIN, texts).expect("our own template is one")
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Conversation, Message};
    use super::*;
    use crate::tools::ToolCall;
    use serde_json::json;

    #[test]
    fn defaults_write_every_kind_of_message() {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: json!({ "x": 1 }),
        };
        let messages = [
            Message::system("S"),
            Message::user("U"),
            Message::assistant_calling("A", vec![call("1"), call("2")]),
            Message::tool("1", "f", "T"),
        ];
        let conversation = Conversation {
            messages: &messages,
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let calls = "{\"name\": \"f\", \"arguments\": {\"x\": 1}}";
        assert_eq!(
            Template::plain(SpecialTexts::default())
                .render(&conversation)
                .unwrap(),
            format!("S\n\nUser: U\nAssistant: A{calls}{calls}\nTool: T\nAssistant:")
        );
        assert_eq!(
            Template::chatml(SpecialTexts::default())
                .render(&conversation)
                .unwrap(),
            format!(
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n\
                 <|im_start|>assistant\nA\n{calls}\n{calls}\
                 <|im_end|>\n<|im_start|>tool\nT<|im_end|>\n<|im_start|>assistant\n"
            )
        );
    }
}

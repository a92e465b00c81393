//! The content blocks of messages.
//!
//! Knows no roles: a block is a type and fields, and yields its text if it has some. The reader of
//! the message decides about blocks of unknown types.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::accepted::BLOCK_FIELDS;
use crate::flow::{body::BodyFields, error::ApiError, warnings::Warnings};

/// A block and its place in the request.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: String,
    fields: Map<String, Value>,
    place: String,
}

#[derive(Debug, Deserialize)]
struct TextBlock {
    text: String,
}

#[derive(Debug, Deserialize)]
struct SearchResult {
    title: Option<String>,
    source: Option<String>,
    content: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Document {
    title: Option<String>,
    context: Option<String>,
    source: DocumentSource,
}

#[derive(Debug, Deserialize)]
struct DocumentSource {
    #[serde(rename = "type")]
    kind: String,
    data: Option<String>,
    content: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    tool_name: String,
}

/// The blocks of a content, which may also be a text or absent. `place` is the field that holds it.
pub(super) fn blocks(content: Option<Value>, place: &str) -> Result<Vec<Block>, ApiError> {
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Block {
            kind: "text".to_owned(),
            fields: Map::from_iter([("text".to_owned(), text.into())]),
            place: place.to_owned(),
        }]),
        Some(Value::Array(list)) => list
            .into_iter()
            .enumerate()
            .map(|(i, block)| Block::new(block, format!("{place}[{i}]")))
            .collect(),
        Some(_) => Err(at(place, "neither a text nor a list of blocks")),
    }
}

/// An error about a value within a field of the request.
pub(super) fn at(place: &str, what: impl std::fmt::Display) -> ApiError {
    let field = place.split(['.', '[']).next().unwrap_or(place);
    ApiError::field(field, format!("{place}: {what}"))
}

/// A place without the indices of list items.
fn without_numbers(place: &str) -> String {
    place.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl Block {
    fn new(value: Value, place: String) -> Result<Self, ApiError> {
        let Value::Object(mut fields) = value else {
            return Err(at(&place, "a block is an object"));
        };
        match fields.shift_remove("type") {
            Some(Value::String(kind)) => Ok(Self {
                kind,
                fields,
                place,
            }),
            _ => Err(at(&place, "the field \"type\" is missing")),
        }
    }

    /// Reads the fields of the block; unread ones become warnings.
    pub(super) fn read<T: DeserializeOwned>(&self, warnings: &Warnings) -> Result<T, ApiError> {
        let own = Warnings::default();
        let read = BodyFields::new(self.fields.clone()).rest(BLOCK_FIELDS, &own);
        let place = without_numbers(&self.place);
        warnings.extend(
            own.take()
                .into_iter()
                .map(|warning| format!("{place}, {} block: {warning}", self.kind)),
        );
        read.map_err(|error| at(&self.place, error.message))
    }

    /// The text of the block; `None` if it has none that a model can read.
    pub(super) fn text(&self, warnings: &Warnings) -> Result<Option<String>, ApiError> {
        match self.kind.as_str() {
            "text" => Ok(Some(self.read::<TextBlock>(warnings)?.text)),
            "search_result" => self
                .read::<SearchResult>(warnings)?
                .into_text(&self.place, warnings)
                .map(Some),
            "document" => self
                .read::<Document>(warnings)?
                .into_text(&self.place, warnings),
            "tool_reference" => Ok(Some(self.read::<Reference>(warnings)?.tool_name)),
            _ => Ok(None),
        }
    }

    /// The blocks of a field of the block.
    pub(super) fn within(
        &self,
        field: &str,
        content: Option<Value>,
    ) -> Result<Vec<Self>, ApiError> {
        blocks(content, &format!("{}.{field}", self.place))
    }

    /// The error that the model cannot read the block.
    pub(super) fn unreadable(&self) -> ApiError {
        at(
            &self.place,
            format!("this model reads text only, and no {} block", self.kind),
        )
    }

    /// Warns that the block is dropped.
    pub(super) fn leave_out(&self, warnings: &Warnings) {
        let Self { kind, place, .. } = self;
        warnings.add(format!(
            "{}: a {kind} block is left out: this model reads text only",
            without_numbers(place)
        ));
    }

    /// An error about the block.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> ApiError {
        at(&self.place, what)
    }

    /// Adds a warning about the block.
    pub(super) fn warn(&self, what: &str, warnings: &Warnings) {
        warnings.add(format!(
            "{}, {} block: {what}",
            without_numbers(&self.place),
            self.kind
        ));
    }
}

impl SearchResult {
    fn into_text(self, place: &str, warnings: &Warnings) -> Result<String, ApiError> {
        let content = texts(self.content, &format!("{place}.content"), warnings)?;
        let parts = [self.title, self.source, content];
        Ok(parts.into_iter().flatten().collect::<Vec<_>>().join("\n"))
    }
}

impl Document {
    /// `None` for images of pages, files and URLs.
    fn into_text(self, place: &str, warnings: &Warnings) -> Result<Option<String>, ApiError> {
        let content = match self.source.kind.as_str() {
            "text" => self.source.data,
            "content" => texts(
                self.source.content,
                &format!("{place}.source.content"),
                warnings,
            )?,
            _ => None,
        };
        let Some(content) = content else {
            return Ok(None);
        };
        let parts = [self.title, self.context, Some(content)];
        Ok(Some(
            parts.into_iter().flatten().collect::<Vec<_>>().join("\n"),
        ))
    }
}

/// The texts of a content, joined by newlines; other blocks are dropped. `None` if there is no
/// text.
pub(super) fn texts(
    content: Option<Value>,
    place: &str,
    warnings: &Warnings,
) -> Result<Option<String>, ApiError> {
    let mut all = Vec::new();
    for block in blocks(content, place)? {
        match block.text(warnings)? {
            Some(text) => all.push(text),
            None => block.leave_out(warnings),
        }
    }
    Ok((!all.is_empty()).then(|| all.join("\n")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text_of(block: Value) -> (Option<String>, Vec<String>) {
        let warnings = Warnings::default();
        let blocks = blocks(Some(json!([block])), "messages[3].content").unwrap();
        (blocks[0].text(&warnings).unwrap(), warnings.take())
    }

    #[test]
    fn what_has_a_text_is_a_text() {
        let text = json!({ "type": "text", "text": "a" });
        let document =
            |source: Value| json!({ "type": "document", "title": "T", "source": source });
        for (block, expected) in [
            (text.clone(), Some("a")),
            (
                json!({ "type": "search_result", "title": "T", "source": "s", "content": [text] }),
                Some("T\ns\na"),
            ),
            (
                document(json!({ "type": "text", "media_type": "text/plain", "data": "a" })),
                Some("T\na"),
            ),
            (
                document(json!({ "type": "content", "content": "a" })),
                Some("T\na"),
            ),
            (
                document(json!({ "type": "base64", "media_type": "application/pdf", "data": "" })),
                None,
            ),
            (json!({ "type": "image", "source": {} }), None),
            (
                json!({ "type": "tool_reference", "tool_name": "f" }),
                Some("f"),
            ),
        ] {
            assert_eq!(text_of(block).0.as_deref(), expected);
        }
    }

    #[test]
    fn fields_of_blocks_that_are_not_read_are_warnings_with_their_place() {
        let block = json!({ "type": "text", "text": "a", "citations": null, "cache_control": {}, "colour": 1 });
        let want = [
            "messages[].content[], text block: cache_control changes nothing here: the beginning of a prompt is kept anyway",
            "messages[].content[], text block: the unknown field colour is ignored",
        ];
        assert_eq!(text_of(block).1, want);
    }

    #[test]
    fn what_is_no_block_is_refused_with_its_place() {
        for (content, expected) in [
            (
                json!(1),
                "messages[0].content: neither a text nor a list of blocks",
            ),
            (json!([1]), "messages[0].content[0]: a block is an object"),
            (
                json!([{ "text": "a" }]),
                "messages[0].content[0]: the field \"type\" is missing",
            ),
            (
                json!([{ "type": "text" }]),
                "messages[0].content[0]: the field \"text\" is missing",
            ),
        ] {
            let read = blocks(Some(content), "messages[0].content").and_then(|blocks| {
                blocks
                    .iter()
                    .try_for_each(|block| block.text(&Warnings::default()).map(drop))
            });
            let error = read.unwrap_err();
            assert_eq!(
                (error.message.as_str(), error.param.as_deref()),
                (expected, Some("messages"))
            );
        }
    }
}

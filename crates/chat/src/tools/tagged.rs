//! Scans a call whose parameters stand in tags, and writes its arguments as JSON: `NAME>`, then
//! `<parameter=KEY>\nVALUE\n</parameter>` for each, then `</function>`; or the same in other
//! [`Tags`].
//!
//! Knows no markers in front of the call. Raw texts are given out while they come, other values
//! when they are complete.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;

use super::{
    definition::{is_name, is_name_char},
    json::{Json, Malformed, is_space},
    parameters::{ValueForm, ValueForms},
    place::Tags,
};

/// The scanner of one call.
#[derive(Clone, Debug)]
pub(super) struct TaggedScan {
    tags: &'static Tags,
    forms: Arc<ValueForms>,
    state: TaggedState,
    name: Option<String>,
    keys: HashSet<String>,
    /// The arguments so far.
    json: String,
}

/// The part of the call being read, with its start in the held text.
#[derive(Clone, Debug)]
enum TaggedState {
    Name(usize),
    /// Before a parameter or the end.
    Between(usize),
    Key(usize),
    /// Between a key and its value, with the key.
    Opening(usize, String),
    Value(Reading),
    Done,
}

/// A value that is being read.
#[derive(Clone, Debug)]
struct Reading {
    form: ValueForm,
    /// End of the tag before it.
    tag_end: usize,
    /// Start of the value, behind a line break.
    start: usize,
    /// How far a raw text was written.
    written: usize,
    /// The value as JSON, as long as it may be JSON.
    json: Option<Json>,
}

impl TaggedScan {
    /// A scanner of a call whose name begins at `start`.
    pub(super) fn new(tags: &'static Tags, start: usize, forms: Arc<ValueForms>) -> Self {
        Self {
            tags,
            forms,
            state: TaggedState::Name(start),
            name: None,
            keys: HashSet::new(),
            json: String::new(),
        }
    }

    /// Takes the next character, which is the last of `held`. Returns whether the call is complete.
    ///
    /// # Errors
    /// [`Malformed`] if no call continues like this.
    pub(super) fn push(&mut self, held: &str, c: char) -> Result<bool, Malformed> {
        match &self.state {
            &TaggedState::Name(start) => self.name(&held[start..], c, held.len())?,
            &TaggedState::Between(start) => self.between(&held[start..], c, held.len())?,
            &TaggedState::Key(start) => self.key(&held[start..], c, held.len())?,
            &TaggedState::Opening(start, _) => self.opening(&held[start..], c, held.len())?,
            TaggedState::Value(_) => self.value(held, c)?,
            TaggedState::Done => return Err(Malformed),
        }
        Ok(matches!(self.state, TaggedState::Done))
    }

    /// The name, once it is complete.
    pub(super) fn name_if_known(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The arguments as JSON, as far as they are certain.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    fn name(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        let Some(n) = text.find(|c| !is_name_char(c)) else {
            return Ok(());
        };
        let (name, behind) = text.split_at(n);
        let name_end = self.tags.name_end;
        if !is_name(name) || !name_end.is_empty() && !name_end.starts_with(behind) {
            return Err(Malformed);
        }
        if !name_end.is_empty() && behind != name_end {
            return Ok(());
        }
        self.name = Some(name.to_owned());
        self.state = TaggedState::Between(end);
        if name_end.is_empty() {
            // The character belongs to what follows.
            self.state = TaggedState::Between(end - c.len_utf8());
            return self.between(behind, c, end);
        }
        Ok(())
    }

    fn between(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        let Tags { key, call_end, .. } = *self.tags;
        if is_space(c) && text.len() == 1 {
            self.state = TaggedState::Between(end);
        } else if text == key {
            self.state = TaggedState::Key(end);
        } else if text == call_end {
            self.json
                .push_str(if self.keys.is_empty() { "{}" } else { "}" });
            self.state = TaggedState::Done;
        } else if ![key, call_end].iter().any(|tag| tag.starts_with(text)) {
            return Err(Malformed);
        }
        Ok(())
    }

    fn key(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        if c == '\n' {
            return Err(Malformed);
        }
        let Some(key) = text.strip_suffix(self.tags.key_end) else {
            return Ok(());
        };
        if self.tags.value.is_empty() {
            return self.begin_value(key, end);
        }
        self.state = TaggedState::Opening(end, key.to_owned());
        Ok(())
    }

    fn opening(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        let TaggedState::Opening(start, key) = &mut self.state else {
            return Ok(());
        };
        if is_space(c) && text.len() == 1 {
            *start = end;
        } else if text == self.tags.value {
            let key = std::mem::take(key);
            return self.begin_value(&key, end);
        } else if !self.tags.value.starts_with(text) {
            return Err(Malformed);
        }
        Ok(())
    }

    /// The value of a key begins at `start`.
    fn begin_value(&mut self, key: &str, start: usize) -> Result<(), Malformed> {
        let form = self.form(key);
        self.json
            .push_str(if self.keys.is_empty() { "{" } else { ", " });
        self.json.push_str(&quoted(key));
        self.json.push_str(": ");
        if key.is_empty() || !self.keys.insert(key.to_owned()) {
            return Err(Malformed);
        }
        if form == ValueForm::Text {
            self.json.push('"');
        }
        self.state = TaggedState::Value(Reading {
            form,
            tag_end: start,
            start,
            written: start,
            json: (form == ValueForm::Json).then(Json::behind_key),
        });
        Ok(())
    }

    /// How a value is written; an unknown one is JSON if it can be.
    fn form(&self, key: &str) -> ValueForm {
        let name = self.name.as_deref().unwrap_or_default();
        self.forms.get(name, key).unwrap_or(ValueForm::Json)
    }

    fn value(&mut self, held: &str, c: char) -> Result<(), Malformed> {
        let TaggedState::Value(reading) = &mut self.state else {
            return Ok(());
        };
        if c == '\n' && self.tags.has_lines && held.len() == reading.tag_end + 1 {
            reading.start += 1;
            reading.written += 1;
            return Ok(());
        }
        let was_in_string = reading.json.as_ref().is_some_and(Json::is_in_string);
        if reading
            .json
            .as_mut()
            .is_some_and(|json| json.push(c).is_err())
        {
            reading.json = None;
        }
        let text = &held[reading.start..];
        match (was_in_string, &reading.json) {
            // Tags inside a string of JSON are text.
            (true, Some(_)) => return Ok(()),
            (true, None) => return self.broken_string(held, c),
            (false, _) => {}
        }
        if let Some(value) = text.strip_suffix(self.tags.value_end) {
            return self.end_value(value, held.len());
        }
        if reading.form == ValueForm::Text {
            reading.written += write_certain(&held[reading.written..], self.tags, &mut self.json);
        }
        Ok(())
    }

    /// A string of JSON that goes on in a way that JSON cannot: the tag at its end ended a value
    /// that is no JSON.
    fn broken_string(&mut self, held: &str, c: char) -> Result<(), Malformed> {
        let TaggedState::Value(reading) = &self.state else {
            return Ok(());
        };
        let before = &held[reading.start..held.len() - c.len_utf8()];
        match before.split_once(self.tags.value_end) {
            None => Ok(()),
            Some((value, "")) => {
                self.end_value(value, held.len() - c.len_utf8())?;
                self.between(&held[held.len() - c.len_utf8()..], c, held.len())
            }
            Some(_) => Err(Malformed),
        }
    }

    /// A value is complete; the tag behind it ends at `end`.
    fn end_value(&mut self, value: &str, end: usize) -> Result<(), Malformed> {
        let TaggedState::Value(reading) = &self.state else {
            return Ok(());
        };
        let line = value.strip_suffix('\n').filter(|_| self.tags.has_lines);
        let value = line.unwrap_or(value);
        match reading.form {
            ValueForm::Text => {
                let n_written = reading.written - reading.start;
                write_escaped(&value[n_written..], &mut self.json);
                self.json.push('"');
            }
            ValueForm::NullableText if matches!(value, "null" | "None") => {
                self.json.push_str("null")
            }
            ValueForm::NullableText => self.json.push_str(&quoted(value)),
            ValueForm::Json => self.json.push_str(&read_json(value)?),
        }
        self.state = TaggedState::Between(end);
        Ok(())
    }
}

/// A value that is JSON if it can be read as such, else a string. Templates write `true`, `false`
/// and `null` in Python's spelling.
fn read_json(value: &str) -> Result<String, Malformed> {
    let json = match value.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        text => text,
    };
    match serde_json::from_str::<Value>(json) {
        Ok(_) => Ok(json.to_owned()),
        // Half a surrogate pair, or a number out of range.
        Err(_) if Json::is_value(json) => Err(Malformed),
        Err(_) => Ok(quoted(value)),
    }
}

/// Writes the beginning of a raw text that cannot belong to the tag behind it. Returns its length.
fn write_certain(text: &str, tags: &Tags, json: &mut String) -> usize {
    let may_end = |tail: &str| {
        let line = tail.strip_prefix('\n').filter(|_| tags.has_lines);
        tags.value_end.starts_with(line.unwrap_or(tail))
    };
    let starts = text.char_indices().map(|(at, _)| at);
    let n = starts
        .into_iter()
        .find(|&at| may_end(&text[at..]))
        .unwrap_or(text.len());
    write_escaped(&text[..n], json);
    n
}

/// A text as a string of JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Writes the inside of a string of JSON.
fn write_escaped(text: &str, json: &mut String) {
    let quoted = quoted(text);
    json.push_str(&quoted[1..quoted.len() - 1]);
}

//! Scans a call whose parameters stand in tags, and writes its arguments as JSON:
//! `NAME>`, then `<parameter=KEY>\nVALUE\n</parameter>` for each, then `</function>`.
//!
//! Knows no markers around the call. Raw texts are given out while they come, other values when
//! they are complete.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;

use super::{
    definition::{is_name, is_name_char},
    json::{Json, Malformed, is_space},
    parameters::{ValueForm, ValueForms},
    place::{FUNCTION_END, PARAMETER, PARAMETER_END},
};

/// The scanner of one call.
#[derive(Clone, Debug)]
pub(super) struct TaggedScan {
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
    pub(super) fn new(start: usize, forms: Arc<ValueForms>) -> Self {
        Self {
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
        match self.state {
            TaggedState::Name(start) => self.name(&held[start..], c, held.len())?,
            TaggedState::Between(start) => self.between(&held[start..], c, held.len())?,
            TaggedState::Key(start) => self.key(&held[start..], c, held.len())?,
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
        match text.strip_suffix('>') {
            Some(name) if is_name(name) => {
                self.name = Some(name.to_owned());
                self.state = TaggedState::Between(end);
                Ok(())
            }
            None if is_name_char(c) => Ok(()),
            _ => Err(Malformed),
        }
    }

    fn between(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        if is_space(c) && text.len() == 1 {
            self.state = TaggedState::Between(end);
        } else if text == PARAMETER {
            self.state = TaggedState::Key(end);
        } else if text == FUNCTION_END {
            self.json
                .push_str(if self.keys.is_empty() { "{}" } else { "}" });
            self.state = TaggedState::Done;
        } else if ![PARAMETER, FUNCTION_END]
            .iter()
            .any(|tag| tag.starts_with(text))
        {
            return Err(Malformed);
        }
        Ok(())
    }

    fn key(&mut self, text: &str, c: char, end: usize) -> Result<(), Malformed> {
        if c == '\n' {
            return Err(Malformed);
        }
        let Some(key) = text.strip_suffix('>') else {
            return Ok(());
        };
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
            tag_end: end,
            start: end,
            written: end,
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
        if c == '\n' && held.len() == reading.tag_end + 1 {
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
        if let Some(value) = text.strip_suffix(PARAMETER_END) {
            let value = value.strip_suffix('\n').unwrap_or(value);
            return self.end_value(value, held.len());
        }
        if reading.form == ValueForm::Text {
            reading.written += write_certain(&held[reading.written..], &mut self.json);
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
        match before.split_once(PARAMETER_END) {
            None => Ok(()),
            Some((value, "")) => {
                let value = value.strip_suffix('\n').unwrap_or(value);
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
fn write_certain(text: &str, json: &mut String) -> usize {
    let may_end = |tail: &str| {
        PARAMETER_END.starts_with(tail)
            || tail
                .strip_prefix('\n')
                .is_some_and(|tag| PARAMETER_END.starts_with(tag))
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

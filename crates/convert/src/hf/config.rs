//! Reads `config.json`: fields by any of their names over the versions of transformers, with a
//! record of the fields that were read.
//!
//! An absent field has the default of the model's configuration class in transformers, which each
//! family lists.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::{Error, safetensors::read_capped};

/// Longer files are refused; real ones have a few kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// A configuration.
pub(super) struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
    defaults: Map<String, Value>,
    looked_at: RefCell<BTreeSet<String>>,
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let json = read_capped(path, MAX_BYTES)?;
        let wrong = |why: String| Error::File {
            path: path.to_owned(),
            why,
        };
        // Editors on Windows write a byte order mark.
        let json = json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&json);
        let json = without_infinities(json);
        match serde_json::from_slice(&json).map_err(|e| wrong(e.to_string()))? {
            Value::Object(fields) => Ok(Self::new(path, with_text_config(fields))),
            _ => Err(wrong("is no JSON object".into())),
        }
    }

    /// Reads how modelopt quantized the model, where it did not write it into the configuration but
    /// into the file `path`.
    pub(super) fn read_quantization(&mut self, path: &Path) -> Result<(), Error> {
        const FIELD: &str = "quantization_config";
        let is_said = self.fields.get(FIELD).is_some_and(|value| !value.is_null());
        if is_said || !path.exists() {
            return Ok(());
        }
        let mut file = Self::read(path)?;
        let Some(Value::Object(mut found)) = file.fields.remove("quantization") else {
            return Err(file.wrong("does not say quantization"));
        };
        found.insert("quant_method".to_owned(), "modelopt".into());
        self.fields.insert(FIELD.to_owned(), found.into());
        Ok(())
    }

    fn new(path: &Path, fields: Map<String, Value>) -> Self {
        Self {
            path: path.to_owned(),
            fields,
            defaults: Map::new(),
            looked_at: RefCell::default(),
        }
    }

    /// Sets the values of absent fields, as a JSON object.
    pub(super) fn set_defaults(&mut self, json: &str) {
        self.defaults =
            serde_json::from_str(json).expect("the defaults of a family are a JSON object");
        // Some classes count layers by listing their types.
        let types = self.fields.get("layers_block_type");
        if let Some(types) = types.and_then(Value::as_array) {
            self.defaults
                .insert("num_hidden_layers".to_owned(), types.len().into());
        }
    }

    /// An error in this file.
    pub(super) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::File {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// An error for a field with an unsupported value.
    pub(super) fn unsupported(&self, field: &str, value: &Value) -> Error {
        self.wrong(format!("{field} is {value}, which is not supported"))
    }

    /// The first of several fields that is present, with its name. A null field counts as absent,
    /// but has no default.
    pub(super) fn any<'a>(&'a self, names: &[&'a str]) -> Option<(&'a str, &'a Value)> {
        self.looked_at
            .borrow_mut()
            .extend(names.iter().map(|&name| name.to_owned()));
        let written = names
            .iter()
            .filter_map(|&name| Some((name, self.fields.get(name)?)));
        let is_written = written.clone().next().is_some();
        let default = names
            .iter()
            .filter_map(|&name| Some((name, self.defaults.get(name)?)));
        let default = default.filter(|_| !is_written);
        written.chain(default).find(|(_, value)| !value.is_null())
    }

    /// A field with a single name.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.looked_at.borrow_mut().insert(name.to_owned());
        let value = self.fields.get(name).or_else(|| self.defaults.get(name));
        value.filter(|value| !value.is_null())
    }

    /// A non-negative integer field.
    pub(super) fn count_opt(&self, names: &[&str]) -> Result<Option<u64>, Error> {
        let Some((name, value)) = self.any(names) else {
            return Ok(None);
        };
        let whole = value
            .as_f64()
            .filter(|x| x.fract() == 0.0 && (0.0..=9e15).contains(x));
        match value.as_u64().or(whole.map(|x| x as u64)) {
            Some(n) => Ok(Some(n)),
            None => Err(self.expected(name, value, "a count")),
        }
    }

    /// A required non-negative integer field.
    pub(super) fn count(&self, names: &[&str]) -> Result<u64, Error> {
        self.count_opt(names)?.ok_or_else(|| self.missing(names))
    }

    /// A number field.
    pub(super) fn number_opt(&self, names: &[&str]) -> Result<Option<f64>, Error> {
        let Some((name, value)) = self.any(names) else {
            return Ok(None);
        };
        number(value)
            .map(Some)
            .ok_or_else(|| self.expected(name, value, "a number"))
    }

    /// A string field.
    pub(super) fn text_opt(&self, name: &str) -> Result<Option<&str>, Error> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.expected(name, value, "a text"))
    }

    /// A boolean field.
    pub(super) fn flag_opt(&self, name: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.expected(name, value, "true or false"))
    }

    /// An object field.
    pub(super) fn object_opt(&self, name: &str) -> Result<Option<&Map<String, Value>>, Error> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_object()
            .map(Some)
            .ok_or_else(|| self.expected(name, value, "an object"))
    }

    /// A list field.
    pub(super) fn list_opt(&self, name: &str) -> Result<Option<&[Value]>, Error> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_array()
            .map(|list| Some(&list[..]))
            .ok_or_else(|| self.expected(name, value, "a list"))
    }

    /// The fields that were not read.
    pub(super) fn unread(&self) -> Vec<&str> {
        let looked_at = self.looked_at.borrow();
        self.fields
            .keys()
            .filter(|key| !looked_at.contains(*key))
            .map(String::as_str)
            .collect()
    }

    fn expected(&self, name: &str, value: &Value, what: &str) -> Error {
        self.wrong(format!("{name} is {value}, expected {what}"))
    }

    fn missing(&self, names: &[&str]) -> Error {
        self.wrong(format!("{} is missing", names[0]))
    }
}

/// JSON in which the words that Python has for numbers that JSON lacks are null.
fn without_infinities(json: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out = Vec::with_capacity(json.len());
    let mut is_text = false;
    let mut rest = json;
    while let Some((&byte, behind)) = rest.split_first() {
        let word = WORDS.iter().find(|word| !is_text && rest.starts_with(word));
        if let Some(word) = word {
            out.extend_from_slice(b"null");
            rest = &rest[word.len()..];
            continue;
        }
        // The byte behind a backslash ends no text.
        let n = if is_text && byte == b'\\' { 2 } else { 1 };
        is_text ^= byte == b'"';
        out.extend_from_slice(&rest[..n.min(rest.len())]);
        rest = behind.get(n - 1..).unwrap_or_default();
    }
    out
}

/// A finite number.
pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|x| x.is_finite())
}

/// Moves the fields of `text_config`, the text part of a multimodal model, to the top level.
fn with_text_config(mut fields: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(text)) = fields.remove("text_config") {
        for (key, value) in text {
            // These fields of the whole model take precedence; a head that it ties is tied.
            let of_all = match key.as_str() {
                "architectures" | "quantization_config" => fields.contains_key(&key),
                "tie_word_embeddings" => fields.get(&key) == Some(&Value::Bool(true)),
                _ => false,
            };
            if !of_all {
                fields.insert(key, value);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        let fields = serde_json::from_str(json).unwrap();
        Config::new(Path::new("config.json"), with_text_config(fields))
    }

    #[test]
    fn absent_fields_have_defaults_and_null_fields_have_none() {
        let mut c = config(r#"{"a": null, "b": 2, "c": 3.0}"#);
        c.set_defaults(r#"{"a": 7, "x": 8}"#);
        assert_eq!(c.count_opt(&["a"]).unwrap(), None);
        assert_eq!(c.count(&["y", "b"]).unwrap(), 2);
        assert_eq!(c.count(&["y", "x"]).unwrap(), 8);
        assert_eq!(c.count(&["c"]).unwrap(), 3);
        assert_eq!(
            c.count(&["y"]).unwrap_err().to_string(),
            "config.json: y is missing"
        );
        assert!(c.unread().is_empty());
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        let c = config(r#"{"a": -1, "b": 1.5, "c": "1", "d": 1e300}"#);
        for name in ["a", "b", "c", "d"] {
            assert!(c.count(&[name]).is_err(), "{name}");
        }
        assert_eq!(
            c.number_opt(&["c"]).unwrap_err().to_string(),
            "config.json: c is \"1\", expected a number"
        );
        assert!(
            c.flag_opt("a").is_err()
                && c.object_opt("a").is_err()
                && c.list_opt("a").is_err()
                && c.text_opt("a").is_err()
        );
    }

    #[test]
    fn text_config_overrides_the_top_level() {
        let c = config(
            r#"{"architectures": ["A"], "n": 1, "vision_config": {},
                "tie_word_embeddings": true,
                "text_config": {"n": 2, "architectures": ["B"], "tie_word_embeddings": false}}"#,
        );
        assert_eq!(c.flag_opt("tie_word_embeddings").unwrap(), Some(true));
        assert_eq!(c.count(&["n"]).unwrap(), 2);
        assert_eq!(c.list_opt("architectures").unwrap().unwrap()[0], "A");
        assert_eq!(c.unread(), ["vision_config"]);
    }

    #[test]
    fn infinite_numbers_are_null() {
        let json = br#"{"a": [0.0, Infinity], "b": -Infinity, "NaN\"Infinity": "\\", "c": NaN}"#;
        let clean = without_infinities(json);
        let expected = r#"{"a": [0.0, null], "b": null, "NaN\"Infinity": "\\", "c": null}"#;
        assert_eq!(std::str::from_utf8(&clean), Ok(expected));
    }

    #[test]
    fn hostile_json_is_an_error() {
        let folder = std::env::temp_dir().join(format!("atta-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for json in [
            "[".repeat(200_000),
            "{\"a\":".repeat(200_000),
            "[]".into(),
            String::new(),
            " ".repeat(5 << 20),
        ] {
            std::fs::write(folder.join("config.json"), json).unwrap();
            assert!(Config::read(&folder.join("config.json")).is_err());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

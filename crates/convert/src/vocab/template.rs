//! Finds the chat template.
//!
//! Does not look inside templates. The one idea: files are tried in llama.cpp's order:
//! tokenizer_config.json, then chat_template.jinja with additional templates, then
//! chat_template.json.

use atta_formats::Writer;
use serde_json::Value;

use super::files::VocabFiles;
use super::special_tokens::TokenizerConfigs;
use crate::Error;

const KEY: &str = "tokenizer.chat_template";

/// Writes the default template, and named templates under their names.
pub(super) fn write(
    files: &VocabFiles,
    configs: &TokenizerConfigs,
    out: &mut Writer,
) -> Result<(), Error> {
    let mut others: Vec<String> = Vec::new();
    for (name, template) in templates(files, configs)? {
        if name == "default" {
            out.set_str(KEY, &template);
            continue;
        }
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        out.set_str(&format!("{KEY}.{name}"), &template);
        if !others.contains(&name) {
            others.push(name);
        }
    }
    if !others.is_empty() {
        out.set_strs("tokenizer.chat_templates", &others);
    }
    Ok(())
}

/// Templates with their names.
fn templates(
    files: &VocabFiles,
    configs: &TokenizerConfigs,
) -> Result<Vec<(String, String)>, Error> {
    if let Some(value) = configs
        .tokenizer
        .get("chat_template")
        .filter(|value| !value.is_null())
    {
        return named(value)
            .ok_or_else(|| files.wrong("tokenizer_config.json: chat_template is no template"));
    }
    if let Some(file) = files.get("chat_template.jinja") {
        let mut all = vec![("default".to_owned(), file.text()?.to_owned())];
        for (name, file) in files.additional_templates() {
            all.push((name.to_owned(), file.text()?.to_owned()));
        }
        return Ok(all);
    }
    let Some(file) = files.get("chat_template.json") else {
        return Ok(Vec::new());
    };
    let json = file.json()?;
    let value = json.get("chat_template").unwrap_or(&json);
    named(value).ok_or_else(|| file.wrong("chat_template is no template"))
}

/// A single template, or a list of named templates.
fn named(value: &Value) -> Option<Vec<(String, String)>> {
    if let Some(template) = value.as_str() {
        return Some(vec![("default".to_owned(), template.to_owned())]);
    }
    let text = |object: &Value, key| object.get(key).and_then(Value::as_str).map(str::to_owned);
    value
        .as_array()?
        .iter()
        .map(|object| text(object, "name").zip(text(object, "template")))
        .collect()
}

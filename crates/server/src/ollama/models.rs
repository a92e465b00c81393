//! `GET /api/tags`, `/api/ps`, `/api/version`, `POST /api/show`: what models there are, and what is known of them.
//!
//! Nothing is loaded to be told about: of a model that is not in memory there is little more than its name.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use atta_engine::{Directory, Value as Meta, WeightsAt};
use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{settings::can_think, tell::stamp};
use crate::{
    app::App,
    body::{self, Incoming},
    models::Model,
    refusal::Refusal,
};

/// Bytes of a request for what is known of a model.
const MAX_SHOW: usize = 64 << 10;

/// All names.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let models = app.models.names().map(|name| described(&app, name)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(json!({ "models": models })))
}

fn described(app: &App, name: &str) -> Result<Value, Refusal> {
    let (_, model) = app.models.look_up(Some(name))?;
    let mut object = json!({
        "name": name, "model": name, "modified_at": since(app), "digest": digest(name),
        "details": details(model.as_deref()),
    });
    if let Some(model) = model {
        object["size"] = file_bytes(&model).into();
    }
    Ok(object)
}

/// Those in memory.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Json<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let one = |(model, stay): (Arc<Model>, Option<Duration>)| {
        let mut object = json!({
            "name": model.name, "model": model.name, "digest": digest(&model.name), "details": details(Some(&model)),
            "size": memory_bytes(&model), "size_vram": 0, "context_length": model.n_ctx,
        });
        // One that always stays has a time that nobody lives to see.
        object["expires_at"] = stamp(stay.map_or(Duration::MAX, |stay| now.saturating_add(stay))).into();
        object
    };
    let models: Vec<Value> = app.models.stays(app.options.idle_unload).into_iter().map(one).collect();
    Json(json!({ "models": models }))
}

/// That of this program.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

#[derive(Deserialize)]
pub(crate) struct Show {
    model: String,
    /// What the model was called by in earlier versions.
    name: Option<String>,
    system: Option<String>,
    template: Option<String>,
    options: Option<Map<String, Value>>,
    #[serde(default)]
    verbose: bool,
}

impl Show {
    /// The model's name. Ollama's own programs send all fields, empty ones too, and may name it in the older one.
    fn into_name(self) -> Result<String, Refusal> {
        let said = [
            ("verbose", self.verbose),
            ("system", self.system.is_some_and(|text| !text.is_empty())),
            ("template", self.template.is_some_and(|text| !text.is_empty())),
            ("options", self.options.is_some_and(|options| !options.is_empty())),
        ];
        if let Some((name, _)) = said.into_iter().find(|(_, is_said)| *is_said) {
            return Err(Refusal::field(name, format!("{name} is not supported")));
        }
        Ok(Some(self.model).filter(|name| !name.is_empty()).or(self.name).unwrap_or_default())
    }
}

/// What is known of one.
pub(crate) async fn show(State(app): State<Arc<App>>, incoming: Incoming) -> Result<Json<Value>, Refusal> {
    let max = app.options.max_body.min(MAX_SHOW);
    let request: Show = {
        let bytes = body::read(incoming.body, max, app.options.read_timeout).await?;
        body::parse(&bytes, &[], &incoming.remarks)?
    };
    let (_, model) = app.models.look_up(Some(&request.into_name()?))?;
    let mut object = json!({
        "modified_at": since(&app), "details": details(model.as_deref()), "capabilities": ["completion", "tools"],
        "model_info": model.as_deref().map_or_else(Map::new, info),
    });
    let Some(model) = model else { return Ok(Json(object)) };
    if let Some(template) = model.engine.chat_template() {
        object["template"] = template.into();
    }
    if can_think(&model) {
        object["capabilities"] = json!(["completion", "tools", "thinking"]);
    }
    Ok(Json(object))
}

/// What tells a model from others, as programs of Ollama show it: 64 hexadecimal digits, made of its name.
fn digest(name: &str) -> String {
    let part = |i: u8| {
        let mut hasher = DefaultHasher::new();
        (i, name).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// A model has been here as it is since the server was started.
fn since(app: &App) -> String {
    stamp(Duration::from_secs(app.started))
}

fn details(model: Option<&Model>) -> Value {
    let mut details = json!({ "parent_model": "", "format": "gguf" });
    let Some(directory) = model.map(directory) else { return details };
    if let Some(family) = architecture(directory) {
        details["family"] = family.into();
        details["families"] = json!([family]);
    }
    details["parameter_size"] = rounded(n_weights(directory)).into();
    details["quantization_level"] = main_type(directory).into();
    details
}

/// Numbers of the file's metadata; its texts are about where it was made.
fn info(model: &Model) -> Map<String, Value> {
    let directory = directory(model);
    let number = |(key, value): (&str, Meta<'_>)| Some((key.to_owned(), scalar(value)?));
    let mut info: Map<String, Value> = directory.metadata().iter().filter_map(number).collect();
    info.insert("general.parameter_count".to_owned(), n_weights(directory).into());
    if let Some(family) = architecture(directory) {
        info.insert("general.architecture".to_owned(), family.into());
    }
    info
}

fn scalar(value: Meta<'_>) -> Option<Value> {
    match value {
        Meta::U8(n) => Some(n.into()),
        Meta::I8(n) => Some(n.into()),
        Meta::U16(n) => Some(n.into()),
        Meta::I16(n) => Some(n.into()),
        Meta::U32(n) => Some(n.into()),
        Meta::I32(n) => Some(n.into()),
        Meta::U64(n) => Some(n.into()),
        Meta::I64(n) => Some(n.into()),
        Meta::F32(n) => Some(n.into()),
        Meta::F64(n) => Some(n.into()),
        Meta::Bool(is) => Some(is.into()),
        Meta::Str(_) | Meta::Bytes(_) | Meta::Array(_) => None,
    }
}

fn directory(model: &Model) -> &Directory {
    model.engine.model().weights().files().directory()
}

fn architecture(directory: &Directory) -> Option<&str> {
    directory.metadata().str("general.architecture").ok().flatten()
}

fn file_bytes(model: &Model) -> u64 {
    model.engine.model().weights().files().file_bytes()
}

/// What is private, and the file where that is mapped.
fn memory_bytes(model: &Model) -> u64 {
    let mapped = if model.engine.weights_at() == WeightsAt::Mapped { file_bytes(model) } else { 0 };
    model.engine.budget().used().saturating_add(mapped)
}

fn n_weights(directory: &Directory) -> u64 {
    directory.tensors().iter().fold(0, |sum, tensor| sum.saturating_add(tensor.shape.n_elements()))
}

/// The type of most bytes.
fn main_type(directory: &Directory) -> &'static str {
    let mut types = BTreeMap::<&str, u64>::new();
    for tensor in directory.tensors() {
        let sum = types.entry(tensor.ty.name()).or_default();
        *sum = sum.saturating_add(tensor.n_bytes);
    }
    types.into_iter().max_by_key(|&(_, bytes)| bytes).map_or("", |(name, _)| name)
}

/// A number as people say it.
fn rounded(n: u64) -> String {
    match n {
        1_000_000_000.. => format!("{:.1}B", n as f64 / 1e9),
        1_000_000.. => format!("{:.2}M", n as f64 / 1e6),
        1000.. => format!("{:.2}K", n as f64 / 1e3),
        _ => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_thousands_millions_and_billions() {
        let said = [999, 1500, 494_032_768, 8_030_261_248].map(rounded);
        assert_eq!(said, ["999", "1.50K", "494.03M", "8.0B"]);
    }
}

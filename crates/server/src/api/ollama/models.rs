//! `GET /api/tags`, `/api/ps`, `/api/version`, `POST /api/show`, `/api/pull`: the models of the
//! server and their properties.
//!
//! These requests load no model: one that is not in memory has little more than its name.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use atta_engine::{Directory, TensorInfo, Value as Meta, WeightsAt};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{response::timestamp, think::can_think};
use crate::{
    api::llama::infill,
    app::App,
    flow::{
        body::{self, Accepted, BodyFields, Incoming},
        error::ApiError,
        stream,
    },
    models::Model,
};

/// The version of Ollama that has this interface: levels of `think`, capabilities,
/// `context_length` of loaded models.
const INTERFACE_VERSION: &str = "0.12.0";
/// Bytes of a request about a model.
const MAX_BODY: usize = 64 << 10;

/// Lists all names.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let models = app
        .models
        .names()
        .map(|name| described(&app, name))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json(json!({ "models": models })))
}

fn described(app: &App, name: &str) -> Result<Value, ApiError> {
    app.models.inspect(Some(name), |_, model| {
        let mut object = json!({
            "name": name,
            "model": name,
            "modified_at": modified_at(app),
            "digest": digest(name),
            "details": details(model),
        });
        if let Some(model) = model {
            object["size"] = file_bytes(model).into();
        }
        object
    })
}

/// Lists the models in memory.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Json<Value> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let one = |model: &Model, time_left: Option<Duration>| {
        // A model that is never unloaded expires in the distant future.
        let expires = time_left.map_or(Duration::MAX, |time| now.saturating_add(time));
        json!({
            "name": model.name,
            "model": model.name,
            "digest": digest(&model.name),
            "details": details(Some(model)),
            "size": memory_bytes(model),
            "size_vram": 0,
            "context_length": model.n_ctx,
            "expires_at": timestamp(expires),
        })
    };
    let models: Vec<Value> = app.models.inspect_times_left(app.options.idle_unload, one);
    Json(json!({ "models": models }))
}

/// The version of Ollama's interface, because clients refuse to talk to older ones, and the version
/// of this program.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": INTERFACE_VERSION, "atta": env!("CARGO_PKG_VERSION") }))
}

/// Fields of `/api/show` without effect.
const ACCEPTED_BY_SHOW: Accepted = &[
    ("system", "what is shown is the model as it is"),
    ("template", "what is shown is the model as it is"),
    ("options", "what is shown is the model as it is"),
];

/// `/api/show`. Older clients call the model `name`.
#[derive(Deserialize)]
pub(crate) struct ShowRequest {
    model: Option<String>,
    name: Option<String>,
    #[serde(default)]
    verbose: bool,
}

/// `/api/pull`.
#[derive(Deserialize)]
pub(crate) struct PullRequest {
    model: Option<String>,
    name: Option<String>,
    stream: Option<bool>,
}

/// Fields of `/api/pull` without effect.
const ACCEPTED_BY_PULL: Accepted = &[("insecure", "nothing is fetched")];

/// The name of the model, from the first of both fields that is not empty.
fn model_name(model: Option<String>, name: Option<String>) -> Result<String, ApiError> {
    let found = model.into_iter().chain(name).find(|name| !name.is_empty());
    found.ok_or_else(|| ApiError::field("model", "the field \"model\" is missing"))
}

/// Reads a request about a model.
async fn read<T: DeserializeOwned>(
    app: &App,
    incoming: Incoming,
    accepted: Accepted,
) -> Result<T, ApiError> {
    let max = app.options.max_body.min(MAX_BODY);
    let bytes = body::read(incoming.body, max, app.options.read_timeout).await?;
    BodyFields::parse(&bytes)?.rest(accepted, &incoming.warnings)
}

/// Shows the properties of a model.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    let ShowRequest {
        model,
        name,
        verbose,
    } = read(&app, incoming, ACCEPTED_BY_SHOW).await?;
    let name = model_name(model, name)?;
    let json = app
        .models
        .inspect(Some(&name), |name, model| shown(&app, name, model, verbose))?;
    Ok(Json(json))
}

fn shown(app: &App, name: &str, model: Option<&Model>, verbose: bool) -> Value {
    let mut object = json!({
        "license": "",
        "modelfile": format!("FROM {name}\n"),
        "parameters": "",
        "template": "",
        "modified_at": modified_at(app),
        "details": details(model),
        "capabilities": ["completion", "tools"],
        "model_info": model.map_or_else(Map::new, info),
    });
    let Some(model) = model else {
        return object;
    };
    object["parameters"] = format!("num_ctx {}", model.n_ctx).into();
    object["template"] = model.engine.chat_template().unwrap_or_default().into();
    object["capabilities"] = capabilities(model).into();
    if verbose {
        object["tensors"] = tensors(directory(model));
    }
    object
}

/// The capabilities of a model, in Ollama's words.
fn capabilities(model: &Model) -> Vec<&'static str> {
    let more = [
        ("thinking", can_think(model)),
        ("insert", infill::can_fill(model)),
    ];
    let more = more
        .into_iter()
        .filter_map(|(name, can)| can.then_some(name));
    ["completion", "tools"].into_iter().chain(more).collect()
}

/// Names, types and shapes (outermost first) of all weights.
fn tensors(directory: &Directory) -> Value {
    let one = |tensor: &TensorInfo| {
        let shape = tensor.shape.dims().to_vec();
        json!({ "name": tensor.name, "type": tensor.ty.name(), "shape": shape })
    };
    directory.tensors().iter().map(one).collect()
}

/// Succeeds for the models of this server; it downloads no others.
pub(crate) async fn pull(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let PullRequest {
        model,
        name,
        stream,
    } = read(&app, incoming, ACCEPTED_BY_PULL).await?;
    let name = model_name(model, name)?;
    if app.models.look_up(Some(&name)).is_err() {
        let message = format!(
            "model {name:?} not found: this server fetches no models; run `atta pull` on its \
             machine and start it with that model"
        );
        return Err(ApiError {
            message,
            ..ApiError::no_model(&name)
        });
    }
    let success = json!({ "status": "success" });
    Ok(if stream.unwrap_or(true) {
        stream::line(success)
    } else {
        Json(success).into_response()
    })
}

/// An id of the model as Ollama's programs show it: 64 hexadecimal digits, made of its name.
fn digest(name: &str) -> String {
    let part = |i: u8| {
        let mut hasher = DefaultHasher::new();
        (i, name).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// The start of the server stands for the time of all models.
fn modified_at(app: &App) -> String {
    timestamp(Duration::from_secs(app.started))
}

fn details(model: Option<&Model>) -> Value {
    let mut details = json!({ "parent_model": "", "format": "gguf" });
    let Some(directory) = model.map(directory) else {
        return details;
    };
    if let Some(family) = architecture(directory) {
        details["family"] = family.into();
        details["families"] = json!([family]);
    }
    details["parameter_size"] = rounded(n_weights(directory)).into();
    details["quantization_level"] = main_type(directory).into();
    details
}

/// The numbers of the file's metadata; its texts tell where it was made.
fn info(model: &Model) -> Map<String, Value> {
    let directory = directory(model);
    let number = |(key, value): (&str, Meta<'_>)| Some((key.to_owned(), scalar(value)?));
    let mut info: Map<String, Value> = directory.metadata().iter().filter_map(number).collect();
    info.insert(
        "general.parameter_count".to_owned(),
        n_weights(directory).into(),
    );
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
    directory
        .metadata()
        .str("general.architecture")
        .ok()
        .flatten()
}

fn file_bytes(model: &Model) -> u64 {
    model.engine.model().weights().files().file_bytes()
}

/// Private memory, and the size of the file if it is mapped.
fn memory_bytes(model: &Model) -> u64 {
    let mapped = if model.engine.weights_at() == WeightsAt::Mapped {
        file_bytes(model)
    } else {
        0
    };
    model.engine.budget().used().saturating_add(mapped)
}

fn n_weights(directory: &Directory) -> u64 {
    directory.tensors().iter().fold(0, |sum, tensor| {
        sum.saturating_add(tensor.shape.n_elements())
    })
}

/// The tensor type that has the most bytes.
fn main_type(directory: &Directory) -> &'static str {
    let mut types = BTreeMap::<&str, u64>::new();
    for tensor in directory.tensors() {
        let sum = types.entry(tensor.ty.name()).or_default();
        *sum = sum.saturating_add(tensor.n_bytes);
    }
    types
        .into_iter()
        .max_by_key(|&(_, bytes)| bytes)
        .map_or("", |(name, _)| name)
}

/// A number in thousands, millions or billions.
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

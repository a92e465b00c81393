//! The analysis as keys of the JSON object.

use atta::{BudgetItem, MemoryPlan};
use serde_json::{Map, Value, json};

use super::{
    Analysis,
    bytes::{RoleBytes, TensorBytes, TensorRole},
    kv_names,
    vocabulary::Vocabulary,
};
use crate::report::weights_name;

pub(super) fn add(analysis: &Analysis, mut object: Value) -> Value {
    either(&mut object, "memory", &analysis.memory, memory);
    object["read_bytes_per_s"] = json!(analysis.read_bytes_per_s);
    object["max_decode_tok_s"] = json!(analysis.most_tok_s());
    either(&mut object, "tokenizer", &analysis.vocabulary, tokenizer);
    object["chat_template"] = analysis.template.as_ref().map_or(Value::Null, |template| {
        json!({
            "bytes": template.n_bytes,
            "error": template.error,
            "first_line": template.first_line,
        })
    });
    object["bytes"] = bytes(&analysis.bytes);
    object
}

/// Adds a value at `key`, or null there and the error at `{key}_error`.
fn either<T>(object: &mut Value, key: &str, result: &Result<T, String>, to_json: fn(&T) -> Value) {
    match result {
        Ok(value) => object[key] = to_json(value),
        Err(why) => {
            object[key] = Value::Null;
            object[format!("{key}_error")] = json!(why);
        }
    }
}

fn memory(plan: &MemoryPlan) -> Value {
    let [k, v] = kv_names(plan.kv);
    let item = |item: &BudgetItem| json!({ "name": item.name, "bytes": item.bytes });
    let items: Vec<Value> = plan.items.iter().map(item).collect();
    let elsewhere: Vec<Value> = plan.elsewhere.iter().map(item).collect();
    json!({
        "n_ctx": plan.n_ctx,
        "n_batch": plan.n_batch,
        "kv_k": k,
        "kv_v": v,
        "weights": weights_name(plan.weights),
        "limit_bytes": plan.limit_bytes,
        "private_bytes": plan.private_bytes(),
        "items": items,
        "elsewhere": elsewhere,
        "mapped_bytes": plan.mapped_bytes,
        "read_bytes_per_token": plan.read_bytes as u64,
        "weight_bytes_per_token": plan.token_bytes,
    })
}

fn tokenizer(vocabulary: &Vocabulary) -> Value {
    let roles = vocabulary.roles.iter();
    let roles: Map<String, Value> = roles
        .map(|(role, id, text)| ((*role).to_owned(), json!({ "id": id, "text": text })))
        .collect();
    json!({
        "model": vocabulary.model,
        "pre": vocabulary.pre,
        "n_tokens": vocabulary.n_tokens,
        "special": roles,
        "eog": vocabulary.eog,
        "add_bos": vocabulary.adds_bos,
        "add_eos": vocabulary.adds_eos,
    })
}

fn bytes(bytes: &TensorBytes) -> Value {
    let layers: Vec<Value> = bytes
        .layers
        .iter()
        .map(|(l, layer)| row(layer, Some(*l)))
        .collect();
    json!({ "outside_layers": row(&bytes.outside, None), "layers": layers })
}

fn row(row: &RoleBytes, layer: Option<u32>) -> Value {
    let named = layer.map(|l| ("layer".to_owned(), json!(l)));
    let roles = TensorRole::ALL
        .into_iter()
        .filter(|role| row[*role as usize] > 0);
    let roles = roles.map(|role| (role.name().to_owned(), json!(row[role as usize])));
    Value::Object(named.into_iter().chain(roles).collect())
}

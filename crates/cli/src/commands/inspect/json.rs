//! The view as one JSON object. Scalars and strings are whole; arrays are shown by length and first
//! elements.

use atta::{
    ArrayValue, KvType, TensorInfo, Value as Meta,
    spec::{Mask, ModelSpec},
};
use serde_json::{Map, Number, Value, json};

use super::{Total, View};

/// Elements of an array that are printed.
const SHOWN_ELEMENTS: usize = 8;

pub(super) fn render(view: &View<'_>) -> Value {
    let metadata: Map<String, Value> = view
        .metadata()
        .into_iter()
        .map(|(key, v)| (key.to_owned(), meta(v)))
        .collect();
    let types: Map<String, Value> = view
        .types
        .iter()
        .map(|(name, total)| ((*name).to_owned(), sum(total)))
        .collect();
    let mut object = json!({
        "file": view.path.to_string_lossy(),
        "n_files": view.directory.n_shards(),
        "file_bytes": view.file_bytes,
        "metadata": metadata,
        "tensors_total": sum(&view.all),
        "tensors_by_type": types,
    });
    match &view.spec {
        Ok(spec) => object["model"] = model(spec),
        Err(why) => {
            object["model"] = Value::Null;
            object["model_error"] = json!(why);
        }
    }
    if let Some(tensors) = view.tensors {
        object["tensors"] = tensors.iter().map(tensor).collect();
    }
    object
}

fn sum(total: &Total) -> Value {
    let Total {
        n_tensors,
        n_weights,
        n_bytes,
    } = *total;
    json!({ "tensors": n_tensors, "weights": whole(n_weights), "bytes": whole(n_bytes) })
}

/// A sum, which in a real file fits into 64 bits.
fn whole(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn meta(value: Meta<'_>) -> Value {
    match value {
        Meta::U8(v) => v.into(),
        Meta::I8(v) => v.into(),
        Meta::U16(v) => v.into(),
        Meta::I16(v) => v.into(),
        Meta::U32(v) => v.into(),
        Meta::I32(v) => v.into(),
        Meta::U64(v) => v.into(),
        Meta::I64(v) => v.into(),
        Meta::F32(v) => float(&v.to_string()),
        Meta::F64(v) => float(&v.to_string()),
        Meta::Bool(v) => v.into(),
        Meta::Str(v) => v.into(),
        Meta::Bytes(v) => String::from_utf8_lossy(v).into(),
        Meta::Array(v) => array(&v),
    }
}

/// The shortest decimal that is read back as the same number, so that an F32 of 0.1 stays 0.1. NaN
/// and infinity, which JSON lacks, become strings.
fn float(shortest: &str) -> Value {
    let number = shortest.parse().ok().and_then(Number::from_f64);
    number.map_or_else(|| shortest.into(), Value::Number)
}

fn array(array: &ArrayValue<'_>) -> Value {
    let first: Vec<Value> = array.iter().take(SHOWN_ELEMENTS).map(meta).collect();
    json!({ "type": array.elem().name(), "len": array.len(), "first": first })
}

fn tensor(t: &TensorInfo) -> Value {
    json!({
        "name": t.name,
        "type": t.ty.name(),
        "shape": t.shape.dims(),
        "bytes": t.n_bytes,
        "file": t.shard,
        "offset": t.offset,
    })
}

fn model(spec: &ModelSpec) -> Value {
    let layers: Vec<Value> = spec.layers.iter().map(layer).collect();
    json!({
        "d_model": spec.d_model,
        "n_vocab": spec.n_vocab,
        "n_ctx_train": spec.n_ctx_train,
        "n_layers": spec.layers.len(),
        "kv_bytes_per_position_f16": spec.state_bytes(KvType::F16, 1).iter().sum::<u64>(),
        "layers": layers,
    })
}

fn layer(layer: &atta::spec::LayerSpec) -> Value {
    let a = layer.attention();
    let window = a.and_then(|a| match a.mask {
        Mask::Causal | Mask::Full => None,
        Mask::Window(n) | Mask::Chunk(n) => Some(n),
        Mask::Around(n) => Some(2 * n),
    });
    json!({
        "n_heads": a.map(|a| a.n_heads),
        "n_kv_heads": a.map(|a| a.n_kv_heads),
        "d_head": a.map(|a| a.d_head),
        "window": window,
        "d_ff": layer.mlp().map(|mlp| mlp.d_ff),
        "n_experts": layer.moe().map(|moe| moe.n_experts),
        "n_experts_used": layer.moe().map(|moe| moe.n_used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_shortest_form_and_nan_is_a_string() {
        assert_eq!(meta(Meta::F32(1e-5)).to_string(), "0.00001");
        assert_eq!(meta(Meta::F32(0.1)).to_string(), "0.1");
        assert_eq!(meta(Meta::F32(f32::NAN)), json!("NaN"));
        assert_eq!(meta(Meta::U64(u64::MAX)).to_string(), u64::MAX.to_string());
    }
}

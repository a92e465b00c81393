//! Multi-token prediction: the layer behind the last one, which guesses the token after the next
//! one from the model's result.
//!
//! The layer is one of its architecture, so this file knows no transformation of a tensor: only the
//! keys, the names in checkpoints, and which tensors cannot be used. Sources: llama.cpp's
//! `conversion/qwen.py` and `conversion/glm.py`.

use std::collections::BTreeSet;

use atta_formats::{Directory, Writer};
use atta_model::{TensorReq, arch, spec::ModelSpec};

use super::{
    config::Config,
    delta_net,
    family::{Family, MAX_LAYERS, Recurrent},
    heads,
    keys::Keys,
    leave_out, without_prefixes,
};
use crate::{Error, metadata::parsed, raw::RawTensors};

const NEXTN: &str = "multi-token prediction";

/// What every such layer has beside those of a layer, without the prefix of the layer.
const JOIN: [&str; 3] = ["eh_proj.weight", "enorm.weight", "hnorm.weight"];

/// Prefixes of names in Qwen's checkpoints, and in a layer.
const QWEN: [(&str, &str); 5] = [
    ("mtp.layers.0.", ""),
    ("mtp.fc.", "eh_proj."),
    ("mtp.pre_fc_norm_embedding.", "enorm."),
    ("mtp.pre_fc_norm_hidden.", "hnorm."),
    ("mtp.norm.", "shared_head.norm."),
];

/// Writes the keys of the layer, if the checkpoint has one that the architecture runs, and gives
/// its tensors the names of a layer. Of several, this is the first.
pub(super) fn write(
    c: &Config,
    family: &Family,
    raw: &mut RawTensors,
    keys: &mut Keys,
) -> Result<(), Error> {
    let n_layers = c.count_opt(&["num_hidden_layers"])?;
    let Some(n_layers) = n_layers.filter(|&n| n < MAX_LAYERS) else {
        return Ok(());
    };
    let prefix = family.in_layer("", Some(n_layers as usize));
    if !has_layer(raw, &prefix) {
        return Ok(());
    }
    let plain = keys.writer.clone();
    keys.count("block_count", n_layers + 1);
    keys.count("nextn_predict_layers", 1);
    if family.recurrent == Recurrent::DeltaNet {
        delta_net::write_recurrent(c, keys, 1)?;
    }
    if !is_run(&keys.writer) {
        keys.writer = plain;
        return Ok(());
    }
    raw.rename(|name| of_qwen(name, &prefix).unwrap_or_else(|| name.to_owned()))
}

/// Whether a checkpoint has what joins a layer with this prefix to the model.
fn has_layer(raw: &RawTensors, prefix: &str) -> bool {
    let usual = |name: &str| of_qwen(name, prefix).unwrap_or_else(|| without_prefixes(name));
    let names: BTreeSet<String> = raw.names().map(usual).collect();
    let mut parts = JOIN.iter().map(|part| format!("{prefix}{part}"));
    parts.all(|name| names.contains(&name))
}

/// The name of a tensor of Qwen's layer in a layer with this prefix; `None` of another tensor.
fn of_qwen(name: &str, prefix: &str) -> Option<String> {
    let part = name.strip_prefix("model.").unwrap_or(name);
    QWEN.iter().find_map(|(from, to)| {
        let rest = part.strip_prefix(from)?;
        Some(format!("{prefix}{to}{rest}"))
    })
}

/// Whether the architecture of this metadata runs such a layer.
fn is_run(writer: &Writer) -> bool {
    parsed(writer).is_ok_and(|metadata| {
        let model = arch::lower(&metadata);
        model.is_ok_and(|spec| spec.n_nextn == 1) && arch::lower_nextn(&metadata).is_ok()
    })
}

/// Every tensor of a model, and of its layer of multi-token prediction.
pub(super) fn tensors(c: &Config, spec: &ModelSpec, keys: &Keys) -> Result<Vec<TensorReq>, Error> {
    let mut reqs = spec.tensors();
    if spec.n_nextn > 0 {
        let of_layer = layer(c, keys)?.tensors().into_iter();
        let own = of_layer.filter(|req| req.layer.is_some());
        reqs.extend(own.map(|req| TensorReq {
            layer: req.layer.map(|l| req.first_block + l),
            first_block: 0,
            ..req
        }));
    }
    Ok(reqs)
}

/// The layer as a model of its own.
fn layer(c: &Config, keys: &Keys) -> Result<ModelSpec, Error> {
    let mut spec = arch::lower_nextn(&parsed(&keys.writer)?)?;
    heads::settle_qk_norm(c, &mut spec)?;
    Ok(spec)
}

/// Checks that a file has exactly the tensors of a model and of its layer.
pub(super) fn check(
    c: &Config,
    spec: &ModelSpec,
    keys: &Keys,
    directory: &Directory,
) -> Result<(), Error> {
    spec.check_tensors(directory)?;
    if spec.n_nextn > 0 {
        layer(c, keys)?.check_tensors(directory)?;
    }
    Ok(())
}

/// Drops the tensors of layers of multi-token prediction, but for the first `n_kept` layers.
pub(super) fn trim(
    c: &Config,
    n_kept: usize,
    raw: &mut RawTensors,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    leave_out(raw, notes, NEXTN, &["mtp.", "mtp_"]);
    let Some(n_nextn) = c.count_opt(&["num_nextn_predict_layers", "num_mtp_layers"])? else {
        return Ok(());
    };
    let n_layers = c.count(&["num_hidden_layers"])?;
    let layers = n_layers.saturating_add(n_kept as u64)..n_layers.saturating_add(n_nextn);
    let n = raw.retain(|name| !layer_of(name).is_some_and(|l| layers.contains(&l)));
    if n > 0 {
        notes.push(format!("{n} tensors of {NEXTN} are left out (layers)"));
    }
    Ok(())
}

fn layer_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("model.layers.")?;
    rest.split('.').next()?.parse().ok()
}

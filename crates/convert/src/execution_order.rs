//! The order in which the forward pass reads tensors: that of the tensors of a file that streams
//! well, so that a pass reads from its start to its end.
//!
//! It refuses to know architectures: the model's list of tensors has the order. Tensors that the
//! list lacks, and those of unknown architectures, are put behind the others of their layer; layers
//! that the list lacks, which predict further tokens, behind the model.

use std::collections::HashMap;

use atta_model::{arch, spec::ModelSpec};

use crate::{Checkpoint, Error, Step, mix::layer_of};

/// Orders steps as the model reads their tensors; the order of others stays.
///
/// # Errors
/// Names and shapes that GGUF does not allow.
pub(crate) fn sort(checkpoint: &Checkpoint, steps: &mut [Step]) -> Result<(), Error> {
    let described = checkpoint.describe()?;
    let places = match arch::lower(&described.metadata) {
        Ok(spec) => places(&spec),
        Err(_) => HashMap::new(),
    };
    steps.sort_by_cached_key(|step| place(&places, &checkpoint.tensors[step.tensor].name));
    Ok(())
}

/// The place of every tensor of a model, and of the larger ones that may hold several; of a layer,
/// the place behind its last one, under its prefix.
fn places(spec: &ModelSpec) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (place, req) in spec.tensors().into_iter().enumerate() {
        places.entry(req.name()).or_insert(place);
        if let Some(fused) = req.fused_name() {
            places.entry(fused).or_insert(place);
        }
        if let Some(l) = req.layer {
            places.insert(prefix(l), place);
        }
    }
    places
}

fn prefix(layer: usize) -> String {
    format!("blk.{layer}.")
}

/// The place of a tensor: embeddings and the like first, the head and its norm last.
fn place(places: &HashMap<String, usize>, name: &str) -> (usize, usize) {
    let of_layer = |l| {
        places
            .get(&prefix(l))
            .map_or((places.len() + l + 1, 0), |&place| (place, 1))
    };
    match (places.get(name), layer_of(name)) {
        (Some(&place), _) => (place, 0),
        (None, Some(l)) => of_layer(l),
        (None, None) if name.starts_with("output") => (usize::MAX, 0),
        (None, None) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<'a>(places: &HashMap<String, usize>, names: &[&'a str]) -> Vec<&'a str> {
        let mut names = names.to_vec();
        names.sort_by_key(|name| place(places, name));
        names
    }

    #[test]
    fn tensors_of_an_unknown_architecture_go_layer_by_layer() {
        let names = ["output.weight", "blk.1.b", "blk.0.z", "blk.0.a", "embed"];
        let expected = ["embed", "blk.0.z", "blk.0.a", "blk.1.b", "output.weight"];
        assert_eq!(sorted(&HashMap::new(), &names), expected);
    }

    #[test]
    fn a_tensor_that_the_list_lacks_is_behind_its_layer() {
        let all = [
            "token_embd.weight",
            "blk.0.attn_q.weight",
            "blk.1.attn_q.weight",
        ];
        let mut places: HashMap<_, _> = all.map(str::to_owned).into_iter().zip(0..).collect();
        places.extend([(prefix(0), 1), (prefix(1), 2)]);
        let beyond = "blk.2.nextn.enorm.weight";
        let names = [beyond, all[2], "blk.0.attn_q.scale", all[1], all[0]];
        let expected = [all[0], all[1], "blk.0.attn_q.scale", all[2], beyond];
        assert_eq!(sorted(&places, &names), expected);
    }
}

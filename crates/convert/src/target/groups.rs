//! Groups of tensors whose sensitivity is measured together: those of one role in neighbouring
//! layers. And the usual figure of a role, where nothing was measured.

use std::collections::BTreeMap;

use crate::mix::{ModelFacts, TensorCategory, TensorShape, category, layer_of};

/// Bands of layers, at most.
const N_BANDS: usize = 8;
/// Layers at either end that usually matter more.
const N_OUTER: usize = 2;

/// Tensors whose sensitivity is measured together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// The role and the layers, such as `ffn_down of layers 4 to 7`.
    pub name: String,
    /// Indices in [`CostTable::tensors`](super::CostTable::tensors).
    pub tensors: Vec<usize>,
}

/// Groups tensors by their role and band of layers.
pub(super) fn group(names: &[&str], n_layers: usize) -> Vec<TensorGroup> {
    let mut all = BTreeMap::<_, Vec<usize>>::new();
    for (i, name) in names.iter().enumerate() {
        let band = layer_of(name).map(|l| band(l, n_layers));
        all.entry((band, role(name))).or_default().push(i);
    }
    all.into_iter()
        .map(|((_, role), tensors)| TensorGroup {
            name: group_name(role, tensors.iter().filter_map(|&i| layer_of(names[i]))),
            tensors,
        })
        .collect()
}

fn group_name(role: &str, layers: impl Iterator<Item = usize> + Clone) -> String {
    match layers.clone().min().zip(layers.max()) {
        None => role.to_owned(),
        Some((first, last)) if first == last => format!("{role} of layer {first}"),
        Some((first, last)) => format!("{role} of layers {first} to {last}"),
    }
}

/// The band of a layer, of at most [`N_BANDS`].
fn band(layer: usize, n_layers: usize) -> usize {
    let n_bands = N_BANDS.min(n_layers.max(1));
    (layer * n_bands / n_layers.max(1)).min(n_bands - 1)
}

/// The name without its layer and the word `weight`.
fn role(name: &str) -> &str {
    let inner = match layer_of(name) {
        Some(_) => name.splitn(3, '.').nth(2).unwrap_or(name),
        None => name,
    };
    inner.strip_suffix(".weight").unwrap_or(inner)
}

/// The sensitivity that a tensor usually has, up to a common factor: rough figures.
pub(super) fn guess(tensor: TensorShape<'_>, facts: &ModelFacts) -> f64 {
    let is_outer =
        layer_of(tensor.name).is_some_and(|l| l < N_OUTER || l + N_OUTER >= facts.n_layers);
    match category(tensor.name, tensor.dims.len()) {
        TensorCategory::Output | TensorCategory::AttnV => 4.0,
        TensorCategory::Embedding if facts.is_tied => 4.0,
        _ if is_outer => 4.0,
        TensorCategory::AttnOutput | TensorCategory::FfnDown => 2.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_role_are_a_group() {
        let mut names = vec!["token_embd.weight".to_owned(), "output.weight".to_owned()];
        for l in 0..16 {
            names.push(format!("blk.{l}.attn_q.weight"));
            names.push(format!("blk.{l}.ffn_up.weight"));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups = group(&names, 16);
        assert_eq!(groups.len(), 2 + 16);
        let named = |name: &str| groups.iter().find(|group| group.name == name);
        assert_eq!(named("output").unwrap().tensors, [1]);
        let second = &named("attn_q of layers 2 to 3").unwrap().tensors;
        assert_eq!(*second, [6, 8]);
        let mut all: Vec<usize> = groups
            .iter()
            .flat_map(|group| group.tensors.clone())
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..names.len()).collect::<Vec<_>>());
    }

    #[test]
    fn few_layers_are_groups_of_their_own() {
        let names = ["blk.0.attn_q.weight", "blk.1.attn_q.weight"];
        let groups = group(&names, 2);
        assert_eq!(groups[1].name, "attn_q of layer 1");
        // A file may name more layers than it claims.
        assert_eq!(group(&["blk.9.attn_q.weight"], 0).len(), 1);
    }

    #[test]
    fn values_heads_and_outer_layers_count_more() {
        let facts = ModelFacts {
            n_layers: 8,
            ..ModelFacts::default()
        };
        let guess = |name: &str| {
            guess(
                TensorShape {
                    name,
                    dims: &[64, 64],
                },
                &facts,
            )
        };
        assert_eq!(guess("blk.4.attn_v.weight"), 4.0);
        assert_eq!(guess("blk.4.ffn_down.weight"), 2.0);
        assert_eq!(guess("blk.4.attn_q.weight"), 1.0);
        assert_eq!(guess("blk.6.attn_q.weight"), 4.0);
        assert_eq!(guess("output.weight"), 4.0);
        assert_eq!(guess("token_embd.weight"), 1.0);
    }
}

//! Where each tensor lies in a model file: the one list that reading and writing share.
//!
//! A tensor of the layers stands once for all of them, one layer after the other. In version 2
//! matrices are int8 codes, and after the codes of a matrix come the scales of its groups; norms
//! are f32 always.

use atta_model::Role;

use super::header::{Form, Header, Sizes};

/// What stands in a file, in its order.
const V0: &[Role] = &[
    Role::TokenEmbd,
    Role::AttnNorm,
    Role::AttnQ,
    Role::AttnK,
    Role::AttnV,
    Role::AttnOutput,
    Role::FfnNorm,
    Role::FfnGate,
    Role::FfnDown,
    Role::FfnUp,
    Role::OutputNorm,
    Role::Output,
];

/// The order of versions 1 and 2.
const V1: &[Role] = &[
    Role::AttnNorm,
    Role::FfnNorm,
    Role::OutputNorm,
    Role::TokenEmbd,
    Role::AttnQ,
    Role::AttnK,
    Role::AttnV,
    Role::AttnOutput,
    Role::FfnGate,
    Role::FfnDown,
    Role::FfnUp,
    Role::Output,
];

/// A tensor in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) role: Role,
    /// `None` for tensors of the whole model.
    pub(super) layer: Option<usize>,
    /// Outermost first.
    pub(super) dims: Vec<u64>,
    /// First byte.
    pub(super) at: u64,
    /// Weights per group, if they are int8.
    pub(super) group: Option<u64>,
}

impl Place {
    /// Its name in GGUF files.
    pub(super) fn name(&self) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{}", self.role.name()),
            None => self.role.name().to_owned(),
        }
    }

    /// Weights in all.
    pub(super) fn n_weights(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Weights of a row.
    pub(super) fn d_row(&self) -> u64 {
        *self.dims.last().expect("no tensor of a model is a scalar")
    }

    fn n_bytes(&self) -> Result<u64, String> {
        let n = self.n_weights();
        match self.group {
            None => Ok(4 * n),
            Some(group) if n.is_multiple_of(group) => Ok(n + 4 * (n / group)),
            Some(group) => Err(format!(
                "{} has {n} weights, which groups of {group} do not divide",
                self.name()
            )),
        }
    }
}

/// Every tensor of a file, and the length of the file.
pub(super) fn places(header: &Header) -> Result<(Vec<Place>, u64), String> {
    let mut places = Vec::new();
    let mut end = header.data_at();
    for &role in if header.form == Form::V0 { V0 } else { V1 } {
        if role == Role::Output && header.form == Form::V0 {
            // Cosines and sines, which were tables once and are not read any more.
            end = further(end, 4 * header.sizes.n_ctx * header.sizes.d_head())?;
        }
        for layer in instances(role, header) {
            let dims = dims(role, &header.sizes);
            let at = end;
            let group = group(role, header.form);
            let place = Place {
                role,
                layer,
                dims,
                at,
                group,
            };
            end = further(end, place.n_bytes()?)?;
            places.push(place);
        }
    }
    Ok((places, end))
}

fn further(at: u64, n_bytes: u64) -> Result<u64, String> {
    at.checked_add(n_bytes)
        .ok_or_else(|| "sizes of more than 2^64 bytes".into())
}

/// The layers that have such a tensor, `None` if it belongs to the whole model.
fn instances(role: Role, header: &Header) -> Vec<Option<usize>> {
    match role {
        Role::Output if header.tied => Vec::new(),
        Role::Output | Role::OutputNorm | Role::TokenEmbd => vec![None],
        _ => (0..header.sizes.n_layers as usize).map(Some).collect(),
    }
}

fn group(role: Role, form: Form) -> Option<u64> {
    match role {
        Role::AttnNorm | Role::FfnNorm | Role::OutputNorm => None,
        _ => form.group(),
    }
}

fn dims(role: Role, sizes: &Sizes) -> Vec<u64> {
    let &Sizes {
        d_model,
        d_ff,
        n_vocab,
        ..
    } = sizes;
    match role {
        Role::AttnQ | Role::AttnOutput => vec![d_model, d_model],
        Role::AttnK | Role::AttnV => vec![sizes.d_kv(), d_model],
        Role::FfnGate | Role::FfnUp => vec![d_ff, d_model],
        Role::FfnDown => vec![d_model, d_ff],
        Role::TokenEmbd | Role::Output => vec![n_vocab, d_model],
        _ => vec![d_model],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(form: Form, tied: bool) -> Header {
        let sizes = Sizes {
            d_model: 8,
            d_ff: 12,
            n_layers: 2,
            n_heads: 2,
            n_kv_heads: 1,
            n_vocab: 10,
            n_ctx: 6,
        };
        Header { form, sizes, tied }
    }

    #[test]
    fn every_weight_has_its_place() {
        let n_weights = 80 + 8 + 2 * (8 + 8 + 64 + 32 + 32 + 64 + 96 + 96 + 96);
        let end = |form, tied| places(&header(form, tied)).unwrap().1;
        assert_eq!(end(Form::V0, true), 28 + 4 * (n_weights + 6 * 4));
        assert_eq!(end(Form::V0, false), end(Form::V0, true) + 4 * 80);
        assert_eq!(end(Form::V1, true), 256 + 4 * n_weights);
        let norms = 5 * 8;
        assert_eq!(
            end(Form::V2 { group: 4 }, true),
            256 + 4 * norms + 2 * (n_weights - norms)
        );
    }

    #[test]
    fn a_head_comes_after_what_was_a_table() {
        let (places, end) = places(&header(Form::V0, false)).unwrap();
        assert_eq!(
            (places.last().unwrap().role, places.last().unwrap().at),
            (Role::Output, end - 4 * 80)
        );
        assert_eq!(places[1].name(), "blk.0.attn_norm.weight");
    }

    #[test]
    fn groups_that_do_not_divide_a_matrix_are_refused() {
        let error = places(&header(Form::V2 { group: 7 }, true)).unwrap_err();
        assert_eq!(
            error,
            "token_embd.weight has 80 weights, which groups of 7 do not divide"
        );
    }
}

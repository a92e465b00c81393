//! The tensors of a model file with their offsets, shared by reader and writer.
//!
//! For each role, the tensors of all layers follow each other. In version 2, matrices are int8
//! codes followed by the scales of their groups; norms are always f32.

use atta_model::Role;

use super::header::{FileVersion, Header, Sizes};

/// The order of version 0.
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

/// A tensor of a model file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileTensor {
    pub(super) role: Role,
    /// `None` for tensors of the whole model.
    pub(super) layer: Option<usize>,
    /// Outermost first.
    pub(super) dims: Vec<u64>,
    /// Byte offset.
    pub(super) at: u64,
    /// Weights per group, if the tensor is int8.
    pub(super) group: Option<u64>,
}

impl FileTensor {
    /// GGUF's name.
    pub(super) fn name(&self) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{}", self.role.name()),
            None => self.role.name().to_owned(),
        }
    }

    /// The number of weights.
    pub(super) fn n_weights(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The number of weights per row.
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

/// All tensors of a file, and the length of the file.
pub(super) fn file_tensors(header: &Header) -> Result<(Vec<FileTensor>, u64), String> {
    let mut file_tensors = Vec::new();
    let mut end = header.data_at();
    for &role in if header.version == FileVersion::V0 {
        V0
    } else {
        V1
    } {
        if role == Role::Output && header.version == FileVersion::V0 {
            // Tables of cosines and sines, which llama2.c skips.
            end = further(end, 4 * header.sizes.n_ctx * header.sizes.d_head())?;
        }
        for layer in instances(role, header) {
            let dims = dims(role, &header.sizes);
            let at = end;
            let group = group(role, header.version);
            let tensor = FileTensor {
                role,
                layer,
                dims,
                at,
                group,
            };
            end = further(end, tensor.n_bytes()?)?;
            file_tensors.push(tensor);
        }
    }
    Ok((file_tensors, end))
}

fn further(at: u64, n_bytes: u64) -> Result<u64, String> {
    at.checked_add(n_bytes)
        .ok_or_else(|| "sizes of more than 2^64 bytes".into())
}

/// The layers that have a tensor of this role; `None` for a tensor of the whole model.
fn instances(role: Role, header: &Header) -> Vec<Option<usize>> {
    match role {
        Role::Output if header.tied => Vec::new(),
        Role::Output | Role::OutputNorm | Role::TokenEmbd => vec![None],
        _ => (0..header.sizes.n_layers as usize).map(Some).collect(),
    }
}

fn group(role: Role, version: FileVersion) -> Option<u64> {
    match role {
        Role::AttnNorm | Role::FfnNorm | Role::OutputNorm => None,
        _ => version.group(),
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

    fn header(version: FileVersion, tied: bool) -> Header {
        let sizes = Sizes {
            d_model: 8,
            d_ff: 12,
            n_layers: 2,
            n_heads: 2,
            n_kv_heads: 1,
            n_vocab: 10,
            n_ctx: 6,
        };
        Header {
            version,
            sizes,
            tied,
        }
    }

    #[test]
    fn all_weights_are_counted() {
        let n_weights = 80 + 8 + 2 * (8 + 8 + 64 + 32 + 32 + 64 + 96 + 96 + 96);
        let end = |version, tied| file_tensors(&header(version, tied)).unwrap().1;
        assert_eq!(end(FileVersion::V0, true), 28 + 4 * (n_weights + 6 * 4));
        assert_eq!(
            end(FileVersion::V0, false),
            end(FileVersion::V0, true) + 4 * 80
        );
        assert_eq!(end(FileVersion::V1, true), 256 + 4 * n_weights);
        let norms = 5 * 8;
        assert_eq!(
            end(FileVersion::V2 { group: 4 }, true),
            256 + 4 * norms + 2 * (n_weights - norms)
        );
    }

    #[test]
    fn an_untied_head_of_version_0_follows_the_tables() {
        let (file_tensors, end) = file_tensors(&header(FileVersion::V0, false)).unwrap();
        assert_eq!(
            (
                file_tensors.last().unwrap().role,
                file_tensors.last().unwrap().at
            ),
            (Role::Output, end - 4 * 80)
        );
        assert_eq!(file_tensors[1].name(), "blk.0.attn_norm.weight");
    }

    #[test]
    fn groups_that_do_not_divide_a_matrix_are_refused() {
        let error = file_tensors(&header(FileVersion::V2 { group: 7 }, true)).unwrap_err();
        assert_eq!(
            error,
            "token_embd.weight has 80 weights, which groups of 7 do not divide"
        );
    }
}

//! BERT, RoBERTa and XLM-RoBERTa: an encoder with learned positions, biases and a plain GELU MLP.
//!
//! Files of RoBERTa have the table of positions without its first rows, which no token uses.
//! Source: Devlin et al. 2019, section 3.

use super::{
    bert_like::{bert_like, mlp},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Positions, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mlp = mlp(m, Activation::Gelu, Presence::Required)?;
    bert_like(m, Ffn::Plain, mlp)?
        .qkv_bias(Presence::Required)
        .out_bias(Presence::Required)
        .attention(|a| a.rope = None)
        .model(|model| model.positions = Positions::Learned(model.n_ctx_train))
        .build()
}

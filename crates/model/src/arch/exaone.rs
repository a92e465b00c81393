//! EXAONE 3 and 3.5: a llama whose heads are rotated in halves.
//!
//! Source: the EXAONE 3.0 report (LG AI Research 2024), section 2.1.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?.rope_factors(Presence::Optional).build()
}

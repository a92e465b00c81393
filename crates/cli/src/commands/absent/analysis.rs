//! `atta inspect` in a build without the feature `analyze`: a file is shown, and not analyzed.

use std::path::Path;

use clap::Args;
use serde_json::Value;

use super::View;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct AnalysisFlags {}

pub(super) struct Analysis;

impl Analysis {
    pub(super) fn of(_: Option<&Path>, _: &View<'_>, _: &AnalysisFlags) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(super) fn text(&self) -> String {
        String::new()
    }

    pub(super) fn add_to(&self, object: Value) -> Value {
        object
    }
}

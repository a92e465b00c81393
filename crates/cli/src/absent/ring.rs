//! Rings in a build without the feature `cluster`.

use std::path::Path;

#[cfg(feature = "chat")]
use atta::Session;
use atta::{LoadOptions, Summary};

use crate::{
    args::{RingFlags, ring::RingAim},
    failure::Failure,
};

/// No ring.
pub(crate) struct RingRun;

impl RingRun {
    #[expect(
        clippy::unused_self,
        reason = "a build with rings has something to compare"
    )]
    pub(crate) fn compare(&self, _: &Summary) {}

    #[cfg(feature = "server")]
    pub(crate) fn monitor(
        self,
    ) -> Result<Option<std::sync::Arc<dyn atta_server::ClusterMonitor>>, Failure> {
        Ok(None)
    }

    #[cfg(feature = "chat")]
    #[expect(
        clippy::unused_self,
        reason = "a build with rings has a ring to change"
    )]
    pub(crate) fn obey(
        &self,
        _: &crate::args::ring::RingRequest<'_>,
        _: &Session,
    ) -> Result<String, Failure> {
        Err(Failure::Failed(NO_RINGS.to_owned()))
    }
}

/// What this build lacks.
const NO_RINGS: &str = "this build runs no model on several machines: it was made without the \
                        feature `cluster`";

pub(crate) fn plan(
    _: Option<&Path>,
    flags: &RingFlags,
    _: RingAim,
    options: LoadOptions,
) -> Result<(LoadOptions, RingRun), Failure> {
    match *flags == RingFlags::default() {
        true => Ok((options, RingRun)),
        false => Err(Failure::Usage(NO_RINGS.to_owned())),
    }
}

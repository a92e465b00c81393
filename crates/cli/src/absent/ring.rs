//! Rings in a build without the feature `cluster`.

use std::path::Path;

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
}

pub(crate) fn plan(
    _: Option<&Path>,
    flags: &RingFlags,
    _: RingAim,
    options: LoadOptions,
) -> Result<(LoadOptions, RingRun), Failure> {
    match *flags == RingFlags::default() {
        true => Ok((options, RingRun)),
        false => Err(Failure::Usage(
            "this build runs no model on several machines: it was made without the feature `cluster`"
                .to_owned(),
        )),
    }
}

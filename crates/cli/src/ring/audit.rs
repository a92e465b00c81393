//! `--audit`: texts that are computed twice.

use atta_cluster::{AuditCounts, AuditOptions, RemoteRing, Survey};

use super::{Asker, PlannedModel, no_plan, say};
use crate::{
    args::{
        RingFlags,
        ring::{RingSplit, RingWire},
        value::Seed,
    },
    failure::Failure,
};

impl Asker {
    /// Keeps memory for an audit, if one is wanted, and says how it draws.
    pub(super) fn audit(
        &mut self,
        flags: &RingFlags,
        survey: &mut Survey,
        model: &PlannedModel,
    ) -> Result<Option<AuditOptions>, Failure> {
        let Some(probability) = flags.audit else {
            return Ok(None);
        };
        if flags.split.unwrap_or_default() != RingSplit::Layers {
            return Err(Failure::Usage(
                "--audit compares the layers of other machines: it goes with --split layers only"
                    .to_owned(),
            ));
        }
        if flags.wire.unwrap_or_default() != RingWire::F32 {
            return Err(Failure::Usage(
                "--audit compares bits: it goes with --wire f32 only".to_owned(),
            ));
        }
        let mut options = AuditOptions {
            probability: f64::from(probability),
            seed: flags.audit_seed.unwrap_or(Seed::Random).now(),
            weights_bytes: 0,
        };
        let coordinator = &mut self.coordinator;
        let bytes = coordinator.reserve_audit(survey, &model.model, &model.size, &mut options);
        let bytes = bytes.map_err(no_plan)?;
        say(&format!(
            "audit: {} % of the texts are computed here, too, with {} MB of memory; \
             --audit-seed {} draws the same ones",
            100.0 * probability,
            bytes.div_ceil(1_000_000),
            options.seed
        ));
        Ok(Some(options))
    }
}

/// Says what an audit has compared, if there was one.
pub(super) fn report(ring: &RemoteRing) {
    let counts = ring.record().figures().audit;
    let AuditCounts {
        n_texts,
        n_drawn,
        n_rows,
        n_faults,
    } = counts;
    if counts == AuditCounts::default() {
        return;
    }
    let found = match n_faults {
        0 => "all are equal".to_owned(),
        n => format!("{n} differences, and their machines were left out"),
    };
    say(&format!(
        "audit: {n_drawn} of {n_texts} texts, {n_rows} rows: {found}"
    ));
}

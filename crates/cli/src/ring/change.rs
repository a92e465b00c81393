//! `/ring`, `/resize`, `/add` and `/drop`: a chat looks at its ring and changes it. The
//! conversation goes on, and an error leaves the ring as it was.

use std::ops::Range;

use atta::Session;
use atta_cluster::{AskedPlan, PlanError, RemotePlan, control::NodeName};

use super::{RingRun, Used, millis, say};
use crate::{args::ring::RingRequest, failure::Failure};

impl RingRun {
    /// Does what a user wants of the ring of a session; what to say afterwards.
    pub(crate) fn obey(
        &self,
        request: &RingRequest<'_>,
        session: &Session,
    ) -> Result<String, Failure> {
        let Some(used) = &self.0 else {
            return match request {
                RingRequest::Show => Ok("no ring: this machine runs all layers".to_owned()),
                _ => Err(Failure::Failed(
                    "there is no ring to change: start with --ring".to_owned(),
                )),
            };
        };
        let node = |name: &str| {
            NodeName::new(name).map_err(|error| Failure::Failed(format!("{name}: {error}")))
        };
        let now = used.ring.planned();
        let replanner = &used.replanner;
        let asked = match request {
            RingRequest::Show => return Ok(used.machines()),
            RingRequest::Resize(ends) => replanner.cut_at(&now, ends),
            RingRequest::Add(name) => replanner.with_node(&now.plan, &node(name)?),
            RingRequest::Drop(name) => replanner.without_node(&now.plan, &node(name)?),
        };
        used.change(asked, session)?;
        Ok(used.machines())
    }
}

impl Used {
    /// Lets the ring of a session take a plan.
    fn change(
        &self,
        asked: Result<AskedPlan, PlanError>,
        session: &Session,
    ) -> Result<(), Failure> {
        let asked = asked.map_err(|error| Failure::Failed(error.to_string()))?;
        if let Some(report) = &asked.report {
            say(&report.to_string());
        }
        self.ring.change(asked.planned.clone());
        session.refresh()?;
        self.replanner.keep(asked);
        Ok(())
    }

    /// A line for each machine: its layers, and its time for a token.
    fn machines(&self) -> String {
        let RemotePlan { n_local, stages } = self.ring.plan();
        let times = self.ring.times();
        let n = u32::try_from(times.n).unwrap_or(u32::MAX).max(1);
        let local = layers(&(0..n_local));
        let mut lines = vec![format!(
            "{}, this machine: {local}, embedding, head",
            self.name
        )];
        for (i, stage) in stages.iter().enumerate() {
            let time = times.computed.get(i).filter(|_| times.n > 0);
            let time = time.map(|time| format!(", {} a token", millis(*time / n)));
            let time = time.unwrap_or_default();
            let node = &stage.node.name;
            lines.push(format!("{node}: {}{time}", layers(&stage.layers)));
        }
        lines.join("\n")
    }
}

/// How many layers, and which.
fn layers(layers: &Range<usize>) -> String {
    match layers.len() {
        0 => "no layers".to_owned(),
        1 => format!("1 layer ({})", layers.start),
        n => format!("{n} layers ({} to {})", layers.start, layers.end - 1),
    }
}

//! Divides the rows of a model anew when a member of its group is lost.
//!
//! The survey of the start is asked again without the machines that are gone, since measuring takes
//! longer than a text should stand still.

use std::num::NonZeroU32;

use super::{Coordinator, Survey, Who, load_deadline};
use crate::{
    SizedModel,
    control::NodeName,
    core::Timing,
    plan::Objective,
    tensor::{GroupMembers, PlannedGroup, ReplanRows},
};

/// Makes plans for a group that is in use.
#[derive(Clone, Debug)]
pub struct RowReplanner {
    /// Makes them.
    pub coordinator: Coordinator,
    /// Who was there.
    pub survey: Survey,
    /// The model.
    pub model: SizedModel,
    /// Which machines a group shall have.
    pub who: Who,
    /// What shall be fast.
    pub objective: Objective,
}

impl ReplanRows for RowReplanner {
    fn without(&self, gone: &[NodeName]) -> Result<PlannedGroup, String> {
        let survey = self.survey.without(gone);
        let survey = survey.map_err(|error| error.to_string())?;
        let who = match &self.who {
            Who::Nodes(names) | Who::Among(names) => {
                let left = names.iter().filter(|name| !gone.contains(name));
                Who::Nodes(left.cloned().collect())
            }
            other => other.clone(),
        };
        let coordinator = &self.coordinator;
        let plan = coordinator.plan_rows(&survey, &self.model, &who, self.objective);
        Ok(plan.map_or_else(
            // Better one machine than none.
            |_| alone(),
            |plan| coordinator.planned_group(&plan, &self.model.sizes),
        ))
    }
}

/// This machine without others.
fn alone() -> PlannedGroup {
    PlannedGroup {
        members: GroupMembers {
            lead_speed: NonZeroU32::MIN,
            others: Vec::new(),
        },
        timing: Timing::default(),
        deadline: load_deadline(0),
    }
}

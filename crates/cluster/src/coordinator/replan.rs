//! Plans a ring anew: when machines are lost, and when a user adds or drops some.
//!
//! Opens no connection of a ring. The one idea: the survey of the start is asked again without the
//! machines that are gone, since measuring takes longer than a text should stand still.

use std::sync::{Mutex, MutexGuard, PoisonError};

use atta_model::ExecutorSize;

use super::{Coordinator, PlanError, Survey, Who};
use crate::{
    PlannedRing, RemotePlan, Replan,
    control::NodeName,
    plan::{ModelSizes, Objective, RingPlan},
};

/// What plans are made from.
#[derive(Clone, Debug)]
pub struct PlanInputs {
    /// Who is there.
    pub survey: Survey,
    /// Which of them a ring shall have.
    pub who: Who,
    /// What shall be fast.
    pub objective: Objective,
    /// The model.
    pub model: ModelSizes,
    /// Executors.
    pub size: ExecutorSize,
}

/// Makes plans for a ring that is in use.
#[derive(Debug)]
pub struct Replanner {
    coordinator: Coordinator,
    inputs: Mutex<PlanInputs>,
}

/// A plan that a user asked for.
#[derive(Clone, Debug)]
pub struct AskedPlan {
    /// Who runs what.
    pub planned: PlannedRing,
    /// What the planner expects of it; `None`: the user has cut it.
    pub report: Option<RingPlan>,
    inputs: PlanInputs,
}

impl Replanner {
    /// Plans for a coordinator.
    pub fn new(coordinator: Coordinator, inputs: PlanInputs) -> Self {
        Self {
            coordinator,
            inputs: Mutex::new(inputs),
        }
    }

    fn inputs(&self) -> MutexGuard<'_, PlanInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans from now on as for a plan that a ring has taken.
    pub fn keep(&self, asked: AskedPlan) {
        *self.inputs() = asked.inputs;
    }

    /// A plan with one more node. It asks all nodes who is there.
    ///
    /// # Errors
    /// A node that cannot be used or is used already, too little memory.
    pub fn with_node(&self, now: &RemotePlan, node: &NodeName) -> Result<AskedPlan, PlanError> {
        let mut names = node_names(now);
        if names.contains(node) {
            return Err(PlanError::Node {
                node: node.clone(),
                why: "it is in the ring".to_owned(),
            });
        }
        names.push(node.clone());
        let survey = self.coordinator.survey().map_err(|error| PlanError::Node {
            node: node.clone(),
            why: error.to_string(),
        })?;
        self.asked(PlanInputs {
            survey,
            who: Who::Nodes(names),
            ..self.inputs().clone()
        })
    }

    /// A plan without a node.
    ///
    /// # Errors
    /// A node that is not in the ring, too little memory without it.
    pub fn without_node(&self, now: &RemotePlan, node: &NodeName) -> Result<AskedPlan, PlanError> {
        let mut names = node_names(now);
        if !names.contains(node) {
            return Err(PlanError::Node {
                node: node.clone(),
                why: "it is not in the ring".to_owned(),
            });
        }
        names.retain(|name| name != node);
        self.asked(PlanInputs {
            who: Who::Nodes(names),
            ..self.inputs().clone()
        })
    }

    /// The same machines with layers that end where a user wants.
    ///
    /// # Errors
    /// [`PlanError::Cut`].
    pub fn cut_at(&self, now: &PlannedRing, ends: &[usize]) -> Result<AskedPlan, PlanError> {
        let inputs = self.inputs().clone();
        let layers = &inputs.model.layers;
        let plan = now.plan.cut_at(ends, layers.len());
        let plan = plan.map_err(PlanError::Cut)?;
        let mut ends = ends.iter();
        if let Some(end) = ends.find(|end| **end > 0 && !layers[**end].may_cut_before) {
            return Err(PlanError::Cut(format!(
                "the model cannot be cut before layer {end}"
            )));
        }
        let mut planned = PlannedRing {
            plan,
            expected: None,
            ..now.clone()
        };
        // The planner has not predicted it: one machine may have nearly all layers.
        let n = u32::try_from(now.plan.stages.len() + 1).unwrap_or(1);
        planned.timing.lap = planned.timing.lap.saturating_mul(n);
        Ok(AskedPlan {
            planned,
            report: None,
            inputs,
        })
    }

    fn asked(&self, inputs: PlanInputs) -> Result<AskedPlan, PlanError> {
        let PlanInputs {
            survey,
            who,
            objective,
            model,
            size,
        } = &inputs;
        let report = self
            .coordinator
            .plan(survey, model, size, who, *objective)?;
        let planned = self.coordinator.planned(survey, &report);
        Ok(AskedPlan {
            planned: planned.map_err(|error| PlanError::Cut(error.to_string()))?,
            report: Some(report),
            inputs,
        })
    }
}

impl Replan for Replanner {
    fn without(&self, gone: &[NodeName]) -> Result<PlannedRing, String> {
        let mut inputs = self.inputs().clone();
        let left = inputs.survey.without(gone);
        inputs.survey = left.map_err(|error| error.to_string())?;
        let named = match &mut inputs.who {
            Who::Nodes(names) | Who::Among(names) => {
                names.retain(|name| !gone.contains(name));
                Some(names.clone())
            }
            Who::Auto | Who::Force => None,
        };
        let first = self.asked(inputs.clone());
        // Better fewer machines than none.
        let asked = first.or_else(|_| {
            inputs.who = named.map_or(Who::Auto, Who::Among);
            self.asked(inputs)
        });
        let asked = asked.map_err(|error| error.to_string())?;
        Ok(asked.planned)
    }
}

fn node_names(plan: &RemotePlan) -> Vec<NodeName> {
    let names = plan.stages.iter().map(|stage| stage.node.name.clone());
    names.collect()
}

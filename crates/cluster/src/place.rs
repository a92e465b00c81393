//! Weights of some layers within a budget: where they are held, and what would do if they do not
//! fit. Used by nodes for their stages, and by a coordinator that takes over layers.

use atta_model::{Error, spec::ModelSpec};
use atta_store::{
    Budget, InMemory, ModelFiles, Plan, Reservation, ResidencyBytes, ResidencyPolicy, Streamed,
    Weights,
};

use crate::wire::message::Blocked;

/// The most experts of a layer that a token uses.
pub(crate) fn n_used_experts(spec: &ModelSpec) -> usize {
    let experts = spec.layers.iter().filter_map(|layer| layer.moe());
    experts.map(|moe| moe.n_used).max().unwrap_or(0)
}

/// What became of the weights.
#[derive(Default)]
pub(crate) struct Placed {
    pub(crate) streamed_bytes: u64,
    /// Counts mapped weights, which no allocation counts.
    pub(crate) mapped: Option<Reservation>,
}

/// The memory that a stage may take.
pub(crate) struct Room<'a> {
    pub(crate) budget: &'a Budget,
    /// Bytes beside weights.
    pub(crate) beside: u64,
    pub(crate) n_layers: usize,
    pub(crate) n_used: usize,
}

impl Room<'_> {
    /// Weights in the page cache if there is room for them, else in private memory, as much as
    /// there is room for.
    ///
    /// # Errors
    /// Too little memory; files that cannot be read.
    pub(crate) fn weights(
        &self,
        files: ModelFiles,
        plan: Plan,
        placed: &mut Placed,
    ) -> Result<Box<dyn Weights>, Refused> {
        let whole = ResidencyBytes::of(&plan, &ResidencyPolicy::whole()).memory();
        let left = self.budget.left().saturating_sub(self.beside);
        if whole <= left && files.is_addressable() {
            placed.mapped = Some(self.budget.reserve("mapped weights", whole)?);
            return Ok(Box::new(InMemory::new(files, plan)?));
        }
        let files = files.unmapped(self.budget)?;
        let left = self.budget.left().saturating_sub(self.beside);
        let policy = match whole <= left {
            true => Some(ResidencyPolicy::whole()),
            false => ResidencyPolicy::within(&plan, self.n_used, left),
        };
        let Some(policy) = policy else {
            return Err(self.refusal(&plan, whole).into());
        };
        placed.streamed_bytes = ResidencyBytes::of(&plan, &policy).read_per_pass;
        Ok(Box::new(Streamed::new(files, plan, &policy, self.budget)?))
    }

    fn refusal(&self, plan: &Plan, whole: u64) -> Blocked {
        let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
        let least = ResidencyPolicy::least_bytes(plan, self.n_used).saturating_add(self.beside);
        let needed = whole.saturating_add(self.beside);
        let n = self.n_layers;
        Blocked {
            why: format!(
                "{n} layers need {} of memory, or {} with weights read from disk; {} are free",
                gb(needed),
                gb(least),
                gb(self.budget.left())
            ),
            would_do: Some(format!(
                "{} for models on this node, or fewer layers, or a shorter context",
                gb(least)
            )),
        }
    }
}

/// A refusal, from errors of several crates.
pub(crate) struct Refused(pub(crate) Blocked);

impl From<Blocked> for Refused {
    fn from(blocked: Blocked) -> Self {
        Self(blocked)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(blocked(error))
    }
}

impl From<atta_store::Error> for Refused {
    fn from(error: atta_store::Error) -> Self {
        Self(blocked(error))
    }
}

/// A refusal in one line.
pub(crate) fn blocked(why: impl std::fmt::Display) -> Blocked {
    let why = why.to_string();
    let printable = why.chars().map(|c| if c.is_control() { ' ' } else { c });
    Blocked {
        why: printable.take(400).collect(),
        would_do: None,
    }
}

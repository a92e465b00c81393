//! What a ring does when its machines change: by a loss, or because a caller asks.
//!
//! Knows no plan and no node. The one idea: new stages are empty like stages that have lost their
//! state, so the rebuild that repairs a ring also fills another one.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use atta_model::{Error, Executor};

use super::{AuditLayers, LocalLayers, Ring, StageStates};
use crate::{
    core::{Coordinator, Timing},
    journal::Journal,
    lane::{Lane, NoStages},
    wire::Limits,
};

/// Times that a ring is formed without a result in between.
const MAX_FORMED: u32 = 8;

/// Why a ring is formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormCause {
    /// Stages are gone, for this reason.
    Loss(String),
    /// A stage computes other rows than it should, and must be left out.
    Fault {
        /// The stage.
        stage: u16,
        /// Why, with its name.
        why: String,
    },
    /// A caller wants it.
    Asked,
}

/// The new stages of a ring, all empty.
pub struct FormedStages {
    /// Links to them.
    pub lane: Box<dyn Lane>,
    /// What frames may hold: rows as before, perhaps another number of stages.
    pub limits: Limits,
    /// Times of the protocol.
    pub timing: Timing,
    /// The layers of the coordinator; the first executor embeds tokens.
    pub local: Vec<Box<dyn Executor>>,
    /// All layers once more, for audits.
    pub audit: Option<AuditLayers>,
    /// Names of the stages.
    pub names: Vec<String>,
    /// As [`RingParts::state_id`](crate::RingParts::state_id).
    pub state_id: [u8; 32],
    /// Layers of the stages.
    pub layers: Vec<Range<usize>>,
    /// Why these are not the stages that were asked for, if they are not.
    pub refusal: Option<Error>,
}

impl std::fmt::Debug for FormedStages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FormedStages")
            .field("limits", &self.limits)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// How a ring has gone on after trouble, or on other stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Time from the beginning of the trouble to the first result.
    pub time: Duration,
    /// Positions of all sequences that were loaded from a journal.
    pub n_loaded: usize,
    /// Positions that were computed again.
    pub n_computed: usize,
}

/// Finds machines for a ring. It decides which; of sequences it knows nothing.
pub trait Former: Send {
    /// Whether all stages are where they were, so that only frames can be lost.
    fn is_intact(&mut self) -> bool;

    /// Whether links can go another way than those so far, which stages are then formed over.
    fn takes_other_way(&mut self) -> bool {
        false
    }

    /// Whether other stages are wanted.
    fn is_asked(&self) -> bool;

    /// Waits until the stages that are wanted could begin at once, as far as that is possible
    /// beside those that compute.
    ///
    /// # Errors
    /// They are not possible: nothing is wanted any more.
    fn make_ready(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Forms other stages, and ends the old ones with their lane.
    ///
    /// # Errors
    /// No ring is possible.
    fn form(&mut self, cause: &FormCause, old: Box<dyn Lane>) -> Result<FormedStages, Error>;

    /// The ring computes again.
    fn resumed(&mut self, how: Resumed);
}

/// The former of a ring, and how it went so far.
#[derive(Default)]
pub(super) struct Forming {
    former: Option<Box<dyn Former>>,
    /// Whether the stages could not be formed.
    is_missing: bool,
    /// Whether these stages have given a result.
    has_result: bool,
    /// Whether a ring that is intact was tried again since the last result.
    is_retried: bool,
    /// Times that it was formed since the last result.
    n_formed: u32,
    /// When the trouble began that is not over.
    troubled: Option<Instant>,
    /// Whether the end of the trouble is to be told.
    is_told: bool,
    /// Positions that were loaded and computed since the last result.
    pub(super) moved: Resumed,
}

impl Forming {
    /// Whether other machines can be found.
    pub(super) fn has_former(&self) -> bool {
        self.former.is_some()
    }

    /// Notes trouble.
    pub(super) fn note_trouble(&mut self) {
        self.troubled.get_or_insert_with(Instant::now);
    }

    /// Notes that the ring computes.
    pub(super) fn note_result(&mut self) {
        self.has_result = true;
        self.is_retried = false;
        self.n_formed = 0;
        let moved = std::mem::take(&mut self.moved);
        let troubled = self.troubled.take();
        if std::mem::take(&mut self.is_told)
            && let Some(former) = &mut self.former
        {
            let time = troubled.map_or(Duration::ZERO, |since| since.elapsed());
            former.resumed(Resumed { time, ..moved });
        }
    }
}

impl Ring {
    /// Lets a former find other machines when stages are gone for good, and when
    /// [`refresh`](Executor::refresh) finds that others are wanted.
    pub fn form_by(&mut self, former: Box<dyn Former>) {
        self.forming.former = Some(former);
    }

    /// Goes on after the protocol gave up: on the same stages if they are there, else on others.
    ///
    /// # Errors
    /// [`Error::Lost`]: no way to go on.
    pub(super) fn recover(&mut self, why: String) -> Result<(), Error> {
        let forming = &mut self.forming;
        let Some(former) = &mut forming.former else {
            return Err(Error::Lost(why));
        };
        // Where the stages are there and frames do not come through, another way may be open.
        if !former.is_intact() || former.takes_other_way() {
            return self.form(&FormCause::Loss(why)).map(drop);
        }
        // Stages that are ready and never answer are out of reach, and others would be, too.
        if forming.is_retried || !forming.has_result {
            return Err(Error::Lost(why));
        }
        forming.is_retried = true;
        self.begin_rebuild();
        Ok(())
    }

    /// Forms the stages that are missing, if they are.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub(super) fn form_missing(&mut self) -> Result<(), Error> {
        if !self.forming.is_missing {
            return Ok(());
        }
        if let Some(former) = &mut self.forming.former {
            // Nodes may be back.
            former.is_intact();
        }
        let cause = FormCause::Loss("the ring has no stages".to_owned());
        self.form(&cause).map(drop)
    }

    /// Replaces all stages, and the local layers. All sequences wait for a rebuild then. The error
    /// inside says why the stages are not those that were asked for.
    pub(super) fn form(&mut self, cause: &FormCause) -> Result<Option<Error>, Error> {
        let forming = &mut self.forming;
        forming.note_trouble();
        forming.n_formed += 1;
        if forming.n_formed > MAX_FORMED {
            forming.n_formed = 0;
            return Err(Error::Lost(format!(
                "the ring was formed {MAX_FORMED} times without a result"
            )));
        }
        if forming.former.is_none() {
            return Ok(None);
        }
        forming.is_missing = true;
        let old = std::mem::replace(&mut self.lane, Box::new(NoStages::default()));
        self.n_stages = 0;
        self.states = StageStates::Unknown;
        self.journal.iter_mut().for_each(Journal::cancel_all);
        // Their memory may be needed for the new ones.
        self.local.clear();
        self.take_audit_layers(None);
        let Some(former) = &mut self.forming.former else {
            return Ok(None);
        };
        let formed = former.form(cause, old).map_err(|error| match error {
            Error::Lost(_) => error,
            other => Error::Lost(other.to_string()),
        })?;
        Ok(self.take_stages(formed))
    }

    fn take_stages(&mut self, formed: FormedStages) -> Option<Error> {
        let limits = formed.limits;
        self.lane = formed.lane;
        self.local = LocalLayers::new(formed.local, limits.d_row.into());
        self.coordinator = Coordinator::new(limits, formed.timing);
        self.n_stages = limits.n_stages;
        self.names = formed.names;
        self.take_audit_layers(formed.audit);
        if let Some(store) = self.keeper.forget() {
            self.local.keep_states(store);
        }
        self.state_id = formed.state_id;
        self.stage_layers = formed.layers;
        self.n_emptied = 0;
        self.forming.is_missing = false;
        self.forming.has_result = false;
        self.forming.is_retried = false;
        self.forming.is_told = true;
        self.begin_rebuild();
        formed.refusal
    }

    /// Empties all stages; then every sequence is computed again.
    pub(super) fn begin_rebuild(&mut self) {
        self.failure = None;
        self.ops.clear();
        if self.n_stages == 0 {
            self.states = StageStates::Emptied;
            return;
        }
        self.coordinator.abandon();
        self.states = StageStates::Unknown;
        self.send(Vec::new(), Vec::new());
    }

    /// Takes the stages that are wanted, and computes all sequences on them.
    pub(super) fn change_if_asked(&mut self) -> Result<(), Error> {
        let former = self.forming.former.as_mut();
        let Some(former) = former.filter(|former| former.is_asked()) else {
            return Ok(());
        };
        if !self.flights.is_empty() {
            return Err(Error::Busy);
        }
        // Until then the ring is as it was.
        former.make_ready()?;
        self.forming.note_trouble();
        self.save_all();
        let refusal = self.form(&FormCause::Asked)?;
        while self.states != StageStates::Kept || Coordinator::n_pending(&self.coordinator) > 0 {
            self.advance()?;
        }
        self.forming.note_result();
        self.forget_saved();
        refusal.map_or(Ok(()), Err)
    }
}

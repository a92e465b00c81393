//! Layer rings: one model on several machines, with the bits of one machine.
//!
//! A [`Ring`] is an executor. The coordinator embeds tokens and may run the first layers; each
//! stage runs a range of the others and passes rows on; the last one returns rows to the
//! coordinator, which computes logits. [`wire`] is the bytes, [`core`] the protocol without input
//! or output, [`Stage`] computes. [`plan`] decides which machine runs which layers, [`part`] holds
//! the share of a model file that a machine needs, [`key`] makes the identities of a cluster,
//! [`tensor`] divides a stage among several machines, [`control`] knows its members, [`beacon`]
//! finds them on a local network, and [`lane::tcp`] carries frames between machines. A [`node`]
//! makes a stage of a machine when a coordinator asks, and [`RemoteRing`] is the coordinator's
//! backend; [`Links`] is the part of a lane that both need. Stages also run in threads of this
//! process ([`RingBackend`]), and in a
//! simulator.

#![forbid(unsafe_code)]

pub mod beacon;
pub mod chain;
pub mod control;
pub mod core;
pub mod invite;
pub mod key;
pub mod lane;
pub mod measure;
pub mod part;
pub mod plan;
pub mod tensor;
pub mod wire;

mod backend;
mod coordinator;
mod cut;
mod disk;
mod history;
mod journal;
mod links;
pub mod node;
mod place;
mod record;
mod remote;
mod ring;
mod rows;
mod sizes;
mod stage;
mod states;

pub use backend::RingBackend;
pub use coordinator::{
    AskedPlan, Coordinator, PlanError, PlanInputs, Replanner, RowReplanner, Survey, SurveyedNode,
    Who, is_exact_everywhere,
};
pub use cut::{Cut, RingPlan};
pub use history::{History, RebuildStep};
pub use journal::JournalOptions;
pub use lane::{Lane, ThreadLane};
pub use links::{
    GroupLinks, GroupWiring, Links, PartLinks, PartServer, RingLinks, RunningStage, SendPart,
    StageLinks,
};
pub use record::{
    MeanLap, OnRingEvent, RingEvent, RingFigures, RingHealth, RingRecord, StageTotals,
};
pub use remote::{
    ExpectedSpeed, HashedModel, OnChange, OnStage, OpenFiles, PlannedRing, RemotePlan, RemoteRing,
    RemoteRingOptions, Replan, RingChange, RingChanges, RingTimes, StageNode, StageProgress,
    own_address,
};
pub use ring::{
    AuditCounts, AuditLayers, AuditOptions, FormCause, FormedStages, Former, OnTimes, Resumed,
    Ring, RingParts,
};
pub use rows::{GroupPlan, SizedModel};
pub use sizes::model_sizes;
pub use stage::Stage;
pub use states::{SharedStates, StatesFolder};

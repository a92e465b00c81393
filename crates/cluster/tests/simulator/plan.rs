//! What the ring of a seed is made of, and how it is made: at first, when layers move, and by a
//! coordinator that begins anew.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use atta_cluster::{
    AuditLayers, AuditOptions, FormCause, FormedStages, Former, JournalOptions, Lane, Resumed,
    Ring, RingParts, Stage, StatesFolder,
    wire::{Dtype, Limits},
};
use atta_model::{
    Error, Executor, ExecutorInfo, SeqTable, Share,
    seqs::SeqSize,
    spec::{Retention, StateKind},
};

use crate::{
    N_BATCH, N_CTX, N_SEQS,
    chain::{Chain, Countdown, D_ROW, Does, N_VOCAB},
    random::Random,
    world::{TIMING, VirtualLane, World},
};

/// Sequences that an auditor has room for.
const N_AUDITED: usize = 2;

/// The kinds of state of each stage.
fn kinds(random: &mut Random, n_stages: usize) -> Vec<Vec<StateKind>> {
    let all = StateKind::Kv(Retention::All);
    let window = StateKind::Kv(Retention::Window(9));
    let choices = [
        vec![all],
        vec![window],
        vec![all, window],
        vec![StateKind::Recurrent],
    ];
    let n_choices = if random.once_in(3) { 4 } else { 3 };
    (0..n_stages)
        .map(|_| choices[random.below(n_choices)].clone())
        .collect()
}

/// What the stages of a seed are made of.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) limits: Limits,
    size: SeqSize,
    /// Of each layer behind the first.
    kinds: Vec<Vec<StateKind>>,
    depth: usize,
    journal: JournalOptions,
    /// Where stages keep states, in some seeds.
    pub(crate) states: Option<PathBuf>,
    audit: Option<AuditOptions>,
    /// Rows until one of a stage is wrong, where all texts are audited.
    wrong: Option<Countdown>,
}

impl Plan {
    /// A plan for a seed, and how many things go wrong.
    pub(crate) fn draw(seed: u64, random: &mut Random) -> Self {
        let n_stages = 1 + random.below(4);
        let kinds = kinds(random, n_stages);
        let depth = 1 + random.below(n_stages + 1);
        let is_plain = !kinds.iter().flatten().any(|k| *k == StateKind::Recurrent);
        let size = SeqSize {
            n_ctx: N_CTX,
            n_seqs: N_SEQS,
            n_batch: N_BATCH * depth,
            n_flights: depth,
            n_recent: None,
            n_shared: random.once_in(3).then_some(2 * N_CTX),
            n_checkpoints: 2,
            n_draft: 0,
        };
        let limits = Limits {
            ring: seed,
            n_stages: n_stages as u16,
            n_batch: N_BATCH as u32,
            n_seqs: N_SEQS as u32,
            n_ctx: N_CTX as u32,
            d_row: D_ROW as u16,
            dtype: Dtype::F32,
        };
        let journal = JournalOptions {
            dir: std::env::temp_dir(),
            // Some are too small for all texts.
            budget_bytes: if random.once_in(4) { 2_000 } else { 1 << 20 },
            segment_len: 1 + random.below(8),
            is_continuous: random.once_in(2),
        };
        let name = format!("atta-simulator-{}-{seed}", std::process::id());
        let states = (is_plain && random.once_in(16)).then(|| std::env::temp_dir().join(name));
        let audit = random.once_in(6).then(|| AuditOptions {
            probability: if random.once_in(2) { 1.0 } else { 0.5 },
            seed,
            weights_bytes: 0,
        });
        let is_whole = audit.is_some_and(|audit| audit.probability == 1.0);
        let n_right = 1 + random.below(60);
        Self {
            limits,
            size,
            kinds,
            depth,
            journal,
            states,
            audit,
            wrong: is_whole.then(|| Countdown::new(n_right.into())),
        }
    }

    pub(crate) fn n_layers(&self) -> usize {
        self.kinds.len() + 1
    }

    fn chain(&self, does: Does, kinds: &[StateKind]) -> Chain {
        Chain::new(does, kinds, &self.size, N_BATCH)
    }

    /// Layer `l`, which may be at any place.
    fn layer(&self, l: usize) -> Chain {
        let kinds = l.checked_sub(1).map(|i| &self.kinds[i][..]);
        self.chain(Does::Layer(l), kinds.unwrap_or(&[]))
    }

    /// Stages of the layers from `n_local` on, one layer each.
    pub(crate) fn stages(&self, n_local: usize) -> Vec<Stage> {
        let stage = |l: usize| {
            let layer = self.layer(l).go_wrong(self.wrong.clone());
            let stage = Stage::new(Box::new(layer), D_ROW);
            match self.states_folder() {
                None => stage,
                Some(folder) => stage.keep_states_in(folder, [0; 32]),
            }
        };
        (n_local..self.n_layers()).map(stage).collect()
    }

    /// Where all machines keep states, as if each had at once what another one has.
    fn states_folder(&self) -> Option<StatesFolder> {
        let directory = self.states.clone()?;
        Some(StatesFolder {
            directory,
            budget_bytes: 1 << 20,
        })
    }

    /// The layers of these stages.
    fn layers(&self, n_local: usize) -> Vec<Range<usize>> {
        (n_local..self.n_layers()).map(|l| l..l + 1).collect()
    }

    /// The layers of the coordinator.
    fn local(&self, n_local: usize) -> Vec<Box<dyn Executor>> {
        let layers = (0..n_local).map(|l| self.layer(l));
        layers.map(|layer| Box::new(layer) as _).collect()
    }

    /// All layers once more.
    fn second(&self, n_local: usize) -> Option<AuditLayers> {
        self.audit?;
        let plan = Self {
            size: SeqSize {
                n_seqs: N_AUDITED,
                n_shared: None,
                ..self.size
            },
            ..self.clone()
        };
        Some(AuditLayers {
            executors: plan.local(self.n_layers()),
            starts: (n_local..self.n_layers()).collect(),
            n_seqs: N_AUDITED,
        })
    }

    /// The kinds of all layers.
    fn distinct(&self) -> Vec<StateKind> {
        let mut distinct: Vec<StateKind> = Vec::new();
        for kind in self.kinds.iter().flatten() {
            if !distinct.contains(kind) {
                distinct.push(*kind);
            }
        }
        distinct
    }

    fn head(&self) -> Chain {
        let size = SeqSize {
            n_seqs: 1,
            n_shared: None,
            ..self.size
        };
        Chain::new(Does::Head, &[], &size, N_BATCH)
    }

    fn parts(&self) -> RingParts {
        let distinct = self.distinct();
        let is_kv = |kind: &&StateKind| matches!(kind, StateKind::Kv(_));
        RingParts {
            info: ExecutorInfo {
                part: Share {
                    layers: 0..self.n_layers(),
                    embed: true,
                    head: true,
                },
                n_ctx: N_CTX,
                n_seqs: N_SEQS,
                n_batch: N_BATCH,
                numerics: "hash".to_owned(),
            },
            seqs: SeqTable::new(&distinct, &self.size),
            local: self.local(1),
            head: Box::new(self.head()),
            limits: self.limits,
            timing: TIMING,
            depth: self.depth,
            d_model: D_ROW,
            n_vocab: N_VOCAB,
            n_kv_groups: distinct.iter().filter(is_kv).count(),
            state_id: [0; 32],
        }
    }

    /// A ring of stages that are in this world.
    pub(crate) fn open(&self, world: &Arc<Mutex<World>>, wanted: &Arc<Mutex<Wanted>>) -> Ring {
        let lane = VirtualLane(Arc::clone(world));
        let parts = RingParts {
            state_id: state_id(wanted.lock().unwrap().n_faults),
            ..self.parts()
        };
        let mut ring = Ring::new(parts, Box::new(lane)).unwrap();
        ring.journal_in(&self.journal, self.layers(1));
        if let Some(folder) = self.states_folder() {
            ring.keep_states_in(folder, [0; 32]);
        }
        if let Some(options) = self.audit {
            ring.audit(options, self.second(1));
        }
        ring.form_by(Box::new(Mover {
            plan: self.clone(),
            n_local: 1,
            world: Arc::clone(world),
            wanted: Arc::clone(wanted),
        }));
        ring
    }
}

/// States of before a machine computed wrongly are not used.
fn state_id(n_faults: u64) -> [u8; 32] {
    [n_faults as u8; 32]
}

/// Where layers shall be, and what moves have done.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Layers of the coordinator, if others are wanted.
    pub(crate) n_local: Option<usize>,
    pub(crate) n_moves: u64,
    pub(crate) n_faults: u64,
    pub(crate) n_loaded: u64,
    pub(crate) n_computed: u64,
}

/// Moves layers between the coordinator and stages.
struct Mover {
    plan: Plan,
    n_local: usize,
    world: Arc<Mutex<World>>,
    wanted: Arc<Mutex<Wanted>>,
}

impl Former for Mover {
    fn is_intact(&mut self) -> bool {
        true
    }

    fn is_asked(&self) -> bool {
        self.wanted.lock().unwrap().n_local.is_some()
    }

    fn form(&mut self, cause: &FormCause, _: Box<dyn Lane>) -> Result<FormedStages, Error> {
        let mut wanted = self.wanted.lock().unwrap();
        match cause {
            FormCause::Fault { .. } => wanted.n_faults += 1,
            _ => wanted.n_moves += 1,
        }
        self.n_local = wanted.n_local.take().unwrap_or(self.n_local);
        let n_local = self.n_local;
        let stages = self.plan.stages(n_local);
        let limits = Limits {
            n_stages: stages.len() as u16,
            ..self.plan.limits
        };
        let limits = self.world.lock().unwrap().replace(limits, stages);
        Ok(FormedStages {
            lane: Box::new(VirtualLane(Arc::clone(&self.world))),
            limits,
            timing: TIMING,
            local: self.plan.local(n_local),
            audit: self.plan.second(n_local),
            names: Vec::new(),
            state_id: state_id(wanted.n_faults),
            layers: self.plan.layers(n_local),
            refusal: None,
        })
    }

    fn resumed(&mut self, how: Resumed) {
        let mut wanted = self.wanted.lock().unwrap();
        wanted.n_loaded += how.n_loaded as u64;
        wanted.n_computed += how.n_computed as u64;
    }
}

//! Stages that die at every step of a text, others while the ring is formed anew, until none is
//! left: the bits stay those of one machine.

#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use atta_cluster::{
    Cut, FormCause, FormedStages, Former, JournalOptions, Lane, Resumed, Ring, RingBackend,
    ThreadLane,
    core::{Event, Time},
    wire::{Frame, FrameKind, Header, Limits},
};
use atta_kernels::{Kernels, Pool};
use atta_model::{Batch, Cpu, Error, Executor, ExecutorSize, KvType, Model, Output, Share, Want};
use atta_store::Budget;
use support::{append, bits, cpu_with, golden};

/// A lane whose stages die when so many frames have been sent.
struct Mortal {
    lane: ThreadLane,
    limits: Limits,
    deaths: Arc<Deaths>,
    /// Stages that are dead.
    dead: BTreeSet<u16>,
    /// Stages whose death is to be told.
    down: VecDeque<u16>,
}

/// Frames after which a stage dies, over all rings.
struct Deaths {
    n_sent: AtomicUsize,
    at: Vec<usize>,
}

impl Mortal {
    /// The stage that dies now, if one does.
    fn victim(&self) -> Option<u16> {
        let n = self.deaths.n_sent.fetch_add(1, Ordering::Relaxed);
        let n_stages = usize::from(self.limits.n_stages);
        let is_due = self.deaths.at.contains(&n);
        is_due.then(|| (n % n_stages + 1) as u16)
    }
}

impl Lane for Mortal {
    fn now(&self) -> Time {
        self.lane.now()
    }

    fn send(&mut self, stage: u16, frame: Frame) {
        if let Some(victim) = self.victim() {
            let bye = Header {
                ring: self.limits.ring,
                stage: victim,
                ..Header::new(FrameKind::Bye)
            };
            self.lane.send(victim, Frame::bare(bye));
            self.dead.insert(victim);
            self.down.push_back(victim);
        }
        match self.dead.contains(&stage) {
            true => self.down.push_back(stage),
            false => self.lane.send(stage, frame),
        }
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        match self.dead.contains(&stage) {
            true => self.down.push_back(stage),
            false => self.lane.fence(stage, epoch),
        }
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        match self.down.pop_front() {
            Some(stage) => Some(Event::Down { stage }),
            None => self.lane.recv(until),
        }
    }
}

/// Makes rings of one stage fewer each time.
struct Fewer {
    model: Arc<Model>,
    n_stages: usize,
    deaths: Arc<Deaths>,
    n_formed: Arc<AtomicUsize>,
    /// How the ring went on.
    resumed: Arc<Mutex<Vec<Resumed>>>,
}

impl Fewer {
    fn backend(&self) -> RingBackend {
        let n_stages = NonZeroUsize::new(self.n_stages).unwrap();
        let cut = Cut::Even(n_stages);
        RingBackend::new(Kernels::detect(), pool(), NonZeroUsize::MIN, cut)
    }

    fn mortal(&self, lane: ThreadLane, limits: Limits) -> Box<dyn Lane> {
        Box::new(Mortal {
            lane,
            limits,
            deaths: Arc::clone(&self.deaths),
            dead: BTreeSet::new(),
            down: VecDeque::new(),
        })
    }

    /// All layers in this thread.
    fn alone(&self) -> Cpu {
        let share = Share {
            layers: 0..self.model.spec().layers.len(),
            embed: true,
            head: false,
        };
        let size = ExecutorSize {
            part: Some(share),
            n_flights: 8,
            ..size()
        };
        let budget = Budget::unlimited();
        Cpu::new(self.model.clone(), Kernels::detect(), pool(), &budget, size).unwrap()
    }
}

impl Former for Fewer {
    fn is_intact(&mut self) -> bool {
        false
    }

    fn is_asked(&self) -> bool {
        false
    }

    fn form(&mut self, _: &FormCause, old: Box<dyn Lane>) -> Result<FormedStages, Error> {
        drop(old);
        self.n_stages = self.n_stages.saturating_sub(1);
        self.n_formed.fetch_add(1, Ordering::Relaxed);
        let is_alone = self.n_stages == 0;
        let backend = Self {
            n_stages: self.n_stages.max(1),
            model: self.model.clone(),
            deaths: Arc::clone(&self.deaths),
            n_formed: Arc::default(),
            resumed: Arc::default(),
        };
        let parts = backend
            .backend()
            .parts(&self.model, &size(), &Budget::unlimited());
        let (lane, parts) = parts?;
        let mut limits = parts.limits;
        limits.n_stages = self.n_stages as u16;
        Ok(FormedStages {
            lane: self.mortal(lane, limits),
            limits,
            timing: parts.timing,
            local: match is_alone {
                true => vec![Box::new(self.alone())],
                false => parts.local,
            },
            audit: None,
            names: Vec::new(),
            state_id: parts.state_id,
            layers: even_layers(&self.model, self.n_stages),
            refusal: None,
        })
    }

    fn resumed(&mut self, how: Resumed) {
        self.resumed.lock().unwrap().push(how);
    }
}

/// The layers of so many stages.
fn even_layers(model: &Model, n_stages: usize) -> Vec<Range<usize>> {
    let n = model.spec().layers.len();
    let end = |i: usize| i * n / n_stages.max(1);
    (0..n_stages).map(|i| end(i)..end(i + 1)).collect()
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(NonZeroUsize::MIN))
}

fn size() -> ExecutorSize {
    ExecutorSize {
        n_ctx: 128,
        n_seqs: 4,
        n_batch: 8,
        kv: KvType::F16,
        ..ExecutorSize::default()
    }
}

/// What a ring that was formed anew tells.
struct Told {
    n_formed: Arc<AtomicUsize>,
    resumed: Arc<Mutex<Vec<Resumed>>>,
}

/// A ring of two stages that die.
fn mortal(model: &Arc<Model>, at: Vec<usize>) -> (Ring, Told) {
    let n_formed = Arc::<AtomicUsize>::default();
    let resumed = Arc::<Mutex<Vec<Resumed>>>::default();
    let former = Fewer {
        model: model.clone(),
        n_stages: model.spec().layers.len().min(2),
        deaths: Arc::new(Deaths {
            n_sent: AtomicUsize::new(0),
            at,
        }),
        n_formed: Arc::clone(&n_formed),
        resumed: Arc::clone(&resumed),
    };
    let parts = former.backend().parts(model, &size(), &Budget::unlimited());
    let (lane, parts) = parts.unwrap();
    let lane = former.mortal(lane, parts.limits);
    let mut ring = Ring::new(parts, lane).unwrap();
    ring.form_by(Box::new(former));
    (ring, Told { n_formed, resumed })
}

/// What all positions of a text and of a fork of it give, with batches in flight.
fn logits(ring: &mut Ring, tokens: &[u32], other: &[u32]) -> Vec<Vec<u32>> {
    let mut out = Output::default();
    let mut batch = Batch::default();
    let mut all = Vec::new();
    let seq = ring.new_seq().unwrap();
    let mut tickets = VecDeque::new();
    for (pos, &token) in tokens.iter().enumerate() {
        batch.clear();
        batch.push_token(seq, pos, token, Want::Logits);
        tickets.push_back(ring.submit(&batch).unwrap());
        if tickets.len() == ring.depth() || pos + 1 == tokens.len() {
            for ticket in tickets.drain(..) {
                ring.collect(ticket, &mut out).unwrap();
                all.push(bits(out.logits(0)));
            }
        }
    }
    let fork = ring.fork(seq).unwrap();
    let n = ring.truncate(fork, tokens.len() / 2).unwrap();
    for (pos, &token) in other.iter().enumerate().skip(n) {
        batch.clear();
        batch.push_token(fork, pos, token, Want::Logits);
        ring.step(&batch, &mut out).unwrap();
        all.push(bits(out.logits(0)));
    }
    all
}

#[test]
fn a_stage_may_die_at_every_step_and_another_while_it_is_replaced() {
    let g = golden("qwen3");
    let model = g.model();
    let n_vocab = model.spec().n_vocab;
    let tokens = &g.tokens[..8.min(g.tokens.len())];
    let half = tokens.len() / 2;
    let other: Vec<u32> = tokens[..half]
        .iter()
        .chain(tokens.iter().rev())
        .copied()
        .collect();
    let other = &other[..tokens.len()];
    let one_machine = |tokens: &[u32]| {
        let mut cpu = cpu_with(
            &model,
            1,
            ExecutorSize {
                n_batch: 128,
                ..size()
            },
        );
        let seq = cpu.new_seq().unwrap();
        let all = bits(&append(&mut cpu, seq, tokens, 128));
        all.chunks(n_vocab).map(<[u32]>::to_vec).collect::<Vec<_>>()
    };
    let mut expected = one_machine(tokens);
    expected.extend_from_slice(&one_machine(other)[half..]);
    let mut most = 0;
    for first in 0..24 {
        for second in [None, Some(1), Some(3), Some(6)] {
            let at = second.map_or(vec![first], |second| vec![first, first + second]);
            let (mut ring, told) = mortal(&model, at);
            let got = logits(&mut ring, tokens, other);
            assert!(got == expected, "deaths at {first} and {second:?} later");
            most = most.max(told.n_formed.load(Ordering::Relaxed));
        }
    }
    assert_eq!(most, 2, "the coordinator was alone at least once");
}

#[test]
fn of_a_text_in_the_journal_only_the_rest_is_computed_when_a_stage_dies() {
    for name in ["qwen3", "gemma3"] {
        let g = golden(name);
        let model = g.model();
        let n_vocab = model.spec().n_vocab;
        let tokens: Vec<u32> = g.tokens.iter().cycle().take(60).copied().collect();
        let one_machine = |tokens: &[u32]| {
            let size = ExecutorSize {
                n_batch: 128,
                ..size()
            };
            let mut cpu = cpu_with(&model, 1, size);
            let seq = cpu.new_seq().unwrap();
            let all = bits(&append(&mut cpu, seq, tokens, 128));
            all.chunks(n_vocab).map(<[u32]>::to_vec).collect::<Vec<_>>()
        };
        let other: Vec<u32> = tokens[..30].iter().chain(&tokens[7..37]).copied().collect();
        let mut expected = one_machine(&tokens);
        expected.extend_from_slice(&one_machine(&other)[30..]);
        for at in [vec![55], vec![55, 70], vec![80]] {
            let n_deaths = at.len();
            let (mut ring, told) = mortal(&model, at.clone());
            let options = JournalOptions {
                dir: std::env::temp_dir(),
                budget_bytes: 1 << 30,
                segment_len: 4,
                is_continuous: true,
            };
            assert!(ring.journal_in(&options, even_layers(&model, 2)));
            let got = logits(&mut ring, &tokens, &other);
            assert!(got == expected, "{name}: deaths at {at:?}");
            let resumed = told.resumed.lock().unwrap();
            // The second one may die while states are loaded.
            assert!((1..=n_deaths).contains(&resumed.len()), "{resumed:?}");
            let is_short = |how: &Resumed| how.n_loaded > 36 && how.n_computed < 16 * n_deaths;
            assert!(resumed.iter().all(is_short), "{name} {at:?}: {resumed:?}");
        }
    }
}

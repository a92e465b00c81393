//! Stages that lose their state and frames that come twice, in the middle of real texts: the bits
//! stay those of one machine.

#[path = "../../model/tests/support/mod.rs"]
mod support;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use atta_cluster::{
    Cut, Lane, Ring, RingBackend, ThreadLane,
    core::{Event, Time},
    wire::{Frame, FrameKind},
};
use atta_kernels::{Kernels, Pool};
use atta_model::{Batch, Error, Executor, ExecutorSize, KvType, Model, Output, Want};
use atta_store::Budget;
use support::{append, bits, cpu_with, golden, hybrid::hybrid_with_windows};

/// What happens at every so many work frames.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// A stage begins anew without its state.
    Restart(usize),
    /// A frame comes twice, which a stage refuses.
    Double(usize),
}

struct Troubled {
    lane: ThreadLane,
    trouble: Trouble,
    n_stages: u16,
    n_sent: usize,
    n_troubles: Arc<AtomicUsize>,
}

impl Lane for Troubled {
    fn now(&self) -> Time {
        self.lane.now()
    }

    fn send(&mut self, stage: u16, frame: Frame) {
        let is_work = frame.header.kind == FrameKind::Work;
        self.n_sent += usize::from(is_work);
        let (Trouble::Restart(every) | Trouble::Double(every)) = self.trouble;
        let is_due = is_work && self.n_sent.is_multiple_of(every);
        if is_due {
            self.n_troubles.fetch_add(1, Ordering::Relaxed);
            match self.trouble {
                Trouble::Restart(_) => {
                    let victim = (self.n_sent / every) as u16 % self.n_stages + 1;
                    self.lane.restart(victim);
                }
                Trouble::Double(_) => self.lane.send(stage, frame.clone()),
            }
        }
        self.lane.send(stage, frame);
    }

    fn fence(&mut self, stage: u16, epoch: u32) {
        self.lane.fence(stage, epoch);
    }

    fn recv(&mut self, until: Option<Time>) -> Option<Event> {
        self.lane.recv(until)
    }
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

fn troubled(model: &Arc<Model>, trouble: Trouble, size: &ExecutorSize) -> (Ring, Arc<AtomicUsize>) {
    let pool = Arc::new(Pool::new(NonZeroUsize::MIN));
    let n_stages = model.spec().layers.len().min(3);
    let cut = Cut::Even(NonZeroUsize::new(n_stages).unwrap());
    let backend = RingBackend::new(Kernels::detect(), pool, NonZeroUsize::MIN, cut);
    let (lane, parts) = backend.parts(model, size, &Budget::unlimited()).unwrap();
    let n_troubles = Arc::new(AtomicUsize::new(0));
    let lane = Troubled {
        lane,
        trouble,
        n_stages: n_stages as u16,
        n_sent: 0,
        n_troubles: Arc::clone(&n_troubles),
    };
    (Ring::new(parts, Box::new(lane)).unwrap(), n_troubles)
}

#[test]
fn repairs_do_not_change_a_bit() {
    let models = [
        golden("qwen3"),
        golden("gemma3"),
        golden("gpt-oss"),
        golden("qwen35"),
        hybrid_with_windows(),
    ];
    for g in models {
        let model = g.model();
        let n_vocab = model.spec().n_vocab;
        let half = g.tokens.len() / 2;
        let backwards: Vec<u32> = g.tokens.iter().rev().copied().collect();
        let other = [&g.tokens[..half], &backwards[..half]].concat();
        let [expected, forked] = [&g.tokens, &other].map(|tokens| {
            let mut cpu = cpu_with(
                &model,
                1,
                ExecutorSize {
                    n_batch: 128,
                    ..size()
                },
            );
            let seq = cpu.new_seq().unwrap();
            bits(&append(&mut cpu, seq, tokens, 128))
        });
        for trouble in [Trouble::Restart(29), Trouble::Double(4)] {
            let (mut ring, n_troubles) = troubled(&model, trouble, &size());
            let what = format!("{} {trouble:?}", g.name);
            let seq = ring.new_seq().unwrap();
            let mut out = Output::default();
            let mut batch = Batch::default();
            let mut fork = None;
            let mut tickets = std::collections::VecDeque::new();
            for pos in 0..g.tokens.len() {
                if pos == half {
                    fork = Some(ring.fork(seq).unwrap());
                    let left = ring.truncate(fork.unwrap(), pos - tickets.len()).unwrap();
                    assert!(left <= pos);
                }
                batch.clear();
                batch.push_token(seq, pos, g.tokens[pos], Want::Logits);
                tickets.push_back((pos, ring.submit(&batch).unwrap()));
                if tickets.len() == ring.depth() || pos + 1 == g.tokens.len() {
                    while let Some((pos, ticket)) = tickets.pop_front() {
                        ring.collect(ticket, &mut out).unwrap();
                        let row = &expected[pos * n_vocab..][..n_vocab];
                        assert!(bits(out.logits(0)) == row, "{what}: position {pos}");
                    }
                }
            }
            let fork = fork.unwrap();
            for pos in ring.seqs().len(fork).unwrap()..other.len() {
                batch.clear();
                batch.push_token(fork, pos, other[pos], Want::Logits);
                ring.step(&batch, &mut out).unwrap();
                let row = &forked[pos * n_vocab..][..n_vocab];
                assert!(bits(out.logits(0)) == row, "{what}: {pos} of the fork");
            }
            let counts = ring.counts();
            assert!(n_troubles.load(Ordering::Relaxed) > 1, "{what}");
            assert!(counts.n_fences > 1, "{what}: {counts:?}");
            assert_eq!(
                counts.n_rebuilds > 0,
                matches!(trouble, Trouble::Restart(_)),
                "{what}: {counts:?}"
            );
        }
    }
}

#[test]
fn a_shifted_context_that_is_lost_is_an_error_and_no_other_text() {
    let g = golden("llama3-rope");
    let model = g.model();
    let shifting = ExecutorSize {
        n_ctx: 96,
        n_recent: Some(32),
        ..size()
    };
    let (mut ring, _) = troubled(&model, Trouble::Restart(12), &shifting);
    let [shifted, other] = [(); 2].map(|()| ring.new_seq().unwrap());
    let mut out = Output::default();
    let mut batch = Batch::default();
    let mut push = |ring: &mut Ring, seq, n: usize| {
        batch.clear();
        let pos = ring.seqs().len(seq)?;
        (pos..pos + n).for_each(|pos| batch.push_token(seq, pos, 7, Want::Logits));
        ring.step(&batch, &mut out)
    };
    (0..10).for_each(|_| push(&mut ring, shifted, 8).unwrap());
    push(&mut ring, other, 3).unwrap();
    ring.shift(shifted, 4..36).unwrap();
    // Here a stage begins anew.
    let lost = push(&mut ring, shifted, 1);
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    let again = push(&mut ring, shifted, 1);
    assert!(matches!(again, Err(Error::Lost(_))), "{again:?}");
    push(&mut ring, other, 1).unwrap();
    assert_eq!(ring.seqs().len(other).unwrap(), 4);
    assert_eq!(ring.truncate(shifted, 40).unwrap(), 0);
    push(&mut ring, shifted, 2).unwrap();
}

//! Experts of two layers, behind a source whose reads the test lets through one by one.

use std::{
    collections::HashSet,
    io,
    sync::{Condvar, Mutex},
};

use super::*;
use crate::{Extent, LayerTables, ModelSource, ReadAt, source};

const N_EXPERTS: u32 = 8;
const EXPERT_BYTES: u64 = 8192;
/// Where the experts of the two layers begin, after a header of any size.
const STARTS: [u64; 2] = [1 << 16, 1 << 18];

/// A layer and one of its experts.
type Expert = (usize, u32);

/// A file in memory that notes which experts are read, and that can hold back some of the reads.
struct Gate {
    bytes: Vec<u8>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: HashSet<Expert>,
    read: Vec<Expert>,
}

fn expert_at(offset: u64) -> Option<Expert> {
    let is_in = |l: &usize| (STARTS[*l]..STARTS[*l] + 8 * EXPERT_BYTES).contains(&offset);
    let l = [0, 1].into_iter().find(is_in)?;
    Some((l, ((offset - STARTS[l]) / EXPERT_BYTES) as u32))
}

impl Gate {
    fn new() -> Arc<Self> {
        let mut bytes = atta_formats::Writer::new().finish().unwrap().header;
        let rest = bytes.len() as u64..STARTS[1] + 8 * EXPERT_BYTES;
        bytes.extend(rest.map(|i| ((i * 2_654_435_761) >> 13) as u8));
        Arc::new(Self {
            bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn shut(&self, experts: impl IntoIterator<Item = Expert>) {
        self.state.lock().unwrap().is_shut = experts.into_iter().collect();
    }

    fn open(&self, expert: Expert) {
        self.state.lock().unwrap().is_shut.remove(&expert);
        self.changed.notify_all();
    }

    /// The experts that have been read since the last call, in the order of ids.
    fn take_read(&self) -> Vec<Expert> {
        let mut read = std::mem::take(&mut self.state.lock().unwrap().read);
        read.sort_unstable();
        read
    }

    /// Waits until so many experts have been read.
    fn wait_for(&self, n: usize) {
        let state = self.state.lock().unwrap();
        let is_short = |state: &mut GateState| state.read.len() < n;
        drop(self.changed.wait_while(state, is_short).unwrap());
    }
}

impl ReadAt for Gate {
    fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(expert) = expert_at(offset) {
            let state = self.state.lock().unwrap();
            let is_shut = |state: &mut GateState| state.is_shut.contains(&expert);
            let mut state = self.changed.wait_while(state, is_shut).unwrap();
            state.read.push(expert);
            self.changed.notify_all();
        }
        source::copy(&self.bytes, offset, buf)
    }
}

/// Both layers through the gate, with so many entries each, and such slots that move.
fn streamed(gate: &Arc<Gate>, n_entries: usize, n_moving: usize) -> Streamed {
    let budget = Budget::unlimited();
    let source = ModelSource {
        name: "gate".to_owned(),
        bytes: gate.clone(),
    };
    let files = ModelFiles::from_sources(vec![source], &budget).unwrap();
    let table = |offset| {
        let extent = Extent {
            shard: 0,
            offset,
            bytes: u64::from(N_EXPERTS) * EXPERT_BYTES,
        };
        vec![RowTable::contiguous(extent, EXPERT_BYTES)]
    };
    let plan = Plan {
        layers: vec![LayerTables::default(), LayerTables::default()],
        experts: STARTS.map(table).to_vec(),
        ..Plan::default()
    };
    let policy = ResidencyPolicy {
        chunk_bytes: Some(4096),
        pinned_bytes: u64::MAX,
        n_slots: 2,
        n_experts: n_entries,
        n_moving,
        method: None,
    };
    let streamed = Streamed::new(files.unmapped(&budget).unwrap(), plan, &policy, &budget).unwrap();
    // As many reads at a time as there are readers, whatever was the fastest number.
    streamed.readers.set_active(MAX_READERS);
    gate.take_read();
    streamed
}

fn request(streamed: &Streamed, l: usize, ids: &[u32]) {
    let request = ExpertRequest {
        ids,
        uses: &vec![1; ids.len()],
        n_rows: 1,
    };
    streamed.request_experts(l, &request).unwrap();
}

/// Takes the experts that arrive next, after a look at their bytes.
fn arrived(streamed: &Streamed, gate: &Gate, l: usize, wanted: &mut [u32]) -> Vec<u32> {
    let amount = Amount { least: 1, most: 4 };
    let arrived = streamed.arrived_experts(l, wanted, amount).unwrap();
    for (i, &id) in arrived.ids.iter().enumerate() {
        let start = (STARTS[l] + u64::from(id) * EXPERT_BYTES) as usize;
        let expected = &gate.bytes[start..start + EXPERT_BYTES as usize];
        assert!(arrived.chunk.tensor(i).bytes == expected, "{l} {id}");
    }
    arrived.ids.to_vec()
}

/// A step of one token through both layers.
fn use_experts(streamed: &Streamed, gate: &Gate, ids: &[u32]) {
    for l in [0, 1] {
        request(streamed, l, ids);
        let mut wanted = ids.to_vec();
        let mut rest = &mut wanted[..];
        while !rest.is_empty() {
            let n = arrived(streamed, gate, l, rest).len();
            rest = &mut rest[n..];
        }
    }
}

#[test]
fn experts_are_taken_in_the_order_in_which_they_arrive() {
    let gate = Gate::new();
    let streamed = streamed(&gate, 4, 0);
    let mut wanted = [1, 2, 3];
    gate.shut([(0, 1), (0, 2)]);
    request(&streamed, 0, &wanted);
    assert_eq!(arrived(&streamed, &gate, 0, &mut wanted), [3]);
    gate.open((0, 2));
    assert_eq!(arrived(&streamed, &gate, 0, &mut wanted[1..]), [2]);
    gate.open((0, 1));
    assert_eq!(arrived(&streamed, &gate, 0, &mut wanted[2..]), [1]);
    assert_eq!(gate.take_read(), [(0, 1), (0, 2), (0, 3)]);
    let io = streamed.io();
    assert_eq!((io.n_expert_uses, io.n_expert_misses), (3, 3));
}

#[test]
fn more_experts_than_there_are_entries_pass_through_them() {
    let gate = Gate::new();
    let all: Vec<u32> = (0..N_EXPERTS).collect();
    for n_entries in 1..6 {
        for n_moving in [0, 2, 5] {
            let streamed = streamed(&gate, n_entries, n_moving);
            (0..3).for_each(|_| use_experts(&streamed, &gate, &all));
        }
    }
}

#[test]
fn while_a_prompt_is_at_one_layer_the_next_one_is_read() {
    let gate = Gate::new();
    let streamed = streamed(&gate, 2, 8);
    let mut all: Vec<u32> = (0..N_EXPERTS).collect();
    request(&streamed, 0, &all);
    // Nothing was asked of layer 1: two of its entries are empty, and four slots move.
    gate.wait_for(2 + 2 + 4);
    let next = gate.take_read().into_iter().filter(|(l, _)| *l == 1);
    assert_eq!(
        next.collect::<Vec<_>>(),
        (0..6).map(|id| (1, id)).collect::<Vec<_>>()
    );
    let n = arrived(&streamed, &gate, 0, &mut all).len();
    assert!(n > 0);
    // A single token reads nothing ahead.
    let alone = self::streamed(&gate, 2, 8);
    use_experts(&alone, &gate, &[5]);
    assert_eq!(gate.take_read(), [(0, 5), (1, 5)]);
}

#[test]
fn frequent_experts_outlive_a_prompt() {
    let gate = Gate::new();
    let streamed = streamed(&gate, 7, 0);
    (0..4).for_each(|_| use_experts(&streamed, &gate, &[5, 6, 7]));
    use_experts(&streamed, &gate, &[0, 1, 2, 3, 4, 5, 6, 7]);
    gate.take_read();
    use_experts(&streamed, &gate, &[5, 6, 7]);
    assert_eq!(gate.take_read(), []);
}

#[test]
fn a_later_run_begins_with_the_experts_that_were_used_most() {
    let gate = Gate::new();
    let first = streamed(&gate, 2, 0);
    (0..3).for_each(|_| use_experts(&first, &gate, &[6, 2]));
    use_experts(&first, &gate, &[1]);
    let usage = first.expert_usage();
    let later = streamed(&gate, 2, 0);
    later.recall_experts(&usage);
    gate.wait_for(4);
    assert_eq!(gate.take_read(), [(0, 2), (0, 6), (1, 2), (1, 6)]);
    use_experts(&later, &gate, &[2, 6]);
    assert_eq!(later.io().n_expert_misses, 0);
    // That of another model is of no use, and does no harm.
    let other = ExpertUsage {
        layers: vec![vec![1.0; 3]; 5],
    };
    later.recall_experts(&other);
    use_experts(&later, &gate, &[2, 6]);
    assert_eq!(gate.take_read(), []);
}

#[test]
fn a_token_does_not_wait_for_experts_that_it_does_not_use() {
    let gate = Gate::new();
    let usage = ExpertUsage {
        layers: vec![vec![2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]; 2],
    };
    let streamed = streamed(&gate, 4, 0);
    // All readers are busy with experts of earlier runs, and others wait for a reader.
    gate.shut((0..4).flat_map(|id| [(0, id), (1, id)]));
    streamed.recall_experts(&usage);
    request(&streamed, 0, &[7]);
    gate.open((0, 0));
    gate.open((1, 0));
    assert_eq!(arrived(&streamed, &gate, 0, &mut [7]), [7]);
    gate.shut([]);
    gate.changed.notify_all();
}

//! The whole ring in virtual time: the same `Ring`, `Coordinator`, `Node`, `Stage` and frames as in
//! a cluster, over links that lose, damage, double, delay and reorder, and stages that freeze and
//! die, at places that a seed chooses; layers move between the coordinator and stages, with a
//! journal of states and without one; states are saved and loaded, also by a coordinator that
//! begins anew; texts are audited, and a stage then hands a wrong row on. Layers are hash chains,
//! so that one wrong row is seen.
//!
//! Held for every seed: what a batch returns is that of its text, no call waits longer than a
//! bound, no stage computes for an old epoch or holds more frames than its credit, messages do not
//! pile up, and when nothing goes wrong any more everything goes on.
//! `ATTA_SIM_SEEDS=1000000 cargo test -p atta-cluster --test simulator` takes more seeds;
//! `ATTA_SIM_FIRST=n` begins at one.

mod chain;
mod plan;
mod random;
mod world;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use atta_cluster::{AuditCounts, Ring, core::Counts};
use atta_model::{Batch, Error, Executor, Output, SeqId, Ticket, Want};
use chain::{D_ROW, N_VOCAB, link, row};
use plan::{Plan, Wanted};
use random::Random;
use world::{Faults, World};

const N_CTX: usize = 96;
const N_BATCH: usize = 6;
const N_SEQS: usize = 4;

/// Longest time of a call: three repairs that wait for their deadlines, a rebuild of all
/// texts after each of the faults of a seed.
const MAX_WAIT: Duration = Duration::from_secs(90);

/// A text, and the hash of each layer behind each position.
#[derive(Clone, Default)]
struct Text {
    links: Vec<Vec<u64>>,
    /// Positions with rows in flight.
    n_away: usize,
}

impl Text {
    fn push(&mut self, id: u32, n_layers: usize) {
        let mut hashes = Vec::with_capacity(n_layers);
        let mut input = u64::from(id) + 1;
        for l in 0..n_layers {
            let before = self.links.last().map_or(0, |hashes| hashes[l]);
            input = link(before, input, l);
            hashes.push(input);
        }
        self.links.push(hashes);
    }

    fn result(&self, pos: usize) -> [f32; D_ROW] {
        row(*self.links[pos].last().unwrap())
    }
}

/// A batch in flight: the row's place in `texts`, its position, and whether it wants logits.
struct Flight {
    ticket: Ticket,
    rows: Vec<(usize, usize, bool)>,
}

/// A state that stages have saved, and its text.
struct Saved {
    receipt: Vec<u8>,
    text: Text,
}

/// A caller of a ring, who knows what every answer should be.
struct Caller {
    ring: Ring,
    plan: Plan,
    saved: Vec<Saved>,
    world: Arc<Mutex<World>>,
    wanted: Arc<Mutex<Wanted>>,
    random: Random,
    n_layers: usize,
    seqs: Vec<(SeqId, Text)>,
    flights: VecDeque<Flight>,
    n_failed: u64,
    /// Why the last batch failed.
    why: String,
    out: Output,
}

/// What happened in a seed.
#[derive(Default)]
struct Story {
    counts: Counts,
    faults: Faults,
    n_failed: u64,
    n_checked: u64,
    n_moves: u64,
    n_loaded: u64,
    n_computed: u64,
    n_restarts: u64,
    /// Saved states that were loaded, and those that were not there.
    n_found: u64,
    n_missed: u64,
    /// Rows that were truncated while they were in flight.
    n_taken_back: u64,
    audit: AuditCounts,
}

impl Caller {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let plan = Plan::draw(seed, &mut random);
        let n_faults = random.below(9);
        let world = World::new(plan.limits, plan.stages(1), seed, n_faults);
        let world = Arc::new(Mutex::new(world));
        let wanted = Arc::<Mutex<Wanted>>::default();
        Self {
            ring: plan.open(&world, &wanted),
            n_layers: plan.n_layers(),
            plan,
            saved: Vec::new(),
            world,
            wanted,
            random,
            seqs: Vec::new(),
            flights: VecDeque::new(),
            n_failed: 0,
            why: String::new(),
            out: Output::default(),
        }
    }

    /// A sequence without rows in flight.
    fn idle(&mut self) -> Option<usize> {
        let idle: Vec<usize> = (0..self.seqs.len())
            .filter(|&i| self.seqs[i].1.n_away == 0)
            .collect();
        (!idle.is_empty()).then(|| idle[self.random.below(idle.len())])
    }

    fn act(&mut self, story: &mut Story) {
        let n_kinds = if self.plan.states.is_some() { 17 } else { 13 };
        match self.random.below(n_kinds) {
            0 if self.seqs.len() < N_SEQS => {
                let seq = self.ring.new_seq().unwrap();
                self.seqs.push((seq, Text::default()));
            }
            1 if !self.seqs.is_empty() && self.seqs.len() < N_SEQS => self.fork(),
            2 if self.random.once_in(2) => self.take_back(story),
            2 => self.truncate(),
            3 if self.random.once_in(2) => self.drop_one(),
            4..=6 => self.collect(story),
            7 if self.flights.is_empty() => self.move_layers(),
            13.. => self.save_or_load(story),
            _ => self.submit(story),
        }
        for (seq, text) in &self.seqs {
            assert_eq!(self.ring.seqs().len(*seq).unwrap(), text.links.len());
        }
    }

    /// Saves a text, begins one with a saved state, or ends the coordinator, whose successor knows
    /// the saved states only.
    fn save_or_load(&mut self, story: &mut Story) {
        match self.random.below(8) {
            0 if self.flights.is_empty() => self.restart(story),
            1..=3 => self.save(),
            _ => self.load(story),
        }
    }

    fn save(&mut self) {
        let Some(i) = self.idle() else { return };
        let (seq, text) = &self.seqs[i];
        let mut receipt = Vec::new();
        let n = text.links.len();
        if n == 0 {
            return;
        }
        match self.ring.export(*seq, 0..n, &mut receipt) {
            Ok(()) => self.saved.push(Saved {
                receipt,
                text: text.clone(),
            }),
            Err(Error::State(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn load(&mut self, story: &mut Story) {
        if self.saved.is_empty() || self.seqs.len() == N_SEQS {
            return;
        }
        // Older ones are of other cuts, most of them, which is no reason not to find them.
        let i = self.saved.len() - 1 - self.random.below(self.saved.len().min(3));
        let Saved { receipt, text } = &self.saved[i];
        let seq = self.ring.new_seq().unwrap();
        let start = self.world.lock().unwrap().now();
        let loaded = self.ring.append_state(seq, receipt, text.links.len());
        let waited = self.world.lock().unwrap().now() - start;
        assert!(waited < MAX_WAIT, "a load took {waited:?}");
        let text = match loaded {
            Ok(()) => text.clone(),
            Err(Error::State(_) | Error::OutOfBlocks) => Text::default(),
            Err(error) => panic!("{error}"),
        };
        let is_found = !text.links.is_empty();
        story.n_found += u64::from(is_found);
        story.n_missed += u64::from(!is_found);
        self.seqs.push((seq, text));
    }

    /// Another coordinator in the place of this one.
    fn restart(&mut self, story: &mut Story) {
        story.n_restarts += 1;
        self.seqs.clear();
        let stages = self.plan.stages(1);
        // The old one has its stages save all before it ends, while they are there.
        let other = World::new(self.plan.limits, self.plan.stages(1), 0, 0);
        let other = Arc::new(Mutex::new(other));
        self.ring = self.plan.open(&other, &Arc::default());
        let mut world = self.world.lock().unwrap();
        self.plan.limits = world.replace(self.plan.limits, stages);
        drop(world);
        self.ring = self.plan.open(&self.world, &self.wanted);
    }

    /// Lets the coordinator have more or fewer layers.
    fn move_layers(&mut self) {
        let n_local = 1 + self.random.below(self.n_layers);
        self.wanted.lock().unwrap().n_local = Some(n_local);
        let start = self.world.lock().unwrap().now();
        match self.ring.refresh() {
            Ok(()) => {}
            Err(Error::Lost(why)) => {
                self.why = why;
                self.n_failed += 1;
            }
            Err(error) => panic!("{error}"),
        }
        let waited = self.world.lock().unwrap().now() - start;
        assert!(waited < MAX_WAIT, "a move took {waited:?}");
    }

    fn fork(&mut self) {
        let i = self.random.below(self.seqs.len());
        let (seq, text) = &self.seqs[i];
        let mut copy = text.clone();
        let n = text.links.len() - text.n_away;
        let fork = self.ring.fork(*seq).unwrap();
        let left = self.ring.truncate(fork, n).unwrap();
        copy.links.truncate(left);
        copy.n_away = 0;
        self.seqs.push((fork, copy));
    }

    fn truncate(&mut self) {
        let Some(i) = self.idle() else { return };
        let (seq, text) = &mut self.seqs[i];
        let n = self.random.below(text.links.len() + 1);
        let left = self.ring.truncate(*seq, n).unwrap();
        assert!(left <= n);
        text.links.truncate(left);
    }

    /// Truncates a text to before rows in flight.
    fn take_back(&mut self, story: &mut Story) {
        let is_busy = |i: &usize| self.seqs[*i].1.n_away > 0;
        let Some(i) = (0..self.seqs.len()).rfind(is_busy) else {
            return;
        };
        let (seq, text) = &mut self.seqs[i];
        let n = text.links.len() - self.random.below(text.n_away + 1);
        let left = match self.ring.truncate(*seq, n) {
            Ok(left) => left,
            Err(Error::Busy) => return,
            Err(error) => panic!("{error}"),
        };
        text.links.truncate(left);
        for flight in &mut self.flights {
            let is_behind = |row: &(usize, usize, bool)| row.0 == i && row.1 >= left;
            if flight.rows.iter().any(is_behind) {
                story.n_taken_back += flight.rows.len() as u64;
                text.n_away -= flight.rows.len();
                flight.rows.clear();
            }
        }
    }

    fn drop_one(&mut self) {
        let Some(i) = self.idle() else { return };
        // Flights name sequences by their place.
        if self.flights.is_empty() {
            let (seq, _) = self.seqs.remove(i);
            self.ring.drop_seq(seq).unwrap();
        }
    }

    fn submit(&mut self, story: &mut Story) {
        if self.seqs.is_empty() || self.flights.len() == self.ring.depth() {
            return;
        }
        let mut batch = Batch::default();
        let mut rows = Vec::new();
        let mut longer: Vec<(usize, Text)> = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let i = self.random.below(self.seqs.len());
            if longer.iter().any(|(other, _)| *other == i) {
                continue;
            }
            let (seq, mut text) = self.seqs[i].clone();
            for _ in 0..1 + self.random.below(N_BATCH / 2) {
                let id = self.random.below(N_VOCAB) as u32;
                let is_wanted = self.random.once_in(2);
                let want = if is_wanted {
                    Want::Logits
                } else {
                    Want::Nothing
                };
                rows.push((i, text.links.len(), is_wanted));
                batch.push_token(seq, text.links.len(), id, want);
                if self.random.once_in(5) {
                    batch.mark_checkpoint();
                }
                text.push(id, self.n_layers);
                text.n_away += 1;
            }
            longer.push((i, text));
        }
        match self.ring.submit(&batch) {
            Ok(ticket) => {
                for (i, text) in longer {
                    self.seqs[i].1 = text;
                }
                self.flights.push_back(Flight { ticket, rows });
            }
            Err(Error::OutOfBlocks | Error::ContextFull { .. }) => {
                self.collect(story);
                self.drop_one();
            }
            Err(Error::State(_)) => {
                // A window or a recurrent state that a truncation left incomplete.
                panic!("a sequence was left without its state");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn collect(&mut self, story: &mut Story) {
        let Some(Flight { ticket, rows }) = self.flights.pop_front() else {
            return;
        };
        let start = self.world.lock().unwrap().now();
        let collected = self.ring.collect(ticket, &mut self.out);
        let waited = self.world.lock().unwrap().now() - start;
        assert!(waited < MAX_WAIT, "a call took {waited:?}");
        match collected {
            Ok(()) => {
                for (place, &(i, pos, is_wanted)) in rows.iter().enumerate() {
                    let text = &mut self.seqs[i].1;
                    text.n_away -= 1;
                    if is_wanted {
                        story.n_checked += 1;
                        let got = &self.out.logits(place)[..D_ROW];
                        assert_eq!(got, text.result(pos), "position {pos} of text {i}");
                    }
                }
            }
            Err(Error::Lost(why)) => {
                self.why = why;
                self.n_failed += 1;
                self.flights.clear();
                for (_, text) in &mut self.seqs {
                    let n = text.links.len() - std::mem::take(&mut text.n_away);
                    text.links.truncate(n);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn tell(seed: u64) -> Story {
    let mut story = Story::default();
    let mut caller = Caller::new(seed);
    for _ in 0..20 + seed as usize % 60 {
        caller.act(&mut story);
    }
    // When nothing goes wrong any more, every text can be continued.
    caller.world.lock().unwrap().calm_down();
    while !caller.flights.is_empty() {
        caller.collect(&mut story);
    }
    let n_failed = caller.n_failed;
    for _ in 0..12 {
        caller.submit(&mut story);
        caller.collect(&mut story);
    }
    // A stage may stay frozen for three seconds; three fences without its answer take 1.2.
    assert!(
        caller.n_failed <= n_failed + 3,
        "calm, and still failing: {}",
        caller.why
    );
    story.counts = caller.ring.counts();
    story.audit = caller.ring.audit_counts();
    story.faults = caller.world.lock().unwrap().faults;
    story.n_failed = caller.n_failed;
    let wanted = caller.wanted.lock().unwrap();
    story.n_moves = wanted.n_moves;
    story.n_loaded = wanted.n_loaded;
    story.n_computed = wanted.n_computed;
    // One row was wrong at most.
    assert!(
        wanted.n_faults <= 1,
        "{} stages are blamed",
        wanted.n_faults
    );
    drop(wanted);
    if let Some(directory) = &caller.plan.states {
        // Nothing was saved, perhaps.
        let _ = std::fs::remove_dir_all(directory);
    }
    story
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn whatever_goes_wrong_texts_are_the_same_and_nothing_hangs() {
    let first = number("ATTA_SIM_FIRST", 0);
    let n_seeds = number("ATTA_SIM_SEEDS", 10_000);
    let mut all = Story::default();
    for seed in first..first + n_seeds {
        let told = std::panic::catch_unwind(|| tell(seed));
        let story = told.unwrap_or_else(|panic| {
            eprintln!("seed {seed} fails; ATTA_SIM_FIRST={seed} ATTA_SIM_SEEDS=1 repeats it");
            std::panic::resume_unwind(panic)
        });
        all.n_checked += story.n_checked;
        all.n_failed += story.n_failed;
        all.n_moves += story.n_moves;
        all.n_loaded += story.n_loaded;
        all.n_computed += story.n_computed;
        all.counts.n_fences += story.counts.n_fences;
        all.counts.n_rebuilds += story.counts.n_rebuilds;
        all.counts.n_stale += story.counts.n_stale;
        all.counts.n_results += story.counts.n_results;
        all.faults.n_lost += story.faults.n_lost;
        all.faults.n_killed += story.faults.n_killed;
        all.faults.n_frozen += story.faults.n_frozen;
        all.faults.n_damaged += story.faults.n_damaged;
        all.faults.n_doubled += story.faults.n_doubled;
        all.n_restarts += story.n_restarts;
        all.n_found += story.n_found;
        all.n_missed += story.n_missed;
        all.n_taken_back += story.n_taken_back;
        all.audit.n_rows += story.audit.n_rows;
        all.audit.n_faults += story.audit.n_faults;
    }
    println!(
        "{n_seeds} seeds: {:?}, {:?}, {} results compared, {} batches failed, {} moves with {} \
         positions loaded and {} computed, {} coordinators anew with {} states found and {} not, \
         {} rows taken back, {} rows audited and {} wrong ones found",
        all.faults,
        all.counts,
        all.n_checked,
        all.n_failed,
        all.n_moves,
        all.n_loaded,
        all.n_computed,
        all.n_restarts,
        all.n_found,
        all.n_missed,
        all.n_taken_back,
        all.audit.n_rows,
        all.audit.n_faults
    );
    // A simulator in which nothing happens shows nothing.
    if n_seeds >= 1000 {
        let counts = all.counts;
        let faults = all.faults;
        assert!(all.n_moves > n_seeds / 2 && all.n_loaded > all.n_computed);
        assert!(all.n_checked > n_seeds && counts.n_rebuilds > n_seeds / 10);
        assert!(counts.n_fences > counts.n_rebuilds && counts.n_stale > n_seeds / 10);
        assert!(all.n_restarts > n_seeds / 100 && all.n_found > n_seeds / 200);
        assert!(all.n_taken_back > n_seeds / 20);
        assert!(all.audit.n_rows > n_seeds && all.audit.n_faults > n_seeds / 50);
        assert!(faults.n_killed > n_seeds / 10 && faults.n_frozen > n_seeds / 20);
    }
}

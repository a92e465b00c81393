//! A group of machines that goes on without a member: an executor around the executors of one group
//! after another.
//!
//! ```text
//! group --a member is lost--> who answers? --> plan --> another group, or this machine alone
//!                                                       every text again from its tokens
//! ```
//! Knows neither how rows are divided nor who decides it ([`ReplanRows`]). The one idea: callers
//! know the ids of block tables that stay, and the executors behind them may come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Write,
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorInfo, ExecutorSize, Member, MemberPart, Model, Observer,
    Output, SeqId, SeqTable, Share, Ticket,
};
use atta_store::{Budget, Reservation};

use super::group::{GroupMembers, GroupOpener, OpenedGroup, RemoteGroupOptions};
use crate::{
    History, OpenFiles, RebuildStep,
    control::NodeName,
    core::Timing,
    cut::distinct_kinds,
    place::{Placed, Refused, Room, n_used_experts},
    remote::{FormError, Lease, ask},
    ring::{Item, chunks, item_of, push_items},
    wire::message::Question,
};

/// Time for a node to say that it is there.
const ALIVE: Duration = Duration::from_secs(1);
/// Groups that are opened without a result in between.
const MAX_GROUPS: u32 = 8;

/// Members, and the times that they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedGroup {
    /// Who they are; without others this machine computes all rows.
    pub members: GroupMembers,
    /// Times: how long a batch may take.
    pub timing: Timing,
    /// How long nodes may take until they are ready.
    pub deadline: Duration,
}

/// Decides who has which rows when members are gone.
pub trait ReplanRows: Send + Sync {
    /// A plan without these nodes.
    ///
    /// # Errors
    /// No plan fits: why, in one line for people.
    fn without(&self, gone: &[NodeName]) -> Result<PlannedGroup, String>;
}

/// A change of the members of a group that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// Nodes that were lost.
    pub gone: Vec<NodeName>,
    /// Who computes now.
    pub members: GroupMembers,
    /// From the beginning of the trouble to the first result.
    pub time: Duration,
}

impl fmt::Display for GroupChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.gone.iter().map(NodeName::as_str).collect();
        match names[..] {
            [] => write!(f, "the members were made anew")?,
            [node] => write!(f, "{node} is gone")?,
            _ => write!(f, "{} are gone", names.join(", "))?,
        }
        let others: Vec<String> = self
            .members
            .others
            .iter()
            .map(|(n, _)| n.name.to_string())
            .collect();
        match others.is_empty() {
            true => write!(f, "; this machine computes all rows")?,
            false => write!(f, "; rows are divided with {}", others.join(", "))?,
        }
        write!(f, "; {:.1} s", self.time.as_secs_f64())
    }
}

/// Hears of changes, when the group computes again.
pub type OnGroupChange = Arc<dyn Fn(&GroupChange) + Send + Sync>;

/// What a group needs to go on without a member.
#[derive(Clone)]
pub struct GroupChanges {
    /// Decides who has which rows.
    pub replan: Arc<dyn ReplanRows>,
    /// Opens the files for rows that this machine takes over.
    pub files: OpenFiles,
    /// Hears of changes.
    pub on_change: OnGroupChange,
}

impl fmt::Debug for GroupChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupChanges").finish_non_exhaustive()
    }
}

/// What all groups of an executor have in common.
pub(super) struct GroupRoom {
    pub(super) options: RemoteGroupOptions,
    pub(super) changes: GroupChanges,
    /// Bound here for the first group.
    pub(super) model: Arc<Model>,
    pub(super) size: ExecutorSize,
    pub(super) budget: Budget,
    pub(super) _lease: Lease,
}

/// The executor of the present group.
struct Present {
    executor: Box<dyn Executor>,
    /// Its ids.
    ids: BTreeMap<SeqId, SeqId>,
    /// Number of the group; `None`: this machine is alone.
    ring: Option<u64>,
    members: GroupMembers,
    /// Rows that were bound for this group, and the memory that they take.
    _bound: Option<BoundRows>,
}

struct BoundRows {
    _mapped: Option<Reservation>,
}

/// An executor that goes on with other members.
pub(super) struct Regrouping {
    room: GroupRoom,
    info: ExecutorInfo,
    /// Block tables with the ids that callers know.
    seqs: SeqTable,
    history: History<Item>,
    /// `None`: no group could be opened.
    present: Option<Present>,
    /// Sequences whose state is gone and cannot be computed again.
    lost: BTreeSet<SeqId>,
    /// The batch in flight, and its ticket of the present group.
    flight: Option<GroupFlight>,
    n_submitted: u64,
    trouble: Option<Trouble>,
}

struct GroupFlight {
    number: u64,
    batch: Batch,
    /// `None`: the group was lost before it took the batch.
    ticket: Option<Ticket>,
}

/// A loss that is not told yet.
struct Trouble {
    since: Instant,
    gone: Vec<NodeName>,
    n_groups: u32,
    /// Whether the same members were tried again.
    is_retried: bool,
}

impl Regrouping {
    /// Begins with a group that is open.
    pub(super) fn new(room: GroupRoom, first: OpenedGroup) -> Self {
        let spec = room.model.spec();
        let members = room.options.members.clone();
        Self {
            info: first.executor.info().clone(),
            seqs: SeqTable::new(&distinct_kinds(spec), &room.size.seqs()),
            history: History::default(),
            present: Some(Present {
                executor: first.executor,
                ids: BTreeMap::new(),
                ring: Some(first.ring),
                members,
                _bound: None,
            }),
            lost: BTreeSet::new(),
            flight: None,
            n_submitted: 0,
            trouble: None,
            room,
        }
    }

    fn check_idle(&self) -> Result<(), Error> {
        match self.flight {
            Some(_) => Err(Error::Busy),
            None => Ok(()),
        }
    }

    fn check_kept(&self, seq: SeqId) -> Result<(), Error> {
        match self.lost.contains(&seq) {
            true => Err(Error::Lost(format!(
                "the state of sequence {seq} was lost with a member, and its tokens do not determine it"
            ))),
            false => Ok(()),
        }
    }

    /// Does something with a sequence of the present group. If that is lost, the next batch finds
    /// out, and computes everything again.
    fn with<T>(
        &mut self,
        seq: SeqId,
        act: impl FnOnce(&mut dyn Executor, SeqId) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let present = self.present.as_mut()?;
        let id = *present.ids.get(&seq)?;
        Some(act(present.executor.as_mut(), id))
    }

    /// Submits the batch in flight to the present group.
    fn submit_flight(&mut self) -> Result<(), Error> {
        let (Some(flight), Some(present)) = (&mut self.flight, &mut self.present) else {
            return Err(Error::Lost("no other machine computes".to_owned()));
        };
        let mut batch = flight.batch.clone();
        for row in &mut batch.rows {
            let id = present.ids.get(&row.seq);
            row.seq = *id.ok_or(Error::State("a group lacks a sequence"))?;
        }
        flight.ticket = Some(present.executor.submit(&batch)?);
        Ok(())
    }

    /// Collects the batch in flight, with as many groups as that takes.
    fn collect_flight(&mut self, out: &mut Output) -> Result<(), Error> {
        loop {
            let ticket = self.flight.as_mut().and_then(|flight| flight.ticket.take());
            let done = match ticket.zip(self.present.as_mut()) {
                Some((ticket, present)) => present.executor.collect(ticket, out).map(|()| true),
                None => self.submit_flight().map(|()| false),
            };
            match done {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Error::Lost(why)) => self.regroup(&why)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens another group, and computes all texts on it.
    fn regroup(&mut self, why: &str) -> Result<(), Error> {
        let mut why = why.to_owned();
        loop {
            let opened = self.open_another(&why)?;
            self.present = Some(opened);
            match self.rebuild() {
                Ok(()) => return self.check_flight(),
                Err(Error::Lost(again)) => why = again,
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if a sequence of the batch in flight is lost.
    fn check_flight(&self) -> Result<(), Error> {
        let rows = self.flight.iter().flat_map(|flight| &flight.batch.rows);
        rows.map(|row| row.seq)
            .try_for_each(|seq| self.check_kept(seq))
    }

    /// Opens a group without members that do not answer.
    fn open_another(&mut self, why: &str) -> Result<Present, Error> {
        let gone = self.note_loss(why)?;
        // Its links end, and its memory may be needed.
        self.present = None;
        let (present, gone) = self.room.open_without(gone, why)?;
        if let Some(trouble) = &mut self.trouble {
            trouble.gone = gone;
        }
        Ok(present)
    }

    /// The members that are gone, since the trouble began.
    fn note_loss(&mut self, why: &str) -> Result<Vec<NodeName>, Error> {
        let silent = self.silent();
        let trouble = self.trouble.get_or_insert_with(|| Trouble {
            since: Instant::now(),
            gone: Vec::new(),
            n_groups: 0,
            is_retried: false,
        });
        trouble.n_groups += 1;
        // Members that answer and send nothing are out of reach, and others would be, too.
        let is_retried = silent.is_empty() && std::mem::replace(&mut trouble.is_retried, true);
        if is_retried || trouble.n_groups > MAX_GROUPS {
            self.present = None;
            return Err(Error::Lost(why.to_owned()));
        }
        let new = silent
            .into_iter()
            .filter(|node| !trouble.gone.contains(node));
        Ok(trouble.gone.iter().cloned().chain(new).collect())
    }

    /// Members of the present group that do not answer.
    fn silent(&self) -> Vec<NodeName> {
        let Some(present) = &self.present else {
            return Vec::new();
        };
        let Some(ring) = present.ring else {
            return Vec::new();
        };
        let question = Question::Progress { ring };
        let control = &*self.room.options.control;
        let nodes: Vec<&NodeName> = present
            .members
            .others
            .iter()
            .map(|(n, _)| &n.name)
            .collect();
        thread::scope(|scope| {
            let asking: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| ask(control, node, &question, ALIVE).is_some()))
                .collect();
            let answers = asking.into_iter().map(|asking| asking.join());
            let answers =
                answers.map(|is_there| is_there.unwrap_or_else(|p| std::panic::resume_unwind(p)));
            let silent = nodes.iter().zip(answers).filter(|(_, is_there)| !is_there);
            silent.map(|(node, _)| (*node).clone()).collect()
        })
    }

    /// Computes every sequence again, then the rows in flight have their places in the tables.
    fn rebuild(&mut self) -> Result<(), Error> {
        let flight = self.flight.as_ref().map(|flight| flight.batch.rows.clone());
        let flight = flight.unwrap_or_default();
        for row in flight.iter().rev() {
            self.history.truncate(row.seq.index, row.pos);
        }
        let rebuilt = self.rebuild_history();
        if rebuilt.is_ok() && self.check_flight().is_ok() {
            self.seqs.admit(&flight, |_, _| Ok(()))?;
            self.seqs.take_copies().for_each(drop);
        }
        self.push_history();
        rebuilt
    }

    fn rebuild_history(&mut self) -> Result<(), Error> {
        let live: BTreeMap<u32, SeqId> = self
            .history
            .seqs()
            .filter_map(|index| Some((index, self.seqs.id_at(index)?)))
            .collect();
        let lost = self.history.lost();
        self.lost
            .extend(lost.iter().filter_map(|index| live.get(index)));
        for id in live.values() {
            self.seqs.truncate(*id, 0)?;
            let present = self.present()?;
            let inner = present.executor.new_seq()?;
            present.ids.insert(*id, inner);
        }
        for step in self.history.rebuild() {
            match step {
                RebuildStep::Fork { from, to } => self.fork_into(live[&from], live[&to])?,
                RebuildStep::Append { seq, positions } => {
                    for chunk in chunks(positions, self.info.n_batch) {
                        self.append_again(live[&seq], &chunk)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn present(&mut self) -> Result<&mut Present, Error> {
        let present = self.present.as_mut();
        present.ok_or_else(|| Error::Lost("no other machine computes".to_owned()))
    }

    fn fork_into(&mut self, from: SeqId, to: SeqId) -> Result<(), Error> {
        self.seqs.fork_into(from, to)?;
        self.seqs.take_copies().for_each(drop);
        let present = self.present()?;
        let Present { executor, ids, .. } = present;
        executor.drop_seq(ids[&to])?;
        let fork = executor.fork(ids[&from])?;
        ids.insert(to, fork);
        Ok(())
    }

    /// Computes positions of a sequence once more.
    fn append_again(&mut self, seq: SeqId, positions: &Range<usize>) -> Result<(), Error> {
        let items = &self.history.items(seq.index)[positions.clone()];
        let mut batch = Batch::default();
        push_items(&mut batch, seq, positions.start, items);
        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
        self.seqs.take_copies().for_each(drop);
        let present = self.present()?;
        let id = present.ids[&seq];
        batch.rows.iter_mut().for_each(|row| row.seq = id);
        present.executor.step(&batch, &mut Output::default())
    }

    /// Adds the rows in flight to the history.
    fn push_history(&mut self) {
        let d_model = self.room.model.spec().d_model;
        let Some(GroupFlight { batch, .. }) = &self.flight else {
            return;
        };
        for row in &batch.rows {
            if let Some(item) = item_of(batch, row, d_model) {
                self.history.push(row.seq.index, item);
            }
        }
    }

    /// Tells of a change whose members have given a result.
    fn tell(&mut self) {
        let (Some(trouble), Some(present)) = (self.trouble.take(), &self.present) else {
            return;
        };
        (self.room.changes.on_change)(&GroupChange {
            gone: trouble.gone,
            members: present.members.clone(),
            time: trouble.since.elapsed(),
        });
    }

    /// Removes the rows in flight: there will be no result of them.
    fn remove_flight(&mut self) {
        let Some(GroupFlight { batch, .. }) = self.flight.take() else {
            return;
        };
        for row in batch.rows.iter().rev() {
            self.history.truncate(row.seq.index, row.pos);
            // An id of the batch is of the table.
            let _ = self.seqs.truncate(row.seq, row.pos);
        }
    }
}

impl GroupRoom {
    /// Opens the best group without these nodes and those that cannot be members; all of them.
    fn open_without(
        &self,
        mut gone: Vec<NodeName>,
        why: &str,
    ) -> Result<(Present, Vec<NodeName>), Error> {
        let lost = |more: &str| Error::Lost(format!("{why}; {more}"));
        loop {
            let planned = self.changes.replan.without(&gone);
            let planned = planned.map_err(|none| lost(&none))?;
            match self.open(planned) {
                Ok(present) => return Ok((present, gone)),
                Err(FormError::Node { node, .. }) if !gone.contains(&node) => gone.push(node),
                Err(error) => return Err(lost(&Error::from(error).to_string())),
            }
        }
    }

    /// Opens the group of a plan.
    fn open(&self, planned: PlannedGroup) -> Result<Present, FormError> {
        let PlannedGroup {
            members,
            timing,
            deadline,
        } = planned;
        if members.others.is_empty() {
            return Ok(self.open_alone(members)?);
        }
        let options = RemoteGroupOptions {
            members: members.clone(),
            timing,
            deadline,
            ..self.options.clone()
        };
        let split = members.split()?;
        let lead = Member::new(split.clone(), super::member::LEAD)?;
        let (model, bound) = self.bind(Some(lead))?;
        let opener = GroupOpener {
            options: &options,
            split: &split,
        };
        let opened = opener.open(&model, &self.size, &self.budget, None)?;
        Ok(Present {
            executor: opened.executor,
            ids: BTreeMap::new(),
            ring: Some(opened.ring),
            members,
            _bound: Some(bound),
        })
    }

    /// This machine without others.
    fn open_alone(&self, members: GroupMembers) -> Result<Present, Error> {
        let (model, bound) = self.bind(None)?;
        let options = &self.options;
        let pool = Arc::clone(&options.pool);
        let size = self.size.clone();
        let cpu = Cpu::new(model, options.kernels, pool, &self.budget, size)?;
        Ok(Present {
            executor: Box::new(cpu),
            ids: BTreeMap::new(),
            ring: None,
            members,
            _bound: Some(bound),
        })
    }

    /// Binds the rows of a member, or all.
    fn bind(&self, member: Option<Member>) -> Result<(Arc<Model>, BoundRows), Error> {
        let spec = self.model.spec();
        let threads = self.options.pool.n_threads();
        let executor = Cpu::executor_bytes(spec, threads, &self.size);
        let room = Room {
            budget: &self.budget,
            beside: executor.state + executor.activations,
            n_layers: spec.layers.len(),
            n_used: n_used_experts(spec),
        };
        let mut placed = Placed::default();
        let files = (self.changes.files)()?;
        let share = Share::whole(spec);
        let weights = |files, plan| room.weights(files, plan, &mut placed);
        let bound = match member {
            Some(member) => {
                let part = MemberPart { share, member };
                Model::with_member(spec.clone(), part, files, &self.budget, weights)
            }
            None => Model::with_share(spec.clone(), share, files, &self.budget, weights),
        };
        let model = bound.map_err(|Refused(blocked)| Error::Ring(blocked.why))?;
        let _mapped = placed.mapped;
        Ok((Arc::new(model), BoundRows { _mapped }))
    }
}

impl Executor for Regrouping {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        self.check_idle()?;
        let mut rows = batch.rows.iter();
        rows.try_for_each(|row| self.check_kept(row.seq))?;
        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
        self.seqs.take_copies().for_each(drop);
        self.n_submitted += 1;
        self.flight = Some(GroupFlight {
            number: self.n_submitted,
            batch: batch.clone(),
            ticket: None,
        });
        match self.submit_flight() {
            // The collection finds other members.
            Ok(()) | Err(Error::Lost(_)) => {}
            Err(error) => {
                self.flight = None;
                self.seqs.remove(&batch.rows);
                return Err(error);
            }
        }
        self.push_history();
        Ok(Ticket(self.n_submitted))
    }

    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), Error> {
        if self.flight.as_ref().is_none_or(|flight| flight.number != n) {
            return Err(Error::Ticket(n));
        }
        let done = self.collect_flight(out);
        match &done {
            Ok(()) => {
                self.flight = None;
                self.tell();
            }
            Err(_) => {
                self.remove_flight();
                self.trouble = None;
            }
        }
        done
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {
        if let Some(present) = &mut self.present {
            present.executor.observe(observer);
        }
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let seq = self.seqs.new_seq()?;
        self.history.new_seq(seq.index);
        if let Some(present) = &mut self.present {
            let id = present.executor.new_seq()?;
            present.ids.insert(seq, id);
        }
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.check_idle()?;
        self.check_kept(seq)?;
        let fork = self.seqs.fork(seq)?;
        self.seqs.take_copies().for_each(drop);
        self.history.fork(seq.index, fork.index);
        if let Some(done) = self.with(seq, |executor, id| executor.fork(id)) {
            let id = done?;
            self.present()?.ids.insert(fork, id);
        }
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.check_idle()?;
        let left = self.seqs.truncate(seq, n)?;
        self.history.truncate(seq.index, left);
        if left == 0 {
            self.lost.remove(&seq);
        }
        let done = self.with(seq, |executor, id| executor.truncate(id, left));
        done.transpose()?;
        Ok(left)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.check_idle()?;
        self.check_kept(seq)?;
        let at = evicted.clone();
        let done = self.with(seq, |executor, id| executor.shift(id, at));
        done.unwrap_or_else(|| Err(Error::Lost("no other machine computes".to_owned())))?;
        self.seqs.evict(seq, &evicted)?;
        self.seqs.take_copies().for_each(drop);
        self.history.evict(seq.index, evicted);
        Ok(())
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.check_idle()?;
        let done = self.with(seq, |executor, id| executor.fill(id, n));
        done.unwrap_or(Err(Error::NoFill))?;
        self.seqs.add_positions(seq, n)?;
        let len = self.seqs.len(seq)?;
        if n > 0 {
            self.seqs.add_checkpoint(seq, len)?;
        }
        self.seqs.take_copies().for_each(drop);
        // No tokens lead to this state.
        self.history.evict(seq.index, 0..0);
        Ok(())
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_idle()?;
        self.seqs.drop_seq(seq)?;
        self.history.drop_seq(seq.index);
        self.lost.remove(&seq);
        let done = self.with(seq, |executor, id| executor.drop_seq(id));
        if let Some(present) = &mut self.present {
            present.ids.remove(&seq);
        }
        done.transpose().map(drop)
    }

    fn export(&self, seq: SeqId, _: Range<usize>, _: &mut dyn Write) -> Result<(), Error> {
        self.seqs.len(seq)?;
        Err(Error::State("it is at several machines"))
    }

    fn append_state(&mut self, seq: SeqId, _: &[u8], _: usize) -> Result<(), Error> {
        self.seqs.len(seq)?;
        Err(Error::State("it is at several machines"))
    }
}

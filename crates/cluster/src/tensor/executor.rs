//! An executor of several members: the lead is asked, and the others do the same.
//!
//! The lead decides whether a batch or an operation is admissible. What it admits, every member
//! admits, since all have the same ledger of sequences; a member that does not has come apart from
//! the others and ends, which the lead learns at its next batch.

use std::{
    io::Write,
    ops::Range,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use atta_model::{
    Batch, Cpu, Error, Executor, ExecutorInfo, Observer, Output, SeqId, SeqTable, Ticket,
};

/// What the lead asks the other members for, in this order.
#[derive(Clone, Debug)]
pub enum MemberCommand {
    /// Compute a batch. Its results are at the lead.
    Compute(Arc<Batch>),
    /// Make this sequence.
    New(SeqId),
    /// Copy a sequence.
    Fork {
        /// The sequence.
        from: SeqId,
        /// Its copy.
        to: SeqId,
    },
    /// Remove positions, so that so many are left.
    Truncate {
        /// The sequence.
        seq: SeqId,
        /// Positions that the lead was asked to leave.
        n: usize,
        /// Positions that are left.
        left: usize,
    },
    /// Evict positions.
    Shift {
        /// The sequence.
        seq: SeqId,
        /// The positions.
        evicted: Range<usize>,
    },
    /// Append positions without computing them.
    Fill {
        /// The sequence.
        seq: SeqId,
        /// How many.
        n: usize,
    },
    /// Remove a sequence.
    Drop(SeqId),
    /// Append positions of a written state.
    Append {
        /// The sequence.
        seq: SeqId,
        /// The state.
        state: Arc<[u8]>,
        /// Positions of it.
        n: usize,
    },
}

/// Executors of one model that compute together, each with some rows of its matrices.
pub struct TensorExecutor {
    /// Dropped first: its links end, and then the other members do.
    lead: Cpu,
    followers: Box<dyn Followers>,
}

/// The other members, as the lead sees them. Dropping it ends them.
pub(crate) trait Followers: Send {
    /// Asks all of them. One that is gone sends no columns, so the next batch fails.
    fn tell(&mut self, command: &MemberCommand);

    /// A batch begins with so many rows.
    ///
    /// # Errors
    /// [`Error::Lost`]: a member was lost before, and none is asked any more.
    fn begin(&mut self, n_rows: usize) -> Result<(), Error>;

    /// A member is lost.
    fn lose(&mut self, error: &Error);

    /// Whether written states can be sent to them.
    fn takes_states(&self) -> bool;
}

/// Members in threads of their own.
struct Threads(Vec<Follower>);

struct Follower {
    commands: mpsc::Sender<MemberCommand>,
    thread: JoinHandle<()>,
}

impl Followers for Threads {
    fn tell(&mut self, command: &MemberCommand) {
        for follower in &self.0 {
            let _ = follower.commands.send(command.clone());
        }
    }

    fn begin(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn lose(&mut self, _: &Error) {}

    fn takes_states(&self) -> bool {
        true
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for Follower { commands, thread } in self.0.drain(..) {
            drop(commands);
            // A member that panicked was an error of a batch.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for TensorExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorExecutor")
            .field("lead", &self.lead)
            .finish_non_exhaustive()
    }
}

impl TensorExecutor {
    /// Starts a thread for each member but the lead, which is the first of them.
    ///
    /// # Errors
    /// [`Error::Options`] if there are no members, or no thread starts.
    pub fn start(members: Vec<Cpu>) -> Result<Self, Error> {
        let mut members = members.into_iter();
        let Some(lead) = members.next() else {
            return Err(Error::Options("no members".to_owned()));
        };
        let start = |(i, cpu): (usize, Cpu)| {
            let (commands, to_do) = mpsc::channel();
            let name = format!("member {}", i + 1);
            let thread = std::thread::Builder::new().name(name);
            let thread = thread.spawn(move || follow(cpu, &to_do));
            let thread = thread
                .map_err(|error| Error::Options(format!("a thread for each member: {error}")))?;
            Ok(Follower { commands, thread })
        };
        let followers = members.enumerate().map(start);
        let followers = Threads(followers.collect::<Result<_, Error>>()?);
        Ok(Self::new(lead, Box::new(followers)))
    }

    /// Fails if a written state could not be sent to all members.
    fn check_states(&self, seq: SeqId) -> Result<(), Error> {
        self.seqs().len(seq)?;
        match self.followers.takes_states() {
            true => Ok(()),
            false => Err(Error::State("it is at several machines")),
        }
    }

    /// A lead, and members that are started.
    pub(crate) fn new(lead: Cpu, followers: Box<dyn Followers>) -> Self {
        Self { lead, followers }
    }
}

impl Executor for TensorExecutor {
    fn info(&self) -> &ExecutorInfo {
        self.lead.info()
    }

    fn seqs(&self) -> &SeqTable {
        self.lead.seqs()
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        self.followers.begin(batch.rows.len())?;
        let ticket = self.lead.submit(batch)?;
        self.followers
            .tell(&MemberCommand::Compute(Arc::new(batch.clone())));
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut Output) -> Result<(), Error> {
        let done = self.lead.collect(ticket, out);
        if let Err(error @ Error::Lost(_)) = &done {
            self.followers.lose(error);
        }
        done
    }

    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.lead.observe(observer);
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let seq = self.lead.new_seq()?;
        self.followers.tell(&MemberCommand::New(seq));
        Ok(seq)
    }

    fn fork(&mut self, from: SeqId) -> Result<SeqId, Error> {
        let to = self.lead.fork(from)?;
        self.followers.tell(&MemberCommand::Fork { from, to });
        Ok(to)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        let left = self.lead.truncate(seq, n)?;
        self.followers
            .tell(&MemberCommand::Truncate { seq, n, left });
        Ok(left)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.lead.shift(seq, evicted.clone())?;
        self.followers.tell(&MemberCommand::Shift { seq, evicted });
        Ok(())
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.lead.fill(seq, n)?;
        self.followers.tell(&MemberCommand::Fill { seq, n });
        Ok(())
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.lead.drop_seq(seq)?;
        self.followers.tell(&MemberCommand::Drop(seq));
        Ok(())
    }

    /// The state is whole at every member.
    fn export(
        &self,
        seq: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.check_states(seq)?;
        self.lead.export(seq, positions, out)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.check_states(seq)?;
        self.lead.append_state(seq, state, n)?;
        self.followers.tell(&MemberCommand::Append {
            seq,
            state: state.into(),
            n,
        });
        Ok(())
    }
}

/// Does what the lead asks for, until there is no lead or this member has come apart from it.
fn follow(mut cpu: Cpu, commands: &mpsc::Receiver<MemberCommand>) {
    let mut out = Output::default();
    while let Ok(command) = commands.recv() {
        if obey(&mut cpu, &command, &mut out).is_none() {
            return;
        }
    }
}

/// Does one thing. `None`: not what the lead did.
pub(super) fn obey(cpu: &mut Cpu, command: &MemberCommand, out: &mut Output) -> Option<()> {
    match *command {
        MemberCommand::Compute(ref batch) => {
            let ticket = cpu.submit(batch).ok()?;
            // A batch that fails here fails everywhere, and its rows are removed everywhere.
            let _ = cpu.collect(ticket, out);
            Some(())
        }
        MemberCommand::New(seq) => is(cpu.new_seq(), seq),
        MemberCommand::Fork { from, to } => is(cpu.fork(from), to),
        MemberCommand::Truncate { seq, n, left } => is(cpu.truncate(seq, n), left),
        MemberCommand::Shift { seq, ref evicted } => cpu.shift(seq, evicted.clone()).ok(),
        MemberCommand::Fill { seq, n } => cpu.fill(seq, n).ok(),
        MemberCommand::Drop(seq) => cpu.drop_seq(seq).ok(),
        MemberCommand::Append { seq, ref state, n } => cpu.append_state(seq, state, n).ok(),
    }
}

/// Whether the result is that of the lead.
fn is<T: PartialEq>(got: Result<T, Error>, expected: T) -> Option<()> {
    got.is_ok_and(|got| got == expected).then_some(())
}

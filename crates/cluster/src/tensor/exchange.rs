//! The exchange of columns between members, over links that keep the order of messages.
//!
//! For every unit a member sends one [`Message::Columns`] to each member of its audience, and takes
//! one from each other member; their bytes are in [`wire`](crate::wire). The last unit of a batch
//! has no numbers: a member that has it from all others knows that all have computed the batch. A
//! member that fails says so to all others, and so does each that hears
//! of it; messages of such a batch that come late are skipped, since they have its number. Any
//! other message than the expected one is an error, so that a lost, doubled or foreign one never
//! becomes a wrong number.

use std::sync::{Arc, mpsc};

use atta_model::{Audience, Error, Exchange, Unit};

use super::MemberCommand;

/// What a member sends to another one.
#[derive(Clone, Debug)]
pub enum Message {
    /// Its columns of a unit.
    Columns {
        /// The batch.
        batch: u64,
        /// The unit of the batch.
        unit: u32,
        /// The numbers, of each product row by row.
        numbers: Arc<[f32]>,
    },
    /// It does not complete a batch.
    Failed {
        /// The batch.
        batch: u64,
        /// The member that is to blame, as far as it knows.
        member: usize,
    },
    /// The lead's next command.
    Command(Arc<MemberCommand>),
}

impl Message {
    /// Whether it belongs to an earlier batch.
    fn is_before(&self, now: u64) -> bool {
        match self {
            Self::Columns { batch, .. } | Self::Failed { batch, .. } => *batch < now,
            Self::Command(_) => false,
        }
    }
}

/// Carries messages between this member and the others. Messages on a link arrive in order, or the
/// link is gone for good.
pub trait MemberLinks: Send {
    /// Sends to a member, unless the link is gone: then [`recv`](Self::recv) tells.
    fn send(&mut self, to: usize, message: Message);

    /// Waits for the next message of a member; `None` if the link is gone.
    fn recv(&mut self, from: usize) -> Option<Message>;
}

/// An exchange over links.
#[derive(Debug)]
pub struct LinkExchange<L> {
    links: L,
    /// The number of this member.
    index: usize,
    /// Names of all members, if they have any.
    names: Vec<String>,
    /// The member that is to blame for the failure of the batch.
    blamed: Option<usize>,
}

impl<L: MemberLinks> LinkExchange<L> {
    /// The exchange of member `index`.
    pub fn new(links: L, index: usize) -> Self {
        Self::with_names(links, index, Vec::new())
    }

    /// The exchange of member `index` of those with these names, for errors.
    pub fn with_names(links: L, index: usize, names: Vec<String>) -> Self {
        Self {
            links,
            index,
            names,
            blamed: None,
        }
    }

    fn name(&self, member: usize) -> String {
        let name = self.names.get(member).cloned();
        name.unwrap_or_else(|| format!("member {member} of a stage"))
    }

    /// Takes the columns of one other member.
    fn take(&mut self, from: usize, unit: Unit, numbers: &mut [f32]) -> Result<(), Error> {
        let message = loop {
            match self.links.recv(from) {
                Some(message) if message.is_before(unit.batch) => {}
                Some(message) => break message,
                None => return Err(self.lost(from, "is gone")),
            }
        };
        match message {
            Message::Columns {
                batch,
                unit: index,
                numbers: got,
            } if (batch, index, got.len()) == (unit.batch, unit.index, numbers.len()) => {
                numbers.copy_from_slice(&got);
                Ok(())
            }
            Message::Failed { batch, member } if batch == unit.batch => {
                let why = match member == from {
                    true => "has failed to compute a batch".to_owned(),
                    false => format!("is lost to {}", self.name(from)),
                };
                Err(self.lost(member, &why))
            }
            _ => {
                let n = numbers.len();
                let Unit { batch, index, .. } = unit;
                let expected = format!("{n} numbers of unit {index} of batch {batch}");
                let why = format!("is at another place than the others: expected {expected}");
                Err(self.lost(from, &why))
            }
        }
    }

    /// The loss of a member.
    fn lost(&mut self, member: usize, why: &str) -> Error {
        self.blamed = Some(member);
        Error::Lost(format!("{} {why}", self.name(member)))
    }
}

impl<L: MemberLinks> Exchange for LinkExchange<L> {
    fn gather(&mut self, unit: Unit, own: &[f32], others: &mut [Vec<f32>]) -> Result<(), Error> {
        let index = self.index;
        let is_other = |m: &usize| *m != index;
        let has_audience = |m: &usize| match unit.audience {
            Audience::All => true,
            Audience::Lead => *m == 0,
        };
        let numbers: Arc<[f32]> = own.into();
        for to in (0..others.len()).filter(is_other).filter(has_audience) {
            let message = Message::Columns {
                batch: unit.batch,
                unit: unit.index,
                numbers: numbers.clone(),
            };
            self.links.send(to, message);
        }
        if !has_audience(&index) {
            return Ok(());
        }
        let others = others.iter_mut().enumerate();
        others
            .filter(|(from, _)| is_other(from))
            .try_for_each(|(from, numbers)| self.take(from, unit, numbers))
    }

    fn fail(&mut self, batch: u64, n_members: usize) {
        let member = self.blamed.take().unwrap_or(self.index);
        for to in (0..n_members).filter(|&m| m != self.index) {
            self.links.send(to, Message::Failed { batch, member });
        }
    }
}

/// MemberLinks between threads of this process.
#[derive(Debug)]
pub struct ThreadLinks {
    /// To each member; `None`: this one.
    to: Vec<Option<mpsc::Sender<Message>>>,
    /// From each member.
    from: Vec<Option<mpsc::Receiver<Message>>>,
}

impl ThreadLinks {
    /// MemberLinks of `n` members, each with all others.
    pub fn mesh(n: usize) -> Vec<Self> {
        let none = |_| Self {
            to: (0..n).map(|_| None).collect(),
            from: (0..n).map(|_| None).collect(),
        };
        let mut all: Vec<Self> = (0..n).map(none).collect();
        for from in 0..n {
            for to in (0..n).filter(|&to| to != from) {
                let (sender, receiver) = mpsc::channel();
                all[from].to[to] = Some(sender);
                all[to].from[from] = Some(receiver);
            }
        }
        all
    }
}

impl MemberLinks for ThreadLinks {
    fn send(&mut self, to: usize, message: Message) {
        if let Some(Some(link)) = self.to.get(to) {
            // A member that is gone sends nothing either.
            let _ = link.send(message);
        }
    }

    fn recv(&mut self, from: usize) -> Option<Message> {
        self.from.get(from)?.as_ref()?.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(batch: u64, index: u32) -> Unit {
        Unit {
            batch,
            index,
            audience: Audience::All,
        }
    }

    fn columns(batch: u64, unit: u32, numbers: &[f32]) -> Message {
        Message::Columns {
            batch,
            unit,
            numbers: numbers.into(),
        }
    }

    fn failed(batch: u64) -> Message {
        Message::Failed { batch, member: 1 }
    }

    /// What member 0 takes of two numbers of unit 3 of batch 7, after member 1 has sent these.
    fn taken(messages: &[Message]) -> Result<Vec<f32>, String> {
        let mut mesh = ThreadLinks::mesh(2).into_iter();
        let mut lead = LinkExchange::new(mesh.next().unwrap(), 0);
        let mut other = mesh.next().unwrap();
        messages.iter().for_each(|m| other.send(0, m.clone()));
        drop(other);
        let mut others = [vec![], vec![0.0; 2]];
        lead.gather(unit(7, 3), &[], &mut others)
            .map_err(|error| error.to_string())?;
        Ok(others[1].clone())
    }

    #[test]
    fn the_expected_columns_are_taken_and_those_of_failed_batches_skipped() {
        let expected = columns(7, 3, &[1.0, 2.0]);
        assert_eq!(taken(std::slice::from_ref(&expected)).unwrap(), [1.0, 2.0]);
        let late = [columns(6, 3, &[5.0; 2]), failed(6)];
        let all = [&late[..], &[expected]].concat();
        assert_eq!(taken(&all).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn any_other_message_is_an_error_and_no_number() {
        for (wrong, what) in [
            (columns(7, 2, &[1.0, 2.0]), "another place"),
            (columns(7, 4, &[1.0, 2.0]), "another place"),
            (columns(8, 3, &[1.0, 2.0]), "another place"),
            (columns(7, 3, &[1.0]), "another place"),
            (failed(7), "has failed"),
        ] {
            let error = taken(&[wrong]).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        let error = taken(&[]).unwrap_err();
        assert!(error.contains("is gone"), "{error}");
    }

    #[test]
    fn columns_for_the_lead_are_taken_by_it_alone() {
        let mut mesh = ThreadLinks::mesh(2).into_iter();
        let [lead, other] = [0, 1].map(|i| LinkExchange::new(mesh.next().unwrap(), i));
        let [mut lead, mut other] = [lead, other];
        let logits = Unit {
            audience: Audience::Lead,
            ..unit(0, 0)
        };
        other.gather(logits, &[4.0], &mut [vec![], vec![]]).unwrap();
        let mut others = [vec![], vec![0.0]];
        lead.gather(logits, &[], &mut others).unwrap();
        assert_eq!(others[1], [4.0]);
    }
}

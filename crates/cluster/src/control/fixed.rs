//! [`Control`] over known addresses: nodes are asked at addresses that are given, remembered or
//! heard of, and tell each other the addresses that they know.
//!
//! Knows no socket: a [`Switchboard`] carries questions, a lane's doors for instance; beacons are
//! one of the ways to hear of an address ([`FixedControl::hear_of`]). The one
//! idea: a member is a node that has just answered. A question about members carries the address
//! of the node that asks, if it takes connections, and the answer those of others; so it is enough
//! to know one node of a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Answerer, Change, Control, ControlError, MAX_MESSAGE, NodeName, Watcher};
use crate::wire::message::{Answer, MAX_MEMBERS, NodeAddress, Question};

/// Time for the answer of a member to the question who is there.
const MEMBERS: Duration = Duration::from_millis(1500);
/// Rounds of questions to addresses that answers brought.
const ROUNDS: usize = 3;
/// Most addresses that wait to be asked.
const MAX_HEARD: usize = 64;
/// Time between looks at the members, while they are watched.
const WATCH: Duration = Duration::from_secs(2);

/// Carries questions to addresses, and questions of others to an answerer.
pub trait Switchboard: Send + Sync {
    /// Asks the node at an address; with a name, only the node of this name.
    ///
    /// # Errors
    /// No connection, another node, no answer in time.
    fn ask(
        &self,
        address: SocketAddr,
        node: Option<&NodeName>,
        question: &[u8],
        deadline: Duration,
    ) -> io::Result<Vec<u8>>;

    /// Sets the function that answers questions of others.
    ///
    /// # Errors
    /// There is one already.
    fn answer(&self, answerer: Answerer) -> io::Result<()>;

    /// Where this node is reached from another address, if the way there tells it.
    fn reached_from(&self, _address: SocketAddr) -> Option<SocketAddr> {
        None
    }
}

/// A network of known addresses.
pub struct FixedControl {
    shared: Arc<Shared>,
}

struct Shared {
    switchboard: Arc<dyn Switchboard>,
    name: NodeName,
    /// Where this node takes connections; `None`: it only asks.
    address: Option<SocketAddr>,
    /// Addresses at which nodes were promised, beside those of known nodes.
    peers: Vec<SocketAddr>,
    /// Addresses that were heard of and not asked yet.
    heard: Mutex<Vec<SocketAddr>>,
    book: Mutex<BTreeMap<NodeName, Entry>>,
    /// Names that two nodes have.
    namesakes: Mutex<BTreeMap<NodeName, [SocketAddr; 2]>>,
    answerer: OnceLock<Answerer>,
    is_announced: AtomicBool,
    is_over: AtomicBool,
}

/// Nodes that have answered.
#[derive(Default)]
struct Met {
    /// Where each was met first.
    nodes: BTreeMap<NodeName, SocketAddr>,
    /// Names that have answered at another address, too.
    again: Vec<(NodeName, [SocketAddr; 2])>,
    /// Whether another node has the name of this one.
    is_taken: bool,
}

impl Met {
    /// Takes the answer of an address to the node `own`, and returns the addresses in it.
    fn take(&mut self, own: &NodeName, address: SocketAddr, answer: Answer) -> Vec<SocketAddr> {
        let Answer::Members {
            name,
            is_announced,
            others,
        } = answer
        else {
            return Vec::new();
        };
        if is_announced && name == *own {
            self.is_taken = true;
        } else if is_announced {
            match self.nodes.get(&name) {
                Some(first) => self.again.push((name, [*first, address])),
                None => drop(self.nodes.insert(name, address)),
            }
        }
        others.iter().map(|other| other.address).collect()
    }
}

/// A node that was heard of.
#[derive(Clone, Copy)]
struct Entry {
    /// Where it was reached, or says that it is.
    address: SocketAddr,
    /// Where it says that it is, if it was reached elsewhere: it may have been started again.
    also: Option<SocketAddr>,
    /// Whether it answered the last question who is there.
    is_member: bool,
}

impl Entry {
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        std::iter::once(self.address).chain(self.also)
    }
}

impl std::fmt::Debug for FixedControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FixedControl")
            .field("name", &self.shared.name)
            .field("peers", &self.shared.peers)
            .finish_non_exhaustive()
    }
}

impl FixedControl {
    /// A node that knows these addresses. It asks and answers nothing yet.
    ///
    /// # Errors
    /// The switchboard has an answerer already.
    pub fn open(
        switchboard: Arc<dyn Switchboard>,
        name: NodeName,
        address: Option<SocketAddr>,
        peers: Vec<SocketAddr>,
    ) -> Result<Self, ControlError> {
        let shared = Arc::new(Shared {
            switchboard,
            name,
            address,
            peers,
            heard: Mutex::default(),
            book: Mutex::default(),
            namesakes: Mutex::default(),
            answerer: OnceLock::new(),
            is_announced: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let asked = Arc::downgrade(&shared);
        let answer = move |question: &[u8]| match asked.upgrade() {
            Some(shared) => shared.answer(question),
            None => Vec::new(),
        };
        let set = shared.switchboard.answer(Box::new(answer));
        set.map_err(|error| ControlError::Network(error.to_string()))?;
        Ok(Self { shared })
    }

    /// Remembers where a node is that was found by other means.
    pub fn introduce(&self, node: NodeAddress) {
        self.shared.note(node, true);
    }

    /// Notes addresses at which nodes may be. They are asked once, with the next look at the
    /// members; a node that answers is known from then on. Whether there is a new one.
    pub fn hear_of(&self, addresses: &[SocketAddr]) -> bool {
        let members: Vec<SocketAddr> = {
            let book = self.shared.book();
            let members = book.values().filter(|entry| entry.is_member);
            members.map(|entry| entry.address).collect()
        };
        let mut heard = self.shared.heard();
        for address in addresses {
            let is_new = !members.contains(address) && !heard.contains(address);
            if is_new && heard.len() < MAX_HEARD {
                heard.push(*address);
            }
        }
        !heard.is_empty()
    }

    /// All nodes that were heard of, with the address at which each was last reached.
    pub fn known(&self) -> Vec<NodeAddress> {
        let book = self.shared.book();
        let known = book.iter().map(|(name, entry)| NodeAddress {
            name: name.clone(),
            address: entry.address,
        });
        known.collect()
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, BTreeMap<NodeName, Entry>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namesakes(&self) -> MutexGuard<'_, BTreeMap<NodeName, [SocketAddr; 2]>> {
        let namesakes = self.namesakes.lock();
        namesakes.unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, question: &[u8]) -> Vec<u8> {
        if self.is_over.load(Ordering::Acquire) {
            return Vec::new();
        }
        match Question::parse(question) {
            Ok(Question::Members { from }) => {
                if let Some(from) = from.filter(|from| from.name != self.name) {
                    self.note_asker(from);
                }
                self.members_answer()
            }
            _ => self.answerer.get().map_or(Vec::new(), |a| a(question)),
        }
    }

    fn members_answer(&self) -> Vec<u8> {
        let book = self.book();
        let is_local = self.address.is_some_and(|own| own.ip().is_loopback());
        let is_told = |address: &SocketAddr| {
            let is_far = !address.ip().is_loopback() || is_local;
            is_far && !is_of_one_link(*address)
        };
        let members = book.iter().filter(|(_, entry)| entry.is_member);
        let others = members.flat_map(|(name, entry)| {
            let of_node = |address| NodeAddress {
                name: name.clone(),
                address,
            };
            entry.addresses().filter(is_told).map(of_node)
        });
        let answer = Answer::Members {
            name: self.name.clone(),
            is_announced: self.is_announced.load(Ordering::Acquire),
            others: others.take(MAX_MEMBERS).collect(),
        };
        answer.to_bytes().unwrap_or_default()
    }

    /// Remembers a node that asks. Where it was reached counts more than where it says it is: it
    /// may have several addresses, and not know which of them leads there from here.
    fn note_asker(&self, from: NodeAddress) {
        if let Some(entry) = self.book().get_mut(&from.name)
            && entry.is_member
        {
            entry.also = Some(from.address).filter(|address| *address != entry.address);
            return;
        }
        self.note(from, true);
    }

    /// Remembers a node. Where there is no room, a node that does not answer goes.
    fn note(&self, node: NodeAddress, is_member: bool) {
        let mut book = self.book();
        if book.len() >= MAX_MEMBERS && !book.contains_key(&node.name) {
            let silent = book.iter().find(|(_, entry)| !entry.is_member);
            let Some(silent) = silent.map(|(name, _)| name.clone()) else {
                return;
            };
            book.remove(&silent);
        }
        let entry = Entry {
            address: node.address,
            also: None,
            is_member,
        };
        book.insert(node.name, entry);
    }

    /// Asks all known addresses who is there, and those that the answers bring. Whether another
    /// node has the name of this one.
    fn refresh(&self) -> bool {
        let mut asked = BTreeSet::new();
        let mut met = Met::default();
        let mut next = self.peers.clone();
        next.append(&mut self.heard());
        next.extend(self.book().values().flat_map(Entry::addresses));
        for _ in 0..ROUNDS {
            next.retain(|address| Some(*address) != self.address && asked.insert(*address));
            let answers = self.ask_all(&next);
            next.clear();
            for (address, answer) in answers {
                next.extend(met.take(&self.name, address, answer));
            }
        }
        for (name, &address) in &met.nodes {
            let name = name.clone();
            self.note(NodeAddress { name, address }, true);
        }
        for (name, entry) in self.book().iter_mut() {
            entry.is_member = met.nodes.contains_key(name);
        }
        met.again.retain(|(_, places)| self.are_two(places));
        *self.namesakes() = met.again.into_iter().collect();
        met.is_taken
    }

    /// Whether nodes of one name at two addresses are two. One that has several addresses tells the
    /// same ones at each.
    fn are_two(&self, places: &[SocketAddr; 2]) -> bool {
        let question = Question::Describe.to_bytes().unwrap_or_default();
        let ask = |address: &SocketAddr| {
            let answer = self.switchboard.ask(*address, None, &question, MEMBERS);
            match Answer::parse(&answer.ok()?).ok()? {
                Answer::Card(card) => Some(card.addresses),
                _ => None,
            }
        };
        let [first, second] = places.each_ref().map(ask);
        first.zip(second).is_some_and(|(a, b)| a != b)
    }

    fn ask_all(&self, addresses: &[SocketAddr]) -> Vec<(SocketAddr, Answer)> {
        let own = self
            .address
            .filter(|_| self.is_announced.load(Ordering::Acquire));
        let ask = |address: SocketAddr| {
            let own = own.map(|own| self.seen_from(address, own));
            let own = own.filter(|own| is_reachable(*own, address));
            let from = own.map(|address| NodeAddress {
                name: self.name.clone(),
                address,
            });
            let question = Question::Members { from }.to_bytes().ok()?;
            let answer = self.switchboard.ask(address, None, &question, MEMBERS);
            Some((address, Answer::parse(&answer.ok()?).ok()?))
        };
        thread::scope(|scope| {
            let asks = addresses.iter().take(MAX_MEMBERS);
            let asks: Vec<_> = asks.map(|&a| scope.spawn(move || ask(a))).collect();
            let answers = asks.into_iter().filter_map(|ask| ask.join().ok().flatten());
            answers.collect()
        })
    }

    /// This node's address as another one reaches it; `own` for programs of this machine, which
    /// may tell others.
    fn seen_from(&self, address: SocketAddr, own: SocketAddr) -> SocketAddr {
        match address.ip().is_loopback() {
            true => own,
            false => self.switchboard.reached_from(address).unwrap_or(own),
        }
    }

    fn member_names(&self) -> Vec<NodeName> {
        self.refresh();
        let book = self.book();
        let members = book.iter().filter(|(_, entry)| entry.is_member);
        let own = self.is_announced.load(Ordering::Acquire);
        let names = members.map(|(name, _)| name.clone());
        let names: BTreeSet<NodeName> = names.chain(own.then(|| self.name.clone())).collect();
        names.into_iter().collect()
    }
}

impl Control for FixedControl {
    fn announce(&self) -> Result<(), ControlError> {
        if self.shared.refresh() {
            return Err(ControlError::Taken(self.shared.name.clone()));
        }
        self.shared.is_announced.store(true, Ordering::Release);
        // The others hear of this node.
        self.shared.refresh();
        Ok(())
    }

    fn members(&self) -> Result<Vec<NodeName>, ControlError> {
        Ok(self.shared.member_names())
    }

    fn ask(
        &self,
        node: &NodeName,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ControlError> {
        check_length(question.len())?;
        let silent = || ControlError::Silent {
            node: node.clone(),
            deadline,
        };
        let address = match self.address(node) {
            Some(address) => address,
            None => {
                self.shared.refresh();
                self.address(node).ok_or_else(silent)?
            }
        };
        let board = &self.shared.switchboard;
        let answer = board.ask(address, Some(node), question, deadline);
        let answer = answer.map_err(|_| silent())?;
        check_length(answer.len())?;
        match answer.is_empty() {
            true => Err(silent()),
            false => Ok(answer),
        }
    }

    fn answer(&self, answerer: Answerer) -> Result<(), ControlError> {
        let set = self.shared.answerer.set(answerer);
        set.map_err(|_| ControlError::Network("questions are answered already".to_owned()))
    }

    fn watch(&self, watcher: Watcher) -> Result<(), ControlError> {
        let shared = Arc::downgrade(&self.shared);
        let thread = thread::Builder::new().name("members".to_owned());
        let thread = thread.spawn(move || watch(&shared, &watcher));
        thread.map_err(|error| ControlError::Network(error.to_string()))?;
        Ok(())
    }

    fn address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.shared.book().get(node).map(|entry| entry.address)
    }

    fn namesakes(&self, node: &NodeName) -> Option<[SocketAddr; 2]> {
        self.shared.namesakes().get(node).copied()
    }

    fn close(&self) {
        self.shared.is_announced.store(false, Ordering::Release);
        self.shared.is_over.store(true, Ordering::Release);
    }
}

/// Tells changes of the membership until the network is closed.
fn watch(shared: &Weak<Shared>, watcher: &Watcher) {
    let mut before = BTreeSet::new();
    while let Some(shared) = shared.upgrade() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let now: BTreeSet<NodeName> = shared.member_names().into_iter().collect();
        drop(shared);
        let joined = now.difference(&before).cloned().map(Change::Joined);
        let left = before.difference(&now).cloned().map(Change::Left);
        joined.chain(left).for_each(watcher);
        before = now;
        thread::sleep(WATCH);
    }
}

/// Whether an address of this machine can lead back from a node at another address. Loopback leads
/// only to programs of this machine.
fn is_reachable(own: SocketAddr, from: SocketAddr) -> bool {
    !own.ip().is_loopback() || from.ip().is_loopback()
}

/// Whether an address means something on one link only, and to one machine.
fn is_of_one_link(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn check_length(n: usize) -> Result<(), ControlError> {
    match n <= MAX_MESSAGE {
        true => Ok(()),
        false => Err(ControlError::TooLong { n }),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::mpsc};

    use super::*;
    use crate::wire::message::{Card, MemoryNumbers};

    /// The doors of all nodes of a test.
    type Doors = Arc<Mutex<HashMap<SocketAddr, Arc<Answerer>>>>;

    struct Board {
        own: Option<SocketAddr>,
        doors: Doors,
    }

    impl Switchboard for Board {
        fn ask(
            &self,
            address: SocketAddr,
            _: Option<&NodeName>,
            question: &[u8],
            _: Duration,
        ) -> io::Result<Vec<u8>> {
            let door = self.doors.lock().unwrap().get(&address).cloned();
            let door = door.ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(door(question))
        }

        fn answer(&self, answerer: Answerer) -> io::Result<()> {
            if let Some(own) = self.own {
                let door = Arc::new(answerer);
                self.doors.lock().unwrap().insert(own, door);
            }
            Ok(())
        }
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn node(doors: &Doors, node: &str, port: Option<u16>, peers: &[u16]) -> FixedControl {
        let own = port.map(at);
        let board = Board {
            own,
            doors: Arc::clone(doors),
        };
        let peers = peers.iter().copied().map(at).collect();
        FixedControl::open(Arc::new(board), name(node), own, peers).unwrap()
    }

    /// The card of a node at these ports.
    fn card(ports: &[u16]) -> Card {
        Card {
            name: name("pi"),
            program: "1".to_owned(),
            protocol: 2,
            isa: "scalar".to_owned(),
            n_threads: 1,
            addresses: ports.iter().copied().map(at).collect(),
            memory: MemoryNumbers {
                all_bytes: 0,
                free_bytes: 0,
            },
            disk_free_bytes: None,
            measure: None,
            celsius: None,
            is_throttled: false,
            held: None,
            events: Vec::new(),
        }
    }

    fn names(control: &FixedControl) -> Vec<String> {
        let members = control.members().unwrap();
        members.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn to_know_one_node_is_enough() {
        let doors = Doors::default();
        let first = node(&doors, "first", Some(1), &[]);
        first.announce().unwrap();
        let second = node(&doors, "second", Some(2), &[1]);
        second.announce().unwrap();
        let third = node(&doors, "third", Some(3), &[1, 9]);
        third.announce().unwrap();
        let asking = node(&doors, "lap", None, &[2]);
        for control in [&first, &second, &third, &asking] {
            assert_eq!(names(control), ["first", "second", "third"]);
        }
        third
            .answer(Box::new(|q| [b"third: ", q].concat()))
            .unwrap();
        let answer = asking.ask(&name("third"), b"how?", MEMBERS).unwrap();
        assert_eq!(answer, b"third: how?");
        assert_eq!(asking.address(&name("third")), Some(at(3)));

        doors.lock().unwrap().remove(&at(2));
        assert_eq!(names(&first), ["first", "third"]);
        let gone = first.ask(&name("second"), b"?", MEMBERS);
        assert!(matches!(gone, Err(ControlError::Silent { .. })), "{gone:?}");
        let unknown = asking.ask(&name("fourth"), b"?", MEMBERS);
        assert!(matches!(unknown, Err(ControlError::Silent { .. })));
        let too_long = asking.ask(&name("third"), &vec![0; MAX_MESSAGE + 1], MEMBERS);
        assert!(matches!(too_long, Err(ControlError::TooLong { .. })));
    }

    #[test]
    fn an_address_that_was_heard_of_is_asked_once() {
        let doors = Doors::default();
        let first = node(&doors, "first", Some(1), &[]);
        first.announce().unwrap();
        let asking = node(&doors, "lap", None, &[]);
        assert!(names(&asking).is_empty());
        assert!(asking.hear_of(&[at(1), at(7), at(1)]));
        assert_eq!(asking.shared.heard().len(), 2);
        assert_eq!(names(&asking), ["first"]);
        assert!(asking.shared.heard().is_empty());
        // It is known now.
        assert_eq!(names(&asking), ["first"]);
        assert!(!asking.hear_of(&[at(1)]));
        let many: Vec<SocketAddr> = (0..1000).map(at).collect();
        asking.hear_of(&many);
        assert_eq!(asking.shared.heard().len(), MAX_HEARD);
    }

    #[test]
    fn loopback_is_told_to_programs_of_the_same_machine_only() {
        let doors = Doors::default();
        let other = node(&doors, "other", Some(1), &[]);
        other.announce().unwrap();
        let own: SocketAddr = "127.0.0.1:9990".parse().unwrap();
        let board = Board {
            own: Some(own),
            doors: Arc::clone(&doors),
        };
        let here = FixedControl::open(Arc::new(board), name("here"), Some(own), vec![at(1)]);
        here.unwrap().announce().unwrap();
        assert_eq!(other.address(&name("here")), None);
        assert!(is_reachable(own, own) && is_reachable(at(1), own));
    }

    #[test]
    fn a_node_on_loopback_is_not_told_to_other_machines() {
        let doors = Doors::default();
        let first = node(&doors, "first", Some(1), &[]);
        first.announce().unwrap();
        let here = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        for (other, address) in [("near", here(1)), ("far", at(2))] {
            let name = name(other);
            first.shared.note(NodeAddress { name, address }, true);
        }
        let answer = Answer::parse(&first.shared.members_answer()).unwrap();
        let Answer::Members { others, .. } = answer else {
            panic!("{answer:?}");
        };
        let others: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        assert_eq!(others, ["far"]);
    }

    #[test]
    fn two_nodes_of_one_name_are_told_apart_from_one_with_two_addresses() {
        let doors = Doors::default();
        // Neither knows of the other.
        let twin = |port: u16, own: &[u16]| {
            let twin = node(&doors, "pi", Some(port), &[]);
            let card = Answer::Card(Box::new(card(own))).to_bytes().unwrap();
            twin.answer(Box::new(move |_| card.clone())).unwrap();
            twin.announce().unwrap();
            twin
        };
        let first = twin(1, &[1, 3]);
        let other = node(&doors, "lap", None, &[1, 3]);
        let door = doors.lock().unwrap()[&at(1)].clone();
        doors.lock().unwrap().insert(at(3), door);
        assert_eq!(names(&other), ["pi"]);
        assert_eq!(
            other.namesakes(&name("pi")),
            None,
            "one node, two addresses"
        );
        let second = twin(2, &[2]);
        let other = node(&doors, "lap", None, &[1, 2]);
        assert_eq!(names(&other), ["pi"]);
        assert_eq!(other.namesakes(&name("pi")), Some([at(1), at(2)]));
        second.close();
        assert_eq!(names(&other), ["pi"]);
        assert_eq!(other.namesakes(&name("pi")), None);
        drop(first);
    }

    #[test]
    fn where_a_node_was_reached_counts_more_than_where_it_says_it_is() {
        let doors = Doors::default();
        let first = node(&doors, "first", Some(1), &[2]);
        first.announce().unwrap();
        let second = node(&doors, "second", Some(2), &[1]);
        second.announce().unwrap();
        assert_eq!(names(&first), ["first", "second"]);
        let from = |port| NodeAddress {
            name: name("second"),
            address: at(port),
        };
        first.shared.note_asker(from(99));
        assert_eq!(first.address(&name("second")), Some(at(2)));
        // Elsewhere, after it has gone.
        doors.lock().unwrap().remove(&at(2));
        assert_eq!(names(&first), ["first"]);
        first.shared.note_asker(from(99));
        assert_eq!(first.address(&name("second")), Some(at(99)));
    }

    #[test]
    fn a_name_is_given_once_and_a_node_that_closes_is_gone() {
        let doors = Doors::default();
        let first = node(&doors, "pi", Some(1), &[]);
        first.announce().unwrap();
        let other = node(&doors, "pi", Some(2), &[1]);
        assert!(matches!(other.announce(), Err(ControlError::Taken(_))));
        let again = node(&doors, "pi", Some(1), &[1]);
        assert!(again.announce().is_ok(), "the same node at its address");
        let asking = node(&doors, "lap", None, &[1]);
        let (changes, seen) = mpsc::channel();
        asking
            .watch(Box::new(move |change| changes.send(change).unwrap()))
            .unwrap();
        let patience = Duration::from_secs(10);
        let joined = seen.recv_timeout(patience).unwrap();
        assert_eq!(joined, Change::Joined(name("pi")));
        again.close();
        assert!(names(&asking).is_empty());
        let left = seen.recv_timeout(patience).unwrap();
        assert_eq!(left, Change::Left(name("pi")));
    }
}

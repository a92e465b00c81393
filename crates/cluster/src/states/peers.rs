//! States of other machines of a ring: asked for by their names, and kept as if they were ours.
//!
//! ```text
//! wish   names, at most 256
//! id i   bytes of the file of name i, in order; files that are not there are left out
//! ```
//! Knows no layer and no text. The one idea: a state that comes is a file like one that was saved,
//! and counts if its checksum is right; a machine that is silent costs some seconds, once.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::{KeptState, StatesFolder, make_private};
use crate::{
    PartLinks,
    key::create_private,
    part::{MAX_STATES, PartWish, part_frame},
    wire::{
        Frame, FrameKind, MAX_PART_BYTES,
        message::{Digest, NodeAddress, PartRequest},
    },
};

/// Time for states of others. The coordinator allows a load a second more.
const FETCH: Duration = Duration::from_secs(4);

/// Other machines that may have states.
#[derive(Clone)]
pub(crate) struct StatePeers {
    pub(crate) links: Arc<dyn PartLinks>,
    /// The model whose states these are.
    pub(crate) model: Digest,
    /// The machines, in the order in which to ask them.
    pub(crate) nodes: Arc<dyn Fn() -> Vec<NodeAddress> + Send + Sync>,
}

impl StatePeers {
    /// Fetches states into a folder, as far as others have them and send them in time.
    pub(super) fn fetch(&self, folder: &StatesFolder, names: Vec<Digest>) {
        let is_over = Arc::<AtomicBool>::default();
        let asking = Asking {
            peers: self.clone(),
            folder: folder.clone(),
            is_over: Arc::clone(&is_over),
        };
        let (end, done) = mpsc::sync_channel(1);
        let asked = thread::Builder::new().name("states".to_owned());
        let asked = asked.spawn(move || {
            asking.ask_all(names);
            // It may have been waited for long enough.
            let _ = end.send(());
        });
        if asked.is_ok() {
            let _ = done.recv_timeout(FETCH);
        }
        is_over.store(true, Ordering::Release);
    }
}

/// What a thread asks others for.
struct Asking {
    peers: StatePeers,
    folder: StatesFolder,
    is_over: Arc<AtomicBool>,
}

impl Asking {
    /// Asks each machine for what those before it did not have.
    fn ask_all(&self, mut names: Vec<Digest>) {
        for node in (self.peers.nodes)() {
            if names.is_empty() || self.is_over.load(Ordering::Acquire) {
                return;
            }
            let parts = names.chunks(MAX_STATES);
            let came = parts
                .flat_map(|names| self.ask(&node, names))
                .collect::<Vec<_>>();
            names.retain(|name| !came.contains(name));
        }
    }

    /// Asks one machine; the states that have come.
    fn ask(&self, node: &NodeAddress, names: &[Digest]) -> Vec<Digest> {
        let request = PartRequest {
            model: self.peers.model,
            wish: PartWish::States(names.to_vec()),
        };
        let mut arrivals = Arrivals::new(&self.folder, names);
        // States that came before a connection was lost are as good as all.
        let _ = self
            .peers
            .links
            .pull(
                node,
                &request,
                &mut |frame| match self.is_over.load(Ordering::Acquire) {
                    true => ControlFlow::Break(()),
                    false => arrivals.take(&frame),
                },
            );
        arrivals.end()
    }
}

/// States that come over one connection, one behind the other.
struct Arrivals<'a> {
    folder: &'a StatesFolder,
    names: &'a [Digest],
    /// The file that comes, and its number.
    coming: Option<(usize, NewFile)>,
    /// Bytes of all files so far.
    n_bytes: u64,
    whole: Vec<Digest>,
}

/// A file whose bytes are not all there.
struct NewFile {
    path: PathBuf,
    file: BufWriter<File>,
    n_bytes: u64,
}

impl<'a> Arrivals<'a> {
    fn new(folder: &'a StatesFolder, names: &'a [Digest]) -> Self {
        Self {
            folder,
            names,
            coming: None,
            n_bytes: 0,
            whole: Vec::new(),
        }
    }

    /// Takes a frame. Anything that was not asked for ends the connection.
    fn take(&mut self, frame: &Frame) -> ControlFlow<()> {
        match self.fill(frame) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn fill(&mut self, frame: &Frame) -> io::Result<()> {
        let other = || io::Error::from(io::ErrorKind::InvalidData);
        let piece = frame.piece.filter(|_| frame.header.kind == FrameKind::Part);
        let piece = piece.ok_or_else(other)?;
        let i = usize::try_from(piece.id).map_err(|_| other())?;
        let name = self.names.get(i).ok_or_else(other)?;
        if self.coming.as_ref().is_none_or(|(coming, _)| *coming != i) {
            self.finish();
            self.coming = Some((i, NewFile::create(self.folder, name)?));
        }
        let (_, new) = self.coming.as_mut().ok_or_else(other)?;
        let n = frame.data.len() as u64;
        self.n_bytes = self.n_bytes.saturating_add(n);
        if piece.offset != new.n_bytes || self.n_bytes > self.folder.budget_bytes {
            return Err(other());
        }
        new.n_bytes += n;
        new.file.write_all(&frame.data)
    }

    /// Keeps the file that came, if it is whole.
    fn finish(&mut self) {
        if let Some((i, new)) = self.coming.take() {
            let name = self.names[i];
            if new.keep(self.folder, &name).is_ok() {
                self.whole.push(name);
            }
        }
    }

    /// The connection has ended; the states that are whole.
    fn end(mut self) -> Vec<Digest> {
        self.finish();
        let paths: Vec<PathBuf> = self
            .whole
            .iter()
            .map(|name| self.folder.path(name))
            .collect();
        if !paths.is_empty() {
            // A folder that is too large is made smaller with the next state.
            let _ = self.folder.evict(&paths);
        }
        self.whole
    }
}

impl NewFile {
    fn create(folder: &StatesFolder, name: &Digest) -> io::Result<Self> {
        static N: AtomicU64 = AtomicU64::new(0);
        make_private(&folder.directory)?;
        let n = N.fetch_add(1, Ordering::Relaxed);
        let ending = format!("{}-{n}.new", std::process::id());
        let path = folder.path(name).with_extension(ending);
        // Of a process with the same number that was killed.
        let _ = fs::remove_file(&path);
        Ok(Self {
            file: BufWriter::new(create_private(&path)?),
            path,
            n_bytes: 0,
        })
    }

    /// Gives it its name if it is whole, else removes it.
    fn keep(mut self, folder: &StatesFolder, name: &Digest) -> io::Result<()> {
        self.file.flush()?;
        let is_whole = KeptState::open(&self.path).is_some_and(|state| state.is_whole());
        match is_whole {
            true => fs::rename(&self.path, folder.path(name)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename it is not there.
        let _ = fs::remove_file(&self.path);
    }
}

/// Sends the states of these names that a folder has.
///
/// # Errors
/// Those of `send`.
pub(crate) fn send_states(
    folder: &StatesFolder,
    names: &[Digest],
    send: &mut dyn FnMut(Frame) -> io::Result<()>,
) -> io::Result<()> {
    for (i, name) in (0..).zip(names) {
        let Some(state) = folder.open(name) else {
            continue;
        };
        for (k, data) in (0..).zip(state.map.bytes().chunks(MAX_PART_BYTES)) {
            send(part_frame(i, k * MAX_PART_BYTES as u64, data.to_vec()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        links::PartServer,
        states::{KeptStates, StateStore},
    };

    /// A machine with some layers of a state of 5,000 bytes each.
    fn machine(name: &str, layers: std::ops::Range<usize>) -> StatesFolder {
        let name = format!("atta-peers-{}-{name}", std::process::id());
        let folder = StatesFolder {
            directory: std::env::temp_dir().join(name),
            budget_bytes: 1 << 20,
        };
        let _ = fs::remove_dir_all(&folder.directory);
        let write = &mut |layer: usize, out: &mut dyn Write| out.write_all(&[layer as u8; 5_000]);
        states(&folder, None).save(&[1; 32], layers, write).unwrap();
        folder
    }

    fn states(folder: &StatesFolder, peers: Option<StatePeers>) -> KeptStates {
        let store = StateStore {
            folder: folder.clone(),
            model: [7; 32],
            peers,
        };
        KeptStates::new(store, "scalar")
    }

    /// Changes the frames of a machine on their way, by their number.
    type Change = fn(usize, &mut Frame);

    /// Machines by their ports, and what they were asked for.
    struct Network {
        machines: Vec<(StatesFolder, Change)>,
        asked: Mutex<Vec<usize>>,
    }

    impl PartLinks for Network {
        fn pull(
            &self,
            from: &NodeAddress,
            request: &PartRequest,
            take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
        ) -> io::Result<()> {
            let request = PartRequest::parse(&request.to_bytes().unwrap()).unwrap();
            let PartWish::States(names) = request.wish else {
                panic!("{request:?}");
            };
            self.asked.lock().unwrap().push(names.len());
            let (folder, change) = &self.machines[usize::from(from.address.port())];
            let mut n = 0;
            send_states(folder, &names, &mut |mut frame| {
                change(n, &mut frame);
                n += 1;
                match take(frame).is_break() {
                    true => Err(io::ErrorKind::ConnectionAborted.into()),
                    false => Ok(()),
                }
            })
        }

        fn serve(&self, _: PartServer) -> io::Result<()> {
            Ok(())
        }
    }

    fn network(machines: Vec<(StatesFolder, Change)>) -> (Arc<Network>, StatePeers) {
        let n = machines.len() as u16;
        let network = Arc::new(Network {
            machines,
            asked: Mutex::default(),
        });
        let node = |port: u16| NodeAddress {
            name: crate::control::NodeName::new("pi").unwrap(),
            address: ([10, 0, 0, 1], port).into(),
        };
        let peers = StatePeers {
            links: network.clone(),
            model: Digest([7; 32]),
            nodes: Arc::new(move || (0..n).map(node).collect()),
        };
        (network, peers)
    }

    fn first_bytes(states: &KeptStates, layers: std::ops::Range<usize>) -> Option<Vec<u8>> {
        let found = states.load(&[1; 32], layers)?;
        Some(found.iter().map(|state| state.bytes()[4_999]).collect())
    }

    const AS_IT_IS: Change = |_, _| ();

    #[test]
    fn layers_that_a_machine_lacks_come_from_others_once() {
        let here = machine("here", 2..4);
        let left = machine("left", 0..2);
        let right = machine("right", 4..6);
        let all = vec![(left, AS_IT_IS), (right, AS_IT_IS)];
        let (network, peers) = network(all);
        let states = states(&here, Some(peers));
        assert_eq!(first_bytes(&states, 1..5), Some(vec![1, 2, 3, 4]));
        assert_eq!(*network.asked.lock().unwrap(), [2, 1]);
        assert_eq!(first_bytes(&states, 1..5), Some(vec![1, 2, 3, 4]));
        assert_eq!(*network.asked.lock().unwrap(), [2, 1], "they are here now");
        assert_eq!(first_bytes(&states, 1..7), None, "nothing has layer 6");
        remove(&network, &here);
    }

    #[test]
    fn bytes_that_were_changed_or_not_asked_for_are_not_kept() {
        let changes: [Change; 5] = [
            |_, frame| frame.data[100] ^= 1,
            |_, frame| frame.data.truncate(4_000),
            |_, frame| frame.piece.as_mut().unwrap().offset += 1,
            |_, frame| frame.piece.as_mut().unwrap().id = 9,
            |_, frame| frame.piece = None,
        ];
        for change in changes {
            let here = machine("torn", 0..1);
            let (network, peers) = network(vec![(machine("liar", 1..2), change)]);
            assert_eq!(first_bytes(&states(&here, Some(peers)), 0..2), None);
            let files = fs::read_dir(&here.directory).unwrap().count();
            assert_eq!(files, 1, "nothing unfinished is left");
            remove(&network, &here);
        }
    }

    fn remove(network: &Network, here: &StatesFolder) {
        let machines = network.machines.iter().map(|(folder, _)| folder);
        let folders = machines.chain([here]);
        folders.for_each(|folder| fs::remove_dir_all(&folder.directory).unwrap());
    }
}

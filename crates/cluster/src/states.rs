//! States of sequences that the machines of a ring keep on their disks, so that a coordinator that
//! comes back finds its prompts, also where its machines have other layers then.
//!
//! ```text
//! file   magic | state of a layer, by its executor | u64 LE bytes of the state | BLAKE3 of it
//! name   BLAKE3(program, instruction set, model, layer, key of the state)
//! ```
//! Knows neither tokens nor plans. The one idea: a name says all that the bytes depend on, and a
//! layer has a file of its own, so a machine takes those of its layers wherever they are: from its
//! disk, or from another machine (`peers`). A file is a convenience: one that is torn, too large or
//! cannot be written is as if it had never been, and the state is computed again.

mod peers;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use atta_store::MappedFile;

pub(crate) use peers::{StatePeers, send_states};

use crate::{
    PartLinks,
    key::create_private,
    node::PROGRAM,
    wire::{StateKey, message::Digest},
};

const MAGIC: &[u8; 8] = b"ATTASTA2";
/// Bytes behind the state.
const FOOT_BYTES: usize = 8 + 32;
/// Bytes of a file beside the state.
const BESIDE_BYTES: u64 = (MAGIC.len() + FOOT_BYTES) as u64;
/// Age from which an unfinished file is of no process that still runs.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Where a machine keeps states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesFolder {
    /// The directory, which is made when something is written to it.
    pub directory: PathBuf,
    /// Bytes of all files together; those that were used longest ago go first.
    pub budget_bytes: u64,
}

/// Where a machine keeps states, and how it asks others for theirs.
#[derive(Clone)]
pub struct SharedStates {
    /// Its own.
    pub folder: StatesFolder,
    /// The way to others.
    pub links: Arc<dyn PartLinks>,
}

impl std::fmt::Debug for SharedStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStates")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Where the states of a model are.
#[derive(Clone)]
pub(crate) struct StateStore {
    pub(crate) folder: StatesFolder,
    /// The model by its content.
    pub(crate) model: [u8; 32],
    /// Other machines that may have some.
    pub(crate) peers: Option<StatePeers>,
}

/// The states of the layers of one executor.
pub(crate) struct KeptStates {
    store: StateStore,
    /// Hash of all that names have in common but the key.
    root: [u8; 32],
}

impl KeptStates {
    /// Those of executors that round as `numerics` says: the instruction set decides about some
    /// weights.
    pub(crate) fn new(store: StateStore, numerics: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [PROGRAM.as_bytes(), numerics.as_bytes(), &store.model] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let root = hasher.finalize().into();
        Self { store, root }
    }

    fn name(&self, layer: usize, key: &StateKey) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.root);
        hasher.update(&(layer as u64).to_le_bytes());
        hasher.update(key);
        Digest(hasher.finalize().into())
    }

    /// Keeps what a function writes for each layer; files of the same key are replaced.
    ///
    /// # Errors
    /// The error of the system or of the function, states that are larger than the budget; nothing
    /// is kept then.
    pub(crate) fn save(
        &self,
        key: &StateKey,
        layers: Range<usize>,
        write: &mut dyn FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let folder = &self.store.folder;
        make_private(&folder.directory)?;
        let mut paths = Vec::new();
        let mut left = folder.budget_bytes;
        for layer in layers {
            let path = folder.path(&self.name(layer, key));
            let written = write_file(&path, left, &mut |out| write(layer, out));
            paths.push(path);
            match written {
                Ok(n_bytes) => left = left.saturating_sub(n_bytes),
                Err(error) => {
                    // The first error is the one to tell.
                    paths.iter().for_each(|path| drop(fs::remove_file(path)));
                    return Err(error);
                }
            }
        }
        folder.evict(&paths)
    }

    /// The states of these layers; `None`: neither this machine nor another one has them all. It
    /// waits for others for some seconds at most.
    pub(crate) fn load(&self, key: &StateKey, layers: Range<usize>) -> Option<Vec<KeptState>> {
        let StateStore { folder, peers, .. } = &self.store;
        let names: Vec<Digest> = layers.map(|layer| self.name(layer, key)).collect();
        let mut found: Vec<_> = names.iter().map(|name| folder.open(name)).collect();
        let missing = names.iter().zip(&found);
        let missing = missing.filter_map(|(name, state)| state.is_none().then_some(*name));
        let missing: Vec<Digest> = missing.collect();
        if let Some(peers) = peers.as_ref().filter(|_| !missing.is_empty()) {
            peers.fetch(folder, missing);
            for (name, state) in names.iter().zip(&mut found) {
                *state = state.take().or_else(|| folder.open(name));
            }
        }
        found.into_iter().collect()
    }
}

impl StatesFolder {
    fn path(&self, name: &Digest) -> PathBuf {
        self.directory.join(format!("{name}.state"))
    }

    /// A state that was kept. `None`: it is not there, or is torn and is removed.
    fn open(&self, name: &Digest) -> Option<KeptState> {
        let path = self.path(name);
        let kept = KeptState::open(&path)?;
        if !kept.is_whole() {
            drop(kept);
            // Without rights to remove it, it is found torn again.
            let _ = fs::remove_file(&path);
            return None;
        }
        let used = File::options().append(true).open(&path);
        // It would be evicted earlier.
        let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        Some(kept)
    }

    /// Removes files until all are within the budget; the newest last.
    fn evict(&self, newest: &[PathBuf]) -> io::Result<()> {
        let mut files = self.files()?;
        let mut sum = files.iter().map(|file| file.n_bytes).sum::<u64>();
        files.sort_unstable_by_key(|file| (newest.contains(&file.path), file.used));
        for file in files {
            if sum <= self.budget_bytes {
                break;
            }
            fs::remove_file(&file.path)?;
            sum -= file.n_bytes;
        }
        Ok(())
    }

    /// The files of states. Unfinished ones that were given up are removed.
    fn files(&self) -> io::Result<Vec<StateFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // Another process may have removed it.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let file = StateFile {
                path: entry.path(),
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                n_bytes: metadata.len(),
            };
            match file.path.extension().and_then(|ending| ending.to_str()) {
                Some("state") => files.push(file),
                Some("new") if file.is_abandoned() => drop(fs::remove_file(&file.path)),
                _ => {}
            }
        }
        Ok(files)
    }
}

/// Writes a file of at most `max_bytes` whole, or not at all; its bytes.
fn write_file(
    path: &Path,
    max_bytes: u64,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = write_new(&new, max_bytes.saturating_sub(BESIDE_BYTES), write);
    let kept = written.and_then(|n_bytes| fs::rename(&new, path).map(|()| n_bytes));
    if kept.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    kept
}

fn write_new(
    path: &Path,
    max_bytes: u64,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    // Of a process with the same number that was killed.
    let _ = fs::remove_file(path);
    let mut file = BufWriter::new(create_private(path)?);
    file.write_all(MAGIC)?;
    let mut state = StateWriter {
        file: &mut file,
        hasher: blake3::Hasher::new(),
        n_bytes: 0,
        max_bytes,
    };
    write(&mut state)?;
    let n_bytes = state.n_bytes;
    let hash = state.hasher.finalize();
    file.write_all(&n_bytes.to_le_bytes())?;
    file.write_all(hash.as_bytes())?;
    file.flush()?;
    Ok(n_bytes + BESIDE_BYTES)
}

/// A file of a state.
struct StateFile {
    path: PathBuf,
    used: SystemTime,
    n_bytes: u64,
}

impl StateFile {
    fn is_abandoned(&self) -> bool {
        self.used.elapsed().is_ok_and(|age| age > ABANDONED)
    }
}

/// A state on disk.
pub(crate) struct KeptState {
    map: MappedFile,
}

impl KeptState {
    fn open(path: &Path) -> Option<Self> {
        let map = MappedFile::open(path).ok()?;
        Some(Self { map })
    }

    /// The bytes that were saved.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.map.bytes();
        bytes
            .get(MAGIC.len()..bytes.len().saturating_sub(FOOT_BYTES))
            .unwrap_or(&[])
    }

    /// Whether bytes that were read are those of the file.
    pub(crate) fn is_damaged(&self) -> bool {
        self.map.is_damaged()
    }

    /// Whether the checksum is right.
    fn is_whole(&self) -> bool {
        let Some((_, foot)) = self.map.bytes().split_last_chunk::<FOOT_BYTES>() else {
            return false;
        };
        let state = self.bytes();
        let (n_bytes, hash) = foot.split_at(8);
        self.map.bytes().starts_with(MAGIC)
            && n_bytes == (state.len() as u64).to_le_bytes()
            && hash == blake3::hash(state).as_bytes()
            && !self.is_damaged()
    }
}

/// Hashes and counts the bytes of a state on their way to its file.
struct StateWriter<'a> {
    file: &'a mut BufWriter<File>,
    hasher: blake3::Hasher,
    n_bytes: u64,
    max_bytes: u64,
}

impl Write for StateWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.n_bytes += bytes.len() as u64;
        if self.n_bytes > self.max_bytes {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes a directory that only its owner may read, if it is not there.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("atta-states-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn states(&self, budget_bytes: u64, numerics: &str) -> KeptStates {
            let folder = StatesFolder {
                directory: self.0.clone(),
                budget_bytes,
            };
            let store = StateStore {
                folder,
                model: [7; 32],
                peers: None,
            };
            KeptStates::new(store, numerics)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Keeps the same bytes for each layer.
    fn keep(states: &KeptStates, key: u8, layers: Range<usize>, bytes: &[u8]) -> io::Result<()> {
        states.save(&[key; 32], layers, &mut |layer, out| {
            out.write_all(&[layer as u8])?;
            out.write_all(bytes)
        })
    }

    fn kept(states: &KeptStates, key: u8, layers: Range<usize>) -> Option<Vec<Vec<u8>>> {
        let kept = states.load(&[key; 32], layers)?;
        Some(kept.iter().map(|state| state.bytes().to_vec()).collect())
    }

    #[test]
    fn a_state_comes_back_under_its_key_and_numerics_for_any_of_its_layers() {
        let scratch = Scratch::new("back");
        let states = scratch.states(1000, "scalar");
        keep(&states, 1, 2..5, b"first").unwrap();
        keep(&states, 1, 2..5, b"second").unwrap();
        let found = kept(&states, 1, 3..5).unwrap();
        assert_eq!(found, [&b"\x03second"[..], b"\x04second"]);
        assert_eq!(kept(&states, 1, 4..6), None, "it has no layer 5");
        assert_eq!(kept(&states, 2, 2..5), None);
        assert_eq!(
            kept(&states, 2, 5..5),
            Some(vec![]),
            "no layers need nothing"
        );
        assert_eq!(kept(&scratch.states(1000, "avx2"), 1, 2..5), None);
    }

    #[test]
    fn a_torn_or_changed_file_is_none_and_is_removed() {
        let scratch = Scratch::new("torn");
        let states = scratch.states(1000, "scalar");
        let path = states.store.folder.path(&states.name(3, &[1; 32]));
        for damage in [
            &|bytes: &mut Vec<u8>| bytes.truncate(20) as _,
            &|bytes: &mut Vec<u8>| bytes[10] ^= 1,
            &|bytes: &mut Vec<u8>| bytes[0] ^= 1,
            &|bytes: &mut Vec<u8>| bytes.push(0),
            &|bytes: &mut Vec<u8>| bytes.clear(),
        ] as [&dyn Fn(&mut Vec<u8>); 5]
        {
            keep(&states, 1, 3..4, &[9; 100]).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert_eq!(kept(&states, 1, 3..4), None);
            assert!(!path.exists());
        }
    }

    #[test]
    fn files_are_within_the_budget_and_the_oldest_goes_first() {
        let scratch = Scratch::new("budget");
        let states = scratch.states(700, "scalar");
        let old = SystemTime::now() - Duration::from_secs(60);
        for key in [1, 2] {
            keep(&states, key, 0..2, &[key; 100]).unwrap();
            for layer in 0..2 {
                let path = states.store.folder.path(&states.name(layer, &[key; 32]));
                let file = File::options().append(true).open(path).unwrap();
                file.set_modified(old + Duration::from_secs(key.into()))
                    .unwrap();
            }
        }
        assert!(kept(&states, 1, 0..2).is_some(), "it is used again");
        keep(&states, 3, 0..2, &[3; 100]).unwrap();
        let found = [1, 2, 3].map(|key| kept(&states, key, 0..2).is_some());
        assert_eq!(found, [true, false, true]);
        assert!(keep(&states, 4, 0..2, &[4; 400]).is_err(), "more than all");
        let names = fs::read_dir(&scratch.0).unwrap();
        assert_eq!(names.count(), 4, "nothing unfinished is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_states() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("mode");
        let states = scratch.states(1000, "scalar");
        keep(&states, 1, 0..1, b"text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = states.store.folder.path(&states.name(0, &[1; 32]));
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&scratch.0), 0o700);
    }
}

//! States of sequences that a stage keeps on its disk, so that a coordinator that comes back finds
//! its prompts.
//!
//! ```text
//! file   magic | state as an executor writes it | u64 LE bytes of the state | BLAKE3 of the state
//! name   BLAKE3(program, instruction set, model, layers, KV types, key of the state)
//! ```
//! Knows neither tokens nor plans. The one idea: a file is a convenience. One that is torn, too
//! large or cannot be written is as if it had never been, and the state is computed again.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use atta_store::MappedFile;

use crate::{key::create_private, wire::StateKey};

const MAGIC: &[u8; 8] = b"ATTASTA1";
/// Bytes behind the state.
const FOOT_BYTES: usize = 8 + 32;
/// Age from which an unfinished file is of no process that still runs.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Where a node keeps states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesFolder {
    /// The directory, which is made when something is written to it.
    pub directory: PathBuf,
    /// Bytes of all files together; those that were used longest ago go first.
    pub budget_bytes: u64,
}

/// What the states of a stage depend on, beside their tokens.
#[derive(Clone, Debug)]
pub(crate) struct StageIdentity<'a> {
    /// Version of the program.
    pub(crate) program: &'a str,
    /// The instruction set: it decides about the rounding of some weights.
    pub(crate) numerics: &'a str,
    /// The model by its content.
    pub(crate) model: [u8; 32],
    /// First layer, and the layer behind the last one.
    pub(crate) layers: [u32; 2],
    /// Types of keys and values, in words.
    pub(crate) kv: String,
}

/// The states of one stage.
#[derive(Debug)]
pub(crate) struct KeptStates {
    folder: StatesFolder,
    /// Hash of the [`StageIdentity`].
    root: [u8; 32],
}

impl KeptStates {
    pub(crate) fn new(folder: StatesFolder, of: &StageIdentity<'_>) -> Self {
        let mut hasher = blake3::Hasher::new();
        let layers = of.layers.map(u32::to_le_bytes).concat();
        let parts: [&[u8]; 5] = [
            of.program.as_bytes(),
            of.numerics.as_bytes(),
            &of.model,
            &layers,
            of.kv.as_bytes(),
        ];
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let root = hasher.finalize().into();
        Self { folder, root }
    }

    fn path(&self, key: &StateKey) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.root);
        hasher.update(key);
        let name = hasher.finalize().to_hex();
        self.folder.directory.join(format!("{name}.state"))
    }

    /// Keeps what a function writes; a file of the same key is replaced.
    ///
    /// # Errors
    /// The error of the system or of the function, a state that is larger than the budget; nothing
    /// is kept then.
    pub(crate) fn save(
        &self,
        key: &StateKey,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(key);
        make_private(&self.folder.directory)?;
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let written = self.write_to(&new, write);
        let kept = written.and_then(|()| fs::rename(&new, &path));
        if kept.is_err() {
            // The first error is the one to tell.
            let _ = fs::remove_file(&new);
        }
        kept?;
        self.evict(&path)
    }

    fn write_to(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        // Of a process with the same number that was killed.
        let _ = fs::remove_file(path);
        let mut file = BufWriter::new(create_private(path)?);
        file.write_all(MAGIC)?;
        let mut state = StateWriter {
            file: &mut file,
            hasher: blake3::Hasher::new(),
            n_bytes: 0,
            max_bytes: self.folder.budget_bytes,
        };
        write(&mut state)?;
        let n_bytes = state.n_bytes;
        let hash = state.hasher.finalize();
        file.write_all(&n_bytes.to_le_bytes())?;
        file.write_all(hash.as_bytes())?;
        file.flush()
    }

    /// A state that was kept. `None`: it is not there, or is torn and is removed.
    pub(crate) fn load(&self, key: &StateKey) -> Option<KeptState> {
        let path = self.path(key);
        let map = MappedFile::open(&path).ok()?;
        let kept = KeptState { map };
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

    /// Removes files until all are within the budget; `newest` last.
    fn evict(&self, newest: &Path) -> io::Result<()> {
        let mut files = self.files()?;
        let mut sum = files.iter().map(|file| file.n_bytes).sum::<u64>();
        files.sort_unstable_by_key(|file| (file.path == newest, file.used));
        for file in files {
            if sum <= self.folder.budget_bytes {
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
        for entry in fs::read_dir(&self.folder.directory)? {
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

/// A state on disk whose checksum is right.
pub(crate) struct KeptState {
    map: MappedFile,
}

impl KeptState {
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

        fn states(&self, budget_bytes: u64, kv: &str) -> KeptStates {
            let folder = StatesFolder {
                directory: self.0.clone(),
                budget_bytes,
            };
            let identity = StageIdentity {
                program: "1",
                numerics: "scalar",
                model: [7; 32],
                layers: [2, 5],
                kv: kv.to_owned(),
            };
            KeptStates::new(folder, &identity)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn keep(states: &KeptStates, key: u8, bytes: &[u8]) -> io::Result<()> {
        states.save(&[key; 32], |out| out.write_all(bytes))
    }

    fn kept(states: &KeptStates, key: u8) -> Option<Vec<u8>> {
        let kept = states.load(&[key; 32])?;
        Some(kept.bytes().to_vec())
    }

    #[test]
    fn a_state_comes_back_under_its_key_and_its_types_only() {
        let scratch = Scratch::new("back");
        let states = scratch.states(1000, "f16");
        keep(&states, 1, b"first").unwrap();
        keep(&states, 1, b"second").unwrap();
        assert_eq!(kept(&states, 1).as_deref(), Some(&b"second"[..]));
        assert_eq!(kept(&states, 2), None);
        assert_eq!(kept(&scratch.states(1000, "q8"), 1), None);
    }

    #[test]
    fn a_torn_or_changed_file_is_none_and_is_removed() {
        let scratch = Scratch::new("torn");
        let states = scratch.states(1000, "f16");
        let path = states.path(&[1; 32]);
        for damage in [
            &|bytes: &mut Vec<u8>| bytes.truncate(20) as _,
            &|bytes: &mut Vec<u8>| bytes[10] ^= 1,
            &|bytes: &mut Vec<u8>| bytes[0] ^= 1,
            &|bytes: &mut Vec<u8>| bytes.push(0),
            &|bytes: &mut Vec<u8>| bytes.clear(),
        ] as [&dyn Fn(&mut Vec<u8>); 5]
        {
            keep(&states, 1, &[9; 100]).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert_eq!(kept(&states, 1), None);
            assert!(!path.exists());
        }
    }

    #[test]
    fn files_are_within_the_budget_and_the_oldest_goes_first() {
        let scratch = Scratch::new("budget");
        let states = scratch.states(400, "f16");
        let old = SystemTime::now() - Duration::from_secs(60);
        for key in [1, 2] {
            keep(&states, key, &[key; 100]).unwrap();
            let path = states.path(&[key; 32]);
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(old + Duration::from_secs(key.into()))
                .unwrap();
        }
        assert!(kept(&states, 1).is_some(), "it is used again");
        keep(&states, 3, &[3; 100]).unwrap();
        let found = [1, 2, 3].map(|key| kept(&states, key).is_some());
        assert_eq!(found, [true, false, true]);
        assert!(keep(&states, 4, &[4; 500]).is_err());
        let names = fs::read_dir(&scratch.0).unwrap();
        assert_eq!(names.count(), 2, "nothing unfinished is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_states() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("mode");
        let states = scratch.states(1000, "f16");
        keep(&states, 1, b"text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&states.path(&[1; 32])), 0o600);
        assert_eq!(mode(&scratch.0), 0o700);
    }
}

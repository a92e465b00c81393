//! The file of a journal: extents of bytes, each with a checksum, within a budget.
//!
//! Knows no sequences. The one idea: a thread of its own writes and reads, so that nothing waits
//! for a slow disk: bytes that find its queue full are not written. The file loses its name as soon
//! as it is open, so that nothing is left of it however the program ends; freed extents are used
//! again by others of their length.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    time::Duration,
};

/// Bytes that wait to be written at most.
pub(crate) const MAX_QUEUED: usize = 16 << 20;
/// Longest wait for bytes of the disk; later ones are computed again.
const READ: Duration = Duration::from_secs(30);

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    at: u64,
    len: u32,
    checksum: u32,
}

/// A file that is made with the first extent.
#[derive(Debug)]
pub(super) struct JournalFile {
    dir: PathBuf,
    budget_bytes: u64,
    /// To the thread that has the file, if there is one.
    orders: Option<Sender<Order>>,
    shared: Arc<JournalState>,
    /// Length of the file.
    end: u64,
    /// Freed extents, by their length.
    free: BTreeMap<u32, Vec<u64>>,
    /// Something did not fit.
    is_full: bool,
}

/// What the thread of the file and its owner share.
#[derive(Debug, Default)]
struct JournalState {
    /// Bytes that wait.
    n_queued: AtomicUsize,
    /// The owner has ended: nothing is written any more.
    is_over: AtomicBool,
    failure: Mutex<Failure>,
}

/// Whether the disk has failed.
#[derive(Debug, Default)]
struct Failure {
    is_there: bool,
    /// Why, until it is told.
    untold: Option<String>,
}

/// What the thread does.
#[derive(Debug)]
enum Order {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    Read {
        extent: Extent,
        to: SyncSender<Option<Vec<u8>>>,
    },
}

impl JournalState {
    fn failure(&self) -> MutexGuard<'_, Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that nothing can be written any more.
    fn fail(&self, dir: &Path, error: &io::Error) {
        let mut failure = self.failure();
        if !std::mem::replace(&mut failure.is_there, true) {
            failure.untold = Some(format!("{}: {error}", dir.display()));
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // The thread may wait for the disk, and nothing waits for the thread.
        self.shared.is_over.store(true, Ordering::Release);
    }
}

impl JournalFile {
    pub(super) fn new(dir: PathBuf, budget_bytes: u64) -> Self {
        Self {
            dir,
            budget_bytes,
            orders: None,
            shared: Arc::default(),
            end: 0,
            free: BTreeMap::new(),
            is_full: false,
        }
    }

    /// Whether something did not fit since there was last [room](Self::has_room), the disk has
    /// failed, or too much waits for it.
    pub(super) fn is_full(&self) -> bool {
        let n_queued = self.shared.n_queued.load(Ordering::Acquire);
        self.is_full || n_queued > MAX_QUEUED / 2 || self.shared.failure().is_there
    }

    /// Why the disk has failed, once.
    pub(super) fn take_failure(&self) -> Option<String> {
        self.shared.failure().untold.take()
    }

    /// Has bytes written; `None`: they are beyond the budget, the disk has failed or is too slow.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Option<Extent> {
        let len = u32::try_from(bytes.len()).ok()?;
        let n_queued = self.shared.n_queued.load(Ordering::Acquire);
        if self.shared.failure().is_there || n_queued + bytes.len() > MAX_QUEUED {
            return None;
        }
        let freed = self.free.get_mut(&len).and_then(Vec::pop);
        let at = freed.unwrap_or(self.end);
        if at + u64::from(len) > self.budget_bytes {
            self.is_full = true;
            return None;
        }
        self.end = self.end.max(at + u64::from(len));
        self.queue(at, bytes.to_vec());
        let checksum = crc32c::crc32c(bytes);
        Some(Extent { at, len, checksum })
    }

    /// Gives bytes to the thread, which begins with the first ones.
    fn queue(&mut self, at: u64, bytes: Vec<u8>) {
        let n = bytes.len();
        self.shared.n_queued.fetch_add(n, Ordering::AcqRel);
        if self.orders.is_none() {
            let (orders, waiting) = mpsc::channel();
            let dir = self.dir.clone();
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("journal".to_owned());
            match thread.spawn(move || run(&dir, &shared, &waiting)) {
                Ok(_) => self.orders = Some(orders),
                Err(error) => self.shared.fail(&self.dir, &error),
            }
        }
        let order = Order::Write { at, bytes };
        let orders = self.orders.as_ref();
        if orders.is_none_or(|orders| orders.send(order).is_err()) {
            self.shared.n_queued.fetch_sub(n, Ordering::AcqRel);
        }
    }

    /// Reads an extent, behind all that waits to be written; `None`: it cannot be read, or has
    /// changed.
    pub(super) fn read(&mut self, extent: &Extent) -> Option<Vec<u8>> {
        let (to, read) = mpsc::sync_channel(1);
        let extent = *extent;
        let orders = self.orders.as_ref()?;
        orders.send(Order::Read { extent, to }).ok()?;
        read.recv_timeout(READ).ok()?
    }

    /// Notes that a segment that was kept is freed: another one may fit.
    pub(super) fn has_room(&mut self) {
        self.is_full = false;
    }

    /// Forgets all extents.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.free.clear();
        self.is_full = false;
    }

    /// Lets other extents take the place of these.
    pub(super) fn free(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.free.entry(extent.len).or_default().push(extent.at);
        }
    }
}

/// Writes and reads until the owner ends.
fn run(dir: &Path, shared: &JournalState, orders: &Receiver<Order>) {
    let mut file = None;
    while let Ok(order) = orders.recv() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        match order {
            Order::Write { at, bytes } => {
                if !shared.failure().is_there
                    && let Err(error) = write_at(&mut file, dir, at, &bytes)
                {
                    shared.fail(dir, &error);
                }
                shared.n_queued.fetch_sub(bytes.len(), Ordering::AcqRel);
            }
            Order::Read { extent, to } => {
                let bytes = file.as_mut().and_then(|file| read_at(file, &extent));
                // An owner that has waited too long does not wait any more.
                let _ = to.send(bytes);
            }
        }
    }
}

fn write_at(file: &mut Option<File>, dir: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => file.insert(create(dir)?),
    };
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

fn read_at(file: &mut File, extent: &Extent) -> Option<Vec<u8>> {
    let mut bytes = vec![0; extent.len as usize];
    let read = file
        .seek(SeekFrom::Start(extent.at))
        .and_then(|_| file.read_exact(&mut bytes));
    let is_whole = read.is_ok() && crc32c::crc32c(&bytes) == extent.checksum;
    is_whole.then_some(bytes)
}

/// A file without a name, or one that ends with its handle.
fn create(dir: &Path) -> io::Result<File> {
    static N: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(dir)?;
    let n = N.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("journal-{}-{n}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // FILE_FLAG_DELETE_ON_CLOSE.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, 0x0400_0000);
    let file = options.open(&path)?;
    #[cfg(unix)]
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(budget_bytes: u64) -> JournalFile {
        JournalFile::new(std::env::temp_dir(), budget_bytes)
    }

    #[test]
    fn extents_come_back_and_freed_ones_are_used_again() {
        let mut file = file(100);
        let a = file.write(&[1; 40]).unwrap();
        let b = file.write(&[2; 40]).unwrap();
        assert_eq!(file.read(&a), Some(vec![1; 40]));
        assert_eq!(file.write(&[3; 40]), None, "beyond the budget");
        assert!(file.is_full());
        file.free([a]);
        assert!(file.is_full(), "what did not fit would not fit again");
        file.has_room();
        assert!(!file.is_full());
        let c = file.write(&[3; 40]).unwrap();
        assert_eq!(file.read(&c), Some(vec![3; 40]));
        assert_eq!(file.read(&b), Some(vec![2; 40]));
        assert_eq!(file.take_failure(), None);
    }

    #[test]
    fn an_extent_that_has_changed_is_not_read() {
        let mut file = file(100);
        let a = file.write(&[1; 40]).unwrap();
        file.queue(7, vec![9]);
        assert_eq!(file.read(&a), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_ends_the_journal_and_is_told_once() {
        let mut file = JournalFile::new("/dev/null/journal".into(), 100);
        let a = file.write(&[1]).unwrap();
        assert_eq!(file.read(&a), None);
        assert!(file.is_full());
        file.has_room();
        file.clear();
        assert!(file.is_full() && file.write(&[1]).is_none());
        assert!(file.take_failure().is_some());
        assert_eq!(file.take_failure(), None);
    }

    #[test]
    fn bytes_that_find_the_queue_full_are_not_written() {
        let mut file = file(u64::MAX);
        // No thread takes them.
        let (orders, waiting) = mpsc::channel();
        file.orders = Some(orders);
        let half = vec![0; MAX_QUEUED / 2];
        assert!(file.write(&half).is_some() && !file.is_full());
        assert!(file.write(&[1]).is_some() && file.is_full());
        assert_eq!(file.write(&half), None);
        assert_eq!(waiting.try_iter().count(), 2);
    }
}

//! Weights that a node brings to its disk, and to the system's cache, for a stage that it shall be
//! later: the ring that it belongs to goes on meanwhile.
//!
//! Knows no ring. The one idea: nothing is held for it, so that a fetch that was for nothing costs
//! disk that the next one may have; bytes that are asked for again are found to be there.

use std::{
    hint::black_box,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use atta_model::Share;
use atta_store::Extent;

use super::{
    Inner,
    hold::other_version,
    models::{OpenModel, Wanted, wanted_share},
};
use crate::{
    place::blocked,
    wire::message::{Answer, Blocked, LayerRange, Loading, Prepare},
};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;
/// Bytes of a page of a map, or fewer.
const PAGE: usize = 4096;

/// The last stage whose weights a coordinator wanted here.
pub(super) struct Fetching {
    /// Hash of the question.
    hash: blake3::Hash,
    shared: Arc<FetchState>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread and the service share.
struct FetchState {
    is_cancelled: AtomicBool,
    answer: Mutex<Answer>,
}

impl FetchState {
    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetching {
    /// Ends it, and waits until nothing is written any more.
    pub(super) fn end(mut self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
    }
}

/// Begins to fetch the weights of a stage, or tells how far that is.
pub(super) fn fetch(inner: &Arc<Inner>, prepare: Prepare) -> Answer {
    if let Some(blocked) = other_version(&prepare) {
        return Answer::Blocked(blocked);
    }
    let Ok(bytes) = serde_json::to_vec(&prepare) else {
        return Answer::Blocked(blocked("a plan that cannot be written"));
    };
    let hash = blake3::hash(&bytes);
    let mut state = inner.state();
    if inner.is_leaving.load(Ordering::Acquire) || inner.is_over.load(Ordering::Acquire) {
        return Answer::Blocked(blocked("this node leaves the cluster"));
    }
    if state.hold.is_loading() {
        // It may write to the same files.
        return Answer::Loading(Loading::default());
    }
    let old = state.fetching.take();
    if let Some(same) = old.as_ref().filter(|old| old.hash == hash) {
        let answer = same.shared.answer().clone();
        state.fetching = old;
        return answer;
    }
    let started = start(inner, prepare, old);
    let started = started.map(|(shared, thread)| Fetching {
        hash,
        shared,
        thread: Some(thread),
    });
    match started {
        Ok(fetching) => state.fetching = Some(fetching),
        Err(error) => return Answer::Blocked(blocked(error)),
    }
    Answer::Loading(Loading::default())
}

/// Starts the thread of a fetch, behind the one before.
fn start(
    inner: &Arc<Inner>,
    prepare: Prepare,
    old: Option<Fetching>,
) -> std::io::Result<(Arc<FetchState>, JoinHandle<()>)> {
    let shared = Arc::new(FetchState {
        is_cancelled: AtomicBool::new(false),
        answer: Mutex::new(Answer::Loading(Loading::default())),
    });
    let fetch = Fetch {
        inner: Arc::clone(inner),
        part: wanted_share(&prepare),
        prepare,
        shared: Arc::clone(&shared),
    };
    let thread = std::thread::Builder::new().name("fetching".to_owned());
    let thread = thread.spawn(move || {
        old.into_iter().for_each(Fetching::end);
        fetch.run();
    })?;
    Ok((shared, thread))
}

/// A fetch that runs.
struct Fetch {
    inner: Arc<Inner>,
    prepare: Prepare,
    part: Share,
    shared: Arc<FetchState>,
}

impl Fetch {
    fn run(self) {
        let LayerRange { start, end } = self.prepare.part.layers;
        let layers = format!("layers {start} to {end} of {}", self.prepare.model.name);
        let (answer, event) = match self.bring() {
            Ok(()) => (Answer::Fetched, format!("{layers} are on this disk")),
            Err(blocked) => {
                let event = format!("cannot fetch {layers}: {}", blocked.why);
                (Answer::Blocked(blocked), event)
            }
        };
        self.inner.note(event);
        *self.shared.answer() = answer;
    }

    fn bring(&self) -> Result<(), Blocked> {
        let wanted = Wanted {
            model: &self.prepare.model,
            share: &self.part,
            ring: self.prepare.ring,
            sources: &self.prepare.sources,
        };
        let models = &self.inner.options.models;
        let open = models.open(wanted, &mut |loading| self.tell(loading))?;
        match open.share == self.prepare.model.share {
            true => self.read(&open),
            false => Err(blocked("its copy of these layers has other weights")),
        }
    }

    /// Notes how far it is.
    fn tell(&self, loading: Loading) -> ControlFlow<()> {
        *self.shared.answer() = Answer::Loading(loading);
        match self.shared.is_cancelled.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Reads the weights, so that the system has them in memory when the stage begins: only where
    /// they fit beside all that this node holds.
    fn read(&self, open: &OpenModel) -> Result<(), Blocked> {
        let extents = extents(open, &self.part)?;
        let of_bytes = extents.iter().map(|extent| extent.bytes).sum();
        if of_bytes > self.inner.options.budget.left() {
            return Ok(());
        }
        let mut done_bytes = 0;
        for extent in extents.iter().flat_map(chunks) {
            let loading = Loading {
                done_bytes,
                of_bytes,
                what: format!("reading {}", self.prepare.model.name),
            };
            if self.tell(loading).is_break() {
                return Err(blocked("it is not wanted any more"));
            }
            let bytes = open.files.read(extent).map_err(blocked)?;
            // A map is read by touching it.
            black_box(bytes.iter().step_by(PAGE).fold(0, |sum, byte| sum ^ byte));
            done_bytes += extent.bytes;
        }
        Ok(())
    }
}

/// Where the tensors of a share lie.
fn extents(open: &OpenModel, share: &Share) -> Result<Vec<Extent>, Blocked> {
    let tensors = share.tensors(&open.spec, open.files.directory());
    let tensors = tensors.map_err(blocked)?.into_iter();
    Ok(tensors
        .map(|info| Extent {
            shard: info.shard,
            offset: info.offset,
            bytes: info.n_bytes,
        })
        .collect())
}

/// An extent in pieces.
fn chunks(extent: &Extent) -> impl Iterator<Item = Extent> {
    let Extent {
        shard,
        offset,
        bytes,
    } = *extent;
    (0..bytes.div_ceil(CHUNK)).map(move |i| Extent {
        shard,
        offset: offset + i * CHUNK,
        bytes: CHUNK.min(bytes - i * CHUNK),
    })
}

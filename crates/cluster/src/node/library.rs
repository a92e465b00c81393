//! Models from a library: a whole file, a part, or a part that is fetched from other nodes.
//!
//! Knows no connections: [`PartLinks`] moves the bytes, [`Download`] says which are missing and
//! checks them. The one idea: a source is asked as long as it brings bytes that are missing, then
//! the next one; all that has arrived stays on the disk, so that a later start fetches the
//! rest only.

use std::{fmt, io, sync::Arc};

use super::models::{Models, OnLoading, OpenModel, Wanted, share_of};
use crate::{
    StatesFolder,
    links::{PartLinks, PartServer, SendPart},
    part::{Download, HeldModel, Library, PartError, PartWish, send_parts},
    states::send_states,
    wire::message::{Blocked, Loading, NodeAddress, PartRequest, WantedModel},
};

/// How often all sources are asked in turn. More than once, because bytes of a bad source can
/// spoil a tensor that a good one completes: it is then fetched again as a whole.
const MAX_PASSES: usize = 3;

/// Finds models in a library, and fetches parts that it lacks.
pub struct LibraryModels {
    library: Arc<Library>,
    links: Arc<dyn PartLinks>,
}

impl fmt::Debug for LibraryModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LibraryModels");
        shown
            .field("library", &self.library)
            .finish_non_exhaustive()
    }
}

impl LibraryModels {
    /// The models of a library; what it lacks comes over these links.
    pub fn new(library: Arc<Library>, links: Arc<dyn PartLinks>) -> Self {
        Self { library, links }
    }

    /// The whole model, if it is here. A file that cannot be read is no reason to stop.
    fn whole(
        &self,
        wanted: &WantedModel,
        on: OnLoading<'_>,
    ) -> Result<Option<HeldModel>, PartError> {
        let what = format!("checking {}", wanted.name);
        let found = self.library.whole(wanted, &mut |done_bytes, of_bytes| {
            on(Loading {
                done_bytes,
                of_bytes,
                what: what.clone(),
            })
        });
        match found {
            Ok(found) => Ok(found),
            Err(PartError::Stopped) => Err(PartError::Stopped),
            Err(_) => Ok(None),
        }
    }

    /// The part of the wanted layers, with everything that was missing.
    fn part(&self, wanted: &Wanted<'_>, on: OnLoading<'_>) -> Result<HeldModel, Unfetched> {
        let share = wanted.share.clone();
        let library = Arc::clone(&self.library);
        let download = Download::new(library, wanted.model.clone(), share)?;
        let mut fetch = Fetch {
            links: &*self.links,
            wanted: wanted.model,
            download,
            last_error: None,
            most_missing: 0,
        };
        for _ in 0..MAX_PASSES {
            if fetch.wish()?.is_none() {
                return Ok(fetch.download.model()?);
            }
            for source in wanted.sources {
                fetch.ask(source, on)?;
            }
        }
        match fetch.wish()? {
            None => Ok(fetch.download.model()?),
            Some(_) => Err(fetch.unfetched(wanted.sources.len())),
        }
    }
}

impl Models for LibraryModels {
    fn open(&self, wanted: Wanted<'_>, on: OnLoading<'_>) -> Result<OpenModel, Blocked> {
        let blocked = |error: Unfetched| error.blocked(&wanted.model.name);
        let whole = self.whole(wanted.model, on);
        let model = match whole.map_err(|error| blocked(error.into()))? {
            Some(model) => model,
            None => self.part(&wanted, on).map_err(blocked)?,
        };
        open(&model, &wanted).map_err(|error| blocked(error.into()))
    }

    fn disk_free_bytes(&self) -> Option<u64> {
        self.library.free_bytes()
    }
}

fn open(model: &HeldModel, wanted: &Wanted<'_>) -> Result<OpenModel, PartError> {
    let (spec, files) = model.open()?;
    let share = share_of(&model.index, &spec, wanted.share, &files)?;
    Ok(OpenModel { spec, files, share })
}

/// Answers other nodes with what a library has: parts, and whole models whose hashes are known,
/// so also the file that a coordinator runs once [`Library::hashed`] has seen it; and with the
/// states of a folder, if there is one.
pub fn part_server(library: Arc<Library>, states: Option<StatesFolder>) -> PartServer {
    Box::new(move |request, send| match (&request.wish, &states) {
        (PartWish::States(names), Some(folder)) => send_states(folder, names, send),
        (PartWish::States(_), None) => Ok(()),
        _ => send_model(&library, request, send),
    })
}

fn send_model(library: &Library, request: &PartRequest, send: SendPart<'_>) -> io::Result<()> {
    let held = library.held(request.model).map_err(io::Error::other)?;
    let held = held.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let files = held.files().map_err(io::Error::other)?;
    let sent = send_parts(&files, &request.wish, |frame| {
        send(frame).map_err(PartError::from)
    });
    sent.map(|_| ()).map_err(io::Error::other)
}

/// The fetching of one part.
struct Fetch<'a> {
    links: &'a dyn PartLinks,
    wanted: &'a WantedModel,
    download: Download,
    /// What went wrong last, with the name of the node.
    last_error: Option<String>,
    /// Most bytes that were missing: those of this fetch.
    most_missing: u64,
}

impl Fetch<'_> {
    /// The missing bytes; `None`: there are none.
    fn wish(&mut self) -> Result<Option<PartWish>, PartError> {
        let wish = self.download.wish()?;
        let missing = self.download.missing_bytes().unwrap_or_default();
        self.most_missing = self.most_missing.max(missing);
        Ok(wish)
    }

    /// Asks one node as long as it brings missing bytes.
    fn ask(&mut self, source: &NodeAddress, on: OnLoading<'_>) -> Result<(), PartError> {
        let mut last = None;
        while let Some(wish) = self.wish()? {
            if last.as_ref() == Some(&wish) || !self.pull(source, &wish, on)? {
                return Ok(());
            }
            last = Some(wish);
        }
        Ok(())
    }

    /// Sends one request; whether the source may be asked again.
    fn pull(
        &mut self,
        source: &NodeAddress,
        wish: &PartWish,
        on: OnLoading<'_>,
    ) -> Result<bool, PartError> {
        let request = PartRequest {
            model: self.wanted.id,
            wish: wish.clone(),
        };
        let what = format!("fetching {} from {}", self.wanted.name, source.name);
        let mut sink = self.download.sink(wish);
        let mut is_stopped = false;
        let most = self.most_missing;
        let missing = self.download.missing_bytes().unwrap_or(most);
        let mut done = most.saturating_sub(missing);
        let pulled = self.links.pull(source, &request, &mut |frame| {
            sink.take(&frame)?;
            done = done.saturating_add(frame.data.len() as u64).min(most);
            let heard = on(Loading {
                done_bytes: done,
                of_bytes: most,
                what: what.clone(),
            });
            is_stopped = heard.is_break();
            heard
        });
        sink.end();
        if is_stopped {
            return Err(PartError::Stopped);
        }
        match self.download.take_failure() {
            Some(error) if is_local(&error) => Err(error),
            Some(error) => {
                self.last_error = Some(format!("{}: {error}", source.name));
                Ok(false)
            }
            None => {
                // A connection that was cut may have brought something: the next wish shows it.
                if let Err(error) = pulled {
                    self.last_error = Some(format!("{}: {error}", source.name));
                }
                Ok(true)
            }
        }
    }

    fn unfetched(self, n_sources: usize) -> Unfetched {
        Unfetched::Lacks {
            tensor: self.download.lacks(),
            n_sources,
            why: self.last_error,
        }
    }
}

/// Whether an error is this node's own, so that no other source would help.
fn is_local(error: &PartError) -> bool {
    matches!(
        error,
        PartError::Io { .. }
            | PartError::Storage(_)
            | PartError::DiskBudget { .. }
            | PartError::NoParts
            | PartError::Stopped
    )
}

/// Why a part is not here.
enum Unfetched {
    /// This node cannot keep it.
    Part(PartError),
    /// No source has brought it.
    Lacks {
        /// The first missing tensor, if its name is known.
        tensor: Option<String>,
        /// How many nodes were asked.
        n_sources: usize,
        /// What went wrong last.
        why: Option<String>,
    },
}

impl From<PartError> for Unfetched {
    fn from(error: PartError) -> Self {
        Self::Part(error)
    }
}

impl Unfetched {
    /// The answer for the coordinator: the missing part of the model, and what would help.
    fn blocked(self, name: &str) -> Blocked {
        let (why, would_do) = match self {
            Self::Part(PartError::DiskBudget { .. }) => (
                self.sentence(name),
                "a larger disk budget for parts on this node".to_owned(),
            ),
            Self::Part(PartError::NoParts) => (
                self.sentence(name),
                format!("a directory for parts, or a copy of {name} in a directory of models"),
            ),
            _ => (
                self.sentence(name),
                format!("a copy of {name} in a directory of models"),
            ),
        };
        Blocked {
            why,
            would_do: Some(would_do),
        }
    }

    fn sentence(&self, name: &str) -> String {
        match self {
            Self::Part(error) => format!("{name}: {error}"),
            Self::Lacks { n_sources: 0, .. } => {
                format!("{name} is not here, or it is another model; no node is named that has it")
            }
            Self::Lacks {
                tensor,
                n_sources,
                why,
            } => {
                let tensor = tensor.as_deref().unwrap_or("the index");
                let why = why.as_deref().unwrap_or("none of them has it");
                format!("{name} lacks {tensor}; {n_sources} nodes were asked ({why})")
            }
        }
    }
}

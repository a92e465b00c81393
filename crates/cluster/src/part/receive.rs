//! Fetches what a node lacks of a model: asks for it, takes the pieces, checks every tensor.
//!
//! ```text
//! nothing --beginning--> index and headers --ranges, ranges …--> all tensors of the share
//! ```
//! A [`Download`] says what to ask for next. A sink takes the frames of one connection, which may
//! be cut at any moment: all that has arrived stays, and the next wish names the rest. Pieces that
//! were not asked for, and bytes with another hash, end the connection. Which node is asked, and
//! how, is the caller's business.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atta_model::Share;

use super::{
    FileRange, HEADER, HeldAs, HeldModel, Library, MAX_RANGES, Part, PartError, PartFile,
    PartIndex, PartTensor, PartWish, open_model,
    send::{INDEX, shown},
    share::shard_paths,
    tensors_of,
};
use crate::wire::{Frame, FrameKind, message::WantedModel};

/// Most bytes of the indices of all files.
const MAX_INDEX_BYTES: usize = 64 << 20;

/// The fetching of a share of a model.
#[derive(Debug)]
pub struct Download {
    library: Arc<Library>,
    wanted: Arc<WantedModel>,
    share: Share,
    /// The tensors of the share, once the headers are here.
    names: Option<Vec<String>>,
    state: Arc<Mutex<DownloadState>>,
}

/// What sinks fill.
#[derive(Debug, Default)]
struct DownloadState {
    /// The part, once its index is here.
    part: Option<FilledPart>,
    /// Bytes of the index, while it comes.
    index: Vec<u8>,
    /// What the present connection may bring.
    asked: Option<PartWish>,
    /// Why the last connection ended, if its pieces were wrong.
    failure: Option<PartError>,
    /// Nothing is taken any more.
    is_stopped: bool,
}

#[derive(Debug)]
struct FilledPart {
    model: HeldModel,
    files: Vec<Part<PartFile>>,
}

impl FilledPart {
    fn open(model: HeldModel) -> Result<Self, PartError> {
        let files = shard_paths(&model.path);
        let files = files.iter().map(|path| PartFile::open(path));
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            model,
        })
    }

    /// The missing ranges of some tensors and of the headers. Ranges between which there is nothing
    /// but padding are one.
    fn missing(&self, names: &[String]) -> Vec<FileRange> {
        let mut ranges: Vec<FileRange> = Vec::new();
        for (i, file) in (0..).zip(&self.files) {
            let is_wanted = |name: &str| names.iter().any(|wanted| wanted == name);
            for range in file.missing(is_wanted) {
                let next = FileRange {
                    file: i,
                    start: range.start,
                    end: range.end,
                };
                match ranges.last_mut() {
                    Some(last) if joins(file.index().tensors(), last, &next) => last.end = next.end,
                    _ => ranges.push(next),
                }
            }
        }
        ranges
    }

    fn commit(&mut self) -> Result<(), PartError> {
        self.files.iter_mut().try_for_each(Part::commit)
    }
}

/// Whether no tensor begins between two ranges of a file.
fn joins(tensors: &[PartTensor], a: &FileRange, b: &FileRange) -> bool {
    let first_behind = tensors.partition_point(|tensor| tensor.offset < a.end);
    let is_padding = tensors
        .get(first_behind)
        .is_none_or(|next| next.offset >= b.start);
    // The rest of a tensor that has arrived in part is not padding.
    let is_whole = first_behind == 0 || tensors[first_behind - 1].range().end <= a.end;
    a.file == b.file && is_padding && is_whole
}

impl Download {
    /// Begins with what the library has of the model as a part.
    ///
    /// # Errors
    /// A part that cannot be read.
    pub fn new(
        library: Arc<Library>,
        wanted: WantedModel,
        share: Share,
    ) -> Result<Self, PartError> {
        let part = library.part(wanted.id)?.map(FilledPart::open).transpose()?;
        Ok(Self {
            library,
            wanted: Arc::new(wanted),
            share,
            names: None,
            state: Arc::new(Mutex::new(DownloadState {
                part,
                ..DownloadState::default()
            })),
        })
    }

    /// What to ask a node for next; `None`: everything is here. Makes room for it on the disk.
    ///
    /// # Errors
    /// [`PartError::DiskBudget`], headers that describe no model, the error of the system.
    pub fn wish(&mut self) -> Result<Option<PartWish>, PartError> {
        let mut state = lock(&self.state);
        let Some(part) = &state.part else {
            return Ok(Some(PartWish::Beginning));
        };
        let headers = part.missing(&[]);
        if !headers.is_empty() {
            return Ok(Some(PartWish::Ranges(headers)));
        }
        let names = match &self.names {
            Some(names) => names,
            None => {
                // The sidecars on disk must say that the headers are here.
                let (spec, files) = open_model(&part.model.path)?;
                let names = tensors_of(&self.share, &spec, &files)?;
                self.names.insert(names)
            }
        };
        let mut missing = part.missing(names);
        let needed = missing.iter().map(|range| range.end - range.start).sum();
        if needed == 0 {
            if let Some(part) = &mut state.part {
                part.commit()?;
            }
            return Ok(None);
        }
        self.library.make_room(&part.model, needed)?;
        missing.truncate(MAX_RANGES);
        Ok(Some(PartWish::Ranges(missing)))
    }

    /// Takes the frames of one connection, which bring this wish.
    pub fn sink(&self, wish: &PartWish) -> PartSink {
        let mut state = lock(&self.state);
        state.asked = Some(wish.clone());
        state.failure = None;
        state.index.clear();
        PartSink {
            library: Arc::clone(&self.library),
            wanted: Arc::clone(&self.wanted),
            state: Arc::clone(&self.state),
        }
    }

    /// Bytes that are missing; `None` before the headers are here.
    pub fn missing_bytes(&self) -> Option<u64> {
        let names = self.names.as_ref()?;
        let state = lock(&self.state);
        let missing = state.part.as_ref()?.missing(names);
        Some(missing.iter().map(|range| range.end - range.start).sum())
    }

    /// Why the last connection was ended by this side, once.
    pub fn take_failure(&self) -> Option<PartError> {
        lock(&self.state).failure.take()
    }

    /// A tensor that is missing, for people.
    pub fn lacks(&self) -> Option<String> {
        let state = lock(&self.state);
        let range = state
            .part
            .as_ref()?
            .missing(self.names.as_deref().unwrap_or(&[]));
        let range = range.first()?;
        let files = &state.part.as_ref()?.files;
        let tensors = files.get(usize::from(range.file))?.index().tensors();
        let tensor = tensors
            .iter()
            .find(|tensor| tensor.range().contains(&range.start))?;
        Some(shown(&tensor.name).to_owned())
    }

    /// Takes nothing any more: the present connection ends with its next frame.
    pub fn stop(&self) {
        lock(&self.state).is_stopped = true;
    }

    /// The model as far as it is here.
    ///
    /// # Errors
    /// [`PartError::Absent`] before the headers are here; the error of the system.
    pub fn model(&self) -> Result<HeldModel, PartError> {
        let mut state = lock(&self.state);
        let Some(part) = &mut state.part else {
            let tensor = shown(HEADER).to_owned();
            return Err(PartError::Absent { tensor });
        };
        part.commit()?;
        let index = part.files.iter().map(|file| file.index().clone());
        Ok(HeldModel {
            path: part.model.path.clone(),
            held: HeldAs::Part,
            index: index.collect(),
        })
    }
}

fn lock(state: &Mutex<DownloadState>) -> MutexGuard<'_, DownloadState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the frames of one connection.
#[derive(Debug)]
pub struct PartSink {
    library: Arc<Library>,
    wanted: Arc<WantedModel>,
    state: Arc<Mutex<DownloadState>>,
}

impl PartSink {
    /// Takes a frame. [`ControlFlow::Break`]: no more is wanted; [`Download::take_failure`] knows
    /// why.
    pub fn take(&mut self, frame: &Frame) -> ControlFlow<()> {
        let mut state = lock(&self.state);
        if state.is_stopped || state.failure.is_some() {
            return ControlFlow::Break(());
        }
        match self.fill(&mut state, frame) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                state.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The connection has ended, with all that was wished for or without.
    pub fn end(self) {
        let mut state = lock(&self.state);
        state.asked = None;
        let committed = state.part.as_mut().map(FilledPart::commit);
        if let Some(Err(error)) = committed {
            state.failure = Some(error);
        }
    }

    fn fill(&self, state: &mut DownloadState, frame: &Frame) -> Result<(), PartError> {
        let piece = frame.piece.filter(|_| frame.header.kind == FrameKind::Part);
        let Some(piece) = piece else {
            return Err(PartError::Index("frames of another kind come with it"));
        };
        let bytes = frame.data.len() as u64;
        let offset = piece.offset;
        if piece.id == INDEX && state.asked == Some(PartWish::Beginning) {
            return self.take_index(state, offset, &frame.data);
        }
        let not_asked = || PartError::NotAsked {
            file: piece.id,
            offset,
            bytes,
        };
        let DownloadState { part, asked, .. } = state;
        let file = usize::try_from(piece.id).ok();
        let found = part.as_mut().zip(file).zip(asked.as_ref());
        let ((part, i), asked) = found.ok_or_else(not_asked)?;
        let end = offset.checked_add(bytes).ok_or_else(not_asked)?;
        let file = part.files.get_mut(i).ok_or_else(not_asked)?;
        let is_asked = match asked {
            PartWish::Beginning => end <= file.index().tensors()[0].bytes,
            PartWish::Ranges(ranges) => ranges.iter().any(|range| {
                usize::from(range.file) == i && range.start <= offset && end <= range.end
            }),
            PartWish::States(_) => false,
        };
        if !is_asked {
            return Err(not_asked());
        }
        let whole = file.fill(offset, &frame.data)?;
        // Before the headers are on disk, no wish can follow.
        match whole {
            Some(0) => file.commit(),
            _ => Ok(()),
        }
    }

    /// Takes bytes of the index; with the last ones, the part begins.
    fn take_index(
        &self,
        state: &mut DownloadState,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PartError> {
        let n = state.index.len();
        if offset != n as u64 || n + bytes.len() > MAX_INDEX_BYTES {
            return Err(PartError::Index("its pieces are not in order, or too many"));
        }
        state.index.extend_from_slice(bytes);
        let Some(index) = parse_indices(&state.index)? else {
            return Ok(());
        };
        state.index = Vec::new();
        if state.part.is_none() {
            let model = self.library.begin_part(&self.wanted, &index)?;
            state.part = Some(FilledPart::open(model)?);
        }
        Ok(())
    }
}

/// The indices of all files; `None` while bytes are missing.
fn parse_indices(bytes: &[u8]) -> Result<Option<Vec<PartIndex>>, PartError> {
    let Some((n_files, mut rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let n_files = u32::from_le_bytes(*n_files);
    let mut indices = Vec::new();
    for _ in 0..n_files {
        let Some((n, behind)) = rest.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let n = u64::from_le_bytes(*n);
        let n = usize::try_from(n).ok().filter(|n| *n <= MAX_INDEX_BYTES);
        let n = n.ok_or(PartError::Index("it is too long"))?;
        let Some((index, behind)) = behind.split_at_checked(n) else {
            return Ok(None);
        };
        indices.push(PartIndex::parse(index)?);
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(Some(indices)),
        false => Err(PartError::Index("bytes follow the last file")),
    }
}

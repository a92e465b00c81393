//! Parts over a connection in memory: cut, damaged, of the wrong model, from a node without them.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_model::Share;

use super::*;
use crate::wire::{
    Frame,
    message::{Digest, WantedFile, WantedModel},
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama-plain.gguf")
}

/// A directory of a test, deleted when it ends.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atta-pull-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn library(&self, node: &str, budget_bytes: u64) -> Arc<Library> {
        let models = self.0.join(node).join("models");
        fs::create_dir_all(&models).unwrap();
        Arc::new(Library::new(LibraryOptions {
            models: vec![models],
            parts: Some(PartsDirectory {
                path: self.0.join(node).join("parts"),
                budget_bytes,
            }),
            hashes: self.0.join(node).join("hashes"),
        }))
    }

    fn copy(&self, node: &str, name: &str) -> PathBuf {
        let path = self.0.join(node).join("models").join(name);
        fs::copy(golden(), &path).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn wanted(model: &HeldModel) -> WantedModel {
    let files = model.index.iter().map(|index| WantedFile {
        bytes: index.file_bytes(),
        header: Digest(index.tensors()[0].hash),
    });
    WantedModel {
        id: model.id(),
        name: "a.gguf".to_owned(),
        files: files.collect(),
        share: Digest([0; 32]),
    }
}

fn layers(layers: std::ops::Range<usize>) -> Share {
    Share {
        layers,
        embed: false,
        head: false,
    }
}

/// A connection that carries some frames, changed by the network, as bytes.
struct Pipe<'a> {
    n_frames: usize,
    change: &'a dyn Fn(usize, &mut Frame),
}

const WHOLE: Pipe<'_> = Pipe {
    n_frames: usize::MAX,
    change: &|_, _| (),
};

impl Pipe<'_> {
    fn carry(&self, from: &HeldModel, wish: &PartWish, mut sink: PartSink) -> u64 {
        let limits = part_limits();
        let mut n = 0;
        let send = |mut frame: Frame| -> Result<(), PartError> {
            (self.change)(n, &mut frame);
            n += 1;
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            let arrived = Frame::parse(&bytes, &limits).unwrap();
            match n <= self.n_frames && sink.take(&arrived).is_continue() {
                true => Ok(()),
                false => Err(PartError::Stopped),
            }
        };
        let sent = send_parts(&from.files().unwrap(), wish, send);
        sink.end();
        sent.unwrap_or(0)
    }
}

/// Asks until everything is here; the result is the number of connections.
fn pull(download: &mut Download, from: &HeldModel, pipe: &Pipe<'_>) -> usize {
    let mut n = 0;
    while let Some(wish) = download.wish().unwrap() {
        n += 1;
        assert!(n < 10_000, "no progress: {wish:?}");
        pipe.carry(from, &wish, download.sink(&wish));
    }
    n
}

#[test]
fn a_share_comes_in_two_connections_and_again_in_none() {
    let place = Place::new("share");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let new = || Download::new(Arc::clone(&to), wanted(&from), layers(0..1)).unwrap();
    let mut download = new();
    assert_eq!(pull(&mut download, &from, &WHOLE), 2);
    let model = download.model().unwrap();
    assert!(model.held_bytes() < from.held_bytes());
    let (spec, files) = model.open().unwrap();
    let names = tensors_of(&layers(0..1), &spec, &files).unwrap();
    let tensors = model.index[0].tensors().iter();
    let held = tensors.filter(|tensor| tensor.presence == Presence::Whole);
    assert_eq!(held.count(), names.len() + 1, "the share and the header");
    assert_eq!(new().wish().unwrap(), None);
    assert_eq!(to.list().len(), 1);
    // The part serves others, what it has and nothing else.
    let third = place.library("third", 1 << 20);
    let mut both = Download::new(third, wanted(&from), layers(0..2)).unwrap();
    let wish = both.wish().unwrap().unwrap();
    WHOLE.carry(&model, &wish, both.sink(&wish));
    let wish = both.wish().unwrap().unwrap();
    WHOLE.carry(&model, &wish, both.sink(&wish));
    let rest = both.wish().unwrap().unwrap();
    assert_ne!(rest, wish);
    assert!(both.lacks().unwrap().starts_with("blk.1."));
    let before = both.missing_bytes().unwrap();
    WHOLE.carry(&model, &rest, both.sink(&rest));
    assert_eq!(both.missing_bytes(), Some(before), "it has no more");
    assert_eq!(pull(&mut both, &from, &WHOLE), 1);
}

#[test]
fn a_connection_that_is_cut_after_every_frame_loses_nothing() {
    let place = Place::new("cut");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let mut download = Download::new(to, wanted(&from), layers(1..2)).unwrap();
    let cut = Pipe {
        n_frames: 1,
        ..WHOLE
    };
    let n = pull(&mut download, &from, &cut);
    assert!(n > 3, "{n}");
    assert!(download.model().unwrap().open().is_ok());
}

#[test]
fn wrong_bytes_are_refused_named_and_fetched_again() {
    let place = Place::new("wrong");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let mut download = Download::new(to, wanted(&from), layers(0..1)).unwrap();
    let wish = download.wish().unwrap().unwrap();
    WHOLE.carry(&from, &wish, download.sink(&wish));
    let wish = download.wish().unwrap().unwrap();
    let flip = Pipe {
        change: &|n, frame| {
            if n == 0 {
                frame.data[3] ^= 1;
            }
        },
        ..WHOLE
    };
    flip.carry(&from, &wish, download.sink(&wish));
    let failure = download.take_failure().unwrap();
    assert!(matches!(failure, PartError::Hash { .. }), "{failure}");
    assert_eq!(pull(&mut download, &from, &WHOLE), 1);
    assert!(download.take_failure().is_none());
}

#[test]
fn what_was_not_asked_for_ends_the_connection() {
    let place = Place::new("not-asked");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let mut download = Download::new(to, wanted(&from), layers(0..1)).unwrap();
    let all = PartWish::Ranges(vec![FileRange {
        file: 0,
        start: 0,
        end: u64::MAX,
    }]);
    // Before anything is known, ranges belong to nothing.
    let beginning = download.wish().unwrap().unwrap();
    assert_eq!(beginning, PartWish::Beginning);
    WHOLE.carry(&from, &all, download.sink(&beginning));
    assert!(matches!(
        download.take_failure(),
        Some(PartError::NotAsked { .. })
    ));
    WHOLE.carry(&from, &beginning, download.sink(&beginning));
    let wish = download.wish().unwrap().unwrap();
    WHOLE.carry(&from, &all, download.sink(&wish));
    assert!(matches!(
        download.take_failure(),
        Some(PartError::NotAsked { .. })
    ));
    // A piece of another file, one that ends beyond all numbers, an index that is not wanted.
    type Change = fn(&mut crate::wire::Piece);
    let changes: [Change; 3] = [
        |piece| piece.id = 1,
        |piece| piece.offset = u64::MAX - 1,
        |piece| piece.id = u64::MAX,
    ];
    for change in changes {
        let pipe = Pipe {
            change: &|_, frame| frame.piece.iter_mut().for_each(change),
            ..WHOLE
        };
        pipe.carry(&from, &wish, download.sink(&wish));
        assert!(matches!(
            download.take_failure(),
            Some(PartError::NotAsked { .. })
        ));
    }
    download.stop();
    assert_eq!(WHOLE.carry(&from, &wish, download.sink(&wish)), 0);
}

#[test]
fn an_index_of_another_model_or_a_torn_one_begins_no_part() {
    let place = Place::new("other");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let mut other = wanted(&from);
    other.id = Digest([1; 32]);
    let download = Download::new(Arc::clone(&to), other, layers(0..1)).unwrap();
    let beginning = PartWish::Beginning;
    WHOLE.carry(&from, &beginning, download.sink(&beginning));
    assert!(matches!(
        download.take_failure(),
        Some(PartError::OtherModel)
    ));
    for i in [0, 4, 8, 20] {
        let download = Download::new(Arc::clone(&to), wanted(&from), layers(0..1)).unwrap();
        let pipe = Pipe {
            change: &|n, frame| {
                if n == 0 {
                    frame.data[i] ^= 0x40;
                }
            },
            ..WHOLE
        };
        pipe.carry(&from, &beginning, download.sink(&beginning));
        assert!(
            download.take_failure().is_some() || download.model().is_err(),
            "{i}"
        );
    }
    assert!(to.list().is_empty());
}

#[test]
fn a_part_that_is_cut_short_or_has_a_torn_sidecar_is_fetched_anew() {
    let place = Place::new("torn");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 1 << 20);
    let fetch = || {
        let mut download = Download::new(Arc::clone(&to), wanted(&from), layers(0..1)).unwrap();
        let n_connections = pull(&mut download, &from, &WHOLE);
        (n_connections, download.model().unwrap())
    };
    let (_, first) = fetch();
    let held = fs::read(&first.path).unwrap();
    assert_eq!(fetch().0, 0);
    let sidecar = PartFile::index_path(&first.path);
    for (path, n_bytes) in [(&first.path, held.len() - 1), (&sidecar, 100)] {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..n_bytes]).unwrap();
        let (n_connections, again) = fetch();
        assert!(n_connections > 0, "{}", path.display());
        assert_eq!(fs::read(&again.path).unwrap(), held);
    }
}

#[test]
fn a_part_that_does_not_fit_the_budget_is_refused_and_others_go_for_one_that_does() {
    let place = Place::new("budget");
    let library = place.library("lap", 0);
    let from = library
        .hashed(&place.copy("lap", "a.gguf"), &mut go_on)
        .unwrap();
    let to = place.library("pi", 2000);
    let mut download = Download::new(to, wanted(&from), layers(0..1)).unwrap();
    let wish = download.wish().unwrap().unwrap();
    WHOLE.carry(&from, &wish, download.sink(&wish));
    assert!(matches!(download.wish(), Err(PartError::DiskBudget { .. })));
    let none = Library::new(LibraryOptions {
        models: Vec::new(),
        parts: None,
        hashes: place.0.join("none"),
    });
    let error = none.begin_part(&wanted(&from), &from.index).unwrap_err();
    assert!(matches!(error, PartError::NoParts), "{error}");
}

#[test]
fn a_file_is_hashed_once_and_found_by_its_content() {
    let place = Place::new("library");
    let library = place.library("pi", 0);
    let path = place.copy("pi", "b.gguf");
    fs::write(path.with_file_name("broken.gguf"), b"no model").unwrap();
    let mut n_hashed = 0;
    let mut count = |_: u64, _: u64| {
        n_hashed += 1;
        ControlFlow::Continue(())
    };
    let model = library.hashed(&path, &mut count).unwrap();
    let wanted = wanted(&model);
    let found = library.whole(&wanted, &mut count).unwrap().unwrap();
    assert_eq!((found.path, found.held), (path.clone(), HeldAs::Whole));
    assert_eq!(n_hashed, model.index[0].tensors().len());
    // Another program finds it without hashing, by its content alone.
    let again = place.library("pi", 0);
    assert_eq!(again.held(wanted.id).unwrap().unwrap().path, path);
    assert!(again.held(Digest([7; 32])).unwrap().is_none());
    // A file that has changed is not the model any more.
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(again.held(wanted.id).unwrap().is_none());
    assert!(again.whole(&wanted, &mut go_on).unwrap().is_none());
    let stopped = library.hashed(&golden(), &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(PartError::Stopped)));
}

//! A coordinator that comes back finds its prompts on the disks of the stages, and computes again
//! only what it does not find. The text stays that of one machine.

#[allow(dead_code, reason = "shared with other tests")]
mod machines;
mod scratch;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atta_cluster::RemoteRing;
use atta_engine::{
    Batcher, BatcherOptions, Engine, Event, GenerateOptions, Job, LoadOptions, PromptCache,
    SessionOptions, Update,
};
use machines::{Cluster, On, states_of, tls};
use scratch::Scratch;
use stories::{n_layers, path};

fn cache(scratch: &Scratch) -> PromptCache {
    PromptCache::open(scratch.path(), 1 << 30).unwrap()
}

fn session() -> SessionOptions {
    SessionOptions {
        n_ctx: Some(512),
        ..SessionOptions::default()
    }
}

fn engine(ring: Option<RemoteRing>) -> Engine {
    let options = LoadOptions {
        backend: ring.map(|ring| Arc::new(ring) as _),
        session: session(),
        ..LoadOptions::default()
    };
    Engine::open(&path(), &options).unwrap()
}

/// Tokens of a prompt of some hundred.
fn prompt(engine: &Engine) -> Vec<u32> {
    let story = "Once upon a time there was a cat. The cat had a red ball and a big dog. ";
    engine.prompt_ids(story.repeat(14).as_bytes())
}

/// What a text found in a cache, and the text.
#[derive(Debug, PartialEq)]
struct Written {
    n_found: usize,
    notes: Vec<String>,
    text: String,
}

/// A text that uses a cache. `n_pieces`: the caller goes away behind so many pieces.
fn write(engine: &Engine, cache: &PromptCache, n_pieces: usize) -> Written {
    let mut open = engine.session(&session()).unwrap();
    let prompt = prompt(engine);
    let hit = open.restore(cache, &prompt).unwrap();
    let options = GenerateOptions {
        n_predict: 24,
        ..stories::options(3)
    };
    let rest = &prompt[hit.n_tokens..];
    let mut text = String::new();
    let mut n = 0;
    let generation = open.generate_saving(cache, rest, &options).unwrap();
    let done = generation.run(|event| {
        if let Event::Text(piece) = event {
            text.push_str(&piece);
            n += 1;
        }
        match n < n_pieces {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    done.unwrap();
    Written {
        n_found: hit.n_tokens,
        notes: hit.notes,
        text,
    }
}

/// Files of states on a machine.
fn states(cluster: &Cluster, i: usize) -> Vec<PathBuf> {
    let directory = states_of(cluster.machines[i].address.address);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Breaks a file in its middle.
fn tear(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn halves() -> Vec<On> {
    let n = n_layers();
    vec![(0, 1..2), (1, 2..n)]
}

#[test]
fn a_coordinator_that_comes_back_computes_its_prompt_only_once() {
    let here = engine(None);
    let empty = Scratch::new("empty");
    let expected = write(&here, &cache(&empty), usize::MAX).text;
    let n_prompt = prompt(&here).len();
    assert!(n_prompt > 250, "{n_prompt} tokens");
    for n_local in [1, 0] {
        let cluster = Cluster::new(2, tls);
        let mut stages = halves();
        stages[0].1.start = n_local;
        let scratch = Scratch::new(&format!("once-{n_local}"));
        let ring = |stages: &[On]| engine(Some(cluster.keeping(n_local, stages)));
        // The first one goes away in the middle of its text.
        let first = write(&ring(&stages), &cache(&scratch), 3);
        assert_eq!((first.n_found, first.notes), (0, vec![]));
        assert!(!states(&cluster, 0).is_empty() && !states(&cluster, 1).is_empty());
        let second = write(&ring(&stages), &cache(&scratch), usize::MAX);
        assert_eq!((second.n_found, &second.notes[..]), (n_prompt - 1, &[][..]));
        assert_eq!(second.text, expected);
    }
}

#[test]
fn layers_that_have_moved_take_their_states_from_where_they_were() {
    let here = engine(None);
    let empty = Scratch::new("moved-none");
    let expected = write(&here, &cache(&empty), usize::MAX).text;
    let n_prompt = prompt(&here).len();
    let n = n_layers();
    let cluster = Cluster::new(2, tls);
    let scratch = Scratch::new("moved");
    let ring = |n_local, stages: &[On]| engine(Some(cluster.keeping(n_local, stages)));
    write(&ring(1, &halves()), &cache(&scratch), usize::MAX);
    // From one machine to the other, to this one, and from this one.
    for (n_local, stages) in [
        (1, vec![(1, 1..2), (0, 2..n)]),
        (2, vec![(0, 2..n)]),
        (0, vec![(1, 0..2), (0, 2..n)]),
    ] {
        let written = write(&ring(n_local, &stages), &cache(&scratch), usize::MAX);
        assert_eq!(
            (written.n_found, &written.notes[..]),
            (n_prompt - 1, &[][..]),
            "{stages:?}"
        );
        assert_eq!(written.text, expected, "{stages:?}");
    }
    // A machine that is in no ring is not asked.
    remove_states(&cluster, 0);
    let lost = write(&ring(2, &[(0, 2..n)]), &cache(&scratch), usize::MAX);
    assert!(lost.n_found < n_prompt / 2, "{lost:?}");
    assert_eq!(lost.text, expected);
}

/// The prompt's tokens that a server with this cache found, and the text.
fn served(engine: &Engine, scratch: &Scratch) -> (usize, String) {
    let options = BatcherOptions {
        session: SessionOptions {
            n_forks: 1,
            ..session()
        },
        n_jobs: 1,
        max_gap: Duration::from_millis(5),
        cache: Some(Arc::new(cache(scratch))),
    };
    let mut batcher = Batcher::new(engine, &options).unwrap();
    let job = Job::new(engine, prompt(engine), &stories::options(3)).unwrap();
    batcher.submit(job).unwrap();
    let mut text = String::new();
    let mut n_cached = 0;
    while !batcher.is_idle() {
        let on_update = &mut |_, update: Update| {
            match update {
                Update::Event(Event::Text(piece)) => text.push_str(&piece),
                Update::Done(done) => n_cached = done.n_cached,
                _ => {}
            }
            ControlFlow::Continue(())
        };
        batcher.step(on_update).unwrap();
    }
    batcher.save_cached_prefixes();
    assert_eq!(batcher.take_notes(), [""; 0]);
    (n_cached, text)
}

#[test]
fn a_server_that_comes_back_finds_its_prompts_on_other_layers_too() {
    let here = engine(None);
    let expected = served(&here, &Scratch::new("served-none")).1;
    let n_prompt = prompt(&here).len();
    let n = n_layers();
    let cluster = Cluster::new(2, tls);
    let scratch = Scratch::new("served");
    let ring = |n_local, stages: &[On]| engine(Some(cluster.keeping(n_local, stages)));
    let first = served(&ring(1, &halves()), &scratch);
    assert_eq!(first, (0, expected.clone()));
    let (n_cached, text) = served(&ring(2, &[(0, 2..3), (1, 3..n)]), &scratch);
    assert!(n_cached > n_prompt - 32, "{n_cached} of {n_prompt}");
    assert_eq!(text, expected);
}

fn remove_states(cluster: &Cluster, i: usize) {
    let files = states(cluster, i);
    files.iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn what_a_stage_has_lost_or_torn_is_computed_again() {
    let here = engine(None);
    let empty = Scratch::new("none");
    let expected = write(&here, &cache(&empty), usize::MAX).text;
    let n_prompt = prompt(&here).len();
    let cluster = Cluster::new(2, tls);
    let scratch = Scratch::new("torn");
    let ring = || engine(Some(cluster.keeping(1, &halves())));
    write(&ring(), &cache(&scratch), usize::MAX);
    for damage in [&tear as &dyn Fn(&Path), &|path| {
        fs::remove_file(path).unwrap()
    }] {
        states(&cluster, 1).iter().for_each(|path| damage(path));
        let written = write(&ring(), &cache(&scratch), usize::MAX);
        assert!(written.n_found < 128, "{written:?}");
        assert!(written.notes.len() == 1, "{:?}", written.notes);
        assert_eq!(written.text, expected);
        // It is there again.
        let written = write(&ring(), &cache(&scratch), usize::MAX);
        assert_eq!(
            (written.n_found, written.text),
            (n_prompt - 1, expected.clone())
        );
    }
}

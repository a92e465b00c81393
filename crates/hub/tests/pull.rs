//! Pulls from a test server that breaks connections, sends wrong bytes and refuses requests.

mod support;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

#[cfg(unix)]
use std::path::Path;

use atta_hub::{Cache, Error, Event, Hub, HubOptions, Pulled, Request};
use support::{
    COMMIT, HttpRequest, Reply, Repo, Server, content_from, hash, listed, sha256, weights,
};

const SIZE: usize = 300_000;

/// A cache of a test, removed with it.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atta-hub-{name}-{}", std::process::id()));
        // A test that was killed may have left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn cache(&self) -> Cache {
        Cache::new(&self.0)
    }

    /// Files in `blobs`, by name.
    fn blobs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join("models--org--m/blobs")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn partial(&self, content: &[u8]) -> PathBuf {
        self.0
            .join("models--org--m/blobs")
            .join(hash(content) + ".incomplete")
    }

    fn pull_with(&self, server: &Server, what: &str, options: HubOptions) -> Result<Pulled, Error> {
        let options = HubOptions {
            endpoint: server.url.clone(),
            pause: Duration::ZERO,
            ..options
        };
        Hub::new(self.cache(), &options)?.pull(&what.parse()?, &mut |_| ())
    }

    fn pull(&self, server: &Server, what: &str) -> Result<Pulled, Error> {
        self.pull_with(server, what, HubOptions::default())
    }

    /// The error of a pull that must fail.
    fn error(&self, server: &Server, what: &str) -> String {
        self.pull(server, what).unwrap_err().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn model() -> Vec<u8> {
    weights(SIZE, 1)
}

fn repo() -> Repo {
    let files = vec![
        ("README.md", b"hello".to_vec()),
        ("m-Q8_0.gguf", weights(200, 7)),
        ("m-Q4_K_M.gguf", model()),
    ];
    Repo {
        name: "org/m",
        files,
    }
}

/// Serves the repository, passing replies to file requests through `spoil`, with the number of the
/// request from 0.
fn spoiled(spoil: impl Fn(Reply, &HttpRequest, usize) -> Reply + Send + Sync + 'static) -> Server {
    let repo = repo();
    let n = AtomicUsize::new(0);
    Server::start(move |request| {
        let reply = repo.answer(request);
        if request.is_file() {
            spoil(reply, request, n.fetch_add(1, Relaxed))
        } else {
            reply
        }
    })
}

#[test]
fn a_file_lies_where_other_programs_look_for_it() {
    let scratch = TempDir::new("layout");
    let server = spoiled(|reply, _, _| reply);
    let pulled = scratch.pull(&server, "org/m").unwrap();
    let repo = scratch.0.join("models--org--m");
    assert_eq!(
        pulled.path,
        repo.join("snapshots").join(COMMIT).join("m-Q4_K_M.gguf")
    );
    assert_eq!(fs::read(&pulled.path).unwrap(), model());
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(scratch.blobs(), [sha256(&model())]);
    assert_eq!(pulled.files[0].sha256, Some(sha256(&model())));
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(&pulled.path).unwrap(),
        Path::new("../../blobs").join(sha256(&model()))
    );
    assert!(!pulled.files[0].from_cache);

    let again = scratch.pull(&server, "org/m:q4_k_m").unwrap();
    assert_eq!((again.path, again.files[0].from_cache), (pulled.path, true));
    assert_eq!(server.file_requests().len(), 1);
}

#[test]
fn small_files_go_by_the_hash_of_git_and_lie_in_directories() {
    let scratch = TempDir::new("small");
    let repo = Repo {
        name: "org/m",
        files: vec![
            ("sub/dir/a.json", b"{}".to_vec()),
            ("empty.txt", Vec::new()),
        ],
    };
    let server = Server::start(move |request| repo.answer(request));
    let pulled = scratch.pull(&server, "org/m:sub/dir/a.json").unwrap();
    assert_eq!(
        (fs::read(&pulled.path).unwrap(), &pulled.files[0].sha256),
        (b"{}".to_vec(), &None)
    );
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(&pulled.path).unwrap(),
        Path::new("../../../../blobs").join(hash(b"{}"))
    );
    assert_eq!(
        fs::read(scratch.pull(&server, "org/m:empty.txt").unwrap().path).unwrap(),
        b""
    );
}

#[test]
fn a_checkpoint_is_a_directory() {
    let scratch = TempDir::new("checkpoint");
    let files = [
        ("config.json", 2),
        ("model.safetensors", 5000),
        ("tokenizer.json", 300),
        ("README.md", 10),
    ];
    let files = files.map(|(path, n)| (path, weights(n, 3))).to_vec();
    let repo = Repo {
        name: "org/m",
        files,
    };
    let server = Server::start(move |request| repo.answer(request));
    let pulled = scratch.pull(&server, "org/m").unwrap();
    assert_eq!(
        pulled.path,
        scratch.0.join("models--org--m/snapshots").join(COMMIT)
    );
    assert_eq!(pulled.files.len(), 3);
    assert_eq!(fs::read_dir(&pulled.path).unwrap().count(), 3);
}

#[test]
fn a_connection_may_be_cut_anywhere_and_the_same_pull_goes_on() {
    for cut in [0, 1, 2, 1000, 131_071, 131_072, 131_073, SIZE / 2, SIZE - 1] {
        let scratch = TempDir::new(&format!("cut-{cut}"));
        let server = spoiled(move |reply, _, n| Reply {
            cut: (n == 0).then_some(cut),
            ..reply
        });
        assert_eq!(
            fs::read(scratch.pull(&server, "org/m").unwrap().path).unwrap(),
            model(),
            "{cut}"
        );
        let requests = server.file_requests();
        assert_eq!(
            (requests.len(), requests[1].start()),
            (2, Some(cut).filter(|&cut| cut > 0)),
            "{cut}"
        );
        let etag = format!("\"{}\"", sha256(&model()));
        assert_eq!(
            requests[1].header("if-range"),
            (cut > 0).then_some(etag.as_str()),
            "{cut}"
        );
    }
}

#[test]
fn another_pull_goes_on_where_one_was_cut() {
    let impatient = || HubOptions {
        n_retries: 0,
        ..HubOptions::default()
    };
    for cut in [0, 1, 4096, 131_072, SIZE - 1] {
        let scratch = TempDir::new(&format!("resume-{cut}"));
        let server = spoiled(move |reply, _, n| Reply {
            cut: (n == 0).then_some(cut),
            ..reply
        });
        let error = scratch
            .pull_with(&server, "org/m", impatient())
            .unwrap_err();
        assert!(matches!(error, Error::Connection { .. }), "{error}");
        assert_eq!(fs::read(scratch.partial(&model())).unwrap(), model()[..cut]);
        let pulled = scratch.pull_with(&server, "org/m", impatient()).unwrap();
        assert_eq!(fs::read(pulled.path).unwrap(), model());
        assert_eq!(
            server.file_requests()[1].start(),
            Some(cut).filter(|&cut| cut > 0)
        );
        assert_eq!(scratch.blobs(), [sha256(&model())]);
    }
}

#[test]
fn cut_connections_that_delivered_bytes_are_not_consecutive_failures() {
    let scratch = TempDir::new("drip");
    let server = spoiled(|reply, _, _| Reply {
        cut: Some(10_000),
        ..reply
    });
    let once = HubOptions {
        n_retries: 1,
        ..HubOptions::default()
    };
    assert_eq!(
        fs::read(scratch.pull_with(&server, "org/m", once).unwrap().path).unwrap(),
        model()
    );
    assert_eq!(server.file_requests().len(), SIZE / 10_000);
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let scratch = TempDir::new("no-range");
    let whole = |n: usize| Reply {
        cut: (n == 0).then_some(1000),
        ..content_from(&model(), None)
    };
    let server = spoiled(move |_, _, n| whole(n));
    assert_eq!(
        fs::read(scratch.pull(&server, "org/m").unwrap().path).unwrap(),
        model()
    );

    // If it always breaks off at the same byte, the pull fails.
    let scratch = TempDir::new("no-range-cut");
    let server = spoiled(|_, _, _| Reply {
        cut: Some(SIZE / 2),
        ..content_from(&model(), None)
    });
    assert!(scratch.error(&server, "org/m").contains("(6 times)"));
    assert_eq!(server.file_requests().len(), 6);
}

#[test]
fn a_server_that_goes_on_elsewhere_is_not_believed() {
    let scratch = TempDir::new("wrong-range");
    let server = spoiled(|reply, request, n| match n {
        0 => Reply {
            cut: Some(1000),
            ..reply
        },
        1 => content_from(&model(), Some(999)).with("X-Note", "one too early"),
        2 => {
            assert_eq!(request.start(), None);
            reply
        }
        _ => Reply::of(400, ""),
    });
    assert_eq!(
        fs::read(scratch.pull(&server, "org/m").unwrap().path).unwrap(),
        model()
    );

    let scratch = TempDir::new("416");
    let server = spoiled(|reply, _, n| match n {
        0 => Reply {
            cut: Some(1000),
            ..reply
        },
        1 => Reply::of(416, ""),
        _ => reply,
    });
    assert_eq!(
        fs::read(scratch.pull(&server, "org/m").unwrap().path).unwrap(),
        model()
    );
}

#[test]
fn wrong_bytes_are_found_out_and_removed() {
    let spoil = |mut reply: Reply, at: usize| {
        reply.body[at] ^= 1;
        reply
    };
    let scratch = TempDir::new("wrong-bytes");
    let server = spoiled(move |reply, _, n| {
        if n == 0 {
            spoil(reply, SIZE - 1)
        } else {
            reply
        }
    });
    let error = scratch.error(&server, "org/m");
    assert!(
        error.contains("m-Q4_K_M.gguf") && error.contains(&sha256(&model())),
        "{error}"
    );
    assert!(
        scratch.blobs().is_empty() && !error.contains('\n'),
        "{:?}",
        scratch.blobs()
    );
    // The next pull starts again and succeeds.
    assert!(scratch.pull(&server, "org/m").is_ok());

    // The bytes of an earlier pull are hashed too.
    let scratch = TempDir::new("wrong-part");
    fs::create_dir_all(scratch.partial(&model()).parent().unwrap()).unwrap();
    fs::write(scratch.partial(&model()), vec![0; 1000]).unwrap();
    assert!(
        scratch
            .error(&server, "org/m")
            .contains("expected a file with the hash")
    );
    assert!(scratch.blobs().is_empty());
    // A partial file longer than the file is restarted; one of equal length is hashed and refused.
    for n in [SIZE + 1, SIZE] {
        fs::write(scratch.partial(&model()), vec![0; n]).unwrap();
        assert_eq!(scratch.pull(&server, "org/m").is_ok(), n > SIZE, "{n}");
        assert_eq!(scratch.blobs().len(), usize::from(n > SIZE));
        let repo = scratch.0.join("models--org--m");
        // Without symbolic links the file is there, too.
        let _ = fs::remove_dir_all(repo.join("snapshots"));
        let _ = fs::remove_file(repo.join("blobs").join(sha256(&model())));
    }
}

#[test]
fn a_file_of_another_length_is_not_taken() {
    for length in [SIZE - 1, SIZE + 1] {
        let scratch = TempDir::new(&format!("length-{length}"));
        let server = spoiled(move |_, _, _| Reply::of(200, weights(length, 1)));
        let error = scratch.error(&server, "org/m");
        assert!(
            error.contains(&format!("expected {SIZE} bytes, got {length}")),
            "{error}"
        );
        assert!(scratch.blobs().is_empty());
    }
}

#[test]
fn a_body_that_does_not_end_is_cut_off_at_the_length_of_the_file() {
    let scratch = TempDir::new("endless");
    let server = spoiled(|_, _, _| Reply {
        length: 0,
        ..Reply::of(200, weights(20 * SIZE, 5))
    });
    assert!(
        scratch
            .error(&server, "org/m")
            .contains("expected a file with the hash")
    );
    assert!(scratch.blobs().is_empty());
}

#[test]
fn content_that_changes_between_two_connections_is_noticed() {
    let other = weights(SIZE, 9);
    let changed = other.clone();
    let scratch = TempDir::new("changed");
    // As the storage servers do it: `If-Range` does not match any more, so the whole new file is
    // sent, and its hash is wrong.
    let server = spoiled(move |reply, _, n| match n {
        0 => Reply {
            cut: Some(1000),
            headers: vec![("ETag", "\"v1\"".to_owned())],
            ..reply
        },
        _ => Reply {
            headers: vec![("ETag", "\"v2\"".to_owned())],
            ..content_from(&changed, None)
        },
    });
    assert!(
        scratch
            .error(&server, "org/m")
            .contains("expected a file with the hash")
    );
    assert_eq!(server.file_requests()[1].header("if-range"), Some("\"v1\""));
    assert!(scratch.blobs().is_empty());

    // As the Hub does it: a header announces the hash of the new file.
    let scratch = TempDir::new("changed-linked");
    let server =
        spoiled(move |reply, _, _| reply.with("X-Linked-ETag", format!("\"{}\"", sha256(&other))));
    let error = scratch.error(&server, "org/m");
    assert!(
        error.contains(&format!("the server has {}", sha256(&weights(SIZE, 9)))),
        "{error}"
    );
    assert!(scratch.blobs().is_empty());
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    for (status, header) in [
        (500, ("X-A", "b")),
        (503, ("Retry-After", "0")),
        (429, ("Retry-After", "0")),
    ] {
        let scratch = TempDir::new(&format!("busy-{status}"));
        let repo = repo();
        let n = AtomicUsize::new(0);
        // Every other response is an error, JSON included.
        let server = Server::start(move |request| match n.fetch_add(1, Relaxed) % 2 {
            0 => Reply::of(status, "busy").with(header.0, header.1),
            _ => repo.answer(request),
        });
        assert_eq!(
            fs::read(scratch.pull(&server, "org/m").unwrap().path).unwrap(),
            model()
        );
    }
    let scratch = TempDir::new("always-busy");
    let server = Server::start(|_| Reply::of(500, ""));
    assert!(scratch.error(&server, "org/m").contains("status 500"));
    assert_eq!(server.requests().len(), 6);
    let server = Server::start(|_| Reply::of(429, "").with("Retry-After", "86400"));
    assert!(scratch.error(&server, "org/m").contains("429"));
}

#[test]
fn a_redirect_to_another_host_does_not_get_the_token() {
    let scratch = TempDir::new("redirect");
    let storage = Server::start(|request| content_from(&model(), request.start()));
    let target = format!("{}/bytes?Signature=secret", storage.url);
    let server = spoiled(move |_, request, _| match request.path.ends_with("?here") {
        // As on the Hub, a first redirect stays on the endpoint.
        false => Reply::of(307, "").with("Location", "m-Q4_K_M.gguf?here"),
        true => Reply::of(302, "")
            .with("Location", &target)
            .with("X-Linked-ETag", sha256(&model())),
    });
    let options = HubOptions {
        token: Some("hf_secret".to_owned()),
        ..HubOptions::default()
    };
    let pulled = scratch.pull_with(&server, "org/m", options).unwrap();
    assert_eq!(fs::read(pulled.path).unwrap(), model());
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer hf_secret"))
    );
    assert_eq!(
        (server.file_requests().len(), storage.requests().len()),
        (2, 1)
    );
    assert_eq!(storage.requests()[0].header("authorization"), None);
}

#[test]
fn an_expired_signed_url_is_requested_again() {
    let scratch = TempDir::new("expired");
    let n = AtomicUsize::new(0);
    let storage = Server::start(move |request| match n.fetch_add(1, Relaxed) {
        0 => Reply::of(403, "expired"),
        _ => content_from(&model(), request.start()),
    });
    let target = format!("{}/bytes", storage.url);
    let server = spoiled(move |_, _, _| Reply::of(302, "").with("Location", &target));
    assert!(scratch.pull(&server, "org/m").is_ok());
    assert_eq!(
        (server.file_requests().len(), storage.requests().len()),
        (2, 2)
    );
}

#[test]
fn redirects_in_circles_and_to_nowhere_end() {
    for location in ["?again", "file:///etc/passwd", ""] {
        let scratch = TempDir::new("circles");
        let server = spoiled(move |_, _, _| Reply::of(302, "").with("Location", location));
        assert!(
            scratch.error(&server, "org/m").contains("redirect"),
            "{location}"
        );
    }
}

#[test]
fn a_long_list_comes_in_pages() {
    let scratch = TempDir::new("pages");
    let repo = repo();
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.contains("cursor=2") => {
            Reply::of(200, format!("[{}]", listed("m-Q4_K_M.gguf", &model())))
        }
        path if path.contains("/tree/") => Reply::of(200, format!("[{}]", listed("a.txt", b"a")))
            .with("Link", "</api/models/org/m/tree/x?cursor=2>; rel=\"next\""),
        _ => repo.answer(request),
    });
    assert!(scratch.pull(&server, "org/m").is_ok());
}

#[test]
fn a_list_without_end_and_one_that_leads_away_are_refused() {
    for (link, expected) in [
        ("?more", "does not end"),
        ("http://127.0.0.1:1/x", "a URL that cannot be used"),
    ] {
        let scratch = TempDir::new("list");
        let repo = repo();
        let server = Server::start(move |request| match request.path.contains("/tree/") {
            true => Reply::of(200, "[]").with("Link", format!("<{link}>; rel=\"next\"")),
            false => repo.answer(request),
        });
        let error = scratch.error(&server, "org/m");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn hostile_names_in_a_list_are_refused() {
    for path in [
        "../../x.gguf",
        "/etc/x.gguf",
        "a/../../x.gguf",
        "a\\\\..\\\\x.gguf",
        "\\u0000.gguf",
        "\\u001b[2J.gguf",
        "",
    ] {
        let scratch = TempDir::new("hostile");
        let repo = repo();
        let list = format!("[{}]", listed(path, &model()));
        let server = Server::start(move |request| match request.path.contains("/tree/") {
            true => Reply::of(200, list.clone()),
            false => repo.answer(request),
        });
        let error = scratch.error(&server, "org/m");
        assert!(error.starts_with("the hub lists a file "), "{error}");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{path}");
    }
}

#[test]
fn unusable_responses_are_errors() {
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "<html>",
        "{}",
        "[1,2",
        r#"{"sha":"../../../x"}"#,
        r#"{"sha":7}"#,
        &deep,
    ] {
        let scratch = TempDir::new("garbage");
        let body = body.to_owned();
        let server = Server::start(move |_| Reply::of(200, body.clone()));
        let error = scratch.error(&server, "org/m");
        assert!(
            error.starts_with(&server.url) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn a_refusal_says_what_would_help() {
    let scratch = TempDir::new("refused");
    let refusing = |status, code: &'static str| {
        Server::start(move |_| Reply::of(status, "{}").with("X-Error-Code", code))
    };
    let error = scratch.error(&refusing(401, "RepoNotFound"), "org/m");
    assert!(
        error.contains("org/m") && error.contains("private or gated") && error.contains("HF_TOKEN"),
        "{error}"
    );
    let error = scratch.error(&refusing(403, "GatedRepo"), "org/m");
    assert!(
        error.contains("agree to its terms") && error.contains("HF_TOKEN"),
        "{error}"
    );
    assert!(
        scratch
            .error(&refusing(404, "RepoNotFound"), "org/m")
            .contains("no such repository")
    );
    assert!(
        scratch
            .error(&refusing(418, ""), "org/m")
            .contains("status 418")
    );

    let server = spoiled(|_, _, _| Reply::of(404, ""));
    assert!(
        scratch
            .error(&server, "org/m")
            .contains("there is no file \"m-Q4_K_M.gguf\"")
    );
    let other = Request {
        revision: "v9".parse().unwrap(),
        .."org/m".parse().unwrap()
    };
    let options = HubOptions {
        endpoint: server.url.clone(),
        ..HubOptions::default()
    };
    let error = Hub::new(scratch.cache(), &options)
        .unwrap()
        .pull(&other, &mut |_| ())
        .unwrap_err();
    assert_eq!(error.to_string(), "org/m: there is no revision \"v9\"");
    assert!(
        scratch
            .error(&server, "org/m:q2_k")
            .contains("there are m-Q4_K_M.gguf, m-Q8_0.gguf")
    );
}

#[test]
fn an_unreachable_server_is_an_error() {
    let scratch = TempDir::new("unreachable");
    let url = Server::start(|_| Reply::of(200, "")).url.clone();
    let options = HubOptions {
        endpoint: url,
        n_retries: 1,
        pause: Duration::ZERO,
        ..HubOptions::default()
    };
    let error = Hub::new(scratch.cache(), &options)
        .unwrap()
        .pull(&"org/m".parse().unwrap(), &mut |_| ())
        .unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error}");
}

#[test]
fn a_download_that_does_not_fit_the_disk_is_not_started() {
    let scratch = TempDir::new("full");
    let repo = repo();
    let list = listed("m.gguf", &model())
        .replace(&format!("\"size\":{SIZE}"), "\"size\":4611686018427387904");
    let server = Server::start(move |request| match request.path.contains("/tree/") {
        true => Reply::of(200, format!("[{list}]")),
        false => repo.answer(request),
    });
    let error = scratch.error(&server, "org/m");
    #[cfg(unix)]
    assert!(
        error.contains("4611686018427387904 bytes are needed"),
        "{error}"
    );
    assert!(
        server.file_requests().len() <= usize::from(cfg!(not(unix))),
        "{error}"
    );
}

#[test]
fn two_pulls_at_once_download_once() {
    let scratch = TempDir::new("two");
    let server = spoiled(|reply, _, _| {
        std::thread::sleep(Duration::from_millis(300));
        reply
    });
    let options = HubOptions {
        endpoint: server.url.clone(),
        ..HubOptions::default()
    };
    let waited = AtomicUsize::new(0);
    let pull = || {
        let mut count = |event: Event<'_>| {
            waited.fetch_add(usize::from(event == Event::Waiting), Relaxed);
        };
        Hub::new(scratch.cache(), &options)
            .unwrap()
            .pull(&"org/m".parse().unwrap(), &mut count)
            .unwrap()
    };
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(pull);
        let b = scope.spawn(pull);
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_eq!(a.path, b.path);
    assert_eq!(fs::read(a.path).unwrap(), model());
    assert_eq!((server.file_requests().len(), waited.load(Relaxed)), (1, 1));
    assert!(a.files[0].from_cache != b.files[0].from_cache);
}

#[test]
fn cached_files_are_found_without_a_server() {
    let scratch = TempDir::new("find");
    let server = spoiled(|reply, _, _| reply);
    let find = |what: &str| scratch.cache().find(&what.parse().unwrap());
    assert_eq!(find("org/m").unwrap(), None);
    let pulled = scratch.pull(&server, "org/m:q8_0").unwrap();
    drop(server);
    for what in ["org/m", "org/m:q8_0", "org/m:m-Q8_0.gguf"] {
        let found = find(what).unwrap().unwrap();
        assert_eq!(found.path, pulled.path, "{what}");
        // The hash is the name of the blob behind a symbolic link, which not every system makes.
        let is_link = fs::symlink_metadata(&found.path).unwrap().is_symlink();
        let expected = pulled.files[0].sha256.clone().filter(|_| is_link);
        assert_eq!(found.files[0].sha256, expected, "{what}");
    }
    assert!(
        find("org/m:q4_k_m")
            .unwrap_err()
            .to_string()
            .contains("there are m-Q8_0.gguf")
    );
    let repos: Vec<String> = scratch
        .cache()
        .repositories()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(repos, ["org/m"]);
    // A dangling link is no file.
    let is_link = fs::symlink_metadata(&pulled.path).unwrap().is_symlink();
    fs::remove_dir_all(scratch.0.join("models--org--m/blobs")).unwrap();
    assert_eq!(find("org/m").is_err(), is_link);
}

#[test]
fn an_older_snapshot_is_found_too() {
    let scratch = TempDir::new("older");
    let server = spoiled(|reply, _, _| reply);
    let pulled = scratch.pull(&server, "org/m:q8_0").unwrap();
    let newer = "f".repeat(40);
    let snapshots = scratch.0.join("models--org--m/snapshots");
    fs::create_dir(snapshots.join(&newer)).unwrap();
    fs::write(snapshots.join(&newer).join("m-Q4_K_M.gguf"), "x").unwrap();
    fs::write(scratch.0.join("models--org--m/refs/main"), &newer).unwrap();
    let find = |what: &str| {
        scratch
            .cache()
            .find(&what.parse().unwrap())
            .unwrap()
            .unwrap()
    };
    assert_eq!(find("org/m").commit, newer);
    assert_eq!(find("org/m:q8_0").path, pulled.path);
}

#[test]
#[cfg(unix)]
fn a_temporary_link_of_a_killed_pull_is_not_written_through() {
    let scratch = TempDir::new("left");
    let server = Server::start(|request| repo().answer(request));
    let repo = repo();
    let first = scratch.pull(&server, "org/m").unwrap();
    let link = &first.files[0].path;
    let content = &repo.files[2].1;
    fs::remove_file(link).unwrap();
    let left = link.with_file_name(format!(".{}.{}.0", hash(content), std::process::id()));
    std::os::unix::fs::symlink(format!("../../blobs/{}", hash(content)), &left).unwrap();
    scratch.pull(&server, "org/m").unwrap();
    assert_eq!(&fs::read(link).unwrap(), content);
}

//! Clusters of real processes on loopback: nodes that start, are asked, run layers, and end.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::UdpSocket,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use atta_cluster::key::{ClusterKey, JoinToken};
use serde_json::Value;

use crate::{
    processes::{Running, Server, signal},
    program::{Scratch, command, error_of},
};

/// The longest wait for a line or for an end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The model, in the directory in which all programs run.
pub(crate) const MODEL: &str = "stories.gguf";
/// A text of it that is short.
pub(crate) const TEXT: [&str; 8] = ["-p", "Once upon a time", "-n", "12", "-c", "128", "-j", "1"];

/// The arguments of a greedy text of `n` tokens that does not end by itself.
pub(crate) fn endless<'a>(n: &'a str, n_ctx: &'a str) -> Vec<&'a str> {
    let text = ["run", MODEL, "-p", "Once upon a time", "-n", n, "-c", n_ctx];
    [&text[..], &["-j", "1", "-t", "0", "--logit-bias", "2-inf"]].concat()
}

pub(crate) fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Users of machines, each with a home of its own. Speeds are measured once for all of them.
pub(crate) struct Homes(pub(crate) Scratch);

impl Homes {
    pub(crate) fn new(name: &str) -> Self {
        let homes = Self(Scratch::new(&format!("ring-{name}")));
        fs::create_dir_all(homes.kept()).unwrap();
        for name in ["node-rates.json", "asker-rates.json"] {
            copy_rates(name, &shared_rates(), &homes.kept());
        }
        homes
    }

    /// What programs keep of this machine.
    fn kept(&self) -> PathBuf {
        PathBuf::from(self.0.path("cache")).join("atta/cluster")
    }

    /// The file of a user's key.
    pub(crate) fn key(&self, user: &str) -> PathBuf {
        PathBuf::from(self.0.path(user)).join("atta/cluster/key")
    }

    pub(crate) fn command(&self, user: &str, args: &[&str]) -> Command {
        let mut command = command(args);
        command
            .current_dir(models())
            .env("HOME", self.0.path(user))
            .env("XDG_CONFIG_HOME", self.0.path(user))
            .env("XDG_STATE_HOME", self.0.path("state"))
            .env("XDG_CACHE_HOME", self.0.path("cache"));
        command
    }

    pub(crate) fn atta(&self, user: &str, args: &[&str]) -> Output {
        self.command(user, args).output().unwrap()
    }

    /// Standard output of a program that succeeds.
    pub(crate) fn stdout(&self, user: &str, args: &[&str]) -> String {
        let output = self.atta(user, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a node of a user and waits until it listens.
    pub(crate) fn node(&self, name: &str, args: &[&str]) -> Node {
        let common = ["node", "--name", name, "--listen", "127.0.0.1:0", "-j", "1"];
        let node = self.start(name, &[&common, args].concat());
        // Those of a disk with other models are no use to others.
        if !args.contains(&"--models") {
            copy_rates("node-rates.json", &self.kept(), &shared_rates());
        }
        node
    }

    /// Starts a program of a user and waits until it listens.
    pub(crate) fn start(&self, user: &str, args: &[&str]) -> Node {
        Node::start(self.command(user, args), "127.0.0.1:")
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        copy_rates("asker-rates.json", &self.kept(), &shared_rates());
    }
}

/// Speeds of this machine for all tests: measuring takes seconds, and all processors.
fn shared_rates() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rates");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Copies speeds that are there to where none are.
fn copy_rates(name: &str, from: &Path, to: &Path) {
    let new = to.join(format!("{name}.{:?}", thread::current().id()));
    let kept = to.join(name);
    if !kept.exists() && fs::copy(from.join(name), &new).is_ok() {
        // In one step: others may read it.
        fs::rename(new, kept).unwrap();
    }
}

/// A node that runs; killed at the end of its test.
pub(crate) struct Node {
    process: Running,
    lines: Receiver<String>,
    /// All lines so far.
    pub(crate) said: String,
    pub(crate) address: String,
}

impl Node {
    /// Starts a node, and waits until it listens at an address that begins so.
    pub(crate) fn start(mut command: Command, at: &str) -> Self {
        let mut process = Running(command.stdout(Stdio::null()).spawn().unwrap());
        let stderr = BufReader::new(process.0.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.try_for_each(|line| said.send(line))
        });
        let mut node = Self {
            process,
            lines,
            said: String::new(),
            address: String::new(),
        };
        let listening = node.wait_for(at);
        let address = &listening[listening.find(at).unwrap()..];
        node.address = address.split(',').next().unwrap().trim().to_owned();
        node
    }

    /// The next line with a text in it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in:\n{}", self.said));
            self.said += &line;
            self.said += "\n";
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.process.0, name);
    }

    /// Waits for the end; the exit code, and all that the node has said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.said);
            thread::sleep(Duration::from_millis(10));
        };
        let mut said = std::mem::take(&mut self.said);
        said.extend(self.lines.iter().map(|line| line + "\n"));
        (status.code(), said)
    }
}

/// The token in what a first node has said.
pub(crate) fn token(said: &str) -> &str {
    let mut words = said.split_whitespace();
    words.find(|word| word.starts_with("atta1-")).unwrap()
}

/// Checks that a text shows nothing of a key: neither its letters nor its bytes in hexadecimal.
pub(crate) fn assert_no_secret(key: &ClusterKey, text: &str) {
    let letters = |text: &str| -> String { text.chars().filter(|c| *c != '-').collect() };
    let secret = letters(&key.text());
    let shown = letters(text);
    for part in secret.as_bytes()["atta1".len()..].chunks_exact(12) {
        let part = std::str::from_utf8(part).unwrap();
        assert!(!shown.contains(part), "a part of the key is in:\n{text}");
    }
}

#[test]
fn two_nodes_write_the_text_of_one_machine_and_leave() {
    let homes = Homes::new("two");
    let mut first = homes.node("pi1", &[]);
    first.wait_for("atta1-");
    let key = ClusterKey::read(&homes.key("pi1")).unwrap();
    let join = token(&first.said).to_owned();
    let parsed: JoinToken = join.parse().unwrap();
    assert_eq!(parsed.key, key);
    assert_eq!(parsed.address.unwrap().to_string(), first.address);
    let second = homes.node("pi2", &["--join", &join]);
    assert_eq!(ClusterKey::read(&homes.key("pi2")).unwrap(), key);

    // The second one has told the first where it is.
    let cluster = |args: &[&str]| homes.stdout("pi1", &[&["cluster"], args].concat());
    let peer = ["--no-discovery", "--peer", &first.address];
    let listed = cluster(&[&["ls", "--json"][..], &peer].concat());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let names = listed["nodes"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["pi1", "pi2"]);
    let table = cluster(&[&["ls"][..], &peer].concat());
    assert!(table.contains("pi2") && table.contains("free"), "{table}");
    let planned = cluster(&[&["plan", MODEL, "--json", "-j", "1"][..], &peer].concat());
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert!(planned["decode_tok_s"].as_f64().unwrap() > 0.0);
    assert!(planned["idle"].as_array().is_some());

    let run = |more: &[&str]| homes.atta("pi1", &[&["run", MODEL][..], &TEXT, more].concat());
    let alone = run(&[]);
    // Another program has the UDP port of a node.
    let taken = UdpSocket::bind(&second.address).unwrap();
    let by_udp = ["--ring=pi2", "--lane", "udp"];
    let output = run(&[&by_udp[..], &peer].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, alone.stdout, "{said}");
    let by_tcp = "lane udp: pi2 does not answer by UDP; going by tcp";
    assert_eq!(said.matches(by_tcp).count(), 1, "{said}");
    drop(taken);
    for (ring, lane, drafts) in [
        ("--ring=force", "tcp", "ngram,always"),
        ("--ring=pi2", "afxdp", "off"),
        ("--ring=pi1,pi2", "udp", "ngram,k=16,always"),
    ] {
        let ring_flags = [ring, "--lane", lane, "--speculate", drafts];
        let output = run(&[&ring_flags[..], &peer].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{ring}: {said}");
        assert_eq!(output.stdout, alone.stdout, "{ring}: {said}");
        let is_told = said.contains("ring: ") && said.contains("tokens/s (expected ");
        assert!(is_told, "{ring}: {said}");
        // There is no other machine to reach past the network stack.
        assert_eq!(said.contains("going by udp"), lane == "afxdp", "{said}");
        assert!(!said.contains("going by tcp"), "{said}");
        assert_no_secret(&key, &said);
    }
    // It is small: one machine is faster, and says so.
    let auto = run(&["--ring", "--no-discovery", "--peer", &first.address]);
    let said = String::from_utf8(auto.stderr).unwrap();
    assert!(said.contains("no ring: "), "{said}");
    assert_eq!(auto.stdout, alone.stdout);
    // Too little memory for a part of a ring, enough for a mapped file.
    let short = run(&[
        "--ring",
        "--ram-budget",
        "8M",
        "--no-discovery",
        "--peer",
        &first.address,
    ]);
    let said = String::from_utf8(short.stderr).unwrap();
    assert_eq!(short.status.code(), Some(0), "{said}");
    assert!(said.contains("running here alone"), "{said}");
    assert_eq!(short.stdout, alone.stdout);

    let log = cluster(&[&["log"][..], &peer].concat());
    assert!(log.contains("started"), "{log}");
    assert!(log.contains("the ring opens: pi2"), "{log}");
    assert!(log.contains(by_tcp), "{log}");
    assert!(log.contains("lane udp: UDP port "), "{log}");
    assert_no_secret(&key, &log);
    cluster(&[&["leave", "pi2"][..], &peer].concat());
    let (code, said) = second.end();
    assert_eq!(code, Some(0), "{said}");
    assert_no_secret(&key, &said);
    first.signal("TERM");
    let (code, said) = first.end();
    assert_eq!(code, Some(0), "{said}");
    assert_no_secret(&key, &said.replace(&join, ""));
}

/// What a server tells of its ring, once that is so.
fn ring_when(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, body) = server.ask("/api/cluster", "");
        let told: Value = serde_json::from_str(&body).unwrap();
        if is_so(&told["ring"]) {
            return told["ring"].clone();
        }
        assert!(Instant::now() < end, "{what}: {told}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_shows_its_ring_and_that_a_node_is_silent() {
    let homes = Homes::new("page");
    let mut node = homes.node("pi1", &[]);
    node.wait_for("atta1-");
    let key = ClusterKey::read(&homes.key("pi1")).unwrap();
    let serve = ["serve", MODEL, "--port", "0", "-c", "128", "-j", "1"];
    let ring = ["--ring=pi1", "--no-discovery", "--peer", &node.address];
    let mut command = homes.command("pi1", &[&serve[..], &ring].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let server = Server::start(command);
    let body = r#"{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}"#;
    let (status, answer) = server.ask("/v1/completions", body);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}: {answer}");

    let ring = ring_when(&server, "pi1 is ready and holds memory", |ring| {
        let node = &ring["nodes"][1];
        node["state"] == "ready" && node["memory_held_bytes"].as_u64() > Some(0)
    });
    assert_eq!(ring["state"], "open", "{ring}");
    assert_eq!(ring["model"], MODEL, "{ring}");
    let nodes = ring["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{ring}");
    let [here, pi1] = [&nodes[0], &nodes[1]];
    assert_eq!(here["state"], "coordinator", "{ring}");
    assert_eq!(
        (&pi1["node"], &pi1["address"]),
        (&"pi1".into(), &node.address.clone().into())
    );
    assert_eq!(pi1["first_layer"], here["end_layer"], "{ring}");
    assert_eq!(pi1["end_layer"], ring["n_layers"], "{ring}");
    assert_eq!(pi1["link"]["to"], here["node"], "{ring}");
    assert!(
        ring["measured"]["decode_tok_s"].as_f64() > Some(0.0),
        "{ring}"
    );
    assert!(pi1["compute_us"].as_f64() > Some(0.0), "{ring}");
    // Eleven tokens that were alone on the ring: those behind the first.
    assert!(pi1["totals"]["n_rows"].as_u64() >= Some(11), "{ring}");
    assert!(ring.to_string().contains("the ring opens: pi1"), "{ring}");
    let (_, metrics) = server.ask("/metrics", "");
    assert!(
        metrics.contains("\natta_ring_node_up{node=\"pi1\"} 1\n"),
        "{metrics}"
    );

    node.signal("KILL");
    let lost = ring_when(&server, "pi1 is silent", |ring| {
        let mut nodes = ring["nodes"].as_array().unwrap().iter();
        nodes.all(|node| node["node"] != "pi1" || node["state"] == "silent")
    });
    // Events are kept for those who ask later.
    let (_, page) = server.ask("/cluster", "");
    drop(server);
    let events = fs::read_to_string(homes.0.path("cache/atta/cluster/events")).unwrap();
    assert!(events.contains("the ring opens: pi1"), "{events}");
    for text in [ring.to_string(), lost.to_string(), events, metrics, page] {
        assert_no_secret(&key, &text);
    }
}

#[test]
fn rows_on_other_machines_give_the_text_and_logits_of_one() {
    let homes = Homes::new("rows");
    let mut first = homes.node("pi1", &[]);
    first.wait_for("atta1-");
    let join = token(&first.said).to_owned();
    let empty = homes.0.path("empty");
    let parts = homes.0.path("kept");
    fs::create_dir_all(&empty).unwrap();
    // It fetches the whole file.
    let bare = ["--join", &join, "--models", &empty, "--parts", &parts];
    let _second = homes.node("pi2", &bare);
    let peer = ["--no-discovery", "--peer", &first.address];
    let run = |more: &[&str]| homes.atta("pi1", &[&["run", MODEL][..], &TEXT, more].concat());
    let alone = run(&[]);
    for (ring, lane) in [("--ring=pi1", "auto"), ("--ring=pi1,pi2", "udp")] {
        let output = run(&[&[ring, "--split", "rows", "--lane", lane][..], &peer].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{ring}: {said}");
        assert_eq!(output.stdout, alone.stdout, "{ring}: {said}");
        let is_told = said.contains("rows: ") && said.contains("tokens/s (expected ");
        assert!(is_told, "{ring}: {said}");
    }
    // It is small: one machine is faster, and says so.
    let auto = run(&[&["--ring", "--split", "rows"][..], &peer].concat());
    let said = String::from_utf8(auto.stderr).unwrap();
    assert!(said.contains("no node would help"), "{said}");
    assert_eq!(auto.stdout, alone.stdout);

    let logits = |name: &str, more: &[&str]| {
        let file = homes.0.path(name);
        let args = [
            "logits",
            MODEL,
            "--tokens",
            "1,2,3,4,5",
            "-o",
            &file,
            "-j",
            "1",
        ];
        homes.stdout("pi1", &[&args[..], more].concat());
        fs::read(file).unwrap()
    };
    let ring = [&["--ring=pi2", "--split", "rows"][..], &peer].concat();
    assert_eq!(logits("ring.f32", &ring), logits("alone.f32", &[]));
    let unknown = run(&[
        "--ring=pi9",
        "--split",
        "rows",
        "--no-discovery",
        "--peer",
        &first.address,
    ]);
    let refused = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(1), "{refused}");
    assert!(refused.contains("pi9 cannot be in a ring"), "{refused}");
}

#[test]
fn a_node_without_the_file_fetches_its_layers_once() {
    let homes = Homes::new("fetch");
    let mut first = homes.node("pi1", &[]);
    first.wait_for("atta1-");
    let join = token(&first.said).to_owned();
    homes.stdout("lap", &["cluster", "join", &join]);
    let empty = homes.0.path("empty");
    let parts = homes.0.path("kept");
    fs::create_dir_all(&empty).unwrap();
    let run = |ring: &str| {
        let ring = [ring, "--no-discovery", "--peer", &first.address];
        homes.atta("lap", &[&["run", MODEL][..], &TEXT, &ring].concat())
    };
    let alone = homes.atta("lap", &[&["run", MODEL][..], &TEXT].concat());
    let bare = ["--join", &join, "--models", &empty, "--parts", &parts];
    let node = homes.node("bare", &bare);
    let fetched = run("--ring=bare");
    let said = String::from_utf8_lossy(&fetched.stderr);
    assert_eq!(fetched.stdout, alone.stdout, "{said}");
    // The sidecar of a part is marked as used by each opening, but nothing is fetched again.
    let held = || -> Vec<(PathBuf, Vec<u8>, Option<std::time::SystemTime>)> {
        let paths = fs::read_dir(&parts)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let state = paths.map(|path| {
            let is_weights = path.extension().is_some_and(|e| e == "gguf");
            let modified = path.metadata().unwrap().modified().unwrap();
            (
                path.clone(),
                fs::read(&path).unwrap(),
                is_weights.then_some(modified),
            )
        });
        let mut state: Vec<_> = state.collect();
        state.sort();
        state
    };
    let first_held = held();
    assert!(!first_held.is_empty());
    // It is kept over the end of the node, and nothing is written again.
    drop(node);
    let _again = homes.node("bare", &bare[2..]);
    let kept = run("--ring=bare");
    let said = String::from_utf8_lossy(&kept.stderr);
    assert_eq!(kept.stdout, alone.stdout, "{said}");
    assert!(held() == first_held, "the part was written to again");
    // Without a place for parts the node refuses, and says what would help.
    let full = ["--models", &empty, "--disk-budget", "0"];
    let _none = homes.node("none", &[&["--join", &join][..], &full].concat());
    let refused = run("--ring=none");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("error: no ring: none: "), "{said}");
    assert!(said.contains("a copy of "), "{said}");
}

#[test]
fn a_node_that_was_killed_or_has_another_key_is_not_used() {
    let homes = Homes::new("lost");
    let mut node = homes.node("pi1", &[]);
    node.wait_for("atta1-");
    let run = |user: &str| {
        let ring = ["--ring=force", "--no-discovery", "--peer", &node.address];
        homes.atta(user, &[&["run", MODEL][..], &TEXT, &ring].concat())
    };
    let stranger = homes.key("stranger");
    fs::create_dir_all(stranger.parent().unwrap()).unwrap();
    ClusterKey::random().unwrap().write(&stranger).unwrap();
    let refused = error_of(&run("stranger"), 1);
    assert!(refused.contains("no other machine"), "{refused}");

    node.signal("KILL");
    let address = node.address.clone();
    drop(node);
    let ring = ["--ring=force", "--no-discovery", "--peer", &address];
    let output = homes.atta("pi1", &[&["run", MODEL][..], &TEXT, &ring].concat());
    let refused = error_of(&output, 1);
    assert!(refused.contains("no other machine"), "{refused}");
}

#[test]
fn a_node_that_another_ring_has_is_named_with_its_coordinator() {
    let homes = Homes::new("taken");
    let node = homes.node("pi1", &[]);
    let ring = ["--ring=force", "--no-discovery", "--peer", &node.address];
    let serve = ["serve", MODEL, "--port", "0", "-c", "128", "-j", "1"];
    let mut server = homes.command("pi1", &[&serve[..], &ring].concat());
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    // Its address is printed when the ring is there.
    let mut address = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut address).unwrap();
    let run = [&["run", MODEL][..], &TEXT, &ring].concat();
    let output = homes.atta("pi1", &run);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let error = said.lines().last().unwrap_or_default();
    assert!(
        error.starts_with("atta: error: pi1 cannot be in a ring: it belongs to a ring of"),
        "{said}"
    );
}

#[test]
fn a_machine_without_a_key_is_told_how_to_join() {
    let homes = Homes::new("none");
    for args in [&["cluster", "ls"][..], &["run", MODEL, "-p", "x", "--ring"]] {
        let refused = error_of(&homes.atta("lap", args), 1);
        assert!(refused.contains("atta node --join"), "{refused}");
    }
    let refused = error_of(&homes.atta("lap", &["node", "--join", "atta1-AAAA"]), 2);
    assert!(refused.contains("letters and digits"), "{refused}");
    let wire = [
        "run", MODEL, "-p", "x", "--ring", "--split", "rows", "--wire", "f16",
    ];
    let refused = error_of(&homes.atta("lap", &wire), 2);
    assert!(refused.contains("--wire"), "{refused}");
    assert!(!homes.key("lap").exists());
}

#[test]
fn a_new_key_replaces_the_old_one_and_only_the_owner_reads_it() {
    let homes = Homes::new("rekey");
    let path = homes.key("lap");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let old = ClusterKey::random().unwrap();
    old.write(&path).unwrap();
    let invited: JoinToken = homes
        .stdout("lap", &["cluster", "invite"])
        .trim()
        .parse()
        .unwrap();
    assert_eq!(invited.key, old);
    let output = homes.stdout("lap", &["cluster", "rekey", "--by-hand"]);
    let told: JoinToken = output.trim().parse().unwrap();
    let new = ClusterKey::read(&path).unwrap();
    assert_eq!(told.key, new);
    assert_ne!(new, old);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Two nodes and a machine that uses them, with models in a directory.
pub(crate) struct Pair {
    pub(crate) homes: Homes,
    pub(crate) first: Node,
    pub(crate) second: Node,
}

impl Pair {
    pub(crate) fn new(name: &str, models: &str) -> Self {
        let homes = Homes::new(name);
        let mut first = homes.node("pi1", &["--models", models]);
        first.wait_for("atta1-");
        let join = token(&first.said).to_owned();
        homes.stdout("lap", &["cluster", "join", &join]);
        let second = homes.node("pi2", &["--join", &join, "--models", models]);
        Self {
            homes,
            first,
            second,
        }
    }

    /// A program that runs a model, on both nodes or on this machine.
    pub(crate) fn command(&self, args: &[&str], ring: Option<&str>) -> Command {
        let ring = ring.map(|ring| [ring, "--no-discovery", "--peer", &self.first.address]);
        let ring = ring.as_ref().map_or(&[][..], |ring| &ring[..]);
        self.homes.command("lap", &[args, ring].concat())
    }
}

#[test]
fn a_node_that_is_killed_in_the_middle_of_a_long_text_changes_no_letter() {
    let pair = Pair::new("killed", ".");
    let args = endless("1200", "2048");
    let alone = pair.command(&args, None).output().unwrap();
    assert_eq!(alone.status.code(), Some(0));
    let mut child = pair.command(&args, Some("--ring=pi1,pi2")).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = vec![0; 200];
    stdout.read_exact(&mut text).unwrap();
    pair.second.signal("KILL");
    stdout.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("ring: pi2 is gone; "), "{said}");
    assert_eq!(
        String::from_utf8(text).unwrap(),
        String::from_utf8(alone.stdout).unwrap(),
        "{said}"
    );
}

#[test]
fn a_chat_goes_on_while_its_ring_changes() {
    let pair = Pair::new("changed", ".");
    let args = [
        "chat",
        MODEL,
        "--chat-template",
        "plain",
        "-t",
        "0",
        "-n",
        "8",
    ];
    let args = [&args[..], &["-c", "512", "-j", "1"]].concat();
    let answers = |ring: Option<&str>, lines: &[&str]| {
        let mut command = pair.command(&args, ring);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that fails before it reads its input closes the pipe.
        let _ = stdin.write_all(lines.join("\n").as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    };
    let alone = answers(
        None,
        &["the king", "and then", "a queen", "at last", "the end"],
    );
    let lines = [
        "the king",
        "/ring",
        "/resize 1 2",
        "and then",
        "/drop pi2",
        "a queen",
        "/drop pi1",
        "at last",
        "/add pi2",
        "the end",
        "/ring",
        "/add pi9",
    ];
    let output = answers(Some("--ring=pi1,pi2"), &lines);
    let said = String::from_utf8_lossy(&output.stderr);
    // In a pipe a command that is refused ends the chat.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&alone.stdout),
        "{said}"
    );
    for part in [
        // The planner chooses the order of the nodes.
        ": 1 layer (1)\n",
        ": 2 layers (2 to 3)\n",
        "pi9 cannot be in a ring",
        "this machine now has ",
        ", this machine: 1 layer (0), embedding, head",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let none = answers(None, &["/ring", "/drop pi1"]);
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(
        said.contains("no ring: this machine") && said.contains("--ring"),
        "{said}"
    );
}

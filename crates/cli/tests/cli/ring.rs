//! Clusters of real processes on loopback: nodes that start, are asked, run layers, and end.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use atta_cluster::key::{ClusterKey, JoinToken};
use serde_json::Value;

use crate::program::{Scratch, command, error_of};

/// The longest wait for a line or for an end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The model, in the directory in which all programs run.
const MODEL: &str = "stories.gguf";
/// A text of it that is short.
const TEXT: [&str; 8] = ["-p", "Once upon a time", "-n", "12", "-c", "128", "-j", "1"];

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Users of machines, each with a home of its own. Speeds are measured once for all of them.
struct Homes(Scratch);

impl Homes {
    fn new(name: &str) -> Self {
        Self(Scratch::new(&format!("ring-{name}")))
    }

    /// The file of a user's key.
    fn key(&self, user: &str) -> PathBuf {
        PathBuf::from(self.0.path(user)).join("atta/cluster/key")
    }

    fn command(&self, user: &str, args: &[&str]) -> Command {
        let mut command = command(args);
        command
            .current_dir(models())
            .env("HOME", self.0.path(user))
            .env("XDG_CONFIG_HOME", self.0.path(user))
            .env("XDG_STATE_HOME", self.0.path("state"))
            .env("XDG_CACHE_HOME", self.0.path("cache"));
        command
    }

    fn atta(&self, user: &str, args: &[&str]) -> Output {
        self.command(user, args).output().unwrap()
    }

    /// Standard output of a program that succeeds.
    fn stdout(&self, user: &str, args: &[&str]) -> String {
        let output = self.atta(user, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a node of a user and waits until it listens.
    fn node(&self, name: &str, args: &[&str]) -> Node {
        let common = ["node", "--name", name, "--listen", "127.0.0.1:0", "-j", "1"];
        let args = [&common, args].concat();
        let mut child = self
            .command(name, &args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.try_for_each(|line| said.send(line))
        });
        let mut node = Node {
            child,
            lines,
            said: String::new(),
            address: String::new(),
        };
        let listening = node.wait_for("127.0.0.1:");
        let (_, address) = listening.split_once("127.0.0.1:").unwrap();
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        node.address = format!("127.0.0.1:{port}");
        node
    }
}

/// A node that runs; killed at the end of its test.
struct Node {
    child: Child,
    lines: Receiver<String>,
    /// All lines so far.
    said: String,
    address: String,
}

impl Node {
    /// The next line with a text in it.
    fn wait_for(&mut self, text: &str) -> String {
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
    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; the exit code, and all that the node has said.
    fn end(mut self) -> (Option<i32>, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
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

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The token in what a first node has said.
fn token(said: &str) -> &str {
    let mut words = said.split_whitespace();
    words.find(|word| word.starts_with("atta1-")).unwrap()
}

/// Checks that a text shows nothing of a key: neither its letters nor its bytes in hexadecimal.
fn assert_no_secret(key: &ClusterKey, text: &str) {
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
    let peer = ["--peer", &first.address];
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
    for ring in ["--ring=force", "--ring=pi2", "--ring=pi1,pi2"] {
        let output = run(&[ring, "--peer", &first.address]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{ring}: {said}");
        assert_eq!(output.stdout, alone.stdout, "{ring}: {said}");
        let is_told = said.contains("ring: ") && said.contains("tokens/s (expected ");
        assert!(is_told, "{ring}: {said}");
        assert_no_secret(&key, &said);
    }
    // It is small: one machine is faster, and says so.
    let auto = run(&["--ring", "--peer", &first.address]);
    let said = String::from_utf8(auto.stderr).unwrap();
    assert!(said.contains("no ring: "), "{said}");
    assert_eq!(auto.stdout, alone.stdout);

    let log = cluster(&[&["log"][..], &peer].concat());
    assert!(log.contains("started"), "{log}");
    assert!(log.contains("the ring opens: pi2"), "{log}");
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

/// A server of a ring; killed at the end of its test.
struct RingServer {
    child: Child,
    address: String,
}

impl RingServer {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut url).unwrap();
        let address = url.trim().trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    /// The answer to a request, which is GET without a body.
    fn ask(&self, path: &str, body: &str) -> String {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close");
        write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What it tells of its ring, once that is so.
    fn ring_when(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask("/api/cluster", "");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let told: Value = serde_json::from_str(body).unwrap();
            if is_so(&told["ring"]) {
                return told["ring"].clone();
            }
            assert!(Instant::now() < end, "{what}: {told}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for RingServer {
    fn drop(&mut self) {
        // It has ended already, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_shows_its_ring_and_that_a_node_is_silent() {
    let homes = Homes::new("page");
    let mut node = homes.node("pi1", &[]);
    node.wait_for("atta1-");
    let key = ClusterKey::read(&homes.key("pi1")).unwrap();
    let serve = ["serve", MODEL, "--port", "0", "-c", "128", "-j", "1"];
    let ring = ["--ring=pi1", "--peer", &node.address];
    let server = RingServer::start(homes.command("pi1", &[&serve[..], &ring].concat()));
    let body = r#"{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}"#;
    let answer = server.ask("/v1/completions", body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let ring = server.ring_when("pi1 is ready and holds memory", |ring| {
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
    let metrics = server.ask("/metrics", "");
    assert!(
        metrics.contains("\natta_ring_node_up{node=\"pi1\"} 1\n"),
        "{metrics}"
    );

    node.signal("KILL");
    let lost = server.ring_when("pi1 is silent", |ring| {
        let mut nodes = ring["nodes"].as_array().unwrap().iter();
        nodes.all(|node| node["node"] != "pi1" || node["state"] == "silent")
    });
    // Events are kept for those who ask later.
    let page = server.ask("/cluster", "");
    drop(server);
    let events = fs::read_to_string(homes.0.path("cache/atta/cluster/events")).unwrap();
    assert!(events.contains("the ring opens: pi1"), "{events}");
    for text in [ring.to_string(), lost.to_string(), events, metrics, page] {
        assert_no_secret(&key, &text);
    }
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
        let ring = [ring, "--peer", &first.address];
        homes.atta("lap", &[&["run", MODEL][..], &TEXT, &ring].concat())
    };
    let alone = homes.atta("lap", &[&["run", MODEL][..], &TEXT].concat());
    let bare = ["--join", &join, "--models", &empty, "--parts", &parts];
    let node = homes.node("bare", &bare);
    let fetched = run("--ring=bare");
    let said = String::from_utf8_lossy(&fetched.stderr);
    assert_eq!(fetched.stdout, alone.stdout, "{said}");
    let held = || -> Vec<(PathBuf, std::time::SystemTime)> {
        let files = fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap());
        let times = files.map(|file| (file.path(), file.metadata().unwrap().modified().unwrap()));
        let mut times: Vec<_> = times.collect();
        times.sort();
        times
    };
    let first_held = held();
    assert!(!first_held.is_empty());
    // It is kept over the end of the node, and nothing is written again.
    drop(node);
    let _again = homes.node("bare", &bare[2..]);
    assert_eq!(run("--ring=bare").stdout, alone.stdout);
    assert_eq!(held(), first_held);
    // Without a place for parts the node refuses, and says what would help.
    let full = ["--models", &empty, "--disk-budget", "0"];
    let _none = homes.node("none", &[&["--join", &join][..], &full].concat());
    let refused = error_of(&run("--ring=none"), 1);
    assert!(
        refused.contains("none: ") && refused.contains("copy of"),
        "{refused}"
    );
}

#[test]
fn a_node_that_was_killed_or_has_another_key_is_not_used() {
    let homes = Homes::new("lost");
    let mut node = homes.node("pi1", &[]);
    node.wait_for("atta1-");
    let run = |user: &str| {
        let ring = ["--ring=force", "--peer", &node.address];
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
    let ring = ["--ring=force", "--peer", &address];
    let output = homes.atta("pi1", &[&["run", MODEL][..], &TEXT, &ring].concat());
    let refused = error_of(&output, 1);
    assert!(refused.contains("no other machine"), "{refused}");
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
    let wire = ["run", MODEL, "-p", "x", "--ring", "--wire", "f16"];
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
    error_of(&homes.atta("lap", &["cluster", "rekey"]), 2);
    assert_eq!(ClusterKey::read(&path).unwrap(), old);
    let output = homes.stdout("lap", &["cluster", "rekey", "--by-hand"]);
    let told: JoinToken = output.trim().parse().unwrap();
    let new = ClusterKey::read(&path).unwrap();
    assert_eq!(told.key, new);
    assert_ne!(new, old);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

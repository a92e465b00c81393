//! Clusters of real processes on loopback: nodes that start, are asked, run layers, and end.

use std::{
    fs,
    io::{BufRead, BufReader},
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
    // Too little memory for a part of a ring, enough for a mapped file.
    let short = run(&["--ring", "--ram-budget", "8M", "--peer", &first.address]);
    let said = String::from_utf8(short.stderr).unwrap();
    assert_eq!(short.status.code(), Some(0), "{said}");
    assert!(said.contains("running here alone"), "{said}");
    assert_eq!(short.stdout, alone.stdout);

    let log = cluster(&[&["log"][..], &peer].concat());
    assert!(log.contains("started"), "{log}");
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
fn a_node_that_another_ring_has_is_named_with_its_coordinator() {
    let homes = Homes::new("taken");
    let node = homes.node("pi1", &[]);
    let ring = ["--ring=force", "--peer", &node.address];
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

//! Machines that find each other, join, take new keys and leave.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use atta_cluster::key::ClusterKey;
use serde_json::Value;

use crate::{
    program::error_of,
    ring::{Homes, MODEL, Node, PATIENCE, TEXT, assert_no_secret, token},
};

/// Two machines on one wire: network namespaces with an address each.
struct Wire([String; 2]);

impl Wire {
    /// `None`, with the reason printed: the system does not permit it.
    fn new(name: &str) -> Option<Self> {
        let id = std::process::id();
        let wire = Self(["a", "b"].map(|end| format!("atta-{name}-{id}-{end}")));
        let [a, b] = &wire.0;
        let made = ip(&["netns", "add", a])
            .and_then(|()| ip(&["netns", "add", b]))
            .and_then(|()| {
                let ends = ["link", "add", "wire0", "netns", a, "type", "veth", "peer"];
                ip(&[&ends[..], &["name", "wire0", "netns", b]].concat())
            });
        if let Err(why) = made {
            eprintln!("skipped: no network namespaces here: {why}");
            return None;
        }
        for (end, host) in wire.0.iter().zip([1, 2]) {
            let v4 = format!("10.77.0.{host}/24");
            let v6 = format!("fd77::{host}/64");
            let ip = |args: &[&str]| ip(&[&["-n", end][..], args].concat()).unwrap();
            ip(&["address", "add", &v4, "dev", "wire0"]);
            ip(&["address", "add", &v6, "dev", "wire0", "nodad"]);
            ip(&["link", "set", "wire0", "up"]);
            ip(&["link", "set", "lo", "up"]);
            // An interface that leads nowhere, and comes first: the other end is down.
            ip(&[
                "link", "add", "dead0", "type", "veth", "peer", "name", "dead1",
            ]);
            ip(&["address", "add", "10.0.0.1/24", "dev", "dead0"]);
            ip(&["link", "set", "dead0", "up"]);
        }
        Some(wire)
    }

    /// The program at one end of the wire.
    fn command(&self, homes: &Homes, end: usize, user: &str, args: &[&str]) -> Command {
        let here = homes.command(user, args);
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.0[end]]);
        there.arg(here.get_program()).args(here.get_args());
        for (name, value) in here.get_envs() {
            there.env(name, value.unwrap());
        }
        there.current_dir(here.get_current_dir().unwrap());
        there
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        there
    }

    fn atta(&self, homes: &Homes, end: usize, user: &str, args: &[&str]) -> Output {
        self.command(homes, end, user, args).output().unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for end in &self.0 {
            // It was not made, perhaps.
            let _ = ip(&["netns", "delete", end]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Gives users a key that each has got without an address.
fn share_key(homes: &Homes, users: &[&str]) -> ClusterKey {
    let key = ClusterKey::random().unwrap();
    for user in users {
        let path = homes.key(user);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        key.write(&path).unwrap();
    }
    key
}

/// The names in what `cluster ls --json` printed.
fn listed(output: &Output) -> Vec<String> {
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let nodes = listed["nodes"].as_array().cloned().unwrap_or_default();
    let names = nodes.iter().filter_map(|node| node["node"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn machines_of_one_network_find_each_other_without_an_address() {
    let homes = Homes::new("find");
    let Some(wire) = Wire::new("find") else {
        return;
    };
    share_key(&homes, &["pi1", "pi2", "pi3", "lap"]);
    let node = |end: usize, name: &str, more: &[&str]| {
        let args = [&["node", "--name", name, "-j", "1"], more].concat();
        Node::start(wire.command(&homes, end, name, &args), "listening on")
    };
    let _first = node(0, "pi1", &[]);
    let _second = node(1, "pi2", &[]);
    let found = wire.atta(&homes, 1, "lap", &["cluster", "ls", "--json"]);
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(listed(&found), ["pi1", "pi2"], "{said}");

    // They are remembered, by the owner of the file alone.
    let hidden = ["cluster", "ls", "--json", "--no-discovery"];
    assert_eq!(
        listed(&wire.atta(&homes, 1, "lap", &hidden)),
        ["pi1", "pi2"]
    );
    let directory = homes.key("lap").parent().unwrap().to_owned();
    let files = fs::read_dir(&directory).unwrap().map(Result::unwrap);
    let mut peers = files.filter(|file| file.file_name().to_string_lossy().starts_with("peers-"));
    let peers = peers.next().unwrap().path();
    let mode = fs::metadata(&peers).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::remove_file(&peers).unwrap();
    assert!(listed(&wire.atta(&homes, 1, "lap", &hidden)).is_empty());

    // The nodes have met: each tells where the other is.
    let end = Instant::now() + PATIENCE;
    for (node, other) in [("10.77.0.1", "pi2"), ("10.77.0.2", "pi1")] {
        let peer = [&hidden[..], &["--peer", node]].concat();
        while !listed(&wire.atta(&homes, 0, "lap", &peer)).contains(&other.to_owned()) {
            assert!(Instant::now() < end, "{node} does not know {other}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    fs::remove_file(&peers).unwrap();

    let run = |ring: &[&str]| {
        wire.atta(
            &homes,
            1,
            "lap",
            &[&["run", MODEL][..], &TEXT, ring].concat(),
        )
    };
    let alone = run(&[]);
    let ring = run(&["--ring=pi1"]);
    let said = String::from_utf8_lossy(&ring.stderr);
    assert_eq!(ring.status.code(), Some(0), "{said}");
    assert_eq!(ring.stdout, alone.stdout);

    // A node that is not to be searched for, and does not search.
    let _hidden = node(0, "pi3", &["--no-discovery"]);
    fs::remove_file(&peers).unwrap();
    assert_eq!(
        listed(&wire.atta(&homes, 1, "lap", &["cluster", "ls", "--json"])),
        ["pi1", "pi2"]
    );
}

#[test]
fn a_node_that_listens_by_ipv6_alone_is_found() {
    let homes = Homes::new("v6");
    let Some(wire) = Wire::new("v6") else { return };
    share_key(&homes, &["pi1", "lap"]);
    let args = ["node", "--name", "pi1", "-j", "1", "--listen", "fd77::1"];
    let _node = Node::start(wire.command(&homes, 0, "pi1", &args), "listening on");
    // The system gives a new interface its own address of IPv6 only after a while.
    let end = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    while found.is_empty() && Instant::now() < end {
        found = listed(&wire.atta(&homes, 1, "lap", &["cluster", "ls", "--json"]));
    }
    assert_eq!(found, ["pi1"]);
}

#[test]
fn a_machine_with_another_key_finds_nothing() {
    let homes = Homes::new("strange");
    let Some(wire) = Wire::new("strange") else {
        return;
    };
    share_key(&homes, &["pi1"]);
    share_key(&homes, &["lap"]);
    let args = ["node", "--name", "pi1", "-j", "1"];
    let _node = Node::start(wire.command(&homes, 0, "pi1", &args), "listening on");
    let refused = error_of(&wire.atta(&homes, 1, "lap", &["cluster", "ls"]), 1);
    assert!(refused.contains("no node answers"), "{refused}");
}

/// A machine that shows a code, and the code.
fn invite(command: &mut Command) -> (Child, String) {
    let mut child = command.spawn().unwrap();
    let mut code = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut code).unwrap();
    (child, code.trim().to_owned())
}

/// What a program that has ended said.
fn end(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn a_machine_joins_by_eight_digits() {
    let homes = Homes::new("code");
    let Some(wire) = Wire::new("code") else {
        return;
    };
    let key = share_key(&homes, &["pi1"]);
    let mut command = wire.command(&homes, 0, "pi1", &["cluster", "invite", "--code"]);
    let (host, code) = invite(&mut command);
    assert_eq!(code.len(), 9, "{code}");
    let join = |code: &str| wire.atta(&homes, 1, "lap", &["cluster", "join", code]);
    let wrong = if code.starts_with('0') { "1" } else { "0" };
    let refused = error_of(&join(&[wrong, &code[1..]].concat()), 1);
    assert!(refused.contains("refuses the code"), "{refused}");
    assert!(!homes.key("lap").exists());
    let joined = join(&code);
    let said = String::from_utf8_lossy(&joined.stderr).into_owned();
    assert_eq!(joined.status.code(), Some(0), "{said}");
    assert_eq!(ClusterKey::read(&homes.key("lap")).unwrap(), key);
    let (status, host_said) = end(host);
    assert_eq!(status, Some(0), "{host_said}");
    assert!(host_said.contains("tries left: 2") && host_said.contains("has the key"));
    for said in [said, host_said] {
        assert_no_secret(&key, &said);
        assert!(!said.contains(&code), "{said}");
    }
    let refused = error_of(&join(&code), 1);
    assert!(refused.contains("no machine that invites"), "{refused}");
}

#[test]
fn a_code_of_another_length_is_wrong_usage() {
    let homes = Homes::new("digits");
    let refused = error_of(&homes.atta("lap", &["node", "--join", "1234-567"]), 2);
    assert!(refused.contains("8 digits"), "{refused}");
    let nowhere = ["cluster", "join", "1234-5678", "--no-discovery"];
    let refused = error_of(&homes.atta("lap", &nowhere), 1);
    assert!(refused.contains("invite --code"), "{refused}");
}

#[test]
fn a_new_key_is_handed_to_all_but_those_that_are_left_out() {
    let homes = Homes::new("hand");
    let mut first = homes.node("pi1", &[]);
    first.wait_for("atta1-");
    let join = token(&first.said).to_owned();
    let old = ClusterKey::read(&homes.key("pi1")).unwrap();
    let mut second = homes.node("pi2", &["--join", &join]);
    let third = homes.node("pi3", &["--join", &join]);
    homes.stdout("lap", &["cluster", "join", &join]);
    let peer = ["--peer", &first.address, "--no-discovery"];
    let cluster =
        |user: &str, args: &[&str]| homes.atta(user, &[&["cluster"], args, &peer].concat());
    let absent = error_of(&cluster("lap", &["rekey", "--without", "pi9"]), 1);
    assert!(absent.contains("pi9"), "{absent}");
    assert_eq!(ClusterKey::read(&homes.key("lap")).unwrap(), old);

    let output = cluster("lap", &["rekey", "--without", "pi3"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, "pi1  has the new key\npi2  has the new key\n");
    let new = ClusterKey::read(&homes.key("lap")).unwrap();
    assert_ne!(new, old);
    for user in ["pi1", "pi2"] {
        let path = homes.key(user);
        assert_eq!(ClusterKey::read(&path).unwrap(), new, "{user}");
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(ClusterKey::read(&homes.key("pi3")).unwrap(), old);
    assert_eq!(listed(&cluster("lap", &["ls", "--json"])), ["pi1", "pi2"]);

    // The same processes, at the same addresses, that work for rings again.
    first.wait_for("took a new key");
    second.wait_for("took a new key");
    let run = |ring: &[&str]| homes.atta("lap", &[&["run", MODEL][..], &TEXT, ring].concat());
    let alone = run(&[]);
    let ring = run(&["--ring=pi1,pi2", "--peer", &first.address]);
    assert_eq!(
        ring.stdout,
        alone.stdout,
        "{}",
        String::from_utf8_lossy(&ring.stderr)
    );

    assert_no_secret(&new, &said);
    for node in [first, second, third] {
        node.signal("TERM");
        let (code, said) = node.end();
        assert_eq!(code, Some(0), "{said}");
        assert_no_secret(&new, &said);
        assert_no_secret(&old, &said.replace(&join, ""));
    }
}

#[test]
fn without_a_node_no_key_is_handed_over() {
    let homes = Homes::new("alone");
    let old = share_key(&homes, &["lap"]);
    let refused = error_of(&homes.atta("lap", &["cluster", "rekey"]), 1);
    assert!(refused.contains("--by-hand"), "{refused}");
    assert_eq!(ClusterKey::read(&homes.key("lap")).unwrap(), old);
    let both = ["cluster", "rekey", "--by-hand", "--without", "pi1"];
    error_of(&homes.atta("lap", &both), 2);
}

#[test]
fn a_unit_is_not_written_where_systemd_does_not_run() {
    if std::path::Path::new("/run/systemd/system").is_dir() {
        eprintln!("skipped: systemd runs here, and a test must not change its units");
        return;
    }
    let homes = Homes::new("unit");
    let refused = error_of(&homes.atta("pi1", &["node", "--install"]), 1);
    assert!(refused.contains("systemd does not run here"), "{refused}");
    assert!(!homes.key("pi1").exists());
}

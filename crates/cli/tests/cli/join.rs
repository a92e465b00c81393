//! Machines that find each other, join, take new keys and leave.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use atta_cluster::key::ClusterKey;
use serde_json::Value;

use crate::{
    program::error_of,
    ring::{Homes, MODEL, Node, PATIENCE, TEXT},
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
        for (end, address) in wire.0.iter().zip(["10.77.0.1/24", "10.77.0.2/24"]) {
            let ip = |args: &[&str]| ip(&[&["-n", end][..], args].concat()).unwrap();
            ip(&["address", "add", address, "dev", "wire0"]);
            ip(&["link", "set", "wire0", "up"]);
            ip(&["link", "set", "lo", "up"]);
            // An interface that leads nowhere, and comes first.
            ip(&["link", "add", "dead0", "type", "dummy"]);
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

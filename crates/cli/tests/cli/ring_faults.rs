//! Rings of real processes in which something goes wrong: audits, a coordinator that is killed and
//! comes back, members of a group that are killed.

use std::{
    fs,
    io::Read,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    program::error_of,
    ring::{Homes, MODEL, Pair, TEXT, endless},
};

/// Less than the silence after which a node gives up a coordinator.
const SILENCE: Duration = Duration::from_secs(14);

#[test]
fn an_audit_says_how_it_draws_and_what_it_compared() {
    let homes = Homes::new("audit");
    let mut node = homes.node("pi1", &[]);
    node.wait_for("atta1-");
    let ring = ["--ring=pi1", "--no-discovery", "--peer", &node.address];
    let run = |more: &[&str]| homes.atta("pi1", &[&["run", MODEL][..], &TEXT, more].concat());
    let alone = run(&[]);
    let audited = run(&[&ring[..], &["--audit", "1", "--audit-seed", "7"]].concat());
    let said = String::from_utf8_lossy(&audited.stderr);
    assert_eq!(audited.status.code(), Some(0), "{said}");
    assert_eq!(audited.stdout, alone.stdout);
    for line in [
        "audit: 100 % of the texts are computed here, too, with ",
        " MB of memory; ",
        "--audit-seed 7 draws the same ones",
        "audit: 1 of 1 texts, ",
        " rows: all are equal",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let short = [&ring[..], &["--audit", "1", "--ram-budget", "1M"]].concat();
    let output = run(&short);
    let refused = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{refused}");
    let why = "an audit computes all layers here, too, and needs";
    assert!(refused.contains(why), "{refused}");
    let rows = [&ring[..], &["--audit", "1", "--split", "rows"]].concat();
    let output = run(&rows);
    let refused = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{refused}");
    assert!(refused.contains("--split layers only"), "{refused}");
    let refused = error_of(&run(&["--audit", "1"]), 2);
    assert!(refused.contains("--ring"), "{refused}");
}

#[test]
fn a_coordinator_that_was_killed_finds_its_prompt_on_the_disks_of_the_nodes() {
    let pair = Pair::new("comes-back", ".");
    let story = "Once upon a time there was a cat. The cat had a red ball and a big dog. ";
    let prompt = story.repeat(14);
    let cache = pair.homes.0.path("prompts/");
    let stats = pair.homes.0.path("stats.json");
    let args = [
        "run", MODEL, "-p", &prompt, "-c", "1024", "-j", "1", "-t", "0",
    ];
    let with = |n: &'static str| [&args[..], &["-n", n]].concat();
    let alone = pair.command(&with("40"), None).output().unwrap();
    assert_eq!(alone.status.code(), Some(0));
    let ring = Some("--ring=pi1,pi2");
    let saving = [&with("600")[..], &["--cache", &cache]].concat();
    let mut child = pair.command(&saving, ring).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 40]).unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");

    let again = [
        &with("40")[..],
        &["--cache", &cache, "--stats-json", &stats],
    ]
    .concat();
    // The nodes are free a second after its connections have ended; without them it would be 15.
    let start = Instant::now();
    let output = loop {
        let output = pair.command(&again, ring).output().unwrap();
        if output.status.success() || start.elapsed() > SILENCE {
            break output;
        }
        thread::sleep(Duration::from_millis(500));
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, alone.stdout, "{said}");
    let counts: Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(count("prompt_tokens") > 250, "{counts}");
    assert_eq!(count("cached_tokens"), count("prompt_tokens") - 1, "{said}");
}

#[test]
fn rows_go_on_without_a_member_that_is_killed_and_change_no_letter() {
    let pair = Pair::new("rows-killed", ".");
    let args = endless("300", "512");
    let alone = pair.command(&args, None).output().unwrap();
    assert_eq!(alone.status.code(), Some(0));
    let rows = [&args[..], &["--split", "rows"]].concat();
    let mut child = pair.command(&rows, Some("--ring=pi1,pi2")).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = vec![0; 40];
    stdout.read_exact(&mut text).unwrap();
    pair.second.signal("KILL");
    stdout.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("ring: pi2 is gone; rows are divided with pi1; "),
        "{said}"
    );
    assert_eq!(text, alone.stdout, "{said}");
}

//! `atta verify`, `--verify`, damage of streamed weights, and conversions that are killed.

use std::{fs, thread};

use serde_json::Value;

use crate::program::{Scratch, atta, command, error_of, model, stdout};

/// The story model, 256 wide, which takes a moment to quantize.
const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);

/// A tiny model with checksums, and the place of a tensor in it.
fn checked(scratch: &Scratch) -> (String, usize) {
    let path = scratch.path("checked.gguf");
    let llama = model("llama-plain.gguf");
    stdout(&["convert", &llama, &path, "--layout", "streamable"]);
    let object = json(&stdout(&["inspect", &path, "--tensors", "--json"]));
    let tensors = object["tensors"].as_array().unwrap();
    let mut named = tensors.iter();
    let down = named.find(|tensor| tensor["name"] == "blk.1.ffn_down.weight");
    (path, down.unwrap()["offset"].as_u64().unwrap() as usize)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn flip(path: &str, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_whole_file_is_verified_as_text_and_json() {
    let scratch = Scratch::new("verify-whole");
    let (path, _) = checked(&scratch);
    let said = stdout(&["verify", &path]);
    assert!(
        said.starts_with(&path) && said.contains("as written"),
        "{said}"
    );
    let object = json(&stdout(&["verify", &path, "--json"]));
    assert_eq!(object["is_whole"], true);
    let file = &object["files"][0];
    assert_eq!(file["blake3"], file["expected_blake3"]);
    assert_eq!(file["bytes"], fs::metadata(&path).unwrap().len());
}

#[test]
fn a_file_with_checksums_runs_like_the_plain_one() {
    let scratch = Scratch::new("verify-run");
    let (path, _) = checked(&scratch);
    let plain = stdout(&[
        "run",
        &model("llama-plain.gguf"),
        "-p",
        "a",
        "-n",
        "4",
        "-t",
        "0",
    ]);
    for more in [&["--verify"][..], &["--weights", "streamed"]] {
        let run = ["run", &path, "-p", "a", "-n", "4", "-t", "0"];
        let output = atta(&[&run[..], more].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), plain, "{more:?}");
    }
}

#[test]
fn damage_is_one_error_line_with_the_tensor_and_its_offset() {
    let scratch = Scratch::new("verify-damaged");
    let (path, at) = checked(&scratch);
    flip(&path, at + 99);
    let run = ["run", &path, "-p", "a", "-n", "4"];
    for args in [
        &["verify", &path][..],
        &[&run[..], &["--verify"]].concat(),
        &[&run[..], &["--weights", "resident"]].concat(),
        &[&run[..], &["--weights", "streamed", "--verify"]].concat(),
        &[&run[..], &["--weights", "streamed"]].concat(),
    ] {
        let output = atta(args);
        let said = String::from_utf8_lossy(&output.stderr);
        let place = format!("blk.1.ffn_down.weight: bytes {at}+");
        assert!(said.contains(&place), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn damage_is_listed_as_json() {
    let scratch = Scratch::new("verify-json");
    let (path, at) = checked(&scratch);
    flip(&path, at + 99);
    let output = atta(&["verify", &path, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let object = json(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(object["is_whole"], false);
    let damage = &object["files"][0]["damages"][0];
    assert_eq!(damage["tensor"], "blk.1.ffn_down.weight");
    assert_eq!(damage["offset"], at);
}

#[test]
fn a_file_without_checksums_cannot_be_verified() {
    let plain = model("llama-plain.gguf");
    let said = error_of(&atta(&["verify", &plain]), 1);
    assert!(
        said.contains("no checksums") && said.contains("--layout"),
        "{said}"
    );
    let said = error_of(&atta(&["run", &plain, "-p", "a", "--verify"]), 1);
    assert!(said.contains("no checksums"), "{said}");
}

#[test]
fn verify_is_refused_where_it_has_no_effect() {
    let plain = model("llama-plain.gguf");
    let said = error_of(&atta(&["inspect", &plain, "--verify"]), 2);
    assert!(said.contains("atta verify"), "{said}");
    if cfg!(feature = "builtin") {
        let said = error_of(&atta(&["run", "-p", "a", "--verify"]), 2);
        assert!(said.contains("built-in"), "{said}");
    }
}

/// Bytes of a file, 0 if it is not there.
fn len(path: &str) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

#[test]
fn a_conversion_that_is_killed_goes_on_to_the_same_bytes() {
    let scratch = Scratch::new("convert-killed");
    let path = scratch.path("a.gguf");
    let expected = scratch.path("expected.gguf");
    let args = |path| {
        [
            "convert",
            STORIES,
            path,
            "--tensor-type",
            "ffn_down=t4",
            "-j",
            "2",
        ]
    };
    let done = atta(&args(&expected));
    assert_eq!(done.status.code(), Some(0));
    let journal = scratch.path("a.gguf.converting.journal");
    for pieces in [2, 9, 20] {
        let mut child = command(&args(&path)).spawn().unwrap();
        while len(&journal) < 40 + 4 * pieces && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Each kill came before the end, unless this process slept for long.
    if !fs::exists(&path).unwrap() {
        let output = atta(&args(&path));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("interrupted conversion"), "{said}");
    }
    assert!(fs::read(&path).unwrap() == fs::read(&expected).unwrap());
    assert_eq!(scratch.names(), ["a.gguf", "expected.gguf"]);
}

#[test]
fn scales_that_were_too_small_are_counted_with_verbose() {
    let scratch = Scratch::new("convert-verbose");
    let path = scratch.path("a.gguf");
    let said = atta(&[
        "convert",
        &model("llama-yarn.gguf"),
        &path,
        "--type",
        "t2",
        "--verbose",
    ]);
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.contains("sub-blocks of 32 weights wanted less"),
        "{said}"
    );
}

#[test]
fn what_a_conversion_has_written_is_no_source_of_it() {
    let scratch = Scratch::new("convert-itself");
    let part = scratch.path("a.gguf.converting");
    fs::copy(model("llama-plain.gguf"), &part).unwrap();
    let said = error_of(&atta(&["convert", &part, &scratch.path("a.gguf")]), 1);
    assert!(said.contains("this command reads it"), "{said}");
}

//! The binary interface against `abi.txt`, the headers, and the symbols of the shared library.
//!
//! A change of `abi.txt` is read in the diff: an addition needs nothing; a line that is changed or
//! removed breaks programs, and raises `ATTA_ABI`.

use std::{collections::BTreeSet, fs, mem::offset_of, path::Path, process::Command};

use atta_capi::{ATTA_ABI, AttaEvent, AttaEventKind, AttaHeat, AttaStatus};

use crate::programs::library;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn source_files(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(source_files(&path));
        } else {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// The signatures of all functions that C sees, in one line each.
fn signatures() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in source_files(&Path::new(CRATE).join("src")) {
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (head, _) = part.split_once(" {\n").unwrap();
            let (_, signature) = head.split_once("extern \"C\" ").unwrap();
            let line = signature.split_whitespace().collect::<Vec<_>>().join(" ");
            found.insert(line.replace("( ", "(").replace(", )", ")"));
        }
    }
    found
}

/// The name in a signature.
fn name(signature: &str) -> &str {
    signature["fn ".len()..].split('(').next().unwrap()
}

fn layouts() -> Vec<String> {
    let field = |name: &str, offset: usize| format!("atta_event.{name} at {offset}");
    vec![
        format!("ATTA_ABI {ATTA_ABI}"),
        format!("atta_event {} bytes", size_of::<AttaEvent>()),
        field("kind", offset_of!(AttaEvent, kind)),
        field("token", offset_of!(AttaEvent, token)),
        field("text", offset_of!(AttaEvent, text)),
        field("text_size", offset_of!(AttaEvent, text_size)),
        field("n_done", offset_of!(AttaEvent, n_done)),
        field("n_total", offset_of!(AttaEvent, n_total)),
        format!("the last status {}", AttaStatus::Suspended as i32),
        format!("the last kind of event {}", AttaEventKind::Done as i32),
        format!("the last level of heat {}", AttaHeat::Emergency as i32),
    ]
}

#[test]
fn the_interface_is_the_one_that_is_committed() {
    let path = Path::new(CRATE).join("abi.txt");
    let lines: Vec<String> = layouts().into_iter().chain(signatures()).collect();
    let found = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), found);
}

/// Names of functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(CRATE).join("include").join(header)).unwrap();
    let code = text.lines().filter(|line| !line.starts_with("//"));
    let words = code.flat_map(|line| {
        line.split([' ', '*'])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let calls = words.filter_map(|word| Some(word.split_once('(')?.0.to_owned()));
    let is_ours = |name: &String| name.starts_with("atta_") || name.starts_with("qsf_");
    // A type of functions has its bracket behind it.
    calls
        .filter(|name| is_ours(name) && !name.ends_with(')'))
        .collect()
}

#[test]
fn the_headers_declare_what_the_library_has() {
    let mut all = declared("atta.h");
    all.extend(declared("qsf.h"));
    let names: BTreeSet<String> = signatures()
        .iter()
        .map(|line| name(line).to_owned())
        .collect();
    assert_eq!(all, names);
}

#[test]
#[cfg(target_os = "linux")]
fn the_shared_library_shows_no_other_symbols() {
    let listed = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library())
        .output();
    let Ok(listed) = listed else {
        println!("skipped: there is no nm");
        return;
    };
    let text = String::from_utf8(listed.stdout).unwrap();
    let symbols = text
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned());
    let names: BTreeSet<String> = signatures()
        .iter()
        .map(|line| name(line).to_owned())
        .collect();
    assert_eq!(symbols.collect::<BTreeSet<String>>(), names);
}

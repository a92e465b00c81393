//! Programs in C99 and C++17, compiled with all warnings and run against the shared library.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use atta_engine::{Engine, Event, GenerateOptions, LoadOptions, Sampling, SessionOptions};

use crate::adapter_file::{stories, write_adapter};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const PROMPT: &str = "Once upon a time";

/// The shared library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let folders = [deps, deps.parent().unwrap()];
    let name = format!(
        "{}atta_capi{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    let found = folders
        .map(|folder| folder.join(&name))
        .into_iter()
        .find(|path| path.exists());
    found.expect("cargo builds it for this test")
}

/// The library and its headers, installed for the programs here.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("capi");
        let installed = Command::new(Path::new(CRATE).join("install"))
            .arg(library())
            .arg(&prefix)
            .status();
        assert!(installed.unwrap().success());
        prefix
    })
}

/// A compiler with the standard that the program is written in.
struct Language {
    compiler: &'static str,
    standard: &'static str,
}

const C: Language = Language {
    compiler: "cc",
    standard: "-std=c99",
};
const CPP: Language = Language {
    compiler: "c++",
    standard: "-std=c++17",
};

/// Compiles a program; `None` where there is no compiler.
fn compile(language: &Language, source: &str) -> Option<PathBuf> {
    if Command::new(language.compiler)
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: there is no {}", language.compiler);
        return None;
    }
    let prefix = prefix();
    let program = prefix.join(source.replace(['/', '.'], "_"));
    let lib = prefix.join("lib");
    let status = Command::new(language.compiler)
        .args([
            language.standard,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-O1",
        ])
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(Path::new(CRATE).join(source))
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", lib.display()))
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .args(["-latta", "-lpthread"])
        .status();
    assert!(status.unwrap().success(), "{source} does not compile");
    Some(program)
}

/// Runs a program with arguments behind the model, and returns its output.
fn run(language: &Language, source: &str, arguments: &[&str]) -> Option<String> {
    let program = compile(language, source)?;
    let output = Command::new(program)
        .current_dir(prefix())
        .arg(stories())
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{source}: {}\n{errors}",
        output.status
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The text that the engine writes.
fn expected(n_predict: usize) -> String {
    let engine = Engine::open(&stories(), &LoadOptions::default()).unwrap();
    let mut session = engine.session(&SessionOptions::default()).unwrap();
    let options = GenerateOptions {
        n_predict,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    };
    let prompt = engine.prompt_ids(PROMPT.as_bytes());
    let events = session.generate(&prompt, &options).unwrap();
    let texts = events.filter_map(|event| match event.unwrap() {
        Event::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_program_in_c99_can_call_every_function() {
    let adapter = prefix().join("adapter.gguf");
    write_adapter(&adapter, 1);
    let adapters = format!(r#"[{{"path": {adapter:?}, "name": "tale", "scale": 0}}]"#);
    run(&C, "tests/c/contract.c", &[&expected(24), &adapters]);
}

#[test]
fn the_first_program_of_the_documentation_writes_the_text_of_the_engine() {
    if let Some(text) = run(&C, "examples/first.c", &[PROMPT]) {
        assert_eq!(text.trim_end(), expected(32).trim_end());
    }
}

#[test]
fn a_program_of_the_qsf_plan_writes_the_text_of_the_engine() {
    if let Some(text) = run(&C, "examples/plan.c", &[PROMPT]) {
        assert!(text.starts_with(&expected(16)), "{text}");
    }
}

#[test]
fn a_program_in_cpp17_holds_a_conversation() {
    if let Some(text) = run(&CPP, "examples/chat.cpp", &["Hello"]) {
        assert!(text.contains("tokens"), "{text}");
    }
}

#[test]
fn what_is_installed_has_a_file_for_pkg_config() {
    let text = fs::read_to_string(prefix().join("lib/pkgconfig/atta.pc")).unwrap();
    assert!(
        text.contains(&format!("Version: {}", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    assert!(!text.contains('@'), "{text}");
}

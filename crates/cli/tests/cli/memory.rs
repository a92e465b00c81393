//! Models that are larger than their memory: under a limit of the system's own, with the same text
//! as without.
//!
//! The limit is a control group's where this user may make one, which counts every page, and
//! otherwise what the process may map to write to. A program that broke its budget would be killed
//! by the one and refused memory by the other.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use atta_formats::{TensorType, Value, Writer};

use crate::program::{Scratch, command, error_of};

const MIB: u64 = 1 << 20;

/// A model of 60 million parameters around the vocabulary of the story model, made once for all
/// tests.
fn large() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = std::env::temp_dir().join("atta-cli-60m.gguf");
        // Written under another name first, so that a test that was ended halfway leaves no half a
        // model.
        let unfinished = path.with_extension(std::process::id().to_string());
        fs::write(&unfinished, large_bytes()).unwrap();
        fs::rename(&unfinished, &path).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

fn large_bytes() -> Vec<u8> {
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stories.gguf");
    let files = atta::ModelFiles::open(&stories).unwrap();
    let metadata = files.directory().metadata();
    let embedding = files.directory().tensor("token_embd.weight").unwrap();
    let n_vocab = embedding.shape.dims()[0];
    let d = 512u64;
    let d_kv = 256u64;
    let d_ff = 2048u64;
    let n_layers = 14u32;
    let mut w = Writer::new();
    metadata
        .iter()
        .filter(|(key, _)| key.starts_with("tokenizer."))
        .for_each(|(key, value)| w.set_value(key, value));
    w.set_value("general.architecture", Value::Str("llama"));
    let counts = [
        ("block_count", n_layers),
        ("embedding_length", d as u32),
        ("feed_forward_length", d_ff as u32),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 4),
        ("context_length", 2048),
    ];
    counts
        .iter()
        .for_each(|(key, n)| w.set_value(&format!("llama.{key}"), Value::U32(*n)));
    w.set_value("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    let mut add = |name: &str, dims: &[u64], ty| w.add_tensor(name, dims, ty).unwrap();
    add("token_embd.weight", &[n_vocab, d], TensorType::Q8_0);
    for l in 0..n_layers {
        let mut matrix = |name: &str, dims: [u64; 2]| {
            add(&format!("blk.{l}.{name}.weight"), &dims, TensorType::Q8_0)
        };
        [
            ("attn_q", [d, d]),
            ("attn_k", [d_kv, d]),
            ("attn_v", [d_kv, d]),
            ("attn_output", [d, d]),
        ]
        .into_iter()
        .chain([
            ("ffn_gate", [d_ff, d]),
            ("ffn_up", [d_ff, d]),
            ("ffn_down", [d, d_ff]),
        ])
        .for_each(|(name, dims)| matrix(name, dims));
        ["attn_norm", "ffn_norm"]
            .iter()
            .for_each(|name| add(&format!("blk.{l}.{name}.weight"), &[d], TensorType::F32));
    }
    add("output_norm.weight", &[d], TensorType::F32);
    let layout = w.finish().unwrap();
    let mut bytes = layout.header.clone();
    bytes.resize(layout.file_bytes as usize, 0);
    let mut state = 88_172_645_463_325_252u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for tensor in &layout.tensors {
        let bytes = &mut bytes[tensor.offset as usize..(tensor.offset + tensor.n_bytes) as usize];
        match tensor.ty {
            TensorType::F32 => bytes
                .chunks_exact_mut(4)
                .for_each(|b| b.copy_from_slice(&1f32.to_le_bytes())),
            // A scale of 2^-11, and codes of all values.
            _ => bytes.chunks_exact_mut(34).for_each(|block| {
                block[..2].copy_from_slice(&0x1000u16.to_le_bytes());
                block[2..]
                    .chunks_exact_mut(8)
                    .for_each(|codes| codes.copy_from_slice(&random().to_le_bytes()));
            }),
        }
    }
    bytes
}

/// A control group with a limit, removed at the end.
struct Group(PathBuf);

impl Group {
    /// `None` where this user may not make one.
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("atta-test-{}-{bytes}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let (group, file) = match root.join("memory").is_dir() {
            true => (
                Self(root.join("memory").join(name)),
                "memory.limit_in_bytes",
            ),
            false => (Self(root.join(name)), "memory.max"),
        };
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), bytes.to_string()).ok()?;
        Some(group)
    }

    fn run(&self, command: &mut Command) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.0.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs a command that can have only `bytes` of memory, the page cache included where control
/// groups can be made.
fn limited(bytes: u64, args: &[&str]) -> Output {
    let mut command = command(args);
    let group = Group::new(bytes);
    let mut shell = match &group {
        Some(group) => group.run(&mut command),
        None => {
            // Mapped memory counts here whether it is touched or not: stacks, and room to align.
            let mut shell = Command::new("sh");
            let kib = (bytes + 32 * MIB) / 1024;
            shell.args(["-c", "ulimit -d \"$0\" && exec \"$@\"", &kib.to_string()]);
            shell.arg(command.get_program()).args(command.get_args());
            shell
        }
    };
    shell.stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_model_of_60_million_parameters_runs_in_a_third_of_its_size() {
    let run = [
        "run",
        large(),
        "-p",
        "Once upon a time",
        "-n",
        "12",
        "-t",
        "0",
        "-c",
        "128",
        "-j",
        "2",
    ];
    let expected = text(&command(&run).output().unwrap());
    assert!(!expected.is_empty());
    for budget in [20, 32] {
        let size = format!("{budget}M");
        let output = limited(
            budget * MIB * 100 / 85,
            &[&run[..], &["--ram-budget", &size]].concat(),
        );
        assert_eq!(text(&output), expected, "{budget}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("streaming"),
            "{budget}"
        );
    }
}

#[test]
#[cfg(feature = "builtin")]
fn the_built_in_model_runs_as_a_file_in_less_than_its_size() {
    let scratch = Scratch::new("memory-builtin");
    let path = scratch.file("stories.gguf", atta::builtin().bytes);
    let run = [
        "run", &path, "-p", "One day", "-n", "20", "-t", "0", "-c", "64", "-j", "1",
    ];
    let expected = text(&command(&run).output().unwrap());
    // Its smallest budget is named by a budget that is too small.
    let refused = error_of(
        &command(&[&run[..], &["--ram-budget", "1M"]].concat())
            .output()
            .unwrap(),
        1,
    );
    let least: u64 = refused
        .split(" MiB")
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let size = format!("{}M", least + 1);
    let output = limited(
        (least + 1) * MIB * 100 / 85,
        &[&run[..], &["--ram-budget", &size]].concat(),
    );
    assert_eq!(text(&output), expected);
}

#[test]
fn within_a_control_group_nobody_needs_to_say_how_much_memory_there_is() {
    let Some(group) = Group::new(48 * MIB) else {
        return;
    };
    let run = [
        "run",
        large(),
        "-p",
        "Once upon a time",
        "-n",
        "12",
        "-t",
        "0",
        "-c",
        "128",
        "-j",
        "2",
    ];
    let expected = text(&command(&run).output().unwrap());
    let output = group
        .run(&mut command(&run))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(text(&output), expected);
    assert!(String::from_utf8_lossy(&output.stderr).contains("streaming"));
}

#[test]
fn a_file_that_is_truncated_meanwhile_is_an_error_wherever_its_weights_are() {
    for weights in ["mapped", "streamed"] {
        let scratch = Scratch::new(&format!("memory-truncated-{weights}"));
        let path = scratch.path("model.gguf");
        fs::copy(crate::program::model("qwen2.gguf"), &path).unwrap();
        let mut run = command(&["run", &path, "-n", "4", "--verbose", "--weights", weights]);
        let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("kernels:") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0);
        }
        let len = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(len / 2)
            .unwrap();
        child.stdin.take().unwrap().write_all(b"the").unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{weights}: {rest}");
        assert!(
            rest.contains("model.gguf: the file was truncated while it was in use"),
            "{weights}: {rest}"
        );
    }
}

/// The table of memory and what the system counts agree.
#[test]
fn the_table_of_memory_adds_up() {
    let prompt = "a ".repeat(90);
    let base = [
        "run",
        large(),
        "-p",
        &prompt,
        "-n",
        "28",
        "-c",
        "128",
        "-t",
        "0",
        "--mem-report",
        "--ram-budget",
    ];
    for budget in ["24M", "40M", "1G"] {
        let output = command(&[&base[..], &[budget]].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let row = |name: &str| -> f64 {
            let line = said
                .lines()
                .find(|line| line.trim_start().starts_with(name))
                .unwrap_or_else(|| panic!("{said}"));
            line.split_whitespace()
                .last()
                .unwrap()
                .replace(',', "")
                .parse()
                .unwrap()
        };
        let reserved = row("reserved in all");
        let counted = row("RssAnon + RssShmem");
        // Room that the program itself may come to need is reserved, and a small model does not
        // need it.
        assert!(
            (counted - reserved).abs() < 0.05 * reserved + 1.5e6,
            "{budget}: {said}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_way_out_and_fits_with_it() {
    let run = [
        "run",
        large(),
        "-p",
        "x",
        "-n",
        "4",
        "-c",
        "2048",
        "--kv",
        "f32",
        "--ram-budget",
        "24M",
    ];
    let refused = error_of(&command(&run).output().unwrap(), 1);
    for part in ["at least", "-c below 2048", "--kv q8", "--fit"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    text(&limited(
        24 * MIB * 100 / 85,
        &[&run[..], &["--fit"]].concat(),
    ));
}

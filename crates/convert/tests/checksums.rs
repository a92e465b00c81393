//! Files with checksums: every changed bit is found, whatever it is in; tensors lie in the order of
//! execution; a conversion that was interrupted anywhere goes on and makes the same bytes.

#[allow(dead_code, reason = "shared with other tests")]
mod temp_dir;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_convert::{
    Checkpoint, ConvertOptions, Converted, Error, Existing, FileLayout, Mix, TypeSelection,
    convert, gguf, separate_means, verify,
};
use atta_convert::{Plan, Progress};
use atta_store::{Budget, ModelFiles, ModelSource};
use temp_dir::TempDir;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

fn options(mix: &str, layout: FileLayout) -> ConvertOptions {
    ConvertOptions {
        types: TypeSelection {
            mix: Some(Mix::named(mix).unwrap()),
            ..TypeSelection::default()
        },
        layout,
        ..ConvertOptions::default()
    }
}

fn checkpoint(path: &Path, options: &ConvertOptions) -> Checkpoint {
    let mut checkpoint = gguf::open(path).unwrap();
    let plan = Plan::new(&checkpoint, &options.types, None).unwrap();
    separate_means(&mut checkpoint, &plan).unwrap();
    checkpoint
}

fn go_on(_: Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Converts until `progress` was called `n` times.
fn converted(
    from: &Path,
    to: &Path,
    options: &ConvertOptions,
    n: usize,
) -> Result<Converted, Error> {
    let mut left = n;
    convert(&checkpoint(from, options), to, options, &mut |_| {
        left = left.saturating_sub(1);
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
}

fn whole(from: &Path, to: &Path, options: &ConvertOptions) -> Vec<u8> {
    convert(&checkpoint(from, options), to, options, &mut go_on).unwrap();
    fs::read(to).unwrap()
}

/// Whether `verify` takes bytes for whole.
fn is_whole(bytes: Vec<u8>) -> bool {
    let source = ModelSource {
        name: "flipped".to_owned(),
        bytes: Arc::new(bytes),
    };
    let Ok(files) = ModelFiles::from_sources(vec![source], &Budget::unlimited()) else {
        return false;
    };
    verify(&files, &mut |_| ()).is_ok_and(|all| all.iter().all(|file| file.is_whole()))
}

/// Changes `n` bits at random, one at a time.
fn flip_bits(n: u64) {
    let scratch = TempDir::new(&format!("flips-{n}"));
    let options = options("t3", FileLayout::ByTypes);
    let path = scratch.file("a.gguf");
    let bytes = whole(&golden("models/llama-yarn.gguf"), &path, &options);
    assert!(is_whole(bytes.clone()));
    let mut state = 1u64;
    for _ in 0..n {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let bit = (state >> 16) % (8 * bytes.len() as u64);
        let mut flipped = bytes.clone();
        flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
        assert!(!is_whole(flipped), "bit {bit}");
    }
}

#[test]
fn every_changed_bit_is_found() {
    flip_bits(300);
}

#[test]
#[ignore = "every_changed_bit_is_found with more bits; by hand"]
fn ten_thousand_changed_bits_are_found() {
    flip_bits(10_000);
}

#[test]
fn truncations_and_more_bytes_are_found() {
    let scratch = TempDir::new("lengths");
    let options = options("q8_0", FileLayout::Streamable);
    let path = scratch.file("a.gguf");
    let bytes = whole(&golden("models/llama-yarn.gguf"), &path, &options);
    assert!(is_whole(bytes.clone()));
    for n in [1, 4096, bytes.len() / 2] {
        assert!(!is_whole(bytes[..bytes.len() - n].to_vec()), "{n} less");
        assert!(!is_whole([&bytes[..], &vec![0; n]].concat()), "{n} more");
    }
}

#[test]
fn tensors_lie_at_disk_blocks_in_the_order_of_execution() {
    let scratch = TempDir::new("order");
    let path = scratch.file("a.gguf");
    let from = golden("models/llama-yarn.gguf");
    whole(&from, &path, &options("t3", FileLayout::ByTypes));
    let files = ModelFiles::open(&path).unwrap();
    let tensors = files.directory().tensors();
    assert!(tensors.iter().all(|t| t.offset.is_multiple_of(4096)));
    let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    let expected = [
        "token_embd.weight",
        "token_embd.mean",
        "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight",
        "blk.0.attn_k.weight",
        "blk.0.attn_v.weight",
        "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
        "blk.1.attn_norm.weight",
    ];
    assert_eq!(names[..expected.len()], expected);
    let end = ["output_norm.weight", "output.weight", "output.mean"];
    assert_eq!(names[names.len() - 3..], end);
}

#[test]
fn types_of_ggml_have_llama_cpps_layout_unless_asked_for_another() {
    let scratch = TempDir::new("layouts");
    let from = golden("models/llama-yarn.gguf");
    let keys = |layout| {
        let path = scratch.file("a.gguf");
        let options = ConvertOptions {
            existing: Existing::Replace,
            ..options("q8_0", layout)
        };
        whole(&from, &path, &options);
        let files = ModelFiles::open(&path).unwrap();
        let metadata = files.directory().metadata();
        let has = |key| metadata.get(key).is_some();
        (has("general.alignment"), has("atta.crc32c"))
    };
    assert_eq!(keys(FileLayout::ByTypes), (false, false));
    assert_eq!(keys(FileLayout::Plain), (false, false));
    assert_eq!(keys(FileLayout::Streamable), (true, true));
}

#[test]
fn a_streamable_file_becomes_the_plain_one_again() {
    let scratch = TempDir::new("back");
    let from = golden("models/llama-yarn.gguf");
    let path = |name: &str| scratch.file(name);
    let plain = options("q8_0", FileLayout::Plain);
    let expected = whole(&from, &path("plain.gguf"), &plain);
    let streamable = options("q8_0", FileLayout::Streamable);
    whole(&from, &path("streamable.gguf"), &streamable);
    let again = whole(&path("streamable.gguf"), &path("again.gguf"), &plain);
    assert!(again == expected);
}

#[test]
fn every_file_of_a_split_model_has_its_own_checksums() {
    let scratch = TempDir::new("split");
    let options = ConvertOptions {
        max_shard_bytes: Some(5_000),
        ..options("t4", FileLayout::ByTypes)
    };
    let from = checkpoint(&golden("models/llama-yarn.gguf"), &options);
    let dst = scratch.file("a.gguf");
    let done = convert(&from, &dst, &options, &mut go_on).unwrap();
    assert!(done.files.len() > 1);
    let files = ModelFiles::open(&done.files[1]).unwrap();
    let verified = verify(&files, &mut |_| ()).unwrap();
    assert_eq!(verified.len(), done.files.len());
    assert!(verified.iter().all(|file| file.is_whole()));
    // Windows writes to no file that is mapped.
    drop(files);
    change_a_byte(&done.files[1]);
    let files = ModelFiles::open(&done.files[0]).unwrap();
    let verified = verify(&files, &mut |_| ()).unwrap();
    let is_whole = |i: usize| verified[i].is_whole();
    assert!(!is_whole(1) && is_whole(0));
}

/// Changes a byte of the last tensor.
fn change_a_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - 4096;
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Converts two tensors at a time, until nothing is left; the number of stops, and the result.
fn in_steps(from: &Path, to: &Path, options: &ConvertOptions) -> (usize, Converted) {
    let mut n_stops = 0;
    loop {
        match converted(from, to, options, 2) {
            Ok(done) => return (n_stops, done),
            Err(Error::Stopped) => n_stops += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(!to.exists());
    }
}

#[test]
fn a_conversion_that_is_stopped_anywhere_goes_on_to_the_same_bytes() {
    let scratch = TempDir::new("stops");
    let from = golden("models/llama-yarn.gguf");
    for (mix, layout) in [("t2", FileLayout::ByTypes), ("q4_0", FileLayout::Plain)] {
        let options = options(mix, layout);
        let path = scratch.file(format!("{mix}.gguf"));
        let expected = whole(&from, &path, &options);
        fs::remove_file(&path).unwrap();
        let (n_stops, done) = in_steps(&from, &path, &options);
        assert!(n_stops > 5 && done.resumed_bytes > 0, "{n_stops}");
        assert!(fs::read(&path).unwrap() == expected, "{mix}");
        fs::remove_file(path).unwrap();
        assert_eq!(scratch.names(), Vec::<String>::new());
    }
}

/// A conversion to T3 that is stopped, and goes on.
struct Stopped {
    scratch: TempDir,
    from: PathBuf,
    path: PathBuf,
    t3: ConvertOptions,
    expected: Vec<u8>,
}

impl Stopped {
    fn new(name: &str) -> Self {
        let scratch = TempDir::new(name);
        let from = golden("models/llama-yarn.gguf");
        let path = scratch.file("a.gguf");
        let t3 = options("t3", FileLayout::ByTypes);
        let expected = whole(&from, &path, &t3);
        fs::remove_file(&path).unwrap();
        Self {
            scratch,
            from,
            path,
            t3,
            expected,
        }
    }

    /// Stops a conversion in the middle; the partial file.
    fn stop(&self, options: &ConvertOptions) -> PathBuf {
        let stopped = converted(&self.from, &self.path, options, 12);
        assert!(matches!(stopped, Err(Error::Stopped)));
        self.scratch.file("a.gguf.converting")
    }

    /// Converts to T3; the bytes that were there.
    fn resumed(&self) -> u64 {
        let done = converted(&self.from, &self.path, &self.t3, usize::MAX).unwrap();
        assert!(fs::read(&self.path).unwrap() == self.expected);
        fs::remove_file(&self.path).unwrap();
        done.resumed_bytes
    }
}

#[test]
fn what_another_conversion_has_written_is_not_used() {
    let stopped = Stopped::new("others");
    stopped.stop(&options("t4", FileLayout::ByTypes));
    assert_eq!(stopped.resumed(), 0);
    stopped.stop(&stopped.t3);
    assert!(stopped.resumed() > 0);
}

#[test]
fn of_a_partial_file_that_is_damaged_only_the_pieces_before_are_used() {
    let stopped = Stopped::new("damaged");
    stopped.stop(&stopped.t3);
    let all = stopped.resumed();
    let part = stopped.stop(&stopped.t3);
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(7);
    fs::write(&part, bytes).unwrap();
    let some = stopped.resumed();
    assert!(0 < some && some < all, "{some} of {all}");
    fs::remove_file(stopped.stop(&stopped.t3)).unwrap();
    assert_eq!(stopped.resumed(), 0);
}

#[test]
fn a_conversion_beside_another_one_of_the_same_output_is_refused() {
    let scratch = TempDir::new("busy");
    let from = golden("models/llama-yarn.gguf");
    let path = scratch.file("a.gguf");
    let options = options("t3", FileLayout::ByTypes);
    let other = checkpoint(&from, &options);
    let mut refused = false;
    convert(&checkpoint(&from, &options), &path, &options, &mut |_| {
        let beside = convert(&other, &path, &options, &mut go_on);
        refused = matches!(beside, Err(Error::Busy { .. }));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(refused);
}

#[test]
fn bytes_of_own_types_do_not_depend_on_the_number_of_threads() {
    let scratch = TempDir::new("threads");
    let from = golden("stories.gguf");
    let path = scratch.file("a.gguf");
    let bytes = |n_threads| {
        let options = ConvertOptions {
            n_threads,
            types: TypeSelection {
                overrides: vec![("token_embd".parse().unwrap(), atta_formats::TensorType::T2)],
                ..TypeSelection::default()
            },
            existing: Existing::Replace,
            ..ConvertOptions::default()
        };
        whole(&from, &path, &options)
    };
    let one = bytes(1);
    assert!(bytes(2) == one && bytes(7) == one);
}

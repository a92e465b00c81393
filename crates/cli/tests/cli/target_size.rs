//! `atta convert --target-size`: a file of a wished size.

use std::fs;

use serde_json::Value;

use crate::program::{Scratch, atta, error_of, stdout};

/// The story model as a file: 256 wide, so that every type fits.
const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);
/// A text for calibration that is over soon.
const TEXT: &str = "Once upon a time there was a little ant. She carried a leaf that was larger \
    than herself. One day it rained, and the leaf kept her dry. The other ants came under the leaf, \
    too, and they sang until the sun came out. Then they all went home. Mama said: what a big \
    leaf! The ant was happy and slept well.";

/// Standard output of a run that may warn.
fn done(args: &[&str]) -> String {
    let output = atta(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).unwrap()
}

/// Whether a length is at most the target, and within one per cent of it.
fn is_near(length: u64, target: u64) -> bool {
    length <= target && length as f64 >= 0.99 * target as f64
}

#[test]
fn a_file_is_as_large_as_asked_and_equal_for_any_number_of_threads() {
    let scratch = Scratch::new("size");
    let one = scratch.path("one.gguf");
    let three = scratch.path("three.gguf");
    let asked = ["--target-size", "1300K", "--json"];
    let said = json(&[&["convert", STORIES, &one, "-j", "1"][..], &asked].concat());
    done(&[&["convert", STORIES, &three, "-j", "3"][..], &asked].concat());
    let bytes = fs::read(&one).unwrap();
    assert!(is_near(bytes.len() as u64, 1300 << 10), "{said}");
    assert_eq!(said["file_bytes"], bytes.len());
    assert!(said["kld"].is_null() && said["kld_predicted"].is_null());
    assert!(
        bytes == fs::read(&three).unwrap(),
        "threads change the file"
    );
    let object = json(&["inspect", &one, "--json"]);
    let recipe = object["metadata"]["atta.quant.recipe"].as_str().unwrap();
    assert!(
        recipe.contains("t2,t3,t4") && recipe.contains("by the roles"),
        "{recipe}"
    );
    assert!(!stdout(&["run", &one, "-p", "Once", "-n", "4"]).is_empty());
}

#[test]
fn bits_per_weight_count_the_whole_file() {
    let scratch = Scratch::new("bits");
    let path = scratch.path("a.gguf");
    let said = json(&["convert", STORIES, &path, "--target-bpw", "3.5", "--json"]);
    let bits = said["file_bits_per_weight"].as_f64().unwrap();
    assert!(bits <= 3.5 && bits > 3.465, "{said}");
}

#[test]
fn types_of_ggml_alone_make_a_file_for_others() {
    let scratch = Scratch::new("ggml");
    let path = scratch.path("a.gguf");
    let types = ["--types", "q3_k,q4_k,q6_k", "--target-size", "1600K"];
    done(&[&["convert", STORIES, &path][..], &types].concat());
    assert!(is_near(fs::metadata(&path).unwrap().len(), 1600 << 10));
    let object = json(&["inspect", &path, "--json", "--tensors"]);
    for tensor in object["tensors"].as_array().unwrap() {
        let ty = tensor["type"].as_str().unwrap();
        assert!(["F32", "Q3_K", "Q4_K", "Q6_K"].contains(&ty), "{tensor}");
        assert!(!tensor["name"].as_str().unwrap().ends_with(".mean"));
    }
    let metadata = &object["metadata"];
    assert_eq!(metadata["general.quantization_version"], 2);
    assert!(metadata["general.file_type"].is_null());
}

#[test]
fn a_calibrated_file_says_how_far_it_is_from_its_source() {
    let scratch = Scratch::new("calibrated");
    let path = scratch.path("a.gguf");
    let text = scratch.file("text", TEXT.as_bytes());
    let asked = [
        "--target-size",
        "1300K",
        "--calibrate",
        &text,
        "--json",
        "--verbose",
    ];
    let said = json(&[&["convert", STORIES, &path][..], &asked].concat());
    assert!(
        is_near(fs::metadata(&path).unwrap().len(), 1300 << 10),
        "{said}"
    );
    let [kld, predicted] = ["kld", "kld_predicted"].map(|key| said[key].as_f64().unwrap());
    assert!(
        kld > 0.0 && predicted > kld / 4.0 && predicted < 4.0 * kld,
        "{said}"
    );
    let object = json(&["inspect", &path, "--json"]);
    let metadata = &object["metadata"];
    assert!((metadata["atta.quant.kld"].as_f64().unwrap() - kld).abs() < 1e-6);
    assert_eq!(metadata["atta.quant.kld_tokens"], said["kld_tokens"]);
    assert!(
        metadata["atta.quant.recipe"]
            .as_str()
            .unwrap()
            .contains("calibrated on")
    );
    assert!(!metadata["atta.sensitivity.tensor"].is_null());
    let matrices = said["tensors"].as_array().unwrap();
    assert!(
        matrices
            .iter()
            .all(|tensor| tensor["cost"].as_f64().unwrap() >= 0.0)
    );
    assert_eq!(scratch.names(), ["a.gguf", "text"], "no other file is left");
}

#[test]
fn a_size_that_is_too_small_is_answered_by_the_least() {
    let scratch = Scratch::new("least");
    let path = scratch.path("a.gguf");
    let convert = |size: &str| atta(&["convert", STORIES, &path, "--target-size", size]);
    let said = error_of(&convert("100K"), 1);
    let least = said.split("--target-size ").nth(1).unwrap();
    let least = least.split(' ').next().unwrap();
    assert!(!fs::exists(&path).unwrap());
    assert_eq!(convert(least).status.code(), Some(0), "{least}");
    let bytes: u64 = least.trim_end_matches('B').parse().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
}

#[test]
fn options_of_a_size_that_mean_nothing_are_refused() {
    let scratch = Scratch::new("size-idle");
    let path = scratch.path("a.gguf");
    let fails =
        |more: &[&str]| error_of(&atta(&[&["convert", STORIES, &path][..], more].concat()), 2);
    fails(&["--types", "q4_k"]);
    fails(&["--calibrate", STORIES]);
    fails(&["--target-size", "2M", "--type", "q4_k_m"]);
    fails(&["--target-size", "2M", "--split", "1M"]);
    fails(&["--target-size", "2M", "--target-bpw", "4"]);
    fails(&["--target-bpw", "0"]);
    fails(&["--target-size", "2M", "--types", "q9"]);
    fails(&["--target-size", "2M", "--to", "leap-f32"]);
}

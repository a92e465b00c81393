//! `atta doctor`, and the report of `atta bench`.

use serde_json::Value;

use crate::program::{atta, error_of, model, stdout};

#[test]
fn the_machine_is_described_and_models_are_placed_on_it() {
    let file = model("llama-plain.gguf");
    let object: Value =
        serde_json::from_str(&stdout(&["doctor", "--disk", &file, "--json"])).unwrap();
    for key in ["int8_mac_per_s", "disk_bytes_per_s", "threads"] {
        assert!(object[key].as_f64().unwrap() > 0.0, "{key}: {object}");
    }
    let reads = object["memory_reads"].as_array().unwrap();
    assert!(
        reads
            .iter()
            .all(|read| read["read_bytes_per_s"].as_f64().unwrap() > 1e6)
    );
    assert!(!object["notes"].as_array().unwrap().is_empty());
    let models = object["models"].as_array().unwrap();
    assert_eq!((models.len(), &models[13]["size"]), (14, &"70B".into()));
    for pair in models.chunks(2) {
        assert!(
            pair[0]["bytes"].as_u64() > pair[1]["bytes"].as_u64(),
            "{pair:?}"
        );
    }
    let missing = error_of(&atta(&["doctor", "--disk", "/no/such/file"]), 1);
    assert!(missing.contains("/no/such/file"), "{missing}");
}

#[cfg(not(feature = "gpu"))]
#[test]
fn a_program_without_gpus_says_so() {
    let error = error_of(&atta(&["doctor", "--gpu"]), 1);
    assert!(error.contains("without GPUs"), "{error}");
    error_of(&atta(&["doctor", "--gpu", "--disk", "x"]), 2);
    let path = model("llama-plain.gguf");
    for args in [&["run", &path, "-p", "x"][..], &["inspect", &path]] {
        let error = error_of(&atta(&[args, &["--gpu", "auto"]].concat()), 2);
        assert!(error.contains("without GPUs"), "{error}");
    }
}

#[test]
fn a_report_of_a_benchmark_is_two_tables() {
    let path = model("llama-plain.gguf");
    let args = ["bench", &path, "-p", "4", "-n", "2", "-r", "1", "--report"];
    let text = stdout(&args);
    assert!(text.contains("| model | llama-plain.gguf, "), "{text}");
    assert_eq!(text.matches("|---|").count(), 2 + 2, "{text}");
    let rows = text.lines().rev().take(2).collect::<Vec<_>>();
    assert!(rows[0].contains("| text | 2 | 0 |") && rows[1].contains("| prompt | 4 | 0 |"));
}

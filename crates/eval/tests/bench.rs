//! The benchmark on a tiny model.

use std::path::Path;

use atta_engine::{Engine, LoadOptions, SessionOptions};
use atta_eval::bench::{BenchOptions, bench};

#[test]
fn a_benchmark_reports_rates_and_a_split_that_adds_up() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama-plain.gguf");
    let engine = Engine::open(&path, &LoadOptions::default()).unwrap();
    let options = BenchOptions {
        n_prompt: 16,
        n_gen: 8,
        depth: 4,
        n_reps: 2,
        session: SessionOptions::default(),
    };
    let report = bench(&engine, &options).unwrap();
    assert!(report.prefill_tok_s > 0.0 && report.decode_tok_s > 0.0);
    for (split, rate, n) in [
        (report.prefill_split, report.prefill_tok_s, 16.0),
        (report.decode_split, report.decode_tok_s, 8.0),
    ] {
        let sum =
            split.matmul_s + split.attention_s + split.scan_s + split.io_wait_s + split.other_s;
        assert!(sum > 0.0 && sum < 100.0 * n / rate, "{split:?}");
    }
}

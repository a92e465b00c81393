//! The benchmark on a tiny model.

use std::path::Path;

use atta_engine::{Engine, LoadOptions, SessionOptions};
use atta_eval::bench::{BenchCase, BenchKind, BenchOptions, BenchRow, bench};

fn engine() -> Engine {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama-plain.gguf");
    Engine::open(&path, &LoadOptions::default()).unwrap()
}

#[test]
fn every_prompt_and_text_is_measured_at_every_depth() {
    let engine = engine();
    let options = BenchOptions {
        n_prompts: vec![16, 0, 5],
        n_gens: vec![8],
        depths: vec![4, 0],
        n_reps: 2,
        session: SessionOptions::default(),
    };
    let mut seen = Vec::new();
    let report = bench(&engine, &options, |i, case| seen.push((i, case))).unwrap();
    let cases: Vec<BenchCase> = report.rows.iter().map(|row| row.case).collect();
    assert_eq!(cases, options.cases());
    assert_eq!(seen, cases.iter().copied().enumerate().collect::<Vec<_>>());
    let numbers = cases.iter().map(|case| (case.n, case.depth));
    assert_eq!(
        numbers.collect::<Vec<_>>(),
        [(16, 4), (5, 4), (8, 4), (16, 0), (5, 0), (8, 0)]
    );
    for row in &report.rows {
        let split = row.split;
        let sum =
            split.matmul_s + split.attention_s + split.scan_s + split.io_wait_s + split.other_s;
        assert!(row.tok_s > 0.0 && sum > 0.0, "{row:?}");
        assert!(sum < 100.0 * row.case.n as f64 / row.tok_s, "{row:?}");
    }
    let text = |depth| {
        let of = |row: &&BenchRow| row.case.kind == BenchKind::Text && row.case.depth == depth;
        report.rows.iter().find(of).unwrap().state_bytes
    };
    assert!(text(4) > text(0), "a text reads what is in front of it");
}

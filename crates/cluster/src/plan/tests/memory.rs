//! Memory that plans count beside weights: of a coordinator, of batches, and of a pool.

use super::*;
use crate::cut::frame_bytes_of;

#[test]
fn refuses_batches_too_large_and_names_some_that_fit() {
    let measures = all_linked(vec![node("a", 6.2, 10.0, 0.0)], wired());
    let request = |n_batch: u64| PlanRequest {
        n_batch,
        ..latency()
    };
    let refusal = refused(&model_8b(), &measures, &request(8192));
    let Refusal::TooLittleRam { change, .. } = &refusal else {
        panic!("{refusal}");
    };
    let n_batch = change.n_batch.unwrap();
    plan(&model_8b(), &measures, &request(n_batch)).unwrap();
    refused(&model_8b(), &measures, &request(2 * n_batch));
    let said = format!("or batches of {n_batch} rows");
    assert!(refusal.to_string().ends_with(&said), "{refusal}");
}

#[test]
fn a_coordinator_counts_journal_and_links_in_a_ring_and_logits_always() {
    let measures = all_linked(
        vec![node("a", 9.0, 10.0, 0.0), node("b", 9.0, 10.0, 0.0)],
        wired(),
    );
    let with = ModelSizes {
        journal_bytes: 80_000_000,
        output_bytes: 5_000_000,
        ..model_8b()
    };
    let bytes = |model: &ModelSizes, must_use: Vec<usize>| {
        let request = PlanRequest {
            lead: Some(0),
            must_use,
            lead_link_bytes: 3_000_000,
            stage_link_bytes: 2_000_000,
            ..latency()
        };
        let plan = plan(model, &measures, &request).unwrap();
        let beside = plan
            .loads
            .iter()
            .map(|load| load.ram_bytes - load.resident_bytes);
        let kv = plan.loads.iter().map(|load| load.kv_bytes);
        beside
            .zip(kv)
            .map(|(all, kv)| all - kv)
            .collect::<Vec<u64>>()
    };
    let alone = [&model_8b(), &with].map(|model| bytes(model, vec![])[0]);
    assert_eq!(alone[1] - alone[0], 5_000_000);
    let ring = [&model_8b(), &with].map(|model| bytes(model, vec![1]));
    assert_eq!(ring[1][0] - ring[0][0], 85_000_000);
    let scratch = 48 * 4096 * 64;
    let frames = frame_bytes_of(4096, 64);
    assert_eq!(ring[0][0] - alone[0], scratch + frames + 3_000_000);
    // Of the stage's layers up to 512 positions are copied.
    let n_layers = (ring[0][1] - (12 << 20) - scratch - frames - 2_000_000) / (512 * 4096);
    assert!((1..=32).contains(&n_layers), "{n_layers}");
}

#[test]
fn a_pool_of_keys_and_values_is_counted_once() {
    let measures = all_linked(vec![node("a", 9.0, 10.0, 0.0)], wired());
    let kv_bytes = |n_shared: Option<u64>| {
        let request = PlanRequest {
            n_seqs: 5,
            n_shared,
            ..latency()
        };
        let plan = plan(&model_8b(), &measures, &request).unwrap();
        plan.loads[0].kv_bytes / (32 * 4096)
    };
    assert_eq!(kv_bytes(None), 5 * 4096);
    assert_eq!(kv_bytes(Some(2 * 4096)), 2 * 4096 + 5 * 32);
    assert_eq!(kv_bytes(Some(9 * 4096)), 5 * 4096);
}

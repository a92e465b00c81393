//! Prepared cases (five each: refuse, drop, stream, ring, stay alone) and properties.

mod memory;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::wire::Dtype;

const GB: u64 = 1_000_000_000;

/// An 8B in Q4_K_M: 32 layers of 140 MB, head 0.4 GB, embedding 0.3 GB.
fn model_8b() -> ModelSizes {
    model(32, 140_000_000, 4096)
}

fn model(n_layers: usize, layer_bytes: u64, d_model: u64) -> ModelSizes {
    let layer = LayerSizes {
        weight_bytes: layer_bytes,
        row_bytes: layer_bytes,
        macs: layer_bytes * 16 / 9,
        kv_bytes: 4096,
        window: None,
        state_bytes: 0,
        may_cut_before: true,
    };
    ModelSizes {
        layers: vec![layer; n_layers],
        embed_bytes: layer_bytes * 2,
        head_bytes: layer_bytes * 3,
        head_read_bytes: layer_bytes * 3,
        head_macs: layer_bytes * 16 / 3,
        d_model,
        scratch_row_bytes: d_model * 48,
        fixed_bytes: 0,
        n_states: 1,
        journal_bytes: 0,
        output_bytes: 0,
    }
}

/// A node: memory in GB, memory rate and disk in GB/s; 100 multiply-adds a ns.
fn node(name: &str, ram: f64, read: f64, disk: f64) -> NodeMeasure {
    NodeMeasure {
        name: name.to_owned(),
        ram_bytes: (ram * GB as f64) as u64,
        speed: NodeSpeed::Rates {
            read_bytes_per_s: read * GB as f64,
            macs_per_s: 100e9,
        },
        disk_bytes_per_s: disk * GB as f64,
    }
}

fn wired() -> LinkMeasure {
    link(200, 117e6)
}

fn link(rtt_us: u64, bytes_per_s: f64) -> LinkMeasure {
    LinkMeasure {
        rtt_p50: Duration::from_micros(rtt_us),
        rtt_p90: Duration::from_micros(rtt_us),
        bytes_per_s,
    }
}

fn all_linked(nodes: Vec<NodeMeasure>, link: LinkMeasure) -> Measures {
    let n = nodes.len();
    let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    Measures {
        nodes,
        links: pairs.map(|pair| (pair, link)).collect(),
    }
}

fn request(objective: Objective) -> PlanRequest {
    PlanRequest {
        wire: Dtype::F32,
        objective,
        n_ctx: 4096,
        n_seqs: 1,
        n_shared: None,
        n_past: 0,
        n_prompt: 1024,
        n_batch: 256,
        lead_link_bytes: 0,
        stage_link_bytes: 0,
        lead: None,
        must_use: Vec::new(),
        max_rounds: 4,
    }
}

fn latency() -> PlanRequest {
    PlanRequest {
        n_batch: 64,
        ..request(Objective::Latency)
    }
}

fn refused(model: &ModelSizes, measures: &Measures, request: &PlanRequest) -> Refusal {
    plan(model, measures, request).expect_err("no plan is possible")
}

fn share(plan: &RingPlan, node: usize) -> usize {
    plan.layers_of(node).map(ExactSizeIterator::len).sum()
}

#[test]
fn refuses_where_ram_lacks_and_no_node_streams_and_the_suggestion_works() {
    let measures = all_linked(
        vec![node("a", 2.0, 10.0, 0.0), node("b", 2.0, 10.0, 0.0)],
        wired(),
    );
    let refusal = refused(&model_8b(), &measures, &latency());
    let Refusal::TooLittleRam { change, .. } = &refusal else {
        panic!("{refusal}");
    };
    let (name, more) = change.more_ram.clone().unwrap();
    let mut helped = measures.clone();
    let i = helped
        .nodes
        .iter()
        .position(|node| node.name == name)
        .unwrap();
    helped.nodes[i].ram_bytes += more;
    plan(&model_8b(), &helped, &latency()).unwrap();
    // It is the smallest one, to 16 MiB.
    helped.nodes[i].ram_bytes -= 17 << 20;
    refused(&model_8b(), &helped, &latency());
    assert!(refusal.to_string().contains("more on"), "{refusal}");
}

#[test]
fn refuses_a_context_too_long_and_names_one_that_fits() {
    let measures = all_linked(vec![node("a", 6.0, 10.0, 0.0)], wired());
    let request = PlanRequest {
        n_ctx: 131_072,
        ..latency()
    };
    let Refusal::TooLittleRam { change, .. } = refused(&model_8b(), &measures, &request) else {
        panic!();
    };
    let n_ctx = change.n_ctx.unwrap();
    plan(&model_8b(), &measures, &PlanRequest { n_ctx, ..latency() }).unwrap();
    let twice = PlanRequest {
        n_ctx: 2 * n_ctx,
        ..latency()
    };
    refused(&model_8b(), &measures, &twice);
}

#[test]
fn refuses_wanted_nodes_that_cannot_reach_each_other() {
    let mut measures = all_linked(
        vec![node("a", 9.0, 10.0, 0.4), node("b", 9.0, 10.0, 0.4)],
        wired(),
    );
    measures.links.clear();
    let request = PlanRequest {
        must_use: vec![0, 1],
        ..latency()
    };
    let refusal = refused(&model_8b(), &measures, &request);
    assert_eq!(refusal, Refusal::NotConnected("a, b".to_owned()));
}

#[test]
fn refuses_what_cannot_have_been_measured() {
    let mut measures = all_linked(vec![node("a", 9.0, f64::NAN, 0.4)], wired());
    assert!(matches!(
        refused(&model_8b(), &measures, &latency()),
        Refusal::Input(_)
    ));
    measures.nodes[0] = node("a", 9.0, 10.0, -1.0);
    assert!(matches!(
        refused(&model_8b(), &measures, &latency()),
        Refusal::Input(_)
    ));
    measures.nodes.clear();
    assert!(matches!(
        refused(&model_8b(), &measures, &latency()),
        Refusal::Input(_)
    ));
}

#[test]
fn refuses_a_coordinator_without_memory_for_the_embedding() {
    let measures = all_linked(
        vec![node("a", 0.1, 10.0, 0.4), node("b", 9.0, 10.0, 0.4)],
        wired(),
    );
    let request = PlanRequest {
        lead: Some(0),
        ..latency()
    };
    let Refusal::TooLittleRam { change, .. } = refused(&model_8b(), &measures, &request) else {
        panic!();
    };
    assert_eq!(change.more_ram.unwrap().0, "a");
    assert_eq!(change.n_ctx, None);
}

#[test]
fn drops_a_slow_node_that_is_not_needed() {
    let nodes = vec![
        node("a", 3.0, 10.0, 0.2),
        node("b", 3.5, 10.0, 0.2),
        node("old", 4.0, 1.0, 0.1),
    ];
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert_eq!(plan.loads.len(), 2);
    let idle = &plan.idle[0];
    assert_eq!(idle.node, 2);
    let IdleReason::Slower { with_it_tok_s } = idle.reason else {
        panic!("{idle:?}");
    };
    assert!(with_it_tok_s < plan.tok_s());
    assert!(plan.to_string().contains("old would not help"), "{plan}");
}

#[test]
fn drops_a_node_behind_a_slow_link() {
    let nodes = vec![
        node("a", 3.0, 10.0, 0.2),
        node("b", 3.5, 10.0, 0.2),
        node("far", 9.0, 10.0, 0.2),
    ];
    let mut measures = all_linked(nodes, wired());
    for pair in [(0, 2), (1, 2)] {
        measures.links.insert(pair, link(2_000_000, 1e6));
    }
    let plan = plan(
        &model_8b(),
        &measures,
        &PlanRequest {
            lead: Some(0),
            ..latency()
        },
    )
    .unwrap();
    assert_eq!((plan.loads.len(), plan.idle[0].node), (2, 2));
}

#[test]
fn drops_a_node_without_links() {
    let mut measures = all_linked(
        vec![
            node("a", 3.0, 10.0, 0.2),
            node("b", 3.5, 10.0, 0.2),
            node("lost", 9.0, 1.0, 0.2),
        ],
        wired(),
    );
    measures.links.retain(|pair, _| *pair == (0, 1));
    let plan = plan(
        &model_8b(),
        &measures,
        &PlanRequest {
            lead: Some(0),
            ..latency()
        },
    )
    .unwrap();
    assert_eq!(plan.idle[0].reason, IdleReason::NotConnected);
}

#[test]
fn drops_a_node_too_small_for_a_layer() {
    let nodes = vec![
        node("a", 3.0, 10.0, 0.2),
        node("b", 3.5, 10.0, 0.2),
        node("tiny", 0.06, 10.0, 0.2),
    ];
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert_eq!(plan.idle[0].reason, IdleReason::TooLittleRam);
}

#[test]
fn drops_a_slow_node_from_the_prompt_of_two_fast_ones() {
    let mut nodes = vec![
        node("a", 4.0, 10.0, 0.2),
        node("b", 4.0, 10.0, 0.2),
        node("slow", 4.0, 10.0, 0.2),
    ];
    nodes[2].speed = NodeSpeed::Rates {
        read_bytes_per_s: 10e9,
        macs_per_s: 1e9,
    };
    let plan = plan(
        &model_8b(),
        &all_linked(nodes, wired()),
        &request(Objective::Prompt),
    )
    .unwrap();
    assert_eq!((plan.loads.len(), plan.idle[0].node), (2, 2));
}

#[test]
fn streams_alone_where_there_is_one_small_node() {
    let measures = all_linked(vec![node("pi", 2.6, 10.5, 0.09)], wired());
    let plan = plan(&model_8b(), &measures, &latency()).unwrap();
    assert!(plan.is_alone() && plan.loads[0].streamed_bytes > 0);
    assert!((0.02..0.05).contains(&plan.tok_s()), "{plan}");
}

#[test]
fn streams_on_two_where_two_have_too_little_and_three_are_enough() {
    let nodes = |n: usize| {
        (0..n)
            .map(|i| node(&format!("pi{i}"), 2.6, 10.5, 0.09))
            .collect()
    };
    let two = plan(&model_8b(), &all_linked(nodes(2), wired()), &latency()).unwrap();
    assert!(
        two.loads.iter().any(|load| load.streamed_bytes > 0),
        "{two}"
    );
    let three = plan(&model_8b(), &all_linked(nodes(3), wired()), &latency()).unwrap();
    assert!(
        three.loads.iter().all(|load| load.streamed_bytes == 0),
        "{three}"
    );
    assert!(
        three.tok_s() > 1.9 && three.tok_s() > 4.0 * two.tok_s(),
        "{three}"
    );
}

#[test]
fn streams_in_rounds_where_every_node_reads_from_disk() {
    let nodes = (0..3)
        .map(|i| node(&format!("pc{i}"), 12.0, 30.0, 2.5))
        .collect();
    let plan = plan(
        &model(80, 500_000_000, 8192),
        &all_linked(nodes, wired()),
        &latency(),
    )
    .unwrap();
    assert!(plan.rounds > 1, "{plan}");
    assert!(plan.stages.len() > plan.loads.len());
    covers_once(&plan, 80);
}

#[test]
fn streams_on_the_node_with_the_fast_disk() {
    let nodes = vec![node("card", 2.8, 10.0, 0.04), node("nvme", 2.4, 10.0, 3.0)];
    let request = PlanRequest {
        lead: Some(0),
        ..latency()
    };
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &request).unwrap();
    let streamed = |node| {
        plan.loads
            .iter()
            .find(|load| load.node == node)
            .map(|load| load.streamed_bytes)
    };
    assert_eq!(streamed(0), Some(0));
    assert!(streamed(1) > Some(0), "{plan}");
}

#[test]
fn streams_for_prompts_with_large_chunks() {
    let measures = all_linked(vec![node("pi", 2.6, 10.5, 0.09)], wired());
    let plan = plan(&model_8b(), &measures, &request(Objective::Prompt)).unwrap();
    assert!(plan.loads[0].streamed_bytes > 0);
    assert_eq!(plan.chunk, 256);
}

#[test]
fn rings_for_capacity() {
    let nodes = (0..4)
        .map(|i| node(&format!("pi{i}"), 1.5, 10.5, 0.09))
        .collect();
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert_eq!(plan.loads.len(), 4);
    assert!(
        plan.alone.unwrap().is_streamed
            && plan.tok_s() > 10.0 * plan.alone.unwrap().predicted.decode_tok_s
    );
}

#[test]
fn rings_for_prompts_though_one_node_has_room() {
    let nodes = (0..4)
        .map(|i| node(&format!("pi{i}"), 8.0, 10.5, 0.09))
        .collect();
    let plan = plan(
        &model_8b(),
        &all_linked(nodes, wired()),
        &request(Objective::Prompt),
    )
    .unwrap();
    assert_eq!((plan.loads.len(), plan.prompt_depth), (4, 4));
    // RING §10: 2.9 times, with chunks of 128.
    let factor = plan.tok_s() / plan.alone.unwrap().predicted.prompt_tok_s;
    assert!((2.5..4.0).contains(&factor), "{factor}");
}

#[test]
fn rings_for_many_users_beyond_the_knee() {
    let nodes = (0..4)
        .map(|i| node(&format!("pi{i}"), 8.0, 10.5, 0.09))
        .collect();
    let request = PlanRequest {
        n_seqs: 64,
        n_ctx: 256,
        ..request(Objective::Users)
    };
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &request).unwrap();
    assert!(plan.loads.len() > 1 && plan.decode_depth > 1, "{plan}");
    assert!(plan.tok_s() > 1.5 * plan.alone.unwrap().predicted.users_tok_s);
}

#[test]
fn rings_of_unequal_nodes_fill_the_fast_one_first() {
    let nodes = vec![node("laptop", 3.0, 40.0, 0.4), node("pi", 4.0, 10.0, 0.1)];
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert!(plan.loads[0].node == 1 || share(&plan, 0) >= 12);
    let laptop = plan.loads.iter().find(|load| load.node == 0).unwrap();
    assert!(laptop.ram_left_bytes < 160_000_000, "{plan}");
}

#[test]
fn rings_of_eight_nodes_follow_the_short_links() {
    let nodes = (0..8)
        .map(|i| node(&format!("n{i}"), 1.2, 10.0, 0.05))
        .collect();
    let mut measures = all_linked(nodes, link(20_000, 117e6));
    // Short links along 0 3 6 1 4 7 2 5 and back.
    for i in 0..8 {
        let (a, b) = (i * 3 % 8, (i + 1) * 3 % 8);
        measures.links.insert((a.min(b), a.max(b)), wired());
    }
    let plan = plan(
        &model_8b(),
        &measures,
        &PlanRequest {
            lead: Some(0),
            ..latency()
        },
    )
    .unwrap();
    assert!(
        plan.loads.iter().all(|load| load.streamed_bytes == 0),
        "{plan}"
    );
    let pairs = plan
        .stages
        .windows(2)
        .map(|pair| (pair[0].node, pair[1].node));
    let long = pairs.filter(|(a, b)| a != b && (a + 3) % 8 != *b && (b + 3) % 8 != *a);
    assert!(long.count() <= 1, "{:?}", plan.stages);
}

#[test]
fn stays_alone_where_the_model_fits_and_nodes_are_equal() {
    let nodes = (0..4)
        .map(|i| node(&format!("pi{i}"), 8.0, 10.5, 0.4))
        .collect();
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert!(plan.is_alone() && plan.idle.len() == 3);
    assert!((2.0..2.4).contains(&plan.tok_s()), "{plan}");
    assert!(
        plan.to_string()
            .starts_with("no ring: pi0 32 layers + head"),
        "{plan}"
    );
}

#[test]
fn stays_alone_on_the_faster_machine() {
    let nodes = vec![node("pi", 8.0, 10.0, 0.4), node("pc", 8.0, 40.0, 0.4)];
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &latency()).unwrap();
    assert!(plan.is_alone() && plan.lead == 1);
}

#[test]
fn stays_alone_where_links_cost_more_than_they_bring() {
    let nodes = vec![node("a", 8.0, 40.0, 0.4), node("b", 8.0, 41.0, 0.4)];
    let request = PlanRequest {
        lead: Some(0),
        ..latency()
    };
    let plan = plan(&model_8b(), &all_linked(nodes, link(50_000, 1e6)), &request).unwrap();
    assert!(plan.is_alone() && plan.lead == 0);
}

#[test]
fn stays_alone_for_users_below_the_knee() {
    let nodes = vec![node("a", 8.0, 10.0, 0.4), node("b", 8.0, 10.0, 0.4)];
    let request = PlanRequest {
        n_seqs: 2,
        ..request(Objective::Users)
    };
    let plan = plan(&model_8b(), &all_linked(nodes, link(5_000, 1e7)), &request).unwrap();
    assert!(plan.is_alone(), "{plan}");
}

#[test]
fn stays_alone_where_nothing_is_connected() {
    let mut measures = all_linked(
        vec![node("a", 8.0, 10.0, 0.4), node("b", 2.0, 10.0, 0.4)],
        wired(),
    );
    measures.links.clear();
    let request = PlanRequest {
        lead: Some(0),
        ..latency()
    };
    let plan = plan(&model_8b(), &measures, &request).unwrap();
    assert!(plan.is_alone() && plan.lead == 0);
    assert_eq!(plan.idle[0].reason, IdleReason::NotConnected);
}

#[test]
fn measured_times_are_lines_between_their_points() {
    let times = [(1, 13), (5, 17), (10, 40)].map(|(n_rows, ms)| PassTime {
        n_rows,
        time: Duration::from_millis(ms),
    });
    let mut a = node("a", 8.0, 1.0, 0.4);
    a.speed = NodeSpeed::Measured {
        layer_bytes: 140_000_000,
        points: times.to_vec(),
    };
    let measures = all_linked(vec![a], wired());
    let plan = plan(&model_8b(), &measures, &latency()).unwrap();
    // 32 layers, and a head of three layers' bytes.
    assert_eq!(plan.predicted.lap.as_millis(), 13 * 35);
    let three = PlanRequest {
        n_seqs: 3,
        ..request(Objective::Users)
    };
    let plan = super::plan(&model_8b(), &measures, &three).unwrap();
    assert!((plan.predicted.users_tok_s - 3.0 / (0.015 * 35.0)).abs() < 1e-3);
}

#[test]
fn layers_that_share_keys_are_not_cut_apart() {
    let mut model = model_8b();
    for l in 9..32 {
        model.layers[l].may_cut_before = false;
    }
    let nodes = vec![node("a", 4.7, 10.0, 0.1), node("b", 3.0, 10.0, 0.1)];
    let plan = plan(&model, &all_linked(nodes, wired()), &latency()).unwrap();
    assert!(
        plan.stages.iter().all(|stage| stage.layers.start <= 8),
        "{plan}"
    );
    covers_once(&plan, 32);
}

#[test]
fn a_model_with_fewer_parts_than_machines_is_refused_for_that() {
    let mut model = model_8b();
    for layer in &mut model.layers {
        layer.may_cut_before = false;
    }
    let nodes = ["a", "b", "c"].map(|name| node(name, 8.0, 10.0, 0.4));
    let measures = all_linked(nodes.to_vec(), wired());
    let request = |must_use: &[usize]| PlanRequest {
        lead: Some(0),
        must_use: must_use.to_vec(),
        ..latency()
    };
    let refused = |model: &ModelSizes, must_use: &[usize]| {
        plan(model, &measures, &request(must_use)).unwrap_err()
    };
    let whole = refused(&model, &[1]).to_string();
    assert!(whole.contains("cannot be divided"), "{whole}");
    let alone = plan(&model, &measures, &request(&[])).unwrap();
    assert!(alone.is_alone() && alone.idle.len() == 2, "{alone}");
    let reasons = alone.idle.iter().map(|idle| idle.reason);
    assert!(reasons.eq([IdleReason::NotDivisible; 2]), "{alone}");
    // One cut, and the coordinator needs the part before it.
    model.layers[4].may_cut_before = true;
    assert!(plan(&model, &measures, &request(&[1])).is_ok());
    let expected = Refusal::NotDivisible {
        n_wanted: 2,
        most: 1,
    };
    assert_eq!(refused(&model, &[1, 2]), expected);
}

#[test]
fn a_wish_for_a_node_is_granted() {
    let nodes = vec![node("a", 8.0, 10.0, 0.4), node("b", 8.0, 5.0, 0.4)];
    let request = PlanRequest {
        lead: Some(0),
        must_use: vec![1],
        ..latency()
    };
    let plan = plan(&model_8b(), &all_linked(nodes, wired()), &request).unwrap();
    assert!(share(&plan, 1) >= 1);
    assert!(plan.tok_s() < plan.alone.unwrap().predicted.decode_tok_s);
}

fn covers_once(plan: &RingPlan, n_layers: usize) {
    let mut next = 0;
    for stage in &plan.stages {
        assert_eq!(stage.layers.start, next, "{:?}", plan.stages);
        next = stage.layers.end;
    }
    assert_eq!(next, n_layers);
    assert_eq!(plan.stages[0].node, plan.lead);
}

fn some_node() -> impl Strategy<Value = NodeMeasure> {
    (
        0.05..3.0f64,
        1.0..40.0f64,
        prop_oneof![Just(0.0), 0.03..3.0f64],
    )
        .prop_map(|(ram, read, disk)| {
            let mut node = node("", ram, read, disk);
            node.speed = NodeSpeed::Rates {
                read_bytes_per_s: read * 1e9,
                macs_per_s: read * 7e9,
            };
            node
        })
}

fn some_model() -> impl Strategy<Value = ModelSizes> {
    let layer = (
        1_000_000..200_000_000u64,
        1..=4u64,
        any::<bool>(),
        proptest::option::of(64..2048u64),
    );
    proptest::collection::vec(layer, 1..14).prop_map(|layers| {
        let mut model = model(layers.len(), 50_000_000, 2048);
        for (size, (bytes, routed, may_cut, window)) in model.layers.iter_mut().zip(layers) {
            size.weight_bytes = bytes;
            size.row_bytes = bytes / routed;
            size.macs = 2 * bytes / routed;
            size.may_cut_before = may_cut;
            size.window = window;
        }
        model
    })
}

fn some_measures() -> impl Strategy<Value = Measures> {
    let nodes = proptest::collection::vec(some_node(), 1..=4);
    let links = proptest::collection::vec(
        proptest::option::weighted(0.9, (50..30_000u64, 1e6..1e9f64)),
        6,
    );
    (nodes, links).prop_map(|(mut nodes, links)| {
        for (i, node) in nodes.iter_mut().enumerate() {
            node.name = format!("n{i}");
        }
        let mut measures = all_linked(nodes, wired());
        let pairs: Vec<_> = measures.links.keys().copied().collect();
        for (pair, measured) in pairs.into_iter().zip(links) {
            match measured {
                Some((rtt, rate)) => measures.links.insert(pair, link(rtt, rate)),
                None => measures.links.remove(&pair),
            };
        }
        measures
    })
}

fn some_request() -> impl Strategy<Value = PlanRequest> {
    let objective = prop_oneof![
        Just(Objective::Latency),
        Just(Objective::Prompt),
        Just(Objective::Users)
    ];
    (objective, 128..8192u64, 1..20u64, 1..3000u64, 1..300u64).prop_map(
        |(objective, n_ctx, n_seqs, n_prompt, n_batch)| PlanRequest {
            max_rounds: 4,
            wire: Dtype::F32,
            objective,
            n_ctx,
            n_seqs,
            n_shared: n_seqs.is_multiple_of(2).then_some(n_ctx),
            n_past: n_ctx / 2,
            n_prompt,
            n_batch,
            lead_link_bytes: 1000,
            stage_link_bytes: 500,
            lead: None,
            must_use: Vec::new(),
        },
    )
}

/// The same measures without a node; the others keep their order.
fn without(measures: &Measures, gone: usize) -> Measures {
    let mut fewer = measures.clone();
    fewer.nodes.remove(gone);
    let renamed = |node: usize| node - usize::from(node > gone);
    let links = measures
        .links
        .iter()
        .filter(|((a, b), _)| *a != gone && *b != gone);
    fewer.links = links
        .map(|((a, b), link)| ((renamed(*a), renamed(*b)), *link))
        .collect();
    fewer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_plan_keeps_its_bounds(
        model in some_model(), measures in some_measures(), request in some_request(),
    ) {
        let Ok(plan) = plan(&model, &measures, &request) else {
            return Ok(());
        };
        covers_once(&plan, model.layers.len());
        let mut held = 0;
        for load in &plan.loads {
            prop_assert!(load.ram_bytes <= measures.nodes[load.node].ram_bytes);
            let streams = measures.nodes[load.node].disk_bytes_per_s > 0.0;
            prop_assert!(load.streamed_bytes == 0 || streams);
            held += load.resident_bytes + load.streamed_bytes;
        }
        let all: u64 = model.layers.iter().map(|layer| layer.weight_bytes).sum();
        prop_assert_eq!(held, all + model.embed_bytes + model.head_bytes);
        for stage in &plan.stages {
            let first = stage.layers.start;
            let layer = model.layers.get(first).filter(|_| first > 0);
            prop_assert!(layer.is_none_or(|layer| layer.may_cut_before));
        }
        for pair in plan.stages.windows(2).filter(|pair| pair[0].node != pair[1].node) {
            prop_assert!(measures.link(pair[0].node, pair[1].node).is_some());
        }
        prop_assert_eq!(&plan, &super::plan(&model, &measures, &request).unwrap());
    }

    #[test]
    fn no_ring_is_slower_than_without_a_node_it_keeps(
        model in some_model(), measures in some_measures(), request in some_request(),
    ) {
        let Ok(plan) = plan(&model, &measures, &request) else {
            return Ok(());
        };
        let kept: Vec<usize> = plan.loads.iter().map(|load| load.node).collect();
        let mut ring = measures.clone();
        for gone in (0..measures.nodes.len()).rev().filter(|node| !kept.contains(node)) {
            ring = without(&ring, gone);
        }
        for gone in 0..kept.len().min(ring.nodes.len()) {
            if let Ok(fewer) = super::plan(&model, &without(&ring, gone), &request) {
                prop_assert!(fewer.tok_s() <= plan.tok_s() * (1.0 + 1e-9), "{} {}", fewer, plan);
            }
        }
    }
}

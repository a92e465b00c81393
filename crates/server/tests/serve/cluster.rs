//! A ring of machines as `/api/cluster`, `/metrics` and the page show it.

use std::sync::Arc;

use atta_server::{
    ClusterEvent, ClusterMonitor, LinkStatus, NodeState, NodeStatus, NodeTotals, RingSpeed,
    RingState, RingStatus, ServerOptions,
};
use serde_json::{Value, json};

use crate::running::{Running, options};

/// A monitor that always says the same.
#[derive(Debug)]
struct Always(RingStatus);

impl ClusterMonitor for Always {
    fn status(&self) -> RingStatus {
        self.0.clone()
    }
}

/// A coordinator without numbers, and a node with all of them.
fn ring() -> RingStatus {
    let lap = NodeStatus {
        node: "lap".to_owned(),
        address: None,
        state: NodeState::Coordinator,
        why: None,
        first_layer: 0,
        end_layer: 0,
        share: 0.0,
        memory_bytes: None,
        memory_held_bytes: None,
        memory_free_bytes: None,
        compute_us: None,
        layer_us: None,
        bytes_out: None,
        totals: None,
        link: None,
        celsius: None,
        is_throttled: None,
        heard_s: Some(0),
    };
    let pi1 = NodeStatus {
        node: "pi1".to_owned(),
        address: Some("10.0.0.2:9990".to_owned()),
        state: NodeState::Ready,
        end_layer: 5,
        share: 1.0,
        memory_held_bytes: Some(7000),
        layer_us: Some(1500.0),
        totals: Some(NodeTotals {
            n_batches: 6,
            n_rows: 44,
            compute_s: 0.25,
            bytes_out: 900,
        }),
        link: Some(LinkStatus {
            to: "lap".to_owned(),
            rtt_p50_us: 210.0,
            rtt_p90_us: 350.0,
            bytes_per_s: 1e8,
        }),
        celsius: Some(51.5),
        is_throttled: Some(true),
        ..lap.clone()
    };
    RingStatus {
        state: RingState::Open,
        coordinator: "lap".to_owned(),
        model: "<b>stories</b>.gguf".to_owned(),
        n_layers: 5,
        epoch: 3,
        n_fences: 3,
        n_rebuilds: 1,
        n_batches: 6,
        n_rows: 44,
        audit: None,
        expected: RingSpeed {
            decode_tok_s: Some(20.5),
            users_tok_s: None,
        },
        measured: RingSpeed::default(),
        lap_us: None,
        hops_us: None,
        nodes: vec![lap, pi1],
        events: vec![ClusterEvent {
            node: "lap".to_owned(),
            ago_s: 3,
            event: "the ring opens: pi1".to_owned(),
        }],
    }
}

fn with_ring() -> Running {
    Running::start(ServerOptions {
        cluster: Some(Arc::new(Always(ring()))),
        ..options()
    })
}

/// The body of an answer with status 200.
fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    body
}

#[test]
fn a_ring_is_told_in_the_order_of_its_machines_and_what_is_not_known_is_null() {
    let server = with_ring();
    let answer = server.ask("/api/cluster", "");
    let told: Value = serde_json::from_str(body(&answer)).unwrap();
    let ring = &told["ring"];
    assert_eq!(ring["state"], "open");
    assert_eq!(ring["model"], "<b>stories</b>.gguf");
    assert_eq!(ring["lap_us"], Value::Null);
    assert_eq!(ring["audit"], Value::Null);
    assert_eq!(ring["expected"]["decode_tok_s"], 20.5);
    assert_eq!(ring["nodes"][0]["state"], "coordinator");
    assert_eq!(ring["nodes"][0]["memory_bytes"], Value::Null);
    let pi1 = &ring["nodes"][1];
    assert_eq!(pi1["address"], "10.0.0.2:9990");
    assert_eq!(
        (&pi1["first_layer"], &pi1["end_layer"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(pi1["link"]["rtt_p50_us"], 210.0);
    assert_eq!(ring["events"][0]["event"], "the ring opens: pi1");
    server.stop();
}

#[test]
fn without_a_ring_it_is_null_and_has_no_metrics() {
    let server = Running::start(options());
    let answer = server.ask("/api/cluster", "");
    assert_eq!(body(&answer), r#"{"ring":null}"#);
    let metrics = server.ask("/metrics", "");
    assert!(!metrics.contains("atta_ring"), "{metrics}");
    server.stop();
}

#[test]
fn metrics_of_machines_have_their_names_and_those_that_are_not_known_are_left_out() {
    let server = with_ring();
    let text = server.ask("/metrics", "");
    for line in [
        "# TYPE atta_ring_up gauge",
        "atta_ring_up 1",
        "atta_ring_nodes 2",
        "atta_ring_epoch 3",
        "# TYPE atta_ring_rebuilds_total counter",
        "atta_ring_rebuilds_total 1",
        "atta_ring_decode_tokens_per_second_expected 20.5",
        "atta_ring_node_up{node=\"lap\"} 1",
        "atta_ring_node_up{node=\"pi1\"} 1",
        "atta_ring_node_layers{node=\"lap\"} 0",
        "atta_ring_node_layers{node=\"pi1\"} 5",
        "atta_ring_node_layer_seconds{node=\"pi1\"} 0.0015",
        "atta_ring_node_rows_total{node=\"pi1\"} 44",
        "atta_ring_node_throttled{node=\"pi1\"} 1",
        "atta_ring_link_rtt_seconds{node=\"pi1\"} 0.00021",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    for name in [
        "atta_ring_lap_seconds",
        "atta_ring_node_rows_total{node=\"lap\"}",
        "atta_ring_node_memory_free_bytes",
    ] {
        assert!(!text.contains(name), "{name}: {text}");
    }
    let types = text
        .lines()
        .filter(|line| line.starts_with("# TYPE atta_ring_node_up"));
    assert_eq!(types.count(), 1, "{text}");
    server.stop();
}

#[test]
fn the_ring_needs_the_key_and_its_page_none() {
    let server = Running::start(ServerOptions {
        cluster: Some(Arc::new(Always(ring()))),
        api_keys: vec!["open sesame".to_owned()],
        ..options()
    });
    assert!(server.ask("/api/cluster", "").starts_with("HTTP/1.1 401"));
    for path in ["/cluster", "/cluster/", "/cluster.js", "/cluster.css"] {
        let answer = server.ask(path, "");
        let page = body(&answer);
        assert!(
            answer.contains("content-security-policy: default-src 'self'"),
            "{answer}"
        );
        assert!(!page.contains("pi1"), "{path}");
    }
    server.stop();
}

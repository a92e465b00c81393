//! Models in part: without some layers, with fewer experts.

mod support;

use atta_model::{Error, Executor, KvType, Share};
use support::{append, bits, cpu, encoders, golden, goldens, nmse, some_goldens};

#[test]
fn without_any_layer_the_forward_pass_agrees_with_the_oracle() {
    for g in some_goldens() {
        let whole = g.model();
        let all = bits(&g.by_forward(&whole));
        for l in 0..whole.spec().layers.len() {
            let mut spec = whole.spec().clone();
            if spec.leave_out(&[l]).is_err() {
                continue;
            }
            let model = g.with_spec(spec).unwrap();
            let got = g.by_forward(&model);
            let nmse = nmse(&got, &g.by_oracle(&model));
            assert!(nmse <= 1e-10, "{} without layer {l}: nmse {nmse:e}", g.name);
            assert!(bits(&got) != all, "{}: layer {l} is there", g.name);
        }
    }
}

#[test]
fn a_layer_whose_keys_and_values_others_read_stays() {
    let model = golden("gemma3n").model();
    let mut layers = 0..model.spec().layers.len();
    assert!(layers.any(|l| model.spec().check_omission(l).is_err()));
}

/// The number of a layer in a file without layer `without`; `None`: it is that one.
fn renumbered(name: &str, without: usize) -> Option<String> {
    let Some((l, rest)) = name.strip_prefix("blk.").and_then(|n| n.split_once('.')) else {
        return Some(name.to_owned());
    };
    let l: usize = l.parse().unwrap();
    (l != without).then(|| format!("blk.{}.{rest}", l - usize::from(l > without)))
}

#[test]
fn a_model_without_a_layer_is_that_of_a_file_without_it() {
    for name in [
        "llama-plain",
        "gpt2",
        "phi2",
        "qwen2",
        "starcoder2",
        "mamba",
    ] {
        let g = golden(name);
        let whole = g.model();
        let n_layers = whole.spec().layers.len();
        let key = format!("{}.block_count", g.arch);
        for l in 0..n_layers {
            let mut spec = whole.spec().clone();
            spec.leave_out(&[l]).unwrap();
            let files = g.altered(
                |w| w.set_u32(&key, n_layers as u32 - 1),
                |t| Some((renumbered(&t.name, l)?, t.shape.dims().to_vec())),
            );
            let shorter = support::load(files);
            let got = g.by_forward(&g.with_spec(spec).unwrap());
            assert!(
                bits(&got) == bits(&g.by_forward(&shorter)),
                "{name} without layer {l}"
            );
        }
    }
}

#[test]
fn threads_and_chunks_do_not_change_a_bit_of_a_model_without_a_layer() {
    for name in ["gemma3", "jamba", "gemma4-moe", "qwen35"] {
        let g = golden(name);
        let mut spec = g.model().spec().clone();
        spec.leave_out(&[1]).unwrap();
        let model = g.with_spec(spec).unwrap();
        let run = |n_threads, n_batch| {
            let mut cpu = cpu(&model, n_threads, KvType::F16);
            let seq = cpu.new_seq().unwrap();
            bits(&append(&mut cpu, seq, &g.tokens, n_batch))
        };
        let expected = run(1, g.tokens.len());
        for (n_threads, n_batch) in [(1, 1), (2, 7), (3, 13)] {
            assert!(run(n_threads, n_batch) == expected, "{name}: {n_threads}");
        }
    }
}

#[test]
fn a_layer_that_is_left_out_is_not_read_and_keeps_no_state() {
    for g in goldens() {
        let whole = g.model();
        let mut spec = whole.spec().clone();
        let Some(l) = (0..spec.layers.len()).find(|&l| spec.check_omission(l).is_ok()) else {
            continue;
        };
        spec.leave_out(&[l]).unwrap();
        let files = g.files();
        let read = Share::whole(&spec);
        let read = read.tensors(&spec, files.directory()).unwrap();
        let prefix = format!("blk.{l}.");
        assert!(
            read.iter().all(|t| !t.name.starts_with(&prefix)),
            "{}",
            g.name
        );
        assert_eq!(spec.state_bytes(KvType::F16, 32)[l], 0, "{}", g.name);
        assert_eq!(spec.layers[l].state_kinds().count(), 0, "{}", g.name);
    }
}

#[test]
fn layers_that_others_read_and_those_of_encoders_stay() {
    let g = golden("gemma4");
    let mut spec = g.model().spec().clone();
    let (user, source) = spec
        .layers
        .iter()
        .enumerate()
        .find_map(|(l, layer)| Some((l, layer.attention()?.kv_layer()?)))
        .unwrap();
    let whole = spec.clone();
    let error = spec.leave_out(&[user, source]).unwrap_err().to_string();
    let start = format!("layer {source} cannot be left out: layer ");
    assert!(
        error.starts_with(&start) && error.ends_with("reads its keys and values"),
        "{error}"
    );
    assert_eq!(spec, whole, "nothing changes where one is refused");
    let n = spec.layers.len();
    assert!(matches!(spec.leave_out(&[n]), Err(Error::Needed { layer, .. }) if layer == n));
    let encoder = encoders().swap_remove(0);
    let error = encoder.model().spec().check_omission(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 0 cannot be left out: the model is an encoder"
    );
}

#[test]
fn with_fewer_experts_the_forward_pass_agrees_with_the_oracle() {
    let mut n_models = 0;
    for g in some_goldens() {
        let whole = g.model();
        let (_, most) = whole.spec().max_experts();
        for n in 1..most {
            let mut spec = whole.spec().clone();
            spec.use_experts(n).unwrap();
            let model = g.with_spec(spec).unwrap();
            let got = g.by_forward(&model);
            let nmse = nmse(&got, &g.by_oracle(&model));
            assert!(nmse <= 1e-10, "{} with {n} experts: nmse {nmse:e}", g.name);
            assert!(bits(&got) != bits(&g.by_forward(&whole)), "{}: {n}", g.name);
        }
        n_models += usize::from(most > 1);
    }
    assert!(n_models > 5, "{n_models}");
}

#[test]
fn as_many_experts_as_the_model_uses_change_nothing_and_others_are_refused() {
    let mut spec = golden("mixtral").model().spec().clone();
    let whole = spec.clone();
    spec.use_experts(2).unwrap();
    assert_eq!(spec, whole);
    for n in [0, 3] {
        let error = spec.use_experts(n).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("the number of experts is {n}, expected 1 to 2")
        );
    }
    let mut dense = golden("llama-plain").model().spec().clone();
    assert_eq!(
        dense.use_experts(1).unwrap_err().to_string(),
        "the number of experts is 1, but the model has no experts"
    );
}

//! Bytes and multiplications of the parts of a model, and the places where it may be cut.

mod support;

use atta_model::{MatmulCost, Model, ModelCost, PartCost, Share};
use support::goldens_and_encoders;

fn cost_of(model: &Model) -> ModelCost {
    ModelCost::of(model.spec(), model.weights().files().directory()).unwrap()
}

fn all(cost: &ModelCost) -> impl Iterator<Item = &PartCost> {
    let others = [&cost.embed, &cost.tables, &cost.head, &cost.shared];
    cost.layers.iter().chain(others)
}

#[test]
fn the_parts_of_every_golden_are_all_of_its_tensors() {
    for g in goldens_and_encoders() {
        let model = g.model();
        let cost = cost_of(&model);
        let directory = model.weights().files().directory();
        let tensors = Share::whole(model.spec()).tensors(model.spec(), directory);
        let expected: u64 = tensors.unwrap().iter().map(|tensor| tensor.n_bytes).sum();
        let found: u64 = all(&cost).map(|part| part.bytes).sum();
        assert_eq!(found, expected, "{}", g.name);
    }
}

#[test]
fn the_work_of_a_row_is_that_of_the_bound_matrices() {
    for g in goldens_and_encoders() {
        let model = g.model();
        let cost = cost_of(&model);
        let MatmulCost { bytes, macs } = model.matmul_cost();
        let found: u64 = all(&cost).map(|part| part.macs).sum();
        assert_eq!(found, macs, "{}: multiplications", g.name);
        // Vectors are read, too; a head that is the embedding is counted there.
        let read: u64 = all(&cost).map(|part| part.row_bytes).sum();
        assert!(read + cost.embed.bytes >= bytes, "{}: {read}", g.name);
    }
}

#[test]
fn a_row_reads_all_of_a_layer_but_the_experts_that_it_does_not_go_to() {
    let mut n_with_experts = 0;
    for g in goldens_and_encoders() {
        let model = g.model();
        let spec = model.spec();
        for (layer, part) in spec.layers.iter().zip(&cost_of(&model).layers) {
            let is_sparse = layer.moe().is_some_and(|moe| moe.n_used < moe.n_experts);
            n_with_experts += usize::from(is_sparse);
            assert_eq!(part.row_bytes < part.bytes, is_sparse, "{}", g.name);
        }
    }
    assert!(n_with_experts > 0);
}

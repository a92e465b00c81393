//! A small file with layers, experts and tables, read in every way, against the bytes that are in
//! it.

use std::{fs, path::PathBuf, sync::atomic::AtomicUsize};

use super::*;
use crate::{Extent, InMemory, Stage, Stages};

/// Bytes of the file before its tables.
const BASE: u64 = 4242;

/// A file of its own for each test, which goes when the test ends.
struct Model {
    path: PathBuf,
    plan: Plan,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Model {
    /// Three layers, the second with six experts, and bytes that depend on where they are.
    fn new() -> Self {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "atta-store-{}-{}.gguf",
            std::process::id(),
            NAMES.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        let mut end = BASE;
        let mut table = |n_rows: u64, row_bytes: u64| {
            let extent = Extent {
                shard: 0,
                offset: end,
                bytes: n_rows * row_bytes,
            };
            end += extent.bytes + 7;
            RowTable { extent, row_bytes }
        };
        let mut layer = |has_experts: bool| -> Stages {
            let mixer = vec![table(256, 100), table(64, 100), table(64, 130)];
            let router = if has_experts {
                vec![table(6, 64)]
            } else {
                vec![]
            };
            [
                mixer,
                vec![table(200, 90)],
                router,
                vec![table(300, 100), table(300, 100)],
                vec![table(100, 300)],
            ]
        };
        let layers = vec![layer(false), layer(true), layer(false)];
        let experts = vec![
            vec![],
            vec![table(6, 5000), table(6, 777), table(6, 4096)],
            vec![],
        ];
        let (embed, head) = (Some(table(500, 80)), Some(table(500, 120)));
        let mut bytes = atta_formats::Writer::new().finish().unwrap().header;
        bytes.extend((bytes.len() as u64..end).map(|i| ((i * 2_654_435_761) >> 13) as u8));
        fs::write(&path, bytes).unwrap();
        Self {
            path,
            plan: Plan {
                layers,
                experts,
                embed,
                head,
            },
        }
    }

    fn files(&self) -> ModelFiles {
        ModelFiles::open(&self.path).unwrap()
    }

    fn mapped(&self) -> InMemory {
        InMemory::new(self.files(), self.plan.clone()).unwrap()
    }

    fn streamed(&self, holding: &Holding) -> Streamed {
        let budget = Budget::unlimited();
        Streamed::new(
            self.files().unmapped(&budget).unwrap(),
            self.plan.clone(),
            holding,
            &budget,
        )
        .unwrap()
    }
}

fn holding(piece_bytes: usize, pinned_bytes: u64, n_slots: usize, n_experts: usize) -> Holding {
    Holding {
        piece_bytes: Some(piece_bytes),
        pinned_bytes,
        n_slots,
        n_experts,
        method: None,
    }
}

/// Everything that a step asks for, in order.
fn units(wants_head: bool) -> Vec<Unit<'static>> {
    let embed = Unit::EmbedRows(&[7, 0, 499, 7]);
    let stages = |l| {
        let experts = if l == 1 {
            vec![Unit::Experts(1, &[5, 2]), Unit::Experts(1, &[0])]
        } else {
            vec![]
        };
        let has = move |stage: &Stage| l == 1 || *stage != Stage::Router;
        Stage::ALL
            .into_iter()
            .filter(has)
            .map(move |stage| Unit::Stage(l, stage))
            .chain(experts)
    };
    let head = wants_head.then_some(Unit::Head);
    [embed]
        .into_iter()
        .chain((0..3).flat_map(stages))
        .chain(head)
        .collect()
}

/// The bytes of each part of a unit, put together from its pieces.
fn read(weights: &dyn Weights, unit: Unit<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let n_parts = match unit {
        Unit::Stage(_, Stage::MixerIn) => 3,
        Unit::Stage(_, Stage::FfnIn) => 2,
        Unit::Stage(..) | Unit::Head => 1,
        Unit::Experts(_, ids) => 3 * ids.len(),
        Unit::EmbedRows(ids) => ids.len(),
    };
    let mut parts = vec![Vec::new(); n_parts];
    for i in 0..weights.n_pieces(unit) {
        let piece = weights.piece(unit, i)?;
        for (k, part) in parts.iter_mut().enumerate() {
            part.extend_from_slice(piece.part(k).bytes);
        }
    }
    Ok(parts)
}

fn step(weights: &dyn Weights, wants_head: bool) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    weights.begin(&Sweep {
        layers: 0..3,
        wants_head,
    })?;
    units(wants_head)
        .into_iter()
        .map(|unit| read(weights, unit))
        .collect()
}

#[test]
fn step_after_step_everything_is_what_is_in_the_file() {
    let model = Model::new();
    let mapped = model.mapped();
    let all = [
        Holding::whole(),
        holding(1, 0, 2, 2),
        holding(9000, 0, 1, 2),
        holding(9000, 60_000, 2, 3),
        holding(30_000, 150_000, 4, 6),
        holding(1 << 20, 0, 8, 6),
    ];
    for holding in all {
        let streamed = model.streamed(&holding);
        for wants_head in [true, true, false, false, true, false, true] {
            assert!(
                step(&streamed, wants_head).unwrap() == step(&mapped, wants_head).unwrap(),
                "{holding:?}"
            );
        }
    }
}

#[test]
fn who_asks_in_another_order_gets_the_same_only_later() {
    let model = Model::new();
    let (mapped, streamed) = (model.mapped(), model.streamed(&holding(9000, 60_000, 3, 2)));
    step(&streamed, true).unwrap();
    let mut all = units(true);
    all.reverse();
    for unit in all.iter().chain(units(false).iter().step_by(3)) {
        assert!(
            read(&streamed, *unit).unwrap() == read(&mapped, *unit).unwrap(),
            "{unit:?}"
        );
    }
    streamed
        .begin(&Sweep {
            layers: 1..2,
            wants_head: false,
        })
        .unwrap();
    let unit = Unit::Stage(1, Stage::FfnIn);
    assert!(read(&streamed, unit).unwrap() == read(&mapped, unit).unwrap());
    assert!(step(&streamed, true).unwrap() == step(&mapped, true).unwrap());
}

#[test]
fn a_sweep_reads_what_is_not_pinned_and_only_that() {
    let model = Model::new();
    let streamed = model.streamed(&holding(9000, 60_000, 2, 6));
    step(&streamed, true).unwrap();
    // What is read ahead of the next sweep is a few slots.
    let (before, n) = (streamed.io(), 5);
    (0..n).for_each(|_| drop(step(&streamed, true).unwrap()));
    let read = (streamed.io().read_bytes - before.read_bytes) as f64 / n as f64;
    let sweep = before.sweep_bytes as f64;
    assert!(
        read > 0.5 * sweep && read <= 1.01 * sweep + 1000.0,
        "{read} of {sweep}"
    );
    assert!(before.pinned_bytes <= 60_000 && before.pinned_bytes > 40_000);
    assert!(before.rate > 0.0);
    assert_eq!(model.streamed(&Holding::whole()).io().sweep_bytes, 0);
}

#[test]
fn an_expert_that_was_used_last_is_not_read_again() {
    let model = Model::new();
    let streamed = model.streamed(&holding(9000, u64::MAX, 2, 3));
    let read_bytes = |ids: &'static [u32]| {
        let before = streamed.io().read_bytes;
        drop(streamed.piece(Unit::Experts(1, ids), 0).unwrap());
        streamed.io().read_bytes - before
    };
    assert!(read_bytes(&[4]) > 0 && read_bytes(&[1]) > 0 && read_bytes(&[3]) > 0);
    assert_eq!(read_bytes(&[1, 4]), 0);
    // The place of 3, which was not used for the longest time, goes to 0.
    assert!(read_bytes(&[0]) > 0);
    assert_eq!(read_bytes(&[0, 1, 4]), 0);
    assert!(read_bytes(&[3]) > 0);
    assert!(matches!(
        streamed.piece(Unit::Experts(1, &[0, 1, 2, 3]), 0),
        Err(Error::TooManyExperts {
            asked: 4,
            places: 3
        })
    ));
    assert!(matches!(
        streamed.piece(Unit::Experts(1, &[6]), 0),
        Err(Error::NoRow { row: 6, n_rows: 6 })
    ));
    assert!(matches!(
        streamed.piece(Unit::Experts(0, &[0]), 0),
        Err(Error::NotInPlan)
    ));
}

#[test]
fn a_file_that_is_truncated_or_written_to_meanwhile_is_an_error() {
    let model = Model::new();
    let streamed = model.streamed(&holding(9000, 0, 2, 2));
    step(&streamed, true).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&model.path)
        .unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len / 2).unwrap();
    let error = step(&streamed, true).unwrap_err().to_string();
    assert!(
        error.contains("truncated") && error.contains("atta-store-"),
        "{error}"
    );
    // Even if nobody looks before a step, what is not there cannot be read.
    let error = units(true)
        .into_iter()
        .find_map(|unit| read(&streamed, unit).err())
        .unwrap()
        .to_string();
    assert!(error.contains("truncated"), "{error}");
    file.set_len(len).unwrap();
    let error = step(&streamed, true).unwrap_err().to_string();
    assert!(error.contains("changed"), "{error}");
}

#[test]
fn a_plan_past_the_end_of_the_file_is_refused() {
    let mut model = Model::new();
    model.plan.head.as_mut().unwrap().extent.bytes += 20;
    let files = model.files();
    let refused = Streamed::new(
        files,
        model.plan.clone(),
        &Holding::whole(),
        &Budget::unlimited(),
    );
    assert!(matches!(refused.err().unwrap(), Error::OutOfFile { .. }));
}

#[test]
fn what_a_holding_takes_is_known_before() {
    let model = Model::new();
    for holding in [
        Holding::whole(),
        holding(9000, 60_000, 3, 2),
        holding(20_000, 0, 2, 100),
    ] {
        let (sizes, budget) = (Sizes::of(&model.plan, &holding), Budget::unlimited());
        let files = model.files();
        let _streamed = Streamed::new(files, model.plan.clone(), &holding, &budget).unwrap();
        assert_eq!(sizes.memory(), budget.used());
    }
    let none = Sizes::of(&Plan::default(), &Holding::whole());
    assert_eq!((none.memory(), none.read_per_sweep), (0, 0));
}

#[test]
fn bytes_of_the_program_are_read_like_a_file() {
    let model = Model::new();
    let bytes: &'static [u8] = fs::read(&model.path).unwrap().leak();
    let files = ModelFiles::from_static("built in", bytes)
        .unwrap()
        .unmapped(&Budget::unlimited())
        .unwrap();
    let holding = holding(9000, 60_000, 2, 2);
    let streamed =
        Streamed::new(files, model.plan.clone(), &holding, &Budget::unlimited()).unwrap();
    assert!(step(&streamed, true).unwrap() == step(&model.mapped(), true).unwrap());
    assert_eq!(streamed.method(), None);
}

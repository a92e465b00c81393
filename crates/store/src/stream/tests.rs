//! A small file with layers, experts and tables, read under every policy, against the bytes that
//! are in it.

use std::{fs, io, path::PathBuf, sync::atomic::AtomicUsize};

use super::*;
use crate::{Extent, InMemory, LayerTables, ModelSource, Projection, ReadAt};

/// Bytes of the file before its tables.
const BASE: u64 = 4242;

/// A file of its own for each test, which goes when the test ends.
struct TestModel {
    path: PathBuf,
    plan: Plan,
}

impl Drop for TestModel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl TestModel {
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
            RowTable::contiguous(extent, row_bytes)
        };
        let mut layer = |has_experts: bool| -> LayerTables {
            Projection::ALL.map(|projection| match projection {
                Projection::Qkv => vec![table(256, 100), table(64, 100), table(64, 130)],
                Projection::GateUp => vec![table(300, 100), table(300, 100)],
                Projection::Down => vec![table(100, 300)],
                Projection::AttnOut => vec![table(200, 90)],
                Projection::Router if !has_experts => vec![],
                Projection::Router => vec![table(6, 64)],
                // Sizes that differ.
                other => vec![table(4 + other as u64, 40 + 20 * other as u64)],
            })
        };
        let layers = vec![layer(false), layer(true), layer(false)];
        let experts = vec![
            vec![],
            vec![table(6, 5000), table(6, 777), table(6, 4096)],
            vec![],
        ];
        let embed = Some(table(500, 80));
        let layer_embed = Some(table(500, 700));
        let head = Some(table(500, 120));
        let mut bytes = atta_formats::Writer::new().finish().unwrap().header;
        bytes.extend((bytes.len() as u64..end).map(|i| ((i * 2_654_435_761) >> 13) as u8));
        fs::write(&path, bytes).unwrap();
        Self {
            path,
            plan: Plan {
                layers,
                experts,
                embed,
                layer_embed,
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

    fn streamed(&self, policy: &ResidencyPolicy) -> Streamed {
        let budget = Budget::unlimited();
        Streamed::new(
            self.files().unmapped(&budget).unwrap(),
            self.plan.clone(),
            policy,
            &budget,
        )
        .unwrap()
    }
}

fn policy(
    chunk_bytes: usize,
    pinned_bytes: u64,
    n_slots: usize,
    n_experts: usize,
) -> ResidencyPolicy {
    ResidencyPolicy {
        chunk_bytes: Some(chunk_bytes),
        pinned_bytes,
        n_slots,
        n_experts,
        n_moving: 0,
        method: None,
    }
}

/// Everything that a step asks for, in order.
fn groups(wants_head: bool) -> Vec<WeightGroup<'static>> {
    let embed = WeightGroup::EmbedRows(&[7, 0, 499, 7]);
    let layer_embed = WeightGroup::LayerEmbedRows(&[3, 499, 3]);
    let groups = |l| {
        let experts = if l == 1 {
            vec![
                WeightGroup::Experts(1, &[5, 2]),
                WeightGroup::Experts(1, &[0]),
            ]
        } else {
            vec![]
        };
        let has = move |group: &Projection| l == 1 || *group != Projection::Router;
        Projection::ALL
            .into_iter()
            .filter(has)
            .map(move |group| WeightGroup::Layer(l, group))
            .chain(experts)
    };
    let head = wants_head.then_some(WeightGroup::Head);
    [embed, layer_embed]
        .into_iter()
        .chain((0..3).flat_map(groups))
        .chain(head)
        .collect()
}

/// The bytes of each tensor of a group, joined from its chunks.
fn read(weights: &dyn Weights, group: WeightGroup<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let n_tensors = match group {
        WeightGroup::Layer(_, Projection::Qkv) => 3,
        WeightGroup::Layer(_, Projection::GateUp) => 2,
        WeightGroup::Layer(..) | WeightGroup::Head => 1,
        WeightGroup::Experts(_, ids) => 3 * ids.len(),
        WeightGroup::EmbedRows(ids) | WeightGroup::LayerEmbedRows(ids) => ids.len(),
    };
    let mut tensors = vec![Vec::new(); n_tensors];
    for i in 0..weights.n_chunks(group) {
        let chunk = weights.chunk(group, i)?;
        for (k, tensor) in tensors.iter_mut().enumerate() {
            tensor.extend_from_slice(chunk.tensor(k).bytes);
        }
    }
    Ok(tensors)
}

fn step(weights: &dyn Weights, wants_head: bool) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    weights.begin(&WeightPass {
        layers: 0..3,
        wants_head,
    })?;
    groups(wants_head)
        .into_iter()
        .map(|group| read(weights, group))
        .collect()
}

#[test]
fn step_after_step_all_bytes_are_those_of_the_file() {
    let model = TestModel::new();
    let mapped = model.mapped();
    let all = [
        ResidencyPolicy::whole(),
        policy(1, 0, 2, 2),
        policy(9000, 0, 1, 2),
        policy(9000, 60_000, 2, 3),
        policy(30_000, 150_000, 4, 6),
        policy(1 << 20, 0, 8, 6),
    ];
    for policy in all {
        let streamed = model.streamed(&policy);
        for wants_head in [true, true, false, false, true, false, true] {
            assert!(
                step(&streamed, wants_head).unwrap() == step(&mapped, wants_head).unwrap(),
                "{policy:?}"
            );
        }
    }
}

#[test]
fn groups_in_another_order_have_the_same_bytes() {
    let model = TestModel::new();
    let mapped = model.mapped();
    let streamed = model.streamed(&policy(9000, 60_000, 3, 2));
    step(&streamed, true).unwrap();
    let mut all = groups(true);
    all.reverse();
    for group in all.iter().chain(groups(false).iter().step_by(3)) {
        assert!(
            read(&streamed, *group).unwrap() == read(&mapped, *group).unwrap(),
            "{group:?}"
        );
    }
    streamed
        .begin(&WeightPass {
            layers: 1..2,
            wants_head: false,
        })
        .unwrap();
    let group = WeightGroup::Layer(1, Projection::GateUp);
    assert!(read(&streamed, group).unwrap() == read(&mapped, group).unwrap());
    assert!(step(&streamed, true).unwrap() == step(&mapped, true).unwrap());
}

#[test]
fn a_pass_reads_what_is_not_pinned_and_only_that() {
    let model = TestModel::new();
    let streamed = model.streamed(&policy(9000, 60_000, 2, 6));
    step(&streamed, true).unwrap();
    // A few slots hold chunks of the next pass.
    let n = 5;
    let before = streamed.io();
    (0..n).for_each(|_| drop(step(&streamed, true).unwrap()));
    let read = (streamed.io().read_bytes - before.read_bytes) as f64 / n as f64;
    let pass = before.pass_bytes as f64;
    assert!(
        read > 0.5 * pass && read <= 1.01 * pass + 1000.0,
        "{read} of {pass}"
    );
    assert!(before.pinned_bytes <= 60_000 && before.pinned_bytes > 40_000);
    assert!(before.rate > 0.0);
    assert_eq!(model.streamed(&ResidencyPolicy::whole()).io().pass_bytes, 0);
}

#[test]
fn of_the_embedding_of_every_layer_only_rows_are_read_and_none_is_resident() {
    let model = TestModel::new();
    let embed_bytes = model.plan.layer_embed.unwrap().extent.bytes;
    let whole = model.streamed(&ResidencyPolicy::whole());
    let all: u64 = model.plan.tables().map(|table| table.extent.bytes).sum();
    assert!(whole.io().pinned_bytes < all);
    assert!(all - embed_bytes <= whole.io().pinned_bytes + whole.io().expert_bytes);
    for streamed in [whole, model.streamed(&policy(9000, 60_000, 2, 6))] {
        let before = streamed.io().read_bytes;
        read(&streamed, WeightGroup::LayerEmbedRows(&[3, 499])).unwrap();
        assert_eq!(streamed.io().read_bytes - before, 1400);
    }
    let cut = |embed| model.plan.clone().restrict(1..3, embed, true);
    assert_eq!(cut(true).layer_embed, model.plan.layer_embed);
    assert_eq!(cut(false).layer_embed, None);
}

#[test]
fn an_expert_that_was_used_last_is_not_read_again() {
    let model = TestModel::new();
    let streamed = model.streamed(&policy(9000, u64::MAX, 2, 3));
    let read_bytes = |ids: &'static [u32]| {
        let before = streamed.io().read_bytes;
        drop(streamed.chunk(WeightGroup::Experts(1, ids), 0).unwrap());
        streamed.io().read_bytes - before
    };
    assert!(read_bytes(&[4]) > 0 && read_bytes(&[1]) > 0 && read_bytes(&[3]) > 0);
    assert_eq!(read_bytes(&[1, 4]), 0);
    // 0 evicts 3, the least recently used one.
    assert!(read_bytes(&[0]) > 0);
    assert_eq!(read_bytes(&[0, 1, 4]), 0);
    assert!(read_bytes(&[3]) > 0);
    assert!(matches!(
        streamed.chunk(WeightGroup::Experts(1, &[0, 1, 2, 3]), 0),
        Err(Error::TooManyExperts {
            asked: 4,
            places: 3
        })
    ));
    assert!(matches!(
        streamed.chunk(WeightGroup::Experts(1, &[6]), 0),
        Err(Error::NoRow { row: 6, n_rows: 6 })
    ));
    assert!(matches!(
        streamed.chunk(WeightGroup::Experts(0, &[0]), 0),
        Err(Error::NotInPlan)
    ));
}

#[test]
fn a_file_that_is_truncated_or_written_to_meanwhile_is_an_error() {
    let model = TestModel::new();
    let streamed = model.streamed(&policy(9000, 0, 2, 2));
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
    // A chunk asked for without `begin` fails too.
    let error = groups(true)
        .into_iter()
        .find_map(|group| read(&streamed, group).err())
        .unwrap()
        .to_string();
    assert!(error.contains("truncated"), "{error}");
    file.set_len(len).unwrap();
    let error = step(&streamed, true).unwrap_err().to_string();
    assert!(error.contains("changed"), "{error}");
}

#[test]
fn a_plan_past_the_end_of_the_file_is_refused() {
    let mut model = TestModel::new();
    model.plan.head.as_mut().unwrap().extent.bytes += 20;
    let files = model.files();
    let refused = Streamed::new(
        files,
        model.plan.clone(),
        &ResidencyPolicy::whole(),
        &Budget::unlimited(),
    );
    assert!(matches!(refused.err().unwrap(), Error::OutOfFile { .. }));
}

#[test]
fn the_memory_of_a_policy_is_known_before() {
    let model = TestModel::new();
    for policy in [
        ResidencyPolicy::whole(),
        policy(9000, 60_000, 3, 2),
        policy(20_000, 0, 2, 100),
    ] {
        let bytes = ResidencyBytes::of(&model.plan, &policy);
        let budget = Budget::unlimited();
        let files = model.files();
        let _streamed = Streamed::new(files, model.plan.clone(), &policy, &budget).unwrap();
        assert_eq!(bytes.memory(), budget.used());
    }
    let none = ResidencyBytes::of(&Plan::default(), &ResidencyPolicy::whole());
    assert_eq!((none.memory(), none.read_per_pass), (0, 0));
}

/// Bytes that are not addressable.
struct Copied(Vec<u8>);

impl ReadAt for Copied {
    fn n_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let found = rest.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(found);
        Ok(())
    }
}

#[test]
fn bytes_of_any_source_are_read_like_a_file() {
    let model = TestModel::new();
    let source = |bytes: Vec<u8>| ModelSource {
        name: "remote".to_owned(),
        bytes: Arc::new(Copied(bytes)),
    };
    let bytes = fs::read(&model.path).unwrap();
    let budget = Budget::unlimited();
    let cut = source(bytes[..20].to_vec());
    let error = ModelFiles::from_sources(vec![cut], &budget).unwrap_err();
    assert!(error.to_string().starts_with("remote: "), "{error}");
    let error =
        ModelFiles::from_sources(vec![source(bytes.clone())], &Budget::limited(9)).unwrap_err();
    assert!(matches!(error, Error::OverBudget { .. }), "{error}");
    assert!(ModelFiles::from_sources(Vec::new(), &budget).is_err());

    let files = ModelFiles::from_sources(vec![source(bytes.clone())], &budget).unwrap();
    assert!(budget.used() > 0, "the metadata is copied");
    assert!(!files.is_addressable() && model.files().is_addressable());
    let files = files.unmapped(&budget).unwrap();
    let policy = policy(9000, 60_000, 2, 2);
    let streamed = Streamed::new(files, model.plan.clone(), &policy, &budget).unwrap();
    assert!(step(&streamed, true).unwrap() == step(&model.mapped(), true).unwrap());
}

#[test]
fn bytes_of_the_program_are_read_like_a_file() {
    let model = TestModel::new();
    let bytes: &'static [u8] = fs::read(&model.path).unwrap().leak();
    let files = ModelFiles::from_static("built in", bytes)
        .unwrap()
        .unmapped(&Budget::unlimited())
        .unwrap();
    let policy = policy(9000, 60_000, 2, 2);
    let streamed = Streamed::new(files, model.plan.clone(), &policy, &Budget::unlimited()).unwrap();
    assert!(step(&streamed, true).unwrap() == step(&model.mapped(), true).unwrap());
    assert_eq!(streamed.method(), None);
}

/// Bytes of a server; those from `n_here` on cannot be read yet.
struct Late {
    bytes: Vec<u8>,
    n_here: AtomicU64,
}

impl ReadAt for Late {
    fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset + buf.len() as u64 > self.n_here.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let start = offset as usize;
        buf.copy_from_slice(&self.bytes[start..start + buf.len()]);
        Ok(())
    }

    fn is_arriving(&self) -> bool {
        true
    }
}

/// A model on a server; all of it has arrived so far.
fn late(model: &TestModel) -> (Arc<Late>, ModelFiles) {
    let late = Arc::new(Late {
        n_here: AtomicU64::new(u64::MAX),
        bytes: fs::read(&model.path).unwrap(),
    });
    let source = ModelSource {
        name: "remote".to_owned(),
        bytes: late.clone(),
    };
    let files = ModelFiles::from_sources(vec![source], &Budget::unlimited()).unwrap();
    (late, files)
}

#[test]
fn a_resident_chunk_of_a_late_source_fails_where_it_is_used_and_is_read_again_there() {
    let model = TestModel::new();
    let (late, files) = late(&model);
    late.n_here.store(BASE, Ordering::Relaxed);
    let policy = ResidencyPolicy::whole();
    let budget = Budget::unlimited();
    let streamed = Streamed::new(files, model.plan.clone(), &policy, &budget).unwrap();
    let error = step(&streamed, true).unwrap_err();
    assert!(error.to_string().starts_with("remote: "), "{error}");
    late.n_here.store(u64::MAX, Ordering::Relaxed);
    assert!(step(&streamed, true).unwrap() == step(&model.mapped(), true).unwrap());
    assert_eq!(
        streamed.io().rate,
        0.0,
        "the rate of a network is not one of a disk"
    );
}

#[test]
fn rows_of_an_embedding_that_has_arrived_are_read_no_more() {
    let model = TestModel::new();
    let (late, files) = late(&model);
    let whole = ResidencyPolicy::whole();
    let n_bytes = ResidencyBytes::of(&model.plan, &whole).memory();
    let within = |bytes| ResidencyPolicy::within(&model.plan, 2, bytes).unwrap();
    assert!(within(n_bytes) == whole && within(n_bytes - 1) != whole);
    let budget = Budget::unlimited();
    let streamed = Streamed::new(files, model.plan.clone(), &whole, &budget).unwrap();
    let embedding = streamed.pinned.last().unwrap().as_ref().unwrap();
    while embedding.arrived_by_now(&streamed.readers).is_none() {
        std::thread::yield_now();
    }
    late.n_here.store(0, Ordering::Relaxed);
    let rows = WeightGroup::EmbedRows(&[3, 499]);
    assert!(read(&streamed, rows).unwrap() == read(&model.mapped(), rows).unwrap());
}

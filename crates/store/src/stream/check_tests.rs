//! A small file with checksums, whole and with single bits changed, read under every policy.

use std::{fs, path::PathBuf, sync::atomic::AtomicUsize};

use atta_formats::{Contents, Layout, TensorType, Writer, gguf::Checksums};
use crc32c::crc32c;

use super::*;
use crate::{DamagedPart, Extent, LayerTables, Projection};

/// Bytes of a piece: matrices are larger, an expert is smaller, and chunks cut pieces anywhere.
const PIECE_BYTES: u32 = 10_000;
const D: u64 = 32;

/// A file of its own for each test, which goes when the test ends.
struct CheckedModel {
    path: PathBuf,
    bytes: Vec<u8>,
    layout: Layout,
}

impl Drop for CheckedModel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn layout() -> Layout {
    let mut writer = Writer::new();
    writer.set_str("general.name", "checked");
    let mut add = |name, dims: &[u64]| writer.add_tensor(name, dims, TensorType::F32).unwrap();
    add("token_embd.weight", &[300, D]);
    add("blk.0.attn_norm.weight", &[D]);
    add("blk.0.attn_q.weight", &[256, D]);
    add("blk.0.ffn_up_exps.weight", &[5, 70, D]);
    add("output.weight", &[500, D]);
    writer.finish_with_checksums(PIECE_BYTES).unwrap()
}

/// The file, its checksums 0.
fn unsigned(layout: &Layout) -> Vec<u8> {
    let mut bytes = layout.header.clone();
    bytes.resize(layout.file_bytes as usize, 0);
    for t in &layout.tensors {
        for at in t.offset..t.offset + t.n_bytes {
            bytes[at as usize] = ((at * 2_654_435_761) >> 13) as u8;
        }
    }
    bytes
}

/// Puts the checksums into the file.
fn sign(layout: &Layout, bytes: &mut [u8]) {
    let header = Arc::new(layout.header.clone());
    let contents = Contents::parse(header, layout.file_bytes).unwrap();
    let checksums = Checksums::of(&contents).unwrap().unwrap();
    let pieces = checksums.pieces.of(0..layout.file_bytes);
    let sum = |range: Range<u64>| crc32c(&bytes[range.start as usize..range.end as usize]);
    let sums: Vec<u32> = pieces.map(|piece| sum(piece.bytes)).collect();
    let header = &mut bytes[..layout.header.len()];
    checksums.set_sums(header, &sums);
    let header_sum = crc32c(&checksums.without_sum(header));
    checksums.set_header_sum(header, header_sum);
}

impl CheckedModel {
    fn new() -> Self {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let n = NAMES.fetch_add(1, Ordering::Relaxed);
        let name = format!("atta-checked-{}-{n}.gguf", std::process::id());
        let layout = layout();
        let mut bytes = unsigned(&layout);
        sign(&layout, &mut bytes);
        let path = std::env::temp_dir().join(name);
        fs::write(&path, &bytes).unwrap();
        Self {
            path,
            bytes,
            layout,
        }
    }

    /// Writes the file with one bit changed.
    fn flip(&self, byte: u64, bit: u8) {
        let mut bytes = self.bytes.clone();
        bytes[byte as usize] ^= 1 << bit;
        fs::write(&self.path, bytes).unwrap();
    }

    fn extent(&self, tensor: usize) -> Extent {
        let info = &self.layout.tensors[tensor];
        Extent {
            shard: 0,
            offset: info.offset,
            bytes: info.n_bytes,
        }
    }

    fn plan(&self) -> Plan {
        let table = |i, row_bytes| RowTable::contiguous(self.extent(i), row_bytes);
        let mut layer = LayerTables::default();
        layer[Projection::Qkv as usize] = vec![table(2, 4 * D)];
        Plan {
            layers: vec![layer],
            experts: vec![vec![table(3, 70 * 4 * D)]],
            embed: Some(table(0, 4 * D)),
            head: Some(table(4, 4 * D)),
            ..Plan::default()
        }
    }

    fn files(&self) -> Result<ModelFiles, Error> {
        ModelFiles::open(&self.path)?.unmapped(&Budget::unlimited())
    }

    /// Streams everything twice; the experts last.
    fn read(&self, policy: &ResidencyPolicy) -> Result<(), Error> {
        let streamed = Streamed::new(self.files()?, self.plan(), policy, &Budget::unlimited())?;
        for _ in 0..2 {
            streamed.begin(&WeightPass {
                layers: 0..1,
                wants_head: true,
            })?;
            for group in [WeightGroup::Layer(0, Projection::Qkv), WeightGroup::Head] {
                for i in 0..streamed.n_chunks(group) {
                    streamed.chunk(group, i)?;
                }
            }
        }
        for id in 0..5 {
            streamed.chunk(WeightGroup::Experts(0, &[id]), 0)?;
        }
        Ok(())
    }
}

fn policies() -> [ResidencyPolicy; 4] {
    let policy = |chunk_bytes, pinned_bytes| ResidencyPolicy {
        chunk_bytes: Some(chunk_bytes),
        pinned_bytes,
        n_slots: 3,
        n_experts: 2,
        n_moving: 0,
        method: None,
    };
    [
        policy(3000, 0),
        policy(9000, 20_000),
        policy(64_000, 0),
        ResidencyPolicy::whole(),
    ]
}

/// The tensor, or the part of the file, and the first byte of the damage that is found.
fn damage(result: Result<(), Error>) -> (String, u64) {
    match result {
        Err(Error::Damaged(damage)) => match damage.part {
            DamagedPart::Tensor(name) => (name, damage.offset),
            part => (format!("{part:?}"), damage.offset),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn whole_files_are_read_under_every_policy() {
    let model = CheckedModel::new();
    for policy in policies() {
        model.read(&policy).unwrap();
    }
    model.files().unwrap().verify().unwrap();
}

#[test]
fn a_changed_bit_of_streamed_weights_is_found_with_its_tensor_and_piece() {
    let model = CheckedModel::new();
    for (tensor, at) in [
        (2, 5),
        (2, 15_000),
        (2, 32_767),
        (3, 9_000),
        (4, 10_000),
        (4, 63_999),
    ] {
        let info = &model.layout.tensors[tensor];
        model.flip(info.offset + at, 3);
        let matrix = if tensor == 3 {
            70 * 4 * D
        } else {
            info.n_bytes
        };
        let in_matrix = at % matrix;
        let piece = info.offset + at - in_matrix % u64::from(PIECE_BYTES);
        for policy in policies() {
            let found = damage(model.read(&policy));
            assert_eq!(found, (info.name.clone(), piece), "{at} {policy:?}");
        }
    }
}

#[test]
fn vectors_and_the_header_are_compared_too() {
    let model = CheckedModel::new();
    let norm = model.extent(1);
    model.flip(norm.offset + 100, 0);
    let files = model.files().unwrap();
    let found = damage(files.read(norm).map(drop));
    assert_eq!(found, ("blk.0.attn_norm.weight".to_owned(), norm.offset));
    let name = model.bytes.windows(7).position(|word| word == b"checked");
    model.flip(name.unwrap() as u64, 1);
    let found = damage(model.read(&ResidencyPolicy::whole()));
    assert_eq!(found, ("Header".to_owned(), 0));
}

#[test]
fn every_damage_of_a_file_is_reported_in_order() {
    let model = CheckedModel::new();
    let mut bytes = model.bytes.clone();
    let padding = model.layout.tensors[1].offset + model.layout.tensors[1].n_bytes;
    let last = bytes.len() - 4096;
    for at in [padding as usize, last] {
        bytes[at] ^= 1;
    }
    fs::write(&model.path, bytes).unwrap();
    let files = ModelFiles::open(&model.path).unwrap();
    let mut n = 0;
    let report = files.verify_file(0, |bytes| n += bytes.len()).unwrap();
    let parts: Vec<_> = report.damages.iter().map(|damage| &damage.part).collect();
    let head = DamagedPart::Tensor("output.weight".to_owned());
    assert_eq!(parts, [&DamagedPart::Padding, &head]);
    assert_eq!(n as u64, model.layout.file_bytes);
}

#[test]
fn files_without_checksums_are_streamed_but_not_verified() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models/llama-plain.gguf");
    let files = ModelFiles::open(&path).unwrap();
    let error = files.verify().unwrap_err();
    assert!(matches!(error, Error::NoChecksums { .. }), "{error}");
}

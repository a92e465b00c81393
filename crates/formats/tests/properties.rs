//! Properties of any file: a written file is read back, and no damage makes the reader panic.

use atta_formats::{Directory, Error, Gguf, SharedBytes, TensorType, Value, Writer, decode};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A metadata value that owns its payload.
#[derive(Clone, Debug)]
enum Owned {
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(Vec<u8>),
    Strs(Vec<Vec<u8>>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
}

impl Owned {
    fn set(&self, w: &mut Writer, key: &str) {
        match self {
            Owned::U8(v) => w.set_u8(key, *v),
            Owned::U16(v) => w.set_u16(key, *v),
            Owned::U32(v) => w.set_u32(key, *v),
            Owned::I32(v) => w.set_i32(key, *v),
            Owned::U64(v) => w.set_u64(key, *v),
            Owned::I64(v) => w.set_i64(key, *v),
            Owned::F32(v) => w.set_f32(key, *v),
            Owned::F64(v) => w.set_f64(key, *v),
            Owned::Bool(v) => w.set_bool(key, *v),
            Owned::Str(v) => w.set_bytes(key, v),
            Owned::Strs(v) => w.set_strs(key, v),
            Owned::U32s(v) => w.set_u32s(key, v),
            Owned::I32s(v) => w.set_i32s(key, v),
            Owned::F32s(v) => w.set_f32s(key, v),
            Owned::Bools(v) => w.set_bools(key, v),
        }
    }

    /// Whether the getter of this type gives this value.
    fn is_at(&self, g: &Gguf, key: &str) -> bool {
        let m = &g.metadata;
        let value = m.get(key).unwrap();
        match self {
            Owned::U8(v) => m.u32(key) == Ok(Some((*v).into())),
            Owned::U16(v) => m.u32(key) == Ok(Some((*v).into())),
            Owned::U32(v) => m.u32(key) == Ok(Some(*v)),
            Owned::I32(v) => m.i64(key) == Ok(Some((*v).into())),
            Owned::U64(v) => m.u64(key) == Ok(Some(*v)),
            Owned::I64(v) => m.i64(key) == Ok(Some(*v)),
            Owned::F32(v) => m.f32(key) == Ok(Some(*v)),
            Owned::F64(v) => value == Value::F64(*v) && m.f32(key) == Ok(Some(*v as f32)),
            Owned::Bool(v) => m.bool(key) == Ok(Some(*v)),
            Owned::Str(v) => match std::str::from_utf8(v) {
                Ok(text) => m.str(key) == Ok(Some(text)),
                Err(_) => {
                    m.str(key)
                        == Err(Error::MetadataUtf8 {
                            key: key.to_owned(),
                        })
                }
            },
            Owned::Strs(v) => m
                .strs(key)
                .unwrap()
                .unwrap()
                .iter()
                .eq(v.iter().map(Vec::as_slice)),
            Owned::U32s(v) => m.u32s(key).unwrap().unwrap().iter().eq(v.iter().copied()),
            Owned::I32s(v) => m.i32s(key).unwrap().unwrap().iter().eq(v.iter().copied()),
            Owned::F32s(v) => m.f32s(key).unwrap().unwrap().iter().eq(v.iter().copied()),
            Owned::Bools(v) => m.bools(key).unwrap().unwrap().iter().eq(v.iter().copied()),
        }
    }
}

fn any_value() -> impl Strategy<Value = Owned> {
    let bytes = || vec(any::<u8>(), 0..12);
    let float = || -1e30f32..1e30;
    prop_oneof![
        any::<u8>().prop_map(Owned::U8),
        any::<u16>().prop_map(Owned::U16),
        any::<u32>().prop_map(Owned::U32),
        any::<i32>().prop_map(Owned::I32),
        any::<u64>().prop_map(Owned::U64),
        any::<i64>().prop_map(Owned::I64),
        float().prop_map(Owned::F32),
        (-1e30f64..1e30).prop_map(Owned::F64),
        any::<bool>().prop_map(Owned::Bool),
        bytes().prop_map(Owned::Str),
        "\\PC{0,20}".prop_map(|s| Owned::Str(s.into_bytes())),
        vec(bytes(), 0..6).prop_map(Owned::Strs),
        vec(any::<u32>(), 0..6).prop_map(Owned::U32s),
        vec(any::<i32>(), 0..6).prop_map(Owned::I32s),
        vec(float(), 0..6).prop_map(Owned::F32s),
        vec(any::<bool>(), 0..6).prop_map(Owned::Bools),
    ]
}

/// Outer dimensions, units per row, and type of a tensor.
fn any_tensor() -> impl Strategy<Value = (Vec<u64>, u64, TensorType)> {
    (
        vec(1u64..4, 0..=3),
        1u64..12,
        prop::sample::select(TensorType::ALL),
    )
}

#[derive(Clone, Debug)]
struct Model {
    version: u32,
    alignment: u32,
    values: BTreeMap<String, Owned>,
    tensors: BTreeMap<String, (Vec<u64>, u64, TensorType)>,
}

fn any_model() -> impl Strategy<Value = Model> {
    (
        2u32..=3,
        0u32..8,
        btree_map("[a-zé._]{1,12}", any_value(), 0..8),
        btree_map("[a-zé.]{1,12}", any_tensor(), 0..6),
    )
        .prop_map(|(version, shift, values, tensors)| Model {
            version,
            alignment: 1 << shift,
            values,
            tensors,
        })
}

impl Model {
    /// The whole file, its tensors' bytes counting up.
    fn write(&self) -> (Vec<u8>, Vec<atta_formats::TensorInfo>) {
        let mut w = Writer::new();
        w.set_version(self.version).unwrap();
        w.set_alignment(self.alignment).unwrap();
        self.values
            .iter()
            .for_each(|(key, value)| value.set(&mut w, key));
        for (name, (outer, n_units, ty)) in &self.tensors {
            let dims = [outer.as_slice(), &[n_units * ty.row_unit() as u64]].concat();
            w.add_tensor(name, &dims, *ty).unwrap();
        }
        let layout = w.finish().unwrap();
        let mut file = layout.header;
        file.extend((file.len() as u64..layout.file_bytes).map(|i| i as u8));
        (file, layout.tensors)
    }
}

fn parse(file: &[u8]) -> Result<Gguf, Error> {
    let shared: SharedBytes = Arc::new(file.to_vec());
    Gguf::parse(shared, file.len() as u64)
}

/// Reads everything that can be read; only a panic is a failure.
fn read_all(file: &[u8]) {
    let Ok(g) = parse(file) else { return };
    let m = &g.metadata;
    for (key, value) in m.iter() {
        let _ = (
            value.to_string(),
            m.str(key),
            m.u32(key),
            m.i64(key),
            m.f32(key),
            m.bool(key),
        );
        let _ = (m.u32s(key), m.i32s(key), m.f32s(key), m.bools(key));
        if let Ok(Some(strings)) = m.strs(key) {
            assert_eq!(strings.iter().count(), strings.len());
        }
    }
    for t in &g.tensors {
        let data = &file[t.offset as usize..][..t.n_bytes as usize];
        let _ = decode(t.ty, data, &mut vec![0.0; t.shape.n_elements() as usize]);
    }
    let _ = Directory::from_shards(vec![g]);
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(model in any_model()) {
        let (file, tensors) = model.write();
        let g = parse(&file).unwrap();
        prop_assert_eq!((g.version, g.alignment), (model.version, model.alignment.into()));
        prop_assert_eq!(&g.tensors, &tensors);
        prop_assert_eq!(g.metadata.len(), model.values.len() + 1);
        for (key, value) in &model.values {
            prop_assert!(value.is_at(&g, key), "{}: {:?}", key, value);
        }
        let directory = Directory::single(g);
        for t in &tensors {
            prop_assert_eq!(directory.tensor(&t.name), Some(t));
        }
    }

    #[test]
    fn flipped_bytes_never_panic(
        model in any_model(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (mut file, _) = model.write();
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        read_all(&file);
    }

    #[test]
    fn numbers_of_any_size_anywhere_never_panic(
        model in any_model(),
        at in any::<prop::sample::Index>(),
        number in prop_oneof![
            any::<u64>(),
            0u64..100,
            Just(u64::MAX),
            Just(1 << 62),
            Just(i64::MAX as u64),
        ],
    ) {
        let (mut file, _) = model.write();
        let at = at.index(file.len());
        let end = file.len().min(at + 8);
        file[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        read_all(&file);
    }

    #[test]
    fn truncated_files_never_panic(model in any_model(), at in any::<prop::sample::Index>()) {
        let (file, _) = model.write();
        let cut = &file[..at.index(file.len())];
        read_all(cut);
        let shared: SharedBytes = Arc::new(cut.to_vec());
        if let Err(error) = Gguf::parse(shared, file.len() as u64) {
            let n_cut = cut.len() as u64;
            let asks_for_more = matches!(error, Error::Truncated { needed } if needed > n_cut);
            prop_assert!(asks_for_more, "{}", error);
        }
    }

    #[test]
    fn random_bytes_never_panic(tail in vec(any::<u8>(), 0..200)) {
        read_all(&tail);
        read_all(&[&b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"[..], &tail].concat());
    }
}

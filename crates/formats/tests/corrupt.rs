//! Files that are wrong in one place, each made by patching a good one, and the error that each
//! must give.

use atta_formats::{Error, Gguf, SharedBytes, TensorType, Writer, gguf};
use std::sync::Arc;

const VERSION: usize = 4;
const N_TENSORS: usize = 8;
const N_KEYS: usize = 16;
const FIRST_KEY: usize = 24;

/// Three tensors of different types and a key of each kind.
fn good() -> Vec<u8> {
    let mut w = Writer::new();
    w.set_str("general.architecture", "llama");
    w.set_alignment(32).unwrap();
    w.set_bool("k.bool", true);
    w.set_u32s("k.ints", &[1, 2, 3]);
    w.set_strs("k.strs", &["ab", "c"]);
    w.set_bools("k.flags", &[true, false]);
    w.add_tensor("a.weight", &[2, 64], TensorType::Q8_0)
        .unwrap();
    w.add_tensor("b.weight", &[4], TensorType::F32).unwrap();
    w.add_tensor("c.weight", &[3, 8], TensorType::F16).unwrap();
    let layout = w.finish().unwrap();
    let mut file = layout.header;
    file.resize(layout.file_bytes as usize, 7);
    file
}

fn parse(file: Vec<u8>) -> Result<Gguf, Error> {
    let n = file.len() as u64;
    let shared: SharedBytes = Arc::new(file);
    Gguf::parse(shared, n)
}

/// Where the bytes after `text` are: the type of the key, or the dimensions of the tensor, of that
/// name.
fn after(text: &str) -> usize {
    let at = good()
        .windows(text.len())
        .position(|w| w == text.as_bytes())
        .unwrap();
    at + text.len()
}

/// Where the first dimension of a tensor is in the file, which is the innermost.
fn dims(tensor: &str) -> usize {
    after(tensor) + 4
}

/// Where the offset of a tensor of two dimensions is.
fn offset(tensor: &str) -> usize {
    dims(tensor) + 2 * 8 + 4
}

fn put<const N: usize>(at: usize, bytes: [u8; N]) -> impl Fn(&mut Vec<u8>) {
    move |file| file[at..at + N].copy_from_slice(&bytes)
}

#[track_caller]
fn refused(patch: impl Fn(&mut Vec<u8>)) -> Error {
    let mut file = good();
    patch(&mut file);
    parse(file).expect_err("the file is corrupt")
}

/// The error of a file with these bytes at `at`.
#[track_caller]
fn with<const N: usize>(at: usize, bytes: [u8; N]) -> Error {
    refused(put(at, bytes))
}

#[track_caller]
fn past_end(what: &'static str, at: usize, len: u64, error: Error) {
    let at = at as u64;
    let file_bytes = good().len() as u64;
    assert_eq!(
        error,
        Error::PastEnd {
            what,
            at,
            end: at.saturating_add(len),
            file_bytes
        }
    );
}

fn a_weight() -> String {
    "a.weight".to_owned()
}

#[test]
fn the_unpatched_file_is_good() {
    let g = parse(good()).unwrap();
    assert_eq!((g.tensors.len(), g.metadata.len(), g.alignment), (3, 6, 32));
}

#[test]
fn a_wrong_magic_number_is_no_gguf() {
    assert!(
        matches!(with(0, *b"GGML"), Error::UnknownContainer { got } if got.starts_with(b"GGML\x03"))
    );
    assert!(matches!(with(0, [0; 4]), Error::UnknownContainer { got } if got.starts_with(&[0; 4])));
}

#[test]
fn other_versions_are_refused_by_number() {
    for got in [0, 1, 4, 5, u32::MAX] {
        assert_eq!(with(VERSION, got.to_le_bytes()), Error::Version { got });
    }
}

#[test]
fn big_endian_files_are_refused_as_such() {
    assert_eq!(
        with(VERSION, 3u32.to_be_bytes()),
        Error::BigEndian { version: 3 }
    );
}

#[test]
fn files_that_end_in_the_header_are_refused() {
    for (len, what, at, end) in [
        (0, "the magic number", 0, 4),
        (3, "the magic number", 0, 4),
        (7, "the version", 4, 8),
    ] {
        let error = refused(|f| f.truncate(len));
        assert_eq!(
            error,
            Error::PastEnd {
                what,
                at,
                end,
                file_bytes: len as u64
            }
        );
    }
    let error = refused(|f| f.truncate(23));
    assert_eq!(
        error,
        Error::PastEnd {
            what: "the metadata count",
            at: 16,
            end: 24,
            file_bytes: 23
        }
    );
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    let room = (good().len() - FIRST_KEY) as u64;
    for got in [room / 14 + 1, 1 << 40, u64::MAX] {
        assert_eq!(
            with(N_KEYS, got.to_le_bytes()),
            Error::Count {
                what: "metadata keys",
                got,
                max: room / 14
            }
        );
        assert_eq!(
            with(N_TENSORS, got.to_le_bytes()),
            Error::Count {
                what: "tensors",
                got,
                max: room / 25
            }
        );
    }
}

#[test]
fn counts_above_the_cap_are_refused_however_long_the_file() {
    let huge = |at| {
        let mut file = good();
        put(at, (1u64 << 17).wrapping_add(1).to_le_bytes())(&mut file);
        let shared: SharedBytes = Arc::new(file);
        Gguf::parse(shared, 1 << 40).unwrap_err()
    };
    assert_eq!(
        huge(N_KEYS),
        Error::Count {
            what: "metadata keys",
            got: (1 << 17) + 1,
            max: 1 << 14
        }
    );
    assert_eq!(
        huge(N_TENSORS),
        Error::Count {
            what: "tensors",
            got: (1 << 17) + 1,
            max: 1 << 17
        }
    );
}

#[test]
fn one_key_too_many_reads_the_tensors_as_a_key_and_fails() {
    // "a.weight" is then a key, its count of dimensions the type u16, and its first dimension
    // begins with the value.
    let error = with(N_KEYS, 7u64.to_le_bytes());
    let at = dims("a.weight") as u64 + 2;
    assert_eq!(
        error,
        Error::NameLength {
            at,
            len: 2 << 48,
            max: 63
        }
    );
}

#[test]
fn one_tensor_too_many_reads_the_padding_as_a_name_and_fails() {
    let error = with(N_TENSORS, 4u64.to_le_bytes());
    let at = offset("c.weight") as u64 + 8;
    let len = u64::from_le_bytes([0, 0, 0, 7, 7, 7, 7, 7]);
    assert_eq!(error, Error::NameLength { at, len, max: 63 });
}

#[test]
fn empty_and_overlong_keys_are_refused() {
    for len in [0, 1 << 16, u64::MAX] {
        assert_eq!(
            with(FIRST_KEY, len.to_le_bytes()),
            Error::KeyLength {
                at: 24,
                len,
                max: 65535
            }
        );
    }
}

#[test]
fn a_key_that_reaches_past_the_end_is_refused() {
    past_end(
        "a metadata key",
        32,
        60_000,
        with(FIRST_KEY, 60_000u64.to_le_bytes()),
    );
}

#[test]
fn a_key_that_is_not_printable_text_is_refused() {
    assert_eq!(
        with(32, [0xff]),
        Error::NotText {
            what: "a metadata key",
            at: 32
        }
    );
    assert_eq!(
        with(33, [0x1b]),
        Error::NotText {
            what: "a metadata key",
            at: 32
        }
    );
}

#[test]
fn a_key_that_occurs_twice_is_refused() {
    let error = with(after("k.ints") - 6, *b"k.strs");
    assert_eq!(
        error,
        Error::DuplicateKey {
            key: "k.strs".to_owned()
        }
    );
}

#[test]
fn unknown_value_types_are_refused() {
    for id in [13, 255, u32::MAX] {
        assert_eq!(
            with(after("k.bool"), id.to_le_bytes()),
            Error::ValueType {
                key: "k.bool".to_owned(),
                id
            }
        );
    }
}

#[test]
fn unknown_element_types_are_refused() {
    let error = with(after("k.ints") + 4, 13u32.to_le_bytes());
    assert_eq!(
        error,
        Error::ValueType {
            key: "k.ints".to_owned(),
            id: 13
        }
    );
}

#[test]
fn a_bool_is_0_or_1() {
    let key = || "k.bool".to_owned();
    let at = after("k.bool") + 4;
    assert_eq!(
        with(at, [2]),
        Error::BoolByte {
            key: key(),
            at: at as u64,
            got: 2
        }
    );
    let at = after("k.flags") + 4 + 4 + 8 + 1;
    assert_eq!(
        with(at, [255]),
        Error::BoolByte {
            key: "k.flags".to_owned(),
            at: at as u64,
            got: 255
        }
    );
}

#[test]
fn strings_that_reach_past_the_end_are_refused() {
    let at = after("general.architecture") + 4;
    for len in [good().len() as u64, u64::MAX, u64::MAX - at as u64] {
        past_end(
            "a metadata string",
            at + 8,
            len,
            with(at, len.to_le_bytes()),
        );
    }
    let in_array = after("k.strs") + 4 + 4 + 8;
    past_end(
        "a metadata string",
        in_array + 8,
        1 << 62,
        with(in_array, (1u64 << 62).to_le_bytes()),
    );
}

#[test]
fn arrays_that_reach_past_the_end_are_refused() {
    let at = after("k.ints") + 8;
    for len in [good().len() as u64, 1 << 62, u64::MAX] {
        past_end(
            "a metadata value",
            at + 8,
            len.saturating_mul(4),
            with(at, len.to_le_bytes()),
        );
    }
}

#[test]
fn an_array_of_more_strings_than_the_file_has_is_refused() {
    let error = with(after("k.strs") + 8, u64::MAX.to_le_bytes());
    // The next key, "k.flags", reads as a third string, and the type after it as a length.
    let Error::PastEnd {
        what: "a metadata string",
        at,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert!(at > after("k.strs") as u64 + 16 + 8 + 2 + 8 + 1);
}

/// A file whose only value is an array in an array, `depth` deep.
fn nested(depth: usize) -> Vec<u8> {
    let mut file = Writer::new().finish().unwrap().header[..FIRST_KEY].to_vec();
    file[N_KEYS] = 1;
    file.extend(*b"\x01\0\0\0\0\0\0\0k\x09\0\0\0");
    for _ in 1..depth {
        file.extend(*b"\x09\0\0\0\x01\0\0\0\0\0\0\0");
    }
    file.extend(*b"\x00\0\0\0\x01\0\0\0\0\0\0\0\x2a");
    file
}

#[test]
fn arrays_are_nested_four_deep_at_most() {
    assert_eq!(
        parse(nested(4))
            .unwrap()
            .metadata
            .get("k")
            .unwrap()
            .to_string(),
        "[[[[42]]]]"
    );
    for depth in [5, 100, 100_000] {
        assert_eq!(
            parse(nested(depth)).unwrap_err(),
            Error::ArrayDepth {
                key: "k".to_owned(),
                max: 4
            }
        );
    }
}

#[test]
fn the_alignment_is_a_power_of_two_up_to_a_mebibyte() {
    for got in [0, 3, 33, 1 << 21, u32::MAX] {
        let error = with(after("general.alignment") + 4, got.to_le_bytes());
        assert_eq!(
            error,
            Error::Alignment {
                got: got.into(),
                max: 1 << 20
            }
        );
    }
}

#[test]
fn the_alignment_is_an_integer() {
    // The bytes of 32 as a float are a fraction.
    let error = with(after("general.alignment"), 6u32.to_le_bytes());
    let key = "general.alignment".to_owned();
    let got = "f32".to_owned();
    assert_eq!(
        error,
        Error::MetadataType {
            key,
            expected: "u32",
            got
        }
    );
}

#[test]
fn empty_and_overlong_tensor_names_are_refused() {
    let at = after("a.weight") - 16;
    for len in [0, 64, u64::MAX] {
        assert_eq!(
            with(at, len.to_le_bytes()),
            Error::NameLength {
                at: at as u64,
                len,
                max: 63
            }
        );
    }
}

#[test]
fn a_tensor_name_that_is_not_printable_text_is_refused() {
    let at = after("a.weight") - 8;
    assert_eq!(
        with(at, [0xc0]),
        Error::NotText {
            what: "a tensor name",
            at: at as u64
        }
    );
    assert_eq!(
        with(at + 7, [b'\n']),
        Error::NotText {
            what: "a tensor name",
            at: at as u64
        }
    );
}

#[test]
fn a_tensor_that_occurs_twice_is_refused() {
    let error = with(after("b.weight") - 8, *b"a");
    assert_eq!(error, Error::DuplicateTensor { tensor: a_weight() });
}

#[test]
fn more_than_four_dimensions_are_refused() {
    for got in [5, u32::MAX] {
        let error = with(after("a.weight"), got.to_le_bytes());
        assert_eq!(
            error,
            Error::Dims {
                tensor: a_weight(),
                got: got.into(),
                max: 4
            }
        );
    }
}

#[test]
fn a_dimension_of_0_is_refused() {
    let tensor = a_weight;
    assert_eq!(
        with(dims("a.weight"), 0u64.to_le_bytes()),
        Error::ZeroDim {
            tensor: tensor(),
            axis: 1
        }
    );
    assert_eq!(
        with(dims("a.weight") + 8, 0u64.to_le_bytes()),
        Error::ZeroDim {
            tensor: tensor(),
            axis: 0
        }
    );
}

#[test]
fn a_product_of_dimensions_that_overflows_is_refused() {
    for d in [1 << 62, 1 << 58, u64::MAX, i64::MIN as u64] {
        let error = with(dims("a.weight") + 8, d.to_le_bytes());
        assert_eq!(
            error,
            Error::ShapeOverflow {
                tensor: a_weight(),
                dims: vec![d, 64]
            }
        );
    }
}

#[test]
fn a_size_in_bytes_that_overflows_is_refused() {
    // 2^61 and 2^62 weights are countable, but not 4 bytes each.
    for d in [1u64 << 55, 1 << 56] {
        let error = refused(|f| {
            put(dims("a.weight") + 8, d.to_le_bytes())(f);
            put(
                dims("a.weight") + 16,
                gguf::type_id(TensorType::F32).to_le_bytes(),
            )(f);
        });
        assert_eq!(
            error,
            Error::BytesOverflow {
                tensor: a_weight(),
                dims: vec![d, 64],
                ty: TensorType::F32
            }
        );
    }
}

#[test]
fn unknown_and_removed_tensor_types_are_refused_with_their_id() {
    for id in [4, 5, 31, 33, 36, 38, 43, u32::MAX] {
        let error = with(dims("a.weight") + 16, id.to_le_bytes());
        assert_eq!(
            error,
            Error::UnknownType {
                tensor: a_weight(),
                id
            }
        );
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_refused() {
    let error = with(dims("a.weight"), 63u64.to_le_bytes());
    assert_eq!(
        error,
        Error::RowNotBlocks {
            tensor: a_weight(),
            d: 63,
            ty: TensorType::Q8_0
        }
    );
    // 128 weights are four blocks of 32, but no row of 64 is a block of 256.
    let error = with(
        dims("a.weight") + 16,
        gguf::type_id(TensorType::Q4_K).to_le_bytes(),
    );
    assert_eq!(
        error,
        Error::RowNotBlocks {
            tensor: a_weight(),
            d: 64,
            ty: TensorType::Q4_K
        }
    );
}

#[test]
fn an_offset_off_the_alignment_is_refused() {
    for off in [1, 16, 33, u64::MAX] {
        let error = with(offset("a.weight"), off.to_le_bytes());
        assert_eq!(
            error,
            Error::Misaligned {
                tensor: a_weight(),
                offset: off,
                alignment: 32
            }
        );
    }
}

#[test]
fn data_past_the_end_of_the_file_is_refused() {
    let file_bytes = good().len() as u64;
    let data = parse(good()).unwrap().data_offset;
    let error = with(offset("a.weight"), (1u64 << 40).to_le_bytes());
    assert_eq!(
        error,
        Error::TensorPastEnd {
            tensor: a_weight(),
            end: data + (1 << 40) + 136,
            file_bytes
        }
    );
    let error = with(offset("a.weight"), (u64::MAX - 31).to_le_bytes());
    assert_eq!(
        error,
        Error::TensorPastEnd {
            tensor: a_weight(),
            end: u64::MAX,
            file_bytes
        }
    );
}

#[test]
fn a_file_cut_short_in_its_data_is_refused() {
    let whole = parse(good()).unwrap();
    let last = whole.tensors[2].clone();
    let end = last.offset + last.n_bytes;
    assert!(
        parse(good()[..end as usize].to_vec()).is_ok(),
        "the last padding may be missing"
    );
    let error = refused(|f| f.truncate(end as usize - 1));
    assert_eq!(
        error,
        Error::TensorPastEnd {
            tensor: last.name,
            end,
            file_bytes: end - 1
        }
    );
}

#[test]
fn tensors_that_overlap_are_refused() {
    let a = parse(good()).unwrap().tensors[0].clone();
    let overlap = |tensor: &str, other: &str, offset| {
        let tensor = tensor.to_owned();
        let other = other.to_owned();
        assert_eq!(
            with(dims("c.weight") + 20, u64::to_le_bytes(offset - a.offset)),
            Error::Overlap {
                tensor,
                other,
                offset
            }
        );
    };
    overlap("c.weight", "a.weight", a.offset + 128);
    overlap("c.weight", "b.weight", a.offset + 160);
    // At the same offset they overlap as well.
    overlap("c.weight", "a.weight", a.offset);
}

#[test]
fn a_type_without_a_decoder_can_be_inspected() {
    let mut w = Writer::new();
    w.add_tensor("x.weight", &[256], TensorType::Q8_1).unwrap();
    let layout = w.finish().unwrap();
    let shared: SharedBytes = Arc::new(layout.header);
    let g = Gguf::parse(shared, layout.file_bytes).unwrap();
    assert_eq!(g.tensors[0].ty, TensorType::Q8_1);
}

#[test]
fn every_prefix_of_the_header_asks_for_more() {
    let file = good();
    let header_bytes = after("c.weight") + 4 + 16 + 4 + 8;
    for len in 0..header_bytes {
        let shared: SharedBytes = Arc::new(file[..len].to_vec());
        match Gguf::parse(shared, file.len() as u64) {
            Err(Error::Truncated { needed }) => {
                assert!((len as u64) < needed && needed <= header_bytes as u64)
            }
            other => panic!("{len}: {other:?}"),
        }
    }
    let shared: SharedBytes = Arc::new(file[..header_bytes].to_vec());
    assert_eq!(
        Gguf::parse(shared, file.len() as u64)
            .unwrap()
            .tensors
            .len(),
        3
    );
}

#[test]
fn bytes_after_the_stated_end_are_not_the_files() {
    let shared: SharedBytes = Arc::new(good());
    let error = Gguf::parse(shared, 100).unwrap_err();
    assert_eq!(
        error,
        Error::Count {
            what: "metadata keys",
            got: 6,
            max: (100 - 24) / 14
        }
    );
}

#[test]
fn getters_refuse_other_types() {
    let g = parse(good()).unwrap();
    let wrong = |key: &str, expected, got: &str| Error::MetadataType {
        key: key.to_owned(),
        expected,
        got: got.to_owned(),
    };
    let m = &g.metadata;
    assert_eq!(
        m.u32("general.architecture").unwrap_err(),
        wrong("general.architecture", "u32", "str")
    );
    assert_eq!(
        m.bool("general.alignment").unwrap_err(),
        wrong("general.alignment", "bool", "u32")
    );
    assert_eq!(
        m.f32("general.architecture").unwrap_err(),
        wrong("general.architecture", "f32", "str")
    );
    assert_eq!(
        m.str("k.strs").unwrap_err(),
        wrong("k.strs", "str", "array of str")
    );
    assert_eq!(
        m.strs("k.ints").err(),
        Some(wrong("k.ints", "array of str", "array of u32"))
    );
    assert_eq!(
        m.f32s("k.strs").err(),
        Some(wrong("k.strs", "array of f32", "array of str"))
    );
    assert_eq!(
        m.u32s("k.strs").err(),
        Some(wrong("k.strs", "array of u32", "array of str"))
    );
    assert_eq!(
        m.bools("general.architecture").err(),
        Some(wrong("general.architecture", "array of bool", "str"))
    );
}

//! Files that `tests/oracles/pickle_golden.py` saved with torch.

use std::path::PathBuf;

use atta_convert::{
    hf, pickle,
    raw::{Dtype, RawTensor},
};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/pickle")
        .join(name)
}

fn refusal(name: &str) -> String {
    let error = pickle::open(&path(name)).expect_err(name).to_string();
    error
        .split_once(&format!("{name}: "))
        .expect(&error)
        .1
        .to_owned()
}

/// The elements of a tensor, whatever their type.
fn values(tensor: &RawTensor) -> Vec<f64> {
    let bytes = tensor.bytes();
    let mut floats = vec![0.0; bytes.len() / tensor.dtype().bytes() as usize];
    match tensor.dtype() {
        Dtype::I64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| i64::from_le_bytes(b) as f64)
            .collect(),
        Dtype::I32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_le_bytes(b).into())
            .collect(),
        Dtype::I16 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| i16::from_le_bytes(b).into())
            .collect(),
        Dtype::I8 => bytes.iter().map(|&b| f64::from(b as i8)).collect(),
        Dtype::U8 | Dtype::Bool => bytes.iter().map(|&b| b.into()).collect(),
        _ => {
            tensor.floats(0, &mut floats).unwrap();
            floats.into_iter().map(f64::from).collect()
        }
    }
}

#[test]
fn tensors_are_those_that_torch_saved() {
    let all: Value = serde_json::from_slice(&std::fs::read(path("plain.json")).unwrap()).unwrap();
    let read = pickle::open(&path("plain.bin")).unwrap();
    assert_eq!(read.names().count(), all.as_object().unwrap().len());
    for (name, expected) in all.as_object().unwrap() {
        let tensor = read.get(name).expect(name);
        let list = |key: &str| expected[key].as_array().unwrap().clone();
        let dims: Vec<u64> = list("dims").iter().map(|d| d.as_u64().unwrap()).collect();
        let expected: Vec<f64> = list("values").iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(
            (tensor.dims(), values(tensor)),
            (&dims[..], expected),
            "{name}"
        );
    }
    assert_eq!(read.get("bfloat16").unwrap().dtype(), Dtype::BF16);
    assert_eq!(read.files.len(), 1);
}

#[test]
fn tensors_that_share_elements_share_bytes() {
    let read = pickle::open(&path("plain.bin")).unwrap();
    let at = |name: &str| read.get(name).unwrap().at();
    assert_eq!(at("embed.weight"), at("head.weight"));
    assert_eq!(at("rows"), at("embed.weight") + 2 * 4 * 4);
}

#[test]
fn newer_pickles_are_read_too() {
    let read = pickle::open(&path("protocol-4.bin")).unwrap();
    assert_eq!(
        values(read.get("float32").unwrap()),
        [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    );
    assert_eq!(read.names().collect::<Vec<_>>(), ["float32", "int64"]);
}

#[test]
fn code_is_not_run_but_named() {
    for name in ["code.bin", "code-4.bin"] {
        let why = refusal(name);
        assert!(
            why.ends_with(": refuses to run posix.system, which no checkpoint needs"),
            "{why}"
        );
        assert!(why.starts_with("byte "), "{why}");
    }
}

#[test]
fn what_is_not_read_says_what_it_is() {
    let cases = [
        (
            "transposed.bin",
            "w: is saved transposed (strides [1, 3]); save it again after .contiguous()",
        ),
        (
            "gaps.bin",
            "w: is saved with gaps or in another order (strides [4, 2]); save it again after \
             .contiguous()",
        ),
        ("nested.bin", "model is no tensor"),
        (
            "compressed.bin",
            "gaps/data.pkl is compressed, which torch.save does not do",
        ),
        ("plain.json", "has no end of a zip archive"),
    ];
    for (name, why) in cases {
        assert_eq!(refusal(name), why);
    }
    assert!(
        refusal("old.bin").starts_with("is older than PyTorch 1.6; save it again: torch.save(")
    );
}

#[test]
fn an_index_names_files_beside_it() {
    let folder = std::env::temp_dir().join(format!("atta-pickle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(path("protocol-4.bin"), folder.join("a.bin")).unwrap();
    let index = folder.join("pytorch_model.bin.index.json");
    let open = |map: &str| {
        std::fs::write(&index, format!("{{\"weight_map\":{map}}}")).unwrap();
        pickle::open_sharded(&index)
            .map(|all| all.names().count())
            .map_err(|e| e.to_string())
    };
    let good = open(r#"{"float32":"a.bin","int64":"a.bin"}"#);
    let bad = open(r#"{"float32":"../a.bin"}"#);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(good, Ok(2));
    assert!(
        bad.unwrap_err()
            .ends_with("\"../a.bin\" is no name of a file")
    );
}

#[test]
fn a_directory_of_hugging_face_may_hold_a_pickle() {
    let checkpoint = hf::open(&path("hugging-face"), &mut Vec::new()).unwrap();
    assert_eq!(checkpoint.tensors.len(), 11);
    let embedding = &checkpoint.tensors[0];
    let mut row = [0.0; 16];
    embedding.rows.read(19, &mut row).unwrap();
    // The first tensor of the script.
    let expected: Vec<f32> = (19 * 16..20 * 16)
        .map(|i| (i * 7) as f32 % 251.0 - 125.0)
        .collect();
    assert_eq!(
        (&*embedding.name, &embedding.dims[..], &row[..]),
        ("token_embd.weight", &[20, 16][..], &expected[..])
    );
}

#[test]
fn no_beginning_and_no_damaged_byte_makes_it_panic() {
    let whole = std::fs::read(path("plain.bin")).unwrap();
    for n in 0..whole.len() {
        assert!(
            pickle::parse(std::sync::Arc::new(whole[..n].to_vec())).is_err(),
            "{n}"
        );
    }
    for at in 0..whole.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= bits;
            // Some damaged files are valid; only a panic would be a failure.
            let _ = pickle::parse(std::sync::Arc::new(damaged));
        }
    }
}

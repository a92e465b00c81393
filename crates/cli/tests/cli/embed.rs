//! `atta embed`: vectors of texts.

use crate::program::{Scratch, atta, atta_with_input, error_of, model, stdout, text_of};

fn vectors(json_lines: &str) -> Vec<Vec<f32>> {
    json_lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_text_is_a_line_with_a_vector_of_length_1() {
    for name in ["bert.gguf", "llama-plain.gguf"] {
        let model = model(name);
        let of_arguments = stdout(&["embed", &model, "the king", "a house"]);
        let found = vectors(&of_arguments);
        assert!(found.len() == 2 && found[0] != found[1], "{name}");
        for vector in &found {
            let square: f32 = vector.iter().map(|x| x * x).sum();
            assert!((square - 1.0).abs() < 1e-5, "{name}: {square}");
        }
        let of_lines = atta_with_input(&["embed", &model], b"the king\r\na house\n");
        assert_eq!(text_of(&of_lines), of_arguments, "{name}");
        assert_eq!(
            stdout(&["embed", &model, "a house"]),
            of_arguments.lines().nth(1).unwrap().to_owned() + "\n",
            "{name}: a vector depends on no other text"
        );
    }
}

#[test]
fn a_model_by_its_name_leaves_the_texts_their_places() {
    let model = model("bert.gguf");
    let expected = stdout(&["embed", &model, "the king", "a house"]);
    let named = stdout(&["embed", "-m", &model, "the king", "a house"]);
    assert_eq!(named, expected);
    assert_eq!(
        stdout(&["embed", "the king", "a house", "--model", &model]),
        expected
    );
}

#[test]
fn a_numpy_file_has_the_same_numbers() {
    let scratch = Scratch::new("embed-npy");
    let out = scratch.path("v.npy");
    let model = model("bert.gguf");
    stdout(&[
        "embed", &model, "the king", "a house", "--format", "npy", "-o", &out,
    ]);
    let bytes = std::fs::read(&out).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let (header, numbers) = bytes.split_at(bytes.len() - 2 * 32 * 4);
    assert!(String::from_utf8_lossy(header).contains("'shape': (2, 32)"));
    let numbers = numbers
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let expected = vectors(&stdout(&["embed", &model, "the king", "a house"])).concat();
    assert!(numbers.eq(expected));
}

#[test]
fn what_has_no_vector_is_refused_by_its_number() {
    let model = model("bert.gguf");
    let error = error_of(&atta(&["embed", &model, "the king", ""]), 1);
    assert!(error.contains("text 2 is empty"), "{error}");
    let long = "a ".repeat(300);
    let error = error_of(&atta(&["embed", &model, &long]), 1);
    assert!(error.contains("text 1 has"), "{error}");
    let error = error_of(&atta(&["embed", &model, "a", "--batch", "8"]), 2);
    assert!(error.contains("--batch does not apply"), "{error}");
}

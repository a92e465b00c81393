//! Real files, where they are present beside the repository: vocabularies written by llama.cpp's
//! tools.

use atta_formats::{Gguf, SharedBytes, Value, Writer};
use std::path::PathBuf;
use std::sync::Arc;

fn vocab_files() -> Vec<PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/vocab");
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        .collect()
}

fn parse(bytes: &[u8]) -> Gguf {
    let shared: SharedBytes = Arc::new(bytes.to_vec());
    Gguf::parse(shared, bytes.len() as u64).unwrap()
}

#[test]
fn real_vocabularies_parse_with_a_small_index() {
    for path in vocab_files() {
        let g = parse(&std::fs::read(&path).unwrap());
        let tokens = g.metadata.strs("tokenizer.ggml.tokens").unwrap().unwrap();
        let types = g
            .metadata
            .i32s("tokenizer.ggml.token_type")
            .unwrap()
            .unwrap();
        assert!(tokens.len() >= 32_000, "{path:?}");
        assert_eq!(types.len(), tokens.len(), "{path:?}");
        assert_eq!(tokens.iter().count(), tokens.len(), "{path:?}");
        assert!(
            tokens.heap_bytes() <= 4 * tokens.len() && g.metadata.heap_bytes() < 8192,
            "{path:?}"
        );
    }
}

#[test]
fn real_metadata_survives_being_written_again() {
    for path in vocab_files() {
        let file = std::fs::read(&path).unwrap();
        let g = parse(&file);
        let mut w = Writer::new();
        w.set_version(g.version).unwrap();
        g.metadata
            .iter()
            .for_each(|(key, value): (&str, Value<'_>)| w.set_value(key, value));
        let layout = w.finish().unwrap();
        let shorter = file.len().min(layout.header.len());
        assert!(layout.header[..shorter] == file[..shorter], "{path:?}");
    }
}

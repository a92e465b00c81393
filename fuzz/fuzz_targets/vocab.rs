//! Arbitrary bytes as the files of a vocabulary: each part begins with 0xFE and the number of a
//! file, so that one input can hold several. The tokenizer must load an accepted vocabulary or
//! refuse it with an error.
#![no_main]

use atta_convert::vocab::{self, VocabFiles, VocabOptions};
use atta_formats::{Gguf, Writer};
use atta_tokenizer::{Special, Tokenizer};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const NAMES: &[&str] = &[
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "config.json",
    "generation_config.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
    "tekken.json",
];

/// Rows of the embedding: more than any input has tokens.
const N_VOCAB: u64 = 4096;

fuzz_target!(|data: &[u8]| {
    let mut files = VocabFiles::default();
    for part in data.split(|&byte| byte == 0xFE) {
        let Some((&number, bytes)) = part.split_first() else {
            continue;
        };
        files.insert(NAMES[usize::from(number) % NAMES.len()], bytes.to_vec());
    }
    for pre in [None, Some("gpt-2".to_owned())] {
        let mut out = Writer::new();
        if vocab::write(&files, N_VOCAB, &VocabOptions { pre }, &mut out).is_ok() {
            encode(out);
        }
    }
});

fn encode(written: Writer) {
    let header = written
        .finish()
        .expect("keys of a vocabulary are short")
        .header;
    let n_bytes = header.len() as u64;
    let metadata = Gguf::parse(Arc::new(header), n_bytes)
        .expect("it was written by us")
        .metadata;
    let Ok(tokenizer) = Tokenizer::from_metadata(&metadata) else {
        return;
    };
    assert_eq!(tokenizer.n_vocab() as u64, N_VOCAB);
    std::hint::black_box(tokenizer.encode("a b  ab\n<s>é 12", Special::Parse));
}

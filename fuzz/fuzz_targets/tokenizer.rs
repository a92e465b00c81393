//! Arbitrary bytes as a vocabulary and a text: either a whole GGUF file, or the parts of a
//! vocabulary, which reaches more code. Parts are separated by 0xFE and their elements by 0xFF,
//! bytes that UTF-8 never contains: one byte for the pre-tokenizer and one for the flags, then
//! tokens, merges, token types (one byte each) and the text.
#![no_main]

use atta_formats::{Gguf, Metadata, SharedBytes, Writer};
use atta_tokenizer::{Special, StreamDecoder, Tokenizer};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const PRE: &[&str] = &[
    "llama-bpe",
    "gpt-2",
    "qwen2",
    "qwen35",
    "smollm",
    "tekken",
    "gpt-4o",
    "deepseek-coder",
    "deepseek-llm",
    "deepseek-v3",
    "falcon",
    "gemma4",
    "default",
    "jais-2",
    "exaone-moe",
    "chameleon",
    "youtu",
    "bloom",
    "jina-v2-de",
    "unknown",
];

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"GGUF") {
        let Some((metadata, text)) = parse(data.to_vec()) else {
            return;
        };
        check(&metadata, &text);
    } else if let Some((metadata, text)) = assemble(data) {
        check(&metadata, text);
    }
});

/// The metadata of a file, and the bytes behind its header as the text.
fn parse(file: Vec<u8>) -> Option<(Metadata, Vec<u8>)> {
    let n_bytes = file.len() as u64;
    let shared: SharedBytes = Arc::new(file.clone());
    let gguf = Gguf::parse(shared, n_bytes).ok()?;
    let text = file
        .get(gguf.data_offset as usize..)
        .unwrap_or_default()
        .to_vec();
    Some((gguf.metadata, text))
}

fn assemble(data: &[u8]) -> Option<(Metadata, &[u8])> {
    let (&[pre, flags], rest) = data.split_first_chunk::<2>()?;
    let mut parts = rest.splitn(4, |&byte| byte == 0xFE);
    let mut list = || parts.next().unwrap_or_default();
    let tokens = list();
    let merges = list();
    let kinds = list();
    let text = list();
    let mut tokens: Vec<&[u8]> = tokens.split(|&byte| byte == 0xFF).collect();
    let ascii: Vec<[u8; 1]> = (b'!'..=b'~').map(|byte| [byte]).collect();
    if flags & 1 == 0 {
        tokens.extend(ascii.iter().map(|byte| &byte[..]));
        tokens
            .extend(["Ġ", "Ċ", "Ã", "©", "▁", "<0x0A>", "<0xC3>", "▁a", "▁中"].map(str::as_bytes));
    }
    let n_vocab = tokens.len();
    let mut writer = Writer::new();
    writer.set_str(
        "tokenizer.ggml.model",
        ["gpt2", "llama", "gemma4", "bert"][usize::from(flags >> 1 & 3)],
    );
    writer.set_str("tokenizer.ggml.pre", PRE[usize::from(pre) % PRE.len()]);
    writer.set_strs("tokenizer.ggml.tokens", &tokens);
    writer.set_strs(
        "tokenizer.ggml.merges",
        &merges.split(|&byte| byte == 0xFF).collect::<Vec<_>>(),
    );
    let kind = |i: usize| kinds.get(i).map_or(1, |&byte| i32::from(byte % 9));
    writer.set_i32s(
        "tokenizer.ggml.token_type",
        &(0..n_vocab).map(kind).collect::<Vec<_>>(),
    );
    let score = |i: usize| {
        kinds
            .get(i)
            .map_or(-(i as f32), |&byte| f32::from_bits(u32::from(byte) << 24))
    };
    writer.set_f32s(
        "tokenizer.ggml.scores",
        &(0..n_vocab).map(score).collect::<Vec<_>>(),
    );
    writer.set_str(
        "general.name",
        if flags & 8 == 0 { "fuzz" } else { "Phi-3 fuzz" },
    );
    writer.set_u32("tokenizer.ggml.bos_token_id", u32::from(flags));
    writer.set_bool("tokenizer.ggml.normalizer.lowercase", flags & 16 == 0);
    writer.set_bool("tokenizer.ggml.normalizer.strip_accents", flags & 32 == 0);
    let header = writer.finish().ok()?.header;
    let n_bytes = header.len() as u64;
    Some((
        Gguf::parse(Arc::new(header), n_bytes)
            .expect("it was written by us")
            .metadata,
        text,
    ))
}

fn check(metadata: &Metadata, text: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_metadata(metadata) else {
        return;
    };
    for special in [Special::Plain, Special::Parse] {
        let ids = tokenizer.encode(text, special);
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.n_vocab()));
        // Each byte gives at most one token, except U+FFFD and the prefix, which give three.
        assert!(ids.len() <= 3 * text.len() + 3);
        check_decoding(&tokenizer, &ids);
    }
    check_decoding(&tokenizer, &[0, 1, u32::MAX, tokenizer.n_vocab() as u32, 2]);
}

/// Streaming and decoding all tokens at once give the same text.
fn check_decoding(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut stream = StreamDecoder::new(tokenizer);
    let text: String = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(
        text + &stream.flush(),
        String::from_utf8_lossy(&tokenizer.decode(ids))
    );
    for &id in ids {
        std::hint::black_box((
            tokenizer.kind(id),
            tokenizer.token_text(id),
            tokenizer.is_eog(id),
        ));
    }
}

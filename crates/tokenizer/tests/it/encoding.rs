//! Properties of encoding and decoding for arbitrary text.

use crate::vocabularies::{bpe_with_pre, small, write_bpe, write_spm, written};
use atta_tokenizer::{Special, StreamDecoder, Tokenizer};
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Text that exercises the rules of pre-tokenizers.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z]{1,8}",
        "[ \t\r\n]{1,4}",
        "[0-9]{1,7}",
        "'(s|S|ll|RE|x)",
        "[.,!?<|>/_=-]{1,3}",
        "[éÉЯя中あ한हि٣½\u{301}\u{3000}\u{85}]{1,4}",
        any::<char>().prop_map(String::from),
        Just("<|im_end|>".to_owned()),
        Just("👩‍👩‍👧".to_owned()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn stream(decoder: &mut StreamDecoder<&Tokenizer>, ids: &[u32]) -> String {
    let text: String = ids.iter().map(|&id| decoder.push(id)).collect();
    text + &decoder.flush()
}

/// Every vocabulary of the tests, built once.
fn tokenizers() -> &'static [Tokenizer] {
    static ALL: std::sync::OnceLock<Vec<Tokenizer>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let bpe = [
            "llama-bpe",
            "gpt-2",
            "qwen35",
            "deepseek-v3",
            "falcon",
            "tekken",
        ]
        .into_iter()
        .map(bpe_with_pre);
        bpe.chain(["spm.gguf", "gemma4.gguf"].map(small)).collect()
    })
}

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in texts()) {
        for tokenizer in tokenizers() {
            // SentencePiece decodes the space mark as a space.
            let text = text.replace('▁', "_");
            let ids = tokenizer.encode(&text, Special::Plain);
            prop_assert_eq!(String::from_utf8(tokenizer.decode(&ids)).unwrap(), text);
        }
    }

    #[test]
    fn streaming_equals_decoding_at_once(ids in prop::collection::vec(0_u32..1100, 0..40)) {
        for tokenizer in tokenizers() {
            let at_once = String::from_utf8_lossy(&tokenizer.decode(&ids)).into_owned();
            prop_assert_eq!(stream(&mut StreamDecoder::new(tokenizer), &ids), at_once);
        }
    }

    #[test]
    fn any_bytes_are_encoded(text in prop::collection::vec(any::<u8>(), 0..60)) {
        for tokenizer in tokenizers() {
            let ids = tokenizer.encode(&text, Special::Parse);
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.n_vocab()));
        }
    }

    #[test]
    fn the_bytes_of_tokens_are_the_text(text in texts()) {
        let tokenizer = &tokenizers()[1];
        let ids = tokenizer.encode(&text, Special::Parse);
        let bytes = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).into_owned());
        let bytes: Vec<u8> = bytes.collect();
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}

#[test]
fn sentencepiece_keeps_invalid_utf8_as_it_is() {
    let tokenizer = small("spm.gguf");
    let text = b"a\xFFbcd\xE2\x96c \xC3";
    assert_eq!(
        tokenizer.decode(&tokenizer.encode(text, Special::Plain)),
        text
    );
}

#[test]
fn byte_pairs_see_a_replacement_for_each_invalid_byte() {
    let tokenizer = bpe_with_pre("gpt-2");
    let replaced = tokenizer.encode("a\u{FFFD}\u{FFFD}b", Special::Plain);
    assert_eq!(tokenizer.encode(b"a\xE2\x96b", Special::Plain), replaced);
}

#[test]
fn an_empty_text_has_no_tokens() {
    assert!(
        tokenizers()
            .iter()
            .all(|tokenizer| tokenizer.encode("", Special::Parse).is_empty())
    );
}

#[test]
fn a_stream_holds_back_half_a_character() {
    let tokenizer =
        Tokenizer::from_metadata(&written(|w| write_bpe(w, &[("<|end|>", 3)], &["Ł Ļ"]))).unwrap();
    let id = |text: &str| tokenizer.token_id(text).unwrap();
    let mut stream = StreamDecoder::new(&tokenizer);
    let parts = ["a", "ð", "ŁĻ", "<|end|>", "Ĥ", "b"].map(|text| stream.push(id(text)));
    assert_eq!(parts, ["a", "", "", "", "🙂", "b"]);
    assert_eq!(
        (stream.push(id("ð")), stream.push(id("a"))),
        (String::new(), "\u{FFFD}a".to_owned())
    );
    assert_eq!(
        (stream.push(id("Ã")), stream.flush(), stream.flush()),
        (String::new(), "\u{FFFD}".into(), String::new())
    );
}

#[test]
fn the_first_space_of_sentencepiece_is_taken_away_at_the_start_only() {
    let tokens = [
        ("<unk>", 2, 0.0),
        ("<s>", 3, 0.0),
        ("</s>", 3, 0.0),
        ("▁a", 1, 0.0),
        ("▁▁", 1, 0.0),
    ];
    let tokenizer = Tokenizer::from_metadata(&written(|w| write_spm(w, &tokens))).unwrap();
    assert_eq!(tokenizer.decode(&[3, 3]), b"a a");
    assert_eq!(tokenizer.decode(&[4, 3]), b"  a");
    assert_eq!(
        stream(&mut StreamDecoder::after_prompt(&tokenizer), &[3, 3]),
        " a a"
    );
    assert_eq!(&*tokenizer.token_bytes(3), b" a");
}

#[test]
fn control_tokens_are_invisible_but_have_a_text() {
    let tokenizer = small("bpe.gguf");
    let ids = tokenizer.encode("a<|im_end|>b", Special::Parse);
    assert_eq!(tokenizer.decode(&ids), b"ab");
    assert_eq!(&*tokenizer.token_bytes(2), b"<|im_end|>");
    assert_eq!(
        (
            tokenizer.token_text(u32::MAX),
            &*tokenizer.token_bytes(u32::MAX)
        ),
        (&b""[..], &b""[..])
    );
}

#[test]
fn long_runs_of_one_character_are_encoded_in_linear_time() {
    let start = Instant::now();
    let runs = ["a", " ", "\n", "1", "é", "<"];
    for tokenizer in tokenizers() {
        for run in runs {
            let text = run.repeat((1 << 18) / run.len()) + "?";
            assert!(!tokenizer.encode(&text, Special::Parse).is_empty());
        }
    }
    // Half a second each on a slow machine; quadratic time would be minutes.
    assert!(
        start.elapsed() < Duration::from_millis(500) * (tokenizers().len() * runs.len()) as u32
    );
}

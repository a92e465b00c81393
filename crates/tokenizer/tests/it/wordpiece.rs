//! WordPiece: encoding of words, metadata, and decoding.

use crate::vocabularies::{spelled, write_wpm, written};
use atta_formats::Writer;
use atta_tokenizer::{Special, StreamDecoder, Tokenizer};

const TEXTS: &[&str] = &[
    "▁un", "▁unaff", "aff", "able", "▁able", "▁a", "▁.", "▁[", "▁]", "▁mask", "▁▁", "▁", "s", "▁É",
    "▁e", "▁中",
];

fn with(change: impl FnOnce(&mut Writer)) -> Tokenizer {
    let metadata = written(|writer| {
        write_wpm(writer, TEXTS);
        change(writer);
    });
    Tokenizer::from_metadata(&metadata).unwrap()
}

fn tokens(tokenizer: &Tokenizer, text: impl AsRef<[u8]>) -> Vec<String> {
    spelled(tokenizer, &tokenizer.encode(text, Special::Plain))
}

#[test]
fn a_word_is_covered_by_the_longest_tokens_or_unknown() {
    let tokenizer = with(|_| ());
    assert_eq!(
        tokens(&tokenizer, "unaffable able"),
        ["▁unaff", "able", "▁able"]
    );
    // No token continues with "f", and there is no backtracking to the shorter "▁un".
    assert_eq!(tokens(&tokenizer, "unafff a xa"), ["[UNK]", "▁a", "[UNK]"]);
    assert_eq!(tokens(&tokenizer, "a中a."), ["▁a", "▁中", "▁a", "▁."]);
    assert_eq!(tokens(&tokenizer, ""), [""; 0]);
}

#[test]
fn a_mark_in_the_text_begins_no_word() {
    let tokenizer = with(|_| ());
    assert_eq!(tokens(&tokenizer, "▁ a▁s"), ["▁▁", "▁a", "▁", "s"]);
    assert_eq!(tokens(&tokenizer, "a▁able s"), ["▁a", "▁", "able", "[UNK]"]);
}

#[test]
fn a_word_that_is_too_long_is_one_unknown_token() {
    let tokenizer = with(|_| ());
    let long = |n| format!("a{}", "s".repeat(n));
    assert_eq!(tokens(&tokenizer, long(99)).len(), 100);
    assert_eq!(
        tokens(&tokenizer, format!("{} a", long(100))),
        ["[UNK]", "▁a"]
    );
}

#[test]
fn invalid_utf8_is_dropped() {
    assert_eq!(
        tokens(&with(|_| ()), b"\xFFun\xE2\x96affable\x80"),
        ["▁unaff", "able"]
    );
}

#[test]
fn metadata_decide_about_case_and_accents() {
    assert_eq!(tokens(&with(|_| ()), "É"), ["▁e"]);
    let cased = with(|w| w.set_bool("tokenizer.ggml.normalizer.lowercase", false));
    assert_eq!(tokens(&cased, "É e"), ["▁É", "▁e"]);
    let bare = with(|w| {
        w.set_bool("tokenizer.ggml.normalizer.lowercase", false);
        w.set_bool("tokenizer.ggml.normalizer.strip_accents", true);
    });
    assert_eq!(tokens(&bare, "É é"), ["[UNK]", "▁e"]);
}

#[test]
fn marks_are_parsed_only_on_request() {
    let tokenizer = with(|_| ());
    assert_eq!(tokens(&tokenizer, "[MASK]"), ["▁[", "▁mask", "▁]"]);
    let parsed = tokenizer.encode("a[MASK]a", Special::Parse);
    assert_eq!(spelled(&tokenizer, &parsed), ["▁a", "[MASK]", "▁a"]);
}

#[test]
fn a_text_stands_between_cls_and_sep() {
    let tokenizer = with(|_| ());
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()),
        (Some(2), Some(3), Some(1))
    );
    assert!(tokenizer.add_bos() && tokenizer.add_eos());
    let named = with(|w| {
        w.set_u32("tokenizer.ggml.bos_token_id", 4);
        w.set_u32("tokenizer.ggml.eos_token_id", 4);
        w.set_bool("tokenizer.ggml.add_bos_token", false);
        w.set_bool("tokenizer.ggml.add_sep_token", false);
    });
    assert_eq!((named.bos(), named.eos()), (Some(2), Some(3)));
    assert!(!named.add_bos() && !named.add_eos());
}

#[test]
fn decoding_gives_words_with_spaces_between_them() {
    let tokenizer = with(|_| ());
    let ids = [
        &[2][..],
        &tokenizer.encode("Unaffable, a. É", Special::Plain),
        &[3],
    ]
    .concat();
    assert_eq!(
        spelled(&tokenizer, &ids),
        [
            "[CLS]", "▁unaff", "able", "[UNK]", "▁a", "▁.", "▁e", "[SEP]"
        ]
    );
    let text = tokenizer.decode(&ids);
    assert_eq!(String::from_utf8(text.clone()).unwrap(), " unaffable a. e");
    let mut stream = StreamDecoder::new(&tokenizer);
    assert_eq!(
        ids.iter()
            .map(|&id| stream.push(id))
            .collect::<String>()
            .into_bytes(),
        text
    );
    assert_eq!(tokenizer.decode(&ids[1..4]), b"unaffable");
}

//! The effects of metadata, and errors and warnings for wrong metadata.

use crate::vocabularies::{
    bpe_with_pre, golden_with, small, spelled, write_bpe, write_spm, written,
};
use atta_formats::Writer;
use atta_tokenizer::{Error, Special, TokenKind, Tokenizer};

const SPM: &[(&str, i32, f32)] = &[
    ("<unk>", 2, 0.0),
    ("<s>", 3, 0.0),
    ("</s>", 3, 0.0),
    ("▁", 1, -3.0),
    ("a", 1, -3.0),
    ("▁a", 1, -1.0),
    ("<|end|>", 3, 0.0),
    ("<tool>", 4, 0.0),
    ("<0x0A>", 6, 0.0),
];

fn spm_with(change: impl FnOnce(&mut Writer)) -> Result<Tokenizer, Error> {
    let metadata = written(|writer| {
        write_spm(writer, SPM);
        change(writer);
    });
    Tokenizer::from_metadata(&metadata)
}

fn bpe(special: &[(&str, i32)], change: impl FnOnce(&mut Writer)) -> Tokenizer {
    let metadata = written(|writer| {
        write_bpe(writer, special, &[]);
        change(writer);
    });
    Tokenizer::from_metadata(&metadata).unwrap()
}

#[test]
fn an_unknown_pre_tokenizer_is_the_default_one_and_a_loud_warning() {
    let tokenizer = bpe_with_pre("made-up");
    assert!(
        tokenizer.warnings()[0].contains("\"made-up\"")
            && tokenizer.warnings()[0].contains("DEGRADED")
    );
    let text = "I'm 12345 $x^2";
    assert_eq!(
        tokenizer.encode(text, Special::Plain),
        bpe_with_pre("default").encode(text, Special::Plain)
    );
}

#[test]
fn a_missing_pre_tokenizer_is_a_loud_warning() {
    let tokenizer = bpe_with_pre("");
    assert!(tokenizer.warnings()[0].contains("tokenizer.ggml.pre is missing"));
}

#[test]
fn missing_keys_and_other_models_are_errors_by_name() {
    let error = |write: fn(&mut Writer)| {
        Tokenizer::from_metadata(&written(write))
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(error(|_| ()), "tokenizer.ggml.model is missing");
    assert_eq!(
        error(|w| w.set_str("tokenizer.ggml.model", "llama")),
        "tokenizer.ggml.tokens is missing"
    );
    assert!(error(|w| w.set_str("tokenizer.ggml.model", "rwkv")).contains("got rwkv"));
    let without_merges = |w: &mut Writer| {
        w.set_str("tokenizer.ggml.model", "gpt2");
        w.set_strs("tokenizer.ggml.tokens", &["a"]);
    };
    assert_eq!(error(without_merges), "tokenizer.ggml.merges is missing");
}

#[test]
fn arrays_of_the_wrong_type_or_length_are_errors() {
    let short = spm_with(|w| w.set_f32s("tokenizer.ggml.scores", &[0.0]));
    assert!(matches!(
        short,
        Err(Error::Length {
            expected: 9,
            got: 1,
            ..
        })
    ));
    let short = spm_with(|w| w.set_i32s("tokenizer.ggml.token_type", &[1, 1]));
    assert!(matches!(
        short,
        Err(Error::Length {
            expected: 9,
            got: 2,
            ..
        })
    ));
    assert!(matches!(
        spm_with(|w| w.set_str("tokenizer.ggml.scores", "x")),
        Err(Error::Metadata(_))
    ));
    assert!(matches!(
        spm_with(|w| w.set_i32s("tokenizer.ggml.tokens", &[1])),
        Err(Error::Metadata(_))
    ));
    assert!(matches!(
        spm_with(|w| w.set_strs::<&str>("tokenizer.ggml.tokens", &[])),
        Err(Error::Count { got: 0, .. })
    ));
}

#[test]
fn scores_and_kinds_are_read_in_any_type_of_number() {
    let ids = |tokenizer: &Tokenizer| tokenizer.encode("ab a<tool>b", Special::Parse);
    let plain = spm_with(|w| {
        w.set_f32s(
            "tokenizer.ggml.scores",
            &[0., 0., 0., 1., 3., 2., 0., 0., 0.],
        )
    })
    .unwrap();
    let whole =
        spm_with(|w| w.set_i32s("tokenizer.ggml.scores", &[0, 0, 0, 1, 3, 2, 0, 0, 0])).unwrap();
    assert_eq!(ids(&plain), ids(&whole));
    let kinds: Vec<f32> = (0..9)
        .map(|id| f32::from(plain.kind(id) as u8) + 1.0)
        .collect();
    let floats = spm_with(|w| w.set_f32s("tokenizer.ggml.token_type", &kinds)).unwrap();
    assert!((0..9).all(|id| floats.kind(id) == plain.kind(id)));
}

#[test]
fn empty_lists_of_scores_and_kinds_are_as_none() {
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        assert!(spm_with(|w| w.set_strs::<&str>(key, &[])).is_ok(), "{key}");
    }
}

#[test]
fn scores_of_a_vocabulary_without_need_of_them_are_not_read() {
    bpe(&[("a", 1), ("b", 1)], |w| {
        w.set_i32s("tokenizer.ggml.scores", &[1])
    });
    bpe(&[("a", 1), ("b", 1)], |w| {
        w.set_str("tokenizer.ggml.scores", "none")
    });
}

#[test]
fn a_name_that_is_not_utf_8_changes_nothing() {
    let tokenizer = spm_with(|w| w.set_bytes("general.name", b"Phi-3 caf\xe9")).unwrap();
    let ids = tokenizer.encode("<|end|> \n a", Special::Parse);
    assert_eq!(spelled(&tokenizer, &ids), ["<|end|>", "▁a"]);
}

#[test]
fn bools_may_be_integers() {
    assert!(
        !spm_with(|w| w.set_u8("tokenizer.ggml.add_bos_token", 0))
            .unwrap()
            .add_bos()
    );
    assert!(
        spm_with(|w| w.set_i32("tokenizer.ggml.add_eos_token", 1))
            .unwrap()
            .add_eos()
    );
    assert!(spm_with(|w| w.set_u8("tokenizer.ggml.add_bos_token", 2)).is_err());
}

#[test]
fn ids_outside_the_vocabulary_are_ignored_with_a_warning() {
    let tokenizer = spm_with(|w| w.set_u32("tokenizer.ggml.eos_token_id", 9)).unwrap();
    assert_eq!(tokenizer.eos(), Some(2));
    assert!(tokenizer.warnings()[0].contains("eos_token_id is 9"));
}

#[test]
fn bos_is_added_by_metadata_else_by_the_kind_of_vocabulary() {
    assert!(spm_with(|_| ()).unwrap().add_bos());
    assert!(
        !spm_with(|w| w.set_bool("tokenizer.ggml.add_bos_token", false))
            .unwrap()
            .add_bos()
    );
    assert!(bpe_with_pre("llama-bpe").add_bos() && bpe_with_pre("tekken").add_bos());
    assert!(!bpe_with_pre("gpt-2").add_bos() && !bpe_with_pre("qwen2").add_bos());
    // llama.cpp insists for gemma 4.
    let gemma = golden_with("gemma4.gguf", |w| {
        w.set_bool("tokenizer.ggml.add_bos_token", false)
    });
    assert_eq!((gemma.bos(), gemma.add_bos()), (Some(2), true));
}

#[test]
fn generation_ends_by_metadata_and_by_token_text() {
    let tokenizer = spm_with(|_| ()).unwrap();
    assert_eq!(tokenizer.eog(), [2, 6]);
    let tokenizer = spm_with(|w| w.set_u32("tokenizer.ggml.eot_token_id", 7)).unwrap();
    assert!(tokenizer.is_eog(7) && !tokenizer.is_eog(1) && !tokenizer.is_eog(u32::MAX));
    assert!(small("bpe.gguf").is_eog(1) && small("bpe.gguf").is_eog(2));
}

#[test]
fn an_end_mark_of_one_family_is_text_in_another() {
    let special = [
        ("<|end|>", 3),
        ("<|return|>", 3),
        ("<|call|>", 3),
        ("<|channel|>", 3),
    ];
    let gpt_oss = bpe(&special, |w| w.set_u32("tokenizer.ggml.eos_token_id", 1));
    assert_eq!(gpt_oss.eog(), [1, 2]);
    assert_eq!(
        (gpt_oss.kind(0), gpt_oss.kind(3)),
        (TokenKind::UserDefined, TokenKind::UserDefined)
    );
    let gemma = bpe(&[("</s>", 1), ("<|tool_response>", 3)], |w| {
        w.set_u32("tokenizer.ggml.eos_token_id", 1)
    });
    assert_eq!((gemma.eog(), gemma.kind(0)), (&[1][..], TokenKind::Normal));
}

#[test]
fn a_control_mark_that_is_not_marked_is_corrected() {
    let tokenizer = bpe(
        &[("<|im_end|>", 1), ("<|fim_pad|>", 1), ("<|fim_middle|>", 1)],
        |_| (),
    );
    assert!((0..3).all(|id| tokenizer.kind(id) == TokenKind::Control));
    assert!(tokenizer.is_eog(0) && tokenizer.is_eog(1) && !tokenizer.is_eog(2));
}

#[test]
fn control_tokens_are_parsed_on_request_and_user_tokens_always() {
    let tokenizer = spm_with(|_| ()).unwrap();
    let ids = |special| spelled(&tokenizer, &tokenizer.encode("a<s>a<tool>a", special));
    assert_eq!(ids(Special::Parse), ["▁a", "<s>", "▁a", "<tool>", "▁a"]);
    assert_eq!(ids(Special::Plain).last().unwrap(), "▁a");
    assert!(
        ids(Special::Plain).contains(&"<tool>".to_owned())
            && !ids(Special::Plain).contains(&"<s>".to_owned())
    );
}

#[test]
fn phi_3_marks_take_the_white_space_after_them() {
    let tokenizer = spm_with(|w| w.set_str("general.name", "Phi-3 Mini")).unwrap();
    let ids = tokenizer.encode("<|end|> \n a<s> a", Special::Parse);
    assert_eq!(
        spelled(&tokenizer, &ids),
        ["<|end|>", "▁a", "<s>", "▁", "▁a"]
    );
}

#[test]
fn jina_masks_take_the_white_space_before_them() {
    let tokenizer = bpe(&[("<mask>", 4)], |w| {
        w.set_str("tokenizer.ggml.pre", "jina-v2-de")
    });
    assert_eq!(
        spelled(&tokenizer, &tokenizer.encode("a  <mask> b", Special::Plain)),
        ["a", "<mask>", "Ġ", "b"]
    );
}

#[test]
fn longer_special_tokens_are_cut_out_first() {
    let tokenizer = bpe(&[("<a>", 4), ("<a><b>", 4), ("a>x", 4)], |_| ());
    assert_eq!(
        spelled(&tokenizer, &tokenizer.encode("<a><b>a<a>", Special::Plain)),
        ["<a><b>", "a", "<a>"]
    );
    assert_eq!(
        spelled(&tokenizer, &tokenizer.encode("<a>x", Special::Plain)).len(),
        2
    );
}

#[test]
fn merges_of_texts_that_are_no_tokens_are_counted_and_ignored() {
    let tokenizer = bpe(&[], |w| {
        w.set_strs("tokenizer.ggml.merges", &["a b", "q Q", "nospace", "", " "])
    });
    assert!(tokenizer.warnings()[0].starts_with("5 merges"));
    assert_eq!(
        spelled(&tokenizer, &tokenizer.encode("ab", Special::Plain)),
        ["a", "b"]
    );
}

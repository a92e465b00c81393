//! Models with sliding windows start from where the first part of another prompt ended.

use atta_engine::{
    Batcher, Engine,
    tokenizer::{Special, TokenKind},
};

use super::{Heard, Wish, alone, engine, options, submit, wish};

/// A prompt of a first part, a control token, and a question that is longer than windows.
fn prompt(engine: &Engine, control: u32, question: &str) -> Wish {
    let plain = |text: &str| engine.tokenizer().encode(text.as_bytes(), Special::Plain);
    let mut wish = wish(engine, "You are a fox. You live in a forest.", 5, 1);
    wish.prompt.push(control);
    wish.prompt
        .extend(plain(&question.repeat(50)).into_iter().take(150));
    wish
}

#[test]
fn a_prompt_with_the_same_first_part_starts_behind_it() {
    let engine = engine("models/gemma3.gguf");
    let n_vocab = engine.spec().n_vocab as u32;
    let is_control = |id: &u32| engine.tokenizer().kind(*id) == TokenKind::Control;
    let control = (0..n_vocab).rev().find(is_control).unwrap();
    let mut batcher = Batcher::new(&engine, &options(1, 1, 4)).unwrap();
    let mut heard = Heard::default();
    let n_first = engine
        .prompt_ids(b"You are a fox. You live in a forest.")
        .len();
    for (i, question) in ["Where? ", "Who is it? ", "How are you? "]
        .iter()
        .enumerate()
    {
        let wish = prompt(&engine, control, question);
        let id = submit(&mut batcher, &wish);
        heard.finish(&mut batcher);
        assert_eq!(
            heard.texts.remove(&id).unwrap_or_default(),
            alone(&engine, &wish).0
        );
        let expected = if i == 0 { 0 } else { n_first };
        assert_eq!(heard.done[&id].n_cached, expected, "{question}");
    }
}

//! Tests of the state machine on scripted logits: no model computes anything.

#[path = "../../tests/chat_model/mod.rs"]
mod chat_model;

use super::*;
use crate::{CallStart, Constraint, LoadOptions, NamePlace, Sampling};
use chat_model::{CHATML, CHATML_TEMPLATE, chat_model};

const PROMPT: [u32; 3] = [1, 40, 50];
const MARKER: &str = "<tool_call>";

/// The vocabulary of a golden model, with a marker of tool calls.
fn engine() -> Engine {
    let markers = [&CHATML[..], &[(MARKER, 3), ("</tool_call>", 3)]].concat();
    let bytes = chat_model("../stories.gguf", CHATML_TEMPLATE, &markers).leak();
    Engine::from_static("vocabulary", bytes, &LoadOptions::default()).unwrap()
}

fn greedy(n_predict: usize) -> GenerateOptions {
    GenerateOptions {
        n_predict,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        ..GenerateOptions::default()
    }
}

/// Logits after a text, `[n_vocab]`.
type Logits<'a> = dyn Fn(&[u32]) -> Vec<f32> + 'a;

/// Random logits that depend on the whole text.
fn noise(engine: &Engine, width: f32) -> impl Fn(&[u32]) -> Vec<f32> {
    let n_vocab = engine.spec().n_vocab as u64;
    move |text| {
        let mix = |hash: u64, x: u64| {
            (hash ^ x)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        };
        let hash = text.iter().fold(7, |hash, &id| mix(hash, id.into()));
        let unit = |id| (mix(mix(hash, id), 1) >> 40) as f32 / (1 << 24) as f32;
        (0..n_vocab).map(|id| width * unit(id)).collect()
    }
}

/// Logits of a model that writes `text` after the prompt, and ends there.
fn script(engine: &Engine, text: &str) -> impl Fn(&[u32]) -> Vec<f32> {
    let ids = engine.prompt_ids(text.trim_start().as_bytes()).split_off(1);
    let end = engine.tokenizer().eos().unwrap();
    let noise = noise(engine, 1.0);
    move |text| {
        let next = ids.get(text.len() - PROMPT.len()).copied().unwrap_or(end);
        let mut logits = noise(text);
        logits[next as usize] += 20.0;
        logits
    }
}

/// How a generation went.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    /// Tokens of the text, including pending ones.
    tokens: Vec<u32>,
    finish_reason: FinishReason,
    n_closing_bytes: usize,
}

impl Outcome {
    fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Tokens that were announced.
    fn ids(&self) -> Vec<u32> {
        let ids = self.events.iter().filter_map(|event| match event {
            Event::Token { id, .. } => Some(*id),
            _ => None,
        });
        ids.collect()
    }
}

/// A text that is generated, with a draft at each step.
struct Case<'a> {
    engine: &'a Engine,
    options: &'a GenerateOptions,
    logits: &'a Logits<'a>,
    n_ctx: usize,
}

impl Case<'_> {
    /// Generates until the text ends or `n_events` were taken. Returns the number of steps, too.
    fn run(&self, n_events: usize, draft: &dyn Fn(&[u32]) -> Vec<u32>) -> (Outcome, usize) {
        let mut generation = Generation::new(self.engine, self.options).unwrap();
        let mut tokens = PROMPT.to_vec();
        let mut events = Vec::new();
        let mut n_steps = 0;
        loop {
            generation.limit(self.n_ctx - tokens.len());
            let has_ended = generation.finish_reason().is_some();
            if has_ended {
                generation.finish().unwrap();
            }
            while let Some(event) = generation.next_event() {
                events.push(event);
                if events.len() == n_events {
                    generation.interrupt();
                }
            }
            let input = generation.take_input();
            tokens.truncate(tokens.len() - input.rollback);
            tokens.extend_from_slice(input.tokens);
            if has_ended || generation.finish_reason() == Some(FinishReason::Interrupted) {
                break;
            }
            let n_evaluated = tokens.len();
            tokens.extend(draft(&tokens));
            tokens.truncate(self.n_ctx);
            let rows: Vec<Vec<f32>> = (n_evaluated..=tokens.len())
                .map(|n| (self.logits)(&tokens[..n]))
                .collect();
            let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
            let output = StepOutput {
                logits: &rows,
                tokens: &tokens,
                room: self.n_ctx - tokens.len(),
            };
            generation.advance(output).unwrap();
            n_steps += 1;
        }
        let tokens = tokens.split_off(PROMPT.len());
        assert_eq!(generation.n_generated(), tokens.len());
        let outcome = Outcome {
            events,
            tokens,
            finish_reason: generation.finish_reason().unwrap(),
            n_closing_bytes: generation.n_closing_bytes(),
        };
        (outcome, n_steps)
    }

    fn plain(&self) -> Outcome {
        self.run(usize::MAX, &|_| Vec::new()).0
    }

    /// Asserts that drafts change nothing: right and wrong ones, and those that are right for a
    /// while; and wherever the text is interrupted.
    fn assert_drafts_change_nothing(&self) {
        let plain = self.plain();
        let right = |text: &[u32], n: usize| -> Vec<u32> {
            let rest = plain.tokens.get(text.len() - PROMPT.len()..);
            rest.unwrap_or_default().iter().copied().take(n).collect()
        };
        let wrong = |text: &[u32]| vec![5 + text.len() as u32 % 7; 3];
        let half = |text: &[u32]| [right(text, text.len() % 4), wrong(text)].concat();
        assert_eq!(self.run(usize::MAX, &|text| right(text, 5)).0, plain);
        assert_eq!(self.run(usize::MAX, &wrong).0, plain);
        assert_eq!(self.run(usize::MAX, &half).0, plain);
        for n_events in (1..=plain.events.len()).step_by(2) {
            let interrupted = self.run(n_events, &|_| Vec::new()).0;
            assert_eq!(interrupted.events, plain.events[..n_events]);
            assert!(interrupted.tokens.starts_with(&interrupted.ids()));
            assert_eq!(self.run(n_events, &|text| right(text, 5)).0, interrupted);
            assert_eq!(self.run(n_events, &half).0, interrupted);
        }
    }
}

#[test]
fn a_stop_string_ends_a_text_wherever_its_tokens_begin() {
    let engine = engine();
    let text = " the little dog ran to the tree and sat down";
    for stop in ["dog", "le do", "g ran t", "tree and sat"] {
        let options = GenerateOptions {
            stop: vec!["never".to_owned(), stop.to_owned()],
            ..greedy(100)
        };
        let case = Case {
            engine: &engine,
            options: &options,
            logits: &script(&engine, text),
            n_ctx: 100,
        };
        let plain = case.plain();
        assert_eq!(plain.text(), text[..text.find(stop).unwrap()]);
        assert_eq!(plain.finish_reason, FinishReason::Stop);
        case.assert_drafts_change_nothing();
    }
}

#[test]
fn text_that_could_begin_a_stop_string_is_emitted_at_the_end() {
    let engine = engine();
    let text = " the little dog";
    let options = GenerateOptions {
        stop: vec![" dogs".to_owned()],
        ..greedy(100)
    };
    let case = Case {
        engine: &engine,
        options: &options,
        logits: &script(&engine, text),
        n_ctx: 100,
    };
    let plain = case.plain();
    assert_eq!(plain.text(), text);
    // The end-of-generation token is part of the text, and not announced.
    assert_eq!(plain.tokens.len(), plain.ids().len() + 1);
    assert_eq!(plain.events.last(), Some(&Event::Text(" dog".to_owned())));
    case.assert_drafts_change_nothing();
}

#[test]
fn a_text_ends_at_its_length_and_at_the_end_of_the_context() {
    let engine = engine();
    let logits = noise(&engine, 8.0);
    let options = greedy(12);
    for (n_ctx, n_tokens) in [(100, 12), (PROMPT.len() + 12, 12), (PROMPT.len() + 7, 8)] {
        let case = Case {
            engine: &engine,
            options: &options,
            logits: &logits,
            n_ctx,
        };
        let plain = case.plain();
        assert_eq!(plain.tokens.len(), n_tokens);
        assert_eq!(plain.finish_reason, FinishReason::Length);
        case.assert_drafts_change_nothing();
    }
}

#[test]
fn sampled_texts_and_their_log_probabilities_do_not_depend_on_drafts() {
    let engine = engine();
    let logits = noise(&engine, 8.0);
    for seed in 0..3 {
        let sampling = Sampling {
            seed,
            repeat_penalty: 1.2,
            ..Sampling::default()
        };
        let options = GenerateOptions {
            sampling,
            n_logprobs: Some(2),
            ..greedy(20)
        };
        let case = Case {
            engine: &engine,
            options: &options,
            logits: &logits,
            n_ctx: 100,
        };
        case.assert_drafts_change_nothing();
    }
}

#[test]
fn tokens_that_a_constraint_forces_come_with_the_token_before() {
    let engine = engine();
    let options = GenerateOptions {
        constraint: Some(Constraint::Regex(
            "(yes, of course I will|no, and never again)".to_owned(),
        )),
        ..greedy(50)
    };
    let case = Case {
        engine: &engine,
        options: &options,
        logits: &noise(&engine, 8.0),
        n_ctx: 100,
    };
    let (plain, n_steps) = case.run(usize::MAX, &|_| Vec::new());
    assert!(n_steps < plain.tokens.len(), "{n_steps}: {plain:?}");
    assert_eq!(plain.finish_reason, FinishReason::Stop);
    case.assert_drafts_change_nothing();
}

#[test]
fn a_draft_that_agrees_saves_steps() {
    let engine = engine();
    let options = greedy(20);
    let case = Case {
        engine: &engine,
        options: &options,
        logits: &noise(&engine, 8.0),
        n_ctx: 100,
    };
    let plain = case.plain();
    let draft = |text: &[u32]| {
        let rest = &plain.tokens[text.len() - PROMPT.len()..];
        rest.iter().copied().take(4).collect()
    };
    let (drafted, n_steps) = case.run(usize::MAX, &draft);
    assert_eq!((drafted, n_steps), (plain.clone(), 4));
}

#[test]
fn a_text_that_is_cut_is_completed_by_its_constraint() {
    let engine = engine();
    let options = GenerateOptions {
        constraint: Some(Constraint::Regex("[a-z ]*[.]".to_owned())),
        on_length: crate::OnLength::Close,
        ..greedy(6)
    };
    let case = Case {
        engine: &engine,
        options: &options,
        logits: &noise(&engine, 8.0),
        n_ctx: 100,
    };
    let plain = case.plain();
    assert_eq!(plain.finish_reason, FinishReason::Length);
    assert_eq!(plain.n_closing_bytes, 1);
    assert!(plain.text().ends_with('.'));
    // Interrupted in front of the closing text, it is not there.
    let interrupted = case.run(plain.events.len() - 1, &|_| Vec::new()).0;
    assert_eq!(interrupted.finish_reason, FinishReason::Interrupted);
    assert_eq!(interrupted.n_closing_bytes, 0);
    case.assert_drafts_change_nothing();
}

#[test]
fn a_text_without_a_short_end_stays_cut() {
    let engine = engine();
    let options = GenerateOptions {
        constraint: Some(Constraint::Regex("[a-z ]{20000}[.]".to_owned())),
        on_length: crate::OnLength::Close,
        ..greedy(6)
    };
    let case = Case {
        engine: &engine,
        options: &options,
        logits: &noise(&engine, 8.0),
        n_ctx: 100,
    };
    let plain = case.plain();
    assert_eq!(plain.finish_reason, FinishReason::Length);
    assert_eq!((plain.tokens.len(), plain.n_closing_bytes), (6, 0));
    assert_eq!(plain.ids(), plain.tokens);
    assert_ne!(plain.text(), "");
}

/// Options with which tool calls begin everywhere, and the logits of a model that means none.
fn eager(engine: &Engine, seed: u64) -> GenerateOptions {
    let marker = engine.tokenizer().token_id(MARKER).unwrap();
    let lark = format!(
        "start: TEXT? (<[{marker}]> CALL)?\nTEXT: /[a-z ]+/\n\
         CALL: /\\{{\"name\":\"(feed_ant|feed_owl)\"\\}}/\n"
    );
    GenerateOptions {
        constraint: Some(Constraint::Lark(lark)),
        call_start: Some(CallStart {
            marker,
            name: NamePlace::FirstValue,
            thoughts: None,
        }),
        sampling: Sampling {
            seed,
            logit_bias: vec![(marker, 1000.0)],
            ..Sampling::default()
        },
        n_logprobs: Some(1),
        ..greedy(30)
    }
}

#[test]
fn a_call_that_is_rolled_back_leaves_nothing_and_is_never_announced() {
    let engine = engine();
    let logits = noise(&engine, 8.0);
    for seed in 0..2 {
        let options = eager(&engine, seed);
        let case = Case {
            engine: &engine,
            options: &options,
            logits: &logits,
            n_ctx: 200,
        };
        let plain = case.plain();
        let tentative = plain
            .events
            .iter()
            .filter(|event| **event == Event::Tentative);
        // More than one call was rolled back; the last may be cut by the length.
        assert!(tentative.count() > 40, "{plain:?}");
        assert!(plain.text().matches(MARKER).count() == 0, "{plain:?}");
        assert_eq!(plain.tokens, plain.ids());
        case.assert_drafts_change_nothing();
    }
}

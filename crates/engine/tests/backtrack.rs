//! Calls that a model begins and does not mean: they are taken back, and nothing is left of them.

#![cfg(feature = "batch")]
#![cfg(feature = "chat")]

mod chat_model;

use std::{collections::HashMap, ops::ControlFlow, time::Duration};

use atta_engine::{
    Batcher, BatcherOptions, Constraint, Engine, Event, FinishReason, GenerateOptions, Job, JobId,
    LoadOptions, Sampling, Session, SessionOptions, Summary, Update,
    chat::{self, Chat, ChatFormat, ChatInput, Message, Template, ToolUse},
    tools::{ToolChoice, ToolSet},
};
use chat_model::{CHATML, CHATML_TEMPLATE, chat_model};

const N_CTX: usize = 400;
const MARKER: &str = "<tool_call>";

/// Models that have never heard of tools, with markers of calls in their vocabulary: as control
/// tokens, and as tokens that stand for themselves.
fn engines() -> [Engine; 2] {
    [3, 4].map(|kind| {
        let template = format!("{CHATML_TEMPLATE}{{# {MARKER} #}}");
        let markers = [&CHATML[..], &[(MARKER, kind), ("</tool_call>", kind)]].concat();
        let bytes = chat_model("../stories.gguf", &template, &markers).leak();
        Engine::from_static("chat model", bytes, &LoadOptions::default()).unwrap()
    })
}

fn tools(choice: ToolChoice) -> ToolUse {
    ToolUse {
        tools: ToolSet::parse(r#"[{"name": "feed_ant"}, {"name": "feed_owl"}]"#).unwrap(),
        choice,
        parallel: true,
    }
}

/// Options with which the marker comes wherever it may, though the model thinks little of it.
fn eager(engine: &Engine, n_predict: usize, seed: u64) -> GenerateOptions {
    let logit_bias = vec![(engine.tokenizer().token_id(MARKER).unwrap(), 1000.0)];
    GenerateOptions {
        n_predict,
        sampling: Sampling {
            logit_bias,
            seed,
            ..Sampling::default()
        },
        ..Default::default()
    }
}

/// A prompt, and the options for its answer.
struct Asked {
    prompt: Vec<u32>,
    options: GenerateOptions,
}

fn ask(engine: &Engine, choice: ToolChoice, n_predict: usize, seed: u64) -> Asked {
    let (format, _) = ChatFormat::of_model(&engine.templates()).unwrap();
    let messages = [Message::user("Once upon a time")];
    let tools = tools(choice);
    let input = ChatInput {
        messages: &messages,
        tools: Some(&tools),
        ..ChatInput::default()
    };
    let options = eager(engine, n_predict, seed);
    let asked = format.prompt(&input, options.reply()).unwrap();
    Asked {
        prompt: asked.prompt.ids,
        options: options.with_rules(asked.rules),
    }
}

fn session(engine: &Engine) -> Session {
    engine
        .session(&SessionOptions {
            n_ctx: Some(N_CTX),
            ..SessionOptions::default()
        })
        .unwrap()
}

/// The events of a text.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    ids: Vec<u32>,
    n_held: usize,
}

impl Heard {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Text(piece) => self.text.push_str(&piece),
            Event::Tentative => self.n_held += 1,
            Event::Token { n, id, .. } => {
                self.ids.push(id);
                assert_eq!(n, self.ids.len());
            }
            Event::Prompt { .. } | Event::Note(_) => {}
        }
    }
}

fn write(session: &mut Session, asked: &Asked) -> (Heard, Summary) {
    let mut heard = Heard::default();
    let summary = session
        .generate(&asked.prompt, &asked.options)
        .unwrap()
        .run(|event| {
            heard.hear(event);
            ControlFlow::Continue(())
        });
    (heard, summary.unwrap())
}

/// Checks that the session holds the tokens of the events and the pending ones, and no others.
fn check(engine: &Engine, session: &mut Session, asked: &Asked, heard: &Heard, summary: &Summary) {
    let n_prompt = asked.prompt.len();
    session.append(&summary.pending).unwrap();
    assert_eq!(summary.n_generated, session.tokens().len() - n_prompt);
    assert!(session.tokens()[n_prompt..].starts_with(&heard.ids));
    let mut other = self::session(engine);
    other.append(session.tokens()).unwrap();
    assert_eq!(
        session.logits(),
        other.logits(),
        "keys and values are those of the text"
    );
}

#[test]
fn nothing_is_left_of_a_call_that_was_taken_back() {
    for (engine, seed) in engines()
        .iter()
        .flat_map(|engine| (0..4).map(move |seed| (engine, seed)))
    {
        let marker = engine.tokenizer().token_id(MARKER).unwrap();
        let asked = ask(engine, ToolChoice::Auto, 60, seed);
        let mut session = session(engine);
        let (heard, summary) = write(&mut session, &asked);
        // The last call is cut by the length before it can be judged, and told of as it is.
        let n_told = heard
            .ids
            .iter()
            .position(|&id| id == marker)
            .unwrap_or(heard.ids.len());
        assert!(
            n_told > 10 && heard.ids.len() - n_told < 12 && heard.n_held > 60,
            "{heard:?}"
        );
        assert!(heard.text.matches(MARKER).count() <= 1, "{heard:?}");
        check(engine, &mut session, &asked, &heard, &summary);
    }
}

/// A prompt after which a call comes whose name is any: the model is not doubted, and the mark that
/// ends the name comes at once.
fn ask_certain(engine: &Engine) -> Asked {
    let ids = ["\"", MARKER].map(|text| engine.tokenizer().token_id(text).unwrap());
    let mut asked = ask(engine, ToolChoice::Auto, 24, 1);
    let call = r#"\{"name":[^"]*"[^"]*"[a-z ]*"#;
    let lark = format!(
        "start: TEXT? (<[{}]> CALL)?\nTEXT: /[a-z ]+/\nCALL: /{call}/\n",
        ids[1]
    );
    asked.options.constraint = Some(Constraint::Lark(lark));
    asked.options.sampling.logit_bias = ids.map(|id| (id, 1000.0)).to_vec();
    asked.options.n_logprobs = Some(2);
    asked
}

#[test]
fn a_call_that_is_certain_is_told_of_from_its_marker_on() {
    let [engine, _] = engines();
    let [quote, marker] = ["\"", MARKER].map(|text| engine.tokenizer().token_id(text).unwrap());
    let asked = ask_certain(&engine);
    let mut session = session(&engine);
    let mut heard = Heard::default();
    let mut chosen = Vec::new();
    let generated = session
        .generate(&asked.prompt, &asked.options)
        .unwrap()
        .run(|event| {
            if let Event::Token {
                id,
                logprobs: Some(logprobs),
                ..
            } = &event
            {
                assert_eq!(logprobs.chosen.id, *id);
                chosen.push(*id);
            }
            heard.hear(event);
            ControlFlow::Continue(())
        });
    let summary = generated.unwrap();
    assert!(
        heard.text.starts_with("<tool_call>{\"name\":\"\"") && heard.n_held > 3,
        "{heard:?}"
    );
    assert!(
        chosen[..2] == [marker, quote] && heard.ids.len() > chosen.len(),
        "{chosen:?} of {heard:?}"
    );
    assert_eq!(heard.ids.iter().filter(|&&id| id == marker).count(), 1);
    check(&engine, &mut session, &asked, &heard, &summary);
}

#[test]
fn a_call_that_is_interrupted_or_stopped_while_it_is_told_of_has_no_more_tokens_than_were_told() {
    let [engine, _] = engines();
    for n in 1..5 {
        let asked = ask_certain(&engine);
        let mut session = session(&engine);
        let mut heard = Heard::default();
        let generated = session
            .generate(&asked.prompt, &asked.options)
            .unwrap()
            .run(|event| {
                heard.hear(event);
                if heard.ids.len() == n {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        let summary = generated.unwrap();
        assert_eq!(
            (summary.finish_reason, summary.n_generated, heard.ids.len()),
            (FinishReason::Interrupted, n, n)
        );
        assert!(
            session.logits().is_some() || !summary.pending.is_empty(),
            "it can be gone on with"
        );
        check(&engine, &mut session, &asked, &heard, &summary);
    }
    let mut asked = ask_certain(&engine);
    let mut session = session(&engine);
    asked.options.stop = vec!["{\"na".to_owned()];
    let (heard, summary) = write(&mut session, &asked);
    assert_eq!(
        (heard.text.as_str(), summary.finish_reason),
        (MARKER, FinishReason::Stop)
    );
    check(&engine, &mut session, &asked, &heard, &summary);
}

#[test]
fn a_call_that_must_come_is_not_held_back() {
    for engine in engines() {
        let (heard, _) = write(
            &mut session(&engine),
            &ask(&engine, ToolChoice::Required, 60, 1),
        );
        assert!(
            heard.n_held == 0 && heard.text.contains("feed_"),
            "{heard:?}"
        );
    }
}

#[test]
fn the_text_is_the_same_beside_others() {
    let [engine, _] = engines();
    let session_options = SessionOptions {
        n_ctx: Some(N_CTX),
        n_batch: Some(32),
        n_forks: 3,
        ..SessionOptions::default()
    };
    let options = BatcherOptions {
        session: session_options,
        n_jobs: 3,
        max_gap: Duration::from_millis(5),
        cache: None,
    };
    let mut batcher = Batcher::new(&engine, &options).unwrap();
    let (mut all, mut expected): (HashMap<JobId, Heard>, Vec<(JobId, Heard)>) = Default::default();
    for seed in 0..6 {
        let asked = ask(&engine, ToolChoice::Auto, 30 + 5 * seed as usize, seed);
        let job = Job::new(&engine, asked.prompt.clone(), &asked.options).unwrap();
        expected.push((
            batcher.submit(job).unwrap(),
            write(&mut session(&engine), &asked).0,
        ));
    }
    while !batcher.is_idle() {
        let mut hear = |id, update: Update<'_>| {
            match update {
                Update::Event(event) => all.entry(id).or_default().hear(event),
                Update::Failed(error) => panic!("{error}"),
                Update::Done(_) | Update::Embedding(_) => {}
            }
            ControlFlow::Continue(())
        };
        batcher.step(&mut hear).unwrap();
    }
    for (id, heard) in expected {
        assert!(heard.n_held > 0);
        assert_eq!(all.remove(&id).unwrap(), heard);
    }
}

#[test]
fn what_was_held_when_a_text_was_interrupted_is_none_of_it() {
    let [_, engine] = engines();
    let mut chat = Chat::new(
        session(&engine),
        Template::of_model(&engine.templates()).unwrap().0,
    );
    chat.set_tools(Some(tools(ToolChoice::Auto)));
    chat.push(Message::user("Once"));
    for n in 1..20 {
        let mut n_held = 0;
        let mut heard = Vec::new();
        let n_messages = chat.messages().len();
        let answered = chat.answer_calling(&eager(&engine, 60, 1), |event| {
            match event {
                chat::ChatEvent::Event(Event::Tentative) => n_held += 1,
                chat::ChatEvent::Event(Event::Token { id, .. }) => heard.push(id),
                _ => {}
            }
            if n_held == n {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let Summary {
            finish_reason,
            n_generated,
            ..
        } = answered.unwrap().reply.summary;
        assert_eq!(
            (finish_reason, n_generated),
            (FinishReason::Interrupted, heard.len())
        );
        assert_eq!(
            chat.messages().len() > n_messages,
            !heard.is_empty(),
            "an answer without a token is none"
        );
        let mut other = Chat::new(
            session(&engine),
            Template::of_model(&engine.templates()).unwrap().0,
        );
        other.set_tools(Some(tools(ToolChoice::Auto)));
        other.restore(chat.messages().to_vec());
        let text = |chat: &Chat| engine.tokenizer().decode(&chat.prompt().unwrap().ids);
        assert_eq!(text(&chat), text(&other));
        assert!(chat.session().tokens().ends_with(&heard));
        chat.rewind(n_messages);
    }
}

//! `atta run --tools`: a message in, what the model makes of it out, as lines of JSON: a call in
//! each, or a text.
//!
//! `{"id": …, "name": …, "arguments": {…}}`, `{"content": "…"}`. What the model thinks is nobody's
//! business.

use std::ops::ControlFlow;

use atta::{
    FinishReason, KvType, LoadOptions,
    chat::{Chat, Heard, Message, ToolUse},
    tools::Piece,
};
use serde_json::json;

use crate::{
    args::{Length, RunArgs},
    cache::{Cache, Recalled},
    conversation,
    failure::Failure,
    input::{Limit, Text},
    interrupt::Interrupt,
    listener::Listener,
    load, report,
    stats::{Stats, StatsFile},
    tools,
};

use super::run::{inputs, prompt, reads_stdin};

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    if args.tools.takes_stdin() && reads_stdin(&args) {
        return Err(Failure::Usage(
            "--tools - takes standard input: give the prompt with -p TEXT".to_owned(),
        ));
    }
    let session = args
        .context
        .apply(args.model_flags.session_options(KvType::default()))?;
    let load_options = load::options(args.model.as_deref(), &args.model_flags, session)?;
    let load_options = LoadOptions {
        constrained: true,
        ..load_options
    };
    let prompt = prompt(&args)?;
    let file = StatsFile::create(args.report.stats_json.as_deref(), &inputs(&args))?;
    let mut stats = Stats::new();
    let give_up = || file.give_up(&Stats::new());
    let cache = Cache::open(&args.cache);
    let prepare = |cache| {
        let tools = tools::tool_use(&args.tools)?;
        prepare(&args, &load_options, (cache, tools), prompt, &mut stats)
    };
    let prepared = cache.and_then(|cache| interrupt.watch(give_up, || prepare(cache)));
    let result =
        prepared.and_then(|chat| answer(&args, chat, Listener::new(interrupt), &mut stats));
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// Loads the model and reads the message.
fn prepare(
    args: &RunArgs,
    options: &LoadOptions,
    (cache, tools): (Cache, Option<ToolUse>),
    prompt: Text,
    stats: &mut Stats,
) -> Result<Chat, Failure> {
    let engine = load::engine(args.model.as_deref(), options)?;
    stats.loaded(&engine);
    if args.report.verbose {
        report::model(&load::name(args.model.as_deref()), &engine);
    }
    let mut chat = conversation::open(&engine, &options.session, None)?;
    let text = String::from_utf8(prompt.read(&Limit::of_prompt(&engine, chat.session()))?);
    let text = text.map_err(|_| {
        Failure::Usage("with --tools the prompt is a message, which must be UTF-8".to_owned())
    })?;
    chat.set_tools(tools);
    chat.push(Message::user(text));
    cache.give_to(&mut chat);
    stats.account(&engine);
    Ok(chat)
}

fn answer(
    args: &RunArgs,
    mut chat: Chat,
    mut listener: Listener,
    stats: &mut Stats,
) -> Result<(), Failure> {
    let options = args.sampling.generate_options(Length::Bounded)?;
    let ended = chat.answer_calling(&options, |heard| match heard {
        Heard::Event(event) => listener.hear(event),
        Heard::Piece(Piece::Call(call)) => listener.text(&(tools::line(call) + "\n")),
        Heard::Piece(_) => ControlFlow::Continue(()),
    });
    if let Ok(answer) = &ended
        && !answer.outcome.text.trim().is_empty()
    {
        // If nobody reads it, that is found out below.
        let _ = listener.text(&format!("{}\n", json!({ "content": answer.outcome.text })));
    }
    let written = listener.end(stats);
    let reply = ended?.reply;
    let recalled = Recalled {
        n_tokens: reply.n_cached,
        time: reply.restore_time,
    };
    stats.recalled(recalled);
    stats.generated(reply.summary.clone());
    stats.account(chat.session().engine());
    if args.report.verbose {
        report::recalled(recalled);
        report::speed(&reply.summary);
    }
    report::expectation(chat.session().engine(), &reply.summary);
    if args.report.mem_report {
        report::memory(chat.session().engine());
    }
    written?;
    match reply.summary.finish_reason {
        FinishReason::Interrupted => Err(Failure::Interrupted),
        FinishReason::Stop | FinishReason::Length => Ok(()),
    }
}

//! `atta run --tools`: answers a message with tool calls or text, one JSON object per line:
//! `{"id": …, "name": …, "arguments": {…}}` or `{"content": "…"}`. Reasoning is not printed.

use std::ops::ControlFlow;

use atta::{
    FinishReason, GenerateOptions, KvType, LoadOptions,
    chat::{Chat, ChatEvent, Message, ToolUse},
    tools::Piece,
};
use serde_json::json;

use crate::{
    args::{DefaultLength, ring::RingAim},
    cache::DiskCache,
    conversation,
    failure::Failure,
    generation_printer::GenerationPrinter,
    gpu::GpuPlanner,
    input::{self, TextLimit, TextSource},
    interrupt::Interrupt,
    load, report, ring,
    speculation::OpenDrafts,
    stats::{CachedPrefix, Stats, StatsFile},
    tools,
};

use super::run::{RunArgs, inputs, prompt, reads_stdin};

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let tools_stdin = args.tools.tools.as_deref().is_some_and(input::is_stdin);
    if tools_stdin && reads_stdin(&args) {
        return Err(Failure::Usage(
            "--tools - takes standard input: give the prompt with -p TEXT".to_owned(),
        ));
    }
    let session = args
        .context
        .apply(args.model_flags.session_options(KvType::default()))?;
    let session = args.speculation.reserve(session);
    let load_options = load::options(args.model.as_deref(), &args.model_flags, session)?;
    let load_options = LoadOptions {
        constrained: true,
        ..load_options
    };
    let prompt = prompt(&args)?;
    let file = StatsFile::create(args.report.stats_json.as_deref(), &inputs(&args))?;
    let mut stats = Stats::new();
    let give_up = || file.give_up(&Stats::new());
    let cache = DiskCache::open(&args.cache);
    let prepare = |cache| {
        let tools = tools::tool_use(&args.tools)?;
        let request = ToolPrompt {
            prompt,
            tools,
            cache,
        };
        prepare(&args, load_options, request, &mut stats)
    };
    let prepared = cache.and_then(|cache| interrupt.watch(give_up, || prepare(cache)));
    let result = prepared
        .and_then(|asked| answer(&args, asked, GenerationPrinter::new(interrupt), &mut stats));
    let written = file.write(&stats, result.as_ref().err());
    result.and(written)
}

/// The message, and what it is answered with.
struct ToolPrompt {
    prompt: TextSource,
    tools: Option<ToolUse>,
    cache: DiskCache,
}

/// A chat whose last message waits for its answer.
struct AskedChat {
    chat: Chat,
    drafts: OpenDrafts,
}

fn message_text(prompt: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(prompt).map_err(|_| {
        Failure::Usage("with --tools the prompt is a message, which must be UTF-8".to_owned())
    })
}

/// Loads the model and reads the message.
fn prepare(
    args: &RunArgs,
    options: LoadOptions,
    request: ToolPrompt,
    stats: &mut Stats,
) -> Result<AskedChat, Failure> {
    let model = args.model.as_deref();
    let drafts = OpenDrafts::open(&args.speculation, &args.model_flags)?;
    let options = drafts.beside(model, options)?;
    let (options, _) = ring::plan(model, &args.ring, RingAim::Latency, options)?;
    let options = GpuPlanner::new(1).plan(model, &args.gpu, options)?;
    let engine = load::engine(model, &options)?;
    drafts.check(&engine)?;
    stats.loaded(&engine);
    if args.report.verbose {
        report::model(&load::name(args.model.as_deref()), &engine);
    }
    let mut chat = conversation::open(&engine, &options.session, None)?;
    let limit = TextLimit::of_prompt(&engine, chat.session());
    let text = message_text(request.prompt.read(&limit)?)?;
    chat.set_tools(request.tools);
    chat.push(Message::user(text));
    if let Some(cache) = request.cache.into_prompt_cache() {
        chat.set_cache(cache);
    }
    stats.account(&engine);
    Ok(AskedChat { chat, drafts })
}

fn answer(
    args: &RunArgs,
    AskedChat { mut chat, drafts }: AskedChat,
    mut printer: GenerationPrinter,
    stats: &mut Stats,
) -> Result<(), Failure> {
    let options = GenerateOptions {
        speculation: drafts.speculation,
        ..args.sampling.generate_options(DefaultLength::Limited)?
    };
    let ended = chat.answer_calling(&options, |heard| match heard {
        ChatEvent::Event(event) => printer.on_event(event),
        ChatEvent::Piece(Piece::Call(call)) => printer.print(&(tools::line(call) + "\n")),
        ChatEvent::Piece(_) => ControlFlow::Continue(()),
    });
    if let Ok(answer) = &ended
        && !answer.outcome.text.trim().is_empty()
    {
        // A failed write is returned by `end`.
        let _ = printer.print(&format!("{}\n", json!({ "content": answer.outcome.text })));
    }
    let written = printer.end(stats, |out, _| out.end_line_on_terminal());
    let reply = ended?.reply;
    let cached = CachedPrefix {
        n_tokens: reply.n_cached,
        time: reply.restore_time,
    };
    stats.reused(cached);
    stats.generated(reply.summary.clone());
    stats.account(chat.session().engine());
    if args.report.verbose {
        report::cached(cached);
        report::speed(chat.session().engine(), &reply.summary);
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

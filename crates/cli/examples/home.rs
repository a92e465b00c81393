//! How well a model understands commands: `cargo xtask eval-builtin [--cases FILE] [--slice N]
//! [--gate] [--json] …`.
//!
//! Each case is a line of JSON (`tools/builtin-model/home/test.jsonl`): the message, optionally the
//! messages before it and the tools on offer, and the expected calls. The model answers
//! greedily, held to the grammar of the tools. A case is right if the calls are these, in this
//! order, with these arguments; where no call is right, any words are.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use atta::{
    Engine, GenerateOptions, LoadOptions, Sampling, SessionOptions,
    chat::{Chat, Message, Template, ToolUse},
    tools::{ToolCall, ToolChoice, ToolSet},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const USAGE: &str =
    "usage: cargo xtask eval-builtin [--model FILE] [--cases FILE] [--slice N] [--gate] [--show]
                                [--json]

  --model FILE   another model than the built-in one
  --cases FILE   other cases than tools/builtin-model/home/test.jsonl
  --slice N      N cases only, spread evenly over all of them
  --gate         exit code 1 below 90 % of the calls and 80 % of the refusals
  --show         print the cases that went wrong
  --json         print the rates as JSON";

/// The required rates, in percent: calls that are exactly right, and words where no tool fits.
const GATES: [(Total, f64); 2] = [(Total::Calls, 90.0), (Total::Refusals, 80.0)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    kind: String,
    user: String,
    calls: Vec<Call>,
    /// The tools that there are; all, if not given.
    tools: Option<Vec<String>>,
    #[serde(default)]
    before: Vec<Turn>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    arguments: Map<String, Value>,
}

/// Something said before, with what came of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    user: String,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    results: Vec<Value>,
    #[serde(default = "done")]
    reply: String,
}

impl Turn {
    /// What the tool of call `i` returns, as the template writes it.
    fn result(&self, i: usize) -> String {
        let result = self.results.get(i).cloned();
        python(&result.unwrap_or_else(|| json!({ "ok": true })))
    }
}

fn done() -> String {
    "Done.".to_owned()
}

/// Which cases are counted together.
#[derive(Clone, Copy, PartialEq)]
enum Total {
    Calls,
    Refusals,
    Talk,
}

impl Total {
    const ALL: [Self; 3] = [Self::Calls, Self::Refusals, Self::Talk];

    fn of(case: &Case) -> Self {
        match (case.calls.is_empty(), case.kind.as_str()) {
            (false, _) => Self::Calls,
            (true, "refuse") => Self::Refusals,
            (true, _) => Self::Talk,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls, exact",
            Self::Refusals => "refusals",
            Self::Talk => "talk without a call",
        }
    }
}

struct Options {
    model: PathBuf,
    cases: PathBuf,
    slice: Option<usize>,
    gate: bool,
    show: bool,
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        Self {
            model: root.join("crates/cli/assets/home.gguf"),
            cases: root.join("tools/builtin-model/home/test.jsonl"),
            slice: None,
            gate: false,
            show: false,
            json: false,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    n: usize,
    right: usize,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.n += 1;
        self.right += usize::from(right);
    }

    fn percent(self) -> f64 {
        100.0 * self.right as f64 / self.n.max(1) as f64
    }
}

#[derive(Default)]
struct Report {
    kinds: BTreeMap<String, Count>,
    totals: [Count; 3],
    /// Right tool or tools against those that were called, of cases that went wrong.
    confusions: BTreeMap<(String, String), usize>,
    n_tokens: usize,
    time: Duration,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("eval-builtin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .with_context(|| format!("{arg} needs a value\n{USAGE}"))
        };
        match arg.as_str() {
            "--model" => options.model = value()?.into(),
            "--cases" => options.cases = value()?.into(),
            "--slice" => options.slice = Some(value()?.parse().context("--slice")?),
            "--gate" => options.gate = true,
            "--show" => options.show = true,
            "--json" => options.json = true,
            "--help" => bail!("{USAGE}"),
            _ => bail!("{arg}?\n{USAGE}"),
        }
    }
    Ok(options)
}

/// Whether the gates are passed, if that is asked.
fn run(options: &Options) -> Result<bool> {
    let engine = Engine::open(
        &options.model,
        &LoadOptions {
            constrained: true,
            ..LoadOptions::default()
        },
    )?;
    let tools = read_tools()?;
    let cases = read_cases(options)?;
    let mut report = Report::default();
    for case in &cases {
        let made = answer(&engine, &tools, case, &mut report)
            .with_context(|| format!("{} ({})", case.user, options.cases.display()))?;
        let right = matches(&made, &case.calls);
        report
            .kinds
            .entry(case.kind.clone())
            .or_default()
            .add(right);
        report.totals[Total::of(case) as usize].add(right);
        if !right {
            let made: Vec<Call> = made.iter().map(call).collect();
            *report
                .confusions
                .entry((names(&case.calls), names(&made)))
                .or_default() += 1;
            if options.show {
                println!(
                    "{}: {}\n   not {}\n   but {}",
                    case.kind,
                    case.user,
                    line(&made),
                    line(&case.calls)
                );
            }
        }
    }
    print(&report, options.json);
    let passed = GATES
        .iter()
        .all(|&(total, least)| report.totals[total as usize].percent() >= least);
    Ok(passed || !options.gate)
}

fn read_tools() -> Result<Vec<Value>> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/home/tools.json"
    );
    serde_json::from_str(&fs::read_to_string(path).context(path)?).context(path)
}

fn read_cases(options: &Options) -> Result<Vec<Case>> {
    let text =
        fs::read_to_string(&options.cases).with_context(|| options.cases.display().to_string())?;
    let lines: Vec<&str> = text.lines().collect();
    let n = options.slice.unwrap_or(lines.len()).min(lines.len());
    let parse = |i: usize| {
        serde_json::from_str(lines[i])
            .with_context(|| format!("{}, line {}", options.cases.display(), i + 1))
    };
    (0..n).map(|k| k * lines.len() / n).map(parse).collect()
}

fn answer(
    engine: &Engine,
    tools: &[Value],
    case: &Case,
    report: &mut Report,
) -> Result<Vec<ToolCall>> {
    let offered = |tool: &&Value| match &case.tools {
        Some(names) => names.iter().any(|name| tool["name"] == **name),
        None => true,
    };
    let tools = ToolSet::from_values(tools.iter().filter(offered).cloned().collect())?;
    let session = engine.session(&SessionOptions::default())?;
    let (template, _) = Template::of_model(&engine.templates())?;
    let mut chat = Chat::new(session, template);
    chat.set_tools(Some(ToolUse {
        tools,
        choice: ToolChoice::Auto,
        parallel: true,
    }));
    for turn in &case.before {
        push(&mut chat, turn);
    }
    chat.push(Message::user(&case.user));
    let start = Instant::now();
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        n_predict: 200,
        sampling,
        ..GenerateOptions::default()
    };
    let reply = chat.answer_calling(&options, |_| ControlFlow::Continue(()))?;
    report.time += start.elapsed();
    report.n_tokens += reply.reply.summary.n_generated;
    Ok(reply.outcome.calls)
}

fn push(chat: &mut Chat, turn: &Turn) {
    chat.push(Message::user(&turn.user));
    if !turn.calls.is_empty() {
        let calls = turn.calls.iter().enumerate().map(|(i, call)| ToolCall {
            id: format!("call{i}"),
            name: call.name.clone(),
            arguments: Value::Object(call.arguments.clone()),
        });
        chat.push(Message::assistant_calling("", calls.collect()));
        for (i, call) in turn.calls.iter().enumerate() {
            let id = format!("call{i}");
            chat.push(Message::tool(id, &call.name, turn.result(i)));
        }
    }
    chat.push(Message::assistant(&turn.reply));
}

/// JSON with the spaces that scripts of Python, and the training data, have.
fn python(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", json!(name), python(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(python).collect::<Vec<_>>().join(", ")
        ),
        other => other.to_string(),
    }
}

fn matches(made: &[ToolCall], right: &[Call]) -> bool {
    made.len() == right.len()
        && made.iter().zip(right).all(|(made, right)| {
            made.name == right.name
                && made.arguments.as_object().is_some_and(|object| {
                    object.len() == right.arguments.len()
                        && object.iter().all(|(key, value)| {
                            right.arguments.get(key).is_some_and(|r| same(value, r))
                        })
                })
        })
}

/// 21 and 21.0 are the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn call(call: &ToolCall) -> Call {
    Call {
        name: call.name.clone(),
        arguments: call.arguments.as_object().cloned().unwrap_or_default(),
    }
}

fn names(calls: &[Call]) -> String {
    match calls {
        [] => "words".to_owned(),
        calls => calls
            .iter()
            .map(|call| call.name.as_str())
            .collect::<Vec<_>>()
            .join(" + "),
    }
}

fn line(calls: &[Call]) -> String {
    match calls {
        [] => "words".to_owned(),
        calls => {
            let shown = calls
                .iter()
                .map(|call| format!("{} {}", call.name, Value::Object(call.arguments.clone())));
            shown.collect::<Vec<_>>().join(" + ")
        }
    }
}

fn print(report: &Report, as_json: bool) {
    let rate = report.n_tokens as f64 / report.time.as_secs_f64().max(1e-9);
    if as_json {
        let totals: Map<String, Value> = Total::ALL
            .map(|total| {
                let count = report.totals[total as usize];
                (
                    total.name().to_owned(),
                    json!({ "n": count.n, "right": count.right }),
                )
            })
            .into_iter()
            .collect();
        println!("{}", json!({ "totals": totals, "tokens_per_second": rate }));
        return;
    }
    let row = |name: &str, count: Count| {
        println!(
            "| {name} | {} | {} | {:.1} % |",
            count.n,
            count.right,
            count.percent()
        )
    };
    println!("| kind | cases | right | |\n|---|---|---|---|");
    for (kind, &count) in &report.kinds {
        row(kind, count);
    }
    for total in Total::ALL {
        row(
            &format!("**{}**", total.name()),
            report.totals[total as usize],
        );
    }
    println!(
        "\n{} tokens, {rate:.0} a second with their prompts",
        report.n_tokens
    );
    for ((right, made), n) in &report.confusions {
        println!("{n} × {right} → {made}");
    }
}

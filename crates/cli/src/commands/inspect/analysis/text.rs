//! The analysis as text.

use atta::{MemoryPlan, WeightsAt};

use super::{Analysis, TemplateInfo, byte_map::ByteMap, kv_names, vocabulary::Vocabulary};
use crate::{
    failure::one_line,
    report::{bytes, grouped, weights_name},
};

/// Characters of a template's first line that are printed.
const LINE_CHARS: usize = 60;

pub(super) fn render(analysis: &Analysis) -> String {
    let mut lines = vec![String::new()];
    match &analysis.memory {
        Ok(plan) => lines.extend(memory(plan)),
        Err(why) => lines.push(format!("memory: {}", one_line(why))),
    }
    lines.extend(speed(analysis));
    lines.push(String::new());
    match &analysis.vocabulary {
        Ok(vocabulary) => lines.extend(tokenizer(vocabulary)),
        Err(why) => lines.push(format!("tokenizer: cannot be read: {}", one_line(why))),
    }
    lines.push(template(analysis.template.as_ref()));
    lines.push(String::new());
    lines.extend(ByteMap::stdout().draw(&analysis.bytes));
    lines.join("\n") + "\n"
}

fn memory(plan: &MemoryPlan) -> Vec<String> {
    let [k, v] = kv_names(plan.kv);
    let kv = if k == v {
        k.to_owned()
    } else {
        format!("{k} and {v}")
    };
    let row = |name: &str, n: u64| format!("  {name:<24} {:>16} bytes", grouped(n.into()));
    let mut lines = vec![format!(
        "memory, for a context of {}, {} at once, keys and values {kv}",
        plan.n_ctx, plan.n_batch
    )];
    lines.extend(plan.items.iter().map(|item| row(item.name, item.bytes)));
    lines.push(format!(
        "{} of {}",
        row("all of it private", plan.private_bytes()),
        bytes(plan.limit_bytes)
    ));
    if plan.mapped_bytes > 0 {
        lines.push(row("mapped, may be dropped", plan.mapped_bytes));
    }
    if !plan.elsewhere.is_empty() {
        lines.push("memory of the GPU".to_owned());
        lines.extend(plan.elsewhere.iter().map(|item| row(item.name, item.bytes)));
    }
    lines.push(format!(
        "  weights are {}{}",
        weights_name(plan.weights),
        streamed(plan)
    ));
    lines
}

fn streamed(plan: &MemoryPlan) -> String {
    match plan.weights {
        WeightsAt::Streamed => format!(
            ": {} are read for each token",
            bytes(plan.read_bytes as u64)
        ),
        WeightsAt::Mapped | WeightsAt::Resident => String::new(),
    }
}

fn speed(analysis: &Analysis) -> Option<String> {
    let most = analysis.most_tok_s()?;
    let rate = analysis.read_bytes_per_s?;
    let plan = analysis.memory.as_ref().ok()?;
    let disk = if plan.read_bytes > 0.0 {
        ", without the time of the disk"
    } else {
        ""
    };
    let token = bytes(plan.token_bytes);
    let rate = rate / 1e9;
    Some(format!(
        "speed: at most {most:.1} tokens/s: {token} of weights for each at {rate:.1} GB/s{disk}"
    ))
}

/// What encoding adds to a text.
fn added(vocabulary: &Vocabulary) -> &'static str {
    match (vocabulary.adds_bos, vocabulary.adds_eos) {
        (true, true) => "bos in front and eos behind",
        (true, false) => "bos in front",
        (false, true) => "eos behind",
        (false, false) => "nothing",
    }
}

fn tokenizer(vocabulary: &Vocabulary) -> Vec<String> {
    let Vocabulary {
        model,
        pre,
        n_tokens,
        roles,
        eog,
        ..
    } = vocabulary;
    let pre = pre
        .as_ref()
        .map(|pre| format!(", pre-tokenizer {}", one_line(pre)))
        .unwrap_or_default();
    let algorithm = vocabulary.algorithm();
    let model = one_line(model);
    let mut lines = vec![format!(
        "tokenizer: {algorithm} ({model}), {n_tokens} tokens{pre}"
    )];
    let roles: Vec<String> = roles
        .iter()
        .map(|(role, id, text)| format!("{role} {id} {text:?}"))
        .collect();
    lines.extend((!roles.is_empty()).then(|| format!("  {}", one_line(&roles.join(", ")))));
    let added = added(vocabulary);
    lines.push(format!(
        "  a text gets {added}; a generation ends at {eog:?}"
    ));
    lines
}

fn template(template: Option<&TemplateInfo>) -> String {
    let Some(TemplateInfo {
        n_bytes,
        error,
        first_line,
    }) = template
    else {
        return "chat template: none".to_owned();
    };
    let mut shown: String = first_line.chars().take(LINE_CHARS).collect();
    if shown.len() < first_line.len() {
        shown.push('…');
    }
    let error = error
        .as_ref()
        .map_or(String::new(), |error| format!("\n  {}", one_line(error)));
    format!(
        "chat template: {} bytes: {}{error}",
        grouped(*n_bytes as i128),
        one_line(&shown)
    )
}

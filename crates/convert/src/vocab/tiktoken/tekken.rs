//! Mistral's `tekken.json`: ranks as in a tiktoken file, in JSON, behind a thousand special tokens.
//!
//! Knows nothing of merges. The one idea: special tokens come first, so the id of a token is its
//! rank plus their number. Tokens beyond `default_vocab_size` are not part of the vocabulary.
//!
//! Source: `Tekkenizer` of mistralai/mistral-common.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Ranks, base64, byte_level};
use crate::Error;
use crate::vocab::GgufVocab;
use crate::vocab::files::VocabFile;
use crate::vocab::table::{TokenEntry, TokenTable, TokenType};

/// The first special tokens, for files that do not list them.
const SPECIAL: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Reads the vocabulary of a tekken.json.
pub(in crate::vocab) fn vocabulary(
    file: &VocabFile<'_>,
    mut table: TokenTable,
) -> Result<GgufVocab, Error> {
    let wrong = |why: String| file.wrong(why);
    let root: HashMap<String, &RawValue> =
        serde_json::from_str(file.text()?).map_err(|error| wrong(error.to_string()))?;
    let ranks = fill(&mut table, &root).map_err(wrong)?;
    let mut found = GgufVocab {
        add_bos: Some(true),
        ..GgufVocab::new(table, "gpt2", "tekken")
    };
    found.merges = Some(ranks.merges().0);
    for (role, text) in [
        ("unk", "<unk>"),
        ("bos", "<s>"),
        ("eos", "</s>"),
        ("pad", "<pad>"),
    ] {
        found
            .ids
            .extend(found.table.find(text).map(|id| (role, id)));
    }
    Ok(found)
}

/// Inserts all tokens.
fn fill(table: &mut TokenTable, root: &HashMap<String, &RawValue>) -> Result<Ranks, String> {
    let part = |key: &str| root.get(key).map(|raw| raw.get());
    let needed = |key| part(key).ok_or_else(|| format!("no {key}"));
    let wrong = |error: serde_json::Error| error.to_string();
    let config: Value = serde_json::from_str(needed("config")?).map_err(wrong)?;
    let number = |key: &str| {
        config
            .get(key)
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("config: no {key}"))
    };
    let n_special = number("default_num_special_tokens")?;
    let n_inner = number("default_vocab_size")?.saturating_sub(n_special);
    let special: Vec<Value> =
        serde_json::from_str(part("special_tokens").unwrap_or("[]")).map_err(wrong)?;
    put_special(table, n_special, &special)?;
    let ranks = ranks(
        &serde_json::from_str::<Vec<&RawValue>>(needed("vocab")?).map_err(wrong)?,
        n_inner,
    )?;
    for (token, &rank) in &ranks.of {
        // The sum is below `default_vocab_size`.
        table.fill(
            rank + n_special,
            TokenEntry::new(byte_level::spell(token), TokenType::Normal),
        )?;
    }
    Ok(ranks)
}

/// Inserts the special tokens at the first ids; those without a name are named by their ids.
fn put_special(table: &mut TokenTable, n: u64, listed: &[Value]) -> Result<(), String> {
    if n > table.len() as u64 {
        return Err(format!(
            "{n} special tokens: the embedding has {} rows",
            table.len()
        ));
    }
    for id in 0..n {
        let default = SPECIAL.get(id as usize).filter(|_| listed.is_empty());
        let text = default.map_or_else(|| format!("<SPECIAL_{id}>"), |text| (*text).to_owned());
        table.replace(id, TokenEntry::new(text, TokenType::Control));
    }
    for token in listed {
        let id = token
            .get("rank")
            .and_then(Value::as_u64)
            .filter(|&id| id < n);
        let text = token.get("token_str").and_then(Value::as_str);
        let (id, text) = id
            .zip(text)
            .ok_or("a special token has no rank or no text")?;
        table.replace(id, TokenEntry::new(text, TokenType::Control));
    }
    Ok(())
}

/// Parses the entries with a rank below `n`: objects with a rank and bytes in base64.
fn ranks(entries: &[&RawValue], n: u64) -> Result<Ranks, String> {
    let mut ranks = Ranks::default();
    for (entry, i) in entries.iter().zip(0_u64..) {
        let wrong = |why: &str| format!("vocab: entry {i}: {why}");
        let entry: Value =
            serde_json::from_str(entry.get()).map_err(|error| wrong(&error.to_string()))?;
        let rank = entry
            .get("rank")
            .and_then(Value::as_u64)
            .ok_or_else(|| wrong("no rank"))?;
        if rank >= n {
            continue;
        }
        let token = entry
            .get("token_bytes")
            .and_then(Value::as_str)
            .ok_or_else(|| wrong("no token_bytes"))?;
        let token = base64::decode(token.as_bytes()).map_err(|why| wrong(&why))?;
        ranks.insert(token, rank).map_err(|why| wrong(&why))?;
    }
    Ok(ranks)
}

//! Special tokens (BOS, EOS, EOT, padding and so on), and which of them are added around a text.
//!
//! Knows no format of vocabularies. The one idea: a token text in tokenizer_config.json has
//! precedence, then the ids of config.json and generation_config.json, then the vocabulary itself.
//! This is the order of llama.cpp's converter and of transformers.

use std::collections::BTreeMap;

use atta_formats::Writer;
use serde_json::Value;

use super::GgufVocab;
use super::files::VocabFiles;
use super::pre::{chain, kind};
use super::table::{TokenTable, TokenType};
use crate::Error;

/// Ids by Hugging Face's names of special tokens.
pub(super) type Ids = BTreeMap<&'static str, u32>;

/// Hugging Face's names and GGUF's keys. GGUF spells "seperator".
const ROLES: &[(&str, &str)] = &[
    ("bos", "tokenizer.ggml.bos_token_id"),
    ("eos", "tokenizer.ggml.eos_token_id"),
    ("eot", "tokenizer.ggml.eot_token_id"),
    ("eom", "tokenizer.ggml.eom_token_id"),
    ("unk", "tokenizer.ggml.unknown_token_id"),
    ("sep", "tokenizer.ggml.seperator_token_id"),
    ("pad", "tokenizer.ggml.padding_token_id"),
    ("cls", "tokenizer.ggml.cls_token_id"),
    ("mask", "tokenizer.ggml.mask_token_id"),
];

/// Tokens that end a turn.
const TURN_ENDS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endofturn|>",
    "<|return|>",
    "</s>",
];

/// Tokens that end a message, but not the turn.
const MESSAGE_ENDS: &[&str] = &["<|eom_id|>", "<|call|>"];

/// Tokens that readers of GGUF treat as end of generation regardless of the metadata.
const TEXT_ENDS: &[&str] = &[
    "<|endoftext|>",
    "<|end_of_text|>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
];

/// The files with special tokens and templates; null if a file is missing.
pub(super) struct TokenizerConfigs {
    pub(super) tokenizer: Value,
    model: Value,
    generation: Value,
}

/// The special tokens to be written.
pub(super) struct SpecialTokens {
    ids: Ids,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    /// Whether a separator stands behind the end of the first of two texts.
    add_sep: Option<bool>,
}

impl SpecialTokens {
    pub(super) fn write(&self, out: &mut Writer) {
        for (name, key) in ROLES {
            if let Some(&id) = self.ids.get(name) {
                out.set_u32(key, id);
            }
        }
        for (key, value) in [
            ("tokenizer.ggml.add_bos_token", self.add_bos),
            ("tokenizer.ggml.add_eos_token", self.add_eos),
            ("tokenizer.ggml.add_sep_token", self.add_sep),
        ] {
            if let Some(value) = value {
                out.set_bool(key, value);
            }
        }
    }
}

impl TokenizerConfigs {
    pub(super) fn parse(files: &VocabFiles) -> Result<Self, Error> {
        let parse = |name| files.get(name).map_or(Ok(Value::Null), |file| file.json());
        Ok(Self {
            tokenizer: parse("tokenizer_config.json")?,
            model: parse("config.json")?,
            generation: parse("generation_config.json")?,
        })
    }

    /// Determines the special tokens. `post_processor` is that of tokenizer.json, or null.
    pub(super) fn roles(&self, found: &mut GgufVocab, post_processor: &Value) -> SpecialTokens {
        let mut marks = ConfiguredTokens::new(self);
        chain(post_processor, "processors")
            .into_iter()
            .for_each(|processor| marks.process(processor));
        found.warnings.append(&mut marks.warnings);
        let mut ids = Ids::new();
        for &(name, _) in ROLES {
            let by_text = marks
                .texts
                .get(name)
                .and_then(|text| found.table.find(text));
            let by_number = || self.number(name, found);
            let id = by_text
                .or_else(by_number)
                .or_else(|| found.ids.get(name).copied());
            ids.extend(id.map(|id| (name, id)));
        }
        self.add_ends(&mut ids, found);
        hide_marks(&mut found.table, &ids);
        // Without any setting, readers of GGUF add BOS for SentencePiece only.
        let default = (found.model != "llama" || marks.has_template).then_some(false);
        SpecialTokens {
            ids,
            add_bos: marks.add_bos.or(found.add_bos).or(default),
            add_eos: marks.add_eos.or(default),
            add_sep: marks.add_sep,
        }
    }

    /// The `add_prefix_space` of tokenizer_config.json, which overrides the vocabulary.
    pub(super) fn add_prefix_space(&self) -> Option<bool> {
        self.tokenizer
            .get("add_prefix_space")
            .and_then(Value::as_bool)
    }

    /// The id of a special token in config.json or generation_config.json, if the token exists; the
    /// first of a list.
    fn number(&self, name: &str, found: &mut GgufVocab) -> Option<u32> {
        let key = format!("{name}_token_id");
        let in_model = [
            self.model.get(&key),
            self.model
                .get("text_config")
                .and_then(|text| text.get(&key)),
        ];
        let all = in_model
            .into_iter()
            .chain([self.generation.get(&key)])
            .flatten();
        let id = all
            .filter_map(|value| value.get(0).unwrap_or(value).as_u64())
            .next()?;
        if !found.table.holds(id) {
            found
                .warnings
                .push(format!("{key} is {id}: there is no such token"));
            return None;
        }
        Some(id as u32)
    }

    /// Adds further end tokens. Of a list of several, the first is EOS; each other one becomes EOT
    /// or EOM by its text, or whichever of them is unset.
    fn add_ends(&self, ids: &mut Ids, found: &mut GgufVocab) {
        let mut others = self.other_ends(ids.get("eos").copied(), &found.table);
        for (name, texts) in [("eot", TURN_ENDS), ("eom", MESSAGE_ENDS)] {
            let fits = |&id: &u32| {
                texts.iter().any(|text| {
                    found
                        .table
                        .get(id.into())
                        .is_some_and(|t| t.text == text.as_bytes())
                })
            };
            if let Some(at) = others
                .iter()
                .position(fits)
                .filter(|_| !ids.contains_key(name))
            {
                ids.insert(name, others.remove(at));
            }
        }
        let is_known = |id: u32| {
            TURN_ENDS
                .iter()
                .chain(TEXT_ENDS)
                .any(|text| found.table.find(text) == Some(id))
        };
        for id in others.into_iter().filter(|&id| !is_known(id)) {
            match ["eot", "eom"]
                .into_iter()
                .find(|name| !ids.contains_key(name))
            {
                Some(name) => drop(ids.insert(name, id)),
                None => found.warnings.push(format!(
                    "eos_token_id: token {id} ends a text too, but GGUF has no key for it"
                )),
            }
        }
    }

    /// The end tokens in the lists of `eos_token_id` except EOS.
    fn other_ends(&self, eos: Option<u32>, table: &TokenTable) -> Vec<u32> {
        let lists = [&self.generation, &self.model]
            .into_iter()
            .filter_map(|config| config.get("eos_token_id")?.as_array());
        let mut others = Vec::new();
        for id in lists
            .flatten()
            .filter_map(Value::as_u64)
            .filter(|&id| table.holds(id))
            .take(MAX_ENDS)
        {
            let id = id as u32;
            if Some(id) != eos && !others.contains(&id) {
                others.push(id);
            }
        }
        others
    }
}

/// The most end tokens of a list; real ones have three.
const MAX_ENDS: usize = 64;

/// Makes BOS and EOS control tokens, for sources without token types.
fn hide_marks(table: &mut TokenTable, ids: &Ids) {
    for name in ["bos", "eos"] {
        let Some(token) = ids.get(name).and_then(|&id| table.get_mut(id.into())) else {
            continue;
        };
        let is_mark = matches!(token.text[..], [b'<', .., b'>'] | [b'[', .., b']']);
        if token.kind == TokenType::Normal && is_mark {
            token.kind = TokenType::Control;
        }
    }
}

/// Special tokens by text, and the tokens added around a text, from tokenizer_config.json and
/// tokenizer.json.
struct ConfiguredTokens {
    texts: BTreeMap<&'static str, String>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    add_sep: Option<bool>,
    /// Whether tokenizer.json has a template for the tokens around a text.
    has_template: bool,
    warnings: Vec<String>,
}

impl ConfiguredTokens {
    fn new(configs: &TokenizerConfigs) -> Self {
        let text = |name| {
            let entry = configs.tokenizer.get(format!("{name}_token"))?;
            entry
                .get("content")
                .unwrap_or(entry)
                .as_str()
                .map(str::to_owned)
        };
        let texts = ROLES
            .iter()
            .filter_map(|&(name, _)| Some((name, text(name)?)))
            .collect();
        let flag = |key| configs.tokenizer.get(key).and_then(Value::as_bool);
        let add_bos = flag("add_bos_token");
        let add_eos = flag("add_eos_token");
        Self {
            texts,
            add_bos,
            add_eos,
            add_sep: None,
            has_template: false,
            warnings: Vec::new(),
        }
    }

    fn process(&mut self, processor: &Value) {
        match kind(processor) {
            "TemplateProcessing" => self.template(processor),
            "BertProcessing" | "RobertaProcessing" => {
                let text = |key| {
                    processor
                        .get(key)
                        .and_then(|pair| pair.get(0))
                        .and_then(Value::as_str)
                };
                self.first(text("cls"));
                self.last(text("sep"));
                // RoBERTa has two between texts.
                self.add_sep = (kind(processor) == "RobertaProcessing").then_some(true);
            }
            _ => {}
        }
    }

    /// Reads the template for a single text, a list of special tokens and the text.
    fn template(&mut self, processor: &Value) {
        self.has_template = true;
        let Some(single) = processor.get("single").and_then(Value::as_array) else {
            return;
        };
        let mark = |item: Option<&Value>| {
            item?
                .get("SpecialToken")?
                .get("id")?
                .as_str()
                .map(str::to_owned)
        };
        self.first(mark(single.first()).as_deref());
        self.last(mark(single.last()).as_deref());
        let pair = processor.get("pair").and_then(Value::as_array);
        let pair = pair.map_or(&[][..], Vec::as_slice);
        let place = |text: &str| {
            pair.iter().position(|item| {
                item.get("Sequence").and_then(|s| s.get("id")?.as_str()) == Some(text)
            })
        };
        if let (Some(first), Some(second)) = (place("A"), place("B")) {
            let n_between = second.saturating_sub(first + 1);
            let n_ends = usize::from(single.last().is_some_and(|item| mark(Some(item)).is_some()));
            self.add_sep = (n_between > n_ends).then_some(true);
        }
    }

    /// Sets the token before a text. If it is not BOS, GGUF cannot express it.
    fn first(&mut self, mark: Option<&str>) {
        let Some(mark) = mark else { return };
        let is_bos = self.texts.entry("bos").or_insert_with(|| mark.to_owned()) == mark;
        // tokenizer_config.json has precedence, as in llama.cpp's converter.
        self.add_bos = self.add_bos.or(Some(is_bos));
        if !is_bos {
            self.warnings.push(format!(
                "{mark} will not be added in front of a text, because it is not BOS"
            ));
        }
    }

    /// Sets the token behind a text. If it is not EOS, it becomes EOS, and the previous EOS becomes
    /// EOT, as embedding models need it.
    fn last(&mut self, mark: Option<&str>) {
        let Some(mark) = mark else { return };
        self.add_eos = self.add_eos.or(Some(true));
        let old = self.texts.insert("eos", mark.to_owned());
        if let Some(old) = old.filter(|old| old != mark) {
            self.texts.entry("eot").or_insert(old);
        }
    }
}

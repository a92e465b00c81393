//! Tokens with a role (begin and end of text, end of turn, padding and so on), and which of them
//! belong around a text.
//!
//! Knows no kind of vocabulary. The one idea: a text in tokenizer_config.json has the first word,
//! then the ids of config.json and generation_config.json, then what the vocabulary itself says;
//! which is the order of llama.cpp's converter, and what transformers does.

use std::collections::BTreeMap;

use atta_formats::Writer;
use serde_json::Value;

use super::GgufVocab;
use super::files::VocabFiles;
use super::pre::{chain, kind};
use super::table::{TokenTable, TokenType};
use crate::Error;

/// Ids by the names of roles in Hugging Face files.
pub(super) type Ids = BTreeMap<&'static str, u32>;

/// Names in Hugging Face files and keys of GGUF, which spells one of them so.
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

/// Marks at which a turn ends.
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

/// Marks at which a message ends that is not the end of a turn.
const MESSAGE_ENDS: &[&str] = &["<|eom_id|>", "<|call|>"];

/// Marks that readers of GGUF take for the end of a text whatever the metadata say.
const TEXT_ENDS: &[&str] = &[
    "<|endoftext|>",
    "<|end_of_text|>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
];

/// The files that speak of roles and templates, null where they are missing.
pub(super) struct TokenizerConfigs {
    pub(super) tokenizer: Value,
    model: Value,
    generation: Value,
}

/// What is written.
pub(super) struct SpecialTokens {
    ids: Ids,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
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

    /// The roles of the tokens that were found. `post_processor` is that of tokenizer.json, or
    /// null.
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
        // Only SentencePiece gets a BOS where nobody says so.
        let default = (found.model != "llama" || marks.has_template).then_some(false);
        SpecialTokens {
            ids,
            add_bos: marks.add_bos.or(found.add_bos).or(default),
            add_eos: marks.add_eos.or(default),
        }
    }

    /// Whether a text gets a space in front of it, where tokenizer_config.json changes what the
    /// vocabulary says.
    pub(super) fn add_prefix_space(&self) -> Option<bool> {
        self.tokenizer
            .get("add_prefix_space")
            .and_then(Value::as_bool)
    }

    /// The id that a configuration gives a role, if there is such a token. Of a list, the first.
    fn number(&self, name: &str, found: &mut GgufVocab) -> Option<u32> {
        let key = format!("{name}_token_id");
        let places = [
            self.model.get(&key),
            self.model
                .get("text_config")
                .and_then(|text| text.get(&key)),
        ];
        let all = places
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

    /// Further ends: where a list names several, the first is EOS, and each other one gets the role
    /// that its text shows, or a role that is vacant.
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
                    "eos_token_id: token {id} ends a text too, but GGUF has no place for it"
                )),
            }
        }
    }

    /// What the lists of ends hold beside EOS.
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

/// Ends of text that a list may hold; real ones hold three.
const MAX_ENDS: usize = 64;

/// Begin and end of text are no text, also where the source has no kinds.
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

/// Texts of roles, and what a text gets around it.
struct ConfiguredTokens {
    texts: BTreeMap<&'static str, String>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    /// Whether tokenizer.json says what is put around a text.
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
            }
            _ => {}
        }
    }

    /// A template for one text is a list of marks with the text among them.
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
    }

    /// What stands before a text; if it is not BOS, GGUF cannot say so.
    fn first(&mut self, mark: Option<&str>) {
        let Some(mark) = mark else { return };
        let is_bos = self.texts.entry("bos").or_insert_with(|| mark.to_owned()) == mark;
        // What tokenizer_config.json says counts, as in llama.cpp's converter.
        self.add_bos = self.add_bos.or(Some(is_bos));
        if !is_bos {
            self.warnings.push(format!(
                "a text will not get {mark} in front of it: that is not BOS"
            ));
        }
    }

    /// What stands behind a text. If it is not EOS, it becomes EOS, and EOS the end of a turn:
    /// embedding models have it so.
    fn last(&mut self, mark: Option<&str>) {
        let Some(mark) = mark else { return };
        self.add_eos = self.add_eos.or(Some(true));
        let old = self.texts.insert("eos", mark.to_owned());
        if let Some(old) = old.filter(|old| old != mark) {
            self.texts.entry("eot").or_insert(old);
        }
    }
}

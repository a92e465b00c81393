//! A vocabulary of bytes, an end and longer tokens, for llguidance.

use std::sync::Arc;

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie},
};

/// Markers that a vocabulary may have as control tokens.
pub(crate) const CONTROL: [&str; 33] = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<|tool_call>",
    "<tool_call|>",
    "</arg_value>",
    "<arg_key>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|channel>",
    "<channel|>",
    "<|\"|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<seed:tool_call>",
    "<|other|>",
];
/// Longer tokens, some of them across the border of a marker.
pub(crate) const WORDS: [&str; 33] = [
    "<tool",
    "_call>",
    "call>\n{\"",
    "<th",
    "think>",
    "</",
    "[TOOL_CALLS",
    "] [",
    "{\"name\": \"",
    "\", \"arguments\": {",
    "{\"",
    "\": ",
    "}}",
    "\n</tool_call>\n",
    "; {\"name\": \"",
    "\"parameters\": {",
    "get_",
    "weather",
    "[ARGS]{",
    "{\"tool_calls\": [",
    "\n</parameter>\n",
    "</parameter>",
    "\n<function=get",
    "</function>\n</tool_call>",
    "{\"response\": \"",
    "<|tool_calls",
    "functions.get",
    ":0",
    "|>analysis<|",
    "<|end|><|start|>assistant",
    "commentary to=functions.",
    " json<|message|>{",
    "\n\n",
];
pub(crate) const EOS: u32 = 256;

/// A vocabulary of bytes, an end, and longer tokens; the markers are control tokens, or text like
/// any other.
pub(crate) struct Vocabulary {
    pub(crate) factory: ParserFactory,
    tokens: Vec<String>,
    n_text: usize,
}

impl Vocabulary {
    pub(crate) fn new() -> Self {
        let mut tokens: Vec<String> = WORDS.map(str::to_owned).to_vec();
        let n_text = tokens.len();
        tokens.extend(CONTROL.map(str::to_owned));
        let bytes = (0..=255u8)
            .map(|byte| vec![byte])
            .chain([b"\xff<eos>".to_vec()]);
        let words = tokens.iter().enumerate().map(|(i, word)| match i < n_text {
            true => word.clone().into_bytes(),
            false => [b"\xff", word.as_bytes()].concat(),
        });
        let all: Vec<Vec<u8>> = bytes.chain(words).collect();
        let trie = TokTrie::from(&TokRxInfo::new(all.len() as u32, EOS), &all);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
        Self {
            factory,
            tokens,
            n_text,
        }
    }

    pub(crate) fn control_id(&self, marker: &str) -> Option<u32> {
        let at = CONTROL.iter().position(|text| *text == marker)?;
        Some(EOS + 1 + (self.n_text + at) as u32)
    }

    pub(crate) fn matcher(&self, lark: &str) -> Matcher {
        let parser = self
            .factory
            .create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        Matcher::new(Ok(parser.unwrap_or_else(|error| panic!("{error}\n{lark}"))))
    }

    /// Whether a text is a whole output, written with bytes and, if they are `control`, with tokens
    /// for markers.
    pub(crate) fn accepts(&self, lark: &str, text: &str, control: bool) -> bool {
        let mut matcher = self.matcher(lark);
        let follows = self.ids(text, control).into_iter().all(|id| {
            matcher.compute_mask_or_eos().unwrap().is_allowed(id)
                && matcher.consume_token(id).is_ok()
        });
        follows && matcher.is_accepting().unwrap()
    }

    pub(crate) fn ids(&self, text: &str, control: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some(byte) = rest.bytes().next() {
            let marker = CONTROL
                .iter()
                .find(|marker| control && rest.starts_with(**marker));
            ids.push(marker.map_or(byte.into(), |marker| self.control_id(marker).unwrap()));
            rest = match marker {
                Some(marker) => &rest[marker.len()..],
                // Bytes of a character are pushed one by one.
                None => {
                    let n = rest.chars().next().unwrap().len_utf8();
                    ids.extend(rest.as_bytes()[1..n].iter().map(|&byte| u32::from(byte)));
                    &rest[n..]
                }
            };
        }
        ids
    }

    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        match id {
            0..EOS => vec![id as u8],
            _ => self.tokens[(id - EOS - 1) as usize].clone().into_bytes(),
        }
    }
}

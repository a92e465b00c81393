//! Models that think, in `atta chat`: thoughts are kept from pipes, and switched on and off.

use serde_json::Value;

use crate::{
    chat_model::chat_model,
    program::{Scratch, atta_with_input, error_of, text_of},
};

/// ChatML with an open tag in front of each answer, unless thinking is switched off.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role + '\\n' + m.content }}\
                        <|im_end|>\n{% endfor %}{% if add_generation_prompt %}\
                        <|im_start|>assistant\n<think>\n\
                        {% if enable_thinking is defined and enable_thinking is false %}\
                        </think>\n{% endif %}{% endif %}";

/// Its tokens; the last one, 95, ends thoughts.
const MARKERS: [(&str, i32); 4] = [
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<think>", 4),
    ("</think>", 4),
];

/// The options with which the tiny model thinks some tokens, and answers with others: it never
/// ends, and writes no token twice, so that the end of thoughts comes once.
const OPTIONS: [&str; 12] = [
    "-t",
    "0",
    "-n",
    "24",
    "--presence-penalty",
    "1000",
    "--logit-bias",
    "95+1",
    "--logit-bias",
    "93-inf",
    "--logit-bias",
    "2-inf",
];

pub(crate) struct ThinkingModel {
    pub(crate) scratch: Scratch,
    path: String,
}

impl ThinkingModel {
    pub(crate) fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let bytes = chat_model("llama-plain.gguf", TEMPLATE, &MARKERS);
        let path = scratch.file("thinking.gguf", &bytes);
        Self { scratch, path }
    }

    pub(crate) fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["chat", &self.path], &OPTIONS[..], more].concat()
    }

    /// The answer to a message, in a pipe.
    fn answer(&self, more: &[&str]) -> String {
        text_of(&atta_with_input(&self.args(more), b"the king\n"))
    }
}

#[test]
fn a_pipe_gets_the_answer_without_the_thoughts() {
    let model = ThinkingModel::new("thoughts-pipe");
    let saved = model.scratch.path("saved.json");
    let input = format!("the king\n/save {saved}\n");
    let answer = text_of(&atta_with_input(&model.args(&[]), input.as_bytes()));
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    let thoughts = saved[1]["reasoning_content"].as_str().unwrap();
    assert!(
        thoughts.len() > 3 && answer.trim().len() > 3,
        "{thoughts:?} {answer:?}"
    );
    assert!(
        !answer.contains(thoughts) && !answer.contains("think"),
        "{answer:?}"
    );
    assert_eq!(answer, model.answer(&["--hide-thoughts"]));
}

#[test]
fn thinking_is_switched_as_far_as_the_template_can_be_told() {
    let model = ThinkingModel::new("thoughts-switch");
    let auto = model.answer(&[]);
    assert_eq!(model.answer(&["--think", "auto"]), auto);
    assert_eq!(model.answer(&["--think", "on"]), auto);
    assert_ne!(model.answer(&["--think", "off"]), auto);
    let low = error_of(&atta_with_input(&model.args(&["--think", "low"]), b""), 2);
    assert!(low.contains("can only be told on and off"), "{low}");
    let plain = crate::chat::ChatModel::new("thoughts-none");
    let args = ["chat", &plain.path, "--think", "off"];
    let none = error_of(&atta_with_input(&args, b""), 2);
    assert!(none.contains("cannot be told how much to think"), "{none}");
}

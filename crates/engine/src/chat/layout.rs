//! How a conversation is written down for a model: a table of families, told apart by the markers in a file's template.
//!
//! It refuses to interpret templates, which are programs in Jinja. The one idea: nearly all of them are one of a few
//! layouts, and each layout is a row of texts. The texts are facts, from the templates that the models were published
//! with; what a template does beyond them (a default system message, today's date, thinking) is left out.

use atta_tokenizer::{TokenKind, Tokenizer};

use super::render::Ids;

/// A family of templates, named by its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `<|im_start|>user` … `<|im_end|>`: ChatML, as in OpenAI's description of it, 2023.
    ImStart,
    /// `<|start_header_id|>user<|end_header_id|>` … `<|eot_id|>`.
    HeaderId,
    /// `<start_of_turn>user` … `<end_of_turn>`; the system message is part of the first one.
    StartOfTurn,
    /// `[INST]` … `[/INST]`, with the system message between `<<SYS>>` and `<</SYS>>` in the first one.
    InstSys,
    /// `[INST]` … `[/INST]`; the system message is part of the first one.
    Inst,
    /// `<|user|>` … `<|end|>`.
    BarsEnd,
    /// `<|user|>` … `</s>`.
    Bars,
    /// `User:` … `Assistant:`, for models without a template that we know, which may still get the idea.
    Plain,
}

/// The texts of a layout.
struct Texts {
    /// What a template has to hold to be of this layout.
    signs: &'static [&'static str],
    /// Texts that are tokens of their own, where the vocabulary has them.
    markers: &'static [&'static str],
    /// Around the system message, and whether that is a part of the first message of the user.
    system: (&'static str, &'static str, Place),
    /// Before the message of the user.
    user: &'static str,
    /// Between that and the answer.
    answer: &'static str,
    /// After the answer.
    close: &'static str,
    /// What ends an answer, if it is not a token that ends every generation.
    end: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Before,
    InFirst,
}

/// In the order in which signs are looked for.
static LAYOUTS: [(Layout, Texts); 8] = [
    (
        Layout::ImStart,
        Texts {
            signs: &["<|im_start|>"],
            markers: &["<|im_start|>", "<|im_end|>"],
            system: ("<|im_start|>system\n", "<|im_end|>\n", Place::Before),
            user: "<|im_start|>user\n",
            answer: "<|im_end|>\n<|im_start|>assistant\n",
            close: "<|im_end|>\n",
            end: "<|im_end|>",
        },
    ),
    (
        Layout::HeaderId,
        Texts {
            signs: &["<|start_header_id|>"],
            markers: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            system: ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>", Place::Before),
            user: "<|start_header_id|>user<|end_header_id|>\n\n",
            answer: "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            close: "<|eot_id|>",
            end: "<|eot_id|>",
        },
    ),
    (
        Layout::StartOfTurn,
        Texts {
            signs: &["<start_of_turn>"],
            markers: &["<start_of_turn>", "<end_of_turn>"],
            system: ("", "\n\n", Place::InFirst),
            user: "<start_of_turn>user\n",
            answer: "<end_of_turn>\n<start_of_turn>model\n",
            close: "<end_of_turn>\n",
            end: "<end_of_turn>",
        },
    ),
    (
        Layout::InstSys,
        Texts {
            signs: &["[INST]", "<<SYS>>"],
            markers: &["[INST]", "[/INST]", "</s>", "<s>"],
            system: ("<<SYS>>\n", "\n<</SYS>>\n\n", Place::InFirst),
            user: "[INST] ",
            answer: " [/INST]",
            close: "</s><s>",
            end: "</s>",
        },
    ),
    (
        Layout::Inst,
        Texts {
            signs: &["[INST]"],
            markers: &["[INST]", "[/INST]", "</s>"],
            system: ("", "\n\n", Place::InFirst),
            user: "[INST] ",
            answer: " [/INST]",
            close: "</s>",
            end: "</s>",
        },
    ),
    (
        Layout::BarsEnd,
        Texts {
            signs: &["<|user|>", "<|end|>"],
            markers: &["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
            system: ("<|system|>\n", "<|end|>\n", Place::Before),
            user: "<|user|>\n",
            answer: "<|end|>\n<|assistant|>\n",
            close: "<|end|>\n",
            end: "<|end|>",
        },
    ),
    (
        Layout::Bars,
        Texts {
            signs: &["<|user|>", "<|assistant|>"],
            markers: &["<|system|>", "<|user|>", "<|assistant|>", "</s>"],
            system: ("<|system|>\n", "</s>\n", Place::Before),
            user: "<|user|>\n",
            answer: "</s>\n<|assistant|>\n",
            close: "</s>\n",
            end: "</s>",
        },
    ),
    (
        Layout::Plain,
        Texts {
            signs: &[],
            markers: &[],
            system: ("", "\n\n", Place::Before),
            user: "User: ",
            answer: "\nAssistant:",
            close: "\n",
            end: "\nUser:",
        },
    ),
];

impl Layout {
    /// The layout of a template, `tokenizer.chat_template` of a file, if it is one that we know.
    pub fn of_template(template: &str) -> Option<Self> {
        let known = LAYOUTS.iter().filter(|(_, texts)| !texts.signs.is_empty());
        let mut fitting = known.filter(|(_, texts)| texts.signs.iter().all(|sign| template.contains(sign)));
        fitting.next().map(|(layout, _)| *layout)
    }

    fn texts(self) -> &'static Texts {
        let row = LAYOUTS.iter().find(|(layout, _)| *layout == self);
        &row.expect("every layout has a row").1
    }

    pub(super) fn markers(self) -> &'static [&'static str] {
        self.texts().markers
    }

    pub(super) fn close(self) -> &'static str {
        self.texts().close
    }

    /// What has to end an answer as text, because the vocabulary has no token for it.
    pub(super) fn stop(self, tokenizer: &Tokenizer) -> Option<&'static str> {
        let end = self.texts().end;
        let is_token = tokenizer.token_id(end).is_some_and(|id| tokenizer.is_eog(id));
        (!is_token).then_some(end)
    }

    /// Writes the begin of the text, and the system message unless that is part of the first one.
    pub(super) fn begin(self, ids: &mut Ids<'_>, system: &mut Option<&str>) {
        ids.begin();
        if self.texts().system.2 == Place::Before {
            self.system(ids, system);
        }
    }

    /// Writes a message up to where its answer begins, with what is left of the system message in front.
    pub(super) fn user(self, ids: &mut Ids<'_>, message: &str, system: &mut Option<&str>) {
        ids.trusted(self.texts().user);
        self.system(ids, system);
        ids.foreign(message);
        ids.trusted(self.texts().answer);
    }

    fn system(self, ids: &mut Ids<'_>, system: &mut Option<&str>) {
        let (before, after, _) = self.texts().system;
        if let Some(text) = system.take() {
            ids.trusted(before);
            ids.foreign(text);
            ids.trusted(after);
        }
    }
}

/// Whether a token is matched as a whole, and not as text that happens to be one.
pub(super) fn is_special(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_told_apart_by_their_markers() {
        for (template, want) in [
            ("{{'<|im_start|>' + message['role']}}", Layout::ImStart),
            ("<|start_header_id|>system<|end_header_id|>", Layout::HeaderId),
            ("{{ bos_token }}<start_of_turn>", Layout::StartOfTurn),
            ("[INST] <<SYS>>", Layout::InstSys),
            ("[INST] {{ message }} [/INST]", Layout::Inst),
            ("<|user|>\n' + message['content'] + '<|end|>\n<|assistant|>", Layout::BarsEnd),
            ("<|user|> eos_token <|assistant|>", Layout::Bars),
        ] {
            assert_eq!(Layout::of_template(template), Some(want), "{template}");
        }
        assert_eq!(Layout::of_template("Human: {{ message }}"), None);
        assert_eq!(Layout::of_template(""), None);
    }

    #[test]
    fn published_templates_are_recognised() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat-templates");
        for (name, want) in [
            ("HuggingFaceTB-SmolLM3-3B", Layout::ImStart),
            ("Qwen-Qwen2.5-7B-Instruct", Layout::ImStart),
            ("google-gemma-2-2b-it", Layout::StartOfTurn),
            ("meta-llama-Llama-3.2-3B-Instruct", Layout::HeaderId),
            ("microsoft-Phi-3.5-mini-instruct", Layout::BarsEnd),
        ] {
            // An optional extra: the table above is tested without it.
            let Ok(template) = std::fs::read_to_string(directory.join(format!("{name}.jinja"))) else { return };
            assert_eq!(Layout::of_template(&template), Some(want), "{name}");
        }
    }

    #[test]
    fn every_layout_has_its_row_and_its_markers_are_its_own() {
        for (layout, texts) in &LAYOUTS {
            assert!(std::ptr::eq(layout.texts(), texts));
            let all = [texts.system.0, texts.system.1, texts.user, texts.answer, texts.close].concat();
            assert!(texts.markers.iter().all(|marker| all.contains(marker)), "{layout:?}");
        }
    }
}

//! The call formats of models, recognized by the source of their chat templates.

use super::{
    ToolSet, harmony,
    place::{
        ARG_KEY, ARGS, BRACED_CALL, BRACED_CALL_END, BRACKET_THINK, BRACKET_THINK_END, CALL,
        CALL_ID, CHANNEL, CHANNEL_END, FUNCTION, INLINE_CALL, INLINE_CALL_END, INVOKE, INVOKES,
        INVOKES_END, NAMED_ARGS, NAMED_CALL, NAMED_CALL_END, NAMED_SECTION, NAMED_SECTION_END,
        PYTHON_CALLS, PYTHON_CALLS_END, PYTHON_TAG, QUOTE, SECTION, SECTION_ARGS, SECTION_CALL,
        SECTION_CALL_END, SECTION_END, SEED_THINK, SEED_THINK_END, THINK, THINK_END, TOOL_CALL,
        TOOL_CALL_END, TOOL_CALLS, ThinkTags,
    },
};

/// How a model writes tool calls.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallFormat {
    /// `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`, one after another: Hermes 2 Pro,
    /// Qwen 2.5 and 3, SmolLM3.
    Hermes,
    /// `<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>`,
    /// one after another; strings are raw, other values are JSON: Qwen3-Coder, Qwen 3.5.
    Tagged,
    /// `<tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>`, one
    /// after another; strings are raw, other values are JSON: GLM since 4.5, which since 4.7 leaves
    /// the line breaks out.
    TaggedKeys,
    /// As [`CallFormat::Tagged`], but between `<seed:tool_call>` and `</seed:tool_call>`, and
    /// without line breaks around values: Seed-OSS.
    TaggedInline,
    /// `<minimax:tool_call>\n`, then one after another `<invoke name="NAME">\n<parameter
    /// name="KEY">VALUE</parameter>\n</invoke>\n`, then `</minimax:tool_call>`; strings are raw,
    /// other values are JSON: MiniMax M2.
    Invokes,
    /// `<|tool_call>call:NAME{key:value,…}<tool_call|>`, one after another; strings stand between
    /// two `<|"|>`: Gemma 4.
    Braced,
    /// `<|tool_call_start|>[NAME(key=value, …), …]<|tool_call_end|>`, with values of Python: LFM2.
    /// Its template writes no calls; they stand in the text of a message.
    Python,
    /// `{"name": …, "parameters": {…}}` is all of the answer, perhaps with `"type": "function"`
    /// before the name; `<|python_tag|>` may stand in front: Llama 3.1 to 3.3. Several, with `;
    /// ` between them, are read, but the template takes one.
    Bare,
    /// `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, each call with an `id` of 9 characters if it
    /// likes: Mistral 7B 0.3, Nemo.
    MarkedList,
    /// `[TOOL_CALLS]name[ARGS]{…}`, one after another: Mistral since tokenizer version 11.
    MarkedName,
    /// `<|tool_calls_section_begin|>`, then one after another
    /// `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`, then
    /// `<|tool_calls_section_end|>`: Kimi K2.
    Section,
    /// `<｜tool▁calls▁begin｜>`, then one after another
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`, then
    /// `<｜tool▁calls▁end｜>`: DeepSeek V3.1.
    NamedSection,
    /// Messages with channels: a call, and the end of an answer, is
    /// `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}`: gpt-oss.
    Harmony,
    /// `{"tool_calls": [{"name": …, "arguments": {…}}]}` or `{"response": "…"}`: for models without
    /// a call format. [`CallFormat::instructions`] tell the model.
    Generic,
}

/// Keys that distinguish a call of [`CallFormat::Bare`] from other objects.
pub(super) const BARE_KEYS: [&str; 2] = ["parameters", "arguments"];

/// In front of the tools in the templates of LFM2.5 and LFM2.
const TOOL_LISTS: [&str; 2] = ["List of tools: [", "<|tool_list_start|>"];

/// In front of the arguments of calls of DeepSeek V3 and R1, which are no format.
const FENCED_ARGUMENTS: &str = "```json";

/// Parts of calls that no format has: DeepSeek V3.2, Apriel.
const OTHER_CALLS: [&str; 2] = ["<invoke name=", "<tool_calls>"];

const SECTION_MARKERS: &[&str] = &[
    THINK,
    THINK_END,
    SECTION,
    SECTION_END,
    SECTION_CALL,
    SECTION_ARGS,
    SECTION_CALL_END,
];
const NAMED_MARKERS: &[&str] = &[
    THINK,
    THINK_END,
    NAMED_SECTION,
    NAMED_SECTION_END,
    NAMED_CALL,
    NAMED_ARGS,
    NAMED_CALL_END,
];
const HARMONY_MARKERS: &[&str] = &[
    harmony::START,
    harmony::CHANNEL,
    harmony::CONSTRAIN,
    harmony::MESSAGE,
    harmony::END,
    harmony::CALL,
];

impl CallFormat {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Hermes,
        Self::Tagged,
        Self::TaggedKeys,
        Self::TaggedInline,
        Self::Invokes,
        Self::Braced,
        Self::Python,
        Self::Bare,
        Self::MarkedList,
        Self::MarkedName,
        Self::Section,
        Self::NamedSection,
        Self::Harmony,
        Self::Generic,
    ];

    /// The call format of a chat template; [`CallFormat::Generic`] if it writes no calls, or in an
    /// unknown format.
    pub fn of_template(source: &str) -> Self {
        let has = |text: &str| source.contains(text);
        if harmony::is_template(source) {
            Self::Harmony
        } else if has(SECTION) && has(SECTION_CALL) {
            Self::Section
        } else if has(NAMED_SECTION) && has(NAMED_ARGS) && !has(FENCED_ARGUMENTS) {
            Self::NamedSection
        } else if has(INLINE_CALL) && has(FUNCTION) {
            Self::TaggedInline
        } else if has(INVOKES) && has(INVOKE) {
            Self::Invokes
        } else if OTHER_CALLS.into_iter().any(has) || has(FUNCTION) && !has(TOOL_CALL) {
            Self::Generic
        } else if has(TOOL_CALL) && has(ARG_KEY) {
            Self::TaggedKeys
        } else if has(BRACED_CALL) && has(CALL) && has(QUOTE) {
            Self::Braced
        } else if has(FUNCTION) {
            Self::Tagged
        } else if has(TOOL_CALL) {
            Self::Hermes
        } else if has(TOOL_CALLS) {
            if has(ARGS) {
                Self::MarkedName
            } else {
                Self::MarkedList
            }
        } else if has("<|start_header_id|>") && has("\"parameters\": ") {
            Self::Bare
        } else if TOOL_LISTS.into_iter().any(has) {
            Self::Python
        } else {
            Self::Generic
        }
    }

    /// Markers to look for in the output. The parser must see the text of those that are control
    /// tokens.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Tagged | Self::TaggedKeys => {
                &[THINK, THINK_END, TOOL_CALL, TOOL_CALL_END]
            }
            Self::Braced => &[CHANNEL, CHANNEL_END, BRACED_CALL, BRACED_CALL_END, QUOTE],
            Self::Python => &[THINK, THINK_END, PYTHON_CALLS, PYTHON_CALLS_END],
            Self::Bare => &[THINK, THINK_END, PYTHON_TAG],
            Self::TaggedInline => &[SEED_THINK, SEED_THINK_END, INLINE_CALL, INLINE_CALL_END],
            Self::Invokes => &[THINK, THINK_END, INVOKES, INVOKES_END],
            Self::MarkedList => &[THINK, THINK_END, TOOL_CALLS, CALL_ID, ARGS],
            Self::MarkedName => &[BRACKET_THINK, BRACKET_THINK_END, TOOL_CALLS, CALL_ID, ARGS],
            Self::Section => SECTION_MARKERS,
            Self::NamedSection => NAMED_MARKERS,
            Self::Harmony => HARMONY_MARKERS,
            Self::Generic => &[THINK, THINK_END],
        }
    }

    /// The tags around thinking.
    pub(super) fn think_tags(self) -> ThinkTags {
        match self {
            Self::Braced => ThinkTags::Channel,
            Self::Harmony => ThinkTags::Harmony,
            Self::MarkedName => ThinkTags::Bracket,
            Self::TaggedInline => ThinkTags::Seed,
            _ => ThinkTags::Think,
        }
    }

    /// The marker in front of calls, in formats that have one.
    pub(super) fn call_marker(self) -> Option<&'static str> {
        match self {
            Self::Hermes | Self::Tagged | Self::TaggedKeys => Some(TOOL_CALL),
            Self::Braced => Some(BRACED_CALL),
            Self::Python => Some(PYTHON_CALLS),
            Self::MarkedList | Self::MarkedName => Some(TOOL_CALLS),
            Self::Section => Some(SECTION),
            Self::NamedSection => Some(NAMED_SECTION),
            Self::TaggedInline => Some(INLINE_CALL),
            Self::Invokes => Some(INVOKES),
            Self::Bare | Self::Harmony | Self::Generic => None,
        }
    }

    /// A test whether an answer is a call, or may become one; thinking may come first.
    pub(crate) fn call_test(self) -> fn(&[u8]) -> bool {
        match self {
            Self::Hermes | Self::Tagged | Self::TaggedKeys => {
                |answer| begins(answer, |text| text.starts_with(TOOL_CALL))
            }
            Self::Python => |answer| begins(answer, |text| text.starts_with(PYTHON_CALLS)),
            Self::Braced => |answer| begins(answer, |text| text.starts_with(BRACED_CALL)),
            Self::MarkedList | Self::MarkedName => {
                |answer| begins(answer, |text| text.starts_with(TOOL_CALLS))
            }
            Self::Section => |answer| begins(answer, |text| text.starts_with(SECTION)),
            Self::NamedSection => |answer| begins(answer, |text| text.starts_with(NAMED_SECTION)),
            Self::TaggedInline => |answer| begins(answer, |text| text.starts_with(INLINE_CALL)),
            Self::Invokes => |answer| begins(answer, |text| text.starts_with(INVOKES)),
            Self::Harmony => |answer| harmony::is_call(&String::from_utf8_lossy(answer)),
            Self::Bare => |answer| {
                let has_key = |text: &str| keys_of(text).any(|key| BARE_KEYS.contains(&key));
                begins(answer, |text| text.starts_with(PYTHON_TAG) || has_key(text))
            },
            Self::Generic => |answer| {
                begins(answer, |text| {
                    let object = text.strip_prefix('{').map(str::trim_start);
                    object.is_some_and(|rest| rest.starts_with("\"tool_calls\""))
                })
            },
        }
    }

    /// Instructions for the system message, if the template does not tell the model about tools;
    /// such a template must not be given tools.
    pub fn instructions(self, tools: &ToolSet) -> Option<String> {
        if self != Self::Generic || tools.is_empty() {
            return None;
        }
        let mut text = String::from(INSTRUCTIONS);
        for definition in tools.definitions() {
            text.push('\n');
            text.push_str(&definition["function"].to_string());
        }
        Some(text)
    }
}

const INSTRUCTIONS: &str = r#"You can use tools. Answer with one JSON object and nothing else.
To use tools: {"tool_calls": [{"name": "<name of the tool>", "arguments": {<its arguments>}}]}
To answer the user: {"response": "<your answer>"}
Each line below is a tool; "parameters" is the JSON schema of its arguments."#;

/// Applies a test to the text of an answer, after its thinking.
fn begins(answer: &[u8], test: impl Fn(&str) -> bool) -> bool {
    let answer = String::from_utf8_lossy(answer);
    let answer = answer.trim_start();
    let tags = [
        ThinkTags::Think,
        ThinkTags::Channel,
        ThinkTags::Bracket,
        ThinkTags::Seed,
    ];
    let tags = tags
        .into_iter()
        .find(|tags| answer.starts_with(tags.open()));
    let text = match tags {
        Some(tags) => answer
            .split_once(tags.close())
            .map_or("", |(_, text)| text)
            .trim_start(),
        None => answer,
    };
    test(text)
}

/// The strings directly inside the first object of a JSON prefix, including all keys.
fn keys_of(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let mut start = None;
    let mut is_escaped = false;
    text.char_indices().filter_map(move |(i, c)| {
        match (start, c) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(from), '"') => {
                start = None;
                return (depth == 1).then(|| &text[from..i]);
            }
            (Some(_), _) => {}
            (None, '"') => start = Some(i + 1),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn a_template_shows_its_format() {
        let of = CallFormat::of_template;
        assert_eq!(
            of(r#"{{- '\n<tool_call>\n{"name": "' }}{{ tool_call.name }}"#),
            CallFormat::Hermes
        );
        assert_eq!(
            of("{{ '<tool_call>\\n<function=' + name + '>\\n' }}"),
            CallFormat::Tagged
        );
        assert_eq!(
            of("{{ '<tool_call>' + name }}{{ '<arg_key>' }}"),
            CallFormat::TaggedKeys
        );
        assert_eq!(
            of(r#"{{ '<|tool_call>call:' + name + '{' }}{{ '<|"|>' + text + '<|"|>' }}"#),
            CallFormat::Braced
        );
        assert_eq!(
            of(r#"{%- set system = system + "List of tools: [" -%}"#),
            CallFormat::Python
        );
        assert_eq!(
            of(r#"{{ '<|start_header_id|>' }}{{- '"parameters": ' }}{{ a | tojson }}"#),
            CallFormat::Bare
        );
        assert_eq!(
            of(r#"{{ "[TOOL_CALLS] [" }}{% for t in message.tool_calls %}"#),
            CallFormat::MarkedList
        );
        assert_eq!(
            of(r#"{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"#),
            CallFormat::MarkedName
        );
        assert_eq!(
            of("<|tool_calls_section_begin|>{% for call in calls %}<|tool_call_begin|>{{ id }}"),
            CallFormat::Section
        );
        let sections = "'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>'";
        assert_eq!(of(sections), CallFormat::NamedSection);
        assert_eq!(of(&format!("{sections} + '```json'")), CallFormat::Generic);
        assert_eq!(
            of("{{ '<seed:tool_call>' }}{{ '<function=' + name + '>' }}"),
            CallFormat::TaggedInline
        );
        assert_eq!(
            of(r#"{{ '<minimax:tool_call>' }}{{ '<invoke name="' + name + '">' }}"#),
            CallFormat::Invokes
        );
        assert_eq!(
            of("{{ '<|start|>assistant<|channel|>final<|message|>' + text }}"),
            CallFormat::Harmony
        );
        assert_eq!(of("{{ '<start_of_turn>' + role }}"), CallFormat::Generic);
        assert_eq!(of(""), CallFormat::Generic);
    }

    #[test]
    fn calls_in_unknown_tags_are_no_format_of_ours() {
        for source in [
            "{{ '[TOOL_CALLS]<function=' + name + '>' }}",
            "{{ '<tool_call>' + '<invoke name=' + name }}",
            "{{ '<tool_calls>[' + calls + ']</tool_calls>' }}for <tool_call>",
        ] {
            assert_eq!(CallFormat::of_template(source), CallFormat::Generic);
        }
    }

    /// Templates of other authors cannot be copied; the test uses them where they are installed.
    #[test]
    fn templates_of_models_are_told_apart() {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat-templates");
        let Ok(entries) = fs::read_dir(directory) else {
            return;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let expected = match name.split(['-', '.']).next().unwrap() {
                "NousResearch" | "Qwen" | "ibm" => CallFormat::Hermes,
                "Qwen3" => CallFormat::Tagged,
                "LFM2" => CallFormat::Python,
                "meta" => CallFormat::Bare,
                "moonshotai" => CallFormat::Section,
                "openai" => CallFormat::Harmony,
                "google" if name.contains("gemma-4") => CallFormat::Braced,
                // This copy of SmolLM3's template leaves tools out.
                "HuggingFaceTB" | "google" | "microsoft" => CallFormat::Generic,
                _ => continue,
            };
            assert_eq!(
                CallFormat::of_template(&fs::read_to_string(path).unwrap()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn only_models_without_a_format_are_told_one() {
        let tools = ToolSet::parse(r#"[{"name": "f"}, {"name": "g"}]"#).unwrap();
        assert_eq!(CallFormat::Hermes.instructions(&tools), None);
        assert_eq!(CallFormat::Generic.instructions(&ToolSet::default()), None);
        let text = CallFormat::Generic.instructions(&tools).unwrap();
        assert!(
            text.ends_with(
                "\n{\"name\":\"g\",\"description\":\"\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}"
            ),
            "{text}"
        );
    }
}

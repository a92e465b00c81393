//! How calls follow one another after the first marker, as a rule of the grammar.

use super::{
    CallFormat,
    grammar::{GAP, Lark},
    place::{
        BRACED_CALL, BRACED_CALL_END, INLINE_CALL, INLINE_CALL_END, INVOKES_END, NAMED_SECTION_END,
        PYTHON_CALLS_END, PYTHON_TAG, SECTION_END, TOOL_CALL, TOOL_CALL_END, TOOL_CALLS,
    },
};

impl Lark<'_> {
    /// Writes the rule `calls`.
    pub(super) fn sequence(&mut self) {
        let calls = match self.rules.format {
            CallFormat::Hermes | CallFormat::Tagged | CallFormat::TaggedKeys => {
                self.tagged_calls([TOOL_CALL, TOOL_CALL_END])
            }
            CallFormat::TaggedInline => self.tagged_calls([INLINE_CALL, INLINE_CALL_END]),
            CallFormat::Invokes => {
                let end = self.tag_after_line(INVOKES_END);
                format!("call {} {end}", self.again("call"))
            }
            CallFormat::NamedSection => {
                format!(
                    "call {} {}",
                    self.again("call"),
                    self.tag(NAMED_SECTION_END)
                )
            }
            CallFormat::Braced => {
                let [begin, end] = [BRACED_CALL, BRACED_CALL_END].map(|text| self.tag(text));
                format!("call {end} {}", self.again(&format!("{begin} call {end}")))
            }
            CallFormat::Python => format!(
                r#""[" call {} "]" {}"#,
                self.again("/, ?/ call"),
                self.tag(PYTHON_CALLS_END)
            ),
            CallFormat::Section => {
                format!("call {} {}", self.again("call"), self.tag(SECTION_END))
            }
            CallFormat::MarkedName => {
                let again = self.again(&format!("{} call", self.tag(TOOL_CALLS)));
                format!("call {again}")
            }
            CallFormat::MarkedList => {
                format!(r"/ ?\[/ call {} / ?\]/", self.again("/, ?/ call"))
            }
            CallFormat::Generic => {
                let again = self.again("/, ?/ call");
                format!(r#"/{GAP}\{{ ?"tool_calls": ?\[/ call {again} / ?\] ?\}}/"#)
            }
            CallFormat::Bare => format!("{} call", self.python_tag()),
            CallFormat::Harmony => "call".to_owned(),
        };
        self.line(&format!("calls: {calls}"));
    }

    /// Calls between tags, with line breaks around these.
    fn tagged_calls(&self, tags: [&str; 2]) -> String {
        let [begin, end] = tags.map(|tag| self.tag_after_line(tag));
        format!("call {end} {}", self.again(&format!("{begin} call {end}")))
    }

    /// Further calls, if there may be several.
    fn again(&self, call: &str) -> String {
        match self.rules.repeats() {
            true => format!("({call})*"),
            false => String::new(),
        }
    }

    /// The optional leading marker, where the vocabulary has it.
    fn python_tag(&self) -> String {
        self.token(PYTHON_TAG)
            .map(|token| format!("{token}?"))
            .unwrap_or_default()
    }
}

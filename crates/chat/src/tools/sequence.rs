//! How calls follow one another after the first marker, as a rule of the grammar.

use super::{
    CallFormat,
    grammar::{GAP, Lark, regex},
    place::{
        BRACED_CALL, BRACED_CALL_END, PYTHON_CALLS_END, PYTHON_TAG, SECTION_END, TOOL_CALL,
        TOOL_CALL_END, TOOL_CALLS,
    },
};

impl Lark<'_> {
    /// Writes the rule `calls`.
    pub(super) fn sequence(&mut self) {
        let calls = match self.rules.format {
            CallFormat::Hermes | CallFormat::Tagged | CallFormat::TaggedKeys => self.tagged_calls(),
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
    fn tagged_calls(&self) -> String {
        let end = match self.token(TOOL_CALL_END) {
            Some(token) => format!("\"\\n\"? {token}"),
            None => format!(r"/\n?{}/", regex(TOOL_CALL_END)),
        };
        let again = match self.token(TOOL_CALL) {
            Some(token) => format!("\"\\n\"? {token} call {end}"),
            None => format!(r"/\n?{}/ call {end}", regex(TOOL_CALL)),
        };
        format!("call {end} {}", self.again(&again))
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

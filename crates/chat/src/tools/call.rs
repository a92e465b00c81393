//! Scans one tool call while it is generated: an object with name and arguments, the arguments of a
//! call whose name is known, parameters in tags or in braces. Knows no markers. Positions refer to
//! the text that the parser holds.

use std::ops::Range;

use serde_json::Value;

use super::{
    braced::BracedScan,
    definition::is_name,
    json::{Json, Malformed, is_space},
    tagged::TaggedScan,
};

/// The scanner of one call.
#[derive(Clone, Debug)]
pub(super) struct CallScan {
    syntax: ScanSyntax,
    /// The id of the call, if the model wrote one or the call was announced.
    id: Option<String>,
    /// How much of the arguments was emitted; `None`: the call was not announced yet.
    pub(super) given: Option<usize>,
}

#[derive(Clone, Debug)]
enum ScanSyntax {
    Object(ObjectScan),
    Tagged(TaggedScan),
    Braced(BracedScan),
}

impl CallScan {
    /// Scans an object with name and arguments, in either order.
    pub(super) fn object() -> Self {
        Self::of(ScanSyntax::Object(ObjectScan::named(false)))
    }

    /// As [`CallScan::object`], with an optional id.
    pub(super) fn object_with_id() -> Self {
        Self::of(ScanSyntax::Object(ObjectScan::named(true)))
    }

    /// Scans the arguments of a call whose name is known.
    pub(super) fn arguments_of(name: String, id: Option<String>) -> Self {
        Self::of(ScanSyntax::Object(ObjectScan::arguments_of(name, id)))
    }

    /// Scans parameters in tags.
    pub(super) fn tagged(scan: TaggedScan) -> Self {
        Self::of(ScanSyntax::Tagged(scan))
    }

    /// Scans parameters in braces.
    pub(super) fn braced(scan: BracedScan) -> Self {
        Self::of(ScanSyntax::Braced(scan))
    }

    fn of(syntax: ScanSyntax) -> Self {
        Self {
            syntax,
            id: None,
            given: None,
        }
    }

    /// Takes the next character, which is the last of `held`. Returns whether the call is complete.
    ///
    /// # Errors
    /// [`Malformed`] if no call continues like this.
    pub(super) fn push(&mut self, held: &str, c: char) -> Result<bool, Malformed> {
        match &mut self.syntax {
            ScanSyntax::Object(scan) => scan.push(held, c),
            ScanSyntax::Tagged(scan) => scan.push(held, c),
            ScanSyntax::Braced(scan) => scan.push(held, c),
        }
    }

    /// Whether name and id are known, and the arguments have begun.
    pub(super) fn can_begin(&self) -> bool {
        match &self.syntax {
            ScanSyntax::Object(scan) => scan.can_begin(),
            ScanSyntax::Tagged(scan) => scan.name_if_known().is_some(),
            ScanSyntax::Braced(scan) => scan.name_if_known().is_some(),
        }
    }

    /// The name; empty until it is known.
    pub(super) fn name(&self) -> &str {
        let name = match &self.syntax {
            ScanSyntax::Object(scan) => scan.name.as_deref(),
            ScanSyntax::Tagged(scan) => scan.name_if_known(),
            ScanSyntax::Braced(scan) => scan.name_if_known(),
        };
        name.unwrap_or_default()
    }

    /// The id, if it is known.
    pub(super) fn id(&self) -> Option<&str> {
        let written = match &self.syntax {
            ScanSyntax::Object(scan) => scan.id.as_deref(),
            ScanSyntax::Tagged(_) | ScanSyntax::Braced(_) => None,
        };
        self.id.as_deref().or(written)
    }

    /// Replaces the id of the model.
    pub(super) fn set_id(&mut self, id: String) {
        self.id = Some(id);
    }

    /// The arguments as JSON, as far as they are complete.
    pub(super) fn arguments_text<'a>(&'a self, held: &'a str) -> &'a str {
        match &self.syntax {
            ScanSyntax::Object(scan) => &held[scan.arguments_range(held)],
            ScanSyntax::Tagged(scan) => scan.json(),
            ScanSyntax::Braced(scan) => scan.json(),
        }
    }

    /// The arguments of a complete call.
    ///
    /// # Errors
    /// [`Malformed`] for values that cannot be represented, such as half a surrogate pair.
    pub(super) fn arguments(&self, held: &str) -> Result<Value, Malformed> {
        serde_json::from_str(self.arguments_text(held)).map_err(|_| Malformed)
    }
}

/// The scanner of a call in JSON.
#[derive(Clone, Debug)]
struct ObjectScan {
    json: Json,
    name: Option<String>,
    id: Option<String>,
    /// Start of the arguments in the text, and their end once it is reached.
    arguments: Option<Span>,
    fields: Fields,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: Option<usize>,
}

/// How the object is read.
#[derive(Clone, Debug)]
enum Fields {
    /// The whole object is the arguments.
    Arguments,
    /// It has fields of these kinds.
    Named(Named),
}

#[derive(Clone, Debug, Default)]
struct Named {
    /// Whether it may have an id, which may come last.
    ids: bool,
    /// Start of the current string.
    token: usize,
    /// The field whose value is expected or being read.
    field: Option<Field>,
    seen: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Id,
    Type,
}

impl ObjectScan {
    /// An object with name and arguments, and perhaps an id.
    fn named(ids: bool) -> Self {
        let named = Named {
            ids,
            ..Named::default()
        };
        Self::new(None, None, Fields::Named(named))
    }

    /// The arguments of a call whose name is known.
    fn arguments_of(name: String, id: Option<String>) -> Self {
        Self::new(Some(name), id, Fields::Arguments)
    }

    fn new(name: Option<String>, id: Option<String>, fields: Fields) -> Self {
        Self {
            json: Json::new(),
            name,
            id,
            arguments: None,
            fields,
        }
    }

    fn push(&mut self, held: &str, c: char) -> Result<bool, Malformed> {
        let at = held.len() - c.len_utf8();
        let before = Before::of(&self.json);
        self.json.push(c)?;
        match &mut self.fields {
            Fields::Arguments => self.whole(held, at),
            Fields::Named(_) => self.field(held, at, c, before)?,
        }
        if self.json.is_done() && (self.name.is_none() || self.arguments.is_none()) {
            return Err(Malformed);
        }
        Ok(self.json.is_done())
    }

    fn can_begin(&self) -> bool {
        let id_may_come =
            matches!(&self.fields, Fields::Named(Named { ids: true, .. })) && self.id.is_none();
        self.name.is_some() && self.arguments.is_some() && (!id_may_come || self.json.is_done())
    }

    /// Range of the arguments in the text, as far as they are complete.
    fn arguments_range(&self, held: &str) -> Range<usize> {
        self.arguments
            .map_or(0..0, |span| span.start..span.end.unwrap_or(held.len()))
    }

    fn whole(&mut self, held: &str, at: usize) {
        if self.json.depth() == 1 && self.arguments.is_none() {
            self.arguments = Some(Span {
                start: at,
                end: None,
            });
        }
        if let (true, Some(span)) = (self.json.is_done(), &mut self.arguments) {
            span.end = Some(held.len());
        }
    }

    /// Follows the fields of the outermost object.
    fn field(&mut self, held: &str, at: usize, c: char, before: Before) -> Result<(), Malformed> {
        let Fields::Named(named) = &mut self.fields else {
            return Ok(());
        };
        if before.depth != 1 && self.json.depth() != 1 {
            return Ok(());
        }
        if self.json.is_in_key() && !before.in_key {
            named.token = at;
        } else if self.json.awaits_colon() && before.in_key {
            named.key(&held[named.token + 1..at])?;
        } else if before.awaits_value && !is_space(c) {
            let field = named.value(at, c)?;
            if field == Field::Arguments {
                self.arguments = Some(Span {
                    start: at,
                    end: None,
                });
            }
        } else if self.json.is_after_value()
            && let Some(field) = named.field.take()
        {
            let text = &held[named.token..];
            self.set(field, text, held.len())?;
        }
        Ok(())
    }

    /// Takes the value of a field. Names and ids are plain strings without escapes.
    fn set(&mut self, field: Field, text: &str, end: usize) -> Result<(), Malformed> {
        if field == Field::Arguments {
            self.arguments
                .iter_mut()
                .for_each(|span| span.end = Some(end));
            return Ok(());
        }
        let text = text.trim_matches('"');
        match field {
            Field::Name if is_name(text) => self.name = Some(text.to_owned()),
            Field::Id if is_name(text) => self.id = Some(text.to_owned()),
            Field::Type if text == "function" => {}
            _ => return Err(Malformed),
        }
        Ok(())
    }
}

impl Named {
    /// A key has ended; each field may occur once.
    fn key(&mut self, key: &str) -> Result<(), Malformed> {
        let field = match key {
            "name" => Field::Name,
            "arguments" | "parameters" => Field::Arguments,
            "type" => Field::Type,
            "id" if self.ids => Field::Id,
            _ => return Err(Malformed),
        };
        if self.seen.contains(&field) {
            return Err(Malformed);
        }
        self.seen.push(field);
        self.field = Some(field);
        Ok(())
    }

    /// A value begins.
    fn value(&mut self, at: usize, c: char) -> Result<Field, Malformed> {
        self.token = at;
        match self.field {
            Some(Field::Arguments) if c == '{' => Ok(Field::Arguments),
            Some(field) if field != Field::Arguments && c == '"' => Ok(field),
            _ => Err(Malformed),
        }
    }
}

/// State of the scan before a character.
#[derive(Clone, Copy, Debug)]
struct Before {
    depth: usize,
    in_key: bool,
    awaits_value: bool,
}

impl Before {
    fn of(json: &Json) -> Self {
        Self {
            depth: json.depth(),
            in_key: json.is_in_key(),
            awaits_value: json.awaits_value(),
        }
    }
}

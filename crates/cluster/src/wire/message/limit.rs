//! Limits of the lists, texts and numbers in messages.

use super::{
    Answer, Card, CardEvent, ChainLink, MAX_ECHO_BYTES, MAX_MEMBERS, MemberGroup, MessageError,
    PartRequest, Prepare, Question,
};
use crate::part::{MAX_RANGES, MAX_STATES, PartWish};

/// Most characters of a line for people.
pub(super) const LINE: usize = 400;
/// Most bytes of the name of a model or program.
const NAME: usize = 255;
/// Most addresses of a node.
const ADDRESSES: usize = 16;
/// Most sources of a model.
const SOURCES: usize = 16;
/// Most files of a model.
const FILES: usize = 256;
/// Most events of a card or log.
const EVENTS: usize = 64;
/// Most members of a group.
const MEMBERS: usize = 16;
/// Most stages of a ring.
const STAGES: u16 = 64;

pub(super) fn check_question(question: &Question) -> Result<(), MessageError> {
    match question {
        Question::Echo { n_bytes } => up_to("bytes of padding", *n_bytes, MAX_ECHO_BYTES),
        Question::Prepare(prepare) | Question::Fetch(prepare) => check_prepare(prepare),
        Question::Members { .. }
        | Question::Describe
        | Question::MeasureLink { .. }
        | Question::Progress { .. }
        | Question::Release { .. }
        | Question::Leave
        | Question::Log
        | Question::Chain
        | Question::Rekey { .. } => Ok(()),
    }
}

pub(super) fn check_answer(answer: &Answer) -> Result<(), MessageError> {
    match answer {
        Answer::Members { others, .. } => up_to("members", others.len(), MAX_MEMBERS),
        Answer::Card(card) => check_card(card),
        Answer::Log(events) => check_events(events),
        Answer::Loading(loading) => line(&loading.what),
        Answer::Blocked(blocked) => {
            line(&blocked.why)?;
            blocked.would_do.as_deref().map_or(Ok(()), line)
        }
        Answer::Refused { why } => line(why),
        Answer::Link(link) => rate("a link", link.bytes_per_s),
        Answer::Chain(link) => check_chain(link),
        Answer::Echo { .. }
        | Answer::Measuring
        | Answer::Ready(_)
        | Answer::Occupied(_)
        | Answer::Fetched
        | Answer::Released
        | Answer::Rekeyed => Ok(()),
    }
}

pub(super) fn check_part_request(request: &PartRequest) -> Result<(), MessageError> {
    match &request.wish {
        PartWish::Beginning => Ok(()),
        PartWish::Ranges(ranges) => up_to("ranges", ranges.len(), MAX_RANGES),
        PartWish::States(names) => up_to("states", names.len(), MAX_STATES),
    }
}

fn check_prepare(prepare: &Prepare) -> Result<(), MessageError> {
    up_to("sources", prepare.sources.len(), SOURCES)?;
    up_to("files of a model", prepare.model.files.len(), FILES)?;
    name(&prepare.program)?;
    file_name(&prepare.model.name)?;
    let part = &prepare.part;
    let layers = part.layers;
    up_to("stages", part.n_stages, STAGES)?;
    let is_stage = (1..=part.n_stages).contains(&part.stage);
    let is_first = part.stage == 1;
    let is_last = part.stage == part.n_stages;
    let has_neighbours = match &prepare.group {
        Some(group) => {
            check_group(group, part.n_stages)?;
            prepare.previous.is_none() && prepare.next.is_none()
        }
        None => is_first == prepare.previous.is_none() && is_last == prepare.next.is_none(),
    };
    if !is_stage || layers.start >= layers.end || !has_neighbours {
        return Err(MessageError::Field(format!(
            "stage {} of {}, layers {} to {}, which is none of a ring",
            part.stage, part.n_stages, layers.start, layers.end
        )));
    }
    if prepare.model.files.is_empty() {
        return Err(MessageError::Field("a model without files".to_owned()));
    }
    Ok(())
}

fn check_chain(link: &ChainLink) -> Result<(), MessageError> {
    match link.end {
        Some(end) if end <= link.start => Err(MessageError::Field(format!(
            "layers {} to {end}, which are none",
            link.start
        ))),
        _ => Ok(()),
    }
}

fn check_group(group: &MemberGroup, n_others: u16) -> Result<(), MessageError> {
    up_to("members", group.speeds.len(), MEMBERS)?;
    let n_others = usize::from(n_others);
    match group.others.len() == n_others && group.speeds.len() == n_others + 1 {
        true => Ok(()),
        false => Err(MessageError::Field(format!(
            "{} members and {} speeds, expected {n_others} and {}",
            group.others.len(),
            group.speeds.len(),
            n_others + 1
        ))),
    }
}

fn check_card(card: &Card) -> Result<(), MessageError> {
    name(&card.program)?;
    name(&card.isa)?;
    up_to("addresses", card.addresses.len(), ADDRESSES)?;
    if let Some(measure) = &card.measure {
        rate("memory", measure.read_bytes_per_s)?;
        rate("arithmetic", measure.macs_per_s)?;
        rate("a disk", measure.disk_bytes_per_s)?;
    }
    if card.celsius.is_some_and(|t| !(-100.0..=250.0).contains(&t)) {
        return Err(MessageError::Field("an impossible temperature".to_owned()));
    }
    if let Some(held) = &card.held {
        name(&held.model)?;
    }
    check_events(&card.events)
}

fn check_events(events: &[CardEvent]) -> Result<(), MessageError> {
    up_to("events", events.len(), EVENTS)?;
    events.iter().try_for_each(|event| line(&event.text))
}

fn up_to<T: PartialOrd + std::fmt::Display>(what: &str, n: T, most: T) -> Result<(), MessageError> {
    match n <= most {
        true => Ok(()),
        false => Err(MessageError::Field(format!("{n} {what}, {most} at most"))),
    }
}

/// A line that a terminal shows as it is.
fn line(text: &str) -> Result<(), MessageError> {
    up_to("characters in a line", text.chars().count(), LINE)?;
    printable(text)
}

fn name(text: &str) -> Result<(), MessageError> {
    up_to("bytes in a name", text.len(), NAME)?;
    printable(text)
}

/// A name that is one component of a path and nothing else.
fn file_name(text: &str) -> Result<(), MessageError> {
    name(text)?;
    let is_path = text.contains(['/', '\\', ':']) || text.starts_with('.');
    match text.is_empty() || is_path {
        true => Err(MessageError::Field(format!(
            "the file name {text:?}, which is none"
        ))),
        false => Ok(()),
    }
}

fn printable(text: &str) -> Result<(), MessageError> {
    match text.chars().any(char::is_control) {
        true => Err(MessageError::Field("control characters".to_owned())),
        false => Ok(()),
    }
}

fn rate(what: &str, rate: f64) -> Result<(), MessageError> {
    match rate.is_finite() && rate >= 0.0 {
        true => Ok(()),
        false => Err(MessageError::Field(format!(
            "a speed of {what} that is none"
        ))),
    }
}

//! The context of the built-in agent: a small window over the talk, behind the system part, which
//! stays.
//!
//! Knows tokens of prompts and no model. The figures are those that `tools/builtin-model/home` was
//! tried with: over 30 messages it calls the right tool in 96 of 100 cases, where a context that
//! holds all of them drops to 20 after the first fifteen.

use atta::{
    Overflow, SessionOptions,
    chat::{Chat, Message},
};

use crate::failure::Failure;

/// Tokens that are remembered, the system part included.
const WINDOW: usize = 384;

/// The part of the window, one in so many, that the system part may take.
const SYSTEM_SHARE: usize = 2;

/// A session with such a window; how much of its beginning stays is found later.
pub(super) fn small(session: SessionOptions) -> SessionOptions {
    SessionOptions {
        n_ctx: Some(WINDOW),
        overflow: Overflow::Shift { n_keep: 0 },
        ..session
    }
}

/// The same with all tokens kept that come before the first message. A system part that leaves too
/// little room for what is said is not kept as a whole.
pub(super) fn after_system_part(
    session: &SessionOptions,
    chat: &mut Chat,
) -> Result<SessionOptions, Failure> {
    let mut prompt = |text: &str| -> Result<Vec<u32>, Failure> {
        chat.push(Message::user(text));
        let prompt = chat.prompt().map_err(atta::Error::from);
        chat.rewind(0);
        Ok(prompt?.ids)
    };
    let (a, b) = (prompt("0")?, prompt("a")?);
    let n_common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let n_keep = n_common.min(WINDOW / SYSTEM_SHARE);
    Ok(SessionOptions {
        overflow: Overflow::Shift { n_keep },
        ..session.clone()
    })
}

//! A conversation: what was said, and a session whose state is reused from turn to turn.
//!
//! Knows no terminal and no files. The one idea: the ids of the whole conversation are made anew for every message, from
//! the ids of what the model said itself and the text of everything else, and the session keeps as much of its state as
//! begins the same way. So nothing has to be kept in step: after an error, a new system message or a cleared history the
//! common beginning is simply shorter.

mod layout;
mod render;

use std::{ops::ControlFlow, time::Duration};

use atta_tokenizer::Special;

pub use layout::Layout;

use crate::{Error, Event, FinishReason, GenerateOptions, Session, Summary};

/// A message of the user and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    user: String,
    answer: String,
    /// The answer as the model gave it.
    ids: Vec<u32>,
}

impl Turn {
    /// What the user said.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// What the model said.
    pub fn answer(&self) -> &str {
        &self.answer
    }
}

/// Whoever hears of an answer.
type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// How an answer went.
#[derive(Clone, Debug)]
pub struct Reply {
    /// How the generation went; its prompt is what had to be evaluated.
    pub summary: Summary,
    /// Tokens of the conversation that were in the session or a cache already.
    pub n_cached: usize,
    /// How long it took to get them from a cache; zero without one.
    pub restore_time: Duration,
}

/// What there is of a conversation before it is read.
#[derive(Default)]
struct Recalled {
    n_tokens: usize,
    time: Duration,
    notes: Vec<String>,
}

/// A conversation.
pub struct Chat {
    session: Session,
    layout: Layout,
    guarded: Vec<String>,
    system: Option<String>,
    turns: Vec<Turn>,
    #[cfg(feature = "cache")]
    cache: Option<crate::PromptCache>,
}

impl Chat {
    /// An empty conversation in a session of its own.
    pub fn new(session: Session, layout: Layout) -> Self {
        let guarded = render::guarded(session.engine().tokenizer(), layout.markers());
        Self {
            session,
            layout,
            guarded,
            system: None,
            turns: Vec::new(),
            #[cfg(feature = "cache")]
            cache: None,
        }
    }

    /// Has the state of the conversation restored from a cache and saved there, message by message.
    #[cfg(feature = "cache")]
    pub fn set_cache(&mut self, cache: crate::PromptCache) {
        self.cache = Some(cache);
    }

    /// The session behind it.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What has been said.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// What the model was told in front of everything.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Tells the model something in front of everything; `None`: nothing. What has been said stays.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Forgets what has been said, but not the system message.
    pub fn clear(&mut self) {
        self.turns.clear();
    }

    /// Replaces what has been said by pairs of a message and its answer.
    pub fn restore(&mut self, turns: impl IntoIterator<Item = (String, String)>) {
        let tokenizer = self.session.engine().tokenizer();
        let turn = |(user, answer): (String, String)| {
            let ids = tokenizer.encode(&answer, Special::Plain);
            Turn { user, answer, ids }
        };
        self.turns = turns.into_iter().map(turn).collect();
    }

    /// Says something, and hears the answer by `on_event`, without white space in front. Only what the session does not
    /// hold yet is evaluated.
    ///
    /// Nothing in `message` is a special token. An answer that was interrupted is part of the conversation as far as it
    /// went; a message that was interrupted before its answer began, and one that failed, is none.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] if the conversation does not fit the context with this message, and nothing is evaluated
    /// then; those of [`Session::generate`].
    pub fn say(
        &mut self,
        message: &str,
        options: &GenerateOptions,
        mut on_event: impl FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Reply, Error> {
        let ids = self.ids(message);
        let n_ctx = self.session.n_ctx();
        if ids.len() > n_ctx && !self.session.shifts() {
            return Err(Error::PromptTooLong { n_prompt: ids.len(), n_ctx });
        }
        let Recalled { n_tokens: n_cached, time: restore_time, notes } = self.recall(&ids)?;
        for note in &notes {
            // Whoever wants to stop says so when the prompt is read.
            let _ = on_event(Event::Note(note));
        }
        let mut options = options.clone();
        options.stop.extend(self.layout.stop(self.session.engine().tokenizer()).map(str::to_owned));
        let mut answer = String::new();
        let summary = self.answer(&ids[n_cached..], &options, &mut |event| match event {
            Event::Text(text) => {
                let text = if answer.is_empty() { text.trim_start() } else { text };
                answer.push_str(text);
                if text.is_empty() { ControlFlow::Continue(()) } else { on_event(Event::Text(text)) }
            }
            other => on_event(other),
        })?;
        if summary.n_generated > 0 {
            let ids = self.answer_ids(ids.len(), &answer, &summary);
            self.turns.push(Turn { user: message.to_owned(), answer, ids });
        }
        Ok(Reply { summary, n_cached, restore_time })
    }

    /// Keeps of the session what begins the same way, or more if a cache has more; what there is to say about that comes with it.
    fn recall(&mut self, ids: &[u32]) -> Result<Recalled, Error> {
        #[cfg(feature = "cache")]
        if let Some(cache) = &self.cache {
            let crate::Restored { n_tokens, time, notes } = self.session.restore(cache, ids)?;
            return Ok(Recalled { n_tokens, time, notes });
        }
        Ok(Recalled { n_tokens: self.session.keep_common(ids)?, ..Recalled::default() })
    }

    fn answer(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Summary, Error> {
        #[cfg(feature = "cache")]
        if let Some(cache) = &self.cache {
            return self.session.generate_saving(cache, prompt, options, on_event);
        }
        self.session.generate(prompt, options, on_event)
    }

    /// The ids of the conversation, up to where the answer to `message` begins.
    fn ids(&self, message: &str) -> Vec<u32> {
        let tokenizer = self.session.engine().tokenizer();
        let mut ids = render::Ids::new(tokenizer, self.layout.markers(), &self.guarded);
        let mut system = self.system.as_deref().filter(|text| !text.is_empty());
        self.layout.begin(&mut ids, &mut system);
        for turn in &self.turns {
            self.layout.user(&mut ids, &turn.user, &mut system);
            ids.tokens(&turn.ids);
            ids.trusted(self.layout.close());
        }
        self.layout.user(&mut ids, message, &mut system);
        ids.finish()
    }

    /// The ids of an answer that began at `start`, without what ended it.
    fn answer_ids(&self, start: usize, answer: &str, summary: &Summary) -> Vec<u32> {
        let tokenizer = self.session.engine().tokenizer();
        let last: Vec<u32> = summary.pending.iter().copied().filter(|&id| !tokenizer.is_eog(id)).collect();
        if !last.is_empty() && summary.finish_reason == FinishReason::Stop {
            // A stop string ended it somewhere within the tokens.
            return tokenizer.encode(answer, Special::Plain);
        }
        self.session.tokens()[start..].iter().copied().chain(last).collect()
    }
}

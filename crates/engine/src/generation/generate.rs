//! Generation: prompt in, text out, until the model, a stop string, the length or the caller ends
//! it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use atta_tokenizer::Control;

use super::{Past, Writer};
use crate::{Error, LogProbs, Sampling, Session};

/// What is generated, and for how long.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Tokens at most.
    pub n_predict: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Texts that end the generation; they are not part of it. One that ends in the spelling of a
    /// control token, such as `<|user|>`, ends it at that token.
    pub stop: Vec<String>,
    /// Whether log-probabilities come with each token: those of so many of the best tokens, and of
    /// the chosen one. They cost a pass over the vocabulary. Tokens that a constraint forces
    /// have none.
    pub n_logprobs: Option<usize>,
    /// What becomes of control tokens in the text.
    pub control: Control,
    /// What the text must look like. A stop string ends it all the same.
    pub constraint: Option<crate::Constraint>,
    /// What happens when the text reaches its length before a constraint is met.
    pub on_length: crate::OnLength,
    /// How the first call of a constrained text begins, which may be taken back. For each token of
    /// its name there is a step of its own then, even where the constraint forces it.
    pub call_start: Option<crate::CallStart>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            n_predict: 256,
            sampling: Sampling::default(),
            stop: Vec::new(),
            n_logprobs: None,
            control: Control::default(),
            constraint: None,
            on_length: crate::OnLength::default(),
            call_start: None,
        }
    }
}

/// What a caller hears on the way. It may end the generation after any of them.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The prompt is being read: `done` of `total` tokens.
    Prompt {
        /// Tokens read.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was chosen: the `n`th, from 1. What text it completes was said before.
    Token {
        /// How many there are now.
        n: usize,
        /// The token.
        id: u32,
        /// What the model thought of it, if asked for.
        logprobs: Option<&'a LogProbs>,
    },
    /// A token was chosen that may be taken back. If it is not, it is told of later; if the text is
    /// interrupted before, it is none of its tokens.
    Held,
    /// Text that is final: whole characters, never a part of a stop string.
    Text(&'a str),
    /// What did not go as it should and changes nothing of the text, in one line.
    Note(&'a str),
}

/// Why the generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string.
    Stop,
    /// `n_predict` tokens, or a full context.
    Length,
    /// The caller.
    Interrupted,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Tokens of the prompt, begin-of-sequence included.
    pub n_prompt: usize,
    /// Tokens chosen. A token that ended it counts, although no event announces it.
    pub n_generated: usize,
    /// Time to read the prompt.
    pub prefill_time: Duration,
    /// Time from the end of the prompt to the last token.
    pub decode_time: Duration,
    /// Time of the first token, which needs no step of its own.
    pub first_token_time: Duration,
    /// Tokens that this time was for: the first, and those that a constraint had follow it.
    pub n_first: usize,
    /// The last tokens: chosen, but not part of the session yet. A caller that goes on appends
    /// them first.
    pub pending: Vec<u32>,
    /// Bytes of text behind the last token that nobody has chosen: what made a constrained text
    /// complete.
    pub n_closing_bytes: usize,
}

impl Summary {
    /// Prompt tokens per second.
    pub fn prefill_tok_s(&self) -> f64 {
        rate(self.n_prompt, self.prefill_time)
    }

    /// Generated tokens per second, without the first and those that had to follow it, which need
    /// no step before them.
    pub fn decode_tok_s(&self) -> f64 {
        rate(
            self.n_generated.saturating_sub(self.n_first.max(1)),
            self.decode_time.saturating_sub(self.first_token_time),
        )
    }
}

fn rate(n: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        n as f64 / time.as_secs_f64()
    }
}

impl Session {
    /// Appends the prompt and generates from there.
    ///
    /// # Errors
    /// A prompt that does not fit or is empty, a sampler setting out of range, a step that failed.
    /// An interruption is not an error, and neither is a full context.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        mut on_event: impl FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        self.generate_after(prompt, options, &mut |_| None, &mut on_event)
    }

    /// The same; `save` is called when the prompt has been read, and before anything is forgotten
    /// for the first time. It may have something to say.
    pub(crate) fn generate_after(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        save: &mut Save<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Summary, Error> {
        if prompt.is_empty() && self.logits().is_none() {
            return Err(Error::EmptyPrompt);
        }
        let writer = Writer::new(self.engine(), options)?;
        let start = Instant::now();
        let total = prompt.len();
        let read = self.read(prompt, save, on_event)?;
        let mut summary = Summary {
            finish_reason: FinishReason::Interrupted,
            n_prompt: read,
            n_generated: 0,
            prefill_time: start.elapsed(),
            decode_time: Duration::ZERO,
            first_token_time: Duration::ZERO,
            n_first: 0,
            pending: Vec::new(),
            n_closing_bytes: 0,
        };
        if read == total && on_event(Event::Prompt { done: total, total }).is_continue() {
            note(save(self), on_event);
            self.write(writer, &mut summary, save, on_event)?;
        }
        Ok(summary)
    }

    /// Appends the prompt, in two parts if something is forgotten on the way; how much of it the
    /// caller let pass.
    fn read(
        &mut self,
        prompt: &[u32],
        save: &mut Save<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<usize, Error> {
        let total = prompt.len();
        let n_first = self.n_until_gap().map_or(total, |n| n.min(total));
        let (first, rest) = prompt.split_at(n_first);
        let read = self.append_with(first, |done| {
            on_event(Event::Prompt { done, total }).is_continue()
        })?;
        if read < n_first || rest.is_empty() {
            return Ok(read);
        }
        note(save(self), on_event);
        let go_on = |done| {
            on_event(Event::Prompt {
                done: n_first + done,
                total,
            })
            .is_continue()
        };
        Ok(n_first + self.append_with(rest, go_on)?)
    }

    /// Writes on until the text ends.
    fn write(
        &mut self,
        mut writer: Writer,
        summary: &mut Summary,
        save: &mut Save<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let reason = loop {
            if writer.is_at_length(self.room()) {
                break FinishReason::Length;
            }
            if self
                .n_until_gap()
                .is_some_and(|n| n < writer.pending().len())
            {
                note(save(self), on_event);
            }
            self.append(writer.pending())?;
            let logits = self.logits().expect("the last step asked for logits");
            let finished = writer.go_on(
                Past {
                    logits,
                    tokens: self.tokens(),
                    room: self.room(),
                },
                on_event,
            )?;
            let n_cut = writer.cut();
            if n_cut > 0 {
                self.take_back(n_cut, writer.pending().is_empty())?;
                summary.n_first = summary.n_first.min(1);
            }
            summary.decode_time = start.elapsed();
            if summary.n_first == 0 {
                (summary.n_first, summary.first_token_time) =
                    (writer.n_generated(), summary.decode_time);
            }
            if let Some(reason) = finished {
                break reason;
            }
        };
        (summary.finish_reason, summary.n_closing_bytes) = writer.end(reason, on_event)?;
        self.take_back(writer.cut(), writer.pending().is_empty())?;
        (summary.n_generated, summary.pending) = (writer.n_generated(), writer.into_pending());
        Ok(())
    }
}

/// Whoever hears of a generation.
pub(crate) type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// What is done with a session whose state may be of use later.
type Save<'a> = dyn FnMut(&mut Session) -> Option<String> + 'a;

fn note(line: Option<String>, on_event: &mut OnEvent<'_>) {
    if let Some(line) = line {
        // Whoever wants to stop says so at the next event.
        let _ = on_event(Event::Note(&line));
    }
}

//! The speculation of one text: asks the drafter, and decides how much of a draft is evaluated.
//!
//! A draft that is not evaluated is kept as a *shadow* and compared with the tokens that the text
//! gets anyway, so that acceptance is known before a row is spent on it.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    BatchRows, Draft, Drafter, HiddenSink, MAX_DRAFT, Speculation, SpeculationOff,
    SpeculationPolicy, SpeculationStats, StepCosts,
    acceptance::{Acceptance, tokens_per_step},
};
use crate::{Engine, Error};

/// A draft is evaluated if a step is expected to write this many times as many tokens per second.
const MIN_GAIN: f64 = 1.1;
/// Of so many steps of a text ...
const TRIAL_PERIOD: usize = 512;
/// ... these are the first, at which a costly drafter is asked to learn whether it pays.
const TRIAL_STEPS: usize = 8;
/// A draft ahead is evaluated if those in front of it are right with this probability.
const MIN_AHEAD: f64 = 0.2;
/// Weight of a new time in the moving average of drafting.
const NEW: f64 = 0.25;

/// The speculation of a text.
pub(crate) struct Speculator {
    drafter: Box<dyn Drafter>,
    has_begun: bool,
    policy: SpeculationPolicy,
    n_max: usize,
    n_vocab: usize,
    acceptance: Acceptance,
    draft: Draft,
    /// For each token of the draft, whether plain decoding selects it.
    are_choices: Vec<bool>,
    shadow: Option<Shadow>,
    /// The draft that is judged next.
    evaluated: Evaluated,
    /// Drafts behind it, which are evaluated at the same time.
    ahead: VecDeque<Evaluated>,
    /// Seconds of the last call of the drafter; 0 if it was not asked.
    draft_seconds: f64,
    /// Seconds per drafted token.
    token_seconds: f64,
    stats: SpeculationStats,
}

/// A draft that is evaluated and not judged yet.
#[derive(Clone, Default)]
struct Evaluated {
    class: usize,
    /// For each token, whether plain decoding selects it.
    are_choices: Vec<bool>,
}

/// A draft that is compared with the text.
struct Shadow {
    draft: Draft,
    /// For each token, whether plain decoding selects it.
    are_choices: Vec<bool>,
    /// Its place in the text.
    at: usize,
    /// Its first tokens, which are counted.
    n_counted: usize,
}

/// Fits tokens of a draft to the constraint of their text, up to so many, and returns for each
/// whether plain decoding selects it: it does not where the constraint forces it.
pub(crate) type FitDraft<'a> = dyn Fn(&mut Vec<u32>, usize) -> Vec<bool> + 'a;

/// The batch that a draft joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftRoom {
    /// Its rows so far.
    pub(crate) rows: BatchRows,
    /// Texts that it continues.
    pub(crate) n_texts: usize,
    /// Maximum tokens of the draft.
    pub(crate) n_max: usize,
}

impl Speculator {
    /// The speculation of a text that `engine` writes.
    pub(crate) fn new(engine: &Engine, speculation: &Speculation) -> Result<Self, Error> {
        Ok(Self {
            drafter: speculation.source.drafter(engine)?,
            has_begun: false,
            policy: speculation.policy,
            n_max: speculation.n_max.min(MAX_DRAFT),
            n_vocab: engine.spec().n_vocab,
            acceptance: Acceptance::default(),
            draft: Draft::default(),
            are_choices: Vec::new(),
            shadow: None,
            evaluated: Evaluated::default(),
            ahead: VecDeque::new(),
            draft_seconds: 0.0,
            token_seconds: 0.0,
            stats: SpeculationStats::default(),
        })
    }

    pub(crate) fn stats(&self) -> SpeculationStats {
        self.stats
    }

    /// Maximum tokens of a draft.
    pub(crate) fn n_max(&self) -> usize {
        self.n_max
    }

    /// Seconds that the drafter took for the last step.
    pub(crate) fn draft_seconds(&self) -> f64 {
        self.draft_seconds
    }

    /// What takes the hidden states of the text.
    pub(crate) fn hidden_sink(&self) -> Option<Arc<dyn HiddenSink>> {
        self.drafter.hidden_sink()
    }

    /// Drafts from earlier answers, too.
    #[cfg(feature = "batch")]
    pub(crate) fn remember(&mut self, earlier: Arc<super::EarlierAnswers>) {
        self.drafter.remember(earlier);
    }

    /// Turns speculation off for the rest of the text.
    pub(crate) fn turn_off(&mut self, why: SpeculationOff) {
        self.stats.off.get_or_insert(why);
        self.shadow = None;
    }

    /// The draft to evaluate behind `tokens`, all of the text; mostly empty.
    pub(crate) fn propose(
        &mut self,
        tokens: &[u32],
        room: DraftRoom,
        costs: &StepCosts,
        fit: &FitDraft<'_>,
    ) -> &[u32] {
        self.draft.clear();
        self.are_choices.clear();
        self.ahead.clear();
        self.draft_seconds = 0.0;
        self.compare_shadow(tokens);
        let n_max = room.n_max.min(self.n_max);
        if self.stats.off.is_none() && n_max > 0 && self.wants_draft(room, costs) {
            self.ask(tokens, n_max, fit);
            let n = self.n_paying(room, costs);
            if n == 0 {
                self.keep_shadow(tokens.len());
            } else {
                self.shadow = None;
            }
            self.draft.tokens.truncate(n);
            self.are_choices.truncate(n);
        }
        self.evaluated.class = self.draft.class;
        self.evaluated.are_choices.clone_from(&self.are_choices);
        &self.draft.tokens
    }

    /// A draft of up to `n_max` tokens to evaluate behind `tokens`, which end with drafts that are
    /// not judged yet; mostly empty. An executor that computes both at once has it for nothing,
    /// unless those in front of it are wrong.
    pub(crate) fn propose_ahead(
        &mut self,
        tokens: &[u32],
        n_max: usize,
        costs: &StepCosts,
    ) -> Vec<u32> {
        let n_max = n_max.min(self.n_max);
        if self.stats.off.is_some() || n_max == 0 || !self.is_worth_ahead(costs) {
            return Vec::new();
        }
        let mut draft = Draft::default();
        let start = Instant::now();
        let drafted = self.drafter.draft_ahead(tokens, n_max, &mut draft);
        self.draft_seconds += start.elapsed().as_secs_f64();
        if drafted.is_err() {
            draft.clear();
            self.turn_off(SpeculationOff::Failed);
        }
        let Draft { mut tokens, class } = draft;
        tokens.truncate(self.n_known(&tokens, n_max));
        if !tokens.is_empty() {
            // Those that a constraint forces are not told apart.
            let are_choices = vec![true; tokens.len()];
            self.ahead.push_back(Evaluated { class, are_choices });
        }
        tokens
    }

    /// Whether drafts ahead are likely enough to be needed.
    fn is_worth_ahead(&self, costs: &StepCosts) -> bool {
        let waiting = std::iter::once(&self.evaluated).chain(&self.ahead);
        let right = |draft: &Evaluated| {
            let p = self.acceptance.probability(draft.class);
            p.powi(n_choices(&draft.are_choices) as i32)
        };
        let p: f64 = waiting.map(right).product();
        self.policy == SpeculationPolicy::Always || costs.allows() && p >= MIN_AHEAD
    }

    /// The oldest draft ahead is judged next.
    pub(crate) fn next_ahead(&mut self) {
        self.draft_seconds = 0.0;
        self.evaluated = self.ahead.pop_front().unwrap_or_default();
    }

    /// Records that the first `n_accepted` tokens of the draft became part of the text, of `n` that
    /// were evaluated.
    pub(crate) fn judged(&mut self, n_accepted: usize, n: usize) {
        self.stats.n_steps += 1;
        self.stats.n_drafted += n;
        self.stats.n_accepted += n_accepted;
        let Evaluated { class, are_choices } = std::mem::take(&mut self.evaluated);
        self.count(class, &are_choices[..n.min(are_choices.len())], n_accepted);
    }

    /// Counts a draft of a class whose first `n_right` tokens were right. Those that a constraint
    /// forces say nothing about the drafter.
    fn count(&mut self, class: usize, are_choices: &[bool], n_right: usize) {
        let n = n_choices(are_choices);
        let n_right = n_choices(&are_choices[..n_right.min(are_choices.len())]);
        if n > 0 {
            self.acceptance.record(class, n_right, n);
        }
    }

    /// Ends the text; `tokens` are all of it, the first `n_prompt` of them its prompt.
    pub(crate) fn end(&mut self, tokens: &[u32], n_prompt: usize) {
        self.drafter.end(tokens, n_prompt);
    }

    /// Asks the drafter for `n_max` tokens, and fits them to the constraint.
    fn ask(&mut self, tokens: &[u32], n_max: usize, fit: &FitDraft<'_>) {
        let begun = match std::mem::replace(&mut self.has_begun, true) {
            true => Ok(()),
            false => self.drafter.begin(tokens),
        };
        let start = Instant::now();
        let drafted = begun.and_then(|()| self.drafter.draft(tokens, n_max, &mut self.draft));
        if drafted.is_err() {
            self.draft.clear();
            self.turn_off(SpeculationOff::Failed);
        }
        let n = self.n_known(&self.draft.tokens, n_max);
        self.draft.tokens.truncate(n);
        self.are_choices = fit(&mut self.draft.tokens, n_max);
        self.draft_seconds = start.elapsed().as_secs_f64();
        let seconds = self.draft_seconds / self.are_choices.len().max(1) as f64;
        self.token_seconds += NEW * (seconds - self.token_seconds);
    }

    /// Tokens of a draft, up to `n_max`, in front of one that the model does not have.
    fn n_known(&self, draft: &[u32], n_max: usize) -> usize {
        let is_known = |id: &&u32| (**id as usize) < self.n_vocab;
        draft.iter().take(n_max).take_while(is_known).count()
    }

    /// Whether the drafter is asked at this step.
    fn wants_draft(&self, room: DraftRoom, costs: &StepCosts) -> bool {
        if self.policy == SpeculationPolicy::Always {
            return true;
        }
        let is_trial = self.stats.n_steps % TRIAL_PERIOD < TRIAL_STEPS;
        let all = &[true; MAX_DRAFT][..self.n_max.min(room.n_max)];
        let pays = || self.best(0, all, room, costs) > 0;
        costs.allows() && (self.drafter.is_cheap() || is_trial || pays())
    }

    /// Tokens of the draft that are worth a row each.
    fn n_paying(&self, room: DraftRoom, costs: &StepCosts) -> usize {
        match self.policy {
            SpeculationPolicy::Always => self.draft.tokens.len(),
            SpeculationPolicy::WherePays => {
                self.best(self.draft.class, &self.are_choices, room, costs)
            }
        }
    }

    /// The best length of a draft of a class, up to all of its tokens; 0 if none gains enough. Of
    /// these, `are_choices` take a step of plain decoding each.
    fn best(
        &self,
        class: usize,
        are_choices: &[bool],
        room: DraftRoom,
        costs: &StepCosts,
    ) -> usize {
        let p = self.acceptance.probability(class);
        let n_rows = room.rows.n();
        let Some(before) = costs.seconds(n_rows) else {
            return 0;
        };
        let n_texts = room.n_texts as f64;
        let gain = |k: usize| {
            let seconds = costs.seconds(n_rows + k).unwrap_or(f64::INFINITY);
            let n_steps = n_texts - 1.0 + tokens_per_step(p, n_choices(&are_choices[..k]));
            let seconds = seconds + k as f64 * self.token_seconds;
            n_steps / n_texts * before / seconds
        };
        let n_trial = costs.max_trial(n_rows).saturating_sub(n_rows);
        (1..=are_choices.len().min(n_trial))
            .filter(|&k| gain(k) >= MIN_GAIN)
            .max_by(|&a, &b| gain(a).total_cmp(&gain(b)))
            .unwrap_or(0)
    }

    /// Keeps the draft, for position `at`, to compare it with the text.
    fn keep_shadow(&mut self, at: usize) {
        if self.shadow.is_none() && !self.draft.tokens.is_empty() {
            self.shadow = Some(Shadow {
                draft: self.draft.clone(),
                are_choices: self.are_choices.clone(),
                at,
                n_counted: 0,
            });
        }
    }

    /// Compares the shadow with the text, and counts the tokens that the text has reached.
    fn compare_shadow(&mut self, tokens: &[u32]) {
        let Some(mut shadow) = self.shadow.take() else {
            return;
        };
        // A text that was rolled back to before it says nothing.
        let Some(text) = tokens.get(shadow.at..) else {
            return;
        };
        let drafted = &shadow.draft.tokens;
        let pairs = drafted.iter().zip(text);
        let n_right = pairs.take_while(|(a, b)| a == b).count();
        let is_open = n_right == text.len() && n_right < drafted.len();
        let end = if is_open { n_right } else { drafted.len() };
        // A text that was rolled back into the shadow says nothing new.
        let new = shadow.n_counted.min(end)..end;
        let n_new_right = n_right.saturating_sub(new.start);
        self.count(shadow.draft.class, &shadow.are_choices[new], n_new_right);
        if is_open {
            shadow.n_counted = n_right;
            self.shadow = Some(shadow);
        }
    }
}

/// The tokens of a draft that plain decoding selects.
fn n_choices(are_choices: &[bool]) -> usize {
    are_choices.iter().filter(|&&is_choice| is_choice).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::StepTime;

    /// Drafts 8 tokens that are right for as long as `is_right` says.
    struct Scripted(fn(usize) -> bool);

    impl Drafter for Scripted {
        fn draft(&mut self, tokens: &[u32], n: usize, draft: &mut Draft) -> Result<(), Error> {
            let n_before = tokens.len();
            let token = |i: usize| u32::from((self.0)(n_before + i));
            draft.tokens.extend((0..n).map(token));
            Ok(())
        }
    }

    fn speculator(is_right: fn(usize) -> bool) -> Speculator {
        Speculator {
            drafter: Box::new(Scripted(is_right)),
            has_begun: false,
            policy: SpeculationPolicy::WherePays,
            n_max: 8,
            n_vocab: 2,
            acceptance: Acceptance::default(),
            draft: Draft::default(),
            are_choices: Vec::new(),
            shadow: None,
            evaluated: Evaluated::default(),
            ahead: VecDeque::new(),
            draft_seconds: 0.0,
            token_seconds: 0.0,
            stats: SpeculationStats::default(),
        }
    }

    /// No constraint: every token is a choice.
    fn free() -> impl Fn(&mut Vec<u32>, usize) -> Vec<bool> {
        |draft, _| vec![true; draft.len()]
    }

    /// Writes a text of ones, where a step of n rows takes 1 + `per_row` (n - 1) seconds. Returns
    /// the seconds that it takes; plain decoding takes one per token.
    fn seconds(speculator: &mut Speculator, n_tokens: usize, per_row: f64) -> f64 {
        let mut costs = StepCosts::new();
        let mut text = vec![1; 4];
        let mut total = 0.0;
        while text.len() < 4 + n_tokens {
            let rows = BatchRows {
                n_plain: 1,
                n_draft: 0,
            };
            let room = DraftRoom {
                rows,
                n_texts: 1,
                n_max: 8,
            };
            let draft = speculator.propose(&text, room, &costs, &free());
            let n = draft.len();
            let n_right = draft.iter().take_while(|&&id| id == 1).count();
            speculator.judged(n_right, n);
            text.extend(std::iter::repeat_n(1, n_right + 1));
            let step = StepTime {
                rows: BatchRows { n_draft: n, ..rows },
                n_plain_steps: (n_right + 1) as f64,
                seconds: 1.0 + per_row * n as f64,
                draft_seconds: 0.0,
            };
            costs.record(&step);
            total += step.seconds;
        }
        total
    }

    #[test]
    fn right_drafts_save_time_once_shadows_have_shown_it() {
        let mut right = speculator(|_| true);
        let spent = seconds(&mut right, 500, 0.2);
        assert!(spent < 250.0, "{spent}");
        let stats = right.stats();
        assert_eq!(stats.n_accepted, stats.n_drafted);
        // Where every row takes as long as a step, they cannot.
        let mut costly = speculator(|_| true);
        let spent = seconds(&mut costly, 500, 1.0);
        assert!(spent < 510.0, "{spent}");
    }

    /// Drafts of right tokens, surer the more of them the text has.
    struct Surer;

    impl Drafter for Surer {
        fn draft(&mut self, tokens: &[u32], n: usize, draft: &mut Draft) -> Result<(), Error> {
            draft.tokens.resize(n, 1);
            draft.class = tokens.len() / 8;
            Ok(())
        }
    }

    #[test]
    fn a_copy_is_drafted_after_a_few_tokens_however_sure_it_becomes() {
        let mut speculator = speculator(|_| true);
        speculator.drafter = Box::new(Surer);
        let spent = seconds(&mut speculator, 60, 0.1);
        assert!(spent < 22.0, "{spent}");
    }

    #[test]
    fn wrong_drafts_are_never_evaluated() {
        let mut wrong = speculator(|_| false);
        assert!((seconds(&mut wrong, 500, 0.2) - 500.0).abs() < 1e-9);
        assert_eq!(wrong.stats().n_drafted, 0);
    }

    #[test]
    fn drafts_that_become_wrong_lose_one_per_cent_at_most_and_one_step() {
        for is_right in [
            |i: usize| i < 44,
            |i: usize| i.is_multiple_of(2),
            |i: usize| (i / 40).is_multiple_of(2),
            |i: usize| !i.is_multiple_of(3),
        ] {
            for per_row in [0.05, 0.2, 0.45, 1.0] {
                let spent = seconds(&mut speculator(is_right), 2000, per_row);
                assert!(spent < 2000.0 * 1.01 + 1.0 + 8.0 * per_row, "{spent}");
            }
        }
    }

    #[test]
    fn tokens_that_a_constraint_forces_are_no_gain() {
        let mut costs = StepCosts::new();
        let rows = BatchRows {
            n_plain: 1,
            n_draft: 0,
        };
        let plain = StepTime {
            rows,
            n_plain_steps: 1.0,
            seconds: 1.0,
            draft_seconds: 0.0,
        };
        (0..4).for_each(|_| costs.record(&plain));
        let room = DraftRoom {
            rows,
            n_texts: 1,
            n_max: 8,
        };
        for (is_choice, n_expected) in [(true, 1), (false, 0)] {
            let mut speculator = speculator(|_| true);
            speculator.acceptance.record(0, 30, 30);
            let fit = |draft: &mut Vec<u32>, _| vec![is_choice; draft.len()];
            let draft = speculator.propose(&[1; 4], room, &costs, &fit);
            assert_eq!(draft.len(), n_expected);
        }
    }

    #[test]
    fn a_token_that_the_model_does_not_have_ends_a_draft() {
        let mut speculator = speculator(|_| true);
        speculator.n_vocab = 1;
        speculator.policy = SpeculationPolicy::Always;
        let room = DraftRoom {
            rows: BatchRows {
                n_plain: 1,
                n_draft: 0,
            },
            n_texts: 1,
            n_max: 8,
        };
        let costs = StepCosts::new();
        assert!(speculator.propose(&[1], room, &costs, &free()).is_empty());
    }
}

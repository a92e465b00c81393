//! `/set`: what can be changed in a conversation, and the values.
//!
//! Names and values are those of the options with the same names.

use atta::{Explain, GenerateOptions, Sampling};

use super::{Conversation, screen::Wrap, think::Think};
use crate::{
    args::{flag, value},
    failure::Failure,
};

/// How answers look on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) thoughts: Thoughts,
    pub(super) wrap: Wrap,
    /// Whether the model and the speed of answers are told.
    pub(super) figures: Figures,
}

/// Whether thoughts are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thoughts {
    Shown,
    Hidden,
}

/// Whether the model and the speed of answers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figures {
    Told,
    Quiet,
}

const NAMES: &str = "temperature, top-k, top-p, min-p, repeat-penalty, seed, n-predict, think, \
                     thoughts, wrap and speed";

impl Conversation<'_> {
    /// The values of all settings.
    pub(super) fn settings(&self) -> String {
        let GenerateOptions {
            n_predict,
            sampling,
            ..
        } = &self.options;
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            seed,
            ..
        } = sampling;
        let thoughts = on_off(self.view.thoughts == Thoughts::Shown);
        let wrap = on_off(self.view.wrap == Wrap::On);
        let speed = on_off(self.view.figures == Figures::Told);
        let think = self.think.name();
        format!(
            "temperature {temperature}\ntop-k {top_k}\ntop-p {top_p}\nmin-p {min_p}\n\
             repeat-penalty {repeat_penalty}\nseed {seed}\nn-predict {n_predict}\n\
             think {think}\nthoughts {thoughts}\nwrap {wrap}\nspeed {speed}"
        )
    }

    /// Changes a setting. On an error nothing is changed.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        match name.trim_start_matches('-') {
            "think" => return self.set_think(Think::parse(text).map_err(Failure::Failed)?),
            "thoughts" | "wrap" | "speed" => self.set_view(name, text),
            "n-predict" | "n" => value::n_tokens(text).map(|n| self.options.n_predict = n),
            name => return self.set_sampling(name, text),
        }
        .map_err(|why| Failure::Failed(format!("/set {name} {text}: {why}")))
    }

    fn set_think(&mut self, think: Think) -> Result<(), Failure> {
        think.apply(&mut self.chat)?;
        self.think = think;
        Ok(())
    }

    fn set_view(&mut self, name: &str, text: &str) -> Result<(), String> {
        let is_on = match text {
            "on" => true,
            "off" => false,
            _ => return Err("expected on or off".to_owned()),
        };
        let choose = |on, off| if is_on { on } else { off };
        match name {
            "thoughts" if is_on => self.view.thoughts = Thoughts::Shown,
            "thoughts" => self.view.thoughts = Thoughts::Hidden,
            "wrap" => self.view.wrap = choose(Wrap::On, Wrap::Off),
            _ if is_on => self.view.figures = Figures::Told,
            _ => self.view.figures = Figures::Quiet,
        }
        Ok(())
    }

    fn set_sampling(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let mut sampling = self.options.sampling.clone();
        let number = value::number(text);
        let set = match name {
            "temperature" | "temp" | "t" => number.map(|x| sampling.temperature = x),
            "top-p" => number.map(|x| sampling.top_p = x),
            "min-p" => number.map(|x| sampling.min_p = x),
            "repeat-penalty" => number.map(|x| sampling.repeat_penalty = x),
            "top-k" => value::count(text).map(|n| sampling.top_k = n),
            "seed" => value::seed(text).map(|seed| sampling.seed = seed.now()),
            _ => Err(format!("there is no such setting, expected {NAMES}")),
        };
        set.map_err(|why| Failure::Failed(format!("/set {name} {text}: {why}")))?;
        let valid = sampling.validate();
        valid.map_err(|error| Failure::Failed(error.explain(flag)))?;
        self.options.sampling = sampling;
        Ok(())
    }
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

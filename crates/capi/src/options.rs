//! Options of models and sessions, set by name.
//!
//! Knows no model. The one idea: a name is checked where it is set, and an option that does not
//! apply where the options are used is an error there.

use std::{ffi::c_char, mem::MaybeUninit, num::NonZeroUsize};

use atta_engine::{
    AdapterFile, Fit, KvType, LoadOptions, Omission, Overflow, Reduction, SessionOptions, Threads,
    WeightsAt, chat::TemplateChoice,
};

use serde_json::{Map, Value};

use crate::{
    failure::{AttaStatus, CallResult, Failure, run},
    pointer::{c_text, free, make, text},
};

/// Options. Each function that takes some says which.
#[derive(Clone, Debug, Default)]
pub struct AttaOptions {
    n_ctx: Option<usize>,
    n_batch: Option<usize>,
    kv: Option<KvType>,
    /// Tokens that stay at the beginning when the context is shifted.
    n_keep: Option<usize>,
    n_threads: Option<NonZeroUsize>,
    n_parallel: Option<NonZeroUsize>,
    n_experts: Option<usize>,
    ram_budget: Option<u64>,
    quality: Option<f32>,
    weights: Option<WeightsAt>,
    isa: Option<String>,
    template: Option<TemplateChoice>,
    adapters: Vec<AdapterFile>,
    name: Option<String>,
    verify: bool,
    prewarm: bool,
    shrink: bool,
    /// The first one that only a model has.
    only_of_models: Option<&'static str>,
}

/// Options that whole numbers set.
const NUMBERS: [&str; 10] = [
    "ctx",
    "batch",
    "keep",
    "threads",
    "parallel",
    "experts",
    "ram_budget",
    "verify",
    "prewarm",
    "shrink",
];
/// Options that texts set.
const TEXTS: [&str; 6] = ["kv", "weights", "isa", "chat_template", "name", "lora"];
/// Options that sessions have, too.
const OF_SESSIONS: [&str; 4] = ["ctx", "batch", "keep", "kv"];

impl AttaOptions {
    pub(crate) fn set_number(&mut self, name: &str, value: u64) -> CallResult<()> {
        let count = || usize::try_from(value).map_err(|_| out_of_range(name, value));
        let at_least_1 = || NonZeroUsize::new(count()?).ok_or_else(|| out_of_range(name, value));
        match name {
            "ctx" => self.n_ctx = Some(at_least_1()?.get()),
            "batch" => self.n_batch = Some(at_least_1()?.get()),
            "keep" => self.n_keep = Some(count()?),
            "threads" => self.n_threads = Some(at_least_1()?),
            "parallel" => self.n_parallel = Some(at_least_1()?),
            "experts" => self.n_experts = Some(at_least_1()?.get()),
            "ram_budget" => self.ram_budget = Some(value),
            "verify" => self.verify = switch(name, value)?,
            "prewarm" => self.prewarm = switch(name, value)?,
            "shrink" => self.shrink = switch(name, value)?,
            _ => return Err(unknown(name, "a whole number", &NUMBERS)),
        }
        self.note(name, &NUMBERS);
        Ok(())
    }

    fn set_text(&mut self, name: &str, value: &str) -> CallResult<()> {
        match name {
            "kv" => self.kv = Some(named(name, value, &KV_TYPES)?),
            "weights" => self.weights = Some(named(name, value, &PLACES)?),
            "isa" => self.isa = Some(value.to_owned()),
            "chat_template" => self.template = Some(template(value)),
            "name" => self.name = Some(value.to_owned()),
            "lora" => self.adapters = adapters(value)?,
            _ => return Err(unknown(name, "a text", &TEXTS)),
        }
        self.note(name, &TEXTS);
        Ok(())
    }

    pub(crate) fn set_float(&mut self, name: &str, value: f64) -> CallResult<()> {
        if name != "quality" {
            return Err(unknown(name, "a number", &["quality"]));
        }
        self.quality = Some(value as f32);
        self.note(name, &["quality"]);
        Ok(())
    }

    /// Remembers an option that sessions do not have.
    fn note(&mut self, name: &str, names: &[&'static str]) {
        let ours = names.iter().find(|ours| **ours == name).copied();
        let ours = ours.filter(|ours| !OF_SESSIONS.contains(ours));
        self.only_of_models = self.only_of_models.or(ours);
    }

    /// The session that these options mean; those that are not set are as in `base`.
    fn session(&self, base: SessionOptions) -> SessionOptions {
        let overflow = self.n_keep.map(|n_keep| Overflow::Shift { n_keep });
        SessionOptions {
            n_ctx: self.n_ctx.or(base.n_ctx),
            n_batch: self.n_batch.or(base.n_batch),
            kv: self.kv.unwrap_or(base.kv),
            overflow: overflow.unwrap_or(base.overflow),
            ..base
        }
    }

    /// The options of a session of a model whose sessions are like `base`.
    ///
    /// # Errors
    /// An option that only models have.
    pub(crate) fn session_of(&self, base: SessionOptions) -> CallResult<SessionOptions> {
        match self.only_of_models {
            Some(name) => Err(Failure::invalid(format!(
                "option {name:?} is one of models, not of sessions"
            ))),
            None => Ok(self.session(base)),
        }
    }

    /// The options to load a model with.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            threads: self.n_threads.map_or(Threads::Auto, Threads::Count),
            isa: self.isa.clone(),
            weights: self.weights,
            prewarm: self.prewarm,
            verify: self.verify,
            ram_budget: self.ram_budget,
            session: self.session(SessionOptions::default()),
            adapters: self.adapters.clone(),
            fit: if self.shrink {
                Fit::Shrink
            } else {
                Fit::Strict
            },
            reduction: Reduction {
                layers: self.quality.map_or(Omission::Nothing, Omission::Quality),
                n_experts: self.n_experts,
            },
            ..LoadOptions::default()
        }
    }

    /// Requests that are answered at the same time.
    pub(crate) fn n_parallel(&self) -> usize {
        self.n_parallel.map_or(1, NonZeroUsize::get)
    }

    pub(crate) fn template(&self) -> TemplateChoice {
        self.template.clone().unwrap_or_default()
    }

    /// The name of the model in responses.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

const KV_TYPES: [(&str, KvType); 4] = [
    ("f32", KvType::F32),
    ("f16", KvType::F16),
    ("q8", KvType::Q8),
    ("q4", KvType::Q4),
];

const PLACES: [(&str, WeightsAt); 3] = [
    ("mapped", WeightsAt::Mapped),
    ("resident", WeightsAt::Resident),
    ("streamed", WeightsAt::Streamed),
];

fn named<T: Copy>(option: &str, value: &str, all: &[(&str, T)]) -> CallResult<T> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, found)| *found).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        Failure::invalid(format!(
            "option {option:?} is {value:?}, expected one of {names}"
        ))
    })
}

fn template(value: &str) -> TemplateChoice {
    match value {
        "chatml" => TemplateChoice::ChatMl,
        "plain" => TemplateChoice::Plain,
        source => TemplateChoice::Source(source.to_owned()),
    }
}

/// LoRA adapters from JSON: a list of objects with "path" and maybe "name" and "scale".
fn adapters(value: &str) -> CallResult<Vec<AdapterFile>> {
    let wrong = || {
        let example = r#"[{"path": "support.gguf", "name": "support", "scale": 1}]"#;
        Failure::invalid(format!("option \"lora\" is {value:?}, expected {example}"))
    };
    let list: Vec<Map<String, Value>> = serde_json::from_str(value).map_err(|_| wrong())?;
    let files = list.iter().map(|fields| adapter(fields).ok_or_else(wrong));
    files.collect()
}

fn adapter(fields: &Map<String, Value>) -> Option<AdapterFile> {
    let is_known = |key: &String| matches!(&**key, "path" | "name" | "scale");
    let name = fields.get("name").map_or(Some(""), Value::as_str)?;
    let scale = fields.get("scale").map_or(Some(1.0), Value::as_f64)?;
    let path = fields.get("path")?.as_str()?;
    fields.keys().all(is_known).then(|| AdapterFile {
        name: name.to_owned(),
        path: path.into(),
        scale: scale as f32,
    })
}

fn switch(name: &str, value: u64) -> CallResult<bool> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(out_of_range(name, value)),
    }
}

fn out_of_range(name: &str, value: u64) -> Failure {
    Failure::invalid(format!("option {name:?} cannot be {value}"))
}

fn unknown(name: &str, kind: &str, names: &[&str]) -> Failure {
    let names = names.join(", ");
    Failure::invalid(format!(
        "there is no option {name:?} that {kind} sets; those are {names}"
    ))
}

/// Makes an empty set of options.
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_new(out: Option<&mut MaybeUninit<*mut AttaOptions>>) -> AttaStatus {
    make(out, || Ok(AttaOptions::default()))
}

/// Sets an option to a whole number: of models and sessions "ctx" (context length in tokens),
/// "batch" (prompt tokens per step) and "keep" (when the context is full, its older half is evicted
/// but for so many tokens); of models "threads", "parallel" (requests at the same time), "experts",
/// "ram_budget" (bytes), and, 0 or 1, "verify", "prewarm" and "shrink" (the context, if memory is
/// short).
///
/// # Safety
/// A NUL ends `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_options_set_u64(
    options: Option<&mut AttaOptions>,
    name: *const c_char,
    value: u64,
) -> AttaStatus {
    run(|| {
        let options = options.ok_or_else(|| Failure::null("options"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { c_text(name, "name") }?;
        options.set_number(name, value)
    })
}

/// Sets an option to a number: of models "quality" (0 to 1, for a file with measured layers).
///
/// # Safety
/// A NUL ends `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_options_set_f64(
    options: Option<&mut AttaOptions>,
    name: *const c_char,
    value: f64,
) -> AttaStatus {
    run(|| {
        let options = options.ok_or_else(|| Failure::null("options"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { c_text(name, "name") }?;
        options.set_float(name, value)
    })
}

/// Sets an option to a text: of models and sessions "kv" (f32, f16, q8 or q4); of models "weights"
/// (mapped, resident or streamed), "isa", "chat_template" (chatml, plain, or Jinja), "name" (of the
/// model in responses) and "lora" (adapters: JSON, a list of objects with "path", "name" and
/// "scale"; with a scale of 0 an adapter waits to be named).
///
/// # Safety
/// A NUL ends `name`, and `value` has `value_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atta_options_set_text(
    options: Option<&mut AttaOptions>,
    name: *const c_char,
    value: *const c_char,
    value_size: usize,
) -> AttaStatus {
    run(|| {
        let options = options.ok_or_else(|| Failure::null("options"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { c_text(name, "name") }?;
        // SAFETY: the caller's promise.
        let value = unsafe { text(value, value_size, "value") }?;
        options.set_text(name, value)
    })
}

/// Frees options; models and sessions that were made with them stay. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_free(options: Option<Box<AttaOptions>>) {
    free(options);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_set_by_its_name_and_checked_there() {
        let mut options = AttaOptions::default();
        options.set_number("ctx", 64).unwrap();
        options.set_text("kv", "q8").unwrap();
        let session = options.session_of(SessionOptions::default()).unwrap();
        assert_eq!((session.n_ctx, session.kv), (Some(64), KvType::Q8));
        for (name, value) in [("ctx", 0), ("verify", 2), ("kv", 1), ("size", 1)] {
            let failure = options.set_number(name, value).unwrap_err();
            assert_eq!(failure.status, AttaStatus::Invalid);
            assert!(failure.message.contains(name), "{}", failure.message);
        }
        assert!(options.set_text("kv", "f8").is_err());
        assert!(options.set_float("ctx", 1.0).is_err());
    }

    #[test]
    fn adapters_are_a_list_of_files_with_names_and_scales() {
        let mut options = AttaOptions::default();
        let json = r#"[{"path": "a.gguf"}, {"path": "b", "name": "x", "scale": 0}]"#;
        options.set_text("lora", json).unwrap();
        let file = |name: &str, path: &str, scale| AdapterFile {
            name: name.to_owned(),
            path: path.into(),
            scale,
        };
        let expected = [file("", "a.gguf", 1.0), file("x", "b", 0.0)];
        assert_eq!(options.load_options().adapters, expected);
        for wrong in ["a.gguf", "{}", "[{}]", r#"[{"path": "a", "scal": 1}]"#] {
            assert!(options.set_text("lora", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_option_of_models_is_no_option_of_sessions() {
        let mut options = AttaOptions::default();
        options.set_number("threads", 2).unwrap();
        let failure = options.session_of(SessionOptions::default()).unwrap_err();
        assert!(failure.message.contains("threads"), "{}", failure.message);
    }
}

//! `atta picolm`, and the program called by that name: PicoLM's options, which mean something else
//! than those of `run`.
//!
//! A drop-in for programs that start `picolm`: prompt on standard input or with `-p`, text on
//! standard output, and nothing but text. PicoLM ends it with a line feed; we do so on a terminal
//! only, as `run`.

use atta::{DryOptions, GenerateOptions, Pool, Sampling};

use super::run::{Empty, Job, WAY_OUT, run_job};
use crate::{
    args::{CacheFlags, ContextFlags, ModelFlags, PicolmArgs, ReportFlags, ShapeFlags},
    failure::Failure,
    input::Text,
    inputs::Inputs,
    shape,
};

/// How many threads PicoLM takes if nobody says otherwise; we take fewer where there are fewer
/// cores.
const DEFAULT_THREADS: usize = 4;

pub(super) fn run(args: PicolmArgs) -> Result<(), Failure> {
    let options = GenerateOptions {
        n_predict: args.n_predict,
        sampling: sampling(&args),
        ..GenerateOptions::default()
    };
    let options = if args.json {
        shape::apply(&ShapeFlags::json(), options)?
    } else {
        options
    };
    options
        .sampling
        .validate()
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let n_threads = args
        .n_threads
        .unwrap_or_else(|| DEFAULT_THREADS.min(Pool::default_threads()));
    let PicolmArgs {
        model,
        prompt,
        n_ctx,
        cache,
        ..
    } = args;
    let prompt = Text::given_or_piped(prompt.as_deref(), WAY_OUT)?;
    let job = Job {
        model: Some(model),
        empty: Empty::Mistake,
        options,
        // A context of 0 is what PicoLM calls none given.
        model_flags: ModelFlags::of(n_ctx.filter(|&n| n > 0), n_threads),
        context: ContextFlags::default(),
        cache: CacheFlags {
            cache,
            cache_size: None,
        },
        report: ReportFlags::default(),
        inputs: Inputs::default(),
    };
    run_job(&job, prompt)
}

/// Temperature and top-p, and nothing else.
fn sampling(args: &PicolmArgs) -> Sampling {
    Sampling {
        temperature: args.temperature,
        top_k: 0,
        typical: 1.0,
        top_p: args.top_p,
        min_p: 0.0,
        top_n_sigma: 0.0,
        repeat_penalty: 1.0,
        repeat_window: 0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        dry: DryOptions::default(),
        logit_bias: Vec::new(),
        seed: args.seed.now(),
    }
}

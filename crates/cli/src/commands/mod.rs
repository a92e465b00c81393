//! The commands, one file each: from what was typed to results on standard output.

mod bench;
mod chat;
mod inspect;
mod logits;
mod perplexity;
mod picolm;
mod run;
mod tokenize;

use crate::{args::Command, failure::Failure};

/// Does what was asked for.
pub(crate) fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(*args),
        Command::Chat(args) => chat::run(&args),
        Command::Picolm(args) => picolm::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Inspect(args) => inspect::run(&args),
    }
}

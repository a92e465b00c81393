//! The commands, one module each: the options of the command, and how it is run.

mod bench;
#[cfg(feature = "cache")]
mod cache;
#[cfg_attr(not(feature = "chat"), path = "absent/call.rs")]
mod call;
#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "embed")]
mod embed;
#[cfg(feature = "convert")]
mod imatrix;
mod inspect;
#[cfg(feature = "leap")]
mod leap;
mod logits;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "perplexity")]
mod perplexity;
mod picolm;
#[cfg(feature = "hub")]
mod pull;
mod run;
#[cfg(all(feature = "convert", feature = "perplexity"))]
mod sensitivity;
#[cfg(feature = "server")]
mod serve;
mod tokenize;
#[cfg(feature = "convert")]
mod verify;

use clap::Subcommand;

use crate::failure::Failure;
#[cfg(feature = "leap")]
use leap::{export as leap_export, tokenizer as leap_tokenizer};

/// Declares the commands: name, options as clap reads them, and the module that runs it.
macro_rules! commands {
    ($($(#[$gate:meta])* $name:ident($args:ty) => $module:ident,)*) => {
        /// A command with its options.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$gate])* $name($args),)*
        }

        impl Command {
            /// Runs the command.
            pub(crate) fn run(self) -> Result<(), Failure> {
                match self {
                    $($(#[$gate])* Self::$name(args) => $module::run(args),)*
                }
            }
        }
    };
}

commands! {
    Run(Box<run::RunArgs>) => run,
    #[cfg(feature = "chat")]
    Chat(Box<chat::ChatArgs>) => chat,
    #[cfg(feature = "server")]
    Serve(Box<serve::ServeArgs>) => serve,
    #[cfg(feature = "cache")]
    Cache(cache::CacheArgs) => cache,
    #[cfg(feature = "hub")]
    Pull(pull::PullArgs) => pull,
    #[cfg(feature = "cluster")]
    Node(Box<node::NodeArgs>) => node,
    #[cfg(feature = "cluster")]
    Cluster(cluster::ClusterArgs) => cluster,
    Picolm(picolm::PicolmArgs) => picolm,
    #[cfg(feature = "leap")]
    Leap(Box<leap::LeapArgs>) => leap,
    #[cfg(feature = "leap")]
    LeapExport(leap_export::LeapExportArgs) => leap_export,
    #[cfg(feature = "leap")]
    LeapTokenizer(leap_tokenizer::LeapTokenizerArgs) => leap_tokenizer,
    Bench(bench::BenchArgs) => bench,
    #[cfg(feature = "perplexity")]
    Perplexity(perplexity::PerplexityArgs) => perplexity,
    Tokenize(tokenize::TokenizeArgs) => tokenize,
    #[cfg(feature = "embed")]
    Embed(embed::EmbedArgs) => embed,
    Logits(logits::LogitsArgs) => logits,
    Inspect(inspect::InspectArgs) => inspect,
    #[cfg(feature = "convert")]
    Convert(convert::ConvertArgs) => convert,
    #[cfg(feature = "convert")]
    Imatrix(imatrix::ImatrixArgs) => imatrix,
    #[cfg(feature = "convert")]
    Verify(verify::VerifyArgs) => verify,
    #[cfg(all(feature = "convert", feature = "perplexity"))]
    Sensitivity(Box<sensitivity::SensitivityArgs>) => sensitivity,
}

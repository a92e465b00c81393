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
#[cfg(feature = "cli-extras")]
mod completions;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "cluster")]
mod doctor;
#[cfg(feature = "embed")]
mod embed;
#[cfg(feature = "convert")]
mod imatrix;
mod inspect;
#[cfg(feature = "leap")]
mod leap;
mod logits;
#[cfg(feature = "cli-extras")]
mod man;
#[cfg(feature = "hub")]
mod models;
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
#[cfg(feature = "cli-extras")]
mod version;

use clap::Subcommand;

use crate::failure::Failure;
#[cfg(feature = "leap")]
use leap::{export as leap_export, tokenizer as leap_tokenizer};

/// Declares the commands: name, options as clap reads them, and the module that runs it.
macro_rules! commands {
    ($($(#[$gate:meta])* $name:ident($args:ty) => $run:path,)*) => {
        /// A command with its options.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$gate])* $name($args),)*
        }

        impl Command {
            /// Runs the command.
            pub(crate) fn run(self) -> Result<(), Failure> {
                match self {
                    $($(#[$gate])* Self::$name(args) => $run(args),)*
                }
            }
        }
    };
}

commands! {
    Run(Box<run::RunArgs>) => run::run,
    #[cfg(feature = "chat")]
    Chat(Box<chat::ChatArgs>) => chat::run,
    #[cfg(feature = "server")]
    Serve(Box<serve::ServeArgs>) => serve::run,
    #[cfg(feature = "cache")]
    Cache(cache::CacheArgs) => cache::run,
    #[cfg(feature = "hub")]
    Pull(pull::PullArgs) => pull::run,
    #[cfg(feature = "hub")]
    List(models::ListArgs) => models::list,
    #[cfg(feature = "hub")]
    Rm(models::RmArgs) => models::rm,
    #[cfg(feature = "cluster")]
    Node(Box<node::NodeArgs>) => node::run,
    #[cfg(feature = "cluster")]
    Cluster(cluster::ClusterArgs) => cluster::run,
    Picolm(picolm::PicolmArgs) => picolm::run,
    #[cfg(feature = "leap")]
    Leap(Box<leap::LeapArgs>) => leap::run,
    #[cfg(feature = "leap")]
    LeapExport(leap_export::LeapExportArgs) => leap_export::run,
    #[cfg(feature = "leap")]
    LeapTokenizer(leap_tokenizer::LeapTokenizerArgs) => leap_tokenizer::run,
    #[cfg(feature = "cluster")]
    Doctor(doctor::DoctorArgs) => doctor::run,
    Bench(bench::BenchArgs) => bench::run,
    #[cfg(feature = "perplexity")]
    Perplexity(perplexity::PerplexityArgs) => perplexity::run,
    Tokenize(tokenize::TokenizeArgs) => tokenize::run,
    #[cfg(feature = "embed")]
    Embed(embed::EmbedArgs) => embed::run,
    Logits(logits::LogitsArgs) => logits::run,
    Inspect(inspect::InspectArgs) => inspect::run,
    #[cfg(feature = "convert")]
    Convert(convert::ConvertArgs) => convert::run,
    #[cfg(feature = "convert")]
    Imatrix(imatrix::ImatrixArgs) => imatrix::run,
    #[cfg(feature = "convert")]
    Verify(verify::VerifyArgs) => verify::run,
    #[cfg(all(feature = "convert", feature = "perplexity"))]
    Sensitivity(Box<sensitivity::SensitivityArgs>) => sensitivity::run,
    #[cfg(feature = "cli-extras")]
    Completions(completions::CompletionsArgs) => completions::run,
    #[cfg(feature = "cli-extras")]
    Man(man::ManArgs) => man::run,
    #[cfg(feature = "cli-extras")]
    Version(version::VersionArgs) => version::run,
}

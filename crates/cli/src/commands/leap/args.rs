//! The options of `atta leap`: LEAP's names and defaults, and which of them go together.

use std::{
    ffi::OsString,
    net::IpAddr,
    path::{Path, PathBuf},
};

use atta_cluster::wire::message::LaneName;
use clap::{Args, ValueEnum};

use crate::{
    args::{
        extra_help,
        value::{self, Seed},
    },
    failure::Failure,
};

/// Continues a text or chats with the options of LEAP, on one machine or on a chain of machines.
///
/// A drop-in for LEAP's `inference`: a link of that name to this program is this command. MODEL is
/// a GGUF file, or a model.bin, which is converted once and kept in the cache. Only text goes to
/// standard output.
///
/// In a chain the master runs the layers before --split and each worker those from its --split to
/// its --end; each names the next one. Workers need no MODEL: they fetch layers that they lack from
/// the master. The text is that of one machine. `atta node` and --ring do the same with a plan made
/// by measured speed.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = extra_help(
    "Commands in the chat:
  /layers          show which machine runs which layers
  /resize 8 16     move the borders between machines; the conversation goes on
  /help            list these commands
  exit             leave

Examples:
  atta leap model.bin -p \"Once upon a time\" --temp 0.8
  pi2$ atta leap model.bin --role worker --split 16 --key leap.key
  pi1$ atta leap model.bin --role master --split 16 --next-host pi2 --key leap.key -c
  ln -s \"$(command -v atta)\" inference; ./inference -c model.bin"
))]
pub(crate) struct LeapArgs {
    /// GGUF file, or model.bin of LEAP or llama2.c; a worker may have none
    pub(super) model: Option<PathBuf>,
    /// Vocabulary of a model.bin [default: tokenizer.bin beside it, or in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub(super) tokenizer: Option<PathBuf>,
    /// Prompt, or with -c the first message [default: standard input]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) prompt: Option<OsString>,
    /// Chat: each line is a message
    #[arg(short, long)]
    pub(super) chat: bool,
    /// System message of the chat
    #[arg(
        short,
        long,
        value_name = "TEXT",
        requires = "chat",
        allow_hyphen_values = true
    )]
    pub(super) system: Option<String>,
    /// Maximum number of tokens to generate [default: 4096]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    pub(super) n_predict: Option<usize>,
    /// Temperature; 0: greedy [default: 1]
    #[arg(long, value_name = "TEMP", value_parser = value::number, allow_negative_numbers = true)]
    pub(super) temp: Option<f32>,
    /// Top-p sampling: keep the most probable tokens with total probability P [default: 0.9]
    #[arg(long, value_name = "P", value_parser = value::probability)]
    #[arg(allow_negative_numbers = true)]
    pub(super) top_p: Option<f32>,
    /// RNG seed; 0: random [default: 0]
    #[arg(long, value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub(super) seed: Option<Seed>,
    /// Number of threads [default: the physical cores that this process may use]
    #[arg(short = 'j', value_name = "THREADS", value_parser = value::threads)]
    #[arg(allow_negative_numbers = true)]
    pub(super) threads: Option<usize>,
    /// What this machine is: alone, the first one of a chain, or another one
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = LeapRole::Single)]
    #[arg(help_heading = "Chain")]
    pub(super) role: LeapRole,
    #[command(flatten)]
    pub(super) chain: ChainFlags,
}

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LeapRole {
    Single,
    Master,
    Worker,
}

/// How rows travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TransportName {
    Tcp,
    Udp,
    Kernel,
}

/// The place of a machine in a chain, and its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Chain")]
pub(super) struct ChainFlags {
    /// Master: the first layer of the next machine; worker: its own first layer [default: 0]
    #[arg(long, value_name = "LAYER", value_parser = value::count)]
    #[arg(allow_negative_numbers = true)]
    pub(super) split: Option<usize>,
    /// Worker: the layer behind its last one; 0: all [default: 0]
    #[arg(long, value_name = "LAYER", value_parser = value::count)]
    #[arg(allow_negative_numbers = true)]
    pub(super) end: Option<usize>,
    /// How rows travel [default: tcp]
    #[arg(long, value_name = "NAME", value_enum)]
    pub(super) transport: Option<TransportName>,
    /// Address to listen on; 0.0.0.0: all, as long as they are private or link-local [default:
    /// 0.0.0.0]
    #[arg(long, value_name = "IP")]
    pub(super) host: Option<IpAddr>,
    /// Port to listen on; 0: any [default: 9999; of a master any if that is in use]
    #[arg(long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// The next machine; the last worker may name the master or none
    #[arg(long, value_name = "HOST")]
    pub(super) next_host: Option<String>,
    /// Port of the next machine [default: 9999]
    #[arg(long, value_name = "PORT", requires = "next_host")]
    pub(super) next_port: Option<u16>,
    /// File of the key that all machines of the chain have; a master makes it if there is none
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// No key and no encryption: every machine of a private network may use this one and read
    /// all that passes
    #[arg(long, conflicts_with = "key")]
    pub(super) insecure_lan: bool,
}

/// LEAP's port.
const PORT: u16 = 9999;

impl LeapArgs {
    /// Refuses options that have no effect together, and those that are not built.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.role {
            LeapRole::Single => self.check_single(),
            LeapRole::Master => self.check_master(),
            LeapRole::Worker => self.check_worker(),
        }
    }

    /// MODEL, where it is needed.
    pub(super) fn model(&self) -> Result<&Path, Failure> {
        self.model.as_deref().ok_or_else(|| {
            usage("MODEL is missing: a GGUF file, or a model.bin of LEAP or llama2.c")
        })
    }

    fn check_single(&self) -> Result<(), Failure> {
        self.model()?;
        match self.chain == ChainFlags::default() {
            true => Ok(()),
            false => Err(usage(
                "--split, --end, --transport, --host, --port, --next-host, --key and \
                 --insecure-lan are for --role master and worker",
            )),
        }
    }

    fn check_master(&self) -> Result<(), Failure> {
        self.model()?;
        self.chain.check()?;
        if self.chain.end.is_some_and(|end| end > 0) {
            return Err(usage(
                "--end is for --role worker: a master runs the layers before --split",
            ));
        }
        match self.chain.next_host {
            Some(_) => Ok(()),
            None => Err(usage("--role master needs --next-host: the first worker")),
        }
    }

    fn check_worker(&self) -> Result<(), Failure> {
        let of_text = [
            (self.prompt.is_some(), "-p"),
            (self.chat, "-c"),
            (self.n_predict.is_some(), "-n"),
            (self.temp.is_some(), "--temp"),
            (self.top_p.is_some(), "--top-p"),
            (self.seed.is_some(), "--seed"),
        ];
        if let Some((_, name)) = of_text.iter().find(|(is_given, _)| *is_given) {
            return Err(usage(&format!(
                "{name} is for the master: a worker writes no text"
            )));
        }
        if self.tokenizer.is_some() && self.model.is_none() {
            return Err(usage(
                "-t is the vocabulary of a model.bin: MODEL is missing",
            ));
        }
        let start = self.chain.start();
        if let Some(end) = self.chain.end_layer().filter(|end| *end <= start) {
            return Err(usage(&format!(
                "--split {start} --end {end} leaves no layer to this worker"
            )));
        }
        self.chain.check()
    }
}

impl ChainFlags {
    /// The first layer of a worker, or of the machine behind the master.
    pub(super) fn start(&self) -> usize {
        self.split.unwrap_or(0)
    }

    /// The layer behind the last one of a worker; `None`: all.
    pub(super) fn end_layer(&self) -> Option<usize> {
        self.end.filter(|end| *end > 0)
    }

    /// How rows travel, if that was said.
    pub(super) fn lane(&self) -> Option<LaneName> {
        self.transport.map(|transport| match transport {
            TransportName::Tcp => LaneName::Tcp,
            TransportName::Udp => LaneName::Udp,
            TransportName::Kernel => LaneName::AfXdp,
        })
    }

    /// Where the next machine listens, as host and port.
    pub(super) fn next(&self) -> Option<(&str, u16)> {
        let host = self.next_host.as_deref()?;
        Some((host, self.next_port.unwrap_or(PORT)))
    }

    /// Ports to listen on, in the order in which to try them.
    pub(super) fn ports(&self, role: LeapRole) -> Vec<u16> {
        match (self.port, role) {
            (Some(port), _) => vec![port],
            (None, LeapRole::Master) => vec![PORT, 0],
            (None, _) => vec![PORT],
        }
    }

    fn check(&self) -> Result<(), Failure> {
        if self.insecure_lan && self.lane().is_some_and(LaneName::is_quic) {
            return Err(usage(
                "--transport udp and kernel encrypt in any case: give --key instead of \
                 --insecure-lan, or --transport tcp",
            ));
        }
        match self.key.is_some() || self.insecure_lan {
            true => Ok(()),
            false => Err(usage(
                "--role master and worker listen for other machines: give --key FILE, the same \
                 file on all of them (a master makes it), or --insecure-lan, which lets in every \
                 machine of a private network",
            )),
        }
    }
}

fn usage(why: &str) -> Failure {
    Failure::Usage(why.to_owned())
}

/// A seed, or 0 for a random one.
fn seed(text: &str) -> Result<Seed, String> {
    match text.parse() {
        Ok(0) => Ok(Seed::Random),
        Ok(seed) => Ok(Seed::Fixed(seed)),
        Err(_) => Err("expected a whole number, or 0 for a random one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        leap: LeapArgs,
    }

    fn checked(line: &str) -> Result<LeapArgs, String> {
        let words = line.split(' ');
        let cli = Cli::try_parse_from(std::iter::once("inference").chain(words));
        let args = cli.map_err(|error| error.to_string())?.leap;
        match args.check() {
            Ok(()) => Ok(args),
            Err(Failure::Usage(why)) => Err(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_lines_of_leaps_page_are_understood_with_a_key() {
        checked("-c -p Hello! model.bin").unwrap();
        checked("-p Once --temp 0.8 --top-p 0.9 model.bin").unwrap();
        let lan = "--insecure-lan model.bin";
        checked(&format!(
            "--role master --split 16 --next-host 192.168.1.2 -c {lan}"
        ))
        .unwrap();
        let worker = format!("--role worker --split 11 --end 22 --next-host 192.168.1.3 {lan}");
        let worker = checked(&worker).unwrap().chain;
        assert_eq!(worker.start()..worker.end_layer().unwrap(), 11..22);
        assert_eq!(worker.next(), Some(("192.168.1.3", 9999)));
        assert_eq!(worker.ports(LeapRole::Worker), [9999]);
        let tail = checked("--role worker --split 22 --end 0 --key k")
            .unwrap()
            .chain;
        assert_eq!((tail.end_layer(), tail.next()), (None, None));
    }

    #[test]
    fn options_without_an_effect_are_refused() {
        for (line, part) in [
            ("-p x", "MODEL is missing"),
            ("a.bin --split 3", "for --role master and worker"),
            ("a.bin --role master --key k", "needs --next-host"),
            (
                "a.bin --role master --next-host b --end 3 --key k",
                "--end is for",
            ),
            ("a.bin --role worker -p x --key k", "-p is for the master"),
            (
                "a.bin --role worker --temp 1 --key k",
                "--temp is for the master",
            ),
            ("--role worker -t tokenizer.bin --key k", "MODEL is missing"),
            ("a.bin --role worker --split 4 --end 4 --key k", "no layer"),
            ("a.bin --role worker", "--insecure-lan"),
            (
                "a.bin --role worker --insecure-lan --transport udp",
                "give --key",
            ),
            (
                "a.bin --role worker --insecure-lan --transport kernel",
                "give --key",
            ),
            (
                "a.bin --role worker --key k --insecure-lan",
                "cannot be used with",
            ),
            ("a.bin --role worker --key k --next-port 1", "--next-host"),
            ("a.bin -s x", "--chat"),
        ] {
            let why = checked(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }

    #[test]
    fn a_seed_of_0_is_random() {
        assert_eq!(seed("0"), Ok(Seed::Random));
        assert_eq!(seed("7"), Ok(Seed::Fixed(7)));
        assert!(seed("-1").is_err());
    }
}

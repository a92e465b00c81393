//! `atta logits`: the logits after each of the given tokens, as raw numbers for other programs to
//! compare.

use std::path::PathBuf;

use atta::{KvType, Session};
use clap::Args;

use crate::{
    args::{
        GpuFlags, ModelArg, ModelFlags, RingFlags, extra_help,
        ring::RingAim,
        value::{self, TokenSource},
    },
    failure::Failure,
    gpu::GpuPlanner,
    input,
    inputs::InputFiles,
    interrupt::Interrupt,
    load,
    output::NewFile,
    progress::Progress,
    ring,
};

/// Tokens between two checks for Ctrl-C.
const CHUNK: usize = 512;

/// Writes the logits after each of the given tokens.
///
/// Evaluates exactly these ids and writes 32-bit floats, little-endian, [n_tokens, n_vocab]. The KV
/// cache is f32 unless --kv says otherwise.
#[derive(Debug, Args)]
#[command(after_help = extra_help(
    "Examples:
  atta logits model.gguf --tokens 1,15043,3186 -o logits.f32
  atta tokenize model.gguf --ids \"Hello\" | atta logits model.gguf --tokens - -o logits.f32"
))]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Token ids, separated by commas or spaces; `@FILE`: read from a file, `-`: from standard
    /// input
    #[arg(long, value_name = "IDS", required = true, value_parser = value::token_source)]
    #[arg(allow_hyphen_values = true)]
    tokens: TokenSource,
    /// Output file; -: standard output
    #[arg(short, value_name = "FILE", required = true)]
    output: PathBuf,
    #[command(flatten)]
    model_flags: ModelFlags,
    #[command(flatten)]
    ring: RingFlags,
    #[command(flatten)]
    gpu: GpuFlags,
}

pub(super) fn run(args: LogitsArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("logits")?;
    // The default KV cache is exact, since the logits are for comparison.
    let options = load::options(
        args.model.as_deref(),
        &args.model_flags,
        args.model_flags.session_options(KvType::F32),
    )?;
    let model = args.model.as_deref();
    let (options, _) = ring::plan(model, &args.ring, RingAim::Prompt, options)?;
    let options = GpuPlanner::new(1).plan(model, &args.gpu, options)?;
    let engine = load::engine(model, &options)?;
    let tokens = match &args.tokens {
        TokenSource::File(path) => Some(path),
        TokenSource::Ids(_) | TokenSource::Stdin => None,
    };
    let inputs = InputFiles::of([args.model.as_ref(), tokens]);
    let ids = input::read_tokens(args.tokens)?;
    let mut session = engine.session(&options.session)?;
    check(&session, &ids)?;
    // From here on a temporary file has to be removed after Ctrl-C.
    let interrupt = Interrupt::listen();
    let mut file = match args.output.as_os_str() == "-" {
        true => NewFile::stdout()?,
        false => NewFile::create(&args.output, &inputs)?,
    };
    write_logits(&mut session, &ids, &interrupt, &mut file)?;
    file.finish()
}

/// Checks before the work what would fail halfway.
fn check(session: &Session, ids: &[u32]) -> Result<(), Failure> {
    let n_ids = ids.len();
    let n_ctx = session.n_ctx();
    if n_ids > n_ctx {
        return Err(Failure::Failed(format!(
            "--tokens: {n_ids} ids, but the context holds {n_ctx}: raise -c"
        )));
    }
    let n_vocab = session.engine().spec().n_vocab;
    match ids.iter().find(|&&id| id as usize >= n_vocab) {
        Some(id) => Err(Failure::Failed(format!(
            "--tokens: id {id} is out of range, the model has {n_vocab} tokens"
        ))),
        None => Ok(()),
    }
}

/// Writes f32 little-endian, [n_ids, n_vocab].
fn write_logits(
    session: &mut Session,
    ids: &[u32],
    interrupt: &Interrupt,
    file: &mut NewFile,
) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let mut bytes = Vec::with_capacity(4 * session.engine().spec().n_vocab);
    for (i, chunk) in ids.chunks(CHUNK).enumerate() {
        if interrupt.is_asked() {
            return Err(Failure::Interrupted);
        }
        progress.prompt(i * CHUNK, ids.len());
        let mut written = Ok(());
        session.append_each(chunk, |_, logits| {
            bytes.clear();
            bytes.extend(logits.iter().flat_map(|x| x.to_le_bytes()));
            if written.is_ok() {
                written = file.write(&bytes);
            }
        })?;
        written?;
    }
    Ok(())
}

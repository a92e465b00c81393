//! `atta logits`: what the model says after each of the given tokens, as raw numbers for other
//! programs to compare.

use atta::{KvType, Session};

use crate::{
    args::{LogitsArgs, TokenSource},
    failure::Failure,
    input,
    inputs::Inputs,
    interrupt::Interrupt,
    load,
    output::NewFile,
    progress::Progress,
};

/// Tokens between two looks at Ctrl-C.
const CHUNK: usize = 512;

pub(super) fn run(args: LogitsArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("logits")?;
    // By default keys and values are exact, since the logits are there to be compared.
    let options = load::options(
        args.model.as_deref(),
        &args.model_flags,
        args.model_flags.session_options(KvType::F32),
    )?;
    let engine = load::engine(args.model.as_deref(), &options)?;
    let tokens = match &args.tokens {
        TokenSource::File(path) => Some(path),
        TokenSource::Ids(_) | TokenSource::Stdin => None,
    };
    let inputs = Inputs::of([args.model.as_ref(), tokens]);
    let ids = input::read_tokens(args.tokens)?;
    let mut session = engine.session(&options.session)?;
    check(&session, &ids)?;
    // From here on Ctrl-C leaves a file to remove.
    let interrupt = Interrupt::listen();
    let mut file = match args.output.as_os_str() == "-" {
        true => NewFile::stdout()?,
        false => NewFile::create(&args.output, &inputs)?,
    };
    write_logits(&mut session, &ids, &interrupt, &mut file)?;
    file.finish()
}

/// Finds out before the work begins what would end it halfway.
fn check(session: &Session, ids: &[u32]) -> Result<(), Failure> {
    let (n_ids, n_ctx) = (ids.len(), session.n_ctx());
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

//! What a path leads to: a GGUF file, a directory of Hugging Face's or Meta's kind, a file of
//! llama2.c or LEAP.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{Checkpoint, Error, MIXES, Mix, gguf, hf, llama2c, meta, vocab};

/// What the user says about a source beyond its path.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// The `tokenizer.bin` of a file of llama2.c or LEAP; `None`: the one beside it.
    pub tokenizer: Option<PathBuf>,
    /// How text is cut before it is tokenized, where the vocabulary does not say it in words that
    /// we know.
    pub pre: Option<String>,
}

/// Opens whatever it is. What a user should know of what was left out comes into `notes`.
///
/// # Errors
/// A path that leads to none of these, and whatever is wrong with what it leads to.
pub fn open(
    path: &Path,
    options: &SourceOptions,
    notes: &mut Vec<String>,
) -> Result<Checkpoint, Error> {
    let wrong = |why: &str| Error::File {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    if path.is_dir() {
        refuse(options.tokenizer.is_some(), path, "--tokenizer")?;
        return directory(path, options, notes);
    }
    refuse(options.pre.is_some(), path, "--pre")?;
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|file| file.take(4).read(&mut magic));
    read.map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let ends = |end: &str| {
        path.extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case(end))
    };
    match &magic {
        b"GGUF" => {
            refuse(options.tokenizer.is_some(), path, "--tokenizer")?;
            gguf::open(path)
        }
        b"PK\x03\x04" => Err(wrong("is one file of a directory: name the directory")),
        _ if ends("safetensors") || ends("json") => {
            Err(wrong("is one file of a directory: name the directory"))
        }
        _ if ends("bin") => llama2c::open(path, options.tokenizer.as_deref()),
        _ => Err(wrong(
            "is no GGUF file, no directory of a model, and no .bin of llama2.c or LEAP",
        )),
    }
}

fn directory(
    path: &Path,
    options: &SourceOptions,
    notes: &mut Vec<String>,
) -> Result<Checkpoint, Error> {
    let mut checkpoint = match (
        path.join("config.json").exists(),
        path.join("params.json").exists(),
    ) {
        (true, _) => hf::open(path, notes)?,
        (false, true) => meta::open(path, notes)?,
        (false, false) => {
            let why = "holds neither config.json (Hugging Face) nor params.json (Meta)".to_owned();
            return Err(Error::File {
                path: path.to_owned(),
                why,
            });
        }
    };
    let embedding = checkpoint
        .tensors
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight");
    let n_vocab = embedding.map_or(0, |tensor| tensor.n_rows());
    let options = vocab::Options {
        pre: options.pre.clone(),
    };
    notes.extend(vocab::read(
        path,
        n_vocab,
        &options,
        &mut checkpoint.metadata,
    )?);
    if let Some(file_type) = file_type(&checkpoint) {
        checkpoint.metadata.set_u32("general.file_type", file_type);
    }
    Ok(checkpoint)
}

/// What most weights are, in the numbers of `general.file_type`. Types that checkpoints come in are
/// the base of one mix each.
fn file_type(checkpoint: &Checkpoint) -> Option<u32> {
    let n_weights = |mix: &&Mix| {
        let tensors = checkpoint
            .tensors
            .iter()
            .filter(|tensor| tensor.ty == mix.base);
        tensors
            .map(|tensor| tensor.n_rows().saturating_mul(tensor.d_row()))
            .fold(0, u64::saturating_add)
    };
    MIXES.iter().max_by_key(n_weights).map(|mix| mix.file_type)
}

/// Refuses what does not apply.
fn refuse(is_given: bool, path: &Path, option: &str) -> Result<(), Error> {
    match is_given {
        true => Err(Error::File {
            path: path.to_owned(),
            why: format!("{option} does not apply to a source of its kind"),
        }),
        false => Ok(()),
    }
}

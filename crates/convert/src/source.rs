//! Detects the kind of a source: a GGUF or QSF file, a Hugging Face or Meta directory, or a
//! llama2.c or LEAP file.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use atta_formats::Setting;

use crate::{Checkpoint, Error, MIXES, Mix, gguf, hf, llama2c, meta, qsf, vocab};

/// Options of [`open`].
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// The `tokenizer.bin` of a llama2.c or LEAP file; `None`: the one beside it. The vocabulary of
    /// a QSF file that has none.
    pub tokenizer: Option<PathBuf>,
    /// The pre-tokenizer (`tokenizer.ggml.pre`), for a vocabulary whose pre-tokenizer is not
    /// recognized.
    pub pre: Option<String>,
}

/// Opens a source of any supported kind. Adds warnings for the user to `notes`.
///
/// # Errors
/// A path of none of these kinds, and the errors of its reader.
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
        refuse(options.tokenizer.is_some(), path, Setting::TokenizerFile)?;
        return directory(path, options, notes);
    }
    refuse(options.pre.is_some(), path, Setting::PreTokenizer)?;
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
            refuse(options.tokenizer.is_some(), path, Setting::TokenizerFile)?;
            gguf::open(path)
        }
        b"QSF1" => qsf::open(path, options.tokenizer.as_deref(), notes),
        b"PK\x03\x04" => Err(wrong("is one file of a directory: name the directory")),
        _ if ends("safetensors") || ends("json") => {
            Err(wrong("is one file of a directory: name the directory"))
        }
        _ if ends("bin") => llama2c::open(path, options.tokenizer.as_deref()),
        _ => Err(wrong(
            "is no GGUF or QSF file, no directory of a model, and no .bin of llama2.c or LEAP",
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
            let why = match path.join(hf::lora::CONFIG).exists() {
                true => "holds an adapter of peft: name its base model, too",
                false => "holds neither config.json (Hugging Face) nor params.json (Meta)",
            };
            return Err(Error::File {
                path: path.to_owned(),
                why: why.to_owned(),
            });
        }
    };
    let embedding = checkpoint
        .tensors
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight");
    let n_vocab = embedding.map_or(0, |tensor| tensor.n_rows());
    let options = vocab::VocabOptions {
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

/// `general.file_type` by the type of most weights. Each type that checkpoints come in is the base
/// of exactly one mix, but for T2, T3 and T4, which have no number.
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
    MIXES.iter().max_by_key(n_weights)?.file_type
}

/// Fails if an option is given that does not apply to the source.
fn refuse(is_given: bool, path: &Path, setting: Setting) -> Result<(), Error> {
    match is_given {
        true => Err(Error::NotApplicable {
            path: path.to_owned(),
            setting,
        }),
        false => Ok(()),
    }
}

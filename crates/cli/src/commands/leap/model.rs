//! From MODEL to a GGUF file: a model.bin is converted once, and kept in the cache.
//!
//! The one idea: a conversion is found again by the facts of its sources (path, length, time of
//! the last change), so that no gigabytes are hashed at every start; a changed source replaces it.

use std::{
    fs::{self, File, Metadata},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read},
    path::{Path, PathBuf},
};

use atta::convert::{ConvertOptions, Existing, convert, llama2c};

use crate::{
    cluster::Places,
    commands::convert::{Monitor, stopped},
    failure::Failure,
    load,
    ring::say,
};

/// The first bytes of a model.bin of versions 1 and 2.
const MAGIC: &[u8; 4] = b"24ka";

/// The GGUF file of a model, which a model.bin is converted to unless that was done before.
///
/// # Errors
/// A model that cannot be read or converted; a vocabulary beside a GGUF file.
pub(super) fn gguf(model: &Path, tokenizer: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = load::locate(model)?;
    if !is_bin(&path)? {
        return match tokenizer {
            None => Ok(path),
            Some(_) => Err(Failure::Usage(
                "-t is the vocabulary of a model.bin: a GGUF file has its own".to_owned(),
            )),
        };
    }
    let sources = BinSources {
        tokenizer: tokenizer.map_or_else(|| tokenizer_of(&path), Path::to_owned),
        model: path,
    };
    sources.check()?;
    let kept = sources.kept(&Places::new(None)?.conversions())?;
    if !kept.path.exists() {
        sources.convert(&kept)?;
    }
    Ok(kept.path)
}

/// Whether a file is no GGUF file, and a model.bin by its magic number or its name.
fn is_bin(path: &Path) -> Result<bool, Failure> {
    let mut head = [0; 4];
    let mut file = File::open(path).map_err(|error| Failure::at(path, error))?;
    let read = file.read_exact(&mut head);
    let is_whole = match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        read => read
            .map(|()| true)
            .map_err(|error| Failure::at(path, error))?,
    };
    let has_name = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("bin"));
    Ok(is_whole && (head == *MAGIC || has_name && head != *b"GGUF"))
}

/// The vocabulary of a model: beside it, or where LEAP looks for it.
fn tokenizer_of(model: &Path) -> PathBuf {
    let beside = llama2c::tokenizer_path(model);
    let here = PathBuf::from("tokenizer.bin");
    match !beside.exists() && here.exists() {
        true => here,
        false => beside,
    }
}

/// The two files of a model.
struct BinSources {
    model: PathBuf,
    tokenizer: PathBuf,
}

/// A conversion in the cache, there or not.
struct KeptConversion {
    path: PathBuf,
    /// How its name begins, and those of conversions of older states of its sources.
    prefix: String,
}

impl BinSources {
    fn check(&self) -> Result<(), Failure> {
        match self.tokenizer.exists() {
            true => Ok(()),
            false => {
                let why = format!(
                    "contains no vocabulary, and there is no {}: name it by -t",
                    self.tokenizer.display()
                );
                Err(Failure::at(&self.model, why))
            }
        }
    }

    /// The conversion of the sources as they are now.
    fn kept(&self, directory: &Path) -> Result<KeptConversion, Failure> {
        let model = absolute(&self.model)?;
        let stem = model.file_stem().unwrap_or_default().to_string_lossy();
        let place = hash_of(&model);
        let state = hash_of(&(
            env!("CARGO_PKG_VERSION"),
            absolute(&self.tokenizer)?,
            facts(&self.model)?,
            facts(&self.tokenizer)?,
        ));
        let prefix = format!("{stem}-{place:016x}-");
        Ok(KeptConversion {
            path: directory.join(format!("{prefix}{state:016x}.gguf")),
            prefix,
        })
    }

    fn convert(&self, kept: &KeptConversion) -> Result<(), Failure> {
        let directory = kept.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(|error| Failure::at(directory, error))?;
        say(&format!(
            "{} is a model of LEAP or llama2.c: converting it, once, to {}",
            self.model.display(),
            kept.path.display()
        ));
        let checkpoint = llama2c::open(&self.model, Some(&self.tokenizer))?;
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let options = ConvertOptions {
            n_threads,
            existing: Existing::Replace,
            ..ConvertOptions::default()
        };
        kept.remove_older(directory);
        let mut monitor = Monitor::new();
        stopped(convert(&checkpoint, &kept.path, &options, &mut |at| {
            monitor.update(at.done, at.total, at.tensor)
        }))?;
        Ok(())
    }
}

impl KeptConversion {
    /// Removes conversions of the same model as it was before. Those that stay take space only.
    fn remove_older(&self, directory: &Path) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&self.prefix) && name.ends_with(".gguf") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| Failure::at(path, error))
}

/// Length and time of the last change.
fn facts(path: &Path) -> Result<impl Hash + use<>, Failure> {
    let of = |meta: Metadata| Ok((meta.len(), meta.modified()?));
    let facts = fs::metadata(path).and_then(of);
    facts.map_err(|error: io::Error| Failure::at(path, error))
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

//! `atta verify`: compares a file with the checksums that it holds.

use atta::{
    Damage, DamagedPart, ModelFiles,
    convert::{VerifiedFile, verify},
};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    args::ModelFileArg,
    failure::Failure,
    load,
    output::Stdout,
    progress::Progress,
    report::{bytes, grouped},
};

/// Compares a model file with the checksums that it holds.
///
/// Reads all of the file: CRC32C of every 2 MiB of tensors and of the metadata, zeros between
/// tensors, and the BLAKE3 hash of the whole. `atta convert` writes checksums into files with T2,
/// T3 and T4, and into others with --layout streamable. Weights that are streamed are compared
/// while they are read, without this command.
///
/// The exit code is 0 if every byte is as it was written, and 1 if not, or if the file holds no
/// checksums.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    model: ModelFileArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: VerifyArgs) -> Result<(), Failure> {
    let path = load::locate(&args.model)?;
    let files = ModelFiles::open(&path).map_err(atta::Error::from)?;
    let total = files.file_bytes();
    let mut line = Progress::new();
    let verified = verify(&files, &mut |done| {
        line.busy(|| format!("{} % of {}", 100 * done / total.max(1), bytes(total)));
    });
    line.clear();
    print(&args, &verified.map_err(failure)?)
}

/// Prints the result, which is a failure if a file is not whole.
fn print(args: &VerifyArgs, verified: &[VerifiedFile]) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    match args.json {
        true => out.line(&crate::json::pretty(&object(verified)))?,
        false => out.write(&verified.iter().map(text).collect::<String>())?,
    }
    out.flush()?;
    match verified.iter().find_map(problem) {
        Some(problem) => Err(Failure::Failed(problem)),
        None => Ok(()),
    }
}

fn failure(error: atta::StoreError) -> Failure {
    match error {
        atta::StoreError::NoChecksums { .. } => Failure::Failed(format!(
            "{error}; `atta convert` writes them with --layout streamable"
        )),
        error => atta::Error::from(error).into(),
    }
}

/// The first thing that is wrong with a file, and how many more there are.
fn problem(file: &VerifiedFile) -> Option<String> {
    let checksums = &file.checksums;
    let more = match checksums.damages.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more places)", n - 1),
    };
    match checksums.damages.first() {
        Some(first) => Some(format!("{first}{more}")),
        None if file.is_whole() => None,
        None => Some(format!(
            "{}: its BLAKE3 hash is {}, it says {}: the file is damaged",
            checksums.path.display(),
            file.root,
            checksums.root
        )),
    }
}

/// A line for a file that is whole; the error names the fault of another one.
fn text(file: &VerifiedFile) -> String {
    let checksums = &file.checksums;
    match file.is_whole() {
        true => format!(
            "{}: {} bytes in {} pieces are as written, blake3 {}\n",
            checksums.path.display(),
            grouped(checksums.n_bytes.into()),
            grouped(checksums.n_pieces.into()),
            file.root
        ),
        false => String::new(),
    }
}

fn object(files: &[VerifiedFile]) -> Value {
    let file = |file: &VerifiedFile| {
        let checksums = &file.checksums;
        json!({
            "path": checksums.path.to_string_lossy(),
            "bytes": checksums.n_bytes,
            "pieces": checksums.n_pieces,
            "is_whole": file.is_whole(),
            "blake3": file.root,
            "expected_blake3": checksums.root,
            "damages": checksums.damages.iter().map(damage).collect::<Vec<_>>(),
        })
    };
    json!({
        "is_whole": files.iter().all(VerifiedFile::is_whole),
        "files": files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn damage(damage: &Damage) -> Value {
    let part = match &damage.part {
        DamagedPart::Header => "header",
        DamagedPart::Tensor(_) => "tensor",
        DamagedPart::Padding => "padding",
    };
    let tensor = match &damage.part {
        DamagedPart::Tensor(name) => Some(name),
        DamagedPart::Header | DamagedPart::Padding => None,
    };
    json!({
        "part": part,
        "tensor": tensor,
        "offset": damage.offset,
        "bytes": damage.bytes,
    })
}

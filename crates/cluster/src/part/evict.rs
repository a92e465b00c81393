//! The disk budget of parts: which of them go when a new one needs room.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{PartError, PartFile, file::at};

/// A part on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartUse {
    /// Its file.
    pub path: PathBuf,
    /// Bytes that it holds.
    pub held_bytes: u64,
    /// When it was used last.
    pub last_used: SystemTime,
}

/// Chooses the parts that go so that `needed` more bytes fit into the budget: those used longest
/// ago first, none of `kept`.
///
/// # Errors
/// [`PartError::DiskBudget`] if they do not fit even so.
pub fn to_evict(
    parts: &[PartUse],
    needed: u64,
    budget: u64,
    kept: &[PathBuf],
) -> Result<Vec<PathBuf>, PartError> {
    let held = parts
        .iter()
        .fold(0, |sum: u64, part| sum.saturating_add(part.held_bytes));
    let mut over = held.saturating_add(needed).saturating_sub(budget);
    let mut loose: Vec<&PartUse> = parts
        .iter()
        .filter(|part| !kept.contains(&part.path))
        .collect();
    loose.sort_by_key(|part| (part.last_used, &part.path));
    let can_go = loose
        .iter()
        .fold(0, |sum: u64, part| sum.saturating_add(part.held_bytes));
    if over > can_go {
        return Err(PartError::DiskBudget {
            needed,
            free: budget.saturating_sub(held.saturating_sub(can_go)),
            budget,
        });
    }
    let mut evicted = Vec::new();
    for part in loose {
        if over == 0 {
            break;
        }
        over = over.saturating_sub(part.held_bytes);
        if part.held_bytes > 0 {
            evicted.push(part.path.clone());
        }
    }
    Ok(evicted)
}

/// Deletes parts of a directory so that `needed` more bytes fit into the budget; the result is the
/// deleted ones. A part whose sidecar is torn counts as the oldest, with the length of its file.
///
/// # Errors
/// As [`to_evict`], and the error of the system.
pub fn evict(
    directory: &Path,
    needed: u64,
    budget: u64,
    kept: &[PathBuf],
) -> Result<Vec<PathBuf>, PartError> {
    let evicted = to_evict(&parts_in(directory)?, needed, budget, kept)?;
    for path in &evicted {
        // The sidecar last: without it, the file would not be found again.
        remove(path)?;
        remove(&PartFile::index_path(path))?;
    }
    Ok(evicted)
}

/// Deletes a file, which may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), PartError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, error)),
        _ => Ok(()),
    }
}

pub(super) fn parts_in(directory: &Path) -> Result<Vec<PartUse>, PartError> {
    let io = |source| at(directory, source);
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let index = entry.map_err(io)?.path();
        if index
            .extension()
            .is_some_and(|extension| extension == "part")
        {
            let path = index.with_extension("");
            let modified = fs::metadata(&index).and_then(|metadata| metadata.modified());
            let modified = modified.map_err(|source| at(&index, source))?;
            parts.push(part_use(path, modified));
        }
    }
    Ok(parts)
}

fn part_use(path: PathBuf, modified: SystemTime) -> PartUse {
    match PartFile::read_index(&path) {
        Ok(index) => PartUse {
            held_bytes: index.held_bytes(),
            last_used: modified,
            path,
        },
        Err(_) => PartUse {
            held_bytes: fs::metadata(&path).map_or(1, |metadata| metadata.len()),
            last_used: SystemTime::UNIX_EPOCH,
            path,
        },
    }
}

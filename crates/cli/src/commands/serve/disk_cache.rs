//! The prompt cache of `atta serve`: on by default, in a directory of this user.
//!
//! The one idea: a directory that was asked for has to work, the default one must not be in the
//! way. Whatever is wrong with it is one line, and the server runs without.

use std::{fs, io, path::Path};

use atta::PromptCache;

use crate::{failure::Failure, load, report, user_directory};

/// Size limit by default.
const DEFAULT_BYTES: u64 = 1 << 30;

/// By default, one part in this many of the free disk, saved prompts included, may be used.
const SHARE: u64 = 10;

/// With less than this there is no cache by default: it would hold no prompt of an agent.
const MIN_BYTES: u64 = 32 << 20;

/// Where prompts are saved.
#[derive(Clone, Copy, Debug)]
pub(super) enum CacheWish<'a> {
    /// Nowhere.
    Off,
    /// In this directory.
    In(&'a Path),
    /// In the default one, if that is possible.
    Default,
}

/// Opens the prompt cache, with at most `limit` bytes.
///
/// # Errors
/// A directory that was asked for and cannot be one.
pub(super) fn open(
    wish: CacheWish<'_>,
    limit: Option<u64>,
) -> Result<Option<PromptCache>, Failure> {
    let cache = match wish {
        _ if limit == Some(0) => return Ok(None),
        CacheWish::Off => return Ok(None),
        // A path that ends in a separator names a directory.
        CacheWish::In(path) => {
            PromptCache::open(&path.join(""), limit.unwrap_or(DEFAULT_BYTES)).map(Some)?
        }
        CacheWish::Default => open_default(limit),
    };
    Ok(cache)
}

/// Opens the default cache; a warning if that fails.
fn open_default(limit: Option<u64>) -> Option<PromptCache> {
    let Some(path) = user_directory::directory("XDG_CACHE_HOME", ".cache") else {
        load::warn("prompts are not saved to disk: set HOME, or give --cache DIR or --no-cache");
        return None;
    };
    let path = path.join("prompts");
    let opened = prepare(&path, limit).map_err(|error| error.to_string());
    let opened = opened.and_then(|limit| {
        let cache = PromptCache::open(&path.join(""), limit);
        cache.map_err(|error| error.to_string())
    });
    opened
        .inspect_err(|why| {
            let path = path.display();
            load::warn(&format!(
                "prompts are not saved to disk: {path}: {why}; give --cache DIR or --no-cache"
            ));
        })
        .ok()
}

/// Creates the directory, tries to write to it, and returns how many bytes it may have.
fn prepare(path: &Path, limit: Option<u64>) -> io::Result<u64> {
    user_directory::make_private(path)?;
    let probe = path.join(format!(".writable-{}", std::process::id()));
    fs::write(&probe, b"")?;
    fs::remove_file(&probe)?;
    if let Some(limit) = limit {
        return Ok(limit);
    }
    let limit = default_limit(fs4::available_space(path).ok(), used_bytes(path)?);
    match limit < MIN_BYTES {
        true => Err(io::Error::other(format!(
            "the disk is nearly full, {} would be left for it",
            report::bytes(limit)
        ))),
        false => Ok(limit),
    }
}

/// The default limit of a directory with so many bytes, on a disk with so many free ones.
fn default_limit(free: Option<u64>, used: u64) -> u64 {
    let share = free.map_or(DEFAULT_BYTES, |free| free.saturating_add(used) / SHARE);
    share.min(DEFAULT_BYTES)
}

/// Bytes of the files of a directory.
fn used_bytes(path: &Path) -> io::Result<u64> {
    let files = fs::read_dir(path)?.filter_map(Result::ok);
    // A file without metadata was just removed.
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    Ok(sizes.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limit_is_a_gibibyte_or_a_tenth_of_a_disk_that_is_nearly_full() {
        const GIB: u64 = 1 << 30;
        assert_eq!(default_limit(None, 0), GIB);
        assert_eq!(default_limit(Some(100 * GIB), 0), GIB);
        assert_eq!(default_limit(Some(2 * GIB), 0), GIB / 5);
        // Saved prompts do not count against later ones.
        assert_eq!(default_limit(Some(2 * GIB), 3 * GIB), GIB / 2);
    }
}

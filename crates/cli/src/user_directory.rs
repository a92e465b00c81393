//! Directories of this user in which atta keeps files of its own.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// The directory of atta below one that a variable names, or below `fallback` in the user's home;
/// `None` if the environment has neither.
pub(crate) fn directory(variable: &str, fallback: &str) -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let base = named(variable).map(PathBuf::from);
    let home = named("HOME").or_else(|| named("USERPROFILE"));
    let base = base.or_else(|| Some(PathBuf::from(home?).join(fallback)))?;
    Some(base.join("atta"))
}

/// Creates a directory that only its owner may enter, with its parents.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

//! Pointers of the caller, as references and slices.
//!
//! Knows no handle. The one idea: a pointer that may be NULL is an `Option` of a reference, which C
//! sees as that pointer, so that only lengths are left to be unsafe.

use std::{
    ffi::{CStr, c_char},
    mem::MaybeUninit,
    path::Path,
    ptr, slice,
};

use crate::failure::{AttaStatus, CallResult, Failure, run};

/// The `n` values behind a pointer, which may be NULL where there are none.
///
/// # Safety
/// `start` points to `n` values that no one changes while the slice is used.
pub(crate) unsafe fn values<'a, T>(start: *const T, n: usize, name: &str) -> CallResult<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Failure::null(name));
    }
    if n > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::invalid(format!("{name} has {n} values")));
    }
    // SAFETY: the caller's promise; the length was checked.
    Ok(unsafe { slice::from_raw_parts(start, n) })
}

/// The text of `n` bytes behind a pointer.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn text<'a>(start: *const c_char, n: usize, name: &str) -> CallResult<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { values(start.cast(), n, name) }?;
    utf8(bytes, name)
}

/// The text behind a pointer up to its NUL.
///
/// # Safety
/// `start` is NULL, or a NUL ends the text, which no one changes while it is used.
pub(crate) unsafe fn c_text<'a>(start: *const c_char, name: &str) -> CallResult<&'a str> {
    if start.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(start) };
    utf8(text.to_bytes(), name)
}

/// The path behind a pointer up to its NUL; NULL is none.
///
/// # Safety
/// As [`c_text`].
pub(crate) unsafe fn path<'a>(start: *const c_char) -> CallResult<Option<&'a Path>> {
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { c_text(start, "path") }?;
    Ok(Some(Path::new(text)))
}

fn utf8<'a>(bytes: &'a [u8], name: &str) -> CallResult<&'a str> {
    str::from_utf8(bytes).map_err(|error| Failure::invalid(format!("{name} is not UTF-8: {error}")))
}

/// The handle behind a pointer.
pub(crate) fn handle<'a, T>(handle: Option<&'a T>, name: &str) -> CallResult<&'a T> {
    handle.ok_or_else(|| Failure::null(name))
}

/// Makes a value that the program gets through `out`, which is NULL after a failure.
pub(crate) fn make<T>(
    out: Option<&mut MaybeUninit<*mut T>>,
    make: impl FnOnce() -> CallResult<T>,
) -> AttaStatus {
    run(|| {
        let out = out.ok_or_else(|| Failure::null("out"))?;
        out.write(ptr::null_mut());
        out.write(Box::into_raw(Box::new(make()?)));
        Ok(())
    })
}

/// Computes a number that the program gets through `out`; after a failure it is 0.
pub(crate) fn compute<T: Default>(
    out: Option<&mut MaybeUninit<T>>,
    compute: impl FnOnce() -> CallResult<T>,
) -> AttaStatus {
    run(|| {
        let out = out.ok_or_else(|| Failure::null("out"))?;
        out.write(T::default());
        out.write(compute()?);
        Ok(())
    })
}

/// Frees a handle; NULL is none.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    // There is no one to tell about a failure.
    let _ = run(|| {
        drop(handle);
        Ok(())
    });
}

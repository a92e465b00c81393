//! Failures: a status for the program, words for its user, and no panic across the border.
//!
//! Knows no function of the interface. The one idea: every function runs inside [`run`], which
//! turns errors and panics into a status and keeps the words for [`atta_last_error`].

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use atta_engine::{Error, Explain, Setting};

/// How a call went.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttaStatus {
    /// It went well.
    Ok = 0,
    /// A NULL where none may be, text that is not UTF-8, an unknown name, a value out of range.
    Invalid = 1,
    /// There is no such value, as of a token that the model does not have.
    Absent = 2,
    /// The session or generation is in use: by another thread, or by a generation that has not
    /// ended.
    Busy = 3,
    /// The generation has ended; there are no more events.
    End = 4,
    /// There is no event yet.
    Pending = 5,
    /// The model cannot be opened: no such file, a damaged one, an unsupported one.
    Model = 6,
    /// There is too little memory, or the budget is too small.
    Memory = 7,
    /// The tokens do not fit the context.
    Context = 8,
    /// A request was refused.
    Request = 9,
    /// Something else failed, such as a step of the model.
    Failed = 10,
    /// A bug in atta. The program goes on; the handle may have lost its content.
    Panic = 11,
    /// The session is suspended, and must be resumed first.
    Suspended = 12,
}

/// The names of the statuses, by their numbers.
const NAMES: [&CStr; 13] = [
    c"ok",
    c"invalid",
    c"absent",
    c"busy",
    c"end",
    c"pending",
    c"model",
    c"memory",
    c"context",
    c"request",
    c"failed",
    c"panic",
    c"suspended",
];

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: AttaStatus,
    pub(crate) message: String,
}

pub(crate) type CallResult<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: AttaStatus, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(AttaStatus::Invalid, message)
    }

    /// An argument that must not be NULL.
    pub(crate) fn null(argument: &str) -> Self {
        Self::invalid(format!("{argument} is NULL"))
    }

    pub(crate) fn suspended() -> Self {
        let message = "the session is suspended: it must be resumed first";
        Self::new(AttaStatus::Suspended, message)
    }

    pub(crate) fn busy(what: &str) -> Self {
        let message = format!("the {what} is in use by another thread or generation");
        Self::new(AttaStatus::Busy, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::PromptTooLong { .. } => AttaStatus::Context,
            error if error.is_about_memory() => AttaStatus::Memory,
            error if error.is_about_suspension() => AttaStatus::Suspended,
            Error::Forked | Error::Irreproducible => AttaStatus::Invalid,
            Error::Store(_) | Error::Model { .. } | Error::Tokenizer { .. } => AttaStatus::Model,
            Error::NotModel { .. } | Error::Unmeasured { .. } => AttaStatus::Model,
            Error::Sampling(_) | Error::Stop(_) | Error::Constraint(_) => AttaStatus::Request,
            Error::EmptyPrompt | Error::Pooling(_) => AttaStatus::Request,
            Error::Context(_) | Error::ShortWindow { .. } | Error::Quality(_) => {
                AttaStatus::Invalid
            }
            _ => AttaStatus::Failed,
        };
        Self::new(status, error.explain(option))
    }
}

/// The option that a setting is.
fn option(setting: Setting) -> &'static str {
    match setting {
        Setting::NCtx => "ctx",
        Setting::NBatch => "batch",
        Setting::KvType => "kv",
        Setting::Weights => "weights",
        Setting::Fit => "shrink",
        Setting::Quality => "quality",
        Setting::Experts => "experts",
        other => other.field(),
    }
}

thread_local! {
    /// The words of the last failure of this thread.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a function of the interface.
pub(crate) fn run(work: impl FnOnce() -> CallResult<()>) -> AttaStatus {
    let result = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => Err(Failure::new(AttaStatus::Panic, panic_text(&*panic))),
    };
    match result {
        Ok(()) => AttaStatus::Ok,
        Err(failure) => {
            keep(&failure.message);
            failure.status
        }
    }
}

fn keep(message: &str) {
    let text = text(message);
    LAST_ERROR.with(|last| drop(last.replace(text)));
}

/// A text for C: NUL becomes U+FFFD.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).expect("all NULs were replaced")
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug in atta: {}", text.unwrap_or("a panic without words"))
}

/// The words of the last call on this thread that failed; "" before the first one. The text is
/// valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn atta_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The name of a status, such as "busy"; "unknown" for a number that is none. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn atta_status_name(status: i32) -> *const c_char {
    let name = usize::try_from(status).ok().and_then(|i| NAMES.get(i));
    name.copied().unwrap_or(c"unknown").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        LAST_ERROR.with(|last| last.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_a_status_and_the_thread_goes_on() {
        assert_eq!(run(|| panic!("oh {}", 1)), AttaStatus::Panic);
        assert_eq!(last_error(), "a bug in atta: oh 1");
        assert_eq!(run(|| Ok(())), AttaStatus::Ok);
        assert_eq!(last_error(), "a bug in atta: oh 1", "success keeps it");
    }

    #[test]
    fn the_words_of_a_failure_are_those_of_its_thread() {
        run(|| Err(Failure::invalid("mine\0 and yours")));
        std::thread::spawn(|| assert_eq!(last_error(), ""))
            .join()
            .unwrap();
        assert_eq!(last_error(), "mine\u{fffd} and yours");
    }

    #[test]
    fn an_error_names_options_as_this_interface_does() {
        let failure = Failure::from(Error::PromptTooLong {
            n_prompt: 9,
            n_ctx: 8,
        });
        assert_eq!(failure.status, AttaStatus::Context);
        assert!(failure.message.contains("ctx"), "{}", failure.message);
    }
}

//! What asks the program to stop from outside: signals, and on Windows the events of its console.
//!
//! It refuses to know what stops. The one idea: the first request sets a flag, the second finds it
//! set and ends the program.

use std::sync::{Arc, atomic::AtomicBool};

/// Requests to listen for.
#[derive(Clone, Copy)]
pub(crate) enum Requests {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-C, and the end of a service.
    #[cfg(feature = "cluster")]
    End,
}

/// Listens from now on: the first request sets `asked`, the second ends the program with `code`.
///
/// # Errors
/// No handler can be installed: a request ends the program as usual.
#[cfg(not(windows))]
pub(crate) fn listen(requests: Requests, code: u8, asked: &Arc<AtomicBool>) -> Result<(), String> {
    use signal_hook::{consts, flag};

    let signals: &[_] = match requests {
        Requests::Interrupt => &[consts::SIGINT],
        #[cfg(feature = "cluster")]
        Requests::End => &[consts::SIGINT, consts::SIGTERM],
    };
    for &signal in signals {
        // In this order.
        flag::register_conditional_shutdown(signal, code.into(), Arc::clone(asked))
            .and_then(|_| flag::register(signal, Arc::clone(asked)))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// As above, at Ctrl-C and Ctrl-Break. A process has one handler, for all that listen.
#[cfg(windows)]
pub(crate) fn listen(_: Requests, code: u8, asked: &Arc<AtomicBool>) -> Result<(), String> {
    use std::{
        process,
        sync::{Mutex, PoisonError, atomic::Ordering},
    };

    static LISTENERS: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());
    let listeners = || LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = listeners();
    all.push(Arc::clone(asked));
    if all.len() > 1 {
        return Ok(());
    }
    let handler = move || {
        for asked in listeners().iter() {
            if asked.swap(true, Ordering::Relaxed) {
                process::exit(code.into());
            }
        }
    };
    ctrlc::set_handler(handler).map_err(|error| error.to_string())
}

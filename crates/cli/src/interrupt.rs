//! Ctrl-C: the first asks the work at hand to stop, the second ends the program at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::{consts::SIGINT, flag};

/// Whether the user has asked us to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Before, and where the system does not let us, Ctrl-C ends the program as usual.
    pub(crate) fn listen() -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        // In this order: the first signal finds the flag down and raises it, the second finds it raised and ends us.
        if flag::register_conditional_shutdown(SIGINT, 130, asked.clone()).is_ok() {
            // Fails only where the line before failed too; Ctrl-C then does nothing until it is pressed again.
            let _ = flag::register(SIGINT, asked.clone());
        }
        Self(asked)
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

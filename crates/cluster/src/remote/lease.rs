//! One ring or group at a time for a program, with numbers and secrets at random.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use atta_model::Error;
use ring::rand::{SecureRandom, SystemRandom};

/// The right to have machines in use.
pub(crate) struct Lease(Arc<AtomicBool>);

impl Lease {
    /// # Errors
    /// [`Error::Ring`]: another session of the program has it.
    pub(crate) fn take(is_open: &Arc<AtomicBool>) -> Result<Self, Error> {
        match is_open.swap(true, Ordering::AcqRel) {
            false => Ok(Self(Arc::clone(is_open))),
            true => Err(Error::Ring(
                "the machines are in use by another session of this program".to_owned(),
            )),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Random bytes of the system.
///
/// # Errors
/// [`Error::Ring`]: it gives none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::Ring("the system gives no random bytes".to_owned()))?;
    Ok(bytes)
}

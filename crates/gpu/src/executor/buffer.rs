//! A buffer with an owner.

use crate::{BufferId, Error, SharedHost};

/// A buffer that is freed with its owner, which must not hold the host's lock then.
#[derive(Debug)]
pub(crate) struct OwnBuffer {
    host: SharedHost,
    id: BufferId,
}

impl OwnBuffer {
    /// A buffer of zeros.
    ///
    /// # Errors
    /// Those of [`Host::buffer`](crate::Host::buffer).
    pub(crate) fn new(host: &SharedHost, bytes: u64) -> Result<Self, Error> {
        let id = host.lock().buffer(bytes)?;
        let host = host.clone();
        Ok(Self { host, id })
    }

    pub(crate) fn id(&self) -> BufferId {
        self.id
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        self.host.lock().free(self.id);
    }
}

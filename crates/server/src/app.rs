//! The state that all requests share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use atta_engine::chat::DateTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    ServerOptions,
    flow::{error::ApiError, warnings::LoggedWarnings},
    metrics::Metrics,
    models::Models,
    thermal::ThermalThrottle,
};

/// The server's state.
pub(crate) struct App {
    pub(crate) models: Arc<Models>,
    pub(crate) options: ServerOptions,
    /// One for each running or queued request.
    permits: Arc<Semaphore>,
    pub(crate) metrics: Metrics,
    /// The warnings that the log has shown.
    pub(crate) logged: LoggedWarnings,
    /// Set if the server throttles on a hot machine.
    pub(crate) throttle: Option<Arc<ThermalThrottle>>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    is_stopping: AtomicBool,
    n_ids: AtomicU64,
}

impl App {
    pub(crate) fn new(
        models: Models,
        throttle: Option<Arc<ThermalThrottle>>,
        options: ServerOptions,
    ) -> Self {
        let n_permits = options
            .batcher
            .n_jobs
            .saturating_add(options.max_queue)
            .min(Semaphore::MAX_PERMITS);
        Self {
            models: Arc::new(models),
            permits: Arc::new(Semaphore::new(n_permits)),
            options,
            metrics: Metrics::default(),
            logged: LoggedWarnings::default(),
            throttle,
            started: now(),
            is_stopping: AtomicBool::new(false),
            n_ids: AtomicU64::new(0),
        }
    }

    /// Takes one of the permits that limit running and queued requests.
    pub(crate) fn request_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| ApiError::busy())
    }

    /// A unique id: the start time of the server and a counter.
    pub(crate) fn id(&self, prefix: &str) -> String {
        let n = self.n_ids.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:x}{n:06x}", self.started)
    }

    /// Refuses all further requests.
    pub(crate) fn close(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

/// Local time for chat templates, as `datetime.now()` in transformers.
pub(crate) fn local_now() -> DateTime {
    let offset = chrono::Local::now().offset().local_minus_utc();
    DateTime::from_unix_with_offset(now(), offset)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

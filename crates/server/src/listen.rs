//! The server itself: accepts connections, limits them, and shuts down.

use std::{io, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    runtime::Runtime,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

use crate::{
    Listen, ModelSource, ServeError, ServerOptions, access,
    app::App,
    models::Models,
    routes,
    runtime::{self, run_blocking},
    signals::Signals,
    socket::{Listener, Stream, WriteTimeout},
    step_lock::StepLock,
    thermal::ThermalThrottle,
};

/// Time between searches for idle models.
const UNLOAD_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a failed accept, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) runtime: Runtime,
    listener: Listener,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Refuses new requests; running ones have the grace period of the options to end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    pub(crate) fn new(
        models: Vec<ModelSource>,
        options: ServerOptions,
    ) -> Result<Self, ServeError> {
        if let Listen::Tcp(address) = options.listen
            && !address.ip().is_loopback()
            && options.api_keys.is_empty()
            && !options.insecure
        {
            return Err(ServeError::Open(address));
        }
        if options.api_keys.iter().any(|key| key.trim().is_empty()) {
            return Err(ServeError::EmptyKey);
        }
        check_origins(&options)?;
        check_hosts(&options)?;
        options.defaults.check()?;
        let runtime = runtime::new()?;
        let listener = runtime.block_on(Listener::bind(&options.listen))?;
        let stop = watch::Sender::new(false);
        let throttle = options
            .thermal
            .clone()
            .map(ThermalThrottle::new)
            .transpose()?
            .map(Arc::new);
        // After a panic of a worker the server stops, so that a supervisor can restart it.
        let stopper = Stopper(stop.clone());
        let models = Models::new(
            models,
            &options,
            StepLock::with(throttle.clone()),
            Arc::new(move || stopper.stop()),
        )?;
        let app = Arc::new(App::new(models, throttle, options));
        Ok(Self {
            app,
            runtime,
            listener,
            stop,
        })
    }

    /// Where the server listens: a URL with the port, or `unix:` and a path.
    pub fn url(&self) -> String {
        self.listener.url(self.app.options.scheme())
    }

    /// A handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Serves until a [`Stopper`] stops the server.
    ///
    /// # Errors
    /// [`ServeError::Broken`].
    pub fn run(self) -> Result<(), ServeError> {
        self.run_until(std::future::pending())
    }

    /// Serves until Ctrl-C or SIGTERM; a second signal aborts running requests.
    ///
    /// # Errors
    /// The signals cannot be received; [`ServeError::Broken`].
    pub fn run_until_signal(self) -> Result<(), ServeError> {
        let guard = self.runtime.enter();
        let mut signals = Signals::listen().map_err(ServeError::Start)?;
        drop(guard);
        let stopper = self.stopper();
        self.run_until(async move {
            signals.next().await;
            stopper.stop();
            signals.next().await;
        })
    }

    /// Serves until it is stopped. Running requests are aborted when `abort` is ready or the grace
    /// period is over.
    fn run_until(self, abort: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self {
            app,
            runtime,
            listener,
            stop,
        } = self;
        runtime.block_on(async {
            tokio::select! {
                () = serve(&app, listener, &stop) => {}
                () = abort => {}
            }
        });
        // This closes the remaining connections, which cancels their jobs.
        runtime.shutdown_background();
        match app.models.close() {
            true => Ok(()),
            false => Err(ServeError::Broken),
        }
    }
}

/// Refuses an allowed origin that is no origin, or that admits every page without a key.
fn check_origins(options: &ServerOptions) -> Result<(), ServeError> {
    let is_closed = options.api_keys.is_empty() && !options.insecure;
    for origin in &options.allowed_origins {
        if !access::is_origin(origin) {
            return Err(ServeError::Origin(origin.clone()));
        }
        if is_closed && access::is_every_site(origin) {
            return Err(ServeError::OpenToPages(origin.clone()));
        }
    }
    Ok(())
}

/// Refuses an allowed host name that no `Host` can have.
fn check_hosts(options: &ServerOptions) -> Result<(), ServeError> {
    let bad = options
        .allowed_hosts
        .iter()
        .find(|host| !access::is_host(host));
    bad.map_or(Ok(()), |host| Err(ServeError::Host(host.clone())))
}

/// Accepts connections until the server is stopped, then waits for the open ones.
async fn serve(app: &Arc<App>, listener: Listener, stop: &watch::Sender<bool>) {
    let router = routes::router(Arc::clone(app));
    let permits = Arc::new(Semaphore::new(app.options.max_connections));
    let unloading = tokio::spawn(unload_idle(Arc::clone(app)));
    tokio::spawn(update_throttle(Arc::clone(app)));
    loop {
        let permit = Arc::clone(&permits).acquire_owned();
        let connection = async {
            // The semaphore is never closed.
            let permit = permit.await.ok()?;
            Some((listener.accept().await, permit))
        };
        tokio::select! {
            () = stop_asked(stop.subscribe()) => break,
            accepted = connection => match accepted {
                Some((Ok(stream), permit)) => {
                    let served = connect(
                        Arc::clone(app),
                        router.clone(),
                        stream,
                        permit,
                        stop.subscribe(),
                    );
                    tokio::spawn(served);
                }
                _ => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    app.close();
    unloading.abort();
    // New connections are refused from here on.
    drop(listener);
    let all = u32::try_from(app.options.max_connections).unwrap_or(u32::MAX);
    // Connections that take longer are closed.
    let _ = tokio::time::timeout(app.options.grace, permits.acquire_many(all)).await;
}

/// Waits until the server is asked to stop, or is gone.
async fn stop_asked(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

/// Unloads idle models from time to time.
async fn unload_idle(app: Arc<App>) {
    let idle = app.options.idle_unload;
    loop {
        tokio::time::sleep(UNLOAD_INTERVAL).await;
        if !app.models.has_idle(idle) {
            continue;
        }
        app.models.unload_idle(idle).await;
    }
}

/// Updates the thermal throttle from time to time.
async fn update_throttle(app: Arc<App>) {
    let Some(throttle) = &app.throttle else {
        return;
    };
    loop {
        tokio::time::sleep(throttle.interval()).await;
        let throttle = Arc::clone(throttle);
        // Reading some sensors takes a while.
        let _ = run_blocking(move || throttle.update()).await;
    }
}

/// The result of `work`, or `None` if the server is asked to stop first.
async fn unless_stopped<T>(
    stopped: watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = stop_asked(stopped) => None,
    }
}

/// Prepares a connection for HTTP: write timeout, TLS. A slow client delays no other one.
async fn open(stream: Box<dyn Stream>, options: &ServerOptions) -> io::Result<Box<dyn Stream>> {
    let stream: Box<dyn Stream> = Box::new(WriteTimeout::new(stream, options.read_timeout));
    if let Some(tls) = &options.tls {
        return tls.accept(stream, options.read_timeout).await;
    }
    Ok(stream)
}

/// Serves the requests of a connection.
async fn connect(
    app: Arc<App>,
    router: Router,
    stream: Box<dyn Stream>,
    _permit: OwnedSemaphorePermit,
    stopped: watch::Receiver<bool>,
) {
    let _counted = app.metrics.connected();
    let Some(Ok(stream)) = unless_stopped(stopped.clone(), open(stream, &app.options)).await else {
        return;
    };
    let mut http = http1::Builder::new();
    // Some small clients compare header names with regard to case.
    http.title_case_headers(true);
    http.timer(TokioTimer::new())
        .header_read_timeout(app.options.read_timeout)
        .max_buf_size(64 << 10);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // Errors of a connection are visible to its client only.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop_asked(stopped) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

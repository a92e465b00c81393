//! Connections: who gets in, how long they may take, and how the server ends.

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
    signals::Signals,
    socket::{Listener, Patient, Stream},
    step_lock::StepLock,
    thermal::ThermalThrottle,
};

/// Threads that make jobs of requests, and one that loads a model meanwhile.
const MAX_BLOCKING_THREADS: usize = 3;
/// How often idle models are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// After an accept that failed, as one does when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

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
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Nobody gets in any more; texts under way may go on for as long as the options say.
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
        options.defaults.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .build()
            .map_err(ServeError::Start)?;
        let listener = runtime.block_on(Listener::bind(&options.listen))?;
        let stop = watch::Sender::new(false);
        let throttle = options
            .thermal
            .clone()
            .map(ThermalThrottle::new)
            .transpose()?
            .map(Arc::new);
        // A server that cannot compute had better end, and be started again.
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

    /// Where it listens: an address with its port, or a path.
    pub fn place(&self) -> String {
        self.listener.place(self.app.options.scheme())
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Serves until it is stopped by its [`Stopper`].
    ///
    /// # Errors
    /// [`ServeError::Broken`].
    pub fn run(self) -> Result<(), ServeError> {
        self.run_until(std::future::pending())
    }

    /// Serves until Ctrl-C or SIGTERM; another one cuts texts that are still being written.
    ///
    /// # Errors
    /// Signals that the system does not let us hear; [`ServeError::Broken`].
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

    /// Serves until it is stopped; what is written then is cut when `cut` is ready, if the grace is
    /// not over before.
    fn run_until(self, cut: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self {
            app,
            runtime,
            listener,
            stop,
        } = self;
        runtime.block_on(async {
            tokio::select! {
                () = serve(&app, listener, &stop) => {}
                () = cut => {}
            }
        });
        // Connections that are still there are cut, and with them their jobs.
        runtime.shutdown_background();
        match app.models.close() {
            true => Ok(()),
            false => Err(ServeError::Broken),
        }
    }
}

/// Refuses an `--allow-origin` that means nothing, or that lets every page in.
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

/// Takes connections until the server is stopped, and waits for those that are open then.
async fn serve(app: &Arc<App>, listener: Listener, stop: &watch::Sender<bool>) {
    let router = routes::router(Arc::clone(app));
    let places = Arc::new(Semaphore::new(app.options.max_connections));
    let care = tokio::spawn(unload(Arc::clone(app)));
    tokio::spawn(watch_heat(Arc::clone(app)));
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let connection = async {
            // The semaphore is never closed.
            let place = place.await.ok()?;
            Some((listener.accept().await, place))
        };
        tokio::select! {
            () = stop_asked(stop.subscribe()) => break,
            accepted = connection => match accepted {
                Some((Ok(stream), place)) => {
                    tokio::spawn(connect(Arc::clone(app), router.clone(), stream, place, stop.subscribe()));
                }
                _ => tokio::time::sleep(PAUSE).await,
            },
        }
    }
    app.close();
    care.abort();
    // Whoever comes now is told at once that nobody is here.
    drop(listener);
    let all = u32::try_from(app.options.max_connections).unwrap_or(u32::MAX);
    // Whoever takes longer is cut.
    let _ = tokio::time::timeout(app.options.grace, places.acquire_many(all)).await;
}

/// Comes back when the server is asked to stop, or is gone.
async fn stop_asked(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

/// Takes models out of memory that nobody uses, if they may go.
async fn unload(app: Arc<App>) {
    let idle = app.options.idle_unload;
    loop {
        tokio::time::sleep(LOOK).await;
        if !app.models.has_idle(idle) {
            continue;
        }
        app.models.unload_idle(idle).await;
    }
}

/// Looks how hot the machine is, if it is to be kept cool.
async fn watch_heat(app: Arc<App>) {
    let Some(throttle) = &app.throttle else {
        return;
    };
    loop {
        tokio::time::sleep(throttle.interval()).await;
        let throttle = Arc::clone(throttle);
        // Some sensors take a while to answer.
        let _ = tokio::task::spawn_blocking(move || throttle.update()).await;
    }
}

/// What comes of it, or nothing if the server is asked to stop before.
async fn unless_asked<T>(
    stopped: watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = stop_asked(stopped) => None,
    }
}

/// A connection on which HTTP is spoken. A client that is slow about it holds up nobody else.
async fn open(stream: Box<dyn Stream>, options: &ServerOptions) -> io::Result<Box<dyn Stream>> {
    let stream: Box<dyn Stream> = Box::new(Patient::new(stream, options.read_timeout));
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        return tls.accept(stream, options.read_timeout).await;
    }
    Ok(stream)
}

/// Serves one connection, from one request to the next.
async fn connect(
    app: Arc<App>,
    router: Router,
    stream: Box<dyn Stream>,
    _place: OwnedSemaphorePermit,
    stopped: watch::Receiver<bool>,
) {
    let _counted = app.metrics.connected();
    let Some(Ok(stream)) = unless_asked(stopped.clone(), open(stream, &app.options)).await else {
        return;
    };
    let mut http = http1::Builder::new();
    // Small clients look for names of headers as they are printed, not as HTTP compares them.
    http.title_case_headers(true);
    http.timer(TokioTimer::new())
        .header_read_timeout(app.options.read_timeout)
        .max_buf_size(64 << 10);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // What goes wrong with a connection is the client's to see.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop_asked(stopped) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

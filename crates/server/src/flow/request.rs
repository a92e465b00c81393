//! From bytes to a parsed request and its model: a permit, the body, its fields, the load.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    adapters::AdapterFields,
    answer::Answers,
    body::{self, Accepted, BodyFields, Incoming},
    cache_reuse::CacheReuseFields,
    error::ApiError,
    prepare::Prepared,
    warnings::Warnings,
};
use crate::{
    access::ClientKey,
    app::App,
    models::{KeepAlive, Model},
    runtime::run_blocking,
};

/// A request that names a model.
pub(crate) trait ApiRequest: Sized + Send + 'static {
    /// Fields that are accepted and change nothing, with the reasons.
    const ACCEPTED: Accepted = &[];
    /// Whether an unknown model name means the only model: clients made for hosted services send
    /// names such as `gpt-4o`.
    const TAKES_ANY_NAME: bool = true;

    /// Reads the fields of a body.
    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError>;

    /// The name of the model, if the request has one.
    fn model(&self) -> Option<&str>;

    /// How long the model stays in memory after this request, if the request says so.
    fn keep_alive(&self) -> Option<KeepAlive> {
        None
    }
}

/// Fields that several paths of an interface share.
pub(crate) trait SharedFields: Sized + Send + 'static {
    /// As [`ApiRequest::TAKES_ANY_NAME`].
    const TAKES_ANY_NAME: bool = true;

    /// Takes them from a body.
    fn take(fields: &mut BodyFields) -> Result<Self, ApiError>;

    /// As [`ApiRequest::keep_alive`].
    fn keep_alive(&self) -> Option<KeepAlive> {
        None
    }
}

/// The fields of one path alone.
pub(crate) trait PathFields: DeserializeOwned + Send + 'static {
    /// The fields that other paths have, too.
    type Shared: SharedFields;
    /// As [`ApiRequest::ACCEPTED`].
    const ACCEPTED: Accepted;

    /// As [`ApiRequest::model`].
    fn model(&self) -> Option<&str>;
}

/// A request in two parts: the fields that it shares with other paths, and those of its own.
pub(crate) struct PathRequest<F: PathFields> {
    pub(crate) shared: F::Shared,
    pub(crate) own: F,
}

impl<F: PathFields> ApiRequest for PathRequest<F> {
    const ACCEPTED: Accepted = F::ACCEPTED;
    const TAKES_ANY_NAME: bool = F::Shared::TAKES_ANY_NAME;

    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            shared: F::Shared::take(&mut fields)?,
            own: fields.rest(F::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        self.own.model()
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.shared.keep_alive()
    }
}

/// A parsed request that holds one of the server's request permits.
pub(crate) struct ReceivedRequest<R> {
    pub(crate) request: R,
    adapters: AdapterFields,
    cache_reuse: CacheReuseFields,
    warnings: Warnings,
    /// The key that it came with.
    key: Option<ClientKey>,
    permit: OwnedSemaphorePermit,
    /// When the answer must end.
    deadline: Option<Instant>,
}

/// A parsed request whose model is in memory.
pub(crate) struct LoadedRequest<R> {
    request: R,
    adapters: AdapterFields,
    cache_reuse: CacheReuseFields,
    /// The adapter in the name of the model.
    named: Option<usize>,
    warnings: Warnings,
    permit: OwnedSemaphorePermit,
    model: Arc<Model>,
    load_time: Duration,
}

impl<R: ApiRequest> ReceivedRequest<R> {
    pub(crate) async fn read(app: &App, incoming: Incoming) -> Result<Self, ApiError> {
        let Incoming {
            body,
            warnings,
            key,
        } = incoming;
        let deadline = app.options.max_time.map(|time| Instant::now() + time);
        if app.is_stopping() {
            return Err(ApiError::stopping());
        }
        let permit = app.request_permit()?;
        let bytes = body::read(body, app.options.max_body, app.options.read_timeout).await?;
        // The closure holds the permit, because it runs to its end even if the client disconnects.
        let parse = move || {
            let mut fields = BodyFields::parse(&bytes)?;
            let adapters = fields.take()?;
            let cache_reuse = fields.take()?;
            let request = R::read(fields, &warnings)?;
            Ok(Self {
                request,
                adapters,
                cache_reuse,
                warnings,
                key,
                permit,
                deadline,
            })
        };
        on_blocking_thread(parse).await
    }

    /// Loads the model if it is not in memory.
    async fn load(self, app: &App) -> Result<LoadedRequest<R>, ApiError> {
        let start = Instant::now();
        let RequestedModel { name, adapter } = requested(app, &self.request, &self.warnings);
        let model = app.models.get(name, self.request.keep_alive()).await?;
        let named = match adapter {
            Some(adapter) if model.engine.adapters().is_empty() => {
                let whole = format!("{}:{adapter}", name.unwrap_or_default());
                self.warn_of_name(app, &whole)?;
                None
            }
            Some(adapter) => {
                let found = model.engine.adapter_named(adapter);
                Some(found.map_err(|error| ApiError::from(error).about("model"))?)
            }
            None => None,
        };
        Ok(LoadedRequest {
            request: self.request,
            adapters: self.adapters,
            cache_reuse: self.cache_reuse,
            named,
            warnings: self.warnings,
            permit: self.permit,
            model,
            load_time: start.elapsed(),
        })
    }

    /// Warns that the only model answers, though the request names another one.
    ///
    /// # Errors
    /// An interface that takes no such name, and a server of several models.
    fn warn_of_name(&self, app: &App, name: &str) -> Result<(), ApiError> {
        match app.models.only().filter(|_| R::TAKES_ANY_NAME) {
            Some(ours) => {
                warn_of_name(&self.warnings, name, ours);
                Ok(())
            }
            None => Err(ApiError::no_model(name)),
        }
    }

    /// Prepares jobs on a blocking thread and submits them to the model's worker. `prepare` also
    /// returns what the caller needs to write the answer.
    pub(crate) async fn submit<T, F>(self, app: &App, prepare: F) -> Result<(Answers, T), ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Model, R, &Warnings) -> Result<(Prepared, T), ApiError> + Send + 'static,
    {
        let deadline = self.deadline;
        let key = self.key;
        let loaded = self.load(app).await?;
        let load_time = loaded.load_time;
        let work = move || {
            let (prepared, reply) = prepare(&loaded.model, loaded.request, &loaded.warnings)?;
            let earlier = key.and_then(|key| loaded.model.earlier.of(key, &loaded.model.engine));
            let adapters = loaded.adapters.into_set(&loaded.model, loaded.named)?;
            let prepared = prepared.with_earlier_answers(earlier.as_ref());
            let prepared = prepared.with_adapters(adapters);
            if loaded.cache_reuse.is_wanted() && prepared.is_embedding() {
                loaded.warnings.add(NO_REUSE.to_owned());
            }
            let reuse = loaded.cache_reuse.into_least(&loaded.model)?;
            let prepared = prepared.with_cache_reuse(reuse);
            Ok(((prepared, reply), loaded.model, loaded.permit))
        };
        let ((prepared, reply), model, permit) = on_blocking_thread(work).await?;
        let (sender, events) = mpsc::unbounded_channel();
        model.worker.submit(prepared.jobs, &sender, deadline)?;
        let answers = Answers::new(model, load_time, events, prepared.parsers, permit);
        Ok((answers, reply))
    }
}

impl<R: ApiRequest> LoadedRequest<R> {
    /// Reads a request, and loads its model if it is not in memory.
    pub(crate) async fn read(app: &App, incoming: Incoming) -> Result<Self, ApiError> {
        ReceivedRequest::read(app, incoming).await?.load(app).await
    }

    /// Computes a response without a job, on a blocking thread.
    pub(crate) async fn map<T: Send + 'static>(
        self,
        respond: impl FnOnce(&Model, R, &Warnings) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if self.adapters.is_given() {
            let why = "lora changes nothing here: nothing is computed with weights";
            self.warnings.add(why.to_owned());
        }
        if self.cache_reuse.is_wanted() {
            self.warnings.add(NO_REUSE.to_owned());
        }
        let work = move || {
            let _permit = self.permit;
            respond(&self.model, self.request, &self.warnings)
        };
        on_blocking_thread(work).await
    }
}

/// Reads a request, prepares its jobs and submits them.
pub(crate) async fn submit<R: ApiRequest, T: Send + 'static>(
    app: &App,
    incoming: Incoming,
    prepare: impl FnOnce(&Model, R, &Warnings) -> Result<(Prepared, T), ApiError> + Send + 'static,
) -> Result<(Answers, T), ApiError> {
    let received = ReceivedRequest::read(app, incoming).await?;
    received.submit(app, prepare).await
}

/// The warning about a part of a cached prompt that is wanted where none is used.
const NO_REUSE: &str = "n_cache_reuse changes nothing here: no text is written";

/// The model that a request names, and an adapter of it.
#[derive(Default)]
struct RequestedModel<'a> {
    /// `None`: the first model.
    name: Option<&'a str>,
    adapter: Option<&'a str>,
}

/// Resolves the model name of a request: that of a model, or with an adapter's behind a colon. On a
/// server of one model any name may be accepted.
fn requested<'a, R: ApiRequest>(
    app: &App,
    request: &'a R,
    warnings: &Warnings,
) -> RequestedModel<'a> {
    let Some(name) = request.model() else {
        return RequestedModel::default();
    };
    let is_known = |name: &str| app.models.look_up(Some(name)).is_ok();
    let adapted = name.rsplit_once(':').filter(|(base, _)| is_known(base));
    match (adapted, app.models.only()) {
        (Some((base, adapter)), _) if !is_known(name) => RequestedModel {
            name: Some(base),
            adapter: Some(adapter),
        },
        (_, Some(ours)) if R::TAKES_ANY_NAME && !is_known(name) => {
            warn_of_name(warnings, name, ours);
            RequestedModel::default()
        }
        _ => RequestedModel {
            name: Some(name),
            adapter: None,
        },
    }
}

fn warn_of_name(warnings: &Warnings, name: &str, ours: &str) {
    warnings.add(format!("there is no model {name:?} here: {ours:?} answers"));
}

/// Runs work that takes milliseconds outside of the async thread.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    run_blocking(work).await.map_err(|_| ApiError::broken())?
}

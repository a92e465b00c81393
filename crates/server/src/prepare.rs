//! From what was said to jobs: the template, the tokens, the grammar. It takes milliseconds, and with a new grammar more, so
//! that it is done on a thread where nobody else has to wait for it.

use std::sync::Arc;

use atta_engine::{
    Error, GenerateOptions, Job,
    chat::{DateTime, Said},
};

use axum::body::Body;

use crate::{
    answer::{Answers, Reader},
    app::{self, App},
    body,
    refusal::Refusal,
};

/// Jobs, and who reads what they write.
pub(crate) struct Prepared {
    pub(crate) jobs: Vec<Job>,
    pub(crate) readers: Vec<Reader>,
}

/// Reads a request, has jobs made of it where nobody waits for it, and puts them into the queue. `make` may return more than
/// jobs.
pub(crate) async fn begin<T: Send + 'static>(
    app: &Arc<App>,
    body: Body,
    make: impl FnOnce(&App, &[u8]) -> Result<(Prepared, T), Refusal> + Send + 'static,
) -> Result<(Answers, T), Refusal> {
    if app.is_stopping() {
        return Err(Refusal::stopping());
    }
    let place = app.place()?;
    let bytes = body::read(body, app.options.max_body, app.options.read_timeout).await?;
    let shared = Arc::clone(app);
    // The place is held by the work, which goes on if the client goes away.
    let made = tokio::task::spawn_blocking(move || make(&shared, &bytes).map(|made| (made, place))).await;
    let ((Prepared { jobs, readers }, more), place) = made.map_err(|_| Refusal::broken())??;
    let (sender, news) = tokio::sync::mpsc::unbounded_channel();
    app.worker.submit(jobs, &sender)?;
    Ok((Answers::new(news, readers, place), more))
}

/// Answers to a conversation, `n` of them.
pub(crate) fn answers(app: &App, said: &Said<'_>, options: &GenerateOptions, n: usize) -> Result<Prepared, Refusal> {
    let said = Said { now: Some(DateTime::from_unix(app::now())), ..*said };
    let asked = app.form.ask(&said, options)?;
    let jobs = jobs(app, &asked.prompt.ids, &asked.options, n);
    let jobs = jobs.map_err(|error| app.form.blame(error, said.tools))?;
    let readers = (0..n).map(|_| Reader::message(asked.parser.clone())).collect();
    Ok(Prepared { jobs, readers })
}

/// Texts that go on after a prompt, `n` of each.
pub(crate) fn texts(app: &App, prompts: &[Vec<u32>], options: &GenerateOptions, n: usize) -> Result<Prepared, Refusal> {
    let mut all = Prepared { jobs: Vec::new(), readers: Vec::new() };
    for ids in prompts {
        all.jobs.extend(jobs(app, ids, options, n)?);
        all.readers.extend((0..n).map(|_| Reader::Plain(String::new())));
    }
    Ok(all)
}

/// Each with another seed.
fn jobs(app: &App, ids: &[u32], options: &GenerateOptions, n: usize) -> Result<Vec<Job>, Error> {
    let (n_prompt, n_ctx) = (ids.len(), app.n_ctx);
    if n_prompt > n_ctx {
        return Err(Error::PromptTooLong { n_prompt, n_ctx });
    }
    let job = |i: usize| {
        let mut options = options.clone();
        options.sampling.seed = options.sampling.seed.wrapping_add(i as u64);
        Job::new(&app.engine, ids.to_vec(), &options)
    };
    (0..n).map(job).collect()
}

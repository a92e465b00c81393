//! From what was said to jobs: the template, the tokens, the grammar. It takes milliseconds, and with a new grammar more, so
//! that it is done on a thread where nobody else has to wait for it.

use atta_engine::{
    Error, GenerateOptions, Job,
    chat::{DateTime, Said},
};

use crate::{
    answer::{Answers, Reader},
    app::{self, App},
    refusal::Refusal,
};

/// Jobs that have the same prompt, and who reads what they write.
pub(crate) struct Prepared {
    pub(crate) jobs: Vec<Job>,
    pub(crate) readers: Vec<Reader>,
}

/// Has jobs made where nobody waits for it, and puts them into the queue.
pub(crate) async fn begin(
    app: &App,
    make: impl FnOnce() -> Result<Prepared, Refusal> + Send + 'static,
) -> Result<Answers, Refusal> {
    if app.is_stopping() {
        return Err(Refusal::stopping());
    }
    let made = tokio::task::spawn_blocking(make).await;
    let Prepared { jobs, readers } = made.map_err(|_| Refusal::broken())??;
    let (sender, news) = tokio::sync::mpsc::unbounded_channel();
    app.worker.submit(jobs, &sender)?;
    Ok(Answers::new(news, readers))
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
    let (n_prompt, n_ctx) = (ids.len(), app.options.batcher.n_ctx);
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

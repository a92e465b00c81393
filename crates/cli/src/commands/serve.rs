//! `atta serve`: loads a model, and serves it until Ctrl-C or SIGTERM. Where it listens is the only line on standard output.

use std::io::{self, Write};

use atta_server::{ServeError, Server};

use crate::{args::ServeArgs, failure::Failure, load};

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    args.model_flags.refuse_fit("serve")?;
    let load_options = load::options(args.model.as_deref(), &args.model_flags, args.session())?;
    let load_options = atta::LoadOptions { constrained: true, ..load_options };
    // Until the model is loaded, Ctrl-C ends the program at once; then the server listens to it.
    let engine = load::engine(args.model.as_deref(), &load_options)?;
    let server = Server::bind(&engine, args.server_options()?).map_err(|error| match error {
        ServeError::Open(_) => Failure::Usage(error.to_string()),
        error => Failure::Failed(error.to_string()),
    })?;
    let mut out = io::stdout();
    // Who has started it may not want to know.
    let _ = writeln!(out, "{}", server.place()).and_then(|()| out.flush());
    server.run_until_signal().map_err(|error| Failure::Failed(error.to_string()))
}

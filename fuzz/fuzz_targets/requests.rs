//! Arbitrary bytes as a request to the server: the first byte, from `a` on, selects the path, and
//! the rest is the body. The response must be an answer or a 4xx error in the form of that API,
//! never a 500.
#![no_main]

#[path = "../../crates/server/tests/serve/form.rs"]
mod form;
#[path = "../../crates/server/tests/serve/tiny.rs"]
mod tiny;

use std::sync::LazyLock;

use atta_server::Server;
use libfuzzer_sys::fuzz_target;

static SERVER: LazyLock<Server> = LazyLock::new(tiny::server);
static PATHS: LazyLock<Vec<&str>> = LazyLock::new(Server::post_paths);

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, body)) = bytes.split_first() else {
        return;
    };
    let path = PATHS[usize::from(first.wrapping_sub(b'a')) % PATHS.len()];
    form::check(path, &SERVER.answer(path, body.to_vec()));
});

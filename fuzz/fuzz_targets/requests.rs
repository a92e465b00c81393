//! Any bytes as the body of a request to the server: the first one, from `a` on, is the path, and the rest is the body. What
//! comes back must be an answer or a refusal of that interface, and no mistake of the server's.
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

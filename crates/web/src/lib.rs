//! The module that a browser loads: libatta, with the page as its disk.
//!
//! Knows no address, no cache and no JavaScript. The one idea: the page gives bytes by ranges, on
//! the thread that asks for them, and all else is the C interface as `atta.h` has it. `web/` is the
//! package around the module: it has the workers, the downloads, and a WASI of a dozen functions.
//!
//! ```text
//! exports   all of atta.h · atta_web_open · atta_web_alloc, atta_web_free · wasi_thread_start
//! imports   atta_io.read(shard, offset, start, n_bytes) → 0, or a reason · atta_gpu.call: `gpu.rs`
//!           wasi_snapshot_preview1 · wasi.thread-spawn and env.memory where there are threads
//! ```
//! `cargo xtask web` builds it three times, into `web/dist/`: `mt-relaxed` and `mt-simd` for
//! `wasm32-wasip1-threads`, the first with dot products of bytes, and `st-simd` for
//! `wasm32-wasip1`, where a page gets no shared memory. A panic prints its message and traps: the
//! page takes it as the end of the module.

mod gpu;
mod memory;
mod open;
mod place;
mod ranges;

pub use atta_capi::*;
pub use memory::{atta_web_alloc, atta_web_free};
pub use open::atta_web_open;

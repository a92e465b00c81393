//! libatta: the library for programs in C, and for all languages that can call C.
//!
//! Knows no model and no text; it carries values between C and `atta-engine` and `atta-server`. The
//! one idea: a program **pulls**. A generation computes when its next event is asked for, on the
//! thread that asks, so that the library calls nothing back, and nothing is locked between two
//! calls.
//!
//! - Handles are opaque, and hold what they need: a model may be freed before its sessions.
//! - Every function that can fail returns an [`AttaStatus`]; [`atta_last_error`] has the words.
//! - No panic crosses the border: it is [`AttaStatus::Panic`].
//! - Options are set by name, and a struct that the library fills is told its size, so that both
//!   may grow without another [`ATTA_ABI`].
//!
//! `include/atta.h` is made from this crate by cbindgen, `abi.txt` lists what a program sees.

mod buffer;
mod event;
mod failure;
mod generation;
mod model;
mod options;
mod pointer;
mod qsf;
mod sampler;
mod session;

use std::ffi::{CStr, c_char};

pub use buffer::{AttaBuffer, atta_buffer_data, atta_buffer_free, atta_buffer_size};
pub use event::{AttaEvent, AttaEventKind};
pub use failure::{AttaStatus, atta_last_error, atta_status_name};
pub use generation::{
    AttaGeneration, atta_cancel, atta_generate, atta_generation_free, atta_generation_resume,
    atta_generation_suspend, atta_next, atta_next_within, atta_request,
};
#[doc(hidden)]
pub use model::open_sources;
pub use model::{
    AttaHeat, AttaModel, atta_detokenize, atta_model_free, atta_model_number, atta_model_open,
    atta_model_set_heat, atta_model_suspend, atta_model_text, atta_tokenize,
};
pub use options::{
    AttaOptions, atta_options_free, atta_options_new, atta_options_set_f64, atta_options_set_text,
    atta_options_set_u64,
};
pub use qsf::{
    QsfCallback, QsfConfig, QsfEngine, qsf_config_default, qsf_config_free,
    qsf_config_set_max_seq_len, qsf_config_set_quality, qsf_config_set_ram_budget,
    qsf_config_set_threads, qsf_detokenize, qsf_forward, qsf_free, qsf_free_text, qsf_free_tokens,
    qsf_generate, qsf_load, qsf_print_stats, qsf_sample, qsf_tokenize,
};
pub use sampler::{
    AttaSampler, atta_sampler_choose, atta_sampler_free, atta_sampler_new, atta_sampler_sample,
};
pub use session::{
    AttaSession, atta_session_append, atta_session_append_all, atta_session_free,
    atta_session_load, atta_session_logits, atta_session_new, atta_session_resume,
    atta_session_save, atta_session_set_lora, atta_session_suspend, atta_session_tokens,
    atta_session_truncate,
};

/// The version of the binary interface, which a program compares with `atta_abi_version()`.
/// Functions, options, statuses and events are added without another one.
pub const ATTA_ABI: u32 = 1;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL in it"),
    };

/// The `ATTA_ABI` that this library was built with.
#[unsafe(no_mangle)]
pub extern "C" fn atta_abi_version() -> u32 {
    ATTA_ABI
}

/// The version of the library, such as "0.1.0". It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn atta_version() -> *const c_char {
    VERSION.as_ptr()
}

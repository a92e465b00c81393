//! A module with the interface of atta's and no model in it, for the tests of the package: it reads its files on four
//! threads and adds their bytes, and its answers are made of that sum. `whole.test.js` builds it with rustc alone.

use std::{
    cell::RefCell,
    ffi::CString,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

#[link(wasm_import_module = "atta_io")]
unsafe extern "C" {
    fn read(shard: u32, offset: u64, start: *mut u8, n: usize) -> i32;
}

pub struct Model {
    sum: u64,
    n_threads: u32,
}
pub struct Request {
    pieces: Vec<String>,
    is_cancelled: AtomicBool,
    text: CString,
    fails: bool,
}
#[repr(C)]
pub struct Event {
    kind: i32,
    token: u32,
    text: *const u8,
    size: usize,
    n_done: u64,
    n_total: u64,
}

thread_local! { static LAST: RefCell<CString> = RefCell::default(); }

fn fail(status: i32, words: &str) -> i32 {
    LAST.with(|last| *last.borrow_mut() = CString::new(words).unwrap());
    status
}
fn text<'a>(start: *const u8, n: usize) -> &'a str {
    unsafe { std::str::from_utf8(std::slice::from_raw_parts(start, n)).unwrap() }
}

#[unsafe(no_mangle)]
pub extern "C" fn atta_web_alloc(n: usize) -> *mut u8 {
    Box::leak(vec![0u64; n.div_ceil(8).max(1)].into_boxed_slice())
        .as_mut_ptr()
        .cast()
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_web_free(start: *mut u8, n: usize) {
    unsafe {
        drop(Vec::from_raw_parts(
            start.cast::<u64>(),
            0,
            n.div_ceil(8).max(1),
        ))
    };
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_last_error() -> *const u8 {
    LAST.with(|last| last.borrow().as_ptr().cast())
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_version() -> *const u8 {
    c"0.0.0-echo".as_ptr().cast()
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_new(out: &mut *mut u32) -> i32 {
    *out = Box::leak(Box::new(1));
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_free(options: *mut u32) {
    unsafe { drop(Box::from_raw(options)) }
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_set_u64(options: &mut u32, name: *const i8, value: u64) -> i32 {
    if unsafe { std::ffi::CStr::from_ptr(name.cast()) } == c"threads" {
        *options = value as u32
    }
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_set_f64(_: &mut u32, _: *const i8, _: f64) -> i32 {
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_options_set_text(_: &mut u32, _: *const i8, _: *const u8, _: usize) -> i32 {
    0
}

/// The sum of the bytes of a part of a file, or a reason.
fn sum(shard: u32, from: u64, to: u64) -> Result<u64, i32> {
    let mut bytes = vec![0; 1 << 16];
    let (mut at, mut sum) = (from, 0);
    while at < to {
        let n = (to - at).min(bytes.len() as u64) as usize;
        let reason = unsafe { read(shard, at, bytes.as_mut_ptr(), n) };
        if reason != 0 {
            return Err(reason);
        }
        sum += bytes[..n].iter().map(|&byte| u64::from(byte)).sum::<u64>();
        at += n as u64;
    }
    Ok(sum)
}

#[unsafe(no_mangle)]
pub extern "C" fn atta_web_open(
    shards: *const u8,
    n: usize,
    options: &u32,
    out: &mut *mut Model,
) -> i32 {
    let number = |part: &str| {
        part.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let sizes: Vec<u64> = text(shards, n)
        .split("\"bytes\":")
        .skip(1)
        .map(number)
        .collect();
    let mut total = 0;
    for (shard, &bytes) in (0..).zip(&sizes) {
        let quarter = |i: u64| bytes * i / 4;
        let spawned: Vec<_> = (0..4)
            .map(|i| {
                let (from, to) = (quarter(i), quarter(i + 1));
                thread::Builder::new()
                    .spawn(move || sum(shard, from, to))
                    .map_err(|_| (from, to))
            })
            .collect();
        for part in spawned {
            let part = match part {
                Ok(thread) => thread.join().unwrap(),
                Err((from, to)) => sum(shard, from, to),
            };
            match part {
                Ok(part) => total += part,
                Err(reason) => return fail(6, &format!("reason {reason}")),
            }
        }
    }
    *out = Box::leak(Box::new(Model {
        sum: total,
        n_threads: *options,
    }));
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_free(model: *mut Model) {
    unsafe { drop(Box::from_raw(model)) }
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_number(model: &Model, _: *const u8, out: &mut u64) -> i32 {
    *out = model.sum;
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_model_text(_: &Model, _: *const u8, out: &mut *const u8) -> i32 {
    *out = c"echo".as_ptr().cast();
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_data(buffer: *const u8) -> *const u8 {
    buffer
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_size(_: *const u8) -> usize {
    4
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_buffer_free(_: *const u8) {}

#[unsafe(no_mangle)]
pub extern "C" fn atta_request(
    model: &Model,
    _: *const u8,
    body: *const u8,
    n: usize,
    out: &mut *mut Request,
) -> i32 {
    let body = if body.is_null() { "" } else { text(body, n) };
    if body.contains("refuse") {
        return fail(9, "no such field");
    }
    let chunk = |i: usize| {
        format!(
            r#"{{"object":"chat.completion.chunk","choices":[{{"delta":{{"content":"{i} "}}}}]}}"#
        )
    };
    let whole = format!(
        r#"{{"object":"chat.completion","sum":{},"threads":{},"usage":{{"prompt_tokens":3,"completion_tokens":4}}}}"#,
        model.sum, model.n_threads
    );
    let mut pieces = match body.contains("\"stream\":true") {
        true => (0..50).map(chunk).collect(),
        false => vec![whole],
    };
    pieces.reverse();
    if body.contains("panic") {
        pieces.push("panic".to_owned())
    }
    *out = Box::leak(Box::new(Request {
        pieces,
        is_cancelled: AtomicBool::new(false),
        text: CString::default(),
        fails: body.contains("fail"),
    }));
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_next_within(
    request: &mut Request,
    milliseconds: u32,
    event: &mut Event,
    _: usize,
) -> i32 {
    thread::sleep(Duration::from_millis(u64::from(milliseconds.min(2))));
    if request.fails {
        return fail(10, "the step failed");
    }
    let piece = match request.is_cancelled.load(Ordering::Relaxed) {
        true => None,
        false => request.pieces.pop(),
    };
    if piece.as_deref() == Some("panic") {
        let _ = std::io::stderr().flush();
        panic!("as it was asked to");
    }
    request.text = CString::new(piece.clone().unwrap_or_default()).unwrap();
    *event = Event {
        kind: if piece.is_some() { 4 } else { 5 },
        token: 0,
        text: request.text.as_ptr().cast(),
        size: request.text.as_bytes().len(),
        n_done: 0,
        n_total: 0,
    };
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_cancel(request: &Request) {
    request.is_cancelled.store(true, Ordering::Relaxed)
}
#[unsafe(no_mangle)]
pub extern "C" fn atta_generation_free(request: *mut Request) {
    unsafe { drop(Box::from_raw(request)) }
}

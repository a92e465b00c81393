//! The page's WebGPU as a host of kernels.
//!
//! Knows no model and no kernel. The one idea: **one call for all operations**, which the page
//! hands to a worker that owns the device, and that returns when it is done: the thread that calls
//! waits on a word of shared memory, the worker's promises are kept in its event loop. So no code
//! here is async, and the seam is the same as that of a driver.
//!
//! ```text
//! atta_gpu.call(operation, device, buffer, at, in, n_in, out, n_out)
//!     → a number, or a negative reason
//! ```
//! [`Operation`] says what the arguments mean; `web/gpu.js` is the other side. Numbers of devices
//! and buffers are never used twice, so that what belongs to a lost device cannot be taken for
//! another. `text` fetches the words of the last call of the same thread.

use std::{collections::HashMap, ops::Range};

use atta_gpu::{
    BufferId, Dispatch, Error, GpuKind, GpuStats, Host, HostInfo, PipelineId, Shader, check_ranges,
    check_words,
};
use serde_json::{Value, json};

use crate::ranges::Page;

/// An operation of the page's WebGPU. Arguments that it does not name are 0.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Opens a device, whose number comes back; its text describes the adapter.
    Open = 0,
    /// Gives up the device and what lies on it.
    Close = 1,
    /// Makes a buffer of `at` bytes, whose number comes back.
    Buffer = 2,
    /// Frees the buffer.
    Free = 3,
    /// Writes the input to the buffer from `at` on.
    Write = 4,
    /// Compiles kernels, a JSON list of objects with "name" and "text". The number of the first one
    /// comes back; the others follow.
    Pipelines = 5,
    /// Starts the kernels of some [records](RECORD).
    Submit = 6,
    /// Waits, and reads ranges of the buffer, whose starts and ends are 64-bit words, into the
    /// output, one behind the other.
    Read = 7,
    /// Tells how much of the model lies there: JSON.
    Placed = 8,
    /// Writes the text of the last call of this thread, as much of it as there is room for. Its
    /// length comes back.
    Text = 9,
}

/// Words of a dispatch: the kernel, five buffers, the grid, the parameters.
const RECORD: usize = 1 + 5 + 3 + 16;
/// Bytes of a text, at most.
const TEXT_MAX: usize = 1 << 12;

/// Reasons, as the page gives them.
const LOST: i32 = -1;
const OUT_OF_MEMORY: i32 = -2;
const REFUSED: i32 = -3;

/// The page, as far as it computes.
pub(crate) trait WebGpu: Send {
    /// Does an operation, and waits for it.
    fn call(&self, operation: Operation, of: OnDevice, input: &[u8], output: &mut [u8]) -> i32;
}

/// What an operation is about.
#[cfg_attr(
    not(target_family = "wasm"),
    allow(dead_code, reason = "only a page reads it")
)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnDevice {
    pub(crate) device: u32,
    pub(crate) buffer: u32,
    pub(crate) at: u64,
}

#[cfg(target_family = "wasm")]
impl WebGpu for Page {
    fn call(&self, operation: Operation, of: OnDevice, input: &[u8], output: &mut [u8]) -> i32 {
        #[link(wasm_import_module = "atta_gpu")]
        unsafe extern "C" {
            #[link_name = "call"]
            fn call(
                operation: u32,
                device: u32,
                buffer: u32,
                at: u64,
                input: *const u8,
                n_input: usize,
                output: *mut u8,
                n_output: usize,
            ) -> i32;
        }
        // SAFETY: before it returns, the page reads `n_input` bytes, which are those of `input`,
        // and writes `n_output` bytes, which are those of `output`.
        unsafe {
            call(
                operation as u32,
                of.device,
                of.buffer,
                of.at,
                input.as_ptr(),
                input.len(),
                output.as_mut_ptr(),
                output.len(),
            )
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl WebGpu for Page {
    fn call(&self, operation: Operation, _: OnDevice, _: &[u8], _: &mut [u8]) -> i32 {
        match operation {
            Operation::Text => 0,
            _ => LOST,
        }
    }
}

/// A device of the page.
pub(crate) struct PageHost<P: WebGpu> {
    page: P,
    device: u32,
    info: HostInfo,
    stats: GpuStats,
    /// Sizes of the buffers, bytes.
    buffers: HashMap<BufferId, u64>,
    pipelines: HashMap<Shader, PipelineId>,
    /// Why the device is lost.
    loss: Option<String>,
}

impl<P: WebGpu> PageHost<P> {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::Open`] in the page's words.
    pub(crate) fn open(page: P) -> Result<Self, Error> {
        let number = page.call(Operation::Open, OnDevice::default(), &[], &mut []);
        let words = text(&page);
        let refused = |reason: &str| Error::Open {
            name: "WebGPU".to_owned(),
            reason: reason.to_owned(),
        };
        let device = u32::try_from(number).map_err(|_| refused(&words))?;
        let info = info_of(&words).ok_or_else(|| refused("the page describes no adapter"))?;
        Ok(Self {
            page,
            device,
            info,
            stats: GpuStats::default(),
            buffers: HashMap::new(),
            pipelines: HashMap::new(),
            loss: None,
        })
    }

    /// Tells the page how much of the model lies on the device.
    pub(crate) fn tell(&self, placed: &Value) {
        let place = self.place(BufferId(0), 0);
        let json = placed.to_string();
        // It is for statistics alone.
        let _ = self
            .page
            .call(Operation::Placed, place, json.as_bytes(), &mut []);
    }

    fn place(&self, buffer: BufferId, at: u64) -> OnDevice {
        OnDevice {
            device: self.device,
            buffer: buffer.0,
            at,
        }
    }

    fn check(&self) -> Result<(), Error> {
        match &self.loss {
            Some(reason) => Err(Error::DeviceLost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Does an operation on this device; the number that comes back.
    fn call(
        &mut self,
        operation: Operation,
        buffer: BufferId,
        at: u64,
        input: &[u8],
    ) -> Result<u32, Error> {
        self.check()?;
        let place = self.place(buffer, at);
        let number = self.page.call(operation, place, input, &mut []);
        u32::try_from(number).map_err(|_| self.failed(number, at))
    }

    /// The error of a reason, with the page's words.
    fn failed(&mut self, reason: i32, bytes: u64) -> Error {
        let words = text(&self.page);
        match reason {
            OUT_OF_MEMORY => Error::OutOfMemory { bytes },
            REFUSED => {
                let (shader, reason) = words.split_once('\n').unwrap_or(("a kernel", &words));
                Error::Refused {
                    shader: shader.to_owned(),
                    reason: reason.to_owned(),
                }
            }
            _ => {
                debug_assert_eq!(reason, LOST);
                self.loss = Some(words.clone());
                Error::DeviceLost(words)
            }
        }
    }

    /// The size of a buffer, bytes.
    fn size(&self, buffer: BufferId) -> u64 {
        let bytes = self.buffers.get(&buffer).copied();
        bytes.expect("a buffer is not used after it was freed")
    }
}

impl<P: WebGpu> Host for PageHost<P> {
    fn info(&self) -> &HostInfo {
        &self.info
    }

    fn stats(&self) -> GpuStats {
        self.stats
    }

    fn buffer(&mut self, bytes: u64) -> Result<BufferId, Error> {
        self.check()?;
        let most = self.info.buffer_bytes;
        if bytes > most {
            return Err(Error::BufferSize { bytes, most });
        }
        let size = bytes.next_multiple_of(4).max(4);
        let id = BufferId(self.call(Operation::Buffer, BufferId(0), size, &[])?);
        self.buffers.insert(id, size);
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        self.buffers.remove(&buffer);
        // A lost device has no buffers.
        let _ = self.call(Operation::Free, buffer, 0, &[]);
    }

    fn write(&mut self, buffer: BufferId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check()?;
        check_words(self.size(buffer), at, bytes.len() as u64)?;
        self.call(Operation::Write, buffer, at, bytes)?;
        self.stats.bytes_up += bytes.len() as u64;
        Ok(())
    }

    fn pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<PipelineId>, Error> {
        self.check()?;
        let mut new: Vec<&Shader> = Vec::new();
        for shader in shaders {
            if !self.pipelines.contains_key(shader) && !new.contains(&shader) {
                new.push(shader);
            }
        }
        if !new.is_empty() {
            let list: Vec<Value> = new
                .iter()
                .map(|shader| json!({"name": shader.name, "text": shader.text}))
                .collect();
            let list = Value::from(list).to_string();
            let first = self.call(Operation::Pipelines, BufferId(0), 0, list.as_bytes())?;
            self.stats.pipelines += new.len() as u64;
            let ids = (first..).map(PipelineId);
            self.pipelines.extend(new.into_iter().cloned().zip(ids));
        }
        let ids = shaders.iter().map(|shader| self.pipelines[shader]);
        Ok(ids.collect())
    }

    fn submit(&mut self, dispatches: &[Dispatch]) -> Result<(), Error> {
        let words = dispatches.iter().flat_map(record);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.call(Operation::Submit, BufferId(0), 0, &bytes)?;
        self.stats.submits += 1;
        self.stats.dispatches += dispatches.len() as u64;
        self.stats.bytes_up += bytes.len() as u64;
        Ok(())
    }

    fn destroy(&mut self) {
        // A lost device is closed too, for what the page keeps of it.
        let place = self.place(BufferId(0), 0);
        let _ = self.page.call(Operation::Close, place, &[], &mut []);
        self.loss.get_or_insert_with(|| "destroyed".to_owned());
    }

    fn read_ranges(
        &mut self,
        buffer: BufferId,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.check()?;
        check_ranges(self.size(buffer), ranges, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let ends = ranges.iter().flat_map(|range| [range.start, range.end]);
        let input: Vec<u8> = ends.flat_map(u64::to_le_bytes).collect();
        let place = self.place(buffer, 0);
        let number = self.page.call(Operation::Read, place, &input, out);
        self.stats.waits += 1;
        if number < 0 {
            return Err(self.failed(number, 0));
        }
        self.stats.bytes_down += out.len() as u64;
        Ok(())
    }
}

impl<P: WebGpu> Drop for PageHost<P> {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// The words of a dispatch.
fn record(dispatch: &Dispatch) -> [u32; RECORD] {
    let bindings = dispatch.bindings;
    let mut words = [0; RECORD];
    words[0] = dispatch.pipeline.0;
    let buffers = [
        bindings.weights,
        bindings.kv,
        bindings.tables,
        bindings.acts,
        bindings.values,
    ];
    words[1..6].copy_from_slice(&buffers.map(|buffer| buffer.0));
    words[6..9].copy_from_slice(&dispatch.grid);
    words[9..].copy_from_slice(&dispatch.params);
    words
}

/// The page's words about the last call of this thread.
fn text(page: &impl WebGpu) -> String {
    let mut bytes = vec![0; TEXT_MAX];
    let n = page.call(Operation::Text, OnDevice::default(), &[], &mut bytes);
    let n = usize::try_from(n).unwrap_or_default().min(TEXT_MAX);
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

/// The adapter, as the page describes it.
fn info_of(json: &str) -> Option<HostInfo> {
    let fields: Value = serde_json::from_str(json).ok()?;
    let words = |name: &str| Some(fields.get(name)?.as_str()?.to_owned());
    let number = |name: &str| fields.get(name)?.as_u64();
    let is_program = fields.get("isSoftware")?.as_bool()?;
    let size = |name: &str| u32::try_from(number(name)?).ok();
    Some(HostInfo {
        name: words("name")?,
        interface: "WebGPU",
        driver: words("driver")?,
        kind: match is_program {
            true => GpuKind::Software,
            // Browsers do not say more.
            false => GpuKind::Unknown,
        },
        buffer_bytes: number("bufferBytes")?,
        subgroup: [size("subgroupMin")?, size("subgroupMax")?],
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A page that keeps the calls, and gives what it is told to.
    struct Kept<'a> {
        calls: &'a Mutex<Vec<(Operation, OnDevice, Vec<u8>)>>,
        number: i32,
        text: &'a str,
    }

    impl WebGpu for Kept<'_> {
        fn call(&self, operation: Operation, of: OnDevice, input: &[u8], output: &mut [u8]) -> i32 {
            if operation == Operation::Text {
                output[..self.text.len()].copy_from_slice(self.text.as_bytes());
                return self.text.len() as i32;
            }
            output.fill(7);
            let mut calls = self.calls.lock().unwrap();
            calls.push((operation, of, input.to_vec()));
            self.number
        }
    }

    const ADAPTER: &str = r#"{"name": "a", "driver": "", "isSoftware": true,
        "bufferBytes": 100, "subgroupMin": 4, "subgroupMax": 4}"#;

    fn host(calls: &Mutex<Vec<(Operation, OnDevice, Vec<u8>)>>) -> PageHost<Kept<'_>> {
        let page = Kept {
            calls,
            number: 3,
            text: ADAPTER,
        };
        PageHost::open(page).unwrap()
    }

    #[test]
    fn a_device_is_described_by_the_page() {
        let calls = Mutex::default();
        let host = host(&calls);
        assert_eq!(host.info().kind, GpuKind::Software);
        assert_eq!((host.info().buffer_bytes, host.device), (100, 3));
        assert!(info_of("{}").is_none() && info_of("").is_none());
    }

    #[test]
    fn only_words_of_a_buffer_reach_the_page() {
        let calls = Mutex::default();
        let mut host = host(&calls);
        assert!(matches!(host.buffer(101), Err(Error::BufferSize { .. })));
        let buffer = host.buffer(10).unwrap();
        for (at, n) in [(2, 4), (0, 3), (12, 4), (u64::MAX - 3, 4)] {
            let refused = host.write(buffer, at, &[0; 4][..n]);
            assert!(matches!(refused, Err(Error::Range { .. })), "{at} {n}");
        }
        host.write(buffer, 8, &[1, 2, 3, 4]).unwrap();
        let (operation, place, input) = calls.lock().unwrap().last().unwrap().clone();
        assert_eq!((operation, place.at), (Operation::Write, 8));
        assert_eq!(
            (place.device, place.buffer, input),
            (3, 3, vec![1, 2, 3, 4])
        );
    }

    #[test]
    fn all_ranges_of_a_read_are_one_call() {
        let calls = Mutex::default();
        let mut host = host(&calls);
        let buffer = host.buffer(16).unwrap();
        let mut out = [0; 8];
        host.read_ranges(buffer, &[0..4, 12..16], &mut out).unwrap();
        assert_eq!(out, [7; 8]);
        let (_, _, input) = calls.lock().unwrap().last().unwrap().clone();
        let ends: Vec<u64> = input
            .as_chunks()
            .0
            .iter()
            .map(|end| u64::from_le_bytes(*end))
            .collect();
        assert_eq!(ends, [0, 4, 12, 16]);
        let one = std::slice::from_ref(&(0..4));
        assert!(host.read_ranges(buffer, one, &mut out).is_err());
        assert!(host.read(buffer, 12, &mut out).is_err());
        let ends_early = std::ops::Range { start: 8, end: 0 };
        assert!(
            host.read_ranges(buffer, &[ends_early, 0..8], &mut out)
                .is_err()
        );
    }

    #[test]
    fn a_lost_device_stays_lost() {
        let calls = Mutex::default();
        let mut host = host(&calls);
        host.page.number = LOST;
        let error = host.submit(&[]).unwrap_err();
        assert!(matches!(error, Error::DeviceLost(_)), "{error}");
        host.page.number = 0;
        let n = calls.lock().unwrap().len();
        assert!(matches!(host.buffer(4), Err(Error::DeviceLost(_))));
        assert_eq!(
            calls.lock().unwrap().len(),
            n,
            "the page is not asked again"
        );
    }

    #[test]
    fn a_kernel_that_is_refused_has_its_name() {
        let calls = Mutex::default();
        let mut host = host(&calls);
        (host.page.number, host.page.text) = (REFUSED, "quantize\nline 3: no");
        let shader = Shader::quantize();
        let error = host.pipeline(&shader).unwrap_err().to_string();
        assert_eq!(error, "quantize: the driver refuses it: line 3: no");
        host.page.number = 5;
        assert_eq!(host.pipeline(&shader).unwrap(), PipelineId(5));
        let n = calls.lock().unwrap().len();
        assert_eq!(host.pipeline(&shader).unwrap(), PipelineId(5));
        assert_eq!(calls.lock().unwrap().len(), n, "it is compiled once");
    }
}

//! The seam between kernels and drivers: eight operations on buffers, pipelines and submissions.
//!
//! It knows no tensor and no kernel. The one idea: **one layout of bindings for all kernels**, five
//! buffers of words and a slot of parameters, so that a host has one pipeline layout, a step binds
//! once, and a step creates no object. A browser's WebGPU can stand behind it as wgpu does.

#[cfg(all(feature = "native", not(target_family = "wasm")))]
mod native;

use crate::{Error, Shader};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(all(feature = "native", not(target_family = "wasm")))]
pub use native::NativeHost;

/// Words of the parameters of a dispatch. The first one is the zero of the shaders' guard.
pub(crate) const PARAM_WORDS: usize = 16;
/// Workgroups in one dimension of a grid, at most.
pub(crate) const GRID_MAX: u32 = 65_535;

/// The parameters of a dispatch.
pub type Params = [u32; PARAM_WORDS];

/// A buffer of a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufferId(pub u32);

/// A compiled kernel of a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PipelineId(pub u32);

/// The buffers that a kernel sees. All differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bindings {
    /// Matrices and vectors of the model; only read.
    pub weights: BufferId,
    /// Blocks of the KV cache.
    pub kv: BufferId,
    /// Block tables, rows and rotations of a step; only read.
    pub tables: BufferId,
    /// Activations as products read them, and partial results.
    pub acts: BufferId,
    /// f32: the residual stream, results of products.
    pub values: BufferId,
}

impl Bindings {
    /// Whether `buffer` is one of them.
    pub fn has(&self, buffer: BufferId) -> bool {
        [self.weights, self.kv, self.tables, self.acts, self.values].contains(&buffer)
    }
}

/// One run of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The kernel.
    pub pipeline: PipelineId,
    /// Its buffers.
    pub bindings: Bindings,
    /// Its parameters.
    pub params: Params,
    /// Workgroups in each dimension, at most 65,535 each.
    pub grid: [u32; 3],
}

/// A grid of at least `n` workgroups, numbered `65535·y + x`, in `layers` layers.
pub(crate) fn grid_of(n: u32, layers: u32) -> [u32; 3] {
    [n.min(GRID_MAX), n.div_ceil(GRID_MAX), layers]
}

/// What kind of device an adapter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuKind {
    /// With memory of its own.
    Discrete,
    /// In the memory of the CPU.
    Integrated,
    /// A part of one that others use, too.
    Virtual,
    /// A program on the CPU, for tests.
    Software,
    /// The driver does not say.
    Unknown,
}

/// An adapter: a device as a driver offers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Vulkan, Metal or DirectX 12.
    pub interface: &'static str,
    /// The driver and its version.
    pub driver: String,
    /// What kind of device.
    pub kind: GpuKind,
    /// Bytes of the largest buffer.
    pub buffer_bytes: u64,
    /// Invocations whose registers hold what they exchange (subgroups), at least and at most.
    pub subgroup: [u32; 2],
}

impl HostInfo {
    /// Whether what lies on it takes memory of this machine.
    pub fn shares_memory(&self) -> bool {
        match self.kind {
            GpuKind::Integrated | GpuKind::Software => true,
            GpuKind::Discrete | GpuKind::Virtual | GpuKind::Unknown => false,
        }
    }
}

/// Counters of a host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GpuStats {
    /// Command buffers.
    pub submits: u64,
    /// Those of them that were recorded while the device computed the one before.
    pub ahead: u64,
    /// Times that the CPU waited for the device.
    pub waits: u64,
    /// Runs of kernels.
    pub dispatches: u64,
    /// Kernels compiled.
    pub pipelines: u64,
    /// Bytes written to buffers, parameters included.
    pub bytes_up: u64,
    /// Bytes read from buffers.
    pub bytes_down: u64,
}

/// Checks that `len` bytes from `at` on are words of a buffer of `bytes` bytes.
///
/// # Errors
/// [`Error::Range`].
pub fn check_words(bytes: u64, at: u64, len: u64) -> Result<(), Error> {
    let fits = at.checked_add(len).is_some_and(|end| end <= bytes);
    match fits && at.is_multiple_of(4) && len.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::Range { at, len, bytes }),
    }
}

/// Checks that ranges are words of a buffer of `bytes` bytes, and `n_out` bytes in all.
///
/// # Errors
/// [`Error::Range`].
pub fn check_ranges(bytes: u64, ranges: &[Range<u64>], n_out: usize) -> Result<(), Error> {
    let n_out = n_out as u64;
    let mut found = 0u64;
    for range in ranges {
        // One that ends before it starts is longer than any buffer.
        let len = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        check_words(bytes, range.start, len)?;
        found = found.saturating_add(len);
    }
    match found == n_out {
        true => Ok(()),
        false => Err(Error::Range {
            at: 0,
            len: n_out,
            bytes: found,
        }),
    }
}

/// A device, its buffers and its kernels.
///
/// After [`Error::DeviceLost`] every call returns it again.
pub trait Host {
    /// The adapter.
    fn info(&self) -> &HostInfo;

    /// Its counters.
    fn stats(&self) -> GpuStats;

    /// A buffer of zeros.
    ///
    /// # Errors
    /// [`Error::BufferSize`], [`Error::OutOfMemory`], [`Error::DeviceLost`].
    fn buffer(&mut self, bytes: u64) -> Result<BufferId, Error>;

    /// Frees a buffer, once the submissions that use it are done.
    fn free(&mut self, buffer: BufferId);

    /// Writes words, in order with submissions.
    ///
    /// # Errors
    /// [`Error::Range`] unless they are whole words of the buffer, [`Error::DeviceLost`].
    fn write(&mut self, buffer: BufferId, at: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Compiles kernels, each once, and several at the same time where the host can.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::DeviceLost`].
    fn pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<PipelineId>, Error>;

    /// Compiles a kernel, once.
    ///
    /// # Errors
    /// As [`pipelines`](Self::pipelines).
    fn pipeline(&mut self, shader: &Shader) -> Result<PipelineId, Error> {
        let made = self.pipelines(std::slice::from_ref(shader))?;
        Ok(made[0])
    }

    /// Starts kernels, one after the other, and does not wait for them.
    ///
    /// # Errors
    /// [`Error::Refused`] by the driver's validation, [`Error::DeviceLost`].
    fn submit(&mut self, dispatches: &[Dispatch]) -> Result<(), Error>;

    /// Records kernels while the device computes. If the next submission has the same ones, it
    /// runs them with the contents that buffers have then, and the device waits less. A host may
    /// ignore it.
    fn record_ahead(&mut self, dispatches: &[Dispatch]) {
        let _ = dispatches;
    }

    /// Gives the device up, which looks to all that use it like a reset by the driver.
    fn destroy(&mut self);

    /// Waits for all submissions and reads words of some ranges of a buffer, in bytes, one behind
    /// the other: all in one wait.
    ///
    /// # Errors
    /// [`Error::Range`], also if `out` is not as long as all ranges; [`Error::DeviceLost`].
    fn read_ranges(
        &mut self,
        buffer: BufferId,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), Error>;

    /// Waits for all submissions and reads words.
    ///
    /// # Errors
    /// As [`read_ranges`](Self::read_ranges).
    fn read(&mut self, buffer: BufferId, at: u64, out: &mut [u8]) -> Result<(), Error> {
        let range = at..at.saturating_add(out.len() as u64);
        self.read_ranges(buffer, &[range], out)
    }
}

/// A host that several executors use, one call after the other: its kernels are compiled once.
#[derive(Clone)]
pub struct SharedHost(Arc<Mutex<dyn Host + Send>>);

impl std::fmt::Debug for SharedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedHost").field(&self.info()).finish()
    }
}

impl SharedHost {
    /// Shares a host.
    pub fn new(host: impl Host + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(host)))
    }

    /// The host, as long as the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, dyn Host + Send + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapter.
    pub fn info(&self) -> HostInfo {
        self.lock().info().clone()
    }

    /// Whether the device is lost, as far as it is known.
    pub fn is_lost(&self) -> bool {
        matches!(self.lock().submit(&[]), Err(Error::DeviceLost(_)))
    }

    /// The counters.
    pub fn stats(&self) -> GpuStats {
        self.lock().stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_its_workgroups() {
        for n in [1, 65_535, 65_536, 262_144] {
            let [x, y, z] = grid_of(n, 3);
            assert!(x <= GRID_MAX && x * y >= n && z == 3, "{n}: {x} {y}");
        }
    }
}

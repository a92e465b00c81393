//! The GPUs of a process: each is opened once for all models on it.
//!
//! It knows adapters by their numbers, and no model. The one idea: a device that is opened
//! once has its kernels compiled once, and one account of its memory.

use crate::{Error, SharedHost};
use atta_store::Budget;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The names of the memory of a GPU.
pub(crate) const GPU_WEIGHTS: &str = "gpu weights";
pub(crate) const GPU_STATE: &str = "gpu kv cache";
pub(crate) const GPU_ACTIVATIONS: &str = "gpu activations";

/// A GPU that is open, and the account of its memory.
#[derive(Clone, Debug)]
pub struct OpenGpu {
    /// The device.
    pub host: SharedHost,
    /// Its memory.
    pub budget: Budget,
}

type OpenHost = Box<dyn Fn(usize) -> Result<SharedHost, Error> + Send + Sync>;

/// Opens each GPU once, and again after it was lost.
pub struct Gpus {
    open: OpenHost,
    opened: Mutex<HashMap<usize, OpenGpu>>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Gpus").field(&opened.keys()).finish()
    }
}

impl Gpus {
    /// GPUs that `open` opens by their numbers.
    pub fn new(open: impl Fn(usize) -> Result<SharedHost, Error> + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
            opened: Mutex::default(),
        }
    }

    /// A GPU; `max_bytes` limits its memory if it is opened now.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(&self, index: usize, max_bytes: u64) -> Result<OpenGpu, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = opened.get(&index).filter(|gpu| !gpu.host.is_lost()) {
            return Ok(gpu.clone());
        }
        let gpu = OpenGpu {
            host: (self.open)(index)?,
            budget: Budget::limited(max_bytes),
        };
        opened.insert(index, gpu.clone());
        Ok(gpu)
    }
}

/// Bytes of a buffer of the probe, at most.
const PROBE_BYTES: u64 = 1 << 30;

impl OpenGpu {
    /// How many of `wanted` bytes the driver grants now. It makes buffers and frees them again.
    ///
    /// # Errors
    /// The loss of the device.
    pub fn room(&self, wanted: u64) -> Result<u64, Error> {
        let mut host = self.host.lock();
        let most = host.info().buffer_bytes.clamp(1, PROBE_BYTES);
        let mut made = Vec::new();
        let mut room = 0;
        let ended = loop {
            let bytes = most.min(wanted - room);
            if bytes == 0 {
                break Ok(());
            }
            match host.buffer(bytes) {
                Ok(buffer) => made.push(buffer),
                Err(Error::OutOfMemory { .. }) => break Ok(()),
                Err(error) => break Err(error),
            }
            room += bytes;
        };
        made.into_iter().for_each(|buffer| host.free(buffer));
        ended.map(|()| room)
    }
}

/// Opens the adapters of this machine.
#[cfg(all(feature = "native", not(target_family = "wasm")))]
impl Default for Gpus {
    fn default() -> Self {
        Self::new(|index| Ok(SharedHost::new(crate::NativeHost::open(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferId, Dispatch, GpuKind, GpuStats, Host, HostInfo, PipelineId, Shader};
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// A host that has memory and computes nothing.
    struct Memory {
        info: HostInfo,
        left: Arc<AtomicU64>,
        sizes: Vec<u64>,
        is_lost: Arc<AtomicBool>,
    }

    impl Host for Memory {
        fn info(&self) -> &HostInfo {
            &self.info
        }

        fn stats(&self) -> GpuStats {
            GpuStats::default()
        }

        fn buffer(&mut self, bytes: u64) -> Result<BufferId, Error> {
            assert!(bytes <= self.info.buffer_bytes);
            if bytes > self.left.load(Ordering::Relaxed) {
                return Err(Error::OutOfMemory { bytes });
            }
            self.left.fetch_sub(bytes, Ordering::Relaxed);
            self.sizes.push(bytes);
            Ok(BufferId(self.sizes.len() as u32 - 1))
        }

        fn free(&mut self, buffer: BufferId) {
            let bytes = self.sizes[buffer.0 as usize];
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }

        fn write(&mut self, _: BufferId, _: u64, _: &[u8]) -> Result<(), Error> {
            unreachable!("nothing is written")
        }

        fn pipelines(&mut self, _: &[Shader]) -> Result<Vec<PipelineId>, Error> {
            unreachable!("nothing is compiled")
        }

        fn submit(&mut self, _: &[Dispatch]) -> Result<(), Error> {
            match self.is_lost.load(Ordering::Relaxed) {
                true => Err(Error::DeviceLost("unplugged".to_owned())),
                false => Ok(()),
            }
        }

        fn destroy(&mut self) {}

        fn read_ranges(
            &mut self,
            _: BufferId,
            _: &[Range<u64>],
            _: &mut [u8],
        ) -> Result<(), Error> {
            unreachable!("nothing is read")
        }
    }

    fn memory(left: u64, is_lost: &Arc<AtomicBool>) -> (SharedHost, Arc<AtomicU64>) {
        let left = Arc::new(AtomicU64::new(left));
        let host = Memory {
            info: HostInfo {
                name: "memory".to_owned(),
                interface: "none",
                driver: String::new(),
                kind: GpuKind::Discrete,
                buffer_bytes: 100,
                subgroup: [1, 1],
            },
            left: Arc::clone(&left),
            sizes: Vec::new(),
            is_lost: Arc::clone(is_lost),
        };
        (SharedHost::new(host), left)
    }

    #[test]
    fn the_room_is_what_the_driver_grants_and_nothing_stays_taken() {
        let (host, left) = memory(1000, &Arc::default());
        let budget = Budget::unlimited();
        let gpu = OpenGpu { host, budget };
        assert_eq!(gpu.room(730).unwrap(), 730);
        assert_eq!(gpu.room(0).unwrap(), 0);
        assert_eq!(gpu.room(1000).unwrap(), 1000);
        assert_eq!(gpu.room(u64::MAX).unwrap(), 1000);
        assert_eq!(left.load(Ordering::Relaxed), 1000);
    }

    #[test]
    fn a_gpu_is_opened_once_and_again_after_it_was_lost() {
        let is_lost = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&is_lost);
        let n_opened = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&n_opened);
        let gpus = Gpus::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(memory(0, &state).0)
        });
        let n_after = |index| {
            gpus.open(index, 10).unwrap();
            n_opened.load(Ordering::Relaxed)
        };
        assert_eq!(
            [n_after(0), n_after(0), n_after(1), n_after(0)],
            [1, 1, 2, 2]
        );
        let first = gpus.open(0, 10).unwrap();
        let _held = first.budget.reserve("gpu weights", 10).unwrap();
        assert!(gpus.open(0, 10).unwrap().budget.reserve("more", 1).is_err());
        is_lost.store(true, Ordering::Relaxed);
        assert_eq!(n_after(0), 3);
        assert_eq!(gpus.open(0, 10).unwrap().budget.used(), 0);
    }
}

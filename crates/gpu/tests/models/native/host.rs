//! What a host is asked for: how often, within which limits, and what follows if it fails.

use super::{append, cpu, gpu, gpu_by, logits, same, size};
use crate::support::{stories, tokens};
use atta_gpu::{
    BufferId, Dispatch, Error, GpuStats, Host, HostInfo, NativeHost, PipelineId, Shader, SharedHost,
};
use atta_model::{Batch, KvType, Output, Want};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// A host behind another one: with small buffers, and with a call that fails.
pub(super) struct Narrow {
    host: SharedHost,
    info: HostInfo,
    /// Calls until the one that fails; below 0: none.
    n_calls_left: Arc<AtomicI64>,
}

impl Narrow {
    pub(super) fn before(host: &SharedHost, buffer_bytes: u64) -> (SharedHost, Arc<AtomicI64>) {
        let n_calls_left = Arc::new(AtomicI64::new(-1));
        let info = HostInfo {
            buffer_bytes: buffer_bytes.min(host.info().buffer_bytes),
            ..host.info()
        };
        let narrow = Self {
            host: host.clone(),
            info,
            n_calls_left: Arc::clone(&n_calls_left),
        };
        (SharedHost::new(narrow), n_calls_left)
    }

    fn count(&self) -> Result<(), Error> {
        match self.n_calls_left.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::DeviceLost("this call fails".to_owned())),
            _ => Ok(()),
        }
    }
}

impl Host for Narrow {
    fn info(&self) -> &HostInfo {
        &self.info
    }

    fn stats(&self) -> GpuStats {
        self.host.stats()
    }

    fn buffer(&mut self, bytes: u64) -> Result<BufferId, Error> {
        let most = self.info.buffer_bytes;
        if bytes > most {
            return Err(Error::BufferSize { bytes, most });
        }
        self.count()?;
        self.host.lock().buffer(bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        self.host.lock().free(buffer);
    }

    fn write(&mut self, buffer: BufferId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.count()?;
        self.host.lock().write(buffer, at, bytes)
    }

    fn pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<PipelineId>, Error> {
        self.count()?;
        self.host.lock().pipelines(shaders)
    }

    fn destroy(&mut self) {
        self.host.lock().destroy();
    }

    fn submit(&mut self, dispatches: &[Dispatch]) -> Result<(), Error> {
        self.count()?;
        self.host.lock().submit(dispatches)
    }

    fn read_ranges(
        &mut self,
        buffer: BufferId,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.count()?;
        self.host.lock().read_ranges(buffer, ranges, out)
    }
}

pub(super) fn small_buffers(host: &SharedHost) {
    let model = stories();
    let size = atta_model::ExecutorSize {
        n_ctx: 300,
        n_batch: 256,
        n_seqs: 1,
        ..size(KvType::F16)
    };
    let ids = tokens(&model, 290);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 256);
    let (narrow, _) = Narrow::before(host, 4 << 20);
    let mut both = gpu(&narrow, &model, model.spec().layers.len(), &size);
    let got = logits(both.as_mut(), &ids, 256);
    same("buffers of 4 MiB", &got, &expected);
}

pub(super) fn counters(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let n_layers = model.spec().layers.len();
    let mut both = gpu(host, &model, n_layers, &size);
    let seq = both.new_seq().unwrap();
    let mut batch = Batch::default();
    let mut out = Output::default();
    // A prompt is one batch, and a decode step another one.
    for ids in [&tokens(&model, 90)[..], &[7]] {
        batch.clear();
        let pos = both.seqs().len(seq).unwrap();
        let last = pos + ids.len() - 1;
        for (&id, pos) in ids.iter().zip(pos..) {
            let want = if pos == last {
                Want::Logits
            } else {
                Want::Nothing
            };
            batch.push_token(seq, pos, id, want);
        }
        let before = host.stats();
        both.step(&batch, &mut out).unwrap();
        let after = host.stats();
        assert_eq!(after.submits - before.submits, 1);
        assert_eq!(after.waits - before.waits, 1);
        assert_eq!(after.pipelines, before.pipelines);
    }
    let before = host.stats().pipelines;
    let mut second = gpu(host, &model, n_layers, &size);
    logits(second.as_mut(), &[1, 2], 2);
    assert_eq!(host.stats().pipelines, before);
}

/// Every call of a step fails once with the loss of the device, in a prompt and in a text, with
/// one sequence and with a fork: the text is the same.
pub(super) fn losses(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 20);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 20);
    let (narrow, n_calls_left) = Narrow::before(host, u64::MAX);
    let mut n_losses = 0;
    for n_calls in 0.. {
        let mut both = gpu(&narrow, &model, 1, &size);
        let seq = both.new_seq().unwrap();
        n_calls_left.store(n_calls, Ordering::Relaxed);
        let mut got = append(both.as_mut(), seq, &ids[..9], 5);
        let fork = both.fork(seq).unwrap();
        both.truncate(seq, 4).unwrap();
        got.extend(append(both.as_mut(), fork, &ids[9..], 5));
        let again = append(both.as_mut(), seq, &ids[4..9], 2);
        let is_over = n_calls_left.swap(-1, Ordering::Relaxed) >= 0;
        same(&format!("loss at call {n_calls}"), &got, &expected);
        let n = model.spec().n_vocab;
        same("a fork", &again, &expected[4 * n..9 * n]);
        if is_over {
            break;
        }
        n_losses += 1;
    }
    assert!(n_losses >= 12, "{n_losses}");
}

/// A device that is destroyed in the middle of a text, by another host of the same adapter.
pub(super) fn destruction(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 12);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 12);
    let adapters = NativeHost::adapters();
    let index = adapters
        .iter()
        .position(|info| *info == host.info())
        .unwrap();
    let device = SharedHost::new(NativeHost::open(index).unwrap());
    let first = Mutex::new(Some(device.clone()));
    let host = host.clone();
    let open = move || Ok(first.lock().unwrap().take().unwrap_or_else(|| host.clone()));
    let mut both = gpu_by(Box::new(open), &model, 1, &size);
    let seq = both.new_seq().unwrap();
    let mut got = append(both.as_mut(), seq, &ids[..7], 7);
    device.lock().destroy();
    got.extend(append(both.as_mut(), seq, &ids[7..], 3));
    same("behind a destroyed device", &got, &expected);
}

//! What a host is asked for: how often, within which limits, and what follows if it fails.

use super::{append, cpu, gpu, logits, same, size};
use crate::support::{bits, stories, tokens};
use atta_gpu::{
    BufferId, Dispatch, Error, GpuStats, Host, HostInfo, PipelineId, Shader, SharedHost,
};
use atta_model::{Batch, KvType, Output, Want};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A host behind another one: with small buffers, and with a call that fails.
struct Narrow {
    host: SharedHost,
    info: HostInfo,
    /// Calls until the one that fails; below 0: none.
    n_calls_left: Arc<AtomicI64>,
}

impl Narrow {
    fn new(host: &SharedHost, buffer_bytes: u64) -> (SharedHost, Arc<AtomicI64>) {
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

    fn pipeline(&mut self, shader: &Shader) -> Result<PipelineId, Error> {
        self.count()?;
        self.host.lock().pipeline(shader)
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
        n_ctx: 32,
        n_batch: 8,
        n_seqs: 1,
        ..size(KvType::F16)
    };
    let ids = tokens(&model, 8);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 8);
    let (narrow, _) = Narrow::new(host, 1 << 20);
    let mut both = gpu(&narrow, &model, model.spec().layers.len(), &size);
    same(
        "buffers of 1 MiB",
        &logits(both.as_mut(), &ids, 8),
        &expected,
    );
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

pub(super) fn failures(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 12);
    let mut whole = cpu(&model, &size);
    let expected = logits(whole.as_mut(), &ids, 12);
    let (narrow, n_calls_left) = Narrow::new(host, u64::MAX);
    let mut both = gpu(&narrow, &model, model.spec().layers.len(), &size);
    let seq = both.new_seq().unwrap();
    let mut got = append(both.as_mut(), seq, &ids[..5], 5);
    let mut batch = Batch::default();
    let mut out = Output::default();
    batch.push_token(seq, 5, ids[5], Want::Logits);
    let mut n_failures = 0;
    for n_calls in 0.. {
        n_calls_left.store(n_calls, Ordering::Relaxed);
        let done = both.step(&batch, &mut out);
        let is_over = n_calls_left.swap(-1, Ordering::Relaxed) >= 0;
        if is_over {
            done.unwrap();
            break;
        }
        assert!(done.is_err());
        assert_eq!(both.seqs().len(seq).unwrap(), 5);
        n_failures += 1;
    }
    assert!(
        n_failures >= 4,
        "{n_failures}: tables, residual, kernels, results"
    );
    got.extend(bits(out.logits(0)));
    got.extend(append(both.as_mut(), seq, &ids[6..], 3));
    same("behind failures", &got, &expected);
}

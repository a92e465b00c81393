//! What a host is asked for: how often, within which limits, and what follows if it fails.

use super::{append, backend, cpu, gpu, gpu_by, logits, opened, same, size};
use crate::support::quantized::Blocks;
use crate::support::{golden, stories, tokens};
use atta_gpu::{
    BufferId, Dispatch, Error, GpuPlan, GpuStats, GpuWish, Gpus, Host, HostInfo, NativeHost,
    PipelineId, Shader, SharedHost, Trial,
};
use atta_model::{Backend, Batch, Footprint, KvType, Model, Output, Want};
use atta_store::Budget;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A host behind another one: with small buffers, and with a call that fails.
pub(super) struct Narrow {
    host: SharedHost,
    info: HostInfo,
    faults: Arc<Faults>,
}

/// The call of a host that fails.
pub(super) struct Faults {
    /// Calls before it; below 0: none fails.
    pub(super) n_calls_left: AtomicI64,
    /// Whether all calls behind it fail, too.
    lasts: AtomicBool,
}

impl Narrow {
    pub(super) fn before(host: &SharedHost, buffer_bytes: u64) -> (SharedHost, Arc<Faults>) {
        let faults = Arc::new(Faults {
            n_calls_left: AtomicI64::new(-1),
            lasts: AtomicBool::new(false),
        });
        let info = HostInfo {
            buffer_bytes: buffer_bytes.min(host.info().buffer_bytes),
            ..host.info()
        };
        let narrow = Self {
            host: host.clone(),
            info,
            faults: Arc::clone(&faults),
        };
        (SharedHost::new(narrow), faults)
    }

    fn count(&self) -> Result<(), Error> {
        let n_left = self.faults.n_calls_left.fetch_sub(1, Ordering::Relaxed);
        match n_left == 0 || (n_left < 0 && self.faults.lasts.load(Ordering::Relaxed)) {
            true => Err(Error::DeviceLost("this call fails".to_owned())),
            false => Ok(()),
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

    fn record_ahead(&mut self, dispatches: &[Dispatch]) {
        self.host.lock().record_ahead(dispatches);
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
    for name in ["deepseek2", "minicpm3"] {
        narrowest(host, name);
    }
}

/// The smallest buffers that a model with matrices of heads can have: these lie in several, and few
/// heads are multiplied at a time.
fn narrowest(host: &SharedHost, name: &str) {
    let model = golden(name).model();
    let size = size(KvType::F16);
    let n_layers = model.spec().layers.len();
    let ids = tokens(&model, 90);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 96);
    let opened = (1..100).find_map(|n| {
        let bytes = n * (8 << 10);
        let (narrow, _) = Narrow::before(host, bytes);
        let open = Box::new(move || Ok(opened(&narrow)));
        let backend = backend(open, &model, n_layers, &size, |loss| panic!("{loss}"));
        let opened = backend.open(Arc::clone(&model), &size, &Budget::unlimited());
        Some((bytes, opened.ok()?))
    });
    let (bytes, mut both) = opened.unwrap();
    let got = logits(both.as_mut(), &ids, 96);
    same(
        &format!("{name}, buffers of {bytes} bytes"),
        &got,
        &expected,
    );
}

/// Bytes of a matrix of the experts of a layer.
fn expert_bytes(model: &Model) -> u64 {
    let directory = model.weights().files().directory();
    let experts = directory.tensor("blk.0.ffn_down_exps.weight");
    experts.unwrap().n_bytes
}

pub(super) fn divided_experts(host: &SharedHost) {
    for (name, blocks) in [
        ("mixtral", Blocks::Of256),
        ("gpt-oss", Blocks::Common),
        ("granitemoe", Blocks::Common),
    ] {
        let model = golden(name).quantized(blocks);
        let size = atta_model::ExecutorSize {
            n_ctx: 32,
            n_batch: 8,
            n_seqs: 1,
            ..size(KvType::F16)
        };
        let buffer_bytes = expert_bytes(&model) / 3 * 2;
        let ids = tokens(&model, 30);
        let expected = logits(cpu(&model, &size).as_mut(), &ids, 8);
        let (narrow, _) = Narrow::before(host, buffer_bytes);
        let mut both = gpu(&narrow, &model, model.spec().layers.len(), &size);
        let got = logits(both.as_mut(), &ids, 8);
        same(
            &format!("{name}, buffers of {buffer_bytes}"),
            &got,
            &expected,
        );
    }
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

/// Decoded tokens are recorded ahead, but for the first one and those that begin a block.
pub(super) fn ahead(host: &SharedHost) {
    let model = stories();
    let mut both = gpu(host, &model, 2, &size(KvType::F16));
    let seq = both.new_seq().unwrap();
    append(both.as_mut(), seq, &tokens(&model, 90), 96);
    let before = host.stats();
    append(both.as_mut(), seq, &tokens(&model, 8), 1);
    let after = host.stats();
    assert_eq!(after.submits - before.submits, 8);
    assert_eq!(after.ahead - before.ahead, 6);
}

/// The models of a process share a device, its kernels and its memory.
pub(super) fn sharing(host: &SharedHost) {
    let n_opened = Arc::new(AtomicUsize::new(0));
    let shared = host.clone();
    let counter = Arc::clone(&n_opened);
    let gpus = Arc::new(Gpus::new(move |index| {
        assert_eq!(index, 3);
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(shared.clone())
    }));
    let engine = |model: &Arc<Model>| {
        let gpus = Arc::clone(&gpus);
        let open = move || gpus.open(3, 1 << 30);
        backend(Box::new(open), model, 1, &size(KvType::F16), |_| {
            panic!("it is not lost")
        })
    };
    let model = stories();
    let backends = [engine(&model), engine(&model)];
    let mut n_pipelines = Vec::new();
    let executors = backends.each_ref().map(|backend| {
        let model = Arc::clone(&model);
        let mut opened = backend
            .open(model, &size(KvType::F16), &Budget::unlimited())
            .unwrap();
        logits(opened.as_mut(), &[1, 2], 2);
        n_pipelines.push(host.stats().pipelines);
        opened
    });
    assert_eq!(n_pipelines[0], n_pipelines[1]);
    assert_eq!(n_opened.load(Ordering::Relaxed), 1);
    let used = gpus.open(3, 1 << 30).unwrap().budget.used();
    let of_each = backends.each_ref().map(|backend| {
        let items = backend.items_elsewhere();
        items.iter().map(|item| item.bytes).sum::<u64>()
    });
    assert_eq!(used, of_each[0] + of_each[1]);
    assert!(of_each[0] > 0 && of_each[0] == of_each[1]);
    let planned = backends[0].planned_elsewhere(model.spec(), &size(KvType::F16));
    let planned: u64 = planned.iter().map(|item| item.bytes).sum();
    assert!(planned >= of_each[0], "{planned}");
    drop((executors, backends));
    assert_eq!(gpus.open(3, 1 << 30).unwrap().budget.used(), 0);
}

/// A GPU and the CPU compute some layers: with the same bits, in some time.
pub(super) fn trials(host: &SharedHost) {
    for name in ["llama-plain", "gemma3"] {
        let model = golden(name).model();
        let files = model.weights().files();
        let size = size(KvType::F16);
        let wish = GpuWish::default();
        let plan = GpuPlan::of(model.spec(), files.directory(), &wish, &size).unwrap();
        let trial = Trial {
            gpu: &opened(host),
            spec: model.spec(),
            files,
            plan: &plan,
            size: &size,
            kernels: super::plain(),
            pool: super::pool(),
        };
        let result = trial.run().unwrap();
        println!("{name}: {result:?}");
        assert!(result.is_exact, "{name}");
        assert!((1..=2).contains(&result.n_layers), "{name}");
        assert!(result.cpu.text_s() > 0.0 && result.gpu.text_s() > 0.0);
    }
}

/// Every call of a step fails once with the loss of the device, in a prompt and in a text, with
/// one sequence and with a fork: the text is the same.
pub(super) fn losses(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 20);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 20);
    let (narrow, faults) = Narrow::before(host, u64::MAX);
    let n_calls_left = &faults.n_calls_left;
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
    let open = move || {
        let first = first.lock().unwrap().take();
        Ok(opened(&first.unwrap_or_else(|| host.clone())))
    };
    let mut both = gpu_by(Box::new(open), &model, 1, &size);
    let seq = both.new_seq().unwrap();
    let mut got = append(both.as_mut(), seq, &ids[..7], 7);
    device.lock().destroy();
    got.extend(append(both.as_mut(), seq, &ids[7..], 3));
    same("behind a destroyed device", &got, &expected);
}

/// A device that is lost for good at any call leaves the text to the CPU, which goes on with the
/// same bits and says so once.
pub(super) fn fallback(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 20);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 20);
    let (narrow, faults) = Narrow::before(host, u64::MAX);
    for n_calls in [0, 1, 2, 3, 5, 9, 14] {
        let n_told = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&n_told);
        let narrow = narrow.clone();
        let open = Box::new(move || Ok(opened(&narrow)));
        let backend = backend(open, &model, 1, &size, move |loss| {
            assert!(loss.to_string().contains("this call fails"), "{loss}");
            told.fetch_add(1, Ordering::Relaxed);
        });
        let both = backend.open(Arc::clone(&model), &size, &Budget::unlimited());
        let mut both = both.unwrap();
        let seq = both.new_seq().unwrap();
        faults.n_calls_left.store(n_calls, Ordering::Relaxed);
        faults.lasts.store(true, Ordering::Relaxed);
        let mut got = append(both.as_mut(), seq, &ids[..9], 5);
        let fork = both.fork(seq).unwrap();
        got.extend(append(both.as_mut(), fork, &ids[9..], 3));
        faults.lasts.store(false, Ordering::Relaxed);
        faults.n_calls_left.store(-1, Ordering::Relaxed);
        same(&format!("lost for good at call {n_calls}"), &got, &expected);
        assert_eq!(n_told.load(Ordering::Relaxed), 1);
        assert_eq!(backend.items_elsewhere(), Vec::new());
    }
}

/// A device that works again is used until it is lost a second time.
pub(super) fn second_loss(host: &SharedHost) {
    let model = stories();
    let size = size(KvType::F16);
    let ids = tokens(&model, 12);
    let expected = logits(cpu(&model, &size).as_mut(), &ids, 12);
    let (narrow, faults) = Narrow::before(host, u64::MAX);
    let n_told = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&n_told);
    let open = Box::new(move || Ok(opened(&narrow)));
    let backend = backend(open, &model, 1, &size, move |_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let both = backend.open(Arc::clone(&model), &size, &Budget::unlimited());
    let mut both = both.unwrap();
    let seq = both.new_seq().unwrap();
    let mut got = Vec::new();
    for (i, ids) in ids.chunks(4).enumerate() {
        faults.n_calls_left.store(2, Ordering::Relaxed);
        got.extend(append(both.as_mut(), seq, ids, 4));
        let n_told = n_told.load(Ordering::Relaxed);
        assert_eq!(n_told, usize::from(i > 0), "loss {i}");
    }
    same("behind two losses", &got, &expected);
}

//! The native host: wgpu over Vulkan, Metal and DirectX 12. The one file that names wgpu.
//!
//! It asks for no optional feature of a device, so that every GPU which these interfaces reach
//! will do. Errors of the driver come at odd times: those of one call are taken by error scopes,
//! all others are the loss of the device, which every later call returns.

use super::{
    Bindings, BufferId, Dispatch, GpuKind, GpuStats, Host, HostInfo, PipelineId, check_ranges,
    check_words,
};
use crate::{Error, Shader};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a submission may take; a device that needs longer is lost. Drivers give up after two
/// seconds; software GPUs are slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a slot of parameters: the largest alignment of a binding that a device may want.
const SLOT: usize = 256;
/// Slots of a command buffer; more dispatches take several.
const SLOTS: usize = 2048;
/// Bytes that are written at once: what the driver holds besides, until they are on the device.
const UPLOAD: usize = 16 << 20;

/// Why the device is lost.
type Loss = Arc<Mutex<Option<String>>>;

/// A GPU by wgpu.
pub struct NativeHost {
    info: HostInfo,
    stats: GpuStats,
    device: wgpu::Device,
    queue: wgpu::Queue,
    layout: Layout,
    buffers: Vec<Option<wgpu::Buffer>>,
    groups: HashMap<Bindings, wgpu::BindGroup>,
    pipelines: Vec<wgpu::ComputePipeline>,
    by_shader: HashMap<Shader, PipelineId>,
    /// The buffer that reads map; it grows.
    readback: Option<wgpu::Buffer>,
    /// The parameters of a command buffer.
    slots: Vec<u8>,
    /// Recorded for the next submission.
    ahead: Option<Ahead>,
    /// Bytes that were written behind the last submission, and lie in the driver's memory besides.
    n_staged: usize,
    loss: Loss,
}

/// A command buffer, and what it runs. Its parameters are written when it is submitted.
struct Ahead {
    dispatches: Vec<Dispatch>,
    commands: wgpu::CommandBuffer,
}

/// The objects that all pipelines share.
struct Layout {
    memory: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
    params: wgpu::Buffer,
    params_group: wgpu::BindGroup,
}

impl std::fmt::Debug for NativeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativeHost")
            .field("info", &self.info)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

fn instance() -> wgpu::Instance {
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

fn all_adapters() -> Vec<wgpu::Adapter> {
    ready(instance().enumerate_adapters(wgpu::Backends::all()))
}

/// The result of a future that native wgpu has ready, or has after a few polls.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

fn info_of(adapter: &wgpu::Adapter) -> HostInfo {
    let info = adapter.get_info();
    let limits = adapter.limits();
    HostInfo {
        interface: match info.backend {
            wgpu::Backend::Vulkan => "Vulkan",
            wgpu::Backend::Metal => "Metal",
            wgpu::Backend::Dx12 => "DirectX 12",
            _ => "unknown interface",
        },
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => GpuKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => GpuKind::Integrated,
            wgpu::DeviceType::VirtualGpu => GpuKind::Virtual,
            wgpu::DeviceType::Cpu => GpuKind::Software,
            wgpu::DeviceType::Other => GpuKind::Unknown,
        },
        buffer_bytes: limits
            .max_buffer_size
            .min(limits.max_storage_buffer_binding_size),
        subgroup: [info.subgroup_min_size, info.subgroup_max_size],
        name: info.name,
    }
}

impl NativeHost {
    /// The adapters of this machine, in the order of their drivers.
    pub fn adapters() -> Vec<HostInfo> {
        all_adapters().iter().map(info_of).collect()
    }

    /// Opens an adapter by its place in [`adapters`](Self::adapters).
    ///
    /// # Errors
    /// [`Error::Open`] if there is none, or its driver refuses.
    pub fn open(index: usize) -> Result<Self, Error> {
        let adapter = all_adapters().into_iter().nth(index);
        let adapter = adapter.ok_or_else(|| Error::Open {
            name: format!("GPU {index}"),
            reason: "there is no such adapter".to_owned(),
        })?;
        let info = info_of(&adapter);
        let wanted = wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            ..wgpu::DeviceDescriptor::default()
        };
        let (device, queue) =
            ready(adapter.request_device(&wanted)).map_err(|reason| Error::Open {
                name: info.name.clone(),
                reason: reason.to_string(),
            })?;
        Ok(Self::of_device(info, device, queue))
    }

    fn of_device(info: HostInfo, device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let loss = Loss::default();
        let uncaptured = Arc::clone(&loss);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            note(&uncaptured, error.to_string());
        }));
        let lost = Arc::clone(&loss);
        device.set_device_lost_callback(move |reason, words| {
            note(&lost, format!("{reason:?} {words}"));
        });
        Self {
            info,
            stats: GpuStats::default(),
            layout: Layout::new(&device),
            device,
            queue,
            buffers: Vec::new(),
            groups: HashMap::new(),
            pipelines: Vec::new(),
            by_shader: HashMap::new(),
            readback: None,
            slots: Vec::new(),
            ahead: None,
            n_staged: 0,
            loss,
        }
    }

    fn check(&self) -> Result<(), Error> {
        match &*locked(&self.loss) {
            Some(reason) => Err(Error::DeviceLost(reason.clone())),
            None => Ok(()),
        }
    }

    /// What `f` makes, or the error that the driver has for it.
    fn scoped<T>(&self, f: impl FnOnce(&wgpu::Device) -> T) -> Result<T, wgpu::Error> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = f(&self.device);
        let errors = [validation, internal, memory].map(|scope| ready(scope.pop()));
        match errors.into_iter().flatten().next() {
            Some(error) => Err(error),
            None => Ok(made),
        }
    }

    /// Compiles kernels with a thread for each processor: drivers take seconds for one.
    fn compile_all(&self, shaders: &[&Shader]) -> Vec<Result<wgpu::ComputePipeline, Error>> {
        let n_threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let of_thread = shaders.len().div_ceil(n_threads).max(1);
        let compile = |some: &[&Shader]| -> Vec<_> {
            some.iter().map(|shader| self.compile(shader)).collect()
        };
        std::thread::scope(|scope| {
            let parts = shaders.chunks(of_thread);
            let threads: Vec<_> = parts
                .map(|some| scope.spawn(move || compile(some)))
                .collect();
            let made = threads.into_iter().map(|thread| thread.join());
            made.flat_map(|made| made.expect("compiling does not panic"))
                .collect()
        })
    }

    fn compile(&self, shader: &Shader) -> Result<wgpu::ComputePipeline, Error> {
        let made = self.scoped(|device| {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(&shader.name),
                source: wgpu::ShaderSource::Wgsl(shader.text.as_str().into()),
            });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&shader.name),
                layout: Some(&self.layout.pipeline),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // Kernels write what they read.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            })
        });
        made.map_err(|error| Error::Refused {
            shader: shader.name.clone(),
            reason: error.to_string(),
        })
    }

    fn get(&self, buffer: BufferId) -> &wgpu::Buffer {
        let buffer = self.buffers.get(buffer.0 as usize).and_then(Option::as_ref);
        buffer.expect("a buffer is not used after it was freed")
    }

    /// The buffer, if `len` bytes from `at` on are words of it.
    fn words(&self, buffer: BufferId, at: u64, len: usize) -> Result<&wgpu::Buffer, Error> {
        let found = self.get(buffer);
        check_words(found.size(), at, len as u64)?;
        Ok(found)
    }

    fn make_group(&mut self, bindings: Bindings) {
        if self.groups.contains_key(&bindings) {
            return;
        }
        let Bindings {
            weights,
            kv,
            tables,
            acts,
            values,
        } = bindings;
        let buffers = [weights, kv, tables, acts, values].map(|buffer| self.get(buffer));
        let entry = |i: usize| wgpu::BindGroupEntry {
            binding: i as u32,
            resource: buffers[i].as_entire_binding(),
        };
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.layout.memory,
            entries: &std::array::from_fn::<_, 5, _>(entry),
        });
        self.groups.insert(bindings, group);
    }

    /// Writes the parameters of a command buffer.
    fn write_slots(&mut self, dispatches: &[Dispatch]) {
        self.slots.clear();
        for dispatch in dispatches {
            let words = dispatch.params.iter().flat_map(|word| word.to_le_bytes());
            self.slots.extend(words);
            self.slots
                .resize(self.slots.len().next_multiple_of(SLOT), 0);
        }
        self.queue.write_buffer(&self.layout.params, 0, &self.slots);
        self.stats.bytes_up += self.slots.len() as u64;
    }

    /// A command buffer, which has the parameters of the slots when it runs.
    fn record(&self, dispatches: &[Dispatch]) -> wgpu::CommandBuffer {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut bound = None;
        for (i, dispatch) in dispatches.iter().enumerate() {
            pass.set_pipeline(&self.pipelines[dispatch.pipeline.0 as usize]);
            if bound != Some(dispatch.bindings) {
                pass.set_bind_group(0, &self.groups[&dispatch.bindings], &[]);
                bound = Some(dispatch.bindings);
            }
            pass.set_bind_group(1, &self.layout.params_group, &[(i * SLOT) as u32]);
            let [x, y, z] = dispatch.grid;
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        encoder.finish()
    }

    /// One command buffer: the one that was recorded ahead if it is that of these kernels.
    fn submit_some(&mut self, dispatches: &[Dispatch]) {
        self.write_slots(dispatches);
        let ahead = self.ahead.take_if(|ahead| ahead.dispatches == dispatches);
        self.stats.ahead += u64::from(ahead.is_some());
        let commands = match ahead {
            Some(ahead) => ahead.commands,
            None => self.record(dispatches),
        };
        self.queue.submit([commands]);
        self.n_staged = 0;
        self.stats.submits += 1;
        self.stats.dispatches += dispatches.len() as u64;
    }

    /// A buffer for reading at least so many bytes.
    fn readback(&mut self, bytes: u64) -> wgpu::Buffer {
        match &self.readback {
            Some(buffer) if buffer.size() >= bytes => buffer.clone(),
            _ => {
                let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: bytes,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                });
                self.readback = Some(buffer.clone());
                buffer
            }
        }
    }

    /// Waits for a submission.
    fn wait(&mut self, submission: wgpu::SubmissionIndex) -> Result<(), Error> {
        self.stats.waits += 1;
        let wait = wgpu::PollType::Wait {
            submission_index: Some(submission),
            timeout: Some(PATIENCE),
        };
        if let Err(error) = self.device.poll(wait) {
            note(&self.loss, error.to_string());
        }
        self.check()
    }
}

impl Host for NativeHost {
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
        let wanted = wgpu::BufferDescriptor {
            label: None,
            size: bytes.next_multiple_of(4).max(4),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        };
        let made = self.scoped(|device| device.create_buffer(&wanted));
        self.check()?;
        let made = made.map_err(|_| Error::OutOfMemory { bytes })?;
        self.buffers.push(Some(made));
        Ok(BufferId(self.buffers.len() as u32 - 1))
    }

    fn free(&mut self, buffer: BufferId) {
        // A recorded command buffer would keep the buffer's memory.
        self.ahead = None;
        self.groups.retain(|bindings, _| !bindings.has(buffer));
        self.buffers[buffer.0 as usize] = None;
    }

    fn write(&mut self, buffer: BufferId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check()?;
        let target = self.words(buffer, at, bytes.len())?;
        let target = target.clone();
        for (part, i) in bytes.chunks(UPLOAD).zip(0..) {
            let at = at + i * UPLOAD as u64;
            self.queue.write_buffer(&target, at, part);
            self.n_staged += part.len();
            if self.n_staged >= UPLOAD {
                self.n_staged = 0;
                let submission = self.queue.submit([]);
                self.wait(submission)?;
            }
        }
        self.stats.bytes_up += bytes.len() as u64;
        self.check()
    }

    fn pipelines(&mut self, shaders: &[Shader]) -> Result<Vec<PipelineId>, Error> {
        self.check()?;
        let mut new: Vec<&Shader> = Vec::new();
        for shader in shaders {
            if !self.by_shader.contains_key(shader) && !new.contains(&shader) {
                new.push(shader);
            }
        }
        let made = self.compile_all(&new);
        self.check()?;
        for (shader, made) in new.into_iter().zip(made) {
            let id = PipelineId(self.pipelines.len() as u32);
            self.pipelines.push(made?);
            self.by_shader.insert(shader.clone(), id);
            self.stats.pipelines += 1;
        }
        Ok(shaders
            .iter()
            .map(|shader| self.by_shader[shader])
            .collect())
    }

    fn destroy(&mut self) {
        self.device.destroy();
        note(&self.loss, "destroyed".to_owned());
    }

    fn submit(&mut self, dispatches: &[Dispatch]) -> Result<(), Error> {
        self.check()?;
        for dispatch in dispatches {
            self.make_group(dispatch.bindings);
        }
        for some in dispatches.chunks(SLOTS) {
            self.submit_some(some);
        }
        self.check()
    }

    fn record_ahead(&mut self, dispatches: &[Dispatch]) {
        let is_one = !dispatches.is_empty() && dispatches.len() <= SLOTS;
        if !is_one || self.check().is_err() {
            return;
        }
        for dispatch in dispatches {
            self.make_group(dispatch.bindings);
        }
        self.ahead = Some(Ahead {
            dispatches: dispatches.to_vec(),
            commands: self.record(dispatches),
        });
    }

    fn read_ranges(
        &mut self,
        buffer: BufferId,
        ranges: &[Range<u64>],
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.check()?;
        check_ranges(self.get(buffer).size(), ranges, out.len())?;
        let bytes = out.len() as u64;
        if bytes == 0 {
            return Ok(());
        }
        let source = self.get(buffer).clone();
        let readback = self.readback(bytes);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut to = 0;
        for range in ranges {
            let len = range.end - range.start;
            encoder.copy_buffer_to_buffer(&source, range.start, &readback, to, len);
            to += len;
        }
        let submission = self.queue.submit([encoder.finish()]);
        let loss = Arc::clone(&self.loss);
        readback.map_async(wgpu::MapMode::Read, 0..bytes, move |mapped| {
            if let Err(error) = mapped {
                note(&loss, error.to_string());
            }
        });
        self.wait(submission)?;
        let mapped = readback.get_mapped_range(0..bytes);
        let mapped = mapped.map_err(|error| Error::DeviceLost(error.to_string()))?;
        out.copy_from_slice(&mapped);
        drop(mapped);
        readback.unmap();
        self.stats.bytes_down += bytes;
        Ok(())
    }
}

impl Layout {
    fn new(device: &wgpu::Device) -> Self {
        let memory = memory_layout(device);
        let params_layout = params_layout(device);
        let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&memory), Some(&params_layout)],
            immediate_size: 0,
        });
        let params = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: (SLOTS * SLOT) as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let params_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &params_layout,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &params,
                    offset: 0,
                    size: PARAM_BYTES,
                }),
            }],
        });
        Self {
            memory,
            pipeline,
            params,
            params_group,
        }
    }
}

/// Bytes of the parameters of a dispatch.
const PARAM_BYTES: Option<wgpu::BufferSize> = wgpu::BufferSize::new(4 * super::PARAM_WORDS as u64);

/// The bindings of `shaders/memory.wgsl`.
fn memory_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let entry = |i: usize| {
        let read_only = i == 0 || i == 2;
        layout_entry(i as u32, wgpu::BufferBindingType::Storage { read_only })
    };
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &std::array::from_fn::<_, 5, _>(entry),
    })
}

fn params_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[layout_entry(0, wgpu::BufferBindingType::Uniform)],
    })
}

/// A buffer of compute shaders; a uniform one has slots.
fn layout_entry(binding: u32, ty: wgpu::BufferBindingType) -> wgpu::BindGroupLayoutEntry {
    let is_uniform = ty == wgpu::BufferBindingType::Uniform;
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: is_uniform,
            min_binding_size: if is_uniform { PARAM_BYTES } else { None },
        },
        count: None,
    }
}

fn locked(loss: &Loss) -> MutexGuard<'_, Option<String>> {
    loss.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the first reason of a loss.
fn note(loss: &Loss, reason: String) {
    locked(loss).get_or_insert(reason);
}

// WebGPU for kernels: the other side of crates/web/src/gpu.rs. Runs in the gpu worker, which never blocks, since promises
// are kept in its event loop; threads of the module wait for it on shared memory. Knows no kernel and no model.

/** Operations by their numbers, as methods of `Gpu`. */
const OPERATIONS = ['open', 'close', 'buffer', 'free', 'write', 'pipelines', 'submit', 'read', 'placed', 'text'];
/** Reasons of failures. */
export const LOST = -1;
const OUT_OF_MEMORY = -2;
const REFUSED = -3;

/** Words of a dispatch: kernel, five buffers, grid, parameters. */
const RECORD = 25;
const PARAMS_AT = 9;
/** Bytes of a slot of parameters: the largest alignment of a binding that a device may want. */
const SLOT = 256;
const PARAM_BYTES = 64;
/** Slots of a command buffer; more dispatches take several. */
const SLOTS = 2048;
/** Bytes that are written before the device is waited for: what the browser holds besides. */
const STAGED = 16 << 20;
/** What the device may take for what it was given, in milliseconds; one that needs longer is lost. */
const PATIENCE_MS = 30_000;

/** A failure with its reason. */
class Failed extends Error {
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/**
 * The GPU that the browser offers: an adapter, or in words why there is none. A software GPU counts if
 * `allowsSoftware`.
 */
export async function findAdapter({ allowsSoftware, gpu = globalThis.navigator?.gpu }) {
  if (!gpu) return { reason: 'there is no WebGPU here' };
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' }).catch(() => null);
  if (!adapter) return { reason: 'the browser offers no GPU' };
  if (adapter.info.isFallbackAdapter && !allowsSoftware) return { reason: 'the browser offers only a software GPU' };
  return { adapter };
}

/** Devices of adapters, and the operations on them. `memory` is that of the module, which may grow. */
export class Gpu {
  #devices = new Map();
  /** Numbers of devices, buffers and kernels are never used twice. */
  #next = 1;

  constructor({ memory, find }) {
    Object.assign(this, { memory, find });
  }

  /**
   * Does an operation: its number, or a negative reason. `texts` keeps the words of a failure, or of what was opened, for
   * the same thread's next call.
   */
  async call({ operation, ...args }, texts) {
    const name = OPERATIONS[operation];
    try {
      if (name === 'text') return this.#text(args, texts);
      texts.last = '';
      if (name === 'open') return await this.#open(texts);
      const device = this.#devices.get(args.device);
      if (!device) throw new Failed(LOST, 'the device was closed');
      if (name === 'close') return this.#close(args.device, device);
      device.check();
      const number = await this[`_${name}`](device, args);
      device.check();
      return number;
    } catch (error) {
      texts.last = error.message;
      if (error instanceof Failed) return error.reason;
      this.#devices.get(args.device)?.lose(error.message);
      return LOST;
    }
  }

  /** What lies on the device that was opened last, with its counters; null if there is none, or it is lost. */
  stats() {
    const device = [...this.#devices.values()].findLast(({ isLost }) => !isLost);
    return device ? { name: device.name, ...device.placed, ...device.counts } : null;
  }

  #number() {
    return this.#next++;
  }

  #bytes(start, n) {
    return new Uint8Array(this.memory.buffer, start, n);
  }

  /** The words of an input, which are not where 64-bit words have to be. */
  #view({ input, nInput }) {
    return new DataView(this.memory.buffer, input, nInput);
  }

  #json({ input, nInput }) {
    // A decoder refuses shared memory.
    return JSON.parse(new TextDecoder().decode(this.#bytes(input, nInput).slice()));
  }

  #text({ output, nOutput }, texts) {
    const encoded = new TextEncoder().encode(texts.last).subarray(0, nOutput);
    this.#bytes(output, encoded.length).set(encoded);
    return encoded.length;
  }

  async #open(texts) {
    const { adapter, reason } = await this.find();
    if (!adapter) throw new Failed(LOST, reason);
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    const found = await adapter.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } });
    const { vendor, architecture, device: model, description, isFallbackAdapter, subgroupMinSize = 0, subgroupMaxSize = 0 } = adapter.info;
    const name = description || [vendor, architecture, model].filter(Boolean).join(' ') || 'a GPU';
    const number = this.#number();
    this.#devices.set(number, new Device(found, name));
    texts.last = JSON.stringify({
      name, driver: model, isSoftware: isFallbackAdapter, bufferBytes: Math.min(maxBufferSize, maxStorageBufferBindingSize),
      subgroupMin: subgroupMinSize, subgroupMax: subgroupMaxSize,
    });
    return number;
  }

  #close(number, device) {
    this.#devices.delete(number);
    device.lose('the device was closed');
    device.device.destroy();
    return 0;
  }

  async _buffer(device, { at: size }) {
    const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
    const made = device.scoped(['out-of-memory', 'validation'], () => device.device.createBuffer({ size, usage: STORAGE | COPY_DST | COPY_SRC }));
    const number = this.#number();
    device.buffers.set(number, await made.catch((error) => { throw new Failed(OUT_OF_MEMORY, error.message); }));
    return number;
  }

  _free(device, { buffer: number }) {
    device.groups.forEach(({ ids }, key) => { if (ids.includes(number)) device.groups.delete(key); });
    device.buffers.get(number)?.destroy();
    device.buffers.delete(number);
    return 0;
  }

  async _write(device, { buffer, at, input, nInput }) {
    const target = device.buffer(buffer);
    for (let done = 0; done < nInput; done += STAGED) {
      const n = Math.min(STAGED, nInput - done);
      device.queue.writeBuffer(target, at + done, this.#bytes(input + done, n));
      device.nStaged += n;
      if (device.nStaged < STAGED) continue;
      device.nStaged = 0;
      await device.soon(device.queue.onSubmittedWorkDone());
    }
    return 0;
  }

  /** Compiles kernels all at once. */
  async _pipelines(device, args) {
    const made = await Promise.all(this.#json(args).map(({ name, text }) => device.compile(name, text)));
    const first = this.#next;
    made.forEach((pipeline) => device.pipelines.set(this.#number(), pipeline));
    device.counts.pipelines += made.length;
    return first;
  }

  _submit(device, { input, nInput }) {
    // Copied, since its words are read several times.
    const words = new Uint32Array(this.#bytes(input, nInput).slice().buffer);
    for (let first = 0; first < words.length; first += RECORD * SLOTS) device.submit(words.subarray(first, first + RECORD * SLOTS));
    return 0;
  }

  async _read(device, args) {
    const view = this.#view(args);
    const ranges = Array.from({ length: args.nInput / 16 }, (_, i) => [0, 8].map((at) => Number(view.getBigUint64(16 * i + at, true))));
    const mapped = await device.read(device.buffer(args.buffer), ranges, args.nOutput);
    this.#bytes(args.output, args.nOutput).set(new Uint8Array(mapped.getMappedRange(0, args.nOutput)));
    mapped.unmap();
    return 0;
  }

  _placed(device, args) {
    device.placed = this.#json(args);
    return 0;
  }
}

/** A device with its objects. */
class Device {
  buffers = new Map();
  pipelines = new Map();
  /** Bind groups with the numbers of their buffers, by these. */
  groups = new Map();
  placed = {};
  counts = { submits: 0, dispatches: 0, pipelines: 0, waits: 0 };
  /** Bytes that were written behind the last submission. */
  nStaged = 0;
  #loss = null;
  #readback = null;

  get isLost() {
    return this.#loss !== null;
  }

  constructor(device, name) {
    Object.assign(this, { device, name, queue: device.queue });
    device.lost.then(({ reason, message }) => this.lose(`${reason} ${message}`));
    device.onuncapturederror = ({ error }) => this.lose(error.message);
    const { COMPUTE } = GPUShaderStage;
    const type = (i) => (i === 0 || i === 2 ? 'read-only-storage' : 'storage');
    this.memory = device.createBindGroupLayout({
      entries: [0, 1, 2, 3, 4].map((binding) => ({ binding, visibility: COMPUTE, buffer: { type: type(binding) } })),
    });
    const params = device.createBindGroupLayout({
      entries: [{ binding: 0, visibility: COMPUTE, buffer: { type: 'uniform', hasDynamicOffset: true, minBindingSize: PARAM_BYTES } }],
    });
    this.layout = device.createPipelineLayout({ bindGroupLayouts: [this.memory, params] });
    this.params = device.createBuffer({ size: SLOT * SLOTS, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
    this.paramsGroup = device.createBindGroup({ layout: params, entries: [{ binding: 0, resource: { buffer: this.params, size: PARAM_BYTES } }] });
  }

  /** Notes the first reason of a loss. */
  lose(reason) {
    this.#loss ??= reason;
  }

  check() {
    if (this.#loss !== null) throw new Failed(LOST, this.#loss);
  }

  buffer(number) {
    const buffer = this.buffers.get(number);
    if (!buffer) throw new Failed(LOST, `there is no buffer ${number}`);
    return buffer;
  }

  /** What `make` makes, or the error that the browser has for it. */
  async scoped(filters, make) {
    filters.forEach((filter) => this.device.pushErrorScope(filter));
    const made = make();
    const errors = await Promise.all(filters.map(() => this.device.popErrorScope()));
    const error = errors.find(Boolean);
    if (error) throw error;
    return made;
  }

  async compile(name, code) {
    try {
      const module = this.device.createShaderModule({ label: name, code });
      return await this.device.createComputePipelineAsync({ label: name, layout: this.layout, compute: { module, entryPoint: 'main' } });
    } catch (error) {
      this.check();
      throw new Failed(REFUSED, `${name}\n${error.message}`);
    }
  }

  /** Waits, but not for ever. */
  async soon(promise) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Failed(LOST, `no answer in ${PATIENCE_MS / 1000} s`)), PATIENCE_MS);
    });
    this.counts.waits += 1;
    try {
      return await Promise.race([promise, late]);
    } catch (error) {
      // Where the device is lost, that is why.
      this.lose(error.message);
      throw new Failed(LOST, this.#loss);
    } finally {
      clearTimeout(timer);
    }
  }

  #group(ids) {
    const key = ids.join();
    const found = this.groups.get(key);
    if (found) return found.group;
    const entries = Array.from(ids, (id, binding) => ({ binding, resource: { buffer: this.buffer(id) } }));
    const group = this.device.createBindGroup({ layout: this.memory, entries });
    this.groups.set(key, { group, ids: [...ids] });
    return group;
  }

  /** One command buffer. */
  submit(words) {
    const n = words.length / RECORD;
    const slots = new Uint32Array((n * SLOT) / 4);
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let i = 0; i < n; i++) {
      const record = words.subarray(i * RECORD, (i + 1) * RECORD);
      slots.set(record.subarray(PARAMS_AT), (i * SLOT) / 4);
      pass.setPipeline(this.pipelines.get(record[0]));
      pass.setBindGroup(0, this.#group(record.subarray(1, 6)));
      pass.setBindGroup(1, this.paramsGroup, [i * SLOT]);
      pass.dispatchWorkgroups(record[6], record[7], record[8]);
    }
    pass.end();
    this.queue.writeBuffer(this.params, 0, slots);
    this.queue.submit([encoder.finish()]);
    this.nStaged = 0;
    this.counts.submits += 1;
    this.counts.dispatches += n;
  }

  /** Ranges of a buffer, one behind the other, in one that is mapped. */
  async read(source, ranges, size) {
    if (!this.#readback || this.#readback.size < size) {
      this.#readback?.destroy();
      this.#readback = this.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    }
    const encoder = this.device.createCommandEncoder();
    let to = 0;
    for (const [start, end] of ranges) {
      encoder.copyBufferToBuffer(source, start, this.#readback, to, end - start);
      to += end - start;
    }
    this.queue.submit([encoder.finish()]);
    await this.soon(this.#readback.mapAsync(GPUMapMode.READ, 0, size));
    return this.#readback;
  }
}

// The operations of WebGPU against a device in JavaScript that keeps its buffers.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { findAdapter, Gpu, LOST } from '../gpu.js';

const [OPEN, CLOSE, BUFFER, FREE, WRITE, PIPELINES, SUBMIT, READ, PLACED, TEXT] = Array.from({ length: 10 }, (_, i) => i);
Object.assign(globalThis, {
  GPUBufferUsage: { STORAGE: 1, COPY_DST: 2, COPY_SRC: 4, UNIFORM: 8, MAP_READ: 16 }, GPUShaderStage: { COMPUTE: 4 }, GPUMapMode: { READ: 1 },
});

/** A device; kernels add 1 to the first byte of their first buffer. */
class FakeDevice {
  constructor() {
    this.lost = new Promise((resolve) => { this.lose = () => resolve({ reason: 'destroyed', message: 'by the test' }); });
    this.queue = {
      writeBuffer: ({ bytes }, at, data) => bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at),
      submit: (buffers) => buffers.flat().forEach((run) => run()),
      onSubmittedWorkDone: async () => {},
    };
  }
  createBindGroupLayout() {}
  createPipelineLayout() {}
  createBindGroup({ entries }) { return entries.map(({ resource }) => resource.buffer); }
  createBuffer({ size }) {
    const bytes = new Uint8Array(size);
    this.scope = size > 1000 ? new Error('too large') : null;
    return {
      bytes, size, destroy() {}, unmap() {}, getMappedRange: () => bytes.buffer,
      mapAsync: () => (this.isDead ? Promise.reject(new Error('no device')) : Promise.resolve()),
    };
  }
  pushErrorScope() {}
  async popErrorScope() { return this.scope; }
  createShaderModule({ code }) { return code; }
  async createComputePipelineAsync({ compute }) {
    if (compute.module === 'wrong') throw new Error('line 1');
    return compute.module;
  }
  createCommandEncoder() {
    const commands = [];
    let group;
    return {
      beginComputePass: () => ({
        setPipeline() {}, setBindGroup(i, found) { if (i === 0) group = found; }, end() {},
        dispatchWorkgroups() { const [first] = group; commands.push(() => { first.bytes[0] += 1; }); },
      }),
      copyBufferToBuffer: (from, start, to, at, n) => commands.push(() => to.bytes.set(from.bytes.subarray(start, start + n), at)),
      finish: () => commands,
    };
  }
  destroy() { this.isDead = true; }
}

function opened({ isFallbackAdapter = false } = {}) {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const devices = [];
  const adapter = {
    info: { vendor: 'a', architecture: 'b', device: '', description: '', isFallbackAdapter, subgroupMinSize: 4, subgroupMaxSize: 8 },
    limits: { maxBufferSize: 4096, maxStorageBufferBindingSize: 2048 },
    requestDevice: async () => devices[devices.push(new FakeDevice()) - 1],
  };
  const gpu = new Gpu({ memory, find: async () => ({ adapter }) });
  const texts = { last: '' };
  const call = (operation, args = {}) => gpu.call({ operation, device: 0, buffer: 0, at: 0, input: 0, nInput: 0, output: 0, nOutput: 0, ...args }, texts);
  const put = (at, bytes) => {
    new Uint8Array(memory.buffer, at, bytes.length).set(bytes);
    return { input: at, nInput: bytes.length };
  };
  const json = (value) => put(256, new TextEncoder().encode(JSON.stringify(value)));
  const text = async () => {
    const n = await call(TEXT, { output: 4096, nOutput: 500 });
    return new TextDecoder().decode(new Uint8Array(memory.buffer, 4096, n).slice());
  };
  return { gpu, adapter, devices, memory, call, put, json, text };
}

const words = (...all) => new Uint8Array(new Uint32Array(all).buffer);
const ranges = (...all) => new Uint8Array(new BigUint64Array(all.map(BigInt)).buffer);

test('an adapter is found, or in words none', async () => {
  const { adapter } = opened({ isFallbackAdapter: true });
  const gpu = { requestAdapter: async () => adapter };
  assert.equal((await findAdapter({ allowsSoftware: true, gpu })).adapter, adapter);
  assert.match((await findAdapter({ allowsSoftware: false, gpu })).reason, /a software GPU/);
  assert.match((await findAdapter({ gpu: { requestAdapter: async () => null } })).reason, /no GPU/);
  assert.match((await findAdapter({})).reason, /no WebGPU/);
});

test('bytes are written, changed by a kernel, and read in ranges', async () => {
  const { gpu, memory, call, put, json, text } = opened();
  const device = await call(OPEN);
  assert.deepEqual(JSON.parse(await text()), { name: 'a b', driver: '', isSoftware: false, bufferBytes: 2048, subgroupMin: 4, subgroupMax: 8 });
  const ids = [];
  for (let i = 0; i < 5; i++) ids.push(await call(BUFFER, { device, at: 16 }));
  assert.equal(new Set([device, ...ids]).size, 6);
  const kernel = await call(PIPELINES, { device, ...json([{ name: 'k', text: 'right' }]) });
  assert.equal(await call(WRITE, { device, buffer: ids[0], at: 8, ...put(0, [5, 6, 7, 8]) }), 0);
  assert.equal(await call(SUBMIT, { device, ...put(0, words(kernel, ...ids, 1, 1, 1, ...Array(16).fill(0))) }), 0);
  assert.equal(await call(READ, { device, buffer: ids[0], ...put(0, ranges(0, 4, 8, 12)), output: 1024, nOutput: 8 }), 0);
  assert.deepEqual([...new Uint8Array(memory.buffer, 1024, 8)], [1, 0, 0, 0, 5, 6, 7, 8]);
  await call(PLACED, { device, ...json({ layers: 2, nLayers: 3, bytes: 9 }) });
  assert.deepEqual(gpu.stats(), { name: 'a b', layers: 2, nLayers: 3, bytes: 9, submits: 1, dispatches: 1, pipelines: 1, waits: 1 });
});

test('a kernel that is refused has its name, and a buffer that is too large is no loss', async () => {
  const { call, json, text } = opened();
  const device = await call(OPEN);
  assert.equal(await call(PIPELINES, { device, ...json([{ name: 'k', text: 'wrong' }]) }), -3);
  assert.equal(await text(), 'k\nline 1');
  assert.equal(await call(BUFFER, { device, at: 2000 }), -2);
  assert.ok((await call(BUFFER, { device, at: 16 })) > 0);
});

test('a lost device stays lost, and another one has other numbers', async () => {
  const { devices, call, put, text } = opened();
  const first = await call(OPEN);
  const buffer = await call(BUFFER, { device: first, at: 16 });
  devices[0].lose();
  await devices[0].lost;
  assert.equal(await call(WRITE, { device: first, buffer, ...put(0, [1, 2, 3, 4]) }), LOST);
  assert.match(await text(), /destroyed/);
  assert.equal(await call(CLOSE, { device: first }), 0);
  const second = await call(OPEN);
  assert.notEqual(second, first);
  assert.equal(await call(WRITE, { device: second, buffer, ...put(0, [1, 2, 3, 4]) }), LOST, 'of another device');
});

test('a read that fails loses the device', async () => {
  const { devices, call, put, text } = opened();
  const device = await call(OPEN);
  const buffer = await call(BUFFER, { device, at: 16 });
  devices[0].destroy();
  assert.equal(await call(READ, { device, buffer, ...put(0, ranges(0, 4)), output: 1024, nOutput: 4 }), LOST);
  assert.equal(await text(), 'no device');
  assert.equal(await call(FREE, { device, buffer }), LOST);
});

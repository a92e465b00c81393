// What browsers and Node do differently: workers and their messages. Knows no message.

export const isNode = typeof process === 'object' && Boolean(process.versions?.node) && !process.versions?.electron?.renderer;

/** Starts a worker of this package: `{ send(message, transfer), stop() }`. `receive(message)` and `fail(error)` are called. */
export async function startWorker(name, { receive, fail }) {
  const url = workerUrl(name);
  if (isNode) {
    const { Worker } = await import('node:worker_threads');
    const worker = new Worker(url, { name: `atta-${name}` });
    worker.on('message', receive);
    worker.on('error', fail);
    return { send: (message, transfer) => worker.postMessage(message, transfer), stop: () => void worker.terminate() };
  }
  const worker = new Worker(url, { type: 'module', name: `atta-${name}` });
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => {
    event.preventDefault?.();
    fail(new Error(event.message || 'a worker could not be loaded'));
  };
  return { send: (message, transfer) => worker.postMessage(message, transfer), stop: () => worker.terminate() };
}

// Each address stands by itself, so that bundlers see them.
function workerUrl(name) {
  switch (name) {
    case 'engine': return new URL('./workers/engine.js', import.meta.url);
    case 'thread': return new URL('./workers/thread.js', import.meta.url);
    case 'io': return new URL('./workers/io.js', import.meta.url);
    case 'gpu': return new URL('./workers/gpu.js', import.meta.url);
  }
  throw new TypeError(`no worker ${name}`);
}

/** The address of a build of the module, which may be in a `folder` elsewhere. */
export function moduleUrl(build, folder) {
  if (folder) return new URL(`${build}.wasm`, new URL(String(folder).replace(/\/?$/, '/'), globalThis.location?.href));
  switch (build) {
    case 'mt-relaxed': return new URL('./dist/mt-relaxed.wasm', import.meta.url);
    case 'mt-simd': return new URL('./dist/mt-simd.wasm', import.meta.url);
    case 'st-simd': return new URL('./dist/st-simd.wasm', import.meta.url);
  }
  throw new TypeError(`no build ${build}`);
}

/** Compiles the module at an address. */
export async function compile(url) {
  if (url.protocol === 'file:' && isNode) {
    const { readFile } = await import('node:fs/promises');
    return WebAssembly.compile(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  // A static host may give it another type, which streaming refuses.
  const isTyped = response.headers.get('content-type')?.split(';')[0].trim() === 'application/wasm';
  return isTyped ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** Inside of a worker: calls `receive` for each message of the page, and returns what sends one to it. */
export async function inbox(receive) {
  if (isNode) {
    const { parentPort } = await import('node:worker_threads');
    parentPort.on('message', receive);
    return (message, transfer) => parentPort.postMessage(message, transfer);
  }
  globalThis.onmessage = ({ data }) => receive(data);
  return (message, transfer) => globalThis.postMessage(message, transfer ?? []);
}

/** Calls `receive` for each message that comes through a port. */
export function listen(port, receive) {
  if (isNode) port.on('message', receive);
  else port.onmessage = ({ data }) => receive(data);
}

/** Lets messages that have come be received. */
export function tick() {
  if (typeof setImmediate === 'function') return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

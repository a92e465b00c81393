// A static server with parts of files, a log of what it sent, and the faults of servers. Knows no test.

import { createReadStream, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { Transform } from 'node:stream';

const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json', '.json': 'application/json', '.woff2': 'font/woff2', '.txt': 'text/plain',
};
const ISOLATED = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };

/** A server of folders: `roots` maps prefixes of paths to them. `faults` may be changed between requests. */
export class FaultyServer {
  constructor(roots) {
    Object.assign(this, { roots, log: [], faults: {}, isIsolated: true });
    this.server = createServer((request, response) => this.#answer(request, response));
  }

  async listen() {
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    // A name for which browsers make no exceptions but that of a secure context.
    this.origin = `http://localhost:${this.server.address().port}`;
    return this;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Bytes of models that were sent since the log was emptied. */
  get nModelBytes() {
    return this.log.filter(({ path }) => path.endsWith('.gguf')).reduce((sum, { n }) => sum + n, 0);
  }

  /** The path of an address, and the file that it is: a root may be a file, too. */
  #path(url) {
    const path = decodeURIComponent(new URL(url, this.origin).pathname);
    const prefix = Object.keys(this.roots).sort((a, b) => b.length - a.length).find((start) => path.startsWith(start));
    const rest = normalize(`/${path.slice(prefix.length)}`);
    if (rest !== '/') return { path, file: join(this.roots[prefix], rest) };
    return { path, file: extname(this.roots[prefix]) ? this.roots[prefix] : join(this.roots[prefix], 'index.html') };
  }

  #answer(request, response) {
    const found = this.#path(request.url);
    let size;
    try {
      size = statSync(found.file).size;
    } catch {
      return response.writeHead(404).end();
    }
    const { faults } = this;
    if (faults.prelude?.path === found.path) {
      const text = faults.prelude.text + readFileSync(found.file, 'utf8');
      return response.writeHead(200, { 'content-type': 'text/javascript', 'cross-origin-resource-policy': 'same-origin', ...ISOLATED }).end(text);
    }
    const isModel = found.path.endsWith('.gguf');
    const headers = {
      'content-type': TYPES[extname(found.file)] ?? 'application/octet-stream',
      'cross-origin-resource-policy': 'same-origin', 'cache-control': 'no-store',
      etag: isModel && faults.etag ? faults.etag : '"v1"',
      ...(this.isIsolated && ISOLATED),
    };
    const range = isModel && !faults.noRanges && /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    const start = range ? Number(range[1]) : 0;
    const end = range ? Math.min(Number(range[2]) + 1, size) : size;
    if (range) headers['content-range'] = `bytes ${start}-${end - 1}/${size + (start > 0 ? faults.lie ?? 0 : 0)}`;
    if (range && start >= (faults.changesAt ?? Infinity)) headers.etag = '"v2"';
    const isHead = request.method === 'HEAD';
    const isCut = isModel && !isHead && faults.nCuts > 0 && start > 0;
    if (isCut) faults.nCuts -= 1;
    const last = isCut ? start + Math.floor((end - start) / 2) : end;
    if (!isCut) headers['content-length'] = end - start;
    this.log.push({ method: request.method, path: found.path, n: isHead ? 0 : last - start });
    response.writeHead(range ? 206 : 200, headers);
    if (isHead || start >= last) return response.end();
    const file = createReadStream(found.file, { start, end: last - 1, highWaterMark: 1 << 16 });
    const body = isModel && faults.bytesPerSecond ? file.pipe(throttle(() => this.faults.bytesPerSecond)) : file;
    if (isCut) body.on('end', () => response.destroy());
    body.pipe(response, { end: !isCut });
  }
}

/** Lets so many bytes of a response through in a second, or all when the rate is gone. */
function throttle(rate) {
  const milliseconds = (chunk) => (rate() ? (chunk.length / rate()) * 1000 : 0);
  return new Transform({ transform: (chunk, _, done) => void setTimeout(done, milliseconds(chunk), null, chunk) });
}

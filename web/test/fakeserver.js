// A server for tests: `fetch` over bytes, with the faults that servers have.

/** `faults` is asked for each request: `{ n, method, start, end }` → nothing, or `{ status, cut, etag, total, throws, shift }`. */
export function fakeServer(bytes, { faults = () => ({}), headers = {}, ranges = true, exposesRange = true } = {}) {
  const log = [];
  const fetch = async (url, { method = 'GET', headers: asked = {}, signal } = {}) => {
    const found = /^bytes=(\d+)-(\d+)$/.exec(asked.Range ?? '');
    const start = found && ranges ? Number(found[1]) : 0;
    const end = found && ranges ? Math.min(Number(found[2]) + 1, bytes.length) : bytes.length;
    const request = { n: log.length, url: String(url), method, start, end };
    log.push(request);
    const { status, cut, etag, total = bytes.length, throws, shift = 0 } = faults(request) ?? {};
    if (signal?.aborted) throw signal.reason;
    if (throws) throw new TypeError('Failed to fetch');
    if (status) return new Response('no', { status });
    const body = method === 'HEAD' ? null : bytes.slice(start, cut === undefined ? end : start + cut);
    const all = { etag: '"v1"', ...headers, ...(etag && { etag }) };
    for (const name of Object.keys(all)) if (all[name] === null) delete all[name];
    if (found && ranges && exposesRange) all['content-range'] = `bytes ${start + shift}-${end - 1}/${total}`;
    if (method === 'HEAD' || !ranges) all['content-length'] = String(bytes.length);
    return new Response(body, { status: found && ranges ? 206 : 200, headers: all });
  };
  return { fetch, log, nBytesSent: () => log.filter(({ method }) => method === 'GET').reduce((sum, { start, end }) => sum + end - start, 0) };
}

/** Bytes that tell where they are. */
export const bytesOf = (n) => Uint8Array.from({ length: n }, (_, i) => (i * 7 + (i >> 8) * 13) & 255);

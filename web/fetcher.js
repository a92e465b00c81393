// Ranges of a file of a server: its length and version, and bytes of it, tried again after errors that pass. Knows no cache.
//
// A range is a header that any page may send, but `If-Range` is not, so that each response is compared instead: a
// server that changes the file in the middle of a download is found out by its ETag, its date or its length.

import { abortOf, AttaError, SourceError } from './errors.js';

const TRIES = 4;
const PAUSE_MS = 500;
/** Statuses that pass. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Waits unless the signal is aborted first. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => { clearTimeout(timer); reject(abortOf(signal)); }, { once: true });
  });
}

/** A file of a server. */
export class RemoteFile {
  constructor(url, { fetch = globalThis.fetch, signal, wait = pause } = {}) {
    Object.assign(this, { url, signal, wait, nBytes: null, identity: null, hasRanges: true });
    this.fetch = (...args) => fetch(...args);
  }

  /**
   * Asks for the length and the version, by the first `nFirst` bytes, which are returned. Of a server that knows no
   * ranges the whole body is `rest`, a response that is to be read in order.
   */
  async open(nFirst) {
    const response = await this.#retried(() => this.#ask(0, nFirst - 1));
    this.identity = identityOf(response);
    this.hasRanges = response.status === 206;
    this.nBytes = this.hasRanges ? totalOf(response) ?? (await this.#lengthByHead()) : lengthOf(response);
    if (this.nBytes === null) {
      await response.body?.cancel();
      throw new SourceError(`${this.url}: the server says nothing of the length of the file to this page.`, 'no_length');
    }
    if (!this.hasRanges) return { first: null, rest: response };
    const expected = Math.min(nFirst, this.nBytes);
    const first = new Uint8Array(expected);
    const n = await this.#fill(response, first).catch(() => 0);
    return { first: n === expected ? first : await this.read(0, expected), rest: null };
  }

  /**
   * Asks whether the file is one of an earlier visit, and takes its version and length if so: no byte of it comes. A server
   * that refuses the question, or says nothing of a version, has not said yes.
   */
  async isStill(identity, nBytes) {
    let response;
    try {
      response = await this.#retried(() => this.#head());
    } catch (error) {
      if (error.code === 'network' || error.code === 'aborted') throw error;
      return false;
    }
    if (identityOf(response) !== identity || (lengthOf(response) ?? nBytes) !== nBytes) return false;
    this.take(identity, nBytes);
    return true;
  }

  /** Takes version and length as those of an earlier visit. */
  take(identity, nBytes) {
    Object.assign(this, { identity, nBytes });
  }

  /** The bytes from `start` on. A body that ends early is continued. */
  async read(start, nBytes) {
    const bytes = new Uint8Array(nBytes);
    let done = 0;
    let failures = 0;
    while (done < nBytes) {
      let n = 0;
      let failed = null;
      try {
        const response = await this.#retried(() => this.#ask(start + done, start + nBytes - 1));
        this.#check(response, start + done);
        n = await this.#fill(response, bytes.subarray(done), (count) => { n = count; });
      } catch (error) {
        if (error instanceof AttaError) throw error;
        failed = error;
      }
      done += n;
      failures = n > 0 ? 0 : failures + 1;
      if (failures >= TRIES) throw this.#cut(start + done, failed);
      if (done < nBytes && failures > 0) await this.wait(PAUSE_MS * 2 ** failures, this.signal);
    }
    return bytes;
  }

  #cut(at, error) {
    return new SourceError(`${this.url}: the server ends at byte ${at} of ${this.nBytes}${error ? `: ${error.message}` : '.'}`, 'truncated', { cause: error });
  }

  /** A request of bytes `from` to `to`. The browser's own cache would keep what ours keeps. */
  #ask(from, to) {
    return this.fetch(this.url, { headers: { Range: `bytes=${from}-${to}` }, cache: 'no-store', signal: this.signal });
  }

  /** The first good response, of a few tries where errors pass. */
  async #retried(ask) {
    for (let failures = 1; ; failures++) {
      const { response, error, passes } = await this.#tried(ask);
      if (response) return response;
      if (!passes || failures >= TRIES) throw error;
      await this.wait(PAUSE_MS * 2 ** failures, this.signal);
    }
  }

  async #tried(ask) {
    let response;
    try {
      response = await ask();
    } catch (failed) {
      if (this.signal?.aborted) throw abortOf(this.signal);
      const words = `the server cannot be reached, or lets no page of this origin read it: ${failed.message}`;
      return { error: new SourceError(`${this.url}: ${words}`, 'network', { cause: failed }), passes: true };
    }
    if (response.ok) return { response };
    await response.body?.cancel();
    return { error: failureOf(this.url, response), passes: PASSING.has(response.status) };
  }

  /** Refuses bytes of another file, or from another place. */
  #check(response, start) {
    const changed = (what) => new SourceError(`${this.url}: the file was changed on the server while it was downloaded (${what}).`, 'changed');
    if (response.status !== 206) throw changed('a whole file came for a part');
    const range = rangeOf(response);
    if (range && range.start !== start) throw new SourceError(`${this.url}: bytes from ${range.start} on came for those from ${start} on.`, 'http');
    if (range?.total != null && range.total !== this.nBytes) throw changed(`${range.total} bytes, ${this.nBytes} before`);
    const identity = identityOf(response);
    if (identity !== this.identity) throw changed(`${identity || 'no version'}, ${this.identity || 'none'} before`);
  }

  /** Reads a body into `bytes`; how many of them came. A body that goes on behind them is an error. */
  async #fill(response, bytes, progress = () => {}) {
    let n = 0;
    try {
      for await (const chunk of chunksOf(response)) {
        if (n + chunk.length > bytes.length) throw new SourceError(`${this.url}: more bytes came than were asked for.`, 'http');
        bytes.set(chunk, n);
        n += chunk.length;
        progress(n);
      }
    } catch (error) {
      if (this.signal?.aborted) throw abortOf(this.signal);
      if (error instanceof AttaError || n === 0) throw error;
    }
    return n;
  }

  async #lengthByHead() {
    return lengthOf(await this.#retried(() => this.#head()));
  }

  #head() {
    return this.fetch(this.url, { method: 'HEAD', cache: 'no-store', signal: this.signal });
  }
}

/** The chunks of a body. */
export async function* chunksOf(response) {
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** What tells versions of a file apart, as far as a page may see it; a weak tag tells nothing about bytes. */
function identityOf({ headers }) {
  const tag = headers.get('etag');
  if (tag && !tag.startsWith('W/')) return tag;
  const date = headers.get('last-modified');
  return date ? `date ${date}` : '';
}

function rangeOf({ headers }) {
  const found = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(headers.get('content-range') ?? '');
  return found && { start: Number(found[1]), total: found[3] === '*' ? null : Number(found[3]) };
}

const totalOf = (response) => rangeOf(response)?.total ?? null;

function lengthOf({ headers }) {
  const text = headers.get('content-length');
  // The length of a body that the browser has unpacked is not that of the file.
  return text !== null && !headers.get('content-encoding') ? Number(text) : null;
}

function failureOf(url, { status, statusText }) {
  const isGone = status === 404 || status === 410;
  const needsKey = status === 401 || status === 403;
  const words = isGone ? 'there is no such file' : needsKey ? 'the server gives it to no page without a key' : `the server says ${status} ${statusText}`.trim();
  return new SourceError(`${url}: ${words}.`, isGone ? 'not_found' : 'http');
}


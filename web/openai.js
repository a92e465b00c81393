// OpenAI's shapes over requests: `chat.completions.create` and its like. The engine writes the JSON itself; here it is
// parsed, and given as an object or, of a stream, chunk by chunk. Knows no worker.

import { AbortError, AttaError, EngineError } from './errors.js';

/**
 * The interfaces over `send(path, body, { signal })`, which gives an async iterator of the texts of the response, with a
 * `return` that cancels it.
 */
export function interfaces(send) {
  const whole = (path) => async (body, options) => {
    refuseStream(body);
    return parsed(await only(send(path, body, options)));
  };
  const either = (path) => (body, options = {}) => {
    if (body?.stream) return Promise.resolve(new ChunkStream((signal) => send(path, body, { ...options, signal }), options.signal));
    return whole(path)(body, options);
  };
  return {
    chat: { completions: { create: either('/v1/chat/completions') } },
    completions: { create: either('/v1/completions') },
    embeddings: { create: whole('/v1/embeddings') },
    tokenize: async (content, { special = true, bos = false, ...options } = {}) =>
      (await whole('/tokenize')({ content, parse_special: special, add_special: bos }, options)).tokens,
    detokenize: async (tokens, options) => (await whole('/detokenize')({ tokens: [...tokens] }, options)).content,
  };
}

function refuseStream(body) {
  if (body?.stream) throw new TypeError('stream: this interface has no stream');
}

/** The only text of a response. */
async function only(texts) {
  let found;
  for await (const text of texts) found ??= text;
  if (found === undefined) throw new AbortError();
  return found;
}

function parsed(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new EngineError(`The engine wrote no JSON: ${text.slice(0, 100)}`, 'failed', { cause: error });
  }
  return value;
}

/** The chunks of a streamed response, once: `for await`, or `toReadableStream()`. `controller.abort()` ends it. */
export class ChunkStream {
  #used = false;

  constructor(start, signal) {
    this.controller = new AbortController();
    Object.assign(this, { start, signal });
    if (signal?.aborted) this.controller.abort(signal.reason);
    signal?.addEventListener('abort', () => this.controller.abort(signal.reason), { once: true });
  }

  async *[Symbol.asyncIterator]() {
    if (this.#used) throw new AttaError('A stream can be read once.', 'used');
    this.#used = true;
    try {
      for await (const text of this.start(this.controller.signal)) yield parsed(text);
    } catch (error) {
      // As in OpenAI's library, a stream that its reader ends is no error.
      if (error instanceof AbortError && !this.signal?.aborted) return;
      throw error;
    }
  }

  /** The chunks as lines of JSON. */
  toReadableStream() {
    const chunks = this[Symbol.asyncIterator]();
    const encoder = new TextEncoder();
    return new ReadableStream({
      async pull(to) {
        const { value, done } = await chunks.next();
        if (done) to.close();
        else to.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
      },
      cancel: () => this.controller.abort(),
    });
  }
}

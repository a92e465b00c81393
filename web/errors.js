// The errors of the package: classes to catch, codes to tell apart. Knows no wording of the engine, which comes as it is.

/** The error of everything here; `code` tells errors of one class apart. */
export class AttaError extends Error {
  constructor(message, code, options) {
    super(message, options);
    this.name = this.constructor.name;
    this.code = code;
  }
}

/** What was asked for cannot run here: `no_simd`, `no_workers`, `no_gpu`, and others. */
export class UnsupportedError extends AttaError {}

/** A file cannot be had: `network`, `http`, `not_found`, `changed`, `truncated`, `no_length`, `file`. */
export class SourceError extends AttaError {}

/** The browser's storage: `quota`, `evicted`, `locked`, `no_storage`. */
export class StorageError extends AttaError {}

/** There is too little memory: `memory`. */
export class MemoryError extends AttaError {}

/** The file is no model that this engine runs: `model`. */
export class ModelError extends AttaError {}

/** A request was refused: `request`, `context` (it does not fit), `busy`. */
export class RequestError extends AttaError {}

/** The engine failed: `failed`, or `trap`, after which the model is gone. */
export class EngineError extends AttaError {}

/** The model was disposed of, or has trapped before: `disposed`. */
export class DisposedError extends AttaError {}

/** A signal was aborted: `aborted`. Its name is that of the platform's own. */
export class AbortError extends AttaError {
  constructor(message = 'The operation was aborted.', options) {
    super(message, 'aborted', options);
    this.name = 'AbortError';
  }
}

const CLASSES = {
  UnsupportedError, SourceError, StorageError, MemoryError, ModelError, RequestError, EngineError, DisposedError, AbortError,
};

/** The statuses of atta.h, by number: a class, and a code. */
const STATUSES = [
  null,
  [RequestError, 'request'], // invalid
  [RequestError, 'request'], // absent
  [RequestError, 'busy'],
  [EngineError, 'failed'], // end
  [EngineError, 'failed'], // pending
  [ModelError, 'model'],
  [MemoryError, 'memory'],
  [RequestError, 'context'],
  [RequestError, 'request'],
  [EngineError, 'failed'],
  [EngineError, 'trap'], // panic
  [RequestError, 'busy'], // suspended
];

/** The error of a status that the engine gave, with its words. */
export function errorOfStatus(status, message) {
  const [Class, code] = STATUSES[status] ?? [EngineError, 'failed'];
  return new Class(message || `The engine gave status ${status}.`, code);
}

/** An error as a message between threads. */
export function toWire(error) {
  const known = error instanceof AttaError;
  return {
    name: known ? error.constructor.name : 'EngineError',
    code: known ? error.code : 'failed',
    message: String(error?.message ?? error),
  };
}

/** The error of a message from another thread. */
export function fromWire({ name, code, message }) {
  const Class = CLASSES[name] ?? EngineError;
  return Class === AbortError ? new AbortError(message) : new Class(message, code);
}

/** Throws if the signal is aborted. */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw abortOf(signal);
}

/** The error of an aborted signal. */
export function abortOf(signal) {
  const reason = signal.reason;
  return new AbortError(reason instanceof Error ? reason.message : undefined, { cause: reason });
}

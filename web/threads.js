// The threads of the module, as the page has them: workers that wait for a thread to run. The page starts them, since a
// worker that blocks cannot. Knows no model.

/** Gives numbers of threads that are different in all workers: `ids` is a shared word. */
export function threadIds(ids) {
  return () => Atomics.add(ids, 0, 1);
}

/** The word that `threadIds` wants; numbers of threads begin at 1. */
export const newIds = () => new Int32Array(new SharedArrayBuffer(4)).fill(1);

/**
 * The workers. `start(receive, fail)` gives a promise of one that is ready, `{ send, stop }`; `broken(error)` is called if a
 * thread has trapped or a worker cannot be started, and `print(line)` with what threads print.
 */
export class ThreadPool {
  constructor({ start, broken, print }) {
    Object.assign(this, { start, broken, print, free: [], all: [], isClosed: false });
  }

  /** Starts workers before they are wanted. */
  async warm(n) {
    const workers = await Promise.allSettled(Array.from({ length: n }, () => this.#worker()));
    for (const { value, reason } of workers) {
      if (!value) throw reason;
      this.free.push(value);
    }
  }

  /** Runs a thread in a free worker, or in a new one. */
  async run(tid, argument) {
    if (this.isClosed) return;
    try {
      const worker = this.free.pop() ?? (await this.#worker());
      worker.send({ type: 'run', tid, argument });
    } catch (error) {
      this.broken(error);
    }
  }

  async #worker() {
    let worker = null;
    const receive = (message) => {
      switch (message.type) {
        case 'free': return void this.free.push(worker);
        case 'spawn': return void this.run(message.tid, message.argument);
        case 'print': return this.print(message.line);
        case 'trap': return this.broken(new Error(message.message));
      }
    };
    worker = await this.start(receive, this.broken);
    this.all.push(worker);
    if (this.isClosed) worker.stop();
    return worker;
  }

  get nThreads() {
    return this.all.length;
  }

  close() {
    this.isClosed = true;
    this.all.forEach((worker) => worker.stop());
  }
}

// The requests of a model in the engine worker: many at a time, in turn, and cancelled between two events. Knows no thread.

import { tick } from './platform.js';

/** How long one call may wait for an event, in milliseconds: alone, and beside others. */
const ALONE_MS = 20;
const SHARED_MS = 2;

/** Runs requests. `send(message)` tells the page; `fail(error, message)` too. `pause()` lets messages be received. */
export class Requests {
  constructor(engine, model, { send, fail, pause = tick }) {
    Object.assign(this, { engine, model, send, fail, pause, running: new Map(), loop: null });
  }

  /** Begins a request, whose events are told as they come. */
  add({ id, path, body }) {
    try {
      this.running.set(id, this.engine.request(this.model, path, body));
    } catch (error) {
      return this.fail(error, { type: 'error', id });
    }
    this.loop ??= this.#run().finally(() => { this.loop = null; });
  }

  cancel(id) {
    const generation = this.running.get(id);
    if (generation !== undefined) this.engine.cancel(generation);
  }

  /** Ends all requests. */
  async close() {
    for (const generation of this.running.values()) this.engine.cancel(generation);
    await this.loop;
  }

  async #run() {
    while (this.running.size > 0) {
      const wait = this.running.size === 1 ? ALONE_MS : SHARED_MS;
      for (const [id, generation] of this.running) this.#turn(id, generation, wait);
      await this.pause();
    }
  }

  #turn(id, generation, wait) {
    let event;
    try {
      event = this.engine.next(generation, wait);
    } catch (error) {
      this.#end(id, generation);
      return this.fail(error, { type: 'error', id });
    }
    switch (event?.kind) {
      case 'json': return this.send({ type: 'piece', id, text: event.text });
      case 'note': return this.send({ type: 'note', id, text: event.text });
      case 'done':
        this.#end(id, generation);
        return this.send({ type: 'end', id });
    }
  }

  #end(id, generation) {
    this.running.delete(id);
    this.engine.freeRequest(generation);
  }
}

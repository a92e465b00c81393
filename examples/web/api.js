// In place of the page's own api.js: the model in this browser answers, by the same paths. Knows no element of the page.

import { currentModel } from './models.js';

/** An error whose message is for the reader. */
export class Failure extends Error {}

/** The response of the model, once there is one: its JSON, its text, or its events by `eventsOf`. */
export async function ask(path, { body, signal } = {}) {
  const model = await currentModel(signal);
  const texts = model.request(`/${path}`, body === undefined ? undefined : JSON.parse(body), { signal })[Symbol.asyncIterator]();
  // A request that is refused is so before its first event.
  const first = await reworded(texts.next());
  const text = async () => (first.done ? '' : first.value);
  return { text, json: async () => JSON.parse(await text()), first, texts };
}

/** The events of a response. */
export async function* eventsOf({ first, texts }) {
  try {
    for (let next = first; !next.done; next = await reworded(texts.next())) yield JSON.parse(next.value);
  } finally {
    await texts.return();
  }
}

async function reworded(result) {
  try {
    return await result;
  } catch (error) {
    throw error.name === 'AbortError' ? error : new Failure(error.message, { cause: error });
  }
}

/** A value of the Prometheus text format. */
export function metric(text, name) {
  return Number(new RegExp(`^atta_${name}(?:\\{.*\\})? +(\\S+)`, 'm').exec(text)?.[1] ?? 0);
}

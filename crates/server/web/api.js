// The server's interface as the page uses it: requests with the key, errors as sentences, server-sent events.

/** An error whose message is for the reader. */
export class Failure extends Error {}

/** The response of the server, if it is a good one. */
export async function ask(path, options = {}) {
  const key = sessionStorage.getItem('atta.key');
  const headers = { 'Content-Type': 'application/json', ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { ...options, headers }).catch((error) => {
    if (error.name === 'AbortError') throw error;
    throw new Failure('The server cannot be reached.');
  });
  if (!response.ok) throw new Failure(await failureOf(response));
  return response;
}

async function failureOf(response) {
  const hint = response.status === 401 ? '. The API key is set under Settings.' : '';
  const { error } = await response.json().catch(() => ({}));
  return (error?.message ?? error ?? `The server says ${response.status} ${response.statusText}`) + hint;
}

/** The data of server-sent events, up to `[DONE]`. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Failure('The connection ended before the answer did.');
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines.filter((text) => text.startsWith('data:'))) {
      const data = line.slice(5).trim();
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

/** A value of the Prometheus text format. */
export function metric(text, name) {
  return Number(new RegExp(`^atta_${name}(?:\\{.*\\})? +(\\S+)`, 'm').exec(text)?.[1] ?? 0);
}

// The service worker of the page: its files offline, and the headers that make the page an isolated one, which a static
// host does not send. Knows nothing of models: what is not a file of this page passes by.

/* global FILES, LATER, VERSION */
// build.mjs writes them: files that are kept at once, and those of which a browser needs one or none.
importScripts('files.js');

const CACHE = `atta-${VERSION}`;
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  // Safari has no `credentialless`.
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener('activate', (event) => {
  event.waitUntil(dropOlder().then(() => self.clients.claim()));
});

async function dropOlder() {
  const names = await caches.keys();
  const older = names.filter((name) => name.startsWith('atta-') && name !== CACHE);
  await Promise.all(older.map((name) => caches.delete(name)));
}

self.addEventListener('fetch', (event) => {
  const { request } = event;
  const isOurs = request.url.startsWith(self.registration.scope) && request.method === 'GET';
  // Parts of models are kept by the page itself, and other origins answer for themselves.
  if (isOurs && !request.headers.has('range')) event.respondWith(answer(request));
});

async function answer(request) {
  const url = new URL(request.url);
  url.search = '';
  const cached = await caches.match(url.href, { cacheName: CACHE });
  const response = cached ?? (await fetch(request));
  if (!cached && response.ok && LATER.includes(url.href.slice(self.registration.scope.length))) {
    await (await caches.open(CACHE)).put(url.href, response.clone());
  }
  if (response.status === 0 || response.type === 'opaqueredirect') return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  const { status, statusText } = response;
  return new Response(status === 204 || status === 304 ? null : response.body, { status, statusText, headers });
}

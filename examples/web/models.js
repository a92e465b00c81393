// Which model answers: the dialog that chooses one, its download, and the line that says how it runs. Knows no conversation.

import { el } from './dom.js';
import { load } from './atta/index.js';

const BUILT_IN = 'home.gguf';
const LAST = 'atta.web.model';
const HUB = /^([\w.-]+\/[\w.-]+)\/(.+\.(?:gguf|qsf))$/i;

let model = null;
let loading = null;
let waiting = [];
let controller = null;

/** The model that answers; waits for the one that is being loaded. */
export function currentModel(signal) {
  if (model) return Promise.resolve(model);
  return new Promise((resolve, reject) => {
    const entry = { resolve, reject };
    waiting.push(entry);
    signal?.addEventListener('abort', () => {
      waiting = waiting.filter((other) => other !== entry);
      reject(Object.assign(new Error('stopped'), { name: 'AbortError' }));
    }, { once: true });
  });
}

/** Loads a model in place of the one that answers; one that is being loaded is given up. */
async function use(source, label) {
  controller?.abort();
  await loading?.catch(() => {});
  controller = new AbortController();
  loading = replace(source, label, controller.signal);
  await loading.catch(() => {});
}

async function replace(source, label, signal) {
  const old = model;
  model = null;
  await old?.dispose();
  show({ label, text: 'Opening …' });
  const start = performance.now();
  try {
    model = await load(source, {
      signal, name: label,
      onProgress: ({ loaded, total, cached }) => show({ label, loaded, total, text: amounts(loaded, total, cached, start) }),
      onNote: () => {},
    });
  } catch (error) {
    if (error.name !== 'AbortError') show({ label, error: error.message });
    throw error;
  }
  if (typeof source !== 'object') localStorage.setItem(LAST, String(source));
  waiting.splice(0).forEach(({ resolve }) => resolve(model));
  // The page asks its server again when the key of the connection changes.
  document.getElementById('key').dispatchEvent(new Event('change'));
  ui.dialog.close();
  showStats();
}

/** The source that an address means. */
function sourceOf(address) {
  const [, repo, file] = HUB.exec(address) ?? [];
  return repo ? { source: { repo, file }, label: file } : { source: address, label: address.split('/').at(-1).split('?')[0] };
}

function open(address) {
  const { source, label } = sourceOf(address.trim());
  localStorage.setItem(LAST, address.trim());
  return use(source, label);
}

// The dialog

const ui = {};

function build() {
  ui.address = el('input', { type: 'text', placeholder: 'https://…/model.gguf or org/repo/file.gguf', autocomplete: 'off', spellcheck: false, 'aria-label': 'Address of a model' });
  ui.files = el('input', { type: 'file', multiple: true, accept: '.gguf,.qsf', 'aria-label': 'Files of a model' });
  ui.bar = el('progress', { hidden: true, max: 1, value: 0, 'aria-label': 'Download' });
  ui.text = el('p.note', { role: 'status' });
  ui.stored = el('p.note');
  ui.remove = el('button.plain', { type: 'button', hidden: true }, 'Remove the models that this browser keeps');
  const form = el('form', {}, el('label', {}, 'Address', ui.address), el('button', { type: 'submit' }, 'Load'));
  ui.dialog = el('dialog.models', { 'aria-label': 'Models' },
    el('h2', {}, 'Models'), form, el('label', {}, 'Files of this computer', ui.files),
    el('button.plain', { type: 'button', onclick: () => use(BUILT_IN, 'home') }, 'The small model that comes with the page'),
    ui.bar, ui.text, ui.stored, ui.remove,
    el('button', { type: 'button', onclick: () => ui.dialog.close() }, 'Close'));
  ui.open = el('button.plain', { type: 'button', id: 'models', onclick: () => { ui.dialog.showModal(); showStored(); } }, 'Models');
  ui.line = el('span', { id: 'engine' });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (ui.address.value.trim()) open(ui.address.value);
  });
  ui.files.addEventListener('change', () => ui.files.files.length && use([...ui.files.files], ui.files.files[0].name));
  ui.remove.addEventListener('click', removeStored);
  document.body.append(ui.dialog);
  document.getElementById('model').after(ui.open);
  document.querySelector('.status').append(ui.line);
  // There is no server, and no key.
  document.getElementById('connection').hidden = true;
}

function show({ label, loaded, total, text = '', error }) {
  ui.bar.hidden = loaded === undefined || loaded === total;
  if (loaded !== undefined) ui.bar.value = total ? loaded / total : 1;
  ui.text.textContent = error ? `${label} cannot be used: ${error}` : text;
  ui.text.classList.toggle('error', Boolean(error));
  ui.line.textContent = error ? 'no model' : text;
  if (error && !ui.dialog.open) ui.dialog.showModal();
}

const mb = (n) => (n >= 1e9 ? `${(n / 1e9).toFixed(2)} GB` : `${Math.round(n / 1e6)} MB`);

function amounts(loaded, total, cached, start) {
  const seconds = (performance.now() - start) / 1000;
  const rate = (loaded - cached) / seconds;
  const left = rate > 0 && loaded < total ? `, ${Math.ceil((total - loaded) / rate)} s left` : '';
  return loaded === total ? 'Starting …' : `${mb(loaded)} of ${mb(total)}${left}`;
}

async function showStats() {
  const found = await model?.stats().catch(() => null);
  if (!found) return;
  const { build: name, threads, memory, last, reason } = found;
  const speed = last?.tokensPerSecond ? ` · ${last.tokensPerSecond.toFixed(1)} tok/s` : '';
  ui.line.textContent = `${threads} thread${threads > 1 ? 's' : ''} · ${mb(memory.bytes)}${speed}`;
  ui.line.title = `${name}: ${reason}`;
  ui.text.textContent = '';
}

// Models that are kept

const storage = () => navigator.storage?.getDirectory?.().catch(() => null) ?? null;

async function showStored() {
  const { usage = 0, quota = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  ui.stored.textContent = quota ? `This browser keeps ${mb(usage)} of this page, and would keep ${mb(quota)}.` : '';
  ui.remove.hidden = usage === 0;
}

async function removeStored() {
  controller?.abort();
  await loading?.catch(() => {});
  await model?.dispose();
  model = null;
  await (await storage())?.removeEntry('atta', { recursive: true }).catch((error) => show({ label: 'Files', error: error.message }));
  await use(BUILT_IN, 'home');
  showStored();
}

build();
const asked = new URLSearchParams(location.search).get('model') ?? localStorage.getItem(LAST) ?? BUILT_IN;
if (asked === BUILT_IN) use(BUILT_IN, 'home');
else open(asked);
setInterval(() => document.visibilityState === 'visible' && showStats(), 2000);

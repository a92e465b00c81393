// The page of a ring: asks for `/api/cluster` every two seconds and shows the answer. All that comes from there becomes
// text nodes and attributes, never markup.

import { el, morph } from './dom.js';

const EVERY_MS = 2000;
const SVG = 'http://www.w3.org/2000/svg';
const RADIUS = 110;
const GAP = 0.05; // between two machines, in radians
const LEAST = 0.05; // the part of the ring that a machine without layers gets
const MAX_NAME = 18; // letters of a name beside the ring
const MOST_DETAILS = 8; // machines whose labels have more than their names

const $ = (id) => document.getElementById(id);
const number = (value, digits = 0) => value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });
const known = (value, show) => (value === null || value === undefined ? '–' : show(value));
const millis = (us) => number(us / 1000, us < 10_000 ? 2 : 1);
const bytes = (n) => (n < 1e6 ? `${number(n / 1e3, 1)} kB` : n < 1e9 ? `${number(n / 1e6)} MB` : `${number(n / 1e9, 2)} GB`);
const tokens = (speed) => `${number(speed, speed < 100 ? 1 : 0)} tokens/s`;

class Failure extends Error {}

// The server

async function read() {
  const key = sessionStorage.getItem('atta.key');
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch('api/cluster', { headers, cache: 'no-store' }).catch(() => { throw new Failure('The server cannot be reached.'); });
  $('connection').hidden = response.status !== 401;
  if (response.status === 401) throw new Failure('This server wants an API key.');
  if (!response.ok) throw new Failure(`The server says ${response.status} ${response.statusText}.`);
  return (await response.json()).ring;
}

async function refresh() {
  try {
    show(await read());
  } catch (error) {
    document.body.dataset.stale = 'yes';
    notify(error instanceof Failure ? error.message : `The answer cannot be read: ${error.message}`);
  }
}

async function poll() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((done) => { setTimeout(done, EVERY_MS); });
  }
}

// The views

function notify(text) {
  if ($('notice').textContent !== text) $('notice').textContent = text;
}

function show(ring) {
  delete document.body.dataset.stale;
  $('main').hidden = !ring;
  notify(ring ? '' : 'No ring: this server runs its model on this machine alone. `atta serve --ring` takes others to help.');
  document.body.dataset.state = ring?.state ?? 'none';
  setState(ring ? stateOf(ring) : '');
  if (!ring) return;
  update($('ring'), picture(ring));
  update($('numbers'), numbers(ring));
  update($('machines'), ring.nodes.map(row));
  update($('events'), ring.events.map(event));
}

function update(root, children) {
  const now = root.cloneNode(false);
  now.append(...children);
  if (root.id === 'ring') now.setAttribute('aria-label', summary);
  morph(root, now);
}

function stateOf({ state, epoch }) {
  const words = { open: 'open', closed: 'the model is not in memory', repairing: 'repairs itself', failed: 'the last batch failed' };
  return `${words[state] ?? state}, epoch ${epoch}`;
}

/** Is spoken by screen readers, so that it changes only when there is something new. */
function setState(text) {
  if ($('state').textContent !== text) $('state').textContent = text;
}

function numbers(ring) {
  const pairs = [
    ['Model', ring.model],
    ['Coordinator', ring.coordinator],
    ['One text', speed(ring.measured.decode_tok_s, ring.expected.decode_tok_s)],
    ['All texts', speed(ring.measured.users_tok_s, ring.expected.users_tok_s)],
    ['A token', known(ring.lap_us, (us) => `${millis(us)} ms round the ring`)],
    ['Links and queues', known(ring.hops_us, (us) => `${millis(us)} ms of it`)],
    ['Batches', `${number(ring.n_batches)} with ${number(ring.n_rows)} rows`],
    ['Repairs', `${number(Math.max(0, ring.n_fences - 1))} (${number(ring.n_rebuilds)} with all texts)`],
    ['Audits', known(ring.audit, (audit) => `${number(audit.n_rows)} rows of ${number(audit.n_drawn)} texts, ${number(audit.n_faults)} wrong`)],
  ];
  return pairs.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value)));
}

function speed(measured, expected) {
  return `${known(measured, tokens)} (expected ${known(expected, (value) => number(value, 1))})`;
}

const layersOf = ({ first_layer, end_layer }) => (first_layer < end_layer ? `${first_layer} to ${end_layer - 1}` : 'none');

function row(node) {
  const { link } = node;
  const right = (text, style = '') => el('td', { className: `right ${style}` }, text);
  return el('tr', {},
    el('th', { scope: 'row' }, node.node),
    el('td', { className: node.state === 'silent' ? 'bad' : '' }, node.state, ' ', el('small', {}, note(node))),
    el('td', {}, layersOf(node)),
    right(`${number(100 * node.share)} %`),
    right(known(node.memory_held_bytes, bytes)),
    right(known(node.memory_free_bytes, bytes)),
    right(known(node.layer_us, millis)),
    right(known(node.compute_us, millis)),
    right(known(node.bytes_out, bytes)),
    el('td', {}, link ? link.to : '–'),
    right(link ? `${millis(link.rtt_p50_us)} ms` : '–'),
    right(link ? number(link.bytes_per_s / 1e6) : '–'),
    right(`${known(node.celsius, (celsius) => number(celsius))}${node.is_throttled ? ' throttled' : ''}`, node.is_throttled ? 'warn' : ''));
}

function note({ why, address, heard_s }) {
  const heard = heard_s > 10 ? `heard ${ago(heard_s)}` : '';
  return [why, address, heard].filter(Boolean).join(', ');
}

function event({ node, ago_s, event: text }) {
  return el('li', {}, el('span', {}, ago(ago_s)), el('span', {}, node), el('div', {}, text));
}

function ago(seconds) {
  if (seconds < 120) return `${number(seconds)} s ago`;
  return seconds < 7200 ? `${number(seconds / 60)} min ago` : `${number(seconds / 3600)} h ago`;
}

// The picture

let summary = '';

function picture(ring) {
  const { nodes, measured, expected } = ring;
  summary = `A ring of ${nodes.length} machines: ${nodes.map((node) => `${node.node}, ${node.state}, layers ${layersOf(node)}`).join('; ')}.`;
  const share = (node) => Math.max(LEAST, node.share);
  const whole = nodes.reduce((sum, node) => sum + share(node), 0);
  let begin = -Math.PI / 2;
  const parts = nodes.flatMap((node, i) => {
    const end = begin + 2 * Math.PI * share(node) / whole;
    const drawn = [arc(begin, end, styleOf(node, i)), head(begin), label(node, (begin + end) / 2, nodes.length)];
    begin = end;
    return drawn;
  });
  return [...parts, ...centre(measured.decode_tok_s ?? measured.users_tok_s, expected.decode_tok_s)];
}

function styleOf(node, i) {
  return [node.state, node.is_throttled && 'hot', i % 2 && 'odd'].filter(Boolean).join(' ');
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const at = (angle, radius) => [radius * Math.cos(angle), radius * Math.sin(angle)].map((x) => x.toFixed(1));

function arc(begin, end, style) {
  const [from, to] = [begin + GAP / 2, Math.max(begin + GAP, end - GAP / 2)];
  const large = to - from > Math.PI ? 1 : 0;
  return svg('path', { class: style, d: `M${at(from, RADIUS)}A${RADIUS} ${RADIUS} 0 ${large} 1 ${at(to, RADIUS)}` });
}

/** The direction in which rows travel, where a machine begins. */
function head(angle) {
  const tip = at(angle + GAP / 2, RADIUS - 18);
  return svg('polygon', { points: `${at(angle - GAP, RADIUS - 23)} ${tip} ${at(angle - GAP, RADIUS - 13)}` });
}

function label(node, angle, n) {
  const [x, y] = at(angle, RADIUS + 26).map(Number);
  const anchor = Math.abs(Math.cos(angle)) < 0.2 ? 'middle' : x < 0 ? 'end' : 'start';
  const details = [
    `layers ${layersOf(node)}`,
    [known(node.compute_us, (us) => `${millis(us)} ms`), known(node.celsius, (celsius) => `${number(celsius)} °C`)].filter((text) => text !== '–').join(' · '),
  ].filter(Boolean);
  const lines = n > MOST_DETAILS ? [] : details;
  // Above the ring its last line is next to it, beside it the middle, below it the first one.
  const top = y + 4 + 6 * Math.sin(angle) - 8 * lines.length * (1 - Math.sin(angle));
  return svg('text', { 'text-anchor': anchor, x, y: top.toFixed(1) },
    svg('tspan', { class: 'name', x }, shortened(node.node)),
    ...lines.map((line) => svg('tspan', { x, dy: 16 }, line)));
}

/** A name that has room beside the ring; the table has all of it. */
function shortened(name) {
  const letters = [...name];
  return letters.length > MAX_NAME ? `${letters.slice(0, MAX_NAME - 1).join('')}…` : name;
}

function centre(measured, expected) {
  const line = (text, y, style) => svg('text', { class: style, 'text-anchor': 'middle', x: 0, y }, text);
  return [
    line(known(measured, (value) => number(value, value < 100 ? 1 : 0)), 6, 'speed'),
    line('tokens/s', 26, ''),
    line(`expected ${known(expected, (value) => number(value, 1))}`, 44, ''),
  ];
}

// Start

function start() {
  document.documentElement.dataset.theme = localStorage.getItem('atta.theme') ?? 'auto';
  $('connection').addEventListener('submit', (submit) => {
    submit.preventDefault();
    sessionStorage.setItem('atta.key', $('key').value.trim());
    refresh();
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  poll();
}

start();

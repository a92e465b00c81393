// The chat page. A conversation is the list of messages that the interface takes; what only the page needs (`stats`,
// `error`, …) stands beside those fields, and `wire` leaves it out. First the state, then the network, then the views.

import { ask, eventsOf, Failure, metric } from './api.js';
import {
  branch, changeOf, draftOf, dropChat, importedChats, isEmpty, keepDraft, loadChats, matches, newChat, saveChat, showVersion, store,
  titleFrom, titleOf,
} from './chats.js';
import { codeBlock, prettyJson } from './code.js';
import { el, morph } from './dom.js';
import { Markdown } from './markdown.js';
import { copyTex } from './math.js';
import { BadSetting, checkSchema, checkTools, requestOf } from './request.js';

const $ = (id) => document.getElementById(id);
const on = (target, type, act) => target.addEventListener(type, act);
const NARROW = matchMedia('(max-width: 60rem)');

const chats = new Map();
const runs = new Map(); // id of a conversation → {answer, controller}
const server = { models: [], n_ctx: 0, tools: true, metrics: {} };
let chat = null;
let views = new Map(); // answer → its view, of the conversation that is shown
let stick = true; // whether the thread follows its end

// Conversations

function save(which) {
  if (!which.messages.length || which.deleted) return;
  chats.set(which.id, which);
  if (!saveChat(which)) notify('This browser has no room left: delete some conversations.');
  showChats();
}

function openChat(which) {
  chat = which;
  notify('');
  showAddress();
  showDraft();
  fillSettings();
  showThread();
  showChats();
  showMeters();
  toEnd();
  if (!NARROW.matches) $('input').focus();
}

/** The conversation is in the address, so that it has a place in the history, and can be a bookmark. */
function showAddress() {
  const address = chat.messages.length ? `#${chat.id}` : '';
  if (address !== location.hash) history.pushState(null, '', address || location.pathname);
}

/** The conversation of the address, or a new one. */
function openAddress() {
  const id = location.hash.slice(1);
  const found = chats.get(id);
  if (found && found === chat) return;
  openChat(found ?? newChat(chat ?? byTime()[0]));
  if (id && !found) notify('This browser does not have that conversation.');
}

function showDraft() {
  $('input').value = draftOf(chat);
  fit($('input'));
}

/** Takes over what another tab has changed. */
function takeChange(change) {
  if (!change || runs.has(change.id)) return;
  if (change.chat) chats.set(change.id, change.chat);
  else chats.delete(change.id);
  if (change.id === chat.id && change.chat) openChat(change.chat);
  else showChats();
}

function deleteChat(which) {
  runs.get(which.id)?.controller.abort();
  which.deleted = true;
  chats.delete(which.id);
  dropChat(which);
  if (which === chat) openChat(byTime()[0] ?? newChat(chat));
  else showChats();
  notify(`Deleted “${titleOf(which)}”.`, { label: 'Undo', act: () => { delete which.deleted; save(which); openChat(which); } });
}

function exportChats(content, name) {
  const file = new Blob([JSON.stringify(content, null, 2)], { type: 'application/json' });
  el('a', { href: URL.createObjectURL(file), download: `${name}.json` }).click();
}

async function importChats(file) {
  try {
    const found = importedChats(await file.text());
    const fresh = found.filter(({ id }) => !chats.has(id));
    fresh.forEach(save);
    if (fresh.length) openChat(fresh[0]);
    notify(`${number(fresh.length)} imported${fresh.length < found.length ? `, ${number(found.length - fresh.length)} are here already` : ''}.`);
  } catch (error) {
    notify(`“${file.name}” cannot be imported: ${error.message}`);
  }
}

const byTime = () => [...chats.values()].sort((a, b) => b.updated - a.updated);
const running = () => runs.get(chat.id);
const stop = () => running()?.controller.abort();

// Answers

async function answer(versions) {
  const which = chat;
  const message = { role: 'assistant', content: '', json: chat.settings.format !== 'text', ...(versions && { versions }) };
  const run = { answer: message, controller: new AbortController(), n_chunks: 0 };
  runs.set(which.id, run);
  which.messages.push(message);
  save(which);
  showAddress();
  showThread();
  try {
    const body = JSON.stringify(requestOf(chat, $('model').value || 'default', server.tools));
    const received = receive(run, body);
    countPrompt(run, body);
    await received;
  } catch (error) {
    if (error instanceof BadSetting) togglePanel('panel', true);
    if (error.name === 'AbortError') message.stopped = true;
    else if (!message.stopped) message.error = error instanceof Failure ? error.message : `The answer could not be read: ${error.message}`;
  }
  finish(which, run);
}

/** Asks how long the prompt is, for the meter, while it is read. */
async function countPrompt(run, body) {
  try {
    const response = await ask('v1/chat/completions/input_tokens', { method: 'POST', body, signal: run.controller.signal });
    run.n_prompt = (await response.json()).input_tokens;
    showMeters();
  } catch { /* The answer says why. */ }
}

async function receive(run, body) {
  const response = await ask('v1/chat/completions', { method: 'POST', body, signal: run.controller.signal });
  for await (const chunk of eventsOf(response)) {
    if (chunk.error) throw new Failure(chunk.error.message ?? String(chunk.error));
    if (chunk.usage) Object.assign(run, { usage: chunk.usage, timings: chunk.timings });
    const choice = chunk.choices?.[0];
    if (choice?.finish_reason) run.answer.finish = choice.finish_reason;
    if (choice?.delta) take(run, choice.delta);
  }
}

function take(run, delta) {
  const message = run.answer;
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (!delta.content && !thought && !delta.tool_calls) return;
  run.n_chunks += 1;
  if (thought) message.reasoning = (message.reasoning ?? '') + thought;
  if (delta.content) message.content += delta.content;
  for (const piece of delta.tool_calls ?? []) takeCall(message, piece);
  message.stats = statsOf(run);
  refresh(message);
}

function takeCall(message, piece) {
  message.tool_calls ??= [];
  const call = (message.tool_calls[piece.index ?? 0] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
  call.id ||= piece.id ?? '';
  call.function.name += piece.function?.name ?? '';
  call.function.arguments += piece.function?.arguments ?? '';
}

/** What the server counted and measured; until then, or without it, a chunk is taken for a token. */
function statsOf({ n_chunks, n_prompt, usage, timings }) {
  return {
    tokens: usage?.completion_tokens ?? n_chunks,
    exact: Boolean(usage),
    prompt: usage?.prompt_tokens ?? n_prompt,
    cached: usage?.prompt_tokens_details?.cached_tokens,
    wait_ms: timings?.prompt_ms,
    write_ms: timings?.predicted_ms,
  };
}

function finish(which, run) {
  const message = run.answer;
  runs.delete(which.id);
  if (message.stats || (message.stopped && run.n_prompt)) message.stats = statsOf(run);
  dropBrokenCalls(message);
  which.updated = Date.now();
  save(which);
  if (which === chat) showRunning();
  views.get(message)?.();
  readMetrics();
  if (which === chat) announce(message);
}

/** Calls that a stop or the length limit has cut cannot be sent back to the server. */
function dropBrokenCalls(message) {
  if (!message.tool_calls) return;
  const whole = message.tool_calls.filter((call) => !message.stopped && !message.error && !problemOf(JSON.parse, call?.function.arguments));
  if (whole.length) message.tool_calls = whole;
  else delete message.tool_calls;
}

function announce(message) {
  const calls = message.tool_calls?.map((call) => `Calls ${call.function.name}. `).join('') ?? '';
  $('announce').textContent = `${calls}${message.content} ${message.error ?? ''} ${message.stopped ? 'Stopped.' : ''}`;
}

function send(text, versions) {
  if (running() || !text.trim()) return false;
  if (openCalls().length) return notify('First give the results of the tool calls.'), false;
  notify('');
  chat.title ||= titleFrom(text);
  chat.messages.push({ role: 'user', content: text, ...(versions && { versions }) });
  chat.updated = Date.now();
  stick = true;
  answer();
  return true;
}

function regenerate() {
  if (running()) return;
  notify('');
  answer(branch(chat.messages, chat.messages.length - 1));
}

function turnTo(index, at) {
  if (running()) return;
  showVersion(chat.messages, index, at);
  save(chat);
  stick = false;
  showThread();
  showMeters();
}

/** The calls of the last answer that have no result yet. */
function openCalls() {
  const last = chat.messages.at(-1);
  return last?.role === 'assistant' ? last.tool_calls ?? [] : [];
}

function sendResults() {
  const fields = $('thread').querySelectorAll('.turn:last-child .call textarea');
  openCalls().forEach(({ id }, i) => chat.messages.push({ role: 'tool', tool_call_id: id, content: fields[i].value }));
  answer();
}

// The thread

function showThread() {
  views = new Map();
  $('thread').replaceChildren(...chat.messages.flatMap((message, i) => turn(message, i)));
  $('title').textContent = titleOf(chat);
  document.title = chat.title ? `${chat.title} – atta` : 'atta';
  showRunning();
  follow();
}

function showRunning() {
  $('send').dataset.does = running() ? 'stop' : 'send';
  $('send').textContent = running() ? 'Stop' : 'Send';
  showChats();
}

function turn(message, index) {
  if (message.role === 'user') return userTurn(message, index);
  return message.role === 'assistant' ? answerTurn(message) : [];
}

function userTurn(message, index) {
  const node = el('article.turn.user', {},
    el('h2.sr', {}, 'You'),
    el('div.body', {}, message.content),
    el('span.actions', {}, ...versionsOf(message), button('Edit', () => editTurn(node, message, index))));
  return node;
}

function editTurn(node, message, index) {
  if (running()) return;
  const area = el('textarea', { value: message.content, rows: 1, 'aria-label': 'Edit your message' });
  const done = () => {
    if (running() || !area.value.trim()) return;
    send(area.value, branch(chat.messages, index));
  };
  on(area, 'keydown', (event) => { if (isEnter(event)) event.preventDefault(), done(); });
  openEditor(node, area, { label: 'Send', done, note: 'What follows now stays as a version.' });
}

/** Puts a field in the place of a turn. */
function openEditor(node, area, { label, done, note }) {
  const cancel = () => { showThread(); $('input').focus(); };
  on(area, 'keydown', (event) => {
    if (event.key === 'Escape') event.stopPropagation(), cancel();
  });
  on(area, 'input', () => fit(area));
  node.replaceChildren(el('div.edit', {}, area,
    el('div.row', {}, button(label, done, 'primary'), button('Cancel', cancel, 'plain'), el('p.note', {}, note))));
  fit(area);
  area.focus();
}

function editAnswer(node, message) {
  if (running()) return;
  const area = el('textarea', { value: message.content, rows: 1, 'aria-label': 'Edit the answer' });
  const done = () => {
    message.content = area.value;
    save(chat);
    showThread();
  };
  openEditor(node, area, { label: 'Save', done, note: 'The model will take it for its own words.' });
}

/** Where there are several versions from a message on: which is shown, and the way to the others. */
function versionsOf(message) {
  const { at, tails } = message.versions ?? { at: 0, tails: [] };
  if (tails.length < 2) return [];
  const to = (label, sign, place) => {
    const node = button(sign, () => turnTo(chat.messages.indexOf(message), place));
    node.disabled = !tails[place];
    node.setAttribute('aria-label', label);
    return node;
  };
  return [el('span.versions', {}, to('Version before', '‹', at - 1), `${at + 1} / ${tails.length}`, to('Next version', '›', at + 1))];
}

function answerTurn(message) {
  const parts = {
    thoughts: el('details.thoughts', {}, el('summary'), el('div')),
    body: el('div.body.md'),
    calls: el('div.calls'),
    failure: el('p.failure'),
    stats: el('span.stats'),
    actions: el('span.actions'),
  };
  const node = el('article.turn.assistant', {},
    el('h2.sr', {}, 'Answer'), parts.thoughts, parts.body, parts.calls, parts.failure,
    el('footer.foot', {}, parts.stats, parts.actions));
  const body = new Markdown(parts.body);
  const update = () => updateAnswer(message, node, parts, body);
  views.set(message, update);
  update();
  return node;
}

function updateAnswer(message, node, parts, body) {
  const live = running()?.answer === message;
  node.dataset.state = live ? 'live' : message.error ? 'failed' : message.stopped ? 'stopped' : 'done';
  node.setAttribute('aria-busy', live);
  parts.body.classList.toggle('waiting', live && isEmpty(message));
  showThoughts(parts.thoughts, message, live);
  if (message.json) showJson(parts.body, message.content);
  else body.update(message.content, live);
  parts.calls.replaceChildren(...callCards(message, live));
  parts.failure.textContent = message.error ?? '';
  parts.failure.hidden = !message.error;
  parts.stats.textContent = statsLine(message, live);
  parts.actions.replaceChildren(...(live ? [] : answerActions(message, node)));
  follow();
}

function showJson(root, content) {
  if (!content) return;
  const block = codeBlock(prettyJson(content), 'json');
  if (root.firstChild) morph(root.firstChild, block);
  else root.append(block);
}

function answerActions(message, node) {
  const copy = button('Copy', () => copyText(copy, message.content));
  const edit = button('Edit', () => editAnswer(node, message));
  const again = button(message.error ? 'Try again' : 'Regenerate', regenerate);
  const isLast = message === chat.messages.at(-1);
  return [...versionsOf(message), ...(message.content ? [copy, edit] : []), ...(isLast ? [again] : [])];
}

function showThoughts(view, { reasoning, content, tool_calls }, live) {
  view.hidden = !reasoning;
  view.firstChild.textContent = live && !content && !tool_calls ? 'Thinking …' : 'Thoughts';
  view.lastChild.textContent = reasoning?.trim() ?? '';
}

function statsLine({ stats, stopped, finish: reason }, live) {
  const marks = [stopped && 'stopped', reason === 'length' && 'cut at the token limit'].filter(Boolean);
  if (!stats || live && stats.tokens < 2) return marks.join(' · ');
  // The first token is the prompt's: its time is the wait.
  const speed = stats.tokens > 1 && stats.write_ms > 0 ? `${number((stats.tokens - 1) / stats.write_ms * 1000, 1)} tokens/s` : '';
  const tokens = stats.tokens && `${stats.exact ? '' : '≈ '}${number(stats.tokens)} ${stats.tokens === 1 ? 'token' : 'tokens'}`;
  const cached = stats.cached ? ` (${number(stats.cached)} cached)` : '';
  const wait = stats.wait_ms === undefined ? '' : ` in ${number(stats.wait_ms / 1000, 1)} s`;
  const prompt = stats.prompt ? `prompt ${number(stats.prompt)}${cached}${wait}` : '';
  return [tokens, speed, prompt, ...marks].filter(Boolean).join(' · ');
}

const number = (value, digits = 0) => value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

function callCards(message, live) {
  if (!message.tool_calls) return [];
  const open = !live && message === chat.messages.at(-1);
  const cards = message.tool_calls.filter(Boolean).map((call) => callCard(call, open));
  if (open) cards.push(el('div.row', {}, button(cards.length > 1 ? 'Send results' : 'Send result', sendResults, 'primary')));
  return cards;
}

function callCard(call, open) {
  const name = call.function.name;
  const card = el('section.call', { 'aria-label': `Call of ${name}` }, el('h3', {}, el('span', {}, 'calls '), name), el('pre', {}, prettyJson(call.function.arguments)));
  const result = chat.messages.find((message) => message.role === 'tool' && message.tool_call_id === call.id);
  if (result) card.append(el('div.result', {}, 'Result', el('pre', {}, result.content)));
  else if (open) card.append(resultField());
  return card;
}

function resultField() {
  const area = el('textarea', { rows: 2, placeholder: 'What the tool answers', spellcheck: false });
  on(area, 'input', () => fit(area));
  return el('label.result', {}, 'Result', area);
}

const dirty = new Set();

/** Shows what has come for `message`, once per frame. */
function refresh(message) {
  if (!dirty.size) requestAnimationFrame(() => { for (const each of dirty) views.get(each)?.(); dirty.clear(); showMeters(); });
  dirty.add(message);
}

function follow() {
  if (stick) $('scroll').scrollTop = $('scroll').scrollHeight;
  $('down').hidden = stick;
}

function toEnd() {
  stick = true;
  follow();
}

function button(label, act, style = '') {
  const node = el('button', { type: 'button', className: style }, label);
  on(node, 'click', act);
  return node;
}

async function copyText(node, text) {
  const label = node.textContent;
  await (navigator.clipboard?.writeText(text) ?? copyByHand(text));
  node.textContent = 'Copied';
  setTimeout(() => { node.textContent = label; }, 1500);
}

/** For plain http from another machine, where there is no clipboard interface. */
function copyByHand(text) {
  const area = el('textarea', { value: text, className: 'sr' });
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** A line above the message field; `action` is {label, act}. */
function notify(text, action) {
  const close = button(action?.label ?? 'Dismiss', () => { notify(''); action?.act(); });
  $('notice').replaceChildren(...(text ? [el('span', {}, text), close] : []));
}

// The list of conversations

function showChats() {
  if ($('chats').querySelector('input')) return;
  const query = $('search').value.trim();
  const found = query ? byTime().filter((which) => matches(which, query)) : byTime();
  $('chats').replaceChildren(...(found.length ? found.map(chatRow) : query ? [el('li.none', {}, 'None has these words.')] : []));
  $('search').hidden = $('export').hidden = !chats.size;
}

function chatRow(which) {
  const open = button(titleOf(which), () => { openChat(which); if (NARROW.matches) togglePanel('nav', false); }, 'open');
  if (which === chat) open.setAttribute('aria-current', 'true');
  const row = el('li', { className: `${which === chat ? 'current' : ''} ${runs.has(which.id) ? 'busy' : ''}` }, open, el('span.tools', {},
    icon('rename', 'Rename', which, () => renameRow(row, which)),
    icon('export', 'Export', which, () => exportChats(which, titleOf(which))),
    icon('delete', 'Delete', which, () => deleteChat(which))));
  return row;
}

function icon(name, label, which, act) {
  const node = button('', act, 'icon');
  const svg = $('down').firstChild.cloneNode(true);
  svg.firstChild.setAttribute('href', `#i-${name}`);
  node.setAttribute('aria-label', `${label} ${titleOf(which)}`);
  node.title = label;
  node.append(svg);
  return node;
}

function renameRow(row, which) {
  const field = el('input', { value: which.title, 'aria-label': 'Title' });
  let ended = false;
  const end = (keep) => {
    // Some browsers blur a field while it is removed.
    if (ended) return;
    ended = true;
    if (keep && field.value.trim()) which.title = field.value.trim();
    row.replaceChildren();
    save(which);
    $('title').textContent = titleOf(chat);
  };
  on(field, 'blur', () => end(true));
  on(field, 'keydown', (event) => {
    if (isEnter(event)) end(true);
    if (event.key === 'Escape') event.stopPropagation(), end(false);
  });
  row.replaceChildren(field);
  field.select();
}

// Settings

function fillSettings() {
  for (const field of $('settings').elements) if (field.name) field.value = chat.settings[field.name] ?? '';
  showModels();
  showSettings();
}

function changeSetting({ target: { name, value } }) {
  chat.settings[name] = value;
  save(chat);
  showSettings();
}

function showSettings() {
  const { format, schema, tools } = chat.settings;
  $('schema-field').hidden = format !== 'schema';
  $('tools-field').hidden = !server.tools;
  showProblem('schema', schema.trim() ? problemOf(checkSchema, schema) : '');
  showProblem('tools', problemOf(checkTools, tools));
  showModes(format, tools);
}

function problemOf(check, text) {
  try { check(text); return ''; } catch (error) { return error.message; }
}

function showProblem(name, problem) {
  $(`${name}-error`).textContent = problem;
  $('settings').elements[name].setAttribute('aria-invalid', Boolean(problem));
}

function showModes(format, tools) {
  const modes = [{ json: 'JSON', schema: 'JSON Schema' }[format], server.tools && tools.trim() && 'Tools'].filter(Boolean);
  $('modes').hidden = !modes.length;
  $('modes').textContent = modes.join(', ');
}

function showModels() {
  const select = $('model');
  select.replaceChildren(...server.models.map((name) => el('option', { value: name }, name)));
  select.value = server.models.includes(chat.settings.model) ? chat.settings.model : server.models[0] ?? '';
  select.disabled = server.models.length < 2;
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').value = theme;
}

function togglePanel(id, open = $(id).hidden) {
  const panel = $(id);
  if (panel.hidden !== open) return;
  const hadFocus = panel.contains(document.activeElement);
  panel.hidden = !open;
  $(`toggle-${id}`).setAttribute('aria-expanded', open);
  coverMain();
  if (open && NARROW.matches) panel.querySelector('.close').focus();
  else if (hadFocus) $(`toggle-${id}`).focus();
}

function coverMain() {
  const covered = NARROW.matches && !($('nav').hidden && $('panel').hidden);
  document.body.classList.toggle('covered', covered);
  $('main').inert = covered;
}

function closePanels() {
  togglePanel('nav', false);
  togglePanel('panel', false);
}

// The server

async function readServer() {
  try {
    const { data } = await (await ask('v1/models')).json();
    server.models = data.map((model) => model.id);
  } catch (error) {
    notify(error.message, { label: 'Try again', act: readServer });
  }
  await readProps();
  fillSettings();
  readMetrics();
}

async function readProps() {
  try {
    const props = await (await ask('props')).json();
    server.n_ctx = props.n_ctx ?? 0;
    server.tools = props.tools ?? true;
    if (!server.models.length && props.model) server.models = [props.model];
  } catch { /* The page works without. */ }
}

async function readMetrics() {
  try {
    const text = await (await ask('metrics')).text();
    server.metrics = { bytes: metric(text, 'memory_bytes'), kv: metric(text, 'kv_tokens'), kvMax: metric(text, 'kv_tokens_max'), machines: metric(text, 'ring_nodes') };
  } catch { /* nor does it need these */ }
  showMeters();
}

function showMeters() {
  const { bytes, kv, kvMax, machines } = server.metrics;
  showContext(contextUsed(), server.n_ctx || kvMax || 0);
  $('cluster').hidden = !machines;
  $('cluster').textContent = `Ring of ${number(machines ?? 0)} machines`;
  $('memory').hidden = !bytes;
  $('memory').textContent = bytes ? `${size(bytes)} memory` : '';
  $('memory').title = kvMax ? `${number(kv)} of ${number(kvMax)} tokens are kept` : '';
}

/** Tokens of the prompt and the answer, of the running one as far as it is. */
function contextUsed() {
  const run = running();
  if (run?.n_prompt) return run.n_prompt + run.n_chunks;
  const stats = chat.messages.findLast((message) => message.stats?.prompt)?.stats;
  return stats ? stats.prompt + stats.tokens : 0;
}

function showContext(used, limit) {
  const meter = $('context');
  meter.hidden = !limit;
  meter.setAttribute('aria-valuemax', limit);
  meter.setAttribute('aria-valuenow', used);
  meter.classList.toggle('full', used > 0.9 * limit);
  meter.style.setProperty('--part', `${Math.min(100, 100 * used / (limit || 1))}%`);
  meter.lastChild.textContent = `${number(used)} / ${number(limit)}`;
}

function size(bytes) {
  return bytes < 1e9 ? `${number(bytes / 1e6)} MB` : `${number(bytes / 1e9, 2)} GB`;
}

// The keyboard and the rest

const isEnter = (event) => event.key === 'Enter' && !event.shiftKey && !event.isComposing;

function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

function submit() {
  const text = $('input').value;
  keepDraft(chat, '');
  if (send(text)) $('input').value = '';
  changeInput();
}

function changeInput() {
  fit($('input'));
  keepDraft(chat, $('input').value);
}

function composerKey(event) {
  if (isEnter(event)) event.preventDefault(), submit();
  if (event.key === 'ArrowUp' && !$('input').value && !event.isComposing) editLast(event);
}

function editLast(event) {
  const index = chat.messages.findLastIndex((message) => message.role === 'user');
  if (index < 0 || running()) return;
  event.preventDefault();
  editTurn([...$('thread').querySelectorAll('.turn.user')].at(-1), chat.messages[index], index);
}

function pageKey(event) {
  if (event.key === 'k' && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    startChat();
  }
  if (event.key === 'Escape') $('main').inert ? closePanels() : stop();
}

function startChat() {
  if (NARROW.matches) closePanels();
  openChat(newChat(chat));
  $('input').focus();
}

function leave() {
  for (const [id, run] of runs) {
    run.answer.stopped = true;
    dropBrokenCalls(run.answer);
    save(chats.get(id));
  }
}

function listen() {
  on($('composer'), 'submit', (event) => { event.preventDefault(); running() ? stop() : submit(); });
  on($('input'), 'keydown', composerKey);
  on($('input'), 'input', changeInput);
  on($('search'), 'input', showChats);
  on($('import'), 'click', () => $('file').click());
  on($('file'), 'change', ({ target }) => { if (target.files[0]) importChats(target.files[0]); target.value = ''; });
  on($('export'), 'click', () => exportChats(byTime(), 'conversations'));
  on($('new'), 'click', startChat);
  on($('down'), 'click', toEnd);
  on($('modes'), 'click', () => togglePanel('panel', true));
  on($('scrim'), 'click', closePanels);
  on($('settings'), 'input', changeSetting);
  on($('model'), 'change', ({ target }) => { chat.settings.model = target.value; save(chat); });
  on($('key'), 'change', ({ target }) => { sessionStorage.setItem('atta.key', target.value.trim()); notify(''); readServer(); });
  for (const form of [$('settings'), $('connection')]) on(form, 'submit', (event) => event.preventDefault());
  on($('theme'), 'change', ({ target }) => { showTheme(target.value); store('atta.theme', target.value); });
  for (const id of ['nav', 'panel']) {
    on($(`toggle-${id}`), 'click', () => togglePanel(id));
    on($(id).querySelector('.close'), 'click', () => togglePanel(id, false));
  }
  on($('thread'), 'click', ({ target }) => target.matches('.copy') && copyText(target, target.closest('.code').querySelector('code').textContent));
  on($('thread'), 'copy', copyTex);
  on($('scroll'), 'scroll', ({ target }) => { stick = target.scrollHeight - target.scrollTop - target.clientHeight < 48; $('down').hidden = stick; });
  for (const part of [$('scroll'), $('composer')]) new ResizeObserver(follow).observe(part);
  on(NARROW, 'change', coverMain);
  on(document, 'keydown', pageKey);
  on(window, 'pagehide', leave);
  on(window, 'popstate', openAddress);
  on(window, 'storage', (event) => takeChange(changeOf(event)));
}

function start() {
  showTheme(localStorage.getItem('atta.theme') ?? 'auto');
  $('key').value = sessionStorage.getItem('atta.key') ?? '';
  for (const saved of loadChats()) chats.set(saved.id, saved);
  listen();
  togglePanel('nav', !NARROW.matches);
  openAddress();
  readServer();
}

start();

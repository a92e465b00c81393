// Conversations in this browser: kept, searched, imported, and their versions. Knows neither the page nor the server. A
// conversation is {id, title, updated, settings, messages}. Where it was answered anew from some message on, that message has
// `versions`: {at, tails}, all ends from there on; the place `at` is null, since that end is the one in `messages`.

const CHAT = 'atta.chat.';
const DRAFT = 'atta.draft.';
const NO_SETTINGS = { model: '', system: '', format: 'text', schema: '', tools: '', tool_choice: 'auto' };
const MAX_TITLE = 60;

export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

/** A conversation without messages; its settings begin with those of `from`. */
export function newChat(from) {
  return { id: newId(), title: '', updated: Date.now(), settings: { ...NO_SETTINGS, ...from?.settings }, messages: [] };
}

export const titleOf = (chat) => chat.title || 'New chat';
export const titleFrom = (text) => text.trim().replace(/\s+/g, ' ').slice(0, MAX_TITLE);

// Storage

/** All conversations of this browser. */
export function loadChats() {
  return Object.keys(localStorage).filter((key) => key.startsWith(CHAT)).map((key) => read(localStorage.getItem(key))).filter(Boolean);
}

function read(text) {
  try { return checked(JSON.parse(text)); } catch { return null; } // not ours
}

/** Whether there was room for it. */
export const saveChat = (chat) => store(CHAT + chat.id, JSON.stringify(chat));

export function dropChat(chat) {
  localStorage.removeItem(CHAT + chat.id);
  keepDraft(chat, '');
}

export function store(key, value) {
  try { localStorage.setItem(key, value); return true; } catch { return false; }
}

/** What another tab did to a conversation: {id, chat}, without `chat` if it was deleted. */
export function changeOf({ key, newValue }) {
  return key?.startsWith(CHAT) ? { id: key.slice(CHAT.length), chat: newValue === null ? null : read(newValue) } : null;
}

// Drafts: one for each conversation, and one for the next.

const draftKey = (chat) => DRAFT + (chat.messages.length ? chat.id : 'new');

export const draftOf = (chat) => localStorage.getItem(draftKey(chat)) ?? '';

export function keepDraft(chat, text) {
  if (text) store(draftKey(chat), text);
  else localStorage.removeItem(draftKey(chat));
}

// Search

/** Whether title or messages have all words of `query`. */
export function matches(chat, query) {
  const text = [chat.title, ...chat.messages.map((message) => message.content ?? '')].join('\n').toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

// Import

/** The conversations in the text of an exported file, of one or of all. Throws where it is none. */
export function importedChats(text) {
  return [JSON.parse(text)].flat().map(checked);
}

function checked(chat) {
  if (!Array.isArray(chat?.messages) || !chat.messages.every(isMessage)) throw new Error('it is no conversation of this page');
  return {
    id: /^[\w.-]{1,64}$/.test(chat.id) ? chat.id : newId(),
    title: titleFrom(String(chat.title ?? '')),
    updated: Number(chat.updated) || Date.now(),
    settings: { ...NO_SETTINGS, ...Object.fromEntries(Object.entries(chat.settings ?? {}).filter(([, value]) => typeof value === 'string')) },
    messages: filled(chat.messages),
  };
}

/** The messages with a text each: OpenAI's have none beside calls. */
function filled(messages) {
  for (const message of messages) {
    message.content ??= '';
    message.versions?.tails.forEach((tail) => tail && filled(tail));
  }
  return messages;
}

function isMessage(message) {
  const { role, content, reasoning, error, tool_calls, stats, versions } = message ?? {};
  return ['user', 'assistant', 'tool'].includes(role)
    && [content, reasoning, error].every((text) => text === undefined || text === null || typeof text === 'string')
    && (stats === undefined || (typeof stats?.tokens === 'number' && Object.values(stats).every((value) => typeof value !== 'object' || value === null)))
    && (tool_calls === undefined || tool_calls === null || (Array.isArray(tool_calls) && tool_calls.every(isCall)))
    && (versions === undefined || areVersions(versions));
}

const isCall = (call) => [call?.id, call?.function?.name, call?.function?.arguments].every((text) => typeof text === 'string');

const areVersions = ({ at, tails }) => Array.isArray(tails) && tails[at] === null
  && tails.every((tail, i) => (i === at ? true : Array.isArray(tail) && tail.length > 0 && tail.every(isMessage)));

// Versions

export const isEmpty = (message) => !message.content && !message.tool_calls?.length;

/** Takes the messages from `index` on away, as a version; the message that comes there has to have the result as `versions`. */
export function branch(messages, index) {
  const tail = messages.splice(index);
  const versions = tail[0].versions ?? { at: 0, tails: [null] };
  delete tail[0].versions;
  // An answer that failed is no version.
  if (tail[0].role === 'assistant' && isEmpty(tail[0])) return versions.tails.length > 1 ? versions : undefined;
  versions.tails[versions.at] = tail;
  versions.at = versions.tails.push(null) - 1;
  return versions;
}

/** Shows another version from `index` on. */
export function showVersion(messages, index, at) {
  const { versions } = messages[index];
  delete messages[index].versions;
  versions.tails[versions.at] = messages.splice(index);
  messages.push(...versions.tails[at]);
  versions.tails[at] = null;
  versions.at = at;
  messages[index].versions = versions;
}

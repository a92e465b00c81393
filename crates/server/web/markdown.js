// Markdown to DOM nodes. Text only becomes text nodes, never markup, so an answer cannot inject anything. While a text
// comes, `Markdown.update` touches only what changed, so selections and scroll positions survive.

const MAX_DEPTH = 8;
const MAX_COLOURED = 60_000;

/** Creates an element: `el('a.class', {href}, 'text', child)`. Keys with a dash become attributes, others properties. */
export function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(' ');
  for (const [key, value] of Object.entries(props)) {
    if (key.includes('-')) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.flat());
  return node;
}

/** A view of one Markdown text within `root`. */
export class Markdown {
  constructor(root) {
    this.root = root;
    this.keys = [];
  }

  /** Shows `text`; `open` says that more will come, and then what is not yet decided is not shown. */
  update(text, open = false) {
    const blocks = split(toLines(open ? settled(text) : text), { open, depth: 0 });
    blocks.forEach((block, i) => this.#place(block, i));
    while (this.root.childNodes.length > blocks.length) this.root.lastChild.remove();
    this.keys.length = blocks.length;
  }

  #place(block, i) {
    const old = this.root.childNodes[i];
    if (old && this.keys[i] === block.key) return;
    this.keys[i] = block.key;
    if (old) morph(old, block.render());
    else this.root.append(block.render());
  }
}

/** JSON, possibly unfinished, with line breaks and indentation; strings and numbers stay as they were written. */
export function prettyJson(text) {
  if (!/^\s*[{[]/.test(text)) return text;
  let out = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(Math.min(depth, 40))}`;
  for (const token of text.match(/"(?:[^"\\]|\\[^]?)*"?|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    if (token === '}' || token === ']') {
      depth = Math.max(0, depth - 1);
      if (!/[{[]$/.test(out)) out += line();
    } else if (/[{[]$/.test(out) || (depth > 0 && out.endsWith(','))) out += line();
    if (token === '{' || token === '[') depth += 1;
    out += token === ':' ? ': ' : token;
  }
  return out;
}

/** A code block with its language and a copy button. */
export function codeBlock(code, lang = '') {
  return el(lang === 'json' ? 'figure.code.wrap' : 'figure.code', {},
    el('figcaption', {}, el('span', {}, lang || 'text'), el('button', { type: 'button', className: 'copy' }, 'Copy')),
    el('pre', { tabIndex: 0 }, el('code', {}, ...coloured(code, lang.toLowerCase()))));
}

/** Makes `old` equal to `now` with as few changes as possible. */
export function morph(old, now) {
  if (old.nodeName !== now.nodeName) return void old.replaceWith(now);
  if (old.nodeType === Node.TEXT_NODE) return morphText(old, now.data);
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const children = [...now.childNodes];
  children.forEach((child, i) => (old.childNodes[i] ? morph(old.childNodes[i], child) : old.append(child)));
  while (old.childNodes.length > children.length) old.lastChild.remove();
}

function morphText(old, data) {
  if (data.startsWith(old.data)) old.appendData(data.slice(old.data.length));
  else old.data = data;
}

// Blocks. A matcher looks at `lines[i]` and returns {end, render} or null.

const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const FENCE = /^( *)(`{3,}|~{3,}) *([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const MATCHERS = [fence, heading, rule, quote, list, table];

const toLines = (text) => text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n');
const isBlank = (line) => line.trim() === '';
const indentOf = (line) => line.length - line.trimStart().length;
const startsBlock = (line) => [ITEM, FENCE, HEADING, RULE, QUOTE].some((start) => start.test(line));

/** An unfinished text without marks at its end that could still become several things. */
function settled(text) {
  return text
    .replace(/(^|\n)[ \t]*(?:[-+]|\d{1,9}[.)]?|#{1,6})[ \t]*$/, '$1')
    .replace(/(?:[*_~`]{1,3}|!?\[)$/, '');
}

function split(lines, context) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) { i += 1; continue; }
    const { end, render } = matchBlock(lines, i, context);
    const open = context.open && end === lines.length;
    blocks.push({ render, key: `${open}${lines.slice(i, end).join('\n')}` });
    i = end;
  }
  return blocks;
}

function matchBlock(lines, i, context) {
  if (context.depth < MAX_DEPTH) {
    for (const match of MATCHERS) {
      const block = match(lines, i, context);
      if (block) return block;
    }
  }
  return paragraph(lines, i, context);
}

const renderAll = (lines, context) =>
  split(lines, { ...context, depth: context.depth + 1 }).map((block) => block.render());

function fence(lines, i) {
  const start = FENCE.exec(lines[i]);
  if (!start) return null;
  const [, indent, mark, lang] = start;
  const isEnd = (line) => line.trim().length >= mark.length && line.trim() === mark[0].repeat(line.trim().length);
  let end = i + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const body = lines.slice(i + 1, end).map((line) => line.slice(Math.min(indent.length, indentOf(line))));
  return { end: Math.min(end + 1, lines.length), render: () => codeBlock(body.join('\n'), lang) };
}

function heading(lines, i, context) {
  const match = HEADING.exec(lines[i]);
  if (!match) return null;
  // The page itself has the first two levels.
  const tag = `h${Math.min(6, match[1].length + 2)}`;
  return { end: i + 1, render: () => el(tag, {}, inline(match[2].replace(/ +#+ *$/, ''), context.open)) };
}

function rule(lines, i) {
  return RULE.test(lines[i]) ? { end: i + 1, render: () => el('hr') } : null;
}

function quote(lines, i, context) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  if (end === i) return null;
  const body = lines.slice(i, end).map((line) => line.replace(QUOTE, ''));
  return { end, render: () => el('blockquote', {}, renderAll(body, context)) };
}

function list(lines, i, context) {
  const first = ITEM.exec(lines[i]);
  if (!first) return null;
  const ordered = isOrdered(first);
  const { items, end } = listItems(lines, i, first[1].length, ordered);
  const render = () => {
    const node = el(ordered ? 'ol' : 'ul', {}, items.map((item) => el('li', {}, renderAll(item, context))));
    if (ordered && parseInt(first[2], 10) !== 1) node.setAttribute('start', parseInt(first[2], 10));
    return node;
  };
  return { end, render };
}

const isOrdered = (marker) => /\d/.test(marker[2]);

function listItems(lines, start, base, ordered) {
  const items = [];
  let width = 0;
  let i = start;
  for (; i < lines.length; i += 1) {
    const line = lines[i];
    const marker = ITEM.exec(line);
    if (marker && marker[1].length <= base + 1) {
      if (isOrdered(marker) !== ordered || RULE.test(line)) break;
      width = marker[3].length > 4 ? marker[0].length - marker[3].length + 1 : marker[0].length;
      items.push([line.slice(width)]);
    } else if (belongsToItem(lines, i, base)) {
      items.at(-1).push(line.slice(Math.min(indentOf(line), width)));
    } else break;
  }
  return { items, end: i };
}

/** Whether `lines[i]` goes on with an item whose marker is at column `base`. */
function belongsToItem(lines, i, base) {
  if (!isBlank(lines[i])) return indentOf(lines[i]) > base || !(isBlank(lines[i - 1]) || startsBlock(lines[i]));
  const next = lines[i + 1];
  return next !== undefined && (isBlank(next) ? false : indentOf(next) > base || ITEM.test(next));
}

const isDivider = (line) => /^\|?:?-+:?(?:\|:?-+:?)*\|?$/.test(line.replace(/ /g, ''));

function startsTable(lines, i, open) {
  if (!lines[i].includes('|')) return false;
  if (i + 1 < lines.length && lines[i + 1].includes('|') && isDivider(lines[i + 1])) return true;
  // While it comes: a line in bars at the very end is the head of a table.
  return open && /^ *\|./.test(lines[i]) && lines.slice(i + 1).every((line) => /^[ |:-]*$/.test(line)) && lines.length - i <= 2;
}

function table(lines, i, context) {
  if (!startsTable(lines, i, context.open)) return null;
  let end = Math.min(i + 2, lines.length);
  while (end < lines.length && lines[end].includes('|')) end += 1;
  const aligns = cells(lines[i + 1] ?? '').map(alignment);
  const row = (tag, line) => el('tr', {}, cells(line).map((cell, column) =>
    el(tag + (aligns[column] ?? ''), {}, inline(cell, context.open))));
  const render = () => el('div.table', { tabIndex: 0, role: 'region', 'aria-label': 'Table' }, el('table', {},
    el('thead', {}, row('th', lines[i])),
    el('tbody', {}, lines.slice(i + 2, end).map((line) => row('td', line)))));
  return { end, render };
}

const cells = (line) =>
  line.trim().replace(/^\|/, '').replace(/([^\\]|^)\|$/, '$1').split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));

function alignment(cell) {
  if (!cell.endsWith(':')) return '';
  return cell.startsWith(':') ? '.centre' : '.right';
}

function paragraph(lines, i, context) {
  let end = i + 1;
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines[end]) && !startsTable(lines, end, context.open)) end += 1;
  const text = lines.slice(i, end).map((line) => line.trim()).join('\n');
  return { end, render: () => el('p', {}, inline(text, context.open)) };
}

// Inline text. Every repetition is bounded, so that no text takes more than linear time.

const SPECIAL = /[\\`![<*_~\n]|https?:\/\//g;
const RULES = [
  [/\n/y, () => el('br')],
  [/\\([!-/:-@[-`{-~])/y, (m) => m[1]],
  [/(`{1,3})(?!`)([^]{1,4000}?)(?<!`)\1(?!`)/y, (m) => el('code', {}, m[2].replace(/\n/g, ' '))],
  [/!?\[((?:[^[\]\\]|\\[^]|\[[^[\]]{0,200}\]){1,1000})\]\( *<?([^\s<>()]{1,2000}(?:\([^\s()]{0,500}\)[^\s<>()]{0,500}){0,8})>?(?: +"[^"\n]{0,500}")? *\)/y,
    (m, depth) => link(m[2], inlineAt(m[1], depth), m[0])],
  [/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y, (m) => link(m[1], [m[1]], m[0])],
  [/https?:\/\/[^\s<>"`*]{0,2000}[^\s<>"`*.,;:!?)\]}'_]/y, (m) => link(m[0], [m[0]], m[0])],
  [/<br ?\/?>/iy, () => el('br')],
  [/\*\*\*(?=[^\s*])([^*]{1,2000})(?<=\S)\*\*\*/y, (m, depth) => el('strong', {}, el('em', {}, inlineAt(m[1], depth)))],
  [/\*\*(?=[^\s*])([^]{1,4000}?)(?<=\S)\*\*(?!\*)/y, (m, depth) => el('strong', {}, inlineAt(m[1], depth))],
  [/\*(?=[^\s*])((?:[^*]|\*\*[^*]{1,500}\*\*){1,2000}?)(?<=[^\s*]|\*\*)\*(?!\*)/y, (m, depth) => el('em', {}, inlineAt(m[1], depth))],
  [/(?<!\w)_(?=[^\s_])([^_]{1,2000})(?<=\S)_(?!\w)/y, (m, depth) => el('em', {}, inlineAt(m[1], depth))],
  [/~~(?=[^\s~])([^~]{1,2000})~~/y, (m, depth) => el('del', {}, inlineAt(m[1], depth))],
];

const inline = (text, open) => inlineAt(open ? closed(text) : text, 0);

/** An unfinished paragraph with its last mark closed, so that it has its final look at once. */
function closed(text) {
  const plain = text.replace(/`[^`\n]*`/g, '');
  const tick = plain.lastIndexOf('`');
  if (tick >= 0 && /\S/.test(plain.slice(tick + 1))) return `${text}\``;
  const halfLink = /\[([^[\]]{1,500})\]\([^\s()]{0,2000}$/.exec(text);
  if (halfLink) return text.slice(0, halfLink.index) + halfLink[1];
  const stars = plain.split('**');
  return stars.length % 2 === 0 && /^\S/.test(stars.at(-1)) ? `${text.trimEnd()}**` : text;
}

function inlineAt(text, depth) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  let plain = '';
  for (let at = 0; at < text.length;) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    if (next === text.length) break;
    const found = matchInline(text, next, depth + 1);
    if (found && typeof found.node !== 'string') nodes.push(plain, found.node), plain = '';
    else plain += found ? found.node : text[next];
    at = found ? found.end : next + 1;
  }
  return [...nodes, plain].filter((node) => node !== '');
}

function matchInline(text, at, depth) {
  for (const [pattern, build] of RULES) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) return { end: at + match[0].length, node: build(match, depth) };
  }
  return null;
}

/** A link if the address is one that cannot run anything, else the text as it was written. */
function link(address, children, source) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return source;
  return el('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer' }, children);
}

// Colouring: comments, strings, numbers and words that are keywords somewhere.

const KEYWORDS = new Set(`and as async await bool break case catch char class const continue def do elif else enum except
export extends false False finally float fn for from func function if impl import in int interface is lambda let local match
mod mut new nil None not null or package pass private pub public raise return self Self static string struct super switch then
this throw trait true True try type unsafe use using var void while with yield SELECT FROM WHERE JOIN ON`.split(/\s+/));
const COMMENTS = [
  [/^(py|python|sh|bash|shell|console|yaml|yml|toml|ini|rb|ruby|r|perl|makefile|dockerfile|julia)$/, '#.*'],
  [/^(sql|lua|haskell)$/, '--.*'],
  [/^(html|xml|css)$/, '/\\*[^]*?(?:\\*/|$)|<!--[^]*?(?:-->|$)'],
  [/./, '//.*|/\\*[^]*?(?:\\*/|$)'],
];

function coloured(code, lang) {
  if (!lang || /^(text|txt|plain|markdown|md|diff)$/.test(lang) || code.length > MAX_COLOURED) return code ? [code] : [];
  const nodes = [];
  let at = 0;
  for (const match of code.matchAll(tokens(lang))) {
    const kind = kindOf(match);
    if (!kind) continue;
    if (match.index > at) nodes.push(code.slice(at, match.index));
    nodes.push(el(`span.${kind}`, {}, match[0]));
    at = match.index + match[0].length;
  }
  return at < code.length ? [...nodes, code.slice(at)] : nodes;
}

function tokens(lang) {
  const comment = COMMENTS.find(([langs]) => langs.test(lang))[1];
  // In Rust a single quote may begin a lifetime.
  const single = /^(rs|rust)$/.test(lang) ? "'(?:\\\\.|[^'\\\\])'" : "'(?:[^'\\\\\\n]|\\\\.)*'";
  const string = `"""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"|${single}|\`(?:[^\`\\\\]|\\\\.)*\``;
  return new RegExp(`(${comment})|(${string})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
}

function kindOf([, comment, string, number, word]) {
  if (comment) return 'comment';
  if (string) return 'string';
  if (number) return 'number';
  return KEYWORDS.has(word) ? 'keyword' : '';
}

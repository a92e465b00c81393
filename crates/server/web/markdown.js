// Markdown to DOM nodes: marked reads it, DOMPurify drops what could run, and math.js draws formulas. HTML in a text is
// text, but for the tags of TAGS without attributes; pictures are links, so that an answer loads nothing. While a text
// comes, `Markdown.update` touches only what changed, so selections and scroll positions survive.

import { codeBlock } from './code.js';
import { el, escaped, morph } from './dom.js';
import { beginsFormula, drawMath, mathExtensions } from './math.js';
import { Marked } from './vendor/marked.js';
import './vendor/purify.js';

const TAGS = /^<\/?(?:b|br|del|em|i|ins|kbd|mark|s|small|strong|sub|sup|u)\s*\/?>/i;
const PURE = {
  ALLOWED_TAGS: ['a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'input', 'ins', 'kbd', 'li',
    'mark', 'ol', 'p', 'pre', 's', 'small', 'span', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'u', 'ul'],
  ALLOWED_ATTR: ['align', 'checked', 'class', 'disabled', 'href', 'start', 'type'],
  // It holds for all attributes but class and these.
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ['align', 'start', 'type'],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
/** Blocks whose last line may go on. */
const OPEN_ENDED = new Set(['paragraph', 'heading', 'list', 'blockquote']);
/** As many tokens at the end may become something else when more comes. */
const NEAR = 5;

/** A view of one Markdown text within `root`. */
export class Markdown {
  constructor(root) {
    this.root = root;
    this.keys = [];
    this.past = { raw: '', tokens: [] }; // what no later text changes, while a text comes
  }

  /** Shows `text`; `open` says that more will come, and then what is not yet decided is not shown. */
  update(text, open = false) {
    try { this.#show(this.#read(text, open), open); } catch {
      // Nested deeper than the stack is: as it was written.
      this.root.replaceChildren(el('p', {}, text));
      this.keys = [];
    }
  }

  #read(text, open) {
    if (!open || !text.startsWith(this.past.raw)) this.past = { raw: '', tokens: [] };
    const { raw, tokens } = this.past;
    const rest = open ? unfinishedTokens(text.slice(raw.length)) : WHOLE.lexer(text);
    if (open && rest.length > 3 * NEAR) {
      const sure = rest.slice(0, -2 * NEAR);
      this.past = { raw: raw + rawOf(sure), tokens: [...tokens, ...sure] };
    }
    // Links may have waited for these.
    if (!open && rest.some(({ type }) => type === 'def')) this.keys = [];
    return [...tokens, ...rest].filter(isBlock);
  }

  #show(blocks, open) {
    blocks.forEach((token, i) => this.#place(token, i, open && i === blocks.length - 1));
    while (this.root.childNodes.length > blocks.length) this.root.lastChild.remove();
    this.keys.length = blocks.length;
    drawMath(this.root);
  }

  #place(token, i, open) {
    const key = `${open}${token.raw}`;
    const old = this.root.childNodes[i];
    if (old && this.keys[i] === key) return;
    this.keys[i] = key;
    const node = render(token);
    if (old) morph(old, node);
    else this.root.append(node);
  }
}

// Reading

const WHOLE = reader(false);
const OPEN = reader(true);

function reader(open) {
  const marked = new Marked({ gfm: true, breaks: true });
  // No HTML: of whole lines none, in a line what TAGS has.
  marked.use({ tokenizer: { html: () => undefined, tag: () => undefined }, extensions: [tag(), ...mathExtensions(open)], renderer: renderer() });
  return marked;
}

function tag() {
  const tokenizer = (src) => { const found = TAGS.exec(src); return found ? { type: 'tag', raw: found[0] } : undefined; };
  const start = (src) => { const at = src.search(/<\/?[a-z]/i); return at < 0 ? undefined : at; };
  return { name: 'tag', level: 'inline', start, tokenizer, renderer: ({ raw }) => raw };
}

/** The tokens of a text that goes on; the last one is made to look as it will. */
function unfinishedTokens(text) {
  const tokens = WHOLE.lexer(settled(text));
  const n = tokens.findLastIndex(isBlock) + 1;
  // A formula of several blocks, in which TeX looks like Markdown.
  const near = Math.max(0, n - NEAR);
  const formula = tokens.slice(near, n).findIndex(({ type, raw }) => type === 'paragraph' && beginsFormula(raw));
  if (formula >= 0) return [...tokens.slice(0, near + formula), ...OPEN.lexer(rawOf(tokens.slice(near + formula)))];
  if (!OPEN_ENDED.has(tokens[n - 1]?.type)) return tokens;
  return [...tokens.slice(0, n - 1), ...OPEN.lexer(closed(tokens[n - 1].raw))];
}

const isBlock = ({ type }) => type !== 'space' && type !== 'def';
const rawOf = (tokens) => tokens.map(({ raw }) => raw).join('');

/** An unfinished text without marks at its end that could still become several things. */
function settled(text) {
  return text
    .replace(/(^|\n)[ \t]*(?:[-+|]|\d{1,9}[.)]?|#{1,6}|[-*+] \[[ x]?)[ \t]*$/, '$1')
    .replace(/(?:[*_~`]{1,3}|!?\[|\\|\${1,2}|<\/?[a-z]{0,6})$/i, '');
}

/** An unfinished block with its last mark closed, so that it has its final look at once. */
function closed(text) {
  const head = /(?:^|\n) {0,3}(\|[^\n]+)(?:\n[ |:-]*)?$/.exec(text);
  if (head) return `${text.slice(0, head.index)}\n\n${head[1]}\n${divider(head[1])}`;
  if (text.split('```').length % 2 === 0) return text;
  const plain = text.replace(/`[^`\n]*`/g, '');
  const tick = plain.lastIndexOf('`');
  if (tick >= 0 && /\S/.test(plain.slice(tick + 1))) return `${text}\``;
  const halfLink = /\[([^[\]]{1,500})\]\([^\s()]{0,2000}$/.exec(text);
  if (halfLink) return text.slice(0, halfLink.index) + halfLink[1];
  const stars = plain.split('**');
  return stars.length % 2 === 0 && /^\S/.test(stars.at(-1)) ? `${text.trimEnd()}**` : text;
}

/** The second line of a table with this head. */
const divider = (head) => `|${'-|'.repeat(head.trim().replace(/^\||\|$/g, '').split('|').length)}`;

// Writing

function renderer() {
  return {
    heading({ tokens, depth }) {
      // The page itself has the first two levels.
      const name = `h${Math.min(6, depth + 2)}`;
      return `<${name}>${this.parser.parseInline(tokens)}</${name}>`;
    },
    code: ({ text, lang }) => `<pre class="${/^[\w+#.-]*/.exec(lang ?? '')[0]}">\n${escaped(text)}</pre>`,
    link({ href, tokens, raw }) {
      return isSafe(href) ? `<a href="${escaped(href)}">${this.parser.parseInline(tokens)}</a>` : escaped(raw);
    },
    image: ({ href, text, raw }) => (isSafe(href) ? `<a href="${escaped(href)}">${escaped(text || href)}</a>` : escaped(raw)),
  };
}

/** Whether an address is one that cannot run anything. */
const isSafe = (address) => URL.canParse(address) && PURE.ALLOWED_URI_REGEXP.test(address);

function render(token) {
  const part = self.DOMPurify.sanitize(WHOLE.parser([token]), PURE);
  for (const pre of part.querySelectorAll('pre')) pre.replaceWith(codeBlock(pre.textContent, pre.className));
  for (const table of part.querySelectorAll('table')) frame(table);
  for (const link of part.querySelectorAll('a')) Object.assign(link, { target: '_blank', rel: 'noopener noreferrer' });
  for (const box of part.querySelectorAll('input')) markTask(box);
  const nodes = [...part.childNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE || node.data.trim());
  return nodes.length === 1 && nodes[0].nodeType === Node.ELEMENT_NODE ? nodes[0] : el('div', {}, ...nodes);
}

function frame(table) {
  const around = el('div.table', { tabIndex: 0, role: 'region', 'aria-label': 'Table' });
  table.replaceWith(around);
  around.append(table);
}

function markTask(box) {
  box.setAttribute('aria-label', box.hasAttribute('checked') ? 'done' : 'to do');
  box.closest('li')?.classList.add('task');
}

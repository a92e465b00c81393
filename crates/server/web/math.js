// Formulas in Markdown: an extension for marked that finds them, and KaTeX, which draws them and is loaded by the first.
// TeX is foreign text: KaTeX trusts none of it (no links, no classes), and what it cannot read stays as it was written.

import { el, escaped } from './dom.js';

const MAX_TEX = 8000;
const OPTIONS = { strict: 'ignore', maxExpand: 500, maxSize: 30, errorColor: 'currentColor' };
const DOLLARS = String.raw`\$\$((?:\\[^]|[^\\$]){1,${MAX_TEX}}?)\$\$`;
const BRACKETS = String.raw`\\\[([^]{1,${MAX_TEX}}?)\\\]`;
const PARENTHESES = String.raw`\\\(([^]{1,${MAX_TEX}}?)\\\)`;
// No space inside the dollars and no digit behind them: $5 and $10 are prices.
const DOLLAR = String.raw`\$(?![\s$])((?:\\[^]|[^\\$\n\x60]){1,500}?)(?<!\s)\$(?![\d$])`;
const BLOCK = new RegExp(`^ {0,3}(?:${DOLLARS}|${BRACKETS})[ \\t]*(?:\\n+|$)`);
const DISPLAY = new RegExp(`^(?:${DOLLARS}|${BRACKETS})`);
const INLINE = new RegExp(`^(?:${PARENTHESES}|${DOLLAR})`);
const UNFINISHED = /^ {0,3}(?:\$\$|\\[[(])([^]*)$/;

/** marked's extensions; `open` says that the text is unfinished, and then a formula may be. */
export function mathExtensions(open) {
  const token = (match, more) => match && { raw: match[0], text: (match[1] ?? match[2]).trim(), ...more };
  const unfinished = (src) => open && token(UNFINISHED.exec(src), { open: true, display: !/^ *\\\(/.test(src) });
  const block = (src) => token(BLOCK.exec(src), { display: true });
  const inline = (src) => token(DISPLAY.exec(src), { display: true }) ?? token(INLINE.exec(src), {});
  return [
    extension('mathBlock', 'block', /\n {0,3}(?:\$\$|\\\[)/, (src) => block(src) ?? (beginsFormula(src) && unfinished(src))),
    extension('math', 'inline', /\$|\\[[(]/, (src) => inline(src) ?? unfinished(src)),
  ];
}

/** Whether a block begins with a formula that does not end. */
export const beginsFormula = (text) => /^ {0,3}(?:\$\$|\\\[)/.test(text) && !DISPLAY.test(text.trimStart());

function extension(name, level, begin, read) {
  return {
    name,
    level,
    start: (src) => indexOf(begin, src),
    tokenizer: (src) => { const found = read(src); return found ? { type: name, ...found } : undefined; },
    renderer: (token) => (level === 'block' ? `<p>${span(token)}</p>` : span(token)),
  };
}

/** Where `src` up to its first empty line has the pattern: marked asks for each paragraph, with all that follows. */
function indexOf(pattern, src) {
  const end = src.search(/\n[ \t]*\n/);
  const at = (end < 0 ? src : src.slice(0, end)).search(pattern);
  return at < 0 ? undefined : at;
}

const span = ({ text, display, open }) =>
  `<span class="math${display ? ' display' : ''}${open ? ' open' : ''}">${escaped(text)}</span>`;

let loading;

function load() {
  document.head.append(el('link', { rel: 'stylesheet', href: 'vendor/katex.css' }));
  return import('./vendor/katex.js');
}

/** Draws the finished formulas within `root` that are not drawn yet; at once, if KaTeX is there. */
export function drawMath(root) {
  const spans = root.querySelectorAll('.math:not(.open, [data-tex])');
  if (!spans.length) return;
  if (self.katex) return spans.forEach(draw);
  loading ??= load();
  // Without KaTeX, formulas stay as they were written.
  loading.then(() => drawMath(root), () => {});
}

function draw(node) {
  const tex = node.textContent;
  node.setAttribute('data-tex', tex);
  try {
    self.katex.render(tex, node, { ...OPTIONS, displayMode: node.matches('.display') });
  } catch {
    node.textContent = tex;
  }
}

/** Copies the selection with formulas as TeX: what KaTeX draws has each character twice, for eyes and for ears. */
export function copyTex(event) {
  const selection = getSelection();
  const part = selection.rangeCount ? selection.getRangeAt(0).cloneContents() : el('div');
  const formulas = part.querySelectorAll('.math[data-tex]');
  if (!formulas.length) return;
  for (const node of formulas) node.replaceWith(node.matches('.display') ? `$$${node.dataset.tex}$$` : `$${node.dataset.tex}$`);
  // Only what is in the page has lines.
  const copy = el('div.sr', {}, part);
  document.body.append(copy);
  event.clipboardData.setData('text/plain', copy.innerText);
  copy.remove();
  event.preventDefault();
}

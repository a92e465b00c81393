// Blocks of code: coloured, with a copy button; and JSON with line breaks, also while it is unfinished.

import { el } from './dom.js';

const MAX_COLOURED = 60_000;

/** A code block with its language and a copy button. */
export function codeBlock(code, lang = '') {
  return el(lang === 'json' ? 'figure.code.wrap' : 'figure.code', {},
    el('figcaption', {}, el('span', {}, lang || 'text'), el('button', { type: 'button', className: 'copy' }, 'Copy')),
    el('pre', { tabIndex: 0 }, el('code', {}, ...coloured(code, lang.toLowerCase()))));
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

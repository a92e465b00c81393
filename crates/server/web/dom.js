// Elements, and changing them in place, so that selections and scroll positions survive while a text comes. Nothing here is
// made of markup: text only becomes text nodes.

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

/** `text` as HTML that shows it. */
export const escaped = (text) => text.replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);

/** Makes `old` equal to `now` with as few changes as possible. A formula that stays the same stays drawn. */
export function morph(old, now) {
  const formulas = [old, now].map(formula);
  if (formulas[0] !== undefined && formulas[0] === formulas[1]) return;
  if (old.nodeName !== now.nodeName || formulas.some((source) => source !== undefined)) return void old.replaceWith(now);
  if (old.nodeType === Node.TEXT_NODE) return morphText(old, now.data);
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const children = [...now.childNodes];
  children.forEach((child, i) => (old.childNodes[i] ? morph(old.childNodes[i], child) : old.append(child)));
  while (old.childNodes.length > children.length) old.lastChild.remove();
}

/** The class and TeX of a formula. */
const formula = (node) => (node.classList?.contains('math') ? `${node.className} ${node.dataset.tex ?? node.textContent}` : undefined);

function morphText(old, data) {
  if (data.startsWith(old.data)) old.appendData(data.slice(old.data.length));
  else old.data = data;
}

// Helpers for the page. All text goes in as text: no markup is ever parsed.

export const $ = (id) => document.getElementById(id);

// set writes a text only where it changes, so that nothing is read out twice.
export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function make(tag, className = '', ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// keyed has the parent's children be one for each item, in order, and keeps those
// whose key stays: what is focused or selected in them stays so.
export function keyed(parent, items, keyOf, create, update) {
  const focused = document.activeElement;
  const old = new Map(Array.from(parent.children, (child) => [child.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    if (child) {
      old.delete(key);
    } else {
      child = create(item);
      child.key = key;
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

// row is a table row of so many cells; the names are those that are numbers.
export function row(cells, numbers = []) {
  const tr = document.createElement('tr');
  for (let i = 0; i < cells; i++) tr.append(make('td', numbers.includes(i) ? 'n' : ''));
  return tr;
}

export function fill(tr, texts) {
  texts.forEach((text, i) => set(tr.cells[i], text));
}

// Elements. All text that comes from elsewhere, names above all, becomes text nodes and is never read as HTML.

// An element with a class, text or children.
export function el(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

// These touch the document only where something changes, so that nothing flickers and nothing is laid out in vain.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function setClass(node, className) {
  if (node.className !== className) node.className = className;
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

export function button(text, label, act) {
  const node = el("button", "", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
}

// A bar: parts of a whole one behind the other, and marks. The text beside it says the same, so it is hidden from
// readers of the text.
export class Bar {
  constructor(...parts) {
    this.node = el("div", "bar");
    this.node.setAttribute("aria-hidden", "true");
    this.parts = parts.map((name) => this.node.appendChild(el("i", `part ${name}`)));
    this.marks = new Map();
    this.text = el("span", "figure");
  }

  // Fractions of the whole, in the order of the parts; marks as {name: fraction or null}.
  set(fractions, marks, text, title) {
    let left = 0;
    this.parts.forEach((part, i) => {
      const width = Math.max(0, Math.min(1 - left, fractions[i]));
      this.place(part, "left", left);
      this.place(part, "width", width);
      left += width;
    });
    for (const [name, at] of Object.entries(marks)) {
      if (!this.marks.has(name)) this.marks.set(name, this.node.appendChild(el("i", `mark ${name}`)));
      const mark = this.marks.get(name);
      show(mark, at !== null && at <= 1);
      if (at !== null) this.place(mark, "left", Math.min(1, at));
    }
    setText(this.text, text);
    setAttribute(this.node, "title", title ?? null);
  }

  place(node, side, fraction) {
    const value = `${(100 * fraction).toFixed(1)}%`;
    if (node.style[side] !== value) node.style[side] = value;
  }
}

// Children of `parent` that stand for items: made once, updated, moved only if the order changes, removed when gone.
export class Keyed {
  constructor(parent, make) {
    this.parent = parent;
    this.make = make;  // (item) => {node, update(item)}
    this.views = new Map();
  }

  sync(items, keyOf) {
    const wanted = new Set(items.map(keyOf));
    for (const [key, view] of this.views) {
      if (wanted.has(key)) continue;
      view.node.remove();
      this.views.delete(key);
    }
    let next = this.parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      let view = this.views.get(key);
      if (!view) {
        view = this.make(item);
        this.views.set(key, view);
      }
      view.update(item);
      if (view.node === next) next = next.nextElementSibling;
      else this.parent.insertBefore(view.node, next);
    }
  }
}

// A list of rows, of which one is current: Tab goes to it and its buttons, arrows to the others.
import { Keyed, show } from "./dom.js";

const kSteps = { ArrowUp: -1, k: -1, ArrowDown: 1, j: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

export class List {
  // `root` holds .rows and .empty. `make(item)` gives {node, update(item)}; `keys` says what a key does with the current
  // item.
  constructor(root, keyOf, make, keys) {
    this.rows = root.querySelector(".rows");
    this.empty = root.querySelector(".empty");
    this.keyOf = keyOf;
    this.keys = keys;
    this.items = [];
    this.current = null;  // a key
    this.keyed = new Keyed(this.rows, (item) => this.makeRow(make(item), keyOf(item)));
    root.addEventListener("keydown", (event) => this.press(event));
  }

  makeRow(view, key) {
    view.node.setAttribute("role", "row");
    view.node.addEventListener("focusin", () => this.setCurrent(key));
    this.mark(view.node, false);
    return view;
  }

  sync(items) {
    const hadFocus = this.rows.contains(document.activeElement);
    const at = this.place();
    this.items = items;
    this.keyed.sync(items, this.keyOf);
    show(this.empty, items.length === 0);
    if (items.length > 0 && !this.keyed.views.has(this.current))
      this.setCurrent(this.keyOf(items[Math.max(0, Math.min(at, items.length - 1))]));
    // The row that had it is gone: the one in its place gets it.
    if (hadFocus && !this.rows.contains(document.activeElement)) this.focus();
  }

  place() {
    return this.items.findIndex((item) => this.keyOf(item) === this.current);
  }

  // Only the current row and its buttons are stops of the Tab key.
  mark(node, current) {
    node.tabIndex = current ? 0 : -1;
    for (const button of node.querySelectorAll("button")) button.tabIndex = current ? 0 : -1;
  }

  setCurrent(key) {
    if (key === this.current) return;
    const before = this.keyed.views.get(this.current);
    if (before) this.mark(before.node, false);
    this.current = key;
    const now = this.keyed.views.get(key);
    if (now) this.mark(now.node, true);
  }

  focus() {
    const view = this.keyed.views.get(this.current);
    if (view) view.node.focus();
  }

  press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || this.items.length === 0) return;
    const onButton = event.target.tagName === "BUTTON";
    if (event.key in kSteps) {
      const to = Math.max(0, Math.min(this.items.length - 1, this.place() + kSteps[event.key]));
      this.setCurrent(this.keyOf(this.items[to]));
      this.focus();
    } else if (event.key in this.keys && !(onButton && event.key === "Enter")) {
      this.keys[event.key](this.items[this.place()]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

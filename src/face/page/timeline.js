// The picture of the last minutes: a line for each vGPU, a second for each step.
import { byId, setText } from "./dom.js";
import { bytes, clock, percent } from "./format.js";
import { kSeconds } from "./history.js";

const kMinute = 60;

export class Timeline {
  constructor(history) {
    this.history = history;
    this.canvas = byId("timeline");
    this.moment = byId("moment");
    this.names = [];
    this.now = 0;       // the last second that is drawn
    this.cursor = null; // {ago, row}: seconds before now, and the place of the vGPU
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.select(null));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  update(vgpus, timeUs) {
    this.names = vgpus.map((vgpu) => vgpu.name);
    this.now = Math.floor(timeUs / 1e6) - 1;  // the last whole second
    this.draw();
  }

  // Where things are, in CSS pixels, for the sizes that the canvas and its text have now.
  layout() {
    const text = 0.85 * parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = this.canvas.parentElement.clientWidth;
    const label = Math.round(Math.min(15 * text, width * 0.28));
    const [row, axis] = [Math.round(1.65 * text), Math.round(1.5 * text)];
    return { text, width, scale: window.devicePixelRatio || 1, label, row, axis, height: axis + row * Math.max(1, this.names.length), step: (width - label) / kSeconds };
  }

  draw() {
    const place = this.layout();
    if (place.width <= 0) return;
    const { scale } = place;
    const size = [Math.round(place.width * scale), Math.round(place.height * scale)];
    if (this.canvas.width !== size[0] || this.canvas.height !== size[1]) {
      [this.canvas.width, this.canvas.height] = size;
      this.canvas.style.height = `${place.height}px`;
    }
    const context = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, place.width, place.height);
    context.font = `${place.text}px ${style.getPropertyValue("--font")}`;
    context.textBaseline = "middle";
    this.drawAxis(context, place, colour);
    const colours = Object.fromEntries(["ran", "waited", "frozen", "out", "in", "ink", "line"].map((name) => [name, colour(name)]));
    this.names.forEach((name, row) => this.drawRow(context, place, colours, name, place.axis + row * place.row));
    if (this.cursor) this.drawCursor(context, place, colours.ink);
  }

  drawAxis(context, place, colour) {
    context.fillStyle = colour("faint");
    context.strokeStyle = colour("line");
    context.textAlign = "center";
    for (let ago = kMinute; ago < kSeconds; ago += kMinute) {
      const x = place.width - ago * place.step;
      context.fillText(`${ago / kMinute} min ago`, x, place.axis / 2);
      context.beginPath();
      context.moveTo(x, place.axis);
      context.lineTo(x, place.height);
      context.stroke();
    }
  }

  drawRow(context, place, colours, name, top) {
    context.fillStyle = colours.ink;
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(0, top, place.label - 8, place.row);
    context.clip();
    context.fillText(name, 0, top + place.row / 2);
    context.restore();
    const bottom = top + place.row - 2;
    const high = place.row - 5;
    const edge = (ago) => Math.round((place.width - ago * place.step) * place.scale) / place.scale;  // of pixels, so that no seams show
    context.fillStyle = colours.line;
    context.fillRect(place.label, bottom, place.width - place.label, 1);
    for (let ago = 0; ago < kSeconds; ++ago) {
      const what = this.history.at(name, this.now - ago);
      if (!what) continue;
      const x = edge(ago + 1);
      const step = Math.max(edge(ago) - x, 1 / place.scale);
      const part = (value, from, fill) => {
        context.fillStyle = fill;
        context.fillRect(x, bottom - high * (from + value) / 100, step, high * value / 100);
      };
      const ran = Math.min(100, what.ran);
      if (ran > 0) part(ran, 0, colours.ran);
      if (what.waited > 0) part(Math.min(100 - ran, what.waited), ran, colours.waited);
      if (what.frozen) {
        context.fillStyle = colours.frozen;
        context.fillRect(x, top + 2, step, 4);
      }
      if (what.out > 0 || what.in > 0) {
        context.fillStyle = what.out > 0 ? colours.out : colours.in;
        context.fillRect(x, bottom - 4, Math.max(step, 2), 4);
      }
    }
  }

  drawCursor(context, place, ink) {
    context.strokeStyle = ink;
    const x = place.width - (this.cursor.ago + 0.5) * place.step;
    context.strokeRect(x - 0.5, place.axis, 1, place.height - place.axis);
    context.strokeRect(place.label, place.axis + this.cursor.row * place.row + 0.5, place.width - place.label - 1, place.row - 1);
  }

  press(event) {
    const steps = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [10, 0], PageDown: [-10, 0],
      Home: [kSeconds, 0], End: [-kSeconds, 0] };
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in steps) || this.names.length === 0) return;
    const [ago, row] = steps[event.key];
    const from = this.cursor ?? { ago: 0, row: 0 };
    this.select(this.cursor ? { ago: from.ago + ago, row: from.row + row } : from);
    event.preventDefault();
  }

  point(event) {
    const place = this.layout();
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    if (x < place.label) return;
    this.select({ ago: Math.floor((place.width - x) / place.step), row: Math.floor((event.clientY - box.top - place.axis) / place.row) });
  }

  select(cursor) {
    const within = (value, end) => Math.max(0, Math.min(end - 1, value));
    this.cursor = cursor && { ago: within(cursor.ago, kSeconds), row: within(cursor.row, this.names.length) };
    setText(this.moment, this.cursor ? this.read(this.names[this.cursor.row], this.now - this.cursor.ago) : "");
    this.draw();
  }

  // A second of a vGPU in words.
  read(name, second) {
    if (name === undefined) return "";
    const what = this.history.at(name, second);
    const begin = `${clock(second * 1e6)} ${name}: `;
    if (!what) return begin + "nothing is known";
    return begin + [`ran ${percent(what.ran)}`, what.waited > 0 && `waited ${percent(what.waited)}`, what.frozen && "frozen",
      what.out > 0 && `${bytes(what.out)} moved out`, what.in > 0 && `${bytes(what.in)} moved in`].filter(Boolean).join(", ");
  }
}

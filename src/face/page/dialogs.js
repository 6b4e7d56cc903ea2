// Dialogs: the browser's own, so that it keeps the focus in them, closes them by Esc and gives the focus back.
import { Refused, Unreachable, call, get, pathOf, setToken } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { exactBytes } from "./format.js";

// An error in words, with what to do.
export function words(error) {
  if (error instanceof Refused) return error.hint ? `${error.message}: ${error.hint}` : error.message;
  if (error instanceof Unreachable) return "the daemon does not answer";
  return error.message;
}

// A dialog with a form. `submit` may refuse by throwing: the dialog stays and says why.
class Form {
  constructor(id) {
    this.dialog = byId(id);
    this.form = this.dialog.querySelector("form");
    this.error = this.dialog.querySelector(".error");
    this.dialog.querySelector(".cancel")?.addEventListener("click", () => this.dialog.close());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
  }

  open(error = "") {
    setText(this.error, error);
    if (!this.dialog.open) this.dialog.showModal();
  }

  async send() {
    const button = this.form.querySelector(".main");
    button.disabled = true;
    try {
      await this.submit();
      this.dialog.close();
    } catch (error) {
      setText(this.error, words(error));
    } finally {
      button.disabled = false;
    }
  }
}

export class TokenDialog extends Form {
  // `goOn` is called once there is a token.
  constructor(goOn) {
    super("token-dialog");
    this.goOn = goOn;
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());  // without one there is nothing to see
  }

  ask(wrong) {
    if (this.dialog.open) return;
    this.form.reset();
    this.open(wrong ? "This token is wrong: the daemon refused it. Look at the file again, and enter it without spaces." : "");
  }

  submit() {
    setToken(this.form.elements.token.value.trim());
    this.form.reset();
    this.goOn();
  }
}

const kBytes = (value) => (value === null ? "max" : exactBytes(value));
// What may be set: the field in a request, its label, and what stands in it, from a vGPU as GET /v1/vgpus/NAME has it.
const kFields = [
  ["compute_request", "share promised (%)", (vgpu) => String(vgpu.compute_request_pct)],
  ["compute_limit", "share at most (%)", (vgpu) => String(vgpu.compute_limit_pct)],
  ["compute_weight", "weight", (vgpu) => String(vgpu.compute_weight)],
  ["compute_priority", "priority (0 goes first)", (vgpu) => String(vgpu.compute_priority)],
  ["memory_request", "memory promised", (vgpu) => kBytes(vgpu.memory_request_bytes)],
  ["memory_limit", "memory on the GPU at most", (vgpu) => kBytes(vgpu.memory_limit_bytes)],
  ["memory_max", "memory in all at most", (vgpu) => kBytes(vgpu.memory_max_bytes)],
  ["memory_swap_max", "of that, in host memory at most", (vgpu) => kBytes(vgpu.memory_swap_max_bytes)],
  ["goal", "goal (p99=20ms, speed=80%, none)", (vgpu) => vgpu.goal ?? "none"],
];

export class SetDialog extends Form {
  // `done(name)` is called when something was set.
  constructor(done) {
    super("set-dialog");
    this.done = done;
    this.inputs = new Map();
    const fields = this.dialog.querySelector(".fields");
    for (const [key, label] of kFields) {
      const input = el("input");
      input.name = key;
      input.autocomplete = "off";
      input.spellcheck = false;
      this.inputs.set(key, input);
      fields.append(el("label", "", label, input));
    }
  }

  async ask(name) {
    this.vgpu = await get(pathOf("vgpus", name));
    this.before = new Map(kFields.map(([key, , read]) => [key, read(this.vgpu)]));
    for (const [key, input] of this.inputs) input.value = this.before.get(key);
    setText(byId("set-title"), `Set ${name}`);
    this.open();
    this.inputs.get("compute_request").select();
  }

  // Sends what was changed, if nobody else has changed the vGPU since it was shown.
  async submit() {
    const change = {};
    for (const [key, input] of this.inputs)
      if (input.value.trim() !== this.before.get(key)) change[key] = input.value.trim();
    if (Object.keys(change).length === 0) return;
    await call("PATCH", pathOf("vgpus", this.vgpu.name) + "?wait=false", change, { "If-Match": `"${this.vgpu.tag}"` });
    this.done(this.vgpu.name);
  }
}

export class EvictDialog extends Form {
  // `evict(bytes)`, given to ask, may refuse by throwing.
  constructor() {
    super("evict-dialog");
  }

  ask(what, evict) {
    this.evict = evict;
    this.form.reset();
    setText(byId("evict-title"), `Evict ${what}`);
    this.open();
  }

  submit() {
    return this.evict(Math.round(Number(this.form.elements.keep.value) * 2 ** 20));
  }
}

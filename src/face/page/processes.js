// The processes, one a row for each GPU that one uses.
import { Bar, button, byId, el, setClass, setText, show } from "./dom.js";
import { bytes } from "./format.js";
import { List } from "./list.js";
import { isFrozen, stateOf } from "./vgpus.js";

function memoryText(process) {
  const swapped = process.memory_swapped_bytes > 0 ? `, ${bytes(process.memory_swapped_bytes)} in host memory` : "";
  const evicting = process.memory_evicting_bytes > 0 ? `, ${bytes(process.memory_evicting_bytes)} on the way there` : "";
  return `${bytes(process.memory_bytes)}${swapped}${evicting}`;
}

function makeProcess(actions) {
  const name = el("strong");
  const about = el("span", "about");
  const vgpu = el("span");
  const state = el("span", "state");
  const memory = new Bar("memory", "swap");
  const error = el("span", "bad");
  let item = null;
  const freeze = button("Freeze", "", () => actions.freeze(item));
  const evict = button("Evict…", "", () => actions.evict(item));
  const cell = (label, ...children) => {
    const node = el("div", "cell", ...children);
    node.setAttribute("role", "gridcell");
    node.dataset.label = label;
    return node;
  };
  const node = el("div", "row", cell("", name, about), cell("vGPU", vgpu), cell("state", state),
    cell("memory", memory.node, memory.text, error), cell("", el("div", "buttons", freeze, evict)));
  return {
    node,
    update(process) {
      item = process;
      setText(name, `${process.pid} ${process.name}`);
      setText(about, `GPU ${process.gpu}${process.uid === null ? "" : `, user ${process.uid}`}` +
        `${process.enforce === "kernel" ? ", behind the kernel gate" : ""}`);
      setText(vgpu, process.vgpu ?? "none: unmanaged");
      const word = stateOf(process);
      setText(state, word);
      setClass(state, `state ${word.split(/[: ]/)[0]}`);
      const whole = Math.max(1, process.memory_bytes, process.memory_resident_bytes + process.memory_swapped_bytes);
      memory.set([1 - process.memory_swapped_bytes / whole, process.memory_swapped_bytes / whole], {}, memoryText(process));
      show(error, process.evict_error !== null);
      setText(error, process.evict_error ?? "");
      const frozen = isFrozen(process);
      setText(freeze, frozen ? "Thaw" : "Freeze");
      freeze.setAttribute("aria-label", `${frozen ? "Thaw" : "Freeze"} process ${process.pid}`);
      evict.setAttribute("aria-label", `Evict process ${process.pid}`);
    },
  };
}

// The list; `actions` are {freeze, evict}, each with a process as the overview has it.
export function makeProcesses(actions) {
  return new List(byId("processes"), (process) => `${process.pid} ${process.gpu}`, () => makeProcess(actions),
    { f: actions.freeze, e: actions.evict });
}

// The vGPUs, one a row.
import { Bar, button, byId, el, setClass, setText } from "./dom.js";
import { bytes, duration, percent } from "./format.js";
import { List } from "./list.js";

export const isFrozen = (thing) => thing.frozen.includes("operator");

// "frozen (operator, move)" goes before what it did until then. What the scheduler does is not worth the word.
export function stateOf(thing) {
  const why = thing.frozen.filter((reason) => reason !== "policy");
  if (thing.suspension && thing.suspension !== "suspended") return "moving";
  if (thing.suspension) return thing.suspended_by === "idle" ? "suspended (idle)" : "suspended";
  return why.length > 0 ? `frozen: ${why.join(", ")}` : thing.state ?? "not known";
}

function shareText(vgpu) {
  const limit = vgpu.compute_limit_pct < 100 ? ` to ${percent(vgpu.compute_limit_pct)}` : "";
  const request = vgpu.compute_request_pct > 0 || limit ? ` of ${percent(vgpu.compute_request_pct)}${limit}` : "";
  return `${percent(vgpu.compute_current_pct)}${request}`;
}

// The bar's whole: what it may have on the GPU, or what it has if that is more.
function memoryWhole(vgpu) {
  const limit = Math.min(vgpu.memory_limit_bytes, vgpu.memory_max_bytes);
  return Math.max(1, limit, vgpu.memory_current_bytes, vgpu.memory_resident_bytes + vgpu.memory_swap_current_bytes);
}

function memoryText(vgpu) {
  const swapped = vgpu.memory_swap_current_bytes > 0 ? `, ${bytes(vgpu.memory_swap_current_bytes)} in host memory` : "";
  return `${bytes(vgpu.memory_current_bytes)} of ${bytes(Math.min(vgpu.memory_limit_bytes, vgpu.memory_max_bytes))}${swapped}`;
}

const kVerdicts = { kept: "good", tight: "warn", missed: "bad", cannot: "bad", none: "" };

const kWords = { cannot: "cannot be kept" };

function goalText(goal) {
  if (!goal) return "";
  const latency = !goal.goal.startsWith("speed");
  const attained = goal.attained === null ? "" : latency ? `, ${duration(goal.attained)} attained` : `, ${percent(goal.attained)} attained`;
  const violated = latency && goal.violations > 0 ? `, ${percent(100 * goal.violations)} violated` : "";
  const verdict = goal.verdict === "none" ? "" : `: ${kWords[goal.verdict] ?? goal.verdict}`;
  return `${goal.goal}${verdict}${attained}${violated}`;
}

function makeVGpu(actions) {
  const name = el("strong");
  const where = el("span", "about");
  const state = el("span", "state");
  const share = new Bar("ran");
  const memory = new Bar("memory", "swap");
  const goal = el("span", "goal");
  const priority = el("span");
  const weight = el("span", "about");
  let item = null;
  const freeze = button("Freeze", "", () => actions.freeze(item));
  const set = button("Set…", "", () => actions.set(item));
  const evict = button("Evict…", "", () => actions.evict(item));
  const cell = (label, ...children) => {
    const node = el("div", "cell", ...children);
    node.setAttribute("role", "gridcell");
    node.dataset.label = label;
    return node;
  };
  const goalCell = cell("goal", goal);
  const node = el("div", "row", cell("", name, where), cell("state", state), cell("share", share.node, share.text),
    cell("memory", memory.node, memory.text), goalCell, cell("priority", priority, weight),
    cell("", el("div", "buttons", freeze, set, evict)));
  return {
    node,
    update(vgpu) {
      item = vgpu;
      setText(name, vgpu.name);
      setText(where, [`GPU ${vgpu.gpu}`, `user ${vgpu.uid}`, vgpu.space && `space ${vgpu.space}`, vgpu.gang && `gang ${vgpu.gang}`]
        .filter(Boolean).join(", "));
      const word = vgpu.gpu_failed ? "GPU failed" : stateOf(vgpu);
      setText(state, word);
      setClass(state, `state ${word.split(/[: ]/)[0]}`);
      share.set([vgpu.compute_current_pct / 100],
        { request: vgpu.compute_request_pct > 0 ? vgpu.compute_request_pct / 100 : null,
          limit: vgpu.compute_limit_pct < 100 ? vgpu.compute_limit_pct / 100 : null }, shareText(vgpu));
      const whole = memoryWhole(vgpu);
      const resident = Math.max(vgpu.memory_resident_bytes, vgpu.memory_current_bytes - vgpu.memory_swap_current_bytes);
      memory.set([resident / whole, vgpu.memory_swap_current_bytes / whole],
        { request: vgpu.memory_request_bytes > 0 ? vgpu.memory_request_bytes / whole : null,
          limit: vgpu.memory_limit_bytes < whole ? vgpu.memory_limit_bytes / whole : null }, memoryText(vgpu));
      setText(goal, goalText(vgpu.goal));
      goal.title = vgpu.goal?.reason ?? "";
      setClass(goal, `goal ${kVerdicts[vgpu.goal?.verdict] ?? ""}`);
      setClass(goalCell, vgpu.goal ? "cell" : "cell none");
      setText(priority, String(vgpu.compute_priority));
      setText(weight, `weight ${vgpu.compute_weight}`);
      const frozen = isFrozen(vgpu);
      setText(freeze, frozen ? "Thaw" : "Freeze");
      freeze.setAttribute("aria-label", `${frozen ? "Thaw" : "Freeze"} ${vgpu.name}`);
      set.setAttribute("aria-label", `Set ${vgpu.name}`);
      evict.setAttribute("aria-label", `Evict ${vgpu.name}`);
    },
  };
}

// The list; `actions` are {freeze, set, evict, only, renice}, each with a vGPU as the overview has it.
export function makeVGpus(actions) {
  return new List(byId("vgpus"), (vgpu) => vgpu.name, () => makeVGpu(actions), {
    f: actions.freeze, s: actions.set, e: actions.evict, Enter: actions.only,
    "+": (vgpu) => actions.renice(vgpu, -1), "-": (vgpu) => actions.renice(vgpu, 1),
  });
}

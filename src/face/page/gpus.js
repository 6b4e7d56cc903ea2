// The GPUs, each with the spaces on it.
import { Bar, Keyed, byId, el, setClass, setText, show } from "./dom.js";
import { bytes, counted, percent } from "./format.js";

const kDividers = { channels: "channels", gates: "gates" };

function makeSpace() {
  const node = el("li");
  return {
    node,
    update(space) {
      const mode = space.mode === "in_turns" ? "in turns" : "at once";
      const gain = space.mode_gain === null ? "" : `, ${space.mode_gain.toFixed(2)} times as fast at once`;
      const error = space.error ? `: ${space.error}` : "";
      setText(node, `space ${space.name}: ${space.state}${error}, ${counted(space.vgpus.length, "vGPU", "vGPUs")} ${mode}, ` +
        `limits of ${percent(space.sm_limits_pct)} of the SMs${gain}`);
      setClass(node, space.error ? "bad" : "");
    },
  };
}

const markAt = (fraction) => (fraction > 0 ? fraction : null);

function swapText(swap) {
  const file = swap.file_bytes > 0 ? `, ${bytes(swap.file_used_bytes)} in the file` : "";
  return `${bytes(swap.pool_used_bytes)} of ${bytes(swap.max_bytes)}${file}`;
}

function makeGpu() {
  const name = el("h3");
  const about = el("p", "about");
  const failed = el("p", "bad");
  const compute = new Bar("ran");
  const memory = new Bar("memory", "unmanaged");
  const swap = new Bar("swap");
  const swapRow = [el("dt", "", "swap"), el("dd", "", swap.node, swap.text)];
  const spaces = el("ul", "spaces");
  const spaceViews = new Keyed(spaces, makeSpace);
  const node = el("article", "gpu", name, about, failed,
    el("dl", "", el("dt", "", "busy"), el("dd", "", compute.node, compute.text),
      el("dt", "", "memory"), el("dd", "", memory.node, memory.text), ...swapRow), spaces);
  node.setAttribute("role", "listitem");
  return {
    node,
    update(gpu) {
      const total = gpu.memory_total_bytes;
      setText(name, `GPU ${gpu.index}: ${gpu.name}`);
      const by = kDividers[gpu.control.by] ? `, by ${kDividers[gpu.control.by]}` : "";
      const holder = gpu.holder === null ? "" : `, ${gpu.holder} has it`;
      setText(about, `${counted(gpu.vgpus, "vGPU", "vGPUs")}, ${counted(gpu.processes, "process", "processes")}${by}${holder}`);
      show(failed, gpu.health.failed);
      setText(failed, `failed: ${gpu.health.why ?? "no reason is known"}`);
      compute.set([gpu.compute_busy_pct / 100], { request: markAt(gpu.compute_requested_pct / 100) },
        percent(gpu.compute_busy_pct) + (gpu.compute_requested_pct > 0 ? `, ${percent(gpu.compute_requested_pct)} promised` : ""));
      memory.set([gpu.memory_used_bytes / total, gpu.memory_unmanaged_bytes / total],
        { request: markAt(gpu.memory_promised_bytes / total) },
        `${bytes(gpu.memory_used_bytes)} of ${bytes(total)}` +
        (gpu.memory_promised_bytes > 0 ? `, ${bytes(gpu.memory_promised_bytes)} promised` : "") +
        (gpu.memory_unmanaged_bytes > 0 ? `, ${bytes(gpu.memory_unmanaged_bytes)} unmanaged` : ""));
      for (const part of swapRow) show(part, gpu.swap !== null);
      if (gpu.swap) swap.set([gpu.swap.pool_used_bytes / Math.max(1, gpu.swap.max_bytes)], {}, swapText(gpu.swap));
      show(spaces, gpu.spaces.length > 0);
      spaceViews.sync(gpu.spaces, (space) => space.name);
    },
  };
}

export class Gpus {
  constructor() {
    this.section = byId("gpus-section");
    this.views = new Keyed(byId("gpus"), makeGpu);
  }

  update(overview) {
    show(this.section, overview.gpus.length > 0);  // where users may not see totals
    const gpus = overview.gpus.map((gpu) => ({ ...gpu, spaces: overview.spaces.filter((space) => space.gpu === gpu.index) }));
    this.views.sync(gpus, (gpu) => gpu.index);
  }
}

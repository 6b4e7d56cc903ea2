// What happened in the last minutes, second by second, for each vGPU. It begins with the daemon's timeline, where the
// caller may have it, and goes on with the differences between overviews, so that it costs the daemon nothing more.

export const kSeconds = 300;

class Track {
  constructor() {
    for (const name of ["second", "ran", "waited", "frozen", "out", "in"]) this[name] = new Float64Array(kSeconds);
  }

  // The place of a second, cleared if it held an older one; -1 for a second that is older than what it holds.
  slot(second) {
    const at = second % kSeconds;
    if (this.second[at] > second) return -1;
    if (this.second[at] < second) {
      this.second[at] = second;
      for (const name of ["ran", "waited", "frozen", "out", "in"]) this[name][at] = 0;
    }
    return at;
  }
}

export class History {
  constructor() {
    this.tracks = new Map();  // by the vGPU's name
    this.before = null;       // the overview before, {time_us, vgpus: by name}
  }

  track(name) {
    if (!this.tracks.has(name)) this.tracks.set(name, new Track());
    return this.tracks.get(name);
  }

  // `value` in each second from one time to another.
  fill(name, field, beginUs, endUs, value) {
    const track = this.track(name);
    const last = Math.floor((endUs - 1) / 1e6);
    for (let second = Math.max(Math.floor(beginUs / 1e6), last - kSeconds + 1); second <= last; ++second) {
      const at = track.slot(second);
      if (at >= 0) track[field][at] = Math.max(track[field][at], value);
    }
  }

  // The daemon's timeline: once, at the beginning. `vgpuOf(pid, gpu)` names the vGPU of a process, if there is one.
  addTimeline(timeline, vgpuOf) {
    for (const vgpu of timeline.vgpus) {
      for (let i = 0; i < timeline.steps; ++i) {
        const from = timeline.begin_us + i * timeline.step_us;
        if (vgpu.ran_pct[i] > 0) this.fill(vgpu.name, "ran", from, from + timeline.step_us, vgpu.ran_pct[i]);
        if (vgpu.waited_pct[i] > 0) this.fill(vgpu.name, "waited", from, from + timeline.step_us, vgpu.waited_pct[i]);
      }
    }
    for (const span of timeline.spans) {
      const name = vgpuOf(span.pid, span.gpu);
      if (name) this.fill(name, span.what, span.begin_us, span.end_us, span.bytes ?? 1);
    }
  }

  // An overview: what changed since the one before.
  add(overview) {
    const now = overview.time_us;
    const vgpus = new Map(overview.vgpus.map((vgpu) => [vgpu.name, vgpu]));
    const before = this.before;
    this.before = { time_us: now, vgpus };
    if (!before || now <= before.time_us || now - before.time_us > 10e6) return;
    const span = now - before.time_us;
    for (const [name, vgpu] of vgpus) {
      const old = before.vgpus.get(name);
      if (!old) continue;
      const part = (field) => Math.max(0, Math.min(100, 100 * (vgpu[field] - old[field]) / span));
      this.fill(name, "ran", before.time_us, now, part("compute_busy_us"));
      this.fill(name, "waited", before.time_us, now, part("compute_waited_us"));
      const isFrozen = (each) => each.frozen.some((why) => why !== "policy");
      if (isFrozen(vgpu)) this.fill(name, "frozen", isFrozen(old) ? before.time_us : now - 1, now, 1);
      for (const [field, name_of] of [["out", "moved_out_bytes"], ["in", "moved_in_bytes"]])
        if (vgpu[name_of] > old[name_of]) this.fill(name, field, before.time_us, now, vgpu[name_of] - old[name_of]);
    }
    if (this.tracks.size > 4 * vgpus.size + 64)
      for (const name of this.tracks.keys()) if (!vgpus.has(name)) this.tracks.delete(name);
  }

  // {ran, waited, frozen, out, in} of a vGPU in a second; null where nothing is known.
  at(name, second) {
    const track = this.tracks.get(name);
    const at = second % kSeconds;
    if (!track || track.second[at] !== second) return null;
    return { ran: track.ran[at], waited: track.waited[at], frozen: track.frozen[at] > 0, out: track.out[at], in: track.in[at] };
  }
}

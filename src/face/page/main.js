// The page: asks for an overview every second while somebody looks, and puts the parts together.
import { Refused, Unreachable, call, forgetToken, get, hasToken, pathOf } from "./api.js";
import { EvictDialog, SetDialog, TokenDialog, words } from "./dialogs.js";
import { byId, el, setClass, setText, show } from "./dom.js";
import { Events } from "./events.js";
import { counted } from "./format.js";
import { Gpus } from "./gpus.js";
import { History } from "./history.js";
import { makeProcesses } from "./processes.js";
import { Timeline } from "./timeline.js";
import { isFrozen, makeVGpus } from "./vgpus.js";

const kEveryMs = 1000;
const kToastMs = 8000;

let overview = null;
let version = null;      // of the daemon that this page came from
let hasTimeline = false; // the past was asked for
let timer = 0;
let asking = false;
let askAgain = false;    // something was done while an answer was under way
let needsToken = false;

const past = new History();
const gpus = new Gpus();
const timeline = new Timeline(past);

// ---- what was done, and what went wrong ----

function toast(text, bad = false) {
  const node = el("p", bad ? "bad" : "", text);
  byId("toasts").append(node);
  setTimeout(() => node.remove(), kToastMs);
}

function say(text) {
  const notice = byId("notice");
  setText(notice, text);
  show(notice, text !== "");
  setClass(document.body, text ? "stale" : "");
}

async function act(done, action) {
  try {
    await action();
    toast(done);
  } catch (error) {
    if (error.status === 401) askForToken();
    toast(words(error), true);
  }
  refresh();
}

// ---- actions ----

const isProcess = (thing) => thing.pid !== undefined;
const nameOf = (thing) => (isProcess(thing) ? `process ${thing.pid}` : thing.name);
const pathFor = (thing, ...action) => (isProcess(thing) ? pathOf("processes", thing.pid, ...action) : pathOf("vgpus", thing.name, ...action));

const setDialog = new SetDialog((name) => {
  toast(`${name} is set`);
  refresh();
});
const evictDialog = new EvictDialog();

function freeze(thing) {
  const thaw = isFrozen(thing);
  act(`${nameOf(thing)} is ${thaw ? "thawed" : "frozen"}`, () => call("POST", pathFor(thing, thaw ? "thaw" : "freeze"), {}));
}

function evict(thing) {
  evictDialog.ask(nameOf(thing), async (keep) => {
    await call("POST", pathFor(thing, "evict"), { to_bytes: keep });
    toast(`${nameOf(thing)}: its memory is on the way to host memory`);
    refresh();
  });
}

function set(vgpu) {
  setDialog.ask(vgpu.name).catch((error) => toast(words(error), true));
}

function renice(vgpu, by) {
  const priority = Math.max(0, vgpu.compute_priority + by);
  act(`${vgpu.name} has priority ${priority}`, () => call("PATCH", pathFor(vgpu), { compute_priority: priority }));
}

function only(vgpu) {
  byId("filter").value = `=${vgpu.name}`;
  draw();
}

const vgpus = makeVGpus({ freeze, set, evict, only, renice });
const processes = makeProcesses({ freeze, evict });

// ---- drawing ----

function matches(...texts) {
  const wanted = byId("filter").value.trim().toLowerCase();
  const fits = wanted.startsWith("=") ? (text) => text === wanted.slice(1) : (text) => text.includes(wanted);
  return wanted === "" || texts.some((text) => text !== null && fits(String(text).toLowerCase()));
}

function draw() {
  if (!overview) return;
  const { daemon, caller } = overview;
  setText(byId("daemon"), `${location.host}, tesserad ${daemon.version}${daemon.soft ? ", soft GPU" : ""}`);
  setText(byId("caller"), caller.operator ? "you are an operator" : `you are user ${caller.uid}, and see what is yours`);
  gpus.update(overview);
  const seen = overview.vgpus.filter((vgpu) => matches(vgpu.name, vgpu.space, vgpu.gang, `user ${vgpu.uid}`, `GPU ${vgpu.gpu}`));
  seen.sort((a, b) => a.gpu - b.gpu || (a.name < b.name ? -1 : 1));
  vgpus.sync(seen);
  timeline.update(seen, overview.time_us);
  const running = overview.processes.filter((each) => matches(each.name, each.pid, each.vgpu, `GPU ${each.gpu}`,
    each.uid === null ? null : `user ${each.uid}`));
  running.sort((a, b) => a.gpu - b.gpu || a.pid - b.pid);
  processes.sync(running);
  const count = (part, all, one, many) => (part < all ? `${part} of ${counted(all, one, many)}` : counted(all, one, many));
  setText(byId("vgpus-title"), count(seen.length, overview.vgpus.length, "vGPU", "vGPUs"));
  setText(byId("processes-title"), count(running.length, overview.processes.length, "process", "processes"));
}

// ---- asking ----

const tokenDialog = new TokenDialog(() => {
  needsToken = false;
  begin();
});

function askForToken() {
  if (needsToken) return;
  needsToken = true;
  pause();
  tokenDialog.ask(hasToken());
  forgetToken();
}

const events = new Events(() => refresh(), askForToken);

// The daemon may be another one after it was away; a page of another version would not fit it.
function take(answer) {
  if (version !== null && version !== answer.daemon.version) location.reload();
  version = answer.daemon.version;
  if (!overview || answer.time_us > overview.time_us || answer.daemon.pid !== overview.daemon.pid) {
    overview = answer;
    past.add(answer);
  }
}

// Once, behind the first picture: operators alone may have it, for others the picture begins now.
async function askForThePast() {
  hasTimeline = true;
  if (!overview.caller.operator) return;
  try {
    const byProcess = new Map(overview.processes.map((each) => [`${each.pid} ${each.gpu}`, each.vgpu]));
    past.addTimeline(await get("/v1/timeline"), (pid, gpu) => byProcess.get(`${pid} ${gpu}`));
    draw();
  } catch (error) {
    if (error instanceof Refused) toast(`The timeline begins now: ${words(error)}`, true);
    else hasTimeline = false;
  }
}

async function ask() {
  asking = true;
  askAgain = false;
  const began = performance.now();
  try {
    take(await get("/v1/overview"));
    say("");
    draw();
    if (performance.getEntriesByName("data").length === 0) performance.mark("data");  // for bench/faces.py
    if (!hasTimeline) askForThePast();
  } catch (error) {
    if (error.status === 401) askForToken();
    else if (error instanceof Unreachable) say("The daemon does not answer. Trying again; what you see is as it was.");
    else if (error instanceof Refused) say(words(error));
    else throw error;
  } finally {
    asking = false;
    plan(askAgain ? 50 : Math.max(100, kEveryMs - (performance.now() - began)));
  }
}

function plan(ms) {
  clearTimeout(timer);
  if (!document.hidden && !needsToken) timer = setTimeout(ask, ms);
}

// Soon, because something happened.
function refresh() {
  if (asking) askAgain = true;
  else plan(50);
}

function begin() {
  plan(0);
  events.start();
}

function pause() {
  clearTimeout(timer);
  events.stop();
}

// ---- the person ----

const kSections = { 1: "gpus", 2: "vgpus", 3: "timeline", 4: "events", 5: "processes" };

function goTo(name) {
  const list = { vgpus, processes }[name];
  byId(`${name}-title`).scrollIntoView({ block: "start" });
  if (list && list.items.length > 0) list.focus();
  else byId({ timeline: "timeline", events: "events" }[name] ?? `${name}-title`).focus();
}

function theme() {
  toast(`Theme: ${window.tesseraNextTheme()}`);
  timeline.draw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const filter = byId("filter");
  if (event.key === "Escape") {
    filter.value = "";
    filter.blur();
    draw();
  } else if (event.target === filter) {
    return;
  } else if (event.key in kSections) {
    goTo(kSections[event.key]);
  } else if (event.key === "/") {
    filter.focus();
  } else if (event.key === "t") {
    theme();
  } else if (event.key === "?" || event.key === "h") {
    byId("help-dialog").showModal();
  } else {
    return;
  }
  event.preventDefault();
});
byId("filter").addEventListener("input", draw);
byId("theme").addEventListener("click", theme);
byId("help-button").addEventListener("click", () => byId("help-dialog").showModal());
document.addEventListener("visibilitychange", () => (document.hidden || needsToken ? pause() : begin()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.draw());
if (!document.hidden) begin();

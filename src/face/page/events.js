// The daemon's events, as they happen. The stream is given up while nobody looks: a browser has only a few connections to
// one place, and tabs would wait for each other.
import { Refused, follow } from "./api.js";
import { byId, el, setText, show } from "./dom.js";
import { clock, day } from "./format.js";

const kPast = 200;
const kMost = 300;
const kAgainMs = 2000;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Events {
  // `happened(event)` is called for each that is new since the page was opened; `refused(error)` where the daemon says no.
  constructor(happened, refused) {
    this.list = byId("events");
    this.notice = byId("events-notice");
    this.happened = happened;
    this.refused = refused;
    this.lastId = "";
    this.day = "";
    this.stopping = null;
  }

  start() {
    if (this.stopping) return;
    this.stopping = new AbortController();
    this.run(this.stopping.signal);
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
  }

  async run(signal) {
    while (!signal.aborted) {
      try {
        const path = this.lastId ? "/v1/events" : `/v1/events?last=${kPast}`;
        await follow(path, this.lastId, signal, (event) => this.take(event));
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          this.say(`Events: ${error.message}. Trying again.`);
          if (error.status === 401) {
            this.stop();
            this.refused(error);
            return;
          }
        }
      }
      await pause(kAgainMs);
    }
  }

  say(text) {
    setText(this.notice, text);
    show(this.notice, text !== "");
  }

  take({ id, event, data }) {
    this.say("");
    const told = JSON.parse(data);
    if (event === "lost") {
      this.add(el("li", "", `(${told.events} events are lost: this page read too slowly)`));
      return;
    }
    this.lastId = id;
    this.add(this.row(told));
    this.happened(told);
  }

  row(event) {
    const time = el("time", "", clock(event.time_us));
    time.title = day(event.time_us);
    time.dateTime = new Date(event.time_us / 1000).toISOString();
    const about = [event.vgpu, event.pid === null ? null : `process ${event.pid}`, event.gpu === null ? null : `GPU ${event.gpu}`, event.text];
    return el("li", "", time, el("b", `type ${event.type.split(".")[0]}`, event.type), el("span", "", about.filter(Boolean).join("  ")));
  }

  add(row) {
    this.list.prepend(row);
    while (this.list.childElementCount > kMost) this.list.lastElementChild.remove();
  }
}

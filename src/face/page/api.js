// The daemon's API. A token, where one is needed, is kept for this tab only and sent as a header, so that no other page
// can send it.

const kTokenKey = "tessera.token";
const kPatienceMs = 15000;  // longer than that, no answer comes

let token = "";

function keep(value) {
  token = value;
  try {
    if (value) sessionStorage.setItem(kTokenKey, value);
    else sessionStorage.removeItem(kTokenKey);
  } catch {
    // A browser that keeps nothing: it is asked for again when the page is loaded again.
  }
}

// A link from `tessera page` has the token behind #, which browsers send to nobody. It leaves the address at once.
function takeTokenFromAddress() {
  const found = /^#token=([!-~]+)$/.exec(location.hash);
  if (found) {
    keep(decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname);
    return;
  }
  try {
    token = sessionStorage.getItem(kTokenKey) ?? "";
  } catch {
    token = "";
  }
}

takeTokenFromAddress();

// A refusal in the daemon's own words.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the daemon answered ${status}`);
    this.status = status;
    this.hint = problem.hint ?? "";
  }
}

// No answer: the daemon is not there, or not to be reached.
export class Unreachable extends Error {}

export const hasToken = () => token !== "";
export const setToken = keep;
export const forgetToken = () => keep("");

function headersWith(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    throw new Unreachable(error.message);
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // What answers is not the daemon; the status says enough.
  }
  if (response.status === 503 && problem.code === "ESHUTDOWN") throw new Unreachable(problem.detail);
  throw new Refused(response.status, problem);
}

// The answer's JSON; null for an empty one. `more`: headers.
export async function call(method, path, body, more = {}) {
  const headers = headersWith(body === undefined ? more : { ...more, "Content-Type": "application/json" });
  const response = await ask(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(kPatienceMs),
  });
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Unreachable(error.message);  // it ended in the middle of the answer
  }
}

export const get = (path) => call("GET", path);

// A path with names in it: each is quoted.
export const pathOf = (...words) => "/v1/" + words.map((word) => encodeURIComponent(word)).join("/");

// Follows server-sent events until the stream ends or `signal` says so. `take` gets {id, event, data} of each. By fetch,
// because EventSource sends no header with a token.
export async function follow(path, lastId, signal, take) {
  const headers = headersWith({ Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) });
  const response = await ask(path, { headers, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const event = { id: "", event: "", data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        const [, name, content] = /^(id|event|data): (.*)$/.exec(line) ?? [];
        if (name) event[name] = content;
      }
      if (event.data) take(event);
    }
  }
}

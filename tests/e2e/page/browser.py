"""A headless Chromium that tests drive by the DevTools protocol, over a pipe: no library and no port is needed."""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = "chromium-headless-shell"
DEADLINE_S = 60
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowUp": (38, ""), "ArrowDown": (40, ""), "ArrowLeft": (37, ""),
        "ArrowRight": (39, ""), "Home": (36, ""), "End": (35, ""), " ": (32, " ")}


class Browser:
    """One process, for all pages of a test class. Ends with close()."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="tessera-browser-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # The browser reads from 3 and writes to 4; these are elsewhere first, so that neither is in the other's way.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs_in, theirs_out)]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.child = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "LD_PRELOAD": ""})
        for fd in (*high, theirs_in, theirs_out):
            os.close(fd)
        self.input, self.output = ours_in, ours_out
        self.buffer = b""
        self.number = 0
        self.pages = {}

    def close(self):
        """Asks it to end, so that it ends its own children and leaves nothing in the profile's folder."""
        try:
            self.call("Browser.close")
            self.child.wait(DEADLINE_S)
        finally:
            self.child.kill()
            self.child.wait()
            os.close(self.input)
            os.close(self.output)
            shutil.rmtree(self.profile)

    # ---- the protocol ----

    def message(self, wait_s):
        """The next message; None if none comes."""
        end = time.monotonic() + wait_s
        while b"\0" not in self.buffer:
            if not select.select([self.input], [], [], max(0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self.input, 1 << 16)
            if not piece:
                raise AssertionError(f"the browser ended: {self.child.wait()}")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        while True:
            answer = self.message(DEADLINE_S)
            if answer is None:
                raise AssertionError(f"the browser does not answer {method}")
            if answer.get("id") != number:
                self.note(answer)
            elif "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def note(self, event):
        page = self.pages.get(event.get("sessionId"))
        if page:
            page.note(event)

    def page(self, url, width=1280, height=800, scheme="light"):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.look(width, height, scheme)
        if url:
            page.open(url)
        return page


class Page:
    """A tab. `errors` are exceptions, violations of the content security policy and all else that the page logs as wrong."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.errors = []
        self.requests = []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        del self.browser.pages[self.session]

    def note(self, event):
        method, told = event["method"], event["params"]
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error" and told["entry"]["source"] != "network":
            self.errors.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(str([each.get("value") or each.get("description") for each in told["args"]]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def look(self, width, height, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, expression):
        """The value of JavaScript, as JSON has it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, what=None, deadline_s=DEADLINE_S):
        """The value as soon as it is true. An expression that fails is not true yet."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            value = self.evaluate(f"(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()")
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"waited for {what or expression}; the page shows\n{self.text()[:3000]}\nerrors: {self.errors}")

    def text(self, selector="body"):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def key(self, key, modifiers=0):
        code, text = KEYS.get(key, (ord(key.upper()[0]), key))
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, element):
        """`element`: JavaScript for one. Clicks its middle with the mouse, wherever it is then."""
        x, y = self.wait(f"""(() => {{ const node = {element}; node.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()""", element)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

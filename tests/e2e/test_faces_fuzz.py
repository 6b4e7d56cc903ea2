"""The faces as somebody hostile or broken uses them: requests and files at random, from a seed, against the API's document
and docs/files.md.

  test_faces_fuzz.py [--seed N] [--seconds S]

Only the daemon is needed, so that one with a sanitizer in it can be tested as well (tools/sanitize.sh).
"""
import argparse
import contextlib
import ctypes
import errno
import gzip
import json
import mmap
import os
import pathlib
import random
import re
import select
import socket
import string
import sys
import time
import unittest

try:
    import jsonschema
except ImportError:  # a Python that is not the distribution's, whose packages serve as well
    sys.path.append("/usr/lib/python3/dist-packages")
    import jsonschema

from harness import GIB, MIB, SoftGpuTest, mounts, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SPEC = json.loads((ROOT / "docs/reference/openapi.json").read_text())
METHODS = ("get", "post", "patch", "delete", "put")
PROBLEM = jsonschema.Draft202012Validator(
    {**SPEC["components"]["schemas"]["Problem"], "components": SPEC["components"]})
# Those of errors, as the document lists them.
STATUSES = {int(status) for status in re.findall(r"\b[45]\d\d\b", SPEC["info"]["description"])}
# Not memory_max_bytes, which without a bound depends on what others were promised; the tag is of what was asked for.
SETTINGS = ("tag", "uid", "gpu", "memory_request_bytes", "memory_limit_bytes", "memory_swap_max_bytes", "compute_request_pct",
            "compute_limit_pct", "compute_weight", "compute_priority", "goal", "gang", "labels", "space", "sm_limit_pct", "ephemeral", "owner_pid")
SPACES = ("s1", "s2", "s3")  # few, because each is made of processes
TOKEN = "0123456789abcdef"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GROWTH = 48 * MIB  # of the daemon's memory, which stays with malloc

SEED, ROUNDS, SECONDS = 1, 6000, None


class FacesTest(SoftGpuTest):
    """A daemon with files and TCP, and what its vGPUs must be like: only what was answered with success has changed them."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.start_daemon(config=self.api_by_tcp(TOKEN))
        # The API answers before there are files; what the daemon holds is counted from here on.
        wait_for("the daemon to be complete", lambda: f"serving {self.run_dir}" in self.daemon_log())
        self.model = {}

    def rounds(self):
        """So many of them, or for so long."""
        end = time.monotonic() + SECONDS if SECONDS else None
        number = 0
        while time.monotonic() < end if end else number < ROUNDS:
            number += 1
            self.round = number
            yield number

    def reached(self, seen, wanted):
        if not SECONDS:  # in which there may be time for little
            self.assertGreaterEqual({*seen}, wanted, "the generator has not come to all that there is")

    def listed(self):
        status, _, told = self.api("GET", "/v1/vgpus")
        self.assertEqual(status, 200)
        return {vgpu["name"]: {key: vgpu[key] for key in SETTINGS} for vgpu in told["vgpus"]}

    def unchanged(self, what):
        self.assertEqual(self.listed(), self.model, f"--seed {SEED}, round {self.round}: {what}")

    def within_bounds(self):
        total = self.api("GET", "/v1/gpus")[2]["gpus"][0]
        for name, vgpu in self.model.items():
            self.assertRegex(name, r"^[A-Za-z0-9._-]{1,63}$")
            self.assertLessEqual(vgpu["memory_limit_bytes"], total["memory_total_bytes"])
            self.assertTrue(0 <= vgpu["compute_request_pct"] <= vgpu["compute_limit_pct"] <= 100, vgpu)
            self.assertTrue(1 <= vgpu["compute_weight"] <= 10000 and 0 <= vgpu["compute_priority"] <= 15, vgpu)
        # In a space they are of a part of the SMs.
        self.assertLessEqual(sum(vgpu["compute_request_pct"] * vgpu["sm_limit_pct"] / 100 for vgpu in self.model.values()), 100)
        self.assertLessEqual(total["memory_promised_bytes"], total["memory_total_bytes"])

    # ---- what the daemon holds ----

    def held(self):
        process = pathlib.Path(f"/proc/{self.daemon.pid}")
        return len(os.listdir(process / "fd")), len(os.listdir(process / "task"))

    def settled(self):
        """What it holds when it has begun all that it begins after it says that it serves."""
        looks = []

        def stands():
            looks.append(self.held())
            return looks[-50:] == 50 * looks[-1:]
        wait_for("descriptors and threads to stay as they are", stands)
        return looks[-1]

    def memory(self):
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        return {key: int(value) << 10 for key, value in re.findall(r"^(VmRSS|VmSize):\s+(\d+) kB", status, re.M)}

    @contextlib.contextmanager
    def nothing_leaks(self):
        before, memory = self.settled(), self.memory()
        yield
        self.assertIsNone(self.daemon.poll(), "the daemon has died")
        wait_for(f"descriptors and threads to be {before} again",
                 lambda: all(now <= then for now, then in zip(self.held(), before)))
        # AddressSanitizer reserves terabytes for its shadow, and keeps what was freed for a while.
        if memory["VmSize"] < 1 << 42:
            self.assertLess(self.memory()["VmRSS"] - memory["VmRSS"], GROWTH)
        self.stop_daemon()
        self.assertEqual(self.daemon.returncode, 0, "the daemon ends in good order")

    # ---- values ----

    def some_name(self):
        pick = self.random
        if self.model and pick.random() < 0.6:
            return pick.choice(sorted(self.model))
        return pick.choice([f"v{pick.randrange(40)}", "A.b-c_9", "x" * 63])

    def odd_text(self):
        pick = self.random
        return pick.choice(["", ".", "..", "a b", "a/b", "x" * 64, "x" * 5000, "\0", "\n", "é", "\u202e", "%s%n", "-1", "1e9999",
                            "18446744073709551616", "nan", "inf", "0x10", " 1", "1 ", "101%", "-5%", "9" * 400,
                            "".join(pick.choices(string.printable, k=pick.randrange(40)))])

    def odd_value(self):
        pick = self.random
        deep = pick.randrange(1, 20000)
        return pick.choice([None, True, False, 0, -1, 1.5, 1e308, 1 << 63, 1 << 64, 10**400, [], {}, [[]], {"a": {}},
                            self.odd_text(), Raw("[" * deep + "]" * deep), Raw('{"a":' * deep + "1" + "}" * deep), Raw("NaN"),
                            Raw("-0"), Raw("1e999"), Raw('"\\ud800"'), Raw('"\\u0000"'), Raw("01"), Raw('"' + "y" * 60000 + '"')])

    def right_value(self, field):
        pick = self.random
        if field.startswith("memory_"):
            return pick.choice([0, 2 * MIB, 64 * MIB, "64M", "1%", "5%", "max", None, GIB] + [1, 40 * GIB] * (pick.random() < 0.2))
        return {"name": lambda: self.some_name(), "program": lambda: pick.choice(["python3", "a b", "é", "x" * 300]),
                "gpu": lambda: pick.choice([0, "0", "auto", 1]), "ephemeral": lambda: pick.choice([False, True, None]),
                "owner_pid": lambda: pick.choice([None, os.getpid(), 999_999_999]),
                "compute_weight": lambda: pick.choice([1, 100, "250", 10000, 10001, 0]),
                "compute_priority": lambda: pick.choice([0, 8, "15", 16]),
                "space": lambda: pick.choice(SPACES), "sm_limit": lambda: pick.choice([10, "33.3", 50, 100, 0]),
                "goal": lambda: pick.choice(["p99=20ms", "speed=80%", "none", None, "fast"]),
                "gang": lambda: pick.choice(["g1", "g2", "none", None, "a b"]),
                "within_quota": lambda: pick.choice([True, False, None]),
                "labels": lambda: pick.choice([{}, None, {"team": "a"}, {"team": "\u00e9 \"\\", "pod": ""}, {"vgpu": "x"}, {"a": self.odd_text()},
                                               {self.odd_text(): "b"}, {f"k{i}": "x" * 253 for i in range(pick.choice([8, 9]))}]),
                "vgpu": self.some_name, "to_bytes": lambda: pick.choice([0, MIB, GIB])}.get(
                    field, lambda: pick.choice([0, 1, 2, "5", 3.3] * 4 + [33.3, "100", 100, 101]))()


class Raw(str):
    """JSON as it is, right or wrong."""


def to_json(fields):
    """Of a list of pairs, so that a name may come twice."""
    text = lambda value: value if isinstance(value, Raw) else json.dumps(value)
    return ("{" + ",".join(f"{json.dumps(key)}:{text(value)}" for key, value in fields) + "}").encode("utf-8", "surrogatepass")


class Api(FacesTest):
    def setUp(self):
        super().setUp()
        self.operations = [(method, path) for path, item in SPEC["paths"].items() for method in item if method in METHODS]
        self.operations += 3 * [(method, path) for method, path in self.operations if method in ("patch", "delete")]
        self.operations += 12 * [("post", "/v1/vgpus")]

    # ---- a request ----

    def path(self, template):
        pick = self.random
        name = self.some_name() if pick.random() < 0.7 else pick.choice(
            ["%00", "%ff%fe", "..", "%2e%2e", "a%2fb", "%", "%zz", "x" * 64, "x" * 7000, "%c3%a9", "+", ";"])
        pid = pick.choice([1, 0, os.getpid(), self.daemon.pid, 999_999_999, 9_999_999_999, "-1", "x", "%31", "1.5", "9" * 3000])
        if "/spaces" in template and pick.random() < 0.7:
            name = pick.choice(SPACES)
        text = template.replace("{name}", name).replace("{pid}", str(pid))
        text = text.replace("{file}", pick.choice(["main.js", "page.css", "icon.svg", "none.js", name]))
        if pick.random() < 0.3:
            text += "?" + pick.choice(["last=5", "last=-1", "last=99999", "past_ms=1", "past_ms=x", "past_ms=" + "9" * 30, "saved=1",
                                       "force=1", "force=yes", "&&&=", "a=b&" * 1000, "%ff=%00", "force=1&force=0"])
        return text

    def body(self, operation):
        """None where none is sent."""
        pick = self.random
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        kind = pick.random()
        if schema is None:
            return None if kind < 0.8 else b"{}"
        if kind < 0.08:
            return pick.choice([None, b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name":"\xff"}', b'{"\xc3\x28":1}', b"{}" * 10, b"\0" * 50,
                                b"x" * 65536, b"x" * 65537, b" " * 65534 + b"{}", b"x" * 100_000, b"[" * 60_000])
        if "$ref" in schema:
            schema = SPEC["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        names = sorted(schema["properties"])
        chosen = pick.sample(names, min(len(names), pick.choice([0, 1, 1, 2, 3])))
        if "name" in names and "name" not in chosen:
            chosen.append("name")
        of_space = schema is SPEC["components"]["schemas"].get("SpaceRequest")
        right = lambda name: pick.choice(SPACES) if of_space and name == "name" else self.right_value(name)
        fields = [(name, self.odd_value() if pick.random() < 0.15 else right(name)) for name in chosen]
        if pick.random() < 0.05:
            fields += [pick.choice([("none", 1), ("", {}), ("Name", "x"), ("owner_pid", 1)])]
        if fields and pick.random() < 0.05:
            fields.append((fields[0][0], self.odd_value()))
        return to_json(fields)

    def headers(self, body):
        pick = self.random
        lines = [b"Host: localhost"]
        if body is not None:
            length = pick.random()
            if length < 0.90:
                lines.append(b"Content-Length: %d" % len(body))
            elif length < 0.93:  # in chunks
                lines.append(b"Transfer-Encoding: chunked")
                size = pick.choice([1, 7, 1000, 100_000]) if len(body) < 5000 else 30_000
                pieces = [body[at:at + size] for at in range(0, len(body), size)]
                body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            else:
                lines.append(pick.choice([b"Content-Length: -1", b"Content-Length: 5", b"Content-Length: x", b"Content-Length:",
                                          b"Content-Length: 99999999999999999999", b"Transfer-Encoding: gzip", b"X: no length",
                                          b"Transfer-Encoding: chunked", b"Content-Length: %d" % (len(body) + 5)]))
        tag = pick.choice([b'"x"', b"*", b'W/"x"', b"", b'"', b'"a", "b"', b"\xff", b"y" * 5000])
        extra = [b"If-Match: " + tag, b"Accept: text/event-stream", b"Accept: " + pick.choice([b"*/*", b"\xff", b"application/openmetrics-text", b";q=,"]),
                 b"Range: bytes=" + pick.choice([b"0-5", b"0-," * 1500 + b"0-", b"99-1", b"-" * 50, b"9" * 50 + b"-", b"x"]),
                 b"Expect: 100-continue", b"Expect: x", b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Type: text/plain",
                 b"Content-Type: multipart/form-data; boundary=x", b"Content-Type: multipart/form-data",
                 b"Content-Type: application/x-www-form-urlencoded", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c",
                 b"Accept-Encoding: gzip, deflate", b"Accept-Encoding: br", b"Origin: http://evil.example", b"Sec-Fetch-Site: cross-site", b"Last-Event-ID: " + pick.choice([b"0-0", b"x", b"9" * 90]), b"Authorization: Bearer x",
                 b"X-Long: " + b"z" * pick.choice([100, 8000, 9000, 30_000]), b"no colon", b": nothing", b"X: \0", b"X: \xff\xfe",
                 b"A: b\r\n" * 400 + b"A: b", b" folded", b"Host: other"]
        if pick.random() < 0.35:
            lines += pick.sample(extra, pick.choice([1, 1, 2, 3]))
        return lines, body

    def request(self):
        """Method, template and bytes of one; some of them are none."""
        pick = self.random
        method, template = pick.choice(self.operations)
        body = self.body(SPEC["paths"][template][method])
        if pick.random() < 0.03:
            method = pick.choice(["put", "head", "options", "trace", "connect", "pri", "FOO", "gEt", "", "G\0T", "x" * 9000])
        lines, body = self.headers(body)
        head = f"{method.upper() if method != 'gEt' else method} {self.path(template)} ".encode() + pick.choice([b"HTTP/1.1"] * 8 + [b"HTTP/1.0"])
        data = b"\r\n".join([head, *lines]) + b"\r\n\r\n" + (body or b"")
        if pick.random() < 0.04:  # broken anywhere
            data = bytearray(data)
            for _ in range(pick.choice([1, 1, 3, 20])):
                data[pick.randrange(min(len(data), 400))] = pick.randrange(256)
            data = bytes(data)
        elif pick.random() < 0.02:
            data = data[:pick.randrange(len(data))]
        elif pick.random() < 0.02:  # one after the other, of which the first alone is served
            data += b'POST /v1/vgpus HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{"name":"smuggled"}'
        elif pick.random() < 0.01:
            data = pick.choice([b"\r\n" * 100, b"\0" * 1000, b"GET\r\n\r\n", b"GET /healthz\r\n\r\n", b"GET /healthz HTTP/9.9\r\n\r\n",
                                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", pick.randbytes(3000), b"x" * 200_000])
        return method, template, data

    # ---- its answer ----

    def send(self, data, tcp):
        """The bytes that come back. The request is ended, so that a server which misses some of it need not wait for more."""
        connection = socket.create_connection(("127.0.0.1", self.port)) if tcp else socket.socket(socket.AF_UNIX)
        with connection:
            connection.settimeout(60)
            if not tcp:
                connection.connect(str(self.run_dir / "api.sock"))
            answer = b""
            try:
                # Bigger ones are cut off where they are too long.
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                self.assertIn(error.errno, (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN))
                self.assertGreater(len(data), 4096)
            try:
                while not re.match(rb"(?s).*text/event-stream.*\r\n\r\n", answer[:1000]):  # which has no end
                    piece = connection.recv(1 << 16)
                    if not piece:
                        break
                    answer += piece
            except ConnectionResetError:
                # Bytes that were not read, because they were refused or follow a request, reset the connection as it
                # closes. That may cut off the answer, but for one that something was done.
                self.assertGreater(len(data), 4096, answer)
                final = answer.removeprefix(CONTINUE)
                length = not data.startswith(b"HEAD") and re.search(rb"\r\nContent-Length: (\d+)\r\n", final)
                if length and len(final.partition(b"\r\n\r\n")[2]) < int(length[1]) or b"\r\n\r\n" not in final:
                    self.assertNotRegex(final, rb"^HTTP/1\.1 2")
                    return b""
            return answer

    def check(self, method, template, data, answer):
        """Status and JSON of an answer that is as the document says."""
        answer = answer.removeprefix(CONTINUE)
        if not answer:
            return None, None
        head, _, content = answer.partition(b"\r\n\r\n")
        status = int(re.fullmatch(rb"HTTP/1\.1 (\d{3}) [^\r\n]+", head.split(b"\r\n")[0])[1])
        headers = {key.lower(): value for key, value in (line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])}
        kind = headers.get("content-type", "").split(";")[0]
        if data.startswith(b"HEAD") and not content:  # else it was not understood that far
            return status, None
        if "content-length" in headers:
            self.assertEqual(len(content), int(headers["content-length"]))
        if headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        if status < 400:
            # A broken request may happen to be another valid one.
            operation = SPEC["paths"][template].get(method)
            named = {int(code) for item in SPEC["paths"].values() for key, one in item.items() if key in METHODS
                     for code in one["responses"] if code.isdigit()}
            self.assertIn(status, named)
            if operation and str(status) in operation["responses"]:
                self.assertTrue(kind in operation["responses"][str(status)].get("content", {}) or not content, kind)
        else:
            self.assertIn(status, STATUSES)
            self.assertEqual(kind, "application/problem+json")
            problem = json.loads(content)
            PROBLEM.validate(problem)
            self.assertEqual(problem["status"], status)
        return status, json.loads(content) if kind.endswith("json") and content else None

    def learn(self, status, told, data):
        """Updates the model after a success."""
        words = data.split(b" ")
        if status in (201, 204) and words[1].startswith(b"/v1/spaces"):
            return  # they are listed, and end some time after
        if status == 201 or (status == 200 and words[0] == b"PATCH"):
            self.model[told["name"]] = {key: told[key] for key in SETTINGS}
        elif status == 204 and words[0] == b"POST":  # to be frozen is a setting; of processes there are none
            name = re.match(rb"/v1/vgpus/([^/? ]+)/(freeze|thaw)\b", words[1])[1].decode()
            now = self.api("GET", f"/v1/vgpus/{name}")[2]
            self.assertEqual("operator" in now["frozen"], b"/freeze" in words[1])
            self.model[name]["tag"] = now["tag"]
        elif status == 204 and words[0] == b"DELETE":
            del self.model[re.match(rb"/v1/vgpus/([^/? ]+)", words[1])[1].decode()]

    def test_requests_at_random(self):
        self.events_once()
        seen = {}
        with self.nothing_leaks():
            for number in self.rounds():
                tcp = self.random.random() < 0.2
                method, template, data = self.request()
                with self.subTest(seed=SEED, round=number, tcp=tcp, request=data[:300], length=len(data)):
                    status, told = self.check(method, template, data, self.send(data, tcp))
                    if tcp and status is not None and status < 400:
                        self.assertRegex(data.decode("latin-1"), r"^(GET|HEAD) /(healthz|page/[a-z]+\.[a-z]+)?[ ?]", "without the token")
                    self.learn(status, told, data)
                    if not data.startswith((b"GET", b"HEAD")) or status is None:
                        self.unchanged(data[:300])
                seen[status] = seen.get(status, 0) + 1
                if self.failed():
                    return
                if len(self.model) > 20:
                    self.forget_all()
            self.within_bounds()
            self.reached(seen, {200, 201, 204, 400, 401, 404, 409, 413})
            print(f"seed {SEED}: {self.round} requests, by status {dict(sorted(seen.items(), key=str))}", file=sys.stderr)
            self.forget_all()
            self.forget_spaces()
            self.assertEqual(self.api("POST", "/v1/vgpus", {"name": "after"})[0], 201)

    def events_once(self):
        """The thread that sends events stays from the first time on."""
        with self.connect(tcp=False) as connection:
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nAccept: text/event-stream\r\n\r\n")
            answer = b""
            while b"retry:" not in answer:  # it is that thread that writes this
                piece = connection.recv(1 << 16)
                self.assertTrue(piece, answer)
                answer += piece

    def forget_all(self):
        for name in list(self.model):
            self.assertEqual(self.api("DELETE", f"/v1/vgpus/{name}")[0], 204)
            del self.model[name]
        self.round = getattr(self, "round", 0)
        self.unchanged("all were removed")

    def forget_spaces(self):
        for space in self.api("GET", "/v1/spaces")[2]["spaces"]:
            self.assertIn(space["state"], ("starting", "ready", "closing"))
            self.assertIn(self.api("DELETE", f"/v1/spaces/{space['name']}")[0], (204, 404))
        wait_for("the end of all spaces", lambda: not self.api("GET", "/v1/spaces")[2]["spaces"])

    # ---- connections ----

    def connect(self, tcp):
        if tcp:
            return socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self.run_dir / "api.sock"))
        return connection

    def test_who_is_silent_or_slow_holds_up_nobody(self):
        self.events_once()
        self.round = 0
        with self.nothing_leaks():
            for tcp in (False, True):
                with contextlib.ExitStack() as open_ones:
                    silent = [open_ones.enter_context(self.connect(tcp)) for _ in range(300)]
                    for connection in silent[::3]:
                        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # one that made room for others
                            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
                    # Each of them would be waited for as long as a request may take, of which there are not so many.
                    self.assertTrue(self.send(b"GET /healthz HTTP/1.1\r\n\r\n", tcp).startswith(b"HTTP/1.1 200 "))
                    self.assertEqual(self.api("GET", "/v1/gpus")[0], 200)
                    # A connection that sends at last is served.
                    silent[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                    self.assertTrue(silent[-1].recv(100).startswith(b"HTTP/1.1 200 "))
                    # Those that were too many were closed, the oldest of them first.
                    self.assertTrue(select.select([silent[1]], [], [], 60)[0])

    def test_who_leaves_at_any_time(self):
        self.events_once()
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.round = 0
        with self.nothing_leaks():
            for tcp in (False, True):
                for length in range(0, len(request) + 1, 3):
                    with self.connect(tcp) as connection:
                        connection.sendall(request[:length])
            self.assertEqual(self.api("GET", "/healthz")[0], 200)
            self.unchanged("nobody asked for anything")

    def test_a_long_request_is_cut_off(self):
        with self.nothing_leaks():
            for data in (b"GET /" + b"x" * (1 << 20), b"A: b\r\n" * (1 << 18), b"POST /v1/vgpus HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n" + b"x" * (1 << 20)):
                for tcp in (False, True):
                    self.send(data, tcp)
            self.assertEqual(self.listed(), {})


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# The field of the API behind each file of a vGPU.
FIELD_OF = {"memory.limit": "memory_limit_bytes", "memory.max": "tag", "memory.request": "memory_request_bytes",
            "memory.swap.max": "memory_swap_max_bytes",
            "compute.request": "compute_request_pct", "compute.max": "compute_limit_pct", "compute.weight": "compute_weight",
            "compute.priority": "compute_priority", "compute.goal": "goal", "gang": "gang", "sm.limit": "sm_limit_pct"}
# docs/files.md, and what the kernel itself says of paths, open modes and what the file system does not have.
ERRNOS = {errno.EINVAL, errno.ERANGE, errno.ENOSPC, errno.EBUSY, errno.EEXIST, errno.ESRCH, errno.EOPNOTSUPP, errno.EPERM,
          errno.EACCES, errno.ENODEV, errno.ENODATA, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EBADF,
          errno.EXDEV, errno.ENOTEMPTY}


class Files(FacesTest):
    def setUp(self):
        super().setUp()
        self.files = self.run_dir / "fs"
        if mounts(self.files) != 1:
            self.skipTest("there can be no files here")
        self.known = [self.files / path for path in ("", "vgpus", "processes", "processes/list")]

    def some_path(self):
        pick = self.random
        kind = pick.random()
        if kind < 0.1:
            return pick.choice(self.known)
        if kind < 0.2:
            odd = pick.choice(["none", "processes/0/0/memory.limit", "processes/1", "vgpus/../processes", "vgpus/" + "x" * 200, "vgpus/\udcff",
                               "vgpus/" + "x" * 300, "a/b/c/d/e/f", "vgpus/a b", "processes/007", "vgpus/x/none", "vgpus/-", "vgpus/..."])
            return self.files / odd
        vgpu = self.files / "vgpus" / self.some_name()
        return vgpu if kind < 0.3 else vgpu / pick.choice(self.names + 2 * [*FIELD_OF])

    def some_text(self):
        pick = self.random
        kind = pick.random()
        if kind < 0.5:
            return str(pick.choice([0, 1, 10, 15, 16, 100, 250, 10000, 64 * MIB, GIB, "64M", "10%", "max", 33.3, 101, -1, 40 * GIB, "40G", "p99=20ms", "none"])).encode() + b"\n"
        if kind < 0.8:
            return self.odd_text().encode()
        return pick.choice([b"", b"\n", b"1\n2\n", b"\xff", b"7" * 65, b"7" * 4096, b"7" * 4097, b"7" + b"\n" * 100_000, b"5" + b"\0" * 5000,
                            b"1" * MIB, b" " * 65536 + b"1", b"1\0"])

    def act(self, path):
        """One system call or a few of them on a path. What it may have changed: (how, path)."""
        pick = self.random
        other = self.some_path()
        while os.path.normpath(other) == os.path.normpath(path):  # POSIX lets everybody rename what stays as it is
            other = self.some_path()

        def write():
            fd = os.open(path, pick.choice([os.O_WRONLY, os.O_RDWR]) | pick.choice([0, os.O_TRUNC, os.O_APPEND, os.O_CREAT, os.O_NONBLOCK, os.O_SYNC]))
            try:
                if pick.random() < 0.2:
                    os.lseek(fd, pick.choice([1, 4096, 1 << 40]), os.SEEK_SET)
                if pick.random() < 0.2:
                    os.ftruncate(fd, pick.choice([0, 1, 1 << 40]))
                if pick.random() < 0.2:
                    os.read(fd, 100)
                # More than a GPU has is asked for often enough to be refused.
                text = b"40G\n" if path.name == "memory.request" and pick.random() < 0.3 else self.some_text()
                at = pick.choice([None, None, None, 0, 7, 1 << 40])
                written = os.write(fd, text) if at is None else os.pwrite(fd, text, at)
                self.assertEqual(written, len(text), "a value is written whole, or not at all")
                return ("write", path) if text else None
            finally:
                os.close(fd)

        def read():
            fd = os.open(path, os.O_RDONLY | pick.choice([0, os.O_NONBLOCK, os.O_NOFOLLOW, os.O_CLOEXEC]))
            try:
                for _ in range(3):
                    os.pread(fd, pick.choice([0, 1, 100, MIB]), pick.choice([0, 0, 5, 1 << 40]))
                return None
            finally:
                os.close(fd)

        def map_it():
            with open(path, "r+b", buffering=0) as file:
                # Not mmap's own function, which refuses by the file's size, 0.
                shared = pick.random() < 0.5
                at = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE, file.fileno(), 0)
                if at == ctypes.c_void_p(-1).value:
                    raise OSError(ctypes.get_errno(), "mmap")
                LIBC.munmap(at, 4096)

        def copy():
            with open(path, "rb", buffering=0) as source, open(other, "wb", buffering=0) as target:
                data = source.read(4096)
                target.write(data)
                return ("write", other) if data else None

        def poll():
            with open(path, "rb", buffering=0) as file:
                poller = select.poll()
                poller.register(file, select.POLLPRI)
                poller.poll(0)

        def done(action, *arguments, **options):
            action(*arguments, **options)

        changes = lambda how, action: (action(path), (how, path))[1]
        return pick.choice([
            write, write, write, write, write, write, read, read, copy, map_it, poll,
            *[lambda: changes("mkdir", os.mkdir)] * 3, lambda: changes("rmdir", os.rmdir),
            lambda: done(os.listdir, path), lambda: done(os.stat, path), lambda: done(os.statvfs, path),
            lambda: done(os.access, path, os.W_OK), lambda: done(os.readlink, path),
            lambda: done(os.truncate, path, pick.choice([0, 1, 1 << 40])), lambda: done(os.utime, path),
            lambda: self.nobody_may(os.unlink, path), lambda: self.nobody_may(os.rename, path, other),
            lambda: self.nobody_may(os.link, path, other), lambda: self.nobody_may(os.symlink, path, other),
            lambda: self.nobody_may(os.mkfifo, other), lambda: self.nobody_may(os.chmod, path, 0o777),
            lambda: self.nobody_may(os.chown, path, 1, 1), lambda: self.nobody_may(os.setxattr, path, "user.x", b"1"),
            lambda: done(os.getxattr, path, "user.x"), lambda: done(os.listxattr, path)])()

    def nobody_may(self, action, *arguments):
        action(*arguments)
        self.fail(f"{action.__name__} {arguments} succeeded")

    def learn(self, change):
        how, path = change
        parts = path.relative_to(self.files).parts
        if how == "mkdir":
            self.model[parts[1]] = self.listed()[parts[1]]
        elif how == "rmdir":
            del self.model[parts[1]]
        elif parts[2] in FIELD_OF:
            now = self.listed()[parts[1]]
            for key in ("tag", FIELD_OF[parts[2]]):
                self.model[parts[1]][key] = now[key]
        else:
            self.assertEqual(parts[2], "compute.freeze")
            self.model[parts[1]]["tag"] = self.listed()[parts[1]]["tag"]

    def test_files_at_random(self):
        self.round = 0
        os.mkdir(self.files / "vgpus/v0")
        self.model = self.listed()
        self.names = sorted(os.listdir(self.files / "vgpus/v0"))
        seen = {}
        with self.nothing_leaks():
            for number in self.rounds():
                path = self.some_path()
                with self.subTest(seed=SEED, round=number, path=path):
                    try:
                        change = self.act(path)
                        seen["done"] = seen.get("done", 0) + 1
                        if change:
                            self.learn(change)
                    except OSError as error:
                        seen[errno.errorcode[error.errno]] = seen.get(errno.errorcode[error.errno], 0) + 1
                        self.assertIn(error.errno, ERRNOS, error)
                    self.unchanged(path)
                if self.failed():
                    return
            self.within_bounds()
            self.reached(seen, {"done", "EINVAL", "ERANGE", "ENOSPC", "EEXIST", "EPERM", "EACCES", "ENOENT"})
            print(f"seed {SEED}: {self.round} calls on files, {dict(sorted(seen.items()))}", file=sys.stderr)
            for name in os.listdir(self.files / "vgpus"):
                os.rmdir(self.files / "vgpus" / name)
            self.assertEqual(self.listed(), {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, help="for each face; by default a fixed number of rounds")
    arguments, others = parser.parse_known_args()
    SEED, SECONDS = arguments.seed, arguments.seconds
    unittest.main(argv=[sys.argv[0], *others])

"""Owners, operators and quotas: every row of the table in docs/security-model.md by API, and what a quota allows."""
import grp
import http.client
import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import unittest

from harness import LIB, MIB, SoftGpuTest, TesseraTest, UnixConnection
from test_daemon import ATTACH, WELCOME, hello, kind_of, message, text_of

SECURITY = pathlib.Path(__file__).resolve().parents[2] / "docs/security-model.md"
OPERATORS = 1  # a group that every Debian has
OPERATORS_NAME = grp.getgrgid(OPERATORS).gr_name
OPERATOR, OWNER, OTHER = 4243, 4242, 4241
TOKEN = "0123456789abcdef"
ATTACHED = 67


def table():
    """Of each operation: its name, and who may do it."""
    lines = SECURITY.read_text().split("| operation | operators |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Owners(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)
        self.api_section = self.api_by_tcp(TOKEN, f'group = "{OPERATORS_NAME}"\n')
        self.start_daemon(config=self.config())
        self.uuid = self.api("GET", "/v1/gpus")[2]["gpus"][0]["uuid"]

    def config(self, more=""):
        return f"{self.api_section}[files]\nenabled = false\n{more}"

    def by(self, uid, action, *arguments):
        return self.as_user(uid, action, *arguments, groups=[OPERATORS] if uid == OPERATOR else [])

    def status(self, method, path, body=None):
        connection = UnixConnection(self.run_dir / "api.sock")
        connection.request(method, path, None if body is None else json.dumps(body))
        status = connection.getresponse().status
        connection.close()
        return status

    def made(self, uid, name, **fields):
        return self.by(uid, lambda: self.api("POST", "/v1/vgpus", {"name": name, **fields}))

    def by_tcp(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, "{}" if body is None and method != "GET" else body)
        status = connection.getresponse().status
        connection.close()
        return status

    def join(self, vgpu):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(60)
            connection.connect(str(self.run_dir / "client.sock"))
            connection.send(hello(vgpu))
            return 200 if kind_of(connection.recv(8192)) == WELCOME else 404

    # A request for each operation, by the first words of its row; {vgpu} and {pid} are what it acts on.
    REQUESTS = {
        "ask whether": ("GET", "/healthz"),
        "get the page": ("GET", "/page/main.js"),
        "see the GPUs' totals": ("GET", "/v1/gpus"),
        "see what the GPUs do": None,  # the same request, of which users get less: tested below
        "make a vGPU": ("POST", "/v1/vgpus", {"program": "x"}),
        "see a vGPU": ("GET", "/v1/vgpus/{vgpu}"),
        "run a program": None,  # by client.sock
        "change a vGPU": ("PATCH", "/v1/vgpus/{vgpu}", {"compute_weight": 50}),
        "freeze or thaw a vGPU": ("POST", "/v1/vgpus/{vgpu}/thaw", {}),
        "evict a vGPU": ("POST", "/v1/vgpus/{vgpu}/evict", {}),
        "suspend, resume or migrate a vGPU": ("POST", "/v1/vgpus/{vgpu}/resume", {}),
        "remove a vGPU": ("DELETE", "/v1/vgpus/{vgpu}"),
        "see a process": ("GET", "/v1/processes/{pid}"),
        "freeze or thaw a process": ("POST", "/v1/processes/{pid}/thaw", {}),
        "evict a process": ("POST", "/v1/processes/{pid}/evict", {}),
        "suspend, resume or migrate a process": ("POST", "/v1/processes/{pid}/resume", {}),
        "see, freeze or thaw unmanaged": None,  # a soft GPU has none: tested below
        "adopt": ("POST", "/v1/processes/{pid}/adopt", {"vgpu": "everybodys"}),
        "see events of": ("GET", "/v1/events"),
        "see all events": None,  # the same request: tested below
        "see the trace": ("GET", "/v1/trace"),
        "see the metrics": ("GET", "/metrics"),
        "ask for the daemon's findings": ("GET", "/v1/doctor"),
        "reload": ("POST", "/v1/reload", {}),
        "drain or undrain a GPU": ("POST", "/v1/gpus/0/undrain", {}),
    }

    def test_every_operation_by_every_role(self):
        self.made(OWNER, "owners")
        self.create("everybodys")
        pid = self.program_of(OWNER, "owners")
        rows = table()
        self.assertEqual(len(rows), len(self.REQUESTS))
        for name, operator, owner, other, shared, nobody in rows:
            (request,) = [request for beginning, request in self.REQUESTS.items() if name.startswith(beginning)]
            if request is None:
                continue
            method, template, *body = request
            acts_on = "{" in template

            def ask(vgpu):
                return self.status(method, template.format(vgpu=vgpu, pid=pid), *body)

            # The owner's before the operator's, whose act may be the last that there is of it.
            for role, uid, may in (("other", OTHER, other), ("owner", OWNER, owner), ("operator", OPERATOR, operator)):
                status = self.by(uid, ask, "owners")
                with self.subTest(operation=name, role=role, status=status):
                    if may == "no":
                        self.assertEqual(status, 404 if acts_on and owner == "yes" else 403)
                    else:
                        # In use, on a GPU without swap, in a vGPU already: all of these come after the authority.
                        self.assertIn(status, (200, 201, 202, 204, 409))
            if "{vgpu}" in template:
                status = self.by(OTHER, ask, "everybodys")
                with self.subTest(operation=name, of="everybody", status=status):
                    self.assertEqual(status, 200 if shared == "yes" else 403)
            with self.subTest(operation=name, role="TCP without the token"):
                self.assertEqual(self.by_tcp(method, template.format(vgpu="owners", pid=pid)), 200 if nobody == "yes" else 401)
        self.assertEqual([self.by(uid, self.join, "owners") for uid in (OTHER, OWNER, OPERATOR)], [404, 200, 200])
        self.assertEqual(self.by(OTHER, self.join, "everybodys"), 200)

    def program_of(self, uid, vgpu):
        """The pid of a process of that user that is attached in the vGPU, until the test ends."""
        uuid = bytes.fromhex(self.uuid.removeprefix("GPU-").replace("-", ""))
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(str(self.run_dir / "client.sock"))
                connection.send(hello(vgpu))
                connection.recv(8192)
                connection.send(message(ATTACH, struct.pack("<16sQQQIIII64s", uuid, 0, 0, 0, 0, 0, 0, 0, b"")))
                os.write(writer, bytes([kind_of(socket.recv_fds(connection, 8192, 4)[0]) or 0]))
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).recv(1)  # for ever
            finally:
                os._exit(0)
        os.close(writer)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, 9)
        with os.fdopen(reader, "rb") as pipe:
            self.assertEqual(pipe.read(1), bytes([ATTACHED]))
        return pid

    def test_users_see_what_is_theirs(self):
        self.made(OWNER, "owners")
        self.made(OTHER, "others", memory_request="512M")
        self.create("everybodys")
        pid = self.program_of(OWNER, "everybodys")

        def sees():
            get = lambda path, key: self.api("GET", path)[2][key]
            return {"vgpus": [each["name"] for each in get("/v1/vgpus", "vgpus")],
                    "processes": [each["pid"] for each in get("/v1/processes", "processes")],
                    "in it": self.api("GET", "/v1/vgpus/everybodys")[2]["processes"],
                    "events": sorted({each["vgpu"] for each in get("/v1/events", "events") if each["vgpu"]}),
                    "promised": [each["memory_promised_bytes"] for each in get("/v1/gpus", "gpus")],
                    "turn": [each["control"]["why"] for each in get("/v1/gpus", "gpus")]}

        self.assertEqual(self.by(OTHER, sees), {"vgpus": ["everybodys", "others"], "processes": [], "in it": [], "events": ["others"],
                                                "promised": [512 * MIB], "turn": [""]})
        mine = self.by(OWNER, sees)
        self.assertEqual((mine["vgpus"], mine["processes"], mine["in it"]), (["everybodys", "owners"], [pid], [pid]))
        self.assertEqual(mine["events"], ["everybodys", "owners"], "its process began in the one")
        everything = self.by(OPERATOR, sees)
        self.assertEqual((everything["vgpus"], everything["processes"]), (["everybodys", "others", "owners"], [pid]))
        self.assertEqual(everything["events"], ["everybodys", "others", "owners"])

        # The same at once, as the page asks for it; answers are shared by the programs of a user and by no others.
        def overview():
            seen = self.api("GET", "/v1/overview")[2]
            return [[each["name"] for each in seen["vgpus"]], [each["pid"] for each in seen["processes"]], seen["caller"]["operator"],
                    [each["control"]["why"] for each in seen["gpus"]], self.api("GET", "/v1/timeline")[0]]

        self.assertEqual(self.by(OTHER, overview), [["everybodys", "others"], [], False, [""], 403])
        self.assertEqual(self.by(OWNER, overview), [["everybodys", "owners"], [pid], False, [""], 403])
        everything = self.by(OPERATOR, overview)
        self.assertEqual((everything[:3], everything[4]), ([["everybodys", "others", "owners"], [pid], True], 200))

        # What is another's is answered as what is not there.
        def told(name):
            return [self.api(method, f"/v1/vgpus/{name}{action}", body)[2]["detail"].replace(name, "NAME")
                    for method, action, body in (("GET", "", None), ("PATCH", "", {}), ("DELETE", "", None), ("POST", "/freeze", {}),
                                                 ("POST", "/evict", {}))]

        self.assertEqual(self.by(OTHER, told, "owners"), self.by(OTHER, told, "nothing"))

        self.made(OTHER, "the-end")
        text = self.by(OTHER, lambda: follow_until(self.run_dir, b"the-end"))
        self.assertNotIn("owners", text)

    def test_totals_are_for_users_as_the_configuration_says(self):
        """Users see what is theirs all the same."""
        self.made(OWNER, "owners")
        (row,) = [row for row in table() if row[0].startswith("see the GPUs' totals")]
        self.assertEqual(row[1:], ["yes", "if `access.totals`", "if `access.totals`", "if `access.totals`", "no"])
        users = (OWNER, OTHER)

        def statuses():
            return [self.by(uid, self.status, "GET", "/v1/gpus") for uid in (*users, OPERATOR)]

        self.assertEqual(statuses(), [200, 200, 200])
        self.stop_daemon()
        self.start_daemon(config=self.config("[access]\ntotals = false\n"))
        self.assertEqual(statuses(), [403, 403, 200])
        self.assertEqual([self.by(uid, self.status, "GET", "/v1/vgpus/owners") for uid in users], [200, 404])
        self.assertEqual(self.by(OWNER, lambda: self.api("GET", "/v1/overview")[2]["gpus"]), [])
        self.assertEqual(self.by_tcp("GET", "/v1/gpus"), 401)

    def test_slow_clients_of_a_user_delay_only_that_user(self):
        began, answered = os.pipe(), os.pipe()

        def wait_slowly():
            """Sends heads without their bodies, and tells how many are not waited for any more when others were answered."""
            slow = []
            for _ in range(70):
                slow.append(socket.socket(socket.AF_UNIX))
                slow[-1].connect(str(self.run_dir / "api.sock"))
                slow[-1].sendall(b"POST /v1/vgpus HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
            select.select(slow, [], [])  # those that are too many are closed
            os.write(began[1], b"x")
            os.read(answered[0], 1)
            closed = select.select(slow, [], [], 0)[0]
            for each in slow:
                each.close()
            return len(closed)

        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = 0 if self.by(OTHER, wait_slowly) <= 70 - 64 else 1
            finally:
                os._exit(status)
        os.read(began[0], 1)
        self.assertEqual([self.by(uid, self.status, "GET", "/v1/vgpus") for uid in (OWNER, OPERATOR)], [200, 200])
        os.write(answered[1], b"x")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_a_quota_bounds_what_users_have(self):
        """tessera run of a user who is in no group, and what it may not have. (A soft GPU serves one user: it runs no CUDA.)"""
        build = self.build_for_everybody()

        def run(*words):
            done = subprocess.run([build / "bin/tessera", "run", "--soft", *words, "--", "true"], env=self.env,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            return [done.returncode, done.stderr]

        self.assertEqual(self.by(OWNER, run, "--memory-request", "1G", "--compute", "30"), [0, ""])
        for words, reason in ((("--memory-request", "3G"), "quota default allows memory of 2 GiB: 0 B in use, 3 GiB asked for"),
                              (("--compute", "60"), "quota default allows compute of 50 % of a GPU: 0 % in use, 60 % asked for"),
                              (("--priority", "7"), "quota default allows priority 8"),
                              (("--weight", "101"), "quota default allows weight of 100")):
            status, text = self.by(OWNER, run, *words)
            self.assertEqual(status, 125)
            self.assertIn(reason, text)
        # The sum counts, and what is changed; operators have none.
        self.assertEqual(self.made(OWNER, "a", memory_request="1G")[0], 201)
        status, _, refused = self.made(OWNER, "b", memory_request="1536M")
        self.assertEqual((status, refused["code"]), (403, "EDQUOT"))
        self.assertIn("1 GiB in use, 1.5 GiB asked for", refused["detail"])
        self.assertEqual(self.by(OWNER, lambda: self.api("PATCH", "/v1/vgpus/a", {"memory_request": "2500M"})[2]["code"]), "EDQUOT")
        self.assertEqual(self.by(OPERATOR, self.status, "PATCH", "/v1/vgpus/a", {"memory_request": "2500M"}), 200)
        self.assertEqual(self.made(OPERATOR, "c", compute_request=70, compute_priority=0)[0], 201)
        # But where an operator says so.
        status, _, refused = self.made(OPERATOR, "d", compute_request=20, within_quota=True)
        self.assertEqual((status, refused["code"]), (403, "EDQUOT"))
        self.assertIn("70 % in use, 20 % asked for", refused["detail"])
        change = {"compute_weight": 200, "within_quota": True}
        self.assertEqual(self.by(OPERATOR, lambda: self.api("PATCH", "/v1/vgpus/c", change)[2]["code"]), "EDQUOT")
        self.assertEqual(self.made(OPERATOR, "d", within_quota=True)[0], 201)

        # Others by name, and at once.
        (self.run_dir / "config.toml").write_text(self.config(f"[quota.{OTHER}]\nvgpus = 1\nprocesses = 1\nsessions = 2\npriority = 2\n"))
        changes = self.api("POST", "/v1/reload")[2]["changes"]
        self.assertIn({"key": f"quota.{OTHER}.vgpus", "from": "none", "to": "1", "live": True}, changes)
        self.assertEqual(self.made(OTHER, "first", compute_priority=2)[0], 201)
        self.assertIn("vgpus of 1", self.made(OTHER, "second")[2]["detail"])
        self.create("everybodys")
        self.program_of(OTHER, "first")
        with self.assertRaises(AssertionError):  # a second process
            self.program_of(OTHER, "everybodys")

        def third():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(60)
                connection.connect(str(self.run_dir / "client.sock"))
                return text_of(connection.recv(8192))

        self.assertIn(f"quota {OTHER} allows sessions of 2: 2 in use, 1 asked for", self.by(OTHER, third))


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Unmanaged(TesseraTest):
    """A program on the GPU that is in no vGPU: for operators alone, also where it is the caller's own."""

    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)
        self.table = self.run_dir / "processes"
        self.env.update(TESSERA_REAL_NVML=str(LIB / "tests" / "fake_nvml.so"), FAKE_NVML_PROCESSES=str(self.table))
        program = self.spawn("setpriv", f"--reuid={OWNER}", "--regid=65534", "--clear-groups", "--", "sleep", "600")
        self.pid = program.pid
        self.table.write_text(f"{self.pid} {64 * MIB}\n")
        self.start_daemon(config=f'[api]\ngroup = "{OPERATORS_NAME}"\n[files]\nenabled = false\n')

    def test_only_operators_see_it_and_act_on_it(self):
        (row,) = [row for row in table() if row[0] == "see, freeze or thaw unmanaged processes"]
        self.assertEqual(row[1:], ["yes", "no", "no", "no", "no"])

        def asks():
            listed = [each["pid"] for each in self.api("GET", "/v1/processes")[2]["processes"]]
            answers = [self.api(method, f"/v1/processes/{self.pid}{action}", body)
                       for method, action, body in (("GET", "", None), ("POST", "/freeze", {}), ("POST", "/thaw", {}))]
            return [listed, *[[status, answer.get("detail")] for status, _, answer in answers]]

        for uid in (OWNER, OTHER):  # the first of them is who started it
            listed, *answers = self.as_user(uid, asks)
            self.assertEqual((listed, [status for status, _ in answers]), ([], [404, 404, 404]), uid)
        listed, seen, *acts = self.as_user(OPERATOR, asks, groups=[OPERATORS])
        self.assertEqual((listed, seen), ([self.pid], [200, None]))
        # It may, and there is nothing to act on: no channel of it is known. The others are told the same.
        self.assertEqual(acts, [[404, f"process {self.pid} uses no GPU here"]] * 2)
        self.assertEqual(answers[1:], acts)
        process, = self.api("GET", f"/v1/processes/{self.pid}")[2]["processes"]
        self.assertEqual((process["managed"], process["vgpu"], process["memory_bytes"]), (False, None, 64 * MIB))


def follow_until(run_dir, wanted):
    connection = UnixConnection(run_dir / "api.sock")
    connection.request("GET", "/v1/events?last=9", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    text = b""
    while wanted not in text:
        text += answer.read1(65536)
    return text.decode()


if __name__ == "__main__":
    unittest.main()

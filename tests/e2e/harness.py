"""Shared by the end-to-end tests: a daemon on the soft GPU in a directory of its own, and programs under it."""
import http.client
import errno
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

BUILD = pathlib.Path(os.environ["TESSERA_BUILD"])
BIN, LIB = BUILD / "bin", BUILD / "lib"
SHIM = LIB / "tessera" / "libcuda.so.1"
SOFT = LIB / "tessera" / "soft" / "libcuda.so.1"
TENANT = LIB / "tessera" / "tessera-tenant"
DEADLINE_S = 60

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# CUresult values that tests expect.
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NOT_SUPPORTED = 0, 1, 2, 3, 801
DEVICE_UNAVAILABLE, NO_DEVICE, SYSTEM_NOT_READY = 46, 100, 802


def wait_for(what, condition, deadline_s=DEADLINE_S):
    """The value of condition() as soon as it is true."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {deadline_s} s for {what}")


def mounts(path):
    """How often something is mounted there."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(line.split()[4] == str(path) for line in lines)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def open_for_reader(fifo):
    """None while nobody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def write_line(fifo, line):
    """Fails if nobody reads it before the deadline; a blocking open would wait for ever."""
    with os.fdopen(wait_for("a reader of the faults", lambda: open_for_reader(fifo)), "w") as out:
        out.write(line + "\n")


class Lines:
    """The lines that a process writes to stdout, as they come."""

    def __init__(self, child):
        self.child = child
        self.buffer = b""

    def next(self, deadline_s=DEADLINE_S):
        """The next line; None at the end; TimeoutError if neither comes."""
        fd = self.child.stdout.fileno()
        while b"\n" not in self.buffer:
            if not select.select([fd], [], [], deadline_s)[0]:
                raise TimeoutError(f"no line from process {self.child.pid} in {deadline_s} s")
            piece = os.read(fd, 65536)
            if not piece:
                return None
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()


class Shell:
    """A driver_shell (tests/programs/driver_shell) and its answers."""

    def __init__(self, child):
        self.child = child
        self.lines = Lines(child)

    @property
    def pid(self):
        return self.child.pid

    def send(self, *words):
        self.child.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.child.stdin.flush()

    def answer(self, deadline_s=DEADLINE_S):
        line = self.lines.next(deadline_s)
        if line is None:
            raise AssertionError(f"driver_shell ended ({self.child.wait()}): {self.child.stderr.read()}")
        return json.loads(line)

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def ok(self, *words):
        """As ask, where nothing may fail."""
        answer = self.ask(*words)
        if answer["result"] != SUCCESS:
            self.child.kill()
            raise AssertionError(f"{words}: {answer} {self.child.stderr.read()}")
        return answer

    def filled(self, bytes_, word):
        """The number of new memory that is full of this word."""
        number = self.ok("allocate", "alloc", bytes_)["id"]
        self.ok("set", number, word)
        return number

    def end(self):
        """Leaves without freeing anything."""
        self.child.stdin.close()
        self.child.stdin = None  # as Popen.communicate wants it
        if self.child.wait(DEADLINE_S) != 0:
            raise AssertionError(f"driver_shell: {self.child.returncode}: {self.child.stderr.read()}")


class Tenant:
    """A tessera-tenant and the events that it tells."""

    def __init__(self, child):
        self.child = child
        self.lines = Lines(child)
        self.last = {}  # by kind

    @property
    def pid(self):
        return self.child.pid

    def event(self, deadline_s=DEADLINE_S):
        line = self.lines.next(deadline_s)
        if line is None:
            raise AssertionError(f"tessera-tenant ended ({self.child.wait()}): {self.child.stderr.read()}")
        event = json.loads(line)
        self.last[event["event"]] = event
        return event

    def until(self, kind):
        while True:
            event = self.event()
            if event["event"] == kind:
                return event

    def makes_progress(self, kernels=1):
        """Returns when it has completed so many more kernels than it had told of."""
        wanted = self.last.get("progress", {"kernels": 0})["kernels"] + kernels
        while self.until("progress")["kernels"] < wanted:
            pass

    def send_signal(self, number):
        self.child.send_signal(number)

    def finish(self):
        """Ends it. The kernels that it completed, all of which were verified."""
        self.send_signal(signal.SIGTERM)
        done = self.until("done")
        if not done["verified"] or self.child.wait(DEADLINE_S) != 0:
            raise AssertionError(f"wrong results: {done} {self.child.stderr.read()}")
        return done["kernels"]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class TesseraTest(unittest.TestCase):
    """Each test has a run directory, and a daemon if it starts one."""

    DAEMON_FLAGS = ()
    RUN_FLAGS = ()

    def setUp(self):
        self.run_dir = pathlib.Path(tempfile.mkdtemp(prefix="tessera-test-"))
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("TESSERA_") and k not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
        self.env["TESSERA_RUN_DIR"] = str(self.run_dir)
        self.children = []
        self.daemon = None

    def tearDown(self):
        if self.failed() and (self.run_dir / "daemon.log").exists():
            print(f"\n{self.id()}: the daemon's log ends with\n{self.daemon_log()[-6000:]}", file=sys.stderr)
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        self.end_embedded_daemon()
        self.unmount_files()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def failed(self):
        result = self._outcome.result
        return any(getattr(test, "test_case", test) is self for test, _ in result.failures + result.errors)

    def end_embedded_daemon(self):
        """A daemon that `tessera run` started is no child of ours."""
        lock = self.run_dir / "tesserad.lock"
        pid = int(lock.read_text() or 0) if lock.exists() else 0
        try:
            # Under an emulator, the program is the second word of its command.
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") if pid else []
            if str(BIN / "tesserad") in (words and [os.readlink(f"/proc/{pid}/exe"), words[1]]):
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # gone already

    def unmount_files(self):
        """A daemon that was killed leaves its files mounted."""
        helper = ["umount", "-l"] if os.getuid() == 0 else ["fusermount3", "-u", "-z"]
        for _ in range(mounts(self.run_dir / "fs")):
            subprocess.run([*helper, self.run_dir / "fs"], check=True)

    def as_user(self, uid, action, *arguments, groups=(), **named):
        """The result of `action` (as JSON has it), or the name of the error it raises, in a process of that user, who is in no
        group but these and one of the user's own. Root's tests alone."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups(list(groups))
                os.setgid(uid)
                os.setuid(uid)
                try:
                    told = action(*arguments, **named)
                except OSError as error:
                    told = type(error).__name__
                os.write(writer, json.dumps(told).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        self.assertTrue(text, f"{action} of user {uid} has failed")
        return json.loads(text)

    def build_for_everybody(self):
        """A copy of the programs and libraries that every user can reach. The build may lie below a folder that only its
        owner may enter, as home directories are on Debian."""
        copy = pathlib.Path(tempfile.mkdtemp(prefix="tessera-build-"))
        self.addCleanup(shutil.rmtree, copy)
        (copy / "bin").mkdir()
        for program in ("tessera", "tesserad"):
            shutil.copy(BIN / program, copy / "bin")
        shutil.copytree(LIB / "tessera", copy / "lib" / "tessera", symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        return copy

    def spawn(self, *command, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        child = subprocess.Popen([str(word) for word in command], env={**self.env, **(env or {})}, text=True, **options)
        self.children.append(child)
        return child

    # ---- the daemon ----

    def api_by_tcp(self, token, more=""):
        """The configuration of a daemon whose API is served at self.port to who shows this token."""
        self.port = free_port()
        file = self.run_dir / "token"
        file.touch(0o600)
        file.write_text(token + "\n")
        return f'[api]\nlisten = "127.0.0.1:{self.port}"\ntoken_file = "{file}"\n{more}'

    def start_daemon(self, *flags, expect_ready=True, config=None):
        if config is not None:
            (self.run_dir / "config.toml").write_text(config)
            flags += ("--config", self.run_dir / "config.toml")
        with open(self.run_dir / "daemon.log", "a") as log:
            self.daemon = self.spawn(BIN / "tesserad", *self.DAEMON_FLAGS, "--run-dir", self.run_dir, *flags, stderr=log)
        if expect_ready:
            wait_for("the daemon", lambda: self.daemon.poll() is not None or self.answers())
            self.assertIsNone(self.daemon.poll(), self.daemon_log())
        return self.daemon

    def answers(self):
        try:
            return self.api("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def daemon_log(self):
        return (self.run_dir / "daemon.log").read_text()

    def stop_daemon(self, how=signal.SIGTERM):
        self.daemon.send_signal(how)
        self.daemon.communicate(timeout=DEADLINE_S)

    # ---- its faces ----

    def api(self, method, path, body=None, content_type="application/json"):
        """Status, content type, and the JSON of the answer (None for an empty one). `body`: JSON, or bytes as they are."""
        connection = UnixConnection(self.run_dir / "api.sock")
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"Content-Type": content_type} if data is not None else {})
            response = connection.getresponse()
            text = response.read()
            return response.status, response.getheader("Content-Type", ""), json.loads(text) if text else None
        finally:
            connection.close()

    def metrics(self):
        """All of them, as Prometheus gets them."""
        connection = UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def tessera(self, *words, check=True, env=None, **options):
        """Runs the CLI to its end."""
        done = subprocess.run([str(BIN / "tessera"), *(str(word) for word in words)], env={**self.env, **(env or {})},
                              text=True, capture_output=True, timeout=DEADLINE_S, **options)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def json(self, *words):
        return json.loads(self.tessera(*words, "--json").stdout)

    def vgpu(self, name):
        status, _, vgpu = self.api("GET", f"/v1/vgpus/{name}")
        self.assertEqual(status, 200, vgpu)
        return vgpu

    def gpu(self, index):
        return self.json("gpus")["gpus"][index]

    def create(self, name, **fields):
        status, _, vgpu = self.api("POST", "/v1/vgpus", {"name": name, **fields})
        self.assertEqual(status, 201, vgpu)
        return vgpu

    def change(self, name, **fields):
        status, _, vgpu = self.api("PATCH", f"/v1/vgpus/{name}", fields)
        self.assertEqual(status, 200, vgpu)
        return vgpu

    def managed(self):
        """The processes that are in vGPUs."""
        return [process for process in self.api("GET", "/v1/processes")[2]["processes"] if process["managed"]]

    def current(self, name):
        """Bytes that the vGPU's processes use."""
        return self.vgpu(name)["memory_current_bytes"]

    # ---- programs ----

    def run_in(self, vgpu, *command, **options):
        """Starts a program in a vGPU that exists; returns the process, whose pid is the program's."""
        return self.spawn(BIN / "tessera", "run", *self.RUN_FLAGS, "--run-dir", self.run_dir, "--vgpu", vgpu, "--", *command,
                          **options)

    def shell_in(self, vgpu, **options):
        return Shell(self.run_in(vgpu, BIN / "driver_shell", stdin=subprocess.PIPE, **options))

    def shell_with_context(self, vgpu):
        shell = self.shell_in(vgpu)
        shell.ok("init")
        shell.ok("context")
        return shell

    def shell_on_all(self, vgpus, sizes, words):
        """A program with a context, and `memory` full of words, on the GPU of each of these vGPUs."""
        shell = self.shell_in(",".join(vgpus))
        shell.ok("init")
        shell.memory = []
        for number, (size, word) in enumerate(zip(sizes, words)):
            shell.ok("context", number)
            shell.ok("current", number)
            shell.memory.append((shell.filled(size, word), word))
            shell.ok("sync")  # others may look at it from their GPUs
        return shell

    def expect_words(self, shell, number, on=None):
        """In the memory with this number, as it is seen from its GPU, or from the context `on`."""
        shell.ok("current", number if on is None else on)
        memory, word = shell.memory[number]
        self.assertEqual(shell.ok("compare", memory, word)["wrong"], 0)

    def tenant_in(self, vgpu, *flags):
        return Tenant(self.run_in(vgpu, TENANT, *flags))

    def events(self, child):
        """The JSON lines of a tenant that has ended."""
        out, err = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 0, err)
        return [json.loads(line) for line in out.splitlines()]


class SoftGpuTest(TesseraTest):
    """On a soft GPU that no other test sees."""

    SPEC = "1x4GiB"
    CONTEXT_BYTES = 64 * MIB  # of each context on a soft GPU (soft/shared/spec.h)

    RUN_FLAGS = ("--soft",)

    def setUp(self):
        super().setUp()
        self.soft_name = uuid.uuid4().hex[:12]
        self.DAEMON_FLAGS = (f"--soft={self.SPEC}",)
        self.env.update(TESSERA_SOFT=self.SPEC, TESSERA_SOFT_NAME=self.soft_name)

    def tearDown(self):
        super().tearDown()
        for left in pathlib.Path("/dev/shm").glob(f"*{self.soft_name}*"):
            left.unlink()

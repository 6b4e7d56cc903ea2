"""Three users on one node: two compute, and the third does to them, to the daemon and to itself whatever a user can try. Nothing of
theirs is lost, and it sees nothing of them.

  test_neighbours.py [--seed N] [--seconds S]
"""
import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
import unittest

from harness import BIN, DEADLINE_S, SoftGpuTest, UnixConnection, wait_for
from test_daemon import ATTACH, hello, message

SEED, SECONDS = 1, 6
ROUNDS = 400  # of a program of one of the two
# In no /etc/passwd, and none of them an operator.
ALICE, BOB, MALLORY = 4242, 4243, 4244
# Names that the third user must never read.
SECRETS = {ALICE: "alice-serves", BOB: "bob-trains"}
MEMORY_MIB = 280


class Mallory:
    """The third user, in a process of its own. Everything that it reads goes to a file."""

    MOST_CONNECTIONS, MOST_PROGRAMS = 90, 3

    def __init__(self, test, build, folder, victims):
        self.run_dir, self.env, self.build = test.run_dir, test.env, build
        self.uuid, self.daemon = test.uuid, test.daemon.pid
        self.victims = victims  # pids
        self.read = open(folder / "read", "wb")
        self.random = random.Random(SEED)
        self.own, self.programs, self.held = [], [], []
        self.wrong = []
        self.done = dict.fromkeys((action.__name__ for action in self.actions()), 0)

    def actions(self):
        return (self.touch_others, self.ask, self.make, self.change_own, self.remove_own, self.run_own, self.end_own,
                self.hold_connections, self.packets, self.follow, self.files, self.doors, self.signals)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            action = self.random.choice(self.actions())
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                action()
            self.done[action.__name__] += 1
        for connection in self.held:
            connection.close()
        for program in self.programs:
            program.kill()
            program.communicate()
        self.read.close()
        return {"done": self.done, "wrong": self.wrong}

    # ---- means ----

    def request(self, method, path, body=None, timeout=0.3, said=""):
        """The status, or None if there was no answer. An answer may repeat what was `said`."""
        connection = UnixConnection(self.run_dir / "api.sock")
        connection.timeout = timeout
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
            self.read.write(text.replace(said.encode(), b"") if said else text)
            return answer.status
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def client(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(2)
        connection.connect(str(self.run_dir / "client.sock"))
        return connection

    def expect(self, condition, what):
        if not condition:
            self.wrong.append(what)

    # ---- actions ----

    def touch_others(self):
        name, pid = self.random.choice([*SECRETS.values()]), self.random.choice(self.victims)
        method, path, body = self.random.choice((
            ("GET", f"/v1/vgpus/{name}", None), ("DELETE", f"/v1/vgpus/{name}", None),
            ("PATCH", f"/v1/vgpus/{name}", {"memory_limit": "64M"}), ("PATCH", f"/v1/vgpus/{name}", {"compute_weight": 1}),
            ("POST", f"/v1/vgpus/{name}/freeze", {}), ("POST", f"/v1/vgpus/{name}/evict", {}),
            ("GET", f"/v1/processes/{pid}", None), ("POST", f"/v1/processes/{pid}/freeze", {}),
            ("POST", f"/v1/processes/{pid}/evict", {}), ("POST", "/v1/reload", {}), ("GET", "/v1/trace", None),
            ("GET", "/metrics", None), ("GET", "/v1/doctor", None)))
        status = self.request(method, path, body, said=name)
        self.expect(status in (403, 404, 429, 503, None), f"{method} {path}: {status}")

    def ask(self):
        self.request("GET", self.random.choice(("/v1/gpus", "/v1/vgpus", "/v1/processes", "/v1/processes?channels=1", "/v1/events",
                                                "/v1/events?last=1000", "/healthz", "/v1/nothing")))

    def make(self):
        name = f"mallory-{self.random.randrange(30)}"
        fields = self.random.choice(({}, {"memory_request": "64M"}, {"memory_limit": "1G"}, {"compute_weight": 100},
                                     {"compute_request": 90}, {"memory_request": "1T"}, {"compute_priority": 0}))
        if self.request("POST", "/v1/vgpus", {"name": name, **fields}) == 201:
            self.own.append(name)

    def change_own(self):
        """A limit that falls moves memory, and the request waits for it."""
        if self.own:
            size = self.random.choice(("16M", "64M", "256M", "max"))
            self.request("PATCH", f"/v1/vgpus/{self.random.choice(self.own)}", {"memory_limit": size}, timeout=0.2)

    def remove_own(self):
        if self.own and self.request("DELETE", f"/v1/vgpus/{self.random.choice(self.own)}") == 204:
            self.own = [name for name in self.own if self.request("GET", f"/v1/vgpus/{name}") == 200]

    def run_own(self):
        if len(self.programs) < self.MOST_PROGRAMS:
            name = ["--vgpu", self.random.choice(self.own)] if self.own else []
            program = [self.build / "bin/swap_churn", "--seed", self.random.randrange(99), "--rounds", 9999, "--memory", MEMORY_MIB]
            words = [self.build / "bin/tessera", "run", "--soft", *name, "--", *program]
            self.programs.append(subprocess.Popen([str(word) for word in words], env=self.env, stdin=subprocess.DEVNULL,
                                                  stdout=subprocess.DEVNULL, stderr=self.read))

    def end_own(self):
        if self.programs:
            program = self.random.choice(self.programs)
            how = self.random.choice((signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGKILL))
            program.send_signal(how)
            if how == signal.SIGKILL:
                program.communicate()
                self.programs.remove(program)

    def hold_connections(self):
        if len(self.held) > self.MOST_CONNECTIONS or self.random.random() < 0.5:
            for connection in self.held:
                connection.close()
            self.held.clear()
        for _ in range(20):
            if self.random.random() < 0.5:
                self.held.append(self.client())
            else:
                slow = socket.socket(socket.AF_UNIX)
                slow.settimeout(0.2)
                self.held.append(slow)
                slow.connect(str(self.run_dir / "api.sock"))
                slow.sendall(b"POST /v1/vgpus HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")

    def packets(self):
        """As a program that breaks the protocol, in another's vGPU or its own."""
        with self.client() as connection:
            connection.send(hello(self.random.choice([*SECRETS.values(), *self.own, ""])))
            answer = connection.recv(8192)
            for name in SECRETS.values():
                answer = answer.replace(name.encode(), b"")  # as it was said
            self.read.write(answer)
            uuid = bytes.fromhex(self.uuid.removeprefix("GPU-").replace("-", ""))
            if self.random.random() < 0.7:
                connection.send(message(ATTACH, struct.pack("<16sQQQIIII64s", uuid, 0, 0, 0, 0, 0, 0, 0, b"")))
            for _ in range(self.random.randrange(1, 20)):
                body = self.random.randbytes(self.random.choice((0, 8, 16, 24, 48, 100)))
                connection.send(message(self.random.randrange(0, 40), body))

    def follow(self):
        """Streams of events that nobody reads."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(0.2)
        self.held.append(stream)
        stream.connect(str(self.run_dir / "api.sock"))
        stream.sendall(b"GET /v1/events?last=1000 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
        if self.random.random() < 0.5:
            self.read.write(stream.recv(65536))

    def files(self):
        """All that it can read of the tree, and writes where it must not."""
        for folder, _, names in os.walk(self.run_dir / "fs"):
            self.read.write(folder.encode() + b"\n" + "\n".join(names).encode())
            for name in names:
                with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb", buffering=0) as file:
                    os.set_blocking(file.fileno(), False)
                    self.read.write(file.read(65536) or b"")
        for pid in self.victims:
            with contextlib.suppress(OSError):
                for name in os.listdir(self.run_dir / "fs" / "processes" / str(pid)):
                    self.wrong.append(f"lists processes/{pid}: {name}")

    def doors(self):
        """Every socket and file of the run directory, apart from those that are for all."""
        for path in self.run_dir.iterdir():
            if path.is_socket() and path.name not in ("client.sock", "api.sock"):
                for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as door:
                        door.settimeout(1)
                        door.connect(str(path))
                        door.send(self.random.randbytes(64))
                        self.expect(not door.recv(64), f"{path.name} answers")
            elif path.is_file():
                with contextlib.suppress(OSError), open(path, "ab"):
                    self.wrong.append(f"may write {path.name}")

    def signals(self):
        for pid in (*self.victims, self.daemon):
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, 0)
                self.wrong.append(f"may send signals to {pid}")


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Neighbours(SoftGpuTest):
    SPEC = "1x512MiB,context=16MiB,pcie=4GB/s,speed=400M"

    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)
        self.env["TESSERA_SOFT_USER"] = "0"
        self.start_daemon(config='[swap]\nsize = "2G"\nfloor = "1G"\n[turn]\nmin_ms = 20\n')
        wait_for("the daemon to be complete", lambda: f"serving {self.run_dir}" in self.daemon_log())
        self.uuid = self.api("GET", "/v1/gpus")[2]["gpus"][0]["uuid"]
        self.build = self.build_for_everybody()
        shutil.copy(BIN / "swap_churn", self.build / "bin")

    def held(self):
        """Of the daemon: how many descriptors of each kind, and threads; not the pool's memory, which it keeps."""
        process = pathlib.Path(f"/proc/{self.daemon.pid}")
        kinds = collections.Counter(f"thread {path.read_text().strip()}" for path in process.glob("task/*/comm"))
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(process / "fd" / name)
                if not target.startswith("/memfd:tessera-soft-memory"):
                    kinds[re.sub(r"\[\d+\]", "", target)] += 1
        return kinds

    def churn(self, user):
        return self.spawn(self.build / "bin/tessera", "run", "--soft", "--vgpu", SECRETS[user], "--", self.build / "bin/swap_churn",
                          "--seed", SEED + user, "--rounds", ROUNDS, "--memory", MEMORY_MIB, user=user, group=user, extra_groups=[])

    def read_an_event(self):
        stream = UnixConnection(self.run_dir / "api.sock")
        stream.request("GET", "/v1/events", headers={"Accept": "text/event-stream"})
        self.assertIn(b"retry:", stream.getresponse().readline())  # it is that thread that writes this
        stream.close()

    def check_ended(self, program):
        out, err = program.communicate(timeout=2 * DEADLINE_S)
        self.assertEqual(program.returncode, 0, f"--seed {SEED}: {out[-300:]} {err}")
        last = json.loads(out.splitlines()[-1])
        self.assertTrue(last["done"])
        self.assertEqual(last["wrong_words"], 0, f"--seed {SEED}")

    def test_nothing_is_lost_and_nothing_seen(self):
        for user, name in SECRETS.items():
            made = self.as_user(user, lambda name=name: self.api("POST", "/v1/vgpus", {"name": name, "memory_max": "1G"})[0])
            self.assertEqual(made, 201)
        for program in [self.churn(user) for user in SECRETS]:
            self.check_ended(program)
        self.read_an_event()
        before = self.held()  # with the mover, the thread that sends events, and all else that stays
        programs = {user: self.churn(user) for user in SECRETS}
        wait_for("their processes", lambda: len(self.managed()) == 2)
        settings = [self.vgpu(name)["memory_limit_bytes"] for name in SECRETS.values()]
        folder = self.run_dir / "mallory"
        folder.mkdir()
        os.chown(folder, MALLORY, MALLORY)
        reader, writer = os.pipe()
        victims = [process["pid"] for process in self.managed()]
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(MALLORY)
                os.setuid(MALLORY)
                os.write(writer, json.dumps(Mallory(self, self.build, folder, victims).run(SECONDS)).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writer)
        ended = dict.fromkeys(SECRETS, 0)
        gone = False
        while not gone or not all(ended.values()):
            gone = gone or os.waitpid(pid, os.WNOHANG)[0] == pid
            self.assertIsNone(self.daemon.poll(), "the daemon has died")
            for user, program in programs.items():
                if program.poll() is not None:
                    self.check_ended(program)
                    ended[user] += 1
                    programs[user] = self.churn(user)
            time.sleep(0.05)
        for program in programs.values():
            self.check_ended(program)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        self.assertTrue(told, "the third user's process has failed")
        told = json.loads(told)
        print(f"seed {SEED}: {told['done']}; rounds of the others ended: {ended}", file=sys.stderr)
        self.assertEqual(told["wrong"], [])
        seen = (folder / "read").read_bytes()
        for name in SECRETS.values():
            self.assertNotIn(name.encode(), seen)
        self.assertEqual([self.vgpu(name)["memory_limit_bytes"] for name in SECRETS.values()], settings)

        # Its programs end by its vGPUs' removal or with its user; then nothing of it is left.
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if process.stat().st_uid == MALLORY:
                    os.kill(int(process.name), signal.SIGKILL)
        wait_for("its processes to be gone", lambda: not self.managed())
        for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]:
            self.assertEqual(vgpu["memory_current_bytes"], 0)
            self.tessera("vgpu", "rm", vgpu["name"])
        with contextlib.suppress(AssertionError):
            wait_for("descriptors and threads to be gone", lambda: self.held() <= before)
        self.assertEqual(self.held() - before, {}, f"--seed {SEED}: descriptors and threads that are left")
        self.stop_daemon()
        self.assertEqual(self.daemon.returncode, 0, "the daemon ends in good order")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments, others = parser.parse_known_args()
    SEED, SECONDS = arguments.seed, arguments.seconds
    unittest.main(argv=[sys.argv[0], *others])

"""The daemon: its start, its state file, what it refuses, and what comes in over its sockets."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from harness import BIN, DEADLINE_S, MIB, SoftGpuTest, wait_for

PROTOCOL = (pathlib.Path(__file__).resolve().parents[2] / "src" / "wire" / "protocol.h").read_text()
MAGIC, VERSION = 0x53534554, int(re.search(r"kProtocolVersion = (\d+);", PROTOCOL)[1])
HELLO, ATTACH, RESERVE, WANTS, WELCOME, REFUSED = 1, 2, 3, 6, 65, 66


def message(kind, body=b"", magic=MAGIC, version=VERSION, length=None):
    return struct.pack("<IHHII", magic, version, kind, len(body) if length is None else length, 0) + body


def hello(vgpus):
    return message(HELLO, struct.pack("<iI512s64s", os.getpid(), 0, vgpus.encode(), b"test"))


def kind_of(packet):
    return struct.unpack_from("<H", packet, 6)[0] if len(packet) >= 16 else None


def text_of(refused):
    return refused[24:].split(b"\0")[0].decode()


def running_as_root():
    return os.geteuid() == 0


def as_nobody():
    os.setgid(65534)
    os.setuid(65534)


class Start(SoftGpuTest):
    def refused(self, *flags, env=None, daemon=BIN / "tesserad", **options):
        """The error of a daemon that does not start."""
        done = subprocess.run([daemon, *map(str, flags)], env={**self.env, **(env or {})}, capture_output=True,
                              text=True, timeout=DEADLINE_S, **options)
        self.assertNotIn(done.returncode, (0, -signal.SIGSEGV, -signal.SIGABRT), done.stderr)
        self.status = done.returncode
        return done.stderr

    def config(self, text):
        path = self.run_dir / "config.toml"
        path.write_text(text)
        return self.refused(*self.DAEMON_FLAGS, "--run-dir", self.run_dir, "--config", path)

    def test_starts_answers_and_leaves_no_socket_behind(self):
        self.start_daemon()
        health = self.api("GET", "/healthz")[2]
        self.assertEqual((health["status"], health["soft"], health["pid"], health["embedded"]),
                         ("ok", True, self.daemon.pid, False))
        self.stop_daemon()
        self.assertEqual(self.daemon.returncode, 0)
        self.assertEqual([path.name for path in self.run_dir.glob("*.sock")], [])

    def test_a_second_one_is_refused_with_the_pid_of_the_first(self):
        self.start_daemon()
        said = self.refused("--soft", "--run-dir", self.run_dir)
        self.assertIn(f"pid {self.daemon.pid}", said)
        self.assertTrue(self.answers())

    def test_a_run_directory_that_is_none(self):
        path = self.run_dir / "file"
        path.write_text("")
        self.assertIn("is not a directory", self.refused("--soft", "--run-dir", path))

    def test_a_run_directory_that_others_can_write(self):
        self.run_dir.chmod(0o777)
        self.assertIn("is writable by other users", self.refused("--soft", "--run-dir", self.run_dir))

    def test_a_run_directory_that_cannot_be_made(self):
        self.assertIn("cannot make", self.refused("--soft", "--run-dir", "/proc/tessera"))

    def test_a_run_directory_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o555)
            daemon, options = BIN / "tesserad", {}
            if running_as_root():  # to whom modes mean nothing
                os.chown(directory, 65534, 65534)
                daemon, options = self.build_for_everybody() / "bin" / "tesserad", {"preexec_fn": as_nobody}
            said = self.refused("--soft", "--run-dir", directory, daemon=daemon, **options)
            self.assertIn("cannot write to", said)
            os.chmod(directory, 0o755)

    def test_a_run_directory_of_another_user(self):
        if not running_as_root():
            self.skipTest("only root can make one")
        os.chown(self.run_dir, 65534, 65534)
        self.assertIn("belongs to another user", self.refused("--soft", "--run-dir", self.run_dir))

    def test_unknown_flags(self):
        self.assertIn("--sof", self.refused("--sof", "--run-dir", self.run_dir))
        self.assertEqual(self.status, 2)

    def test_bad_soft_gpus(self):
        self.assertIn("16Q", self.refused("--soft=16Q", "--run-dir", self.run_dir))
        self.assertIn("99x1GiB", self.refused("--soft=99x1GiB", "--run-dir", self.run_dir))

    def test_no_driver(self):
        said = self.refused("--run-dir", self.run_dir, env={"TESSERA_REAL_NVML": "/nonexistent/libnvidia-ml.so.1"})
        self.assertIn("/nonexistent/libnvidia-ml.so.1", said)
        self.assertIn("--soft", said)

    def test_unknown_config_keys_name_the_nearest(self):
        self.assertRegex(self.config('client.grace_sec = 3\n'), r"config.toml:1: .*client.grace_sec.*client\.grace_s\b")
        self.assertRegex(self.config('[sched]\n\nwindow = 3\n'), r"config.toml:3: .*sched.window.*sched\.window_ms")

    def test_bad_config_values(self):
        for text, expected in (('sched.window_ms = "long"', "sched.window_ms"), ("sched.window_ms = -1", "sched.window_ms"),
                               ('client.on_daemon_loss = "panic"', '"continue" or "block"'),
                               ('memory.reserve = "lots"', "memory.reserve"), ("client = 3", "client"),
                               ("sched.min_slice_ms = 200", "min_slice"), ("[sched", "config.toml:1"),
                               ('memory.reserve = "5G"', "memory.reserve")):
            with self.subTest(text):
                self.assertIn(expected, self.config(text))

    def test_a_config_that_is_not_there(self):
        self.assertIn("/nonexistent.toml", self.refused("--soft", "--run-dir", self.run_dir, "--config", "/nonexistent.toml"))

    def test_config_is_obeyed(self):
        self.start_daemon(config='memory.reserve = "1G"\n')
        self.assertEqual(self.api("GET", "/v1/gpus")[2]["gpus"][0]["memory_reserve_bytes"], 1 << 30)


class State(SoftGpuTest):
    def test_vgpus_outlive_the_daemon(self):
        self.start_daemon()
        before = self.create("team", memory_limit="1G", compute_request=10, compute_limit=40, compute_weight=50)
        self.create("loose")
        self.stop_daemon()
        self.start_daemon()
        self.assertEqual(self.vgpu("team"), before)
        self.assertEqual({v["name"] for v in self.api("GET", "/v1/vgpus")[2]["vgpus"]}, {"team", "loose"})

    def test_a_file_that_makes_no_sense_is_said_and_passed_over(self):
        for text in ("not json", "{}", '{"version":99,"vgpus":[]}', '{"version":1,"vgpus":[{"name":3}]}', "", "\0" * 100):
            with self.subTest(text):
                (self.run_dir / "daemon.log").unlink(missing_ok=True)
                for name in ("state.json", "vgpus.json"):
                    (self.run_dir / name).write_text(text)
                self.start_daemon()
                for name in ("state.json", "vgpus.json"):
                    self.assertIn(f"{name}: ", self.daemon_log())
                self.assertTrue(text in [path.read_text() for path in self.run_dir.glob("vgpus.json.bad*")], "it is kept")
                self.assertEqual(self.api("GET", "/v1/vgpus")[2], {"vgpus": []})
                self.create("new")
                self.stop_daemon()

    def test_a_full_disk_costs_nothing_but_the_file(self):
        if not running_as_root():
            self.skipTest("mounting a small disk needs root")
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", self.run_dir], capture_output=True,
                              text=True)
        if made.returncode != 0:
            self.skipTest(f"no small disk can be mounted here: {made.stderr.strip()}")
        self.addCleanup(self.run_dir.rmdir)  # after the next one
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.run_dir], check=True)
        self.start_daemon()
        ballast = os.open(self.run_dir / "ballast", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(ballast, bytes(4096)):
                pass
        os.close(ballast)
        self.create("team", memory_limit="64M")
        self.assertEqual(self.vgpu("team")["memory_max_bytes"], 64 * MIB)
        (self.run_dir / "ballast").unlink()
        self.change("team", memory_limit="128M")
        wait_for("vgpus.json to be written again", lambda: "team" in self.saved())

    def saved(self):
        try:
            return [v["name"] for v in json.loads((self.run_dir / "vgpus.json").read_text())["vgpus"]]
        except (OSError, ValueError):
            return []

    def test_vgpus_outlive_a_boot(self):
        with tempfile.TemporaryDirectory() as state:
            self.start_daemon("--state-dir", state)
            before = self.create("team", memory_limit="1G", compute_request=10)
            for _ in range(2):  # killed, as a boot may do; and then ended in order
                self.stop_daemon(signal.SIGKILL)
                self.unmount_files()
                for path in self.run_dir.iterdir():
                    path.unlink() if not path.is_dir() else shutil.rmtree(path)
                self.start_daemon("--state-dir", state)
                self.assertEqual(self.vgpu("team"), before)
            self.assertEqual(self.tessera("run", "--soft", "--vgpu", "team", "--", "true").returncode, 0)
            self.assertEqual(oct(os.stat(f"{state}/vgpus.json").st_mode & 0o777), "0o600")

    def test_the_configuration_declares_vgpus(self):
        self.start_daemon(config='[vgpu.team]\nmemory_limit = "1G"\ncompute_weight = 7\n[vgpu.too-large]\nmemory_limit = "99G"\n')
        self.assertIn("vGPU too-large cannot be as it is declared: memory_limit of 99 GiB is more than", self.daemon_log())
        team = self.vgpu("team")
        self.assertEqual((team["memory_limit_bytes"], team["compute_weight"], team["uid"]), (1 << 30, 7, 0))
        failed = self.tessera("vgpu", "rm", "team", check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn(f"vGPU team is declared at {self.run_dir}/config.toml:1; take the section out", failed.stderr)
        (self.run_dir / "config.toml").write_text("[vgpu.team]\ncompute_weight = 9\n[vgpu.other]\nuser = 4242\n")
        self.tessera("reload")
        self.assertEqual((self.vgpu("team")["compute_weight"], self.vgpu("other")["uid"]), (9, 4242))
        (self.run_dir / "config.toml").write_text("[vgpu.other]\nuser = 4242\n")
        self.tessera("reload")
        self.tessera("vgpu", "rm", "team")
        self.assertIn("is declared at", self.tessera("vgpu", "rm", "other", check=False).stderr)


class Packets(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.create("team")

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(connection.close)
        connection.settimeout(DEADLINE_S)
        connection.connect(str(self.run_dir / "client.sock"))
        return connection

    def welcomed(self):
        connection = self.connect()
        connection.send(hello("team"))
        self.assertEqual(kind_of(connection.recv(8192)), WELCOME)
        return connection

    def closes(self, connection, packet):
        """Whether the daemon ends the connection after the packet. What it says before that, or None."""
        connection.send(packet)
        said = None
        while answer := self.received(connection):
            said = answer
        return said

    def received(self, connection):
        try:
            return connection.recv(8192)
        except ConnectionResetError:
            return b""

    def test_a_bad_packet_closes_its_connection_only(self):
        other = self.welcomed()
        bad = {
            "garbage": b"\xff" * 100,
            "one byte": b"T",
            "half a header": message(HELLO)[:10],
            "no body": message(HELLO),
            "half a body": hello("team")[:300],
            "length that lies": message(HELLO, hello("team")[16:], length=10),
            "length beyond all": message(HELLO, hello("team")[16:], length=0xffffffff),
            "unknown type": message(9999),
            "too long": b"\0" * 20000,
            "wrong magic": message(HELLO, hello("team")[16:], magic=1),
            "Wants before Hello": message(WANTS),
        }
        for name, packet in bad.items():
            with self.subTest(name):
                self.closes(self.connect(), packet)
        for name, packet in (("Hello again", hello("team")), ("Reserve before Attach", message(RESERVE, b"\0" * 8)),
                             ("garbage", b"\xff" * 100), ("an answer", message(WELCOME, b"\0" * 224))):
            with self.subTest(f"{name} after Welcome"):
                self.closes(self.welcomed(), packet)
        other.send(message(ATTACH, b"\0" * 120))  # a GPU that does not exist: still answered
        self.assertEqual(kind_of(other.recv(8192)), REFUSED)
        self.assertIn("connection closed", self.daemon_log())

    def test_another_version_is_told_both_versions(self):
        said = self.closes(self.connect(), message(HELLO, hello("team")[16:], version=VERSION + 7))
        self.assertEqual(kind_of(said), REFUSED)
        self.assertIn(str(VERSION + 7), text_of(said))
        self.assertIn(f"speaks {VERSION}", text_of(said))

    def test_a_vgpu_that_does_not_exist(self):
        connection = self.connect()
        connection.send(hello("nobody"))
        refused = connection.recv(8192)
        self.assertEqual(kind_of(refused), REFUSED)
        self.assertIn("nobody", text_of(refused))

    def test_silent_connections_hold_up_nobody(self):
        silent = [self.connect() for _ in range(300)]
        api = []
        for _ in range(100):
            api.append(socket.socket(socket.AF_UNIX))
            api[-1].connect(str(self.run_dir / "api.sock"))
            self.addCleanup(api[-1].close)
        shell = self.shell_with_context("team")
        shell.ok("launch", 5)
        self.assertEqual(shell.ok("count")["count"], 5)
        shell.end()
        self.assertTrue(self.answers())
        self.assertEqual(len(silent), 300)

    def test_300_programs_are_greeted(self):
        connections = [self.connect() for _ in range(300)]
        for connection in connections:
            connection.send(hello("team"))
        self.assertEqual({kind_of(connection.recv(8192)) for connection in connections}, {WELCOME})


class Api(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def problem(self, status, code, method, path, body=None):
        got, content_type, problem = self.api(method, path, body)
        self.assertEqual((got, problem and problem.get("code")), (status, code), problem)
        self.assertEqual(content_type.split(";")[0], "application/problem+json")
        self.assertEqual({"type", "title", "status", "detail", "hint", "code"}, set(problem))
        self.assertEqual(problem["status"], status)
        return problem["detail"] + " " + problem["hint"]

    def test_wrong_requests(self):
        self.create("team", memory_limit="1G")
        for body in (b"{", b"[]", b'"x"', b"", {"colour": "red"}, {"name": 3}, {"name": "a/b"}, {"name": "x" * 64},
                     {"memory_limit": "12Q"}, {"memory_limit": -1}, {"compute_request": "much"}, {"ephemeral": True},
                     {"compute_request": 50, "compute_limit": 20}, {"memory_limit": "1G", "memory_max": "much"}):
            with self.subTest(body):
                self.problem(400, "EINVAL", "POST", "/v1/vgpus", body)
        for body in ({"compute_limit": 101}, {"compute_weight": 0}, {"compute_weight": 10001}, {"memory_limit": "101%"},
                     {"compute_limit": 0}):
            with self.subTest(body):
                self.problem(400, "ERANGE", "POST", "/v1/vgpus", body)
        self.assertEqual([v["name"] for v in self.api("GET", "/v1/vgpus")[2]["vgpus"]], ["team"])

    def test_what_is_not_there(self):
        for method, path in (("GET", "/v1/vgpus/nobody"), ("PATCH", "/v1/vgpus/nobody"), ("DELETE", "/v1/vgpus/nobody"),
                             ("GET", "/v1/nothing"), ("GET", "/page/nothing")):
            with self.subTest(path):
                self.problem(404, "ENOENT", method, path, {} if method == "PATCH" else None)
        self.problem(404, "ENOENT", "POST", "/v1/vgpus", {"gpu": 7})

    def test_wrong_methods(self):
        for method, path in (("POST", "/healthz"), ("PUT", "/v1/vgpus"), ("DELETE", "/v1/gpus"), ("PATCH", "/v1/processes"),
                             ("POST", "/v1/vgpus/team")):
            with self.subTest(f"{method} {path}"):
                self.problem(405, "EOPNOTSUPP", method, path, None if method == "DELETE" else {})

    def test_what_cannot_be_admitted_names_the_figures(self):
        self.create("a", memory_request="3G", compute_request=60)
        detail = self.problem(409, "ENOSPC", "POST", "/v1/vgpus", {"memory_request": "2G"})
        for figure in ("2 GiB", "1 GiB", "4 GiB"):
            self.assertIn(figure, detail)
        detail = self.problem(409, "ENOSPC", "POST", "/v1/vgpus", {"compute_request": 50})
        for figure in ("50", "60", "100"):
            self.assertIn(figure, detail)
        self.problem(409, "ENOSPC", "PATCH", "/v1/vgpus/a", {"memory_request": "5G"})
        self.assertEqual(self.vgpu("a")["memory_request_bytes"], 3 << 30)
        self.assertIn("4 GiB", self.problem(409, "ENOSPC", "POST", "/v1/vgpus", {"memory_limit": "5G"}))
        self.problem(409, "EEXIST", "POST", "/v1/vgpus", {"name": "a"})

    def test_a_vgpu_in_use_is_removed_by_force_only(self):
        self.create("team")
        shell = self.shell_with_context("team")
        self.problem(409, "EBUSY", "DELETE", "/v1/vgpus/team")
        shell.ok("launch", 1)
        self.assertEqual(self.api("DELETE", "/v1/vgpus/team?force=1")[0], 204)
        self.problem(404, "ENOENT", "GET", "/v1/vgpus/team")
        shell.child.kill()

    def test_too_long(self):
        self.problem(413, "EMSGSIZE", "POST", "/v1/vgpus", {"name": "x" * 100_000})


if __name__ == "__main__":
    unittest.main()

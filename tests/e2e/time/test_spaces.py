"""Spaces, end to end: vGPUs that run at the same time as clients of one MPS server, on the soft GPU with its stand-in for
the MPS control daemon."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, DEADLINE_S, NO_DEVICE, SUCCESS, Shell, wait_for  # noqa: E402
from spaces import SpacesTest  # noqa: E402
from test_daemon import WELCOME, hello, kind_of, text_of

HEADER_BYTES, SPACE_OFFSET = 16, 24  # of Welcome's `space` (wire/protocol.h)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


class Life(SpacesTest):
    def test_a_program_gets_its_sms_and_the_space_ends_with_it(self):
        shell = Shell(self.spawn(BIN / "tessera", "run", "--run-dir", self.run_dir, "--space", "a", "--sm", "33.5", "--name",
                                 "mine", "--", BIN / "driver_shell", stdin=subprocess.PIPE))
        shell.ok("init")
        shell.ok("context")
        vgpu = wait_for("the process", lambda: (v := self.vgpu("mine"))["sms"] and v)
        self.assertEqual((vgpu["space"], vgpu["sm_limit_pct"], vgpu["sms"]), ("a", 33.5, 33))
        shown = self.space("a")
        self.assertEqual((shown["state"], shown["vgpus"], shown["sm_limits_pct"], shown["uid"]),
                         ("ready", ["mine"], 33.5, os.getuid()))
        self.assertTrue(alive(shown["control_pid"]) and alive(shown["server_pid"]))
        self.assertIn("33.5 % of the SMs; its programs have 33", self.tessera("vgpu", "show", "mine").stdout)
        self.assertEqual(self.json("space", "ls")["spaces"], [shown])
        shell.end()
        wait_for("the end of the space", lambda: not alive(shown["control_pid"]) and not alive(shown["server_pid"]), 60)
        wait_for("its name to be free", lambda: not self.spaces())
        self.assertFalse((self.run_dir / "mps" / "a").exists())

    def test_a_space_that_was_made_to_last(self):
        self.tessera("space", "create", "kept")
        self.assertIn("exists already", self.refused({"name": "kept"}, "/v1/spaces"))
        wait_for("the server", lambda: self.space("kept")["state"] == "ready")
        self.member("one", "kept")
        self.api("DELETE", "/v1/vgpus/one")
        self.stop_daemon()
        self.start_daemon()
        shown = wait_for("the space", lambda: (s := self.space("kept")).get("state") == "ready" and s)
        self.assertTrue(shown["kept"])
        self.assertIn("until it is removed", self.tessera("space", "show", "kept").stdout)
        self.tessera("space", "rm", "kept")
        wait_for("its end", lambda: not self.spaces())
        self.assertIn("no space kept", self.tessera("space", "show", "kept", check=False).stderr)

    def test_the_control_daemon_has_the_daemons_soft_gpu(self):
        self.stop_daemon()
        self.env["TESSERA_SOFT"] = "2GiB,sms=7"  # of the one who starts it; --soft is another
        self.start_daemon()
        self.member("one")
        wait_for("the server", lambda: self.space("a")["state"] == "ready")

    def test_the_next_daemon_goes_on_with_it(self):
        self.member("one")
        tenant = self.busy("one")
        before = self.space("a")
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        after = wait_for("the space", lambda: (s := self.space("a")).get("server_pid") and s)
        self.assertEqual((after["control_pid"], after["server_pid"]), (before["control_pid"], before["server_pid"]))
        wait_for("the program", lambda: self.vgpu("one")["processes"])
        tenant.makes_progress(100)
        another = self.busy("one")
        self.assertGreater(another.finish(), 0)
        self.assertGreater(tenant.finish(), 0)

    def test_a_control_daemon_that_dies_is_replaced(self):
        self.member("one")
        before = wait_for("the server", lambda: (s := self.space("a"))["state"] == "ready" and s)
        os.kill(before["control_pid"], signal.SIGKILL)
        wait_for("another one", lambda: (s := self.space("a"))["state"] == "ready" and s["server_pid"] != before["server_pid"])
        self.assertGreater(self.busy("one").finish(), 0)


class Bounds(SpacesTest):
    def test_what_cannot_be(self):
        self.assertIn("sm.limit needs a space", self.refused({"name": "x", "sm_limit": 50}))
        self.assertIn("invalid name of a space", self.refused({"name": "x", "space": "n" * 32}))
        self.assertIn("invalid name of a space", self.refused({"name": "x", "space": "a/b"}))
        self.assertIn("'101' is more than 100 %", self.refused({"name": "x", "space": "a", "sm_limit": 101}))
        self.assertIn("sm.limit 0", self.refused({"name": "x", "space": "a", "sm_limit": 0}))
        self.assertEqual(self.spaces(), [])
        self.member("one", compute_request=60, sm_limit=50)
        self.member("two", compute_request=60, sm_limit=50)
        self.assertIn("does not fit", self.refused({"name": "x", "space": "a", "compute_request": 60, "sm_limit": 50}))
        self.assertIn("does not fit", self.refused({"name": "x", "compute_request": 60}))
        status, _, problem = self.api("PATCH", "/v1/vgpus/one", {"space": "b"})
        self.assertIn("cannot be changed", problem["detail"])
        self.assertEqual(sorted(self.space("a")["vgpus"]), ["one", "two"])
        self.assertEqual(self.change("one", sm_limit=25)["sm_limit_pct"], 25)

    def test_the_wrong_environment_gets_no_gpu(self):
        self.member("one", sm_limit=50)
        pipes = wait_for("the server", lambda: (s := self.space("a"))["state"] == "ready" and s)["pipe_directory"]
        base = {"TESSERA_VGPU": "one", "LD_PRELOAD": str(BIN.parent / "lib/tessera/libcuda.so.1"),
                "TESSERA_RUN_DIR": str(self.run_dir), "TESSERA_REAL_LIBCUDA": str(BIN.parent / "lib/tessera/soft/libcuda.so.1")}
        for more, why in (({}, "CUDA_MPS_PIPE_DIRECTORY"), ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp"}, "CUDA_MPS_PIPE_DIRECTORY"),
                          ({"CUDA_MPS_PIPE_DIRECTORY": pipes}, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
                          ({"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60"}, "50 % of the SMs")):
            shell = Shell(self.spawn(BIN / "driver_shell", env={**base, **more}, stdin=subprocess.PIPE))
            self.assertEqual(shell.ask("init")["result"], NO_DEVICE, more)
            self.assertIn(why, shell.child.communicate(timeout=DEADLINE_S)[1])
        shell = Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env={
            **base, "CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}))
        self.assertEqual(shell.ask("init")["result"], SUCCESS)
        shell.end()

    def test_a_vgpu_that_is_removed_by_force_ends_its_programs_contexts_alone(self):
        for name in ("one", "two"):
            self.member(name, sm_limit=50)
        one, stays, two = self.busy("one"), self.shell_with_context("one"), self.busy("two")
        self.assertEqual(self.api("DELETE", "/v1/vgpus/one?force=1")[0], 204)
        one.child.communicate(timeout=DEADLINE_S)
        self.assertNotEqual(one.child.returncode, 0)
        # The other one waits for commands. MPS ends its context, whatever it has queued.
        ended = f"Client {stays.pid} terminated by command"
        logs = self.run_dir / "mps/a"
        wait_for("the end of its context", lambda: any(ended in log.read_text() for log in logs.rglob("server.log")))
        self.assertNotEqual(stays.ask("sync")["result"], SUCCESS)
        two.makes_progress(20)
        self.assertGreater(two.finish(), 0)

    def test_the_kernel_gate_takes_no_program_of_a_space(self):
        done = self.tessera("run", "--run-dir", self.run_dir, "--space", "a", "--enforce", "kernel", "--", "true", check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn("kernel gate", done.stderr)


class TwoGpus(SpacesTest):
    SPEC = "2x1GiB,sms=100,speed=64M"

    def test_a_space_is_on_one_gpu(self):
        self.member("one", gpu=1)
        self.assertEqual(self.space("a")["gpu"], 1)
        self.assertEqual(self.member("two", gpu="auto")["gpu"], 1)
        self.assertEqual(self.member("three")["gpu"], 1)
        self.assertIn("space a is on GPU 1", self.refused({"name": "x", "space": "a", "gpu": 0}))

    def test_its_programs_use_one_gpu(self):
        self.member("one", gpu=0)
        self.create("two", gpu=1)
        done = self.tessera("run", "--run-dir", self.run_dir, "--vgpu", "one,two", "--", BIN / "driver_shell", check=False,
                            input="init\n")
        self.assertIn("vGPU one is in a space, whose programs use one GPU", done.stderr)


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Users(SpacesTest):
    OWNER, OTHER = 4242, 4241

    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)

    def uid_of(self, pid):
        return os.stat(f"/proc/{pid}").st_uid

    def hello_of(self, uid, vgpu):
        """The daemon's answer to a program of that user: the name of the space, or why it is refused."""
        def ask():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(DEADLINE_S)
                connection.connect(str(self.run_dir / "client.sock"))
                connection.send(hello(vgpu))
                answer = connection.recv(8192)
                if kind_of(answer) != WELCOME:
                    return text_of(answer)
                return answer[HEADER_BYTES + SPACE_OFFSET:][:64].rstrip(b"\0").decode()
        return self.as_user(uid, ask)

    def test_a_space_of_a_user_under_roots_daemon(self):
        status, _, made = self.as_user(self.OWNER, lambda: self.api("POST", "/v1/vgpus", {"name": "theirs", "space": "a"}))
        self.assertEqual(status, 201, made)
        space = wait_for("the server", lambda: (s := self.space("a"))["state"] == "ready" and s)
        self.assertEqual(space["uid"], self.OWNER)
        for pid in (space["control_pid"], space["server_pid"]):
            self.assertEqual(self.uid_of(pid), self.OWNER)
        status = pathlib.Path(f"/proc/{space['control_pid']}/status").read_text()
        self.assertEqual(re.findall(r"^Groups:[\t ]*(.*?) *$", status, re.M), [""], "in no group of root's")
        for folder in ("pipe", "log"):
            found = (self.run_dir / "mps/a" / folder).stat()
            self.assertEqual((found.st_uid, found.st_mode & 0o777), (self.OWNER, 0o700))
        # A user who is no operator sees nothing of it.
        self.assertEqual(self.as_user(self.OTHER, lambda: self.api("GET", "/v1/spaces")[2]["spaces"]), [])
        for method in ("GET", "DELETE"):
            self.assertEqual(self.as_user(self.OTHER, lambda: self.api(method, "/v1/spaces/a")[0]), 404)
        self.assertEqual(self.as_user(self.OWNER, lambda: self.api("GET", "/v1/spaces/a")[0]), 200)
        self.assertEqual(self.as_user(self.OTHER, lambda: os.listdir(self.run_dir / "mps")), "PermissionError")
        self.assertEqual(self.as_user(self.OTHER, lambda: os.listdir(self.run_dir / "mps/a/pipe")), "PermissionError")
        # No other user enters it, not even root.
        self.assertEqual(self.hello_of(self.OWNER, "theirs"), "a")
        self.assertIn("no vGPU", self.hello_of(self.OTHER, "theirs"))
        self.assertIn(f"takes programs of user {self.OWNER} only", self.hello_of(0, "theirs"))
        for uid in (self.OTHER, 0):
            status, _, problem = self.as_user(uid, lambda: self.api("POST", "/v1/vgpus", {"name": "mine", "space": "a"}))
            self.assertEqual(status, 403, problem)
            self.assertIn("belongs to another user", problem["detail"])
        self.assertEqual(self.space("a")["vgpus"], ["theirs"])

    def test_a_space_that_lasts_is_whose_maker_says_so(self):
        self.assertEqual(self.as_user(self.OWNER, lambda: self.api("POST", "/v1/spaces", {"name": "kept"})[0]), 201)
        status, _, problem = self.as_user(self.OTHER, lambda: self.api("POST", "/v1/spaces", {"name": "kept"}))
        self.assertGreaterEqual(status, 400, problem)
        self.assertEqual(self.as_user(self.OTHER, lambda: self.api("DELETE", "/v1/spaces/kept")[0]), 404)
        self.assertEqual(self.space("kept")["uid"], self.OWNER)
        self.assertEqual(self.as_user(self.OWNER, lambda: self.api("DELETE", "/v1/spaces/kept")[0]), 204)
        wait_for("its end", lambda: not self.spaces())

    def test_a_users_own_daemon_has_spaces_of_its_own(self):
        self.member("roots", "a")
        build = self.build_for_everybody()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-test-"))
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, self.OWNER, self.OWNER)
        done = self.spawn("setpriv", f"--reuid={self.OWNER}", f"--regid={self.OWNER}", "--clear-groups", build / "bin/tessera", "run",
                          f"--soft={self.SPEC}", "--run-dir", folder / "run", "--space", "a", "--name", "theirs", "--",
                          build / "bin/tessera", "space", "ls", "--json", "--run-dir", folder / "run",
                          env={"HOME": str(folder), "TESSERA_SOFT_NAME": f"user-{self.OWNER}"})
        out, error = done.communicate(timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, error)
        (space,) = json.loads(out)["spaces"]
        self.assertEqual((space["name"], space["uid"], space["vgpus"]), ("a", self.OWNER, ["theirs"]))
        self.assertTrue(space["pipe_directory"].startswith(str(folder)))
        wait_for("their daemon to end", lambda: not alive(space["control_pid"]) and not alive(space["server_pid"]))
        self.assertEqual(self.space("a")["vgpus"], ["roots"])


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Quotas(SpacesTest):
    CONFIG = "[quota.default]\nvgpus = 1\n"
    OWNER = 4242

    def test_a_user_has_as_many_spaces_that_last_as_vgpus(self):
        self.run_dir.chmod(0o755)

        def create(name):
            return self.as_user(self.OWNER, lambda: self.api("POST", "/v1/spaces", {"name": name}))
        self.assertEqual(create("one")[0], 201)
        status, _, problem = create("two")
        self.assertEqual(status, 403, problem)
        self.assertIn("spaces that last", problem["detail"])
        self.tessera("space", "create", "two")
        self.assertEqual(self.as_user(self.OWNER, lambda: self.api("DELETE", "/v1/spaces/two")[0]), 404)
        self.assertEqual(self.as_user(self.OWNER, lambda: self.api("DELETE", "/v1/spaces/one")[0]), 204)


if __name__ == "__main__":
    unittest.main()

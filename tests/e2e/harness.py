"""What the end-to-end tests share: a daemon on the soft GPU in a directory of its own, and programs under it."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
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


def wait_for(what, condition, deadline_s=DEADLINE_S):
    """The value of condition() as soon as it is true."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {deadline_s} s for {what}")


class SoftGpuTest(unittest.TestCase):
    """Each test has a run directory, a soft GPU of its own name, and a daemon if it starts one."""

    SPEC = "1x4GiB"

    def setUp(self):
        self.run_dir = pathlib.Path(tempfile.mkdtemp(prefix="tessera-test-"))
        self.soft_name = uuid.uuid4().hex[:12]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_") and k != "LD_PRELOAD"}
        self.env.update(TESSERA_RUN_DIR=str(self.run_dir), TESSERA_SOFT=self.SPEC, TESSERA_SOFT_NAME=self.soft_name)
        self.children = []
        self.daemon = None

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        shutil.rmtree(self.run_dir, ignore_errors=True)
        for left in pathlib.Path("/dev/shm").glob(f"*{self.soft_name}*"):
            left.unlink()

    def spawn(self, *command, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        child = subprocess.Popen([str(word) for word in command], env={**self.env, **(env or {})}, text=True, **options)
        self.children.append(child)
        return child

    def start_daemon(self, *flags, expect_ready=True):
        self.daemon = self.spawn(BIN / "tesserad", f"--soft={self.SPEC}", "--run-dir", self.run_dir, *flags,
                                 stderr=open(self.run_dir / "daemon.log", "a"))
        if expect_ready:
            wait_for("the daemon", lambda: self.daemon.poll() is not None or self.tessera("gpus", check=False).returncode == 0)
            self.assertIsNone(self.daemon.poll(), (self.run_dir / "daemon.log").read_text())
        return self.daemon

    def stop_daemon(self, how=signal.SIGTERM):
        self.daemon.send_signal(how)
        self.daemon.communicate(timeout=DEADLINE_S)

    def tessera(self, *words, check=True, **options):
        """Runs the CLI to its end."""
        done = subprocess.run([str(BIN / "tessera"), *(str(word) for word in words)], env=self.env, text=True,
                              capture_output=True, timeout=DEADLINE_S, **options)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def json(self, *words):
        return json.loads(self.tessera(*words, "--json").stdout)

    def vgpu(self, name):
        return self.json("vgpu", "show", name)

    def run_in(self, vgpu, *command, **options):
        """Starts a program in a vGPU that exists; returns the process."""
        return self.spawn(BIN / "tessera", "run", "--soft", "--run-dir", self.run_dir, "--vgpu", vgpu, "--", *command, **options)

    def events(self, child):
        """The JSON lines of a tenant that has ended."""
        out, err = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 0, err)
        return [json.loads(line) for line in out.splitlines()]

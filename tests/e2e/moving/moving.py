"""Shared by the tests of programs that leave their GPU and come back."""
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, MIB, Shell, SoftGpuTest, wait_for  # noqa: E402


class MovingTest(SoftGpuTest):
    """A daemon that swaps, with a vGPU `team`."""

    SPEC = "1x1GiB"
    CONFIG = '[swap]\nsize = "2G"\nfloor = "64M"\n'
    SIZE = 128 * MIB
    WORD = 0x5EED

    def setUp(self):
        super().setUp()
        self.start_with_fault(None)
        self.create("team")

    def start_with_fault(self, fault, expect_ready=True):
        """A daemon that is killed there."""
        if fault:
            self.env["TESSERA_FAULT"] = fault
        self.start_daemon(config=self.CONFIG, expect_ready=expect_ready)
        self.env.pop("TESSERA_FAULT", None)

    def restart_daemon(self, how=signal.SIGKILL, fault=None):
        self.stop_daemon(how)
        self.start_with_fault(fault)

    def process(self, pid):
        _, _, listed = self.api("GET", "/v1/processes")
        return next((each for each in listed["processes"] if each["pid"] == pid), None)

    def phase(self, pid):
        """none, or as the API says; nothing: the program has not come back to this daemon yet."""
        process = self.process(pid)
        return process and process["vgpu"] and (process["suspension"] or "none")

    def await_phase(self, pid, phase):
        wait_for(f"phase {phase}", lambda: self.phase(pid) == phase)

    def start_program(self, vgpu="team", word=WORD, **env):
        """A program with a context, memory full of words, and a kernel's work behind it."""
        shell = Shell(self.run_in(vgpu, BIN / "driver_shell", stdin=subprocess.PIPE, env=env))
        shell.ok("init")
        shell.ok("context")
        shell.memory = shell.filled(self.SIZE, word)
        shell.word, shell.launches = word, 0
        self.goes_on(shell)
        return shell

    def goes_on(self, shell):
        self.assertEqual(shell.ok("compare", shell.memory, shell.word)["wrong"], 0)
        shell.ok("launch", 1)
        shell.launches += 1
        self.assertEqual(shell.ok("count")["count"], shell.launches)

    def comes_back(self, shell):
        self.tessera("resume", shell.pid)
        self.assertEqual(self.phase(shell.pid), "none")
        self.goes_on(shell)

    def assert_nothing_is_left(self):
        """On the GPU, or in the pool, once the programs have ended."""
        def in_use():
            return sum(gpu["memory_used_bytes"] + gpu["memory_unmanaged_bytes"] + gpu["swap"]["pool_used_bytes"]
                       for gpu in self.json("gpus")["gpus"])
        wait_for("the GPU and the pool to be empty", lambda: in_use() == 0)

    def ends(self, shell):
        shell.end()
        self.assert_nothing_is_left()

    def kill_checkpoint_program(self):
        def find():
            listed = subprocess.run(["pgrep", "-P", str(self.daemon.pid), "-f", "tessera-checkpoint"], text=True,
                                    capture_output=True).stdout.split()
            return [int(pid) for pid in listed]
        for pid in wait_for("the checkpoint program", find):
            os.kill(pid, signal.SIGKILL)

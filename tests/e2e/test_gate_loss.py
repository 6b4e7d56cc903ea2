"""The daemon is replaced while programs behind the kernel gate allocate all the time: they notice nothing."""
import array
import functools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import unittest

from harness import BIN, Lines, SoftGpuTest, wait_for
from test_daemon import WELCOME, kind_of, message, text_of

CHURN = BIN / "gate_churn"
GUARD, LISTENER = 11, 12
OTHER = 54321


class Gate(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        probe = self.tessera("run", *self.RUN_FLAGS, "--enforce", "kernel", "--", "true", check=False)
        if "seccomp" in probe.stderr or "already behind a kernel gate" in probe.stderr:
            self.skipTest(f"seccomp user notification is not permitted here: {probe.stderr.strip()}")
        self.assertEqual(probe.returncode, 0, probe.stderr)

    def churn(self, pieces, *words, **options):
        child = self.spawn(BIN / "tessera", "run", *self.RUN_FLAGS, "--enforce", "kernel", "--memory", f"{pieces * 2}M", "--",
                           CHURN, pieces, *words, stdin=subprocess.PIPE, **options)
        child.lines = Lines(child)
        return child

    def round_of(self, child):
        """The number of its next finished round."""
        line = child.lines.next()
        self.assertTrue(line and line.isdecimal(), line)
        return int(line)

    def goes_on(self, child):
        """It finishes rounds that it begins from now on."""
        self.round_of(child)
        while child.lines.buffer.count(b"\n"):
            self.round_of(child)
        self.round_of(child)
        self.round_of(child)

    def end(self, child):
        child.stdin.close()
        child.stdin = None
        line = last = None
        while (line := child.lines.next()) is not None:
            last = line
        self.assertEqual(child.wait(), 0, last)

    def test_sixteen_programs_go_on_under_the_next_daemon_and_the_one_after_it(self):
        children = [self.churn(2 + i % 3) for i in range(16)]
        for child in children:
            self.goes_on(child)
        for how in (signal.SIGKILL, signal.SIGTERM):
            self.stop_daemon(how)
            self.start_daemon()
            for child in children:
                self.goes_on(child)
            self.assertEqual(len(self.managed()), 16)
        for child in children:
            self.end(child)
        wait_for("all to be given back", lambda: self.api("GET", "/v1/gpus")[2]["gpus"][0]["memory_used_bytes"] == 0)
        self.stop_daemon()
        wait_for("the holder to end", lambda: not (self.run_dir / "gates.sock").exists())

    def test_without_a_daemon_calls_fail_after_the_grace_and_work_again_under_the_next(self):
        self.stop_daemon()
        self.start_daemon(config="[client]\ngrace_s = 0\n")
        child = self.churn(2, "patient")
        self.goes_on(child)
        self.stop_daemon(signal.SIGKILL)
        while child.lines.next() != "no daemon":
            pass
        self.start_daemon()
        while child.lines.next() == "no daemon":
            pass
        self.goes_on(child)
        self.end(child)

    def test_another_holder_is_started_where_one_was_killed(self):
        child = self.churn(2)
        self.goes_on(child)
        holder, = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                   if str(self.run_dir / "gates.sock") in self.read(path) and "gate-holder" in self.read(path)]
        subprocess.run(["kill", "-9", str(holder)], check=True)
        wait_for("another holder", lambda: "another one is started" in self.daemon_log())
        self.api("GET", "/v1/gpus")
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        self.goes_on(child)
        self.end(child)

    def test_a_program_that_holds_anothers_file_outlives_its_vgpu(self):
        env = {"GATE_CHURN_CLIENT": "7"}
        one, other = self.churn(2, env=env), self.churn(3, env=env)
        for child in (one, other):
            self.goes_on(child)
        for child in (one, other):
            self.end(child)
        wait_for("the vGPUs to be gone", lambda: self.json("vgpu", "ls")["vgpus"] == [])
        self.assertIsNone(self.daemon.poll(), self.daemon_log())

    def as_a_runtime(self, listener, **fields):
        """Sends a container's listener, as runc and crun do."""
        state = {"ociVersion": "1.0.2", "fds": ["seccompFd"], "pid": os.getpid(), "state": {"id": "box"}, **fields}
        with socket.socket(socket.AF_UNIX) as runtime:
            runtime.connect(str(self.run_dir / "seccomp.sock"))
            runtime.sendmsg([json.dumps(state).encode()],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])

    def with_a_listener(self):
        """A program that is behind a filter of its own, and its listener."""
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        child = self.spawn(CHURN, "2", "listener", theirs.fileno(), stdin=subprocess.PIPE, pass_fds=[theirs.fileno()])
        theirs.close()
        child.lines = Lines(child)
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        return child, listener

    def refusals_of(self, listeners):
        """Puts the programs of these listeners behind the kernel gate: what those are told that are refused."""
        refusals = []
        for listener in listeners:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as tree:
                tree.connect(str(self.run_dir / "client.sock"))
                tree.send(message(GUARD, struct.pack("512s64s", b"crowd", b"crowd")))
                told = tree.recv(8192)
                if kind_of(told) == WELCOME:
                    socket.send_fds(tree, [message(LISTENER)], [listener])
                    told = tree.recv(8192)
                if kind_of(told) != WELCOME:
                    refusals.append(text_of(told))
        return refusals

    def test_three_hundred_programs_of_a_user_hurt_nobody(self):
        self.run_dir.chmod(0o755)
        neighbour = self.churn(2)
        self.goes_on(neighbour)
        crowd, listeners = [], []
        for _ in range(300):
            child, listener = self.with_a_listener()
            child.send_signal(signal.SIGSTOP)
            crowd.append(child)
            listeners.append(listener)
        # Root may have twice as many, but can be somebody else.
        act = functools.partial(self.as_user, OTHER) if os.geteuid() == 0 else lambda action, *words: action(*words)
        act(self.create, "crowd")
        refusals = act(self.refusals_of, listeners)
        for listener in listeners:
            os.close(listener)
        self.assertTrue(refusals)
        self.assertEqual({text for text in refusals if "as many as one user may have" not in text}, set())
        self.goes_on(neighbour)
        if os.geteuid() == 0:
            another = self.churn(3)
            self.goes_on(another)
            self.end(another)
        for child in crowd:
            child.kill()
        self.end(neighbour)
        self.assertIsNone(self.daemon.poll(), self.daemon_log())

    def test_a_container_runtimes_listener_is_served(self):
        self.create("team-a", memory_limit="4M", memory_max="4M")
        child, listener = self.with_a_listener()
        self.as_a_runtime(listener, metadata="team-a")
        os.close(listener)
        self.goes_on(child)
        (process,) = self.managed()
        self.assertEqual((process["pid"], process["vgpu"], process["enforce"]), (child.pid, "team-a", "kernel"))
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        self.goes_on(child)
        self.end(child)

    def test_what_is_no_containers_state_is_refused(self):
        for fields in ({"metadata": "nobody"}, {"metadata": "team-a"}, {"fds": []}, {"pid": -1}, {"pid": "x"}):
            with open("/dev/null") as null:
                self.as_a_runtime(null.fileno(), **fields)
        wait_for("five refusals", lambda: self.daemon_log().count("is not behind the kernel gate") == 5)

    def read(self, path):
        try:
            return path.read_text()
        except OSError:
            return ""


if __name__ == "__main__":
    unittest.main()

"""`tessera top` on a terminal, beside a daemon and programs."""
import json
import os
import re
import signal
import subprocess
import unittest

from harness import BIN, GIB, Lines, SoftGpuTest, wait_for
from terminal import Terminal


class Top(SoftGpuTest):
    def top(self, *flags, width=80, height=24, env=None):
        terminal = Terminal([BIN / "tessera", "top", "--delay", "0.2", *flags],
                            {**self.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}, width, height)
        self.addCleanup(terminal.close)
        return terminal

    def two_at_work(self):
        """In vGPUs "ann" and "bob", on a daemon."""
        self.start_daemon()
        self.create("ann", memory_request=GIB, memory_limit=GIB, memory_max=GIB, compute_request=20, compute_limit=60)
        self.create("bob", memory_request=GIB, memory_limit=GIB, memory_max=GIB, compute_priority=9)
        tenants = [self.tenant_in("ann", "--memory", "128M"), self.tenant_in("bob", "--memory", "64M")]
        for tenant in tenants:
            tenant.makes_progress()
        return tenants

    def frozen(self, pid):
        return next(p for p in self.json("ps")["processes"] if p["pid"] == pid)["frozen"]

    def assert_restored(self, terminal):
        self.assertEqual(terminal.settings_now(), terminal.settings)
        self.assertTrue(terminal.written.rfind(b"\x1b[?1049l") > terminal.written.rfind(b"\x1b[?1049h") >= 0)
        self.assertTrue(terminal.written.rfind(b"\x1b[?25h") > terminal.written.rfind(b"\x1b[?25l") or
                        terminal.written.rfind(b"\x1b[?12l\x1b[?25h") > 0, "the cursor")

    def test_shows_who_is_there(self):
        ann, bob = self.two_at_work()
        top = self.top()
        top.shows("2 vGPUs, 2 processes")
        top.shows("Tessera Soft GPU, channels; promised 2G and 20% of time")
        top.until("work on the GPU", lambda: re.search(r"GPU 0 busy \[\|+", top.text()))
        line = top.until("ann's share", lambda: re.search(r"^ann +8 +100 .*\[\|.*20:60 \[.*194M/1G\]", top.text(), re.M))
        self.assertTrue(line)
        top.until("a program's work", lambda: re.search(rf"^└ {bob.pid} tessera-\S+ .* work \d+% ", top.text(), re.M))
        top.until("the minute", lambda: re.search(r"[▃▄▅▆▇█]$", top.lines("GPU 0")[0]))
        tenant = self.tenant_in("bob")
        top.shows(f"├ {min(tenant.pid, bob.pid)} tess")
        tenant.finish()
        top.shows("2 vGPUs, 2 processes")
        top.type("t")
        top.until("a flat list", lambda: re.search(rf"^{ann.pid} tess.* ann ", top.text(), re.M))
        top.type("/bo")
        top.until("bob's alone", lambda: not top.lines(str(ann.pid)) and top.lines(str(bob.pid)))
        top.type("\x1b")
        top.until("all", lambda: top.lines(str(ann.pid)))
        top.type("?")
        top.shows("Press any key to go back")
        top.type(" q")
        self.assertEqual(top.end(), 0)
        self.assert_restored(top)

    def test_keys_steer(self):
        ann, bob = self.two_at_work()
        top = self.top()
        top.shows(str(bob.pid))
        top.type("f")
        top.shows("ann is frozen")
        self.assertIn("operator", self.frozen(ann.pid))
        self.assertNotIn("operator", self.frozen(bob.pid))
        top.until("ann frozen", lambda: re.search(r"^ann .* frozen ", top.text(), re.M))
        top.shows("(1 frozen)")
        top.type("F")
        top.shows("ann is thawed")
        self.assertNotIn("operator", self.frozen(ann.pid))
        top.type("jjjf")
        top.shows(f"process {bob.pid} is frozen")
        self.assertIn("operator", self.frozen(bob.pid))
        top.type("f")
        top.shows(f"process {bob.pid} is thawed")

        top.type("++")
        top.shows("bob has priority 7 (was 8; lower goes first)")
        self.assertEqual(self.vgpu("bob")["compute_priority"], 7)
        top.type("-")
        top.shows("bob has priority 8 (was 7; lower goes first)")
        self.assertEqual(self.vgpu("bob")["compute_priority"], 8)

        top.type("s")
        top.shows("tessera vgpu set bob --")
        top.type("memory 2G --compute 10:50\r")
        top.shows("bob changed: --memory 2G --compute 10:50")
        bob_now = self.vgpu("bob")
        self.assertEqual((bob_now["memory_limit_bytes"], bob_now["compute_request_pct"], bob_now["compute_limit_pct"]),
                         (2 * GIB, 10, 50))
        top.type("smemory 64G\r")
        top.shows("memory_limit of 64 GiB is more than")
        top.type("sweight many\r")
        top.shows("invalid weight 'many'")
        self.assertEqual(self.vgpu("bob")["memory_limit_bytes"], 2 * GIB)

        top.type("f")  # work would bring it back
        top.shows(f"process {bob.pid} is frozen")
        top.type("e")
        top.shows(f"Move the memory of process {bob.pid} to host memory?")
        top.type("n")
        top.shows("eviction cancelled")
        self.assertEqual(self.vgpu("bob")["memory_swap_current_bytes"], 0)
        top.type("ey")
        top.shows("to host memory")
        wait_for("its memory to go", lambda: self.vgpu("bob")["memory_swap_current_bytes"] > 0)
        top.shows("SWAP")
        top.type("q")
        self.assertEqual(top.end(), 0)

    def test_follows_the_size_of_the_terminal(self):
        self.two_at_work()
        top = self.top()
        top.shows("2 vGPUs, 2 processes")
        for width, height in ((20, 5), (300, 100), (1, 1), (40, 12), (80, 24)):
            top.resize(width, height)
            if width == 300:
                top.until("a wide one", lambda: re.search(r"PROCS +GPU TIME MINUTE", top.text()))
                top.until("its keys in the last line", lambda: top.screen.display[99].split()[-1:] == ["qQuit"])
            elif width > 1:
                top.until("the list", lambda: top.text().startswith("tessera top") and top.lines("ann"))
                self.assertFalse(any(line[width:] for line in top.text().splitlines()))
        top.shows("qQuit")
        top.type("q")
        self.assertEqual(top.end(), 0)
        self.assert_restored(top)

    def test_a_daemon_that_ends_and_one_that_begins(self):
        self.start_daemon()
        self.create("ann", memory_max=GIB)
        top = self.top()
        top.shows("1 vGPU, 0 processes")
        self.stop_daemon(signal.SIGKILL)
        top.shows("retrying: no daemon answers")
        self.assertTrue(top.lines("ann"), "what was known is there still")
        top.type("f")
        self.start_daemon()
        top.shows("the daemon answers again")
        self.create("bob", memory_max=GIB)
        top.until("the new one", lambda: top.lines("bob"))
        self.stop_daemon()
        top.shows("retrying: no daemon answers")
        top.type("q")
        self.assertEqual(top.end(), 0)
        self.assert_restored(top)

    def test_a_daemon_that_hangs_does_not_hold_up_keys(self):
        self.start_daemon()
        self.create("ann", memory_max=GIB)
        top = self.top()
        top.shows("1 vGPU, 0 processes")
        self.daemon.send_signal(signal.SIGSTOP)
        self.addCleanup(self.daemon.send_signal, signal.SIGCONT)
        top.type("f?")
        top.shows("Press any key to go back")
        top.type(" ")
        top.shows("the daemon has not answered for")
        top.type("q")
        top.until("its end", lambda: top.ended() is not None, deadline_s=10)
        self.assertEqual(top.end(), 0)
        self.assert_restored(top)

    def test_signals_leave_the_terminal_as_it_was(self):
        self.start_daemon()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            top = self.top()
            top.shows("0 vGPUs, 0 processes")
            os.kill(top.pid, number)
            self.assertEqual(top.end(), 128 + number)
            self.assert_restored(top)
        top = self.top()
        top.shows("0 vGPUs, 0 processes")
        top.type("\x03")  # Ctrl-C
        self.assertEqual(top.end(), 130)

    def test_stops_and_goes_on(self):
        self.start_daemon()
        top = self.top()
        top.shows("0 vGPUs, 0 processes")
        top.type("\x1a")  # Ctrl-Z
        top.until("it to stop", lambda: os.waitid(os.P_PID, top.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT))
        os.waitpid(top.pid, os.WUNTRACED)
        top.read()
        self.assert_restored(top)
        os.kill(top.pid, signal.SIGCONT)
        self.create("ann", memory_max=GIB)
        top.shows("1 vGPU, 0 processes")
        top.type("q")
        self.assertEqual(top.end(), 0)

    def test_colours_only_where_wanted(self):
        self.start_daemon()
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "vt100"}, False)):
            top = self.top(env=env)
            top.shows("qQuit")
            top.type("q")
            self.assertEqual(top.end(), 0)
            self.assertEqual(re.search(rb"\x1b\[[0-9;]*3[1-6]m", top.written) is not None, coloured, env)

    def test_names_do_not_reach_the_terminal_as_they_are(self):
        self.start_daemon()
        self.create("ann", memory_max=GIB)
        evil = self.run_dir / "a\x1b[31m\x1b]0;b"
        os.symlink(BIN / "driver_shell", evil)
        child = self.run_in("ann", evil, stdin=subprocess.PIPE)
        child.stdin.write("init\ncontext\n")
        child.stdin.flush()
        Lines(child).next()
        top = self.top(width=120)
        top.shows("a?[31m?]0;b")
        self.assertNotIn(b"\x1b]0;", top.written)
        top.type("q")
        top.end()
        self.assertIn("a?[31m?]0;b", self.tessera("top", "--once").stdout)

    def test_once_and_json(self):
        ann, _ = self.two_at_work()
        text = self.tessera("top", "--once", env={"LC_ALL": "C.UTF-8"}).stdout
        self.assertRegex(text, r"(?m)^tessera top - 2 vGPUs, 2 processes +\d\d:\d\d:\d\d$")
        self.assertRegex(text, rf"(?m)^└ {ann.pid} tessera-tenant ")
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertTrue(self.tessera("top", "--once", env={"LC_ALL": "C"}).stdout.isascii())
        one = self.tessera("top", "--once", "--json").stdout
        self.assertEqual(len(one.splitlines()), 1)
        one = json.loads(one)
        self.assertEqual(list(one), ["time_us", "gpus", "vgpus", "processes"])
        self.assertEqual([v["name"] for v in one["vgpus"]], ["ann", "bob"])
        self.assertEqual(one["gpus"][0].keys(), self.api("GET", "/v1/gpus")[2]["gpus"][0].keys())
        lines = Lines(self.spawn(BIN / "tessera", "top", "--json", "--delay", "0.1"))
        times = [json.loads(lines.next())["time_us"] for _ in range(3)]
        self.assertEqual(times, sorted(set(times)))
        follow = self.children[-1]
        self.stop_daemon()
        self.assertEqual(follow.wait(60), 1)
        self.assertRegex(follow.stderr.read(), "no daemon answers|the daemon is ending|closed the connection")

    def test_says_what_is_missing(self):
        done = self.tessera("top", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("--once", done.stderr)
        for flags in (["--once"], ["--json"], ["--once", "--json"]):
            done = self.tessera("top", *flags, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("no daemon answers", done.stderr)
        for delay in ("0", "0.05", "61", "soon"):
            self.assertEqual(self.tessera("top", "--delay", delay, check=False).returncode, 2)
        for name in ("dumb", "no-such-terminal", ""):
            top = self.top(env={"TERM": name})
            self.assertEqual(top.end(), 1)
            self.assertIn("TERM", top.text())
            self.assertIn("--once", top.text())


if __name__ == "__main__":
    unittest.main()

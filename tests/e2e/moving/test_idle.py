"""suspend.idle: programs without work are suspended by themselves, and their first call brings them back."""
import os
import signal
import unittest

from moving import MIB, MovingTest, wait_for


class IdleTest(MovingTest):
    SIZE = 16 * MIB
    SWAP = MovingTest.CONFIG

    def start_with_fault(self, fault, expect_ready=True):
        self.CONFIG = self.config("100ms")
        super().start_with_fault(fault, expect_ready)

    def config(self, idle, to="memory"):
        return self.SWAP + f'[suspend]\nidle = "{idle}"\nidle_to = "{to}"\n'

    def reload(self, *settings):
        (self.run_dir / "config.toml").write_text(self.config(*settings))
        self.tessera("reload")

    def leaves(self, shell):
        self.await_phase(shell.pid, "suspended")
        self.assertEqual(self.process(shell.pid)["suspended_by"], "idle")

    def comes_back(self, shell):
        self.goes_on(shell)
        self.await_phase(shell.pid, "none")

    def leaves_twice(self, shell):
        """Meanwhile the daemon has looked at all others."""
        for _ in range(2):
            self.leaves(shell)
            self.comes_back(shell)

    def kill(self, shell):
        os.kill(shell.pid, signal.SIGKILL)
        shell.child.wait()

    def sum_of(self, result):
        line, = (line for line in self.metrics().splitlines()
                 if line.startswith(f'tessera_idle_suspensions_total{{result="{result}"}}'))
        return int(line.split()[1])


class FirstCall(IdleTest):
    """Whatever a program calls first brings it back."""

    SPEC = "1x8GiB"

    def come_back(self, way):
        self.create("first")
        shells = {}
        for name in self.start_program().ok("calls")["names"].split():
            shell = shells[name] = self.start_program("first")
            shell.ok("prepare")
            shell.ok("find", way, name)
        for name, shell in shells.items():
            with self.subTest(name):
                self.leaves(shell)
                shell.ok("call", name)
                shell.ok("current", 0)
                self.comes_back(shell)
        for shell in shells.values():
            shell.end()

    def test_exported(self):
        self.come_back("exported")

    def test_looked_up(self):
        self.come_back("looked_up")


class Idle(IdleTest):
    def test_what_is_said_of_it(self):
        shell = self.start_program()
        self.leaves(shell)
        process = self.process(shell.pid)
        self.assertEqual((process["suspended_to"], process["memory_resident_bytes"]), ("memory", 0))
        self.assertIn("suspended (idle)", self.tessera("ps").stdout)
        texts = [event["text"] for event in self.json("events")["events"] if event["type"] == "process.suspended"]
        self.assertIn("was idle, and is suspended", texts[-1])
        self.assertGreaterEqual(self.sum_of("suspended"), 1)
        self.comes_back(shell)
        self.assertIsNone(self.process(shell.pid)["suspended_by"])
        self.assertGreaterEqual(self.sum_of("resumed"), 1)
        self.ends(shell)

    def test_nobody_is_suspended_unless_it_is_wanted(self):
        self.reload("0")
        shell, other = self.start_program(), self.start_program()
        witness = self.tenant_in("team", "--kernel-us", 1000)
        witness.makes_progress(300)  # three times as long as the limit was
        witness.finish()
        self.assertEqual([self.phase(each.pid) for each in (shell, other)], ["none", "none"])
        self.reload("100ms")
        self.leaves(shell)
        self.leaves(other)
        self.reload("0")  # who is away comes back all the same
        self.comes_back(shell)
        self.comes_back(other)

    def test_where_nothing_is_swapped(self):
        self.stop_daemon()
        self.SWAP = '[swap]\nsize = "0"\n'
        self.start_with_fault(None)
        shell = self.start_program()
        self.leaves(shell)
        self.comes_back(shell)

    def test_to_a_file(self):
        self.reload("100ms", "file")
        shell = self.start_program()
        wait_for("the file", lambda: self.process(shell.pid)["suspended_to"] == "file")
        self.comes_back(shell)
        self.ends(shell)

    def test_wrong_values(self):
        for wrong in ('idle = "99ms"', 'idle = 30', 'idle = "soon"', 'idle_to = "disk"'):
            (self.run_dir / "config.toml").write_text(f"[suspend]\n{wrong}\n")
            done = self.tessera("reload", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"suspend.{wrong.split()[0]}", done.stderr)

    def test_by_hand_it_stays(self):
        shell, other = self.start_program(), self.start_program()
        self.leaves(shell)
        self.tessera("suspend", shell.pid)
        self.assertEqual(self.process(shell.pid)["suspended_by"], "request")
        shell.send("sync")
        self.leaves_twice(other)
        self.assertEqual(self.phase(shell.pid), "suspended")
        self.tessera("resume", shell.pid)
        self.assertEqual(shell.answer()["result"], 0)
        self.comes_back(shell)

    def test_two_that_come_back_at_once(self):
        """Their memory does not fit together: both go on all the same."""
        self.SIZE = 600 * MIB
        shells = []
        for name in ("one", "two"):
            self.create(name)
            shells.append(self.start_program(name))
        for shell in shells:
            self.leaves(shell)
        for shell in shells:
            shell.send("compare", shell.memory, shell.word)
        for shell in shells:
            self.assertEqual(shell.answer()["wrong"], 0)
        for shell in shells:
            self.goes_on(shell)
            shell.end()
        self.assert_nothing_is_left()

    def test_without_room_it_waits_until_there_is_some(self):
        shell = self.start_program()
        self.leaves(shell)
        self.reload("0")
        self.create("other")
        other = self.start_program("other")
        pieces = []
        while (piece := other.ask("allocate", "physical", 32 * MIB))["result"] == 0:  # it cannot be moved
            pieces.append(piece["id"])
        shell.send("sync")
        wait_for("a refusal", lambda: self.process(shell.pid)["suspend_error"])
        self.assertIn("no room", self.process(shell.pid)["suspend_error"])
        for piece in pieces:
            other.ok("free", piece)
        self.assertEqual(shell.answer()["result"], 0)
        self.comes_back(shell)

    def test_a_program_that_cannot_leave_is_named_once(self):
        stays, other = self.start_program(), self.start_program()
        stays.ok("ipc_get", stays.memory, 0)
        self.comes_back(stays)  # it may have left before
        self.leaves_twice(other)
        self.assertEqual(self.phase(stays.pid), "none")
        self.assertEqual(self.daemon_log().count(f"process {stays.pid} is idle, and stays on its GPU"), 1)
        self.goes_on(stays)

    def test_where_the_driver_fails_it_is_not_repeated_before_it_works(self):
        self.reload("0")
        stays = self.start_program(TESSERA_SOFT_CHECKPOINT="checkpoint=CUDA_ERROR_NOT_SUPPORTED:always")
        other = self.start_program()
        self.reload("100ms")
        wait_for("the failure", lambda: self.process(stays.pid)["suspend_error"])
        self.leaves_twice(other)
        self.assertEqual(self.sum_of("failed"), 1)
        self.goes_on(stays)
        wait_for("another one", lambda: self.sum_of("failed") > 1)
        self.goes_on(stays)

    def test_one_that_is_killed(self):
        for calls in (False, True):
            with self.subTest(calls=calls):
                shell = self.start_program()
                self.leaves(shell)
                if calls:
                    shell.send("sync")
                self.kill(shell)
                self.assert_nothing_is_left()


class AnotherDaemon(IdleTest):
    """The daemon ends while programs are away by themselves."""

    def restart_without_limit(self):
        self.CONFIG = self.config("0")
        super(IdleTest, self).start_with_fault(None)

    def test_brings_back_who_calls_later(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how):
                shell = self.start_program()
                self.leaves(shell)
                for _ in range(2):
                    self.stop_daemon(how)
                    self.restart_without_limit()
                    self.leaves(shell)
                self.comes_back(shell)
                self.ends(shell)
                self.reload("100ms")

    def test_brings_back_who_has_called_meanwhile(self):
        shell = self.start_program()
        self.leaves(shell)
        self.stop_daemon(signal.SIGKILL)
        shell.send("sync")
        self.restart_without_limit()
        self.assertEqual(shell.answer()["result"], 0)
        self.comes_back(shell)

    def test_of_who_was_suspended_by_hand_not(self):
        self.reload("0")
        shell = self.start_program()
        self.tessera("suspend", "team")
        self.stop_daemon(signal.SIGKILL)
        shell.send("sync")
        self.start_with_fault(None)
        self.await_phase(shell.pid, "suspended")
        other = self.start_program()
        self.leaves_twice(other)
        self.assertEqual((self.phase(shell.pid), self.process(shell.pid)["suspended_by"]), ("suspended", "request"))
        self.tessera("resume", shell.pid)
        self.assertEqual(shell.answer()["result"], 0)


class TwoGpus(IdleTest):
    SPEC = "2x1GiB"

    def test_after_a_migration_its_first_call_brings_it_back_there(self):
        self.create("moves", gpu="0")
        shell = self.start_program("moves")
        self.leaves(shell)
        self.tessera("migrate", "moves", "--gpu", "1")
        self.leaves(shell)
        self.comes_back(shell)
        self.assertEqual(self.process(shell.pid)["gpu"], 1)

    def test_a_program_on_both(self):
        for gpu in (0, 1):
            self.create(f"v{gpu}", gpu=gpu)
        shell = self.start_program("v0,v1")
        shell.ok("context", 1)
        there = shell.filled(self.SIZE, 7)
        self.leaves(shell)
        self.assertEqual(shell.ok("compare", there, 7)["wrong"], 0)
        shell.ok("current", 0)
        self.comes_back(shell)


if __name__ == "__main__":
    unittest.main()

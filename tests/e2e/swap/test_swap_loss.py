"""Programs, movers and daemons that die while memory is moved: the others go on, and no word is wrong."""
import os
import pathlib
import signal
import unittest

from swapping import SwapTest
from harness import MIB, OUT_OF_MEMORY, wait_for

CHUNK = 64 * MIB
# Some of the steps at which a mover may die (src/base/fault.h); all of them are tested beside src/mover.
FAULTS = ("mover.copy.done:2", "mover.freed.received:2", "mover.want.imported")


def read(path):
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class LossTest(SwapTest):
    def mover(self):
        """The pid of the daemon's mover, if it has one."""
        for path in pathlib.Path(f"/proc/{self.daemon.pid}/task").glob("*/children"):
            for pid in path.read_text().split():
                try:
                    if os.readlink(f"/proc/{pid}/exe").endswith("tessera-mover"):
                        return int(pid)
                except OSError:
                    pass  # gone already
        return None

    def holders(self):
        """The pids of the swap holders of this run directory. They outlive daemons."""
        name = f"{self.run_dir}/swap-"
        return [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                if name in read(path) and "tessera-swap-holder" in read(path)]

    def another_mover(self, pid):
        return wait_for("another mover", lambda: self.mover() not in (None, pid) and self.mover())

    def out(self, shell, field="memory_swapped_bytes"):
        """Bytes that the shell has in host memory."""
        return next(p[field] for p in self.managed() if p["pid"] == shell.child.pid)

    def swap(self):
        return self.api("GET", "/v1/gpus")[2]["gpus"][0]["swap"]

    def pool_used(self):
        return self.swap()["pool_used_bytes"]

    def first_is_out(self):
        """Two programs, with 7 in all their memory, of which the first has some in host memory."""
        self.start()
        first, second = self.shells()
        for shell in (first, second):
            shell.ok("set", shell.ok("allocate", "alloc", self.PIECE)["id"], 7)
        self.assertGreater(self.out(first), 0)
        return first, second

    def comes_back(self, shell):
        """The only program that is left has all its memory on the GPU again, and ends."""
        def back():
            self.assertEqual(shell.ok("compare", 0, 7)["wrong"], 0)
            return self.out(shell) == 0
        wait_for("all of its memory to be on the GPU", back)
        shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)

    def moving(self):
        return wait_for("memory to be moved", lambda: "memory is moved" in self.daemon_log() and self.mover())

    def end(self, churns):
        """Lets churns of no fixed length work for a moment with what there is now. Returns how each ended."""
        self.moving()
        for churn in churns:
            churn.terminate()
        return [self.done(churn) for churn in churns]


class Loss(LossTest):
    def test_a_program_that_is_killed_leaves_nothing(self):
        self.start()
        churns = self.churns(3, 600)
        self.moving()
        churns[0].kill()
        for churn in churns[1:]:
            self.done(churn)
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_a_program_ends_while_it_is_stopped_for_its_memory(self):
        self.start()
        shells = self.shells()
        for shell in shells:
            shell.ok("launch", 1)
            shell.ok("free_at_exit")
            shell.ok("context")  # the shim's handler is the last one, and so the first to run
            shell.ok("current", 0)
        for shell in shells:
            shell.ok("set", shell.ok("allocate", "alloc", self.PIECE)["id"], 7)
        for shell in shells:
            shell.ok("launch", 12, 1_000_000)
        first = shells[0].pid
        # Frozen, or behind its gate if it has nothing to do any more.
        wait_for("it to be stopped",
                 lambda: any(p["memory_swapped_bytes"] > 0 for p in self.managed() if p["pid"] == first))
        for shell in shells:
            shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_programs_that_are_killed_again_and_again_leave_nothing(self):
        self.start()
        shells = self.shells()
        for shell in shells:
            shell.ok("set", shell.ok("allocate", "alloc", 200 * MIB)["id"], 7)
        self.create("victims", memory_max="1G")
        for _ in range(5):
            victim = self.shell_with_context("victims")
            victim.send("allocate", "alloc", 300 * MIB)
            wait_for("it to want memory", lambda: self.current("victims") > 0)
            victim.child.kill()
            victim.child.wait()
            for shell in shells:
                self.assertEqual(shell.ok("compare", 0, 7)["wrong"], 0)
        for shell in shells:
            shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_a_mover_that_is_killed_is_replaced(self):
        self.start()
        churns = self.churns(2)
        for _ in range(2):
            pid = self.moving()
            os.kill(pid, signal.SIGKILL)
            wait_for("another mover", lambda: self.mover() not in (None, pid))
        self.end(churns)
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_what_was_out_comes_back_by_the_next_mover(self):
        first, second = self.first_is_out()
        pid = self.mover()
        os.kill(pid, signal.SIGKILL)
        wait_for("another mover", lambda: self.mover() not in (None, pid))
        second.end()
        self.comes_back(first)
        wait_for("the pool to be empty", lambda: self.pool_used() == 0)

    def test_what_was_out_comes_back_after_the_daemon_was_killed(self):
        first, second = self.first_is_out()
        self.stop_daemon(signal.SIGKILL)
        self.start()
        wait_for("the programs to be back", lambda: len(self.managed()) == 2)
        self.assertIn("the swap holder kept", self.daemon_log())
        second.end()
        self.comes_back(first)

    def test_a_daemon_that_is_killed_is_replaced(self):
        self.start()
        churns = self.churns(2)
        for _ in range(2):
            self.moving()
            self.stop_daemon(signal.SIGKILL)
            (self.run_dir / "daemon.log").write_text("")
            self.start()
        for last in self.end(churns):
            self.assertEqual(last["refused"], 0)
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_swapped_memory_survives_a_daemon_that_stays_away(self):
        self.config = "client.grace_s = 0.3\n" + self.config
        self.start()
        first, second = self.shells()
        for shell in (first, second):
            shell.ok("set", shell.ok("allocate", "alloc", self.PIECE)["id"], 7)
        self.stop_daemon(signal.SIGKILL)
        for shell in (first, second):
            self.assertEqual(shell.ok("compare", 0, 7)["wrong"], 0)
            shell.ok("set", 0, 8)
        self.start()
        wait_for("the programs to be back", lambda: len(self.managed()) == 2)
        for shell in (first, second):
            self.assertEqual(shell.ok("compare", 0, 8)["wrong"], 0)
            shell.ok("free", 0)
            shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)


class AllDie(LossTest):
    """Daemon and mover die together, in any order, and the swap holder with either of them: nothing is stranded."""

    def kill(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if self.daemon.pid in pids:
            self.daemon.communicate(timeout=30)

    def is_back(self, *shells):
        """Programs and their memory: nothing of it is stranded, and every word is right."""
        self.start()
        wait_for("the programs to be back", lambda: len(self.managed()) == len(shells))
        for shell in shells:
            self.assertEqual(shell.ok("compare", 0, 7)["wrong"], 0)
        for shell in shells:
            self.assertEqual(self.out(shell, "memory_stranded_bytes"), 0)
        self.assertGreater(sum(self.out(shell) for shell in shells), 0)

    def holds_no_more(self):
        """The holder has the slots of the pool, and seven other descriptors: the standard ones, its listener, the daemon's
        line, the table, and the mover."""
        (holder,) = self.holders()
        return open_files(holder) == self.swap()["pool_bytes"] // CHUNK + 7

    def test_in_any_order(self):
        shells = self.first_is_out()
        for order in ("mover, daemon", "daemon, mover", "holder, mover", "holder, mover, daemon later"):
            with self.subTest(order):
                mover, (holder,) = self.mover(), self.holders()
                pids = {"mover": mover, "daemon": self.daemon.pid, "holder": holder}
                self.kill(*(pids[word] for word in order.split(", ") if word in pids))
                if "holder" in order:
                    wait_for("another holder", lambda: self.holders() not in ([], [holder]))
                    self.another_mover(mover)
                    if "later" in order:
                        self.kill(self.mover(), self.daemon.pid)
                    else:
                        self.kill(self.daemon.pid)
                self.is_back(*shells)
                self.assertEqual(len(self.holders()), 1)
                wait_for("the holder to have a descriptor for each slot", self.holds_no_more)
        first, second = shells
        second.end()
        self.comes_back(first)
        wait_for("the pool to be empty", lambda: self.pool_used() == 0)
        self.stop_daemon()
        wait_for("the holder to end", lambda: self.holders() == [])
        self.assertEqual(list(self.run_dir.glob("swap-*")), [])

    def test_while_the_holder_gives(self):
        shells = self.first_is_out()
        (holder,) = self.holders()
        self.kill(self.mover(), self.daemon.pid)
        self.env["TESSERA_FAULT"] = "daemon.slot.received:2"
        self.start_daemon(expect_ready=False, config=self.config)
        self.daemon.communicate(timeout=30)
        self.assertEqual(self.daemon.returncode, -signal.SIGKILL)
        del self.env["TESSERA_FAULT"]
        self.is_back(*shells)
        self.assertEqual(self.holders(), [holder])
        for shell in shells:
            shell.end()
        wait_for("the pool to be empty", lambda: self.pool_used() == 0)

    def test_without_a_holder_the_rest_works_on(self):
        self.start()
        (self.run_dir / "config.toml").write_text(self.config)
        first, second = self.shells()
        (self.run_dir / f"swap-{self.api('GET', '/v1/gpus')[2]['gpus'][0]['uuid']}.sock").mkdir()  # its name is taken
        for shell in (first, second):
            shell.ok("set", shell.ok("allocate", "alloc", self.PIECE)["id"], 7)
        self.assertGreater(self.out(first), 0)
        self.assertIn("there is no swap holder", self.daemon_log())
        self.assertEqual(self.holders(), [])
        second.end()
        self.comes_back(first)


class Stranded(LossTest):
    def test_what_no_mover_has_stays_out_and_cannot_be_shared(self):
        first, second = self.first_is_out()
        mover, (holder,) = self.mover(), self.holders()
        os.kill(holder, signal.SIGSTOP)  # or there would be another one
        self.stop_daemon(signal.SIGKILL)
        for pid in (mover, holder):
            os.kill(pid, signal.SIGKILL)
        self.start()
        wait_for("the programs to be back", lambda: len(self.managed()) == 2)
        wait_for("the next mover to say that it has nothing", lambda: self.out(first, "memory_stranded_bytes") > 0)
        self.assertEqual(self.out(first, "memory_stranded_bytes"), self.out(first))
        event, = wait_for("an event that tells so", lambda: [
            each for each in self.json("events")["events"] if each["type"] == "memory.stranded"])
        self.assertEqual(event["pid"], first.pid)
        self.assertIn("because no mover has it", self.tessera("ps").stdout)
        second.end()
        self.assertEqual(first.ask("ipc_get", 0, 0)["result"], OUT_OF_MEMORY)
        self.assertEqual(first.ok("compare", 0, 7)["wrong"], 0)
        self.assertGreater(self.out(first), 0)
        wait_for("nothing to be brought in", lambda: self.swap()["decision"].startswith("all that is in use fits"))
        first.ok("free", 0)
        self.assertEqual(self.out(first), 0)
        first.end()
        self.assertIn("cannot share memory with another program or a device: it lies in host memory for good",
                      first.child.stderr.read())
        wait_for("all memory to come back", lambda: self.used() == 0)


class Stopped(LossTest):
    def test_a_program_that_somebody_else_stopped_does_not_stop_the_others(self):
        first, second = self.first_is_out()
        os.kill(second.pid, signal.SIGSTOP)  # and so it gives up no memory
        self.assertEqual(first.ok("compare", 0, 7)["wrong"], 0)
        self.assertGreater(self.out(first), 0)
        os.kill(second.pid, signal.SIGCONT)
        self.assertEqual(second.ok("compare", 0, 7)["wrong"], 0)


class LossByGates(Loss):
    MORE = '[channels]\ncontrol = "off"\n'


class Faults(LossTest):
    """A mover that dies at a certain step; the daemon starts others without that fault."""

    def test_wherever_a_mover_dies_no_word_is_wrong(self):
        for fault in FAULTS:
            with self.subTest(fault):
                self.env["TESSERA_FAULT"] = fault
                self.start()
                del self.env["TESSERA_FAULT"]
                for churn in self.churns(2, 400):
                    self.done(churn)
                wait_for("all memory to come back", lambda: self.used() == 0)
                self.assertIn("another one is started", self.daemon_log())
            self.tearDown()
            self.setUp()


if __name__ == "__main__":
    unittest.main()

"""Daemons, movers, checkpoint programs and programs that are killed, or fail, while a program leaves its GPU or returns."""
import os
import pathlib
import signal
import unittest

from moving import MIB, MovingTest, wait_for

CHUNK = 64 * MIB  # of memory that is moved, and of the pools


class MovingLoss(MovingTest):
    SIZE = 32 * MIB

    # ---- the daemon ----

    def test_a_suspended_program_outlives_daemons(self):
        shell = self.start_program()
        self.tessera("suspend", "team")
        for how in (signal.SIGKILL, signal.SIGTERM):
            self.restart_daemon(how)
            self.await_phase(shell.pid, "suspended")
            process = self.process(shell.pid)
            self.assertEqual((process["memory_resident_bytes"], process["memory_swapped_bytes"]), (0, self.SIZE))
        self.comes_back(shell)
        self.ends(shell)

    def test_a_suspended_program_waits_for_a_daemon_longer_than_the_time_of_grace(self):
        config, self.CONFIG = self.CONFIG, '[client]\ngrace_s = 0.2\n' + self.CONFIG
        self.restart_daemon(signal.SIGTERM)
        shell = self.start_program()
        self.tessera("suspend", "team")
        self.stop_daemon(signal.SIGKILL)
        shell.send("launch", 1)
        with self.assertRaises(TimeoutError):
            shell.answer(deadline_s=0.6)
        self.CONFIG = config
        self.start_with_fault(None)
        self.await_phase(shell.pid, "suspended")
        self.tessera("resume", shell.pid)
        self.assertEqual(shell.answer()["result"], 0)
        shell.launches += 1
        self.goes_on(shell)

    def test_a_daemon_killed_on_the_way_out(self):
        steps = ("drained", "left", "locked", "saved", None)
        self.restart_daemon(fault="suspension.drained")
        shell = self.start_program()
        for step, following in zip(steps, steps[1:]):
            self.tessera("suspend", "team", check=False)
            self.daemon.wait()
            self.start_with_fault(following and f"suspension.{following}")
            self.await_phase(shell.pid, "suspended" if step == "saved" else "none")
            if step != "saved":
                self.goes_on(shell)
        self.comes_back(shell)
        self.ends(shell)

    def test_a_daemon_killed_on_the_way_back(self):
        self.restart_daemon(fault="suspension.roomy")
        shell = self.start_program()
        self.tessera("suspend", "team")
        self.tessera("resume", "team", check=False)
        for step in ("restored", "unlocked"):  # each daemon goes on by itself where the one before it was killed
            self.assertEqual(self.daemon.wait(), -signal.SIGKILL)
            self.start_with_fault(f"suspension.{step}", expect_ready=False)
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL)
        self.start_with_fault(None)
        self.await_phase(shell.pid, "none")
        self.goes_on(shell)
        self.ends(shell)

    # ---- the mover ----

    def test_a_mover_killed_while_a_program_leaves(self):
        for step in ("mover.copy.done", "mover.freed.received", "mover.park.answered"):
            with self.subTest(step):
                self.restart_daemon(fault=step)
                shell = self.start_program()
                self.tessera("suspend", "team")
                self.assertIn("the mover", self.daemon_log())
                self.comes_back(shell)
                self.ends(shell)

    def test_a_mover_killed_while_a_program_is_away(self):
        shell = self.start_program()
        self.tessera("suspend", "team")
        gpu, = self.json("gpus")["gpus"]
        os.kill(gpu["swap"]["mover_pid"], signal.SIGKILL)
        self.comes_back(shell)
        self.ends(shell)

    # ---- the checkpoint program ----

    def test_a_checkpoint_program_killed_in_a_call(self):
        for slow, away in (("lock", True), ("checkpoint", True), ("restore", False), ("unlock", False)):
            with self.subTest(slow):
                shell = self.start_program(TESSERA_SOFT_CHECKPOINT=f"{slow}=500ms")
                if not away:
                    self.tessera("suspend", "team")
                self.api("POST", f"/v1/vgpus/team/{'suspend' if away else 'resume'}", {})
                self.await_phase(shell.pid, "saves" if away else "restores")
                self.kill_checkpoint_program()
                wait_for("an end", lambda: self.phase(shell.pid) in ("none", "suspended"))
                if self.phase(shell.pid) == "suspended":
                    self.comes_back(shell)
                self.goes_on(shell)
                self.ends(shell)

    # ---- the program ----

    def test_a_program_killed_at_each_step(self):
        other = self.start_program(word=0xABCD)
        for step in ("locked", "checkpoint.taken", "checkpointed", "restore.put", "restored"):
            with self.subTest(step):
                shell = self.start_program(TESSERA_FAULT=f"soft.{step}")
                self.tessera("suspend", shell.pid, check=False)
                self.tessera("resume", shell.pid, check=False)
                self.assertEqual(shell.child.wait(), -signal.SIGKILL)
                wait_for("its end", lambda: self.process(shell.pid) is None)
                self.goes_on(other)
        self.ends(other)

    def test_a_program_killed_while_it_is_away(self):
        shell = self.start_program()
        self.tessera("suspend", shell.pid)
        shell.child.kill()
        shell.child.wait()
        self.assert_nothing_is_left()

    # ---- the driver ----

    def test_what_fails_before_it_is_saved_is_undone(self):
        for fails in ("lock=CUDA_ERROR_NOT_READY", "checkpoint=CUDA_ERROR_OUT_OF_MEMORY"):
            with self.subTest(fails):
                shell = self.start_program(TESSERA_SOFT_CHECKPOINT=fails)
                self.assertEqual(self.tessera("suspend", shell.pid, check=False).returncode, 1)
                self.assertEqual(self.phase(shell.pid), "none")
                self.goes_on(shell)
                self.tessera("suspend", shell.pid)
                self.comes_back(shell)
                self.ends(shell)

    def test_what_cannot_be_restored_stays_away_and_can_be_resumed_later(self):
        shell = self.start_program(TESSERA_SOFT_CHECKPOINT="restore=CUDA_ERROR_OUT_OF_MEMORY")
        self.tessera("suspend", shell.pid)
        self.assertEqual(self.tessera("resume", shell.pid, check=False).returncode, 1)
        self.assertEqual(self.phase(shell.pid), "suspended")
        self.comes_back(shell)
        self.ends(shell)

    def test_a_program_that_the_driver_loses(self):
        other = self.start_program(word=0xABCD)
        for fails in ("checkpoint=CUDA_ERROR_NOT_SUPPORTED:lost", "restore=CUDA_ERROR_UNKNOWN:lost"):
            with self.subTest(fails):
                shell = self.start_program(TESSERA_SOFT_CHECKPOINT=fails)
                self.tessera("suspend", shell.pid, check=False)
                self.tessera("resume", shell.pid, check=False)
                self.assertIn("lost", self.process(shell.pid)["suspend_error"])
                self.assertNotEqual(shell.ask("launch", 1)["result"], 0)
                lost = [each["pid"] for each in self.api("GET", "/v1/events")[2]["events"] if each["type"] == "process.lost"]
                self.assertIn(shell.pid, lost)
                self.goes_on(other)
                shell.child.kill()
                wait_for("its end", lambda: self.process(shell.pid) is None)
        self.ends(other)


class MigrationLoss(MovingTest):
    SPEC = "2x1GiB"
    SIZE = 32 * MIB

    def test_a_daemon_killed_while_a_vgpu_goes_to_another_gpu(self):
        for step in ("given", "moved", "recorded"):
            with self.subTest(step):
                self.restart_daemon(fault=f"migration.{step}")
                shell = self.start_program()
                target = 1 - self.vgpu("team")["gpu"]
                self.tessera("migrate", "team", "--gpu", target, check=False)
                self.daemon.wait()
                self.start_with_fault(None)
                self.await_phase(shell.pid, "none")  # by itself, on either GPU
                self.goes_on(shell)
                self.assertEqual(self.process(shell.pid)["gpu"], target if step == "recorded" else 1 - target)
                self.no_slot_stays_in_the_pool_of(1 - self.process(shell.pid)["gpu"])
                for gpu in (1 - target, target):
                    self.tessera("migrate", "team", "--gpu", gpu)
                    self.assertEqual((self.vgpu("team")["gpu"], self.process(shell.pid)["gpu"]), (gpu, gpu))
                    self.goes_on(shell)
                self.ends(shell)

    def no_slot_stays_in_the_pool_of(self, gpu):
        """For whose mover to start a program there is needed. The daemon keeps slots; the pools are of host memory."""
        self.create("neighbour", gpu=gpu)
        shell = self.start_program("neighbour")
        self.tessera("evict", "neighbour")
        wait_for("the eviction", lambda: self.process(shell.pid)["memory_swapped_bytes"] == self.SIZE)

        def kept():
            files = (os.readlink(file) for file in pathlib.Path(f"/proc/{self.daemon.pid}/fd").iterdir())
            return sum("soft-memory" in file for file in files)

        def nothing_else():  # pools may still grow
            gpus = [self.gpu(each) for each in (0, 1)]
            return kept() == sum(gpu["swap"]["pool_bytes"] for gpu in gpus) // CHUNK and not any(gpu["memory_unmanaged_bytes"] for gpu in gpus)
        wait_for("only host memory to be kept", nothing_else)
        shell.end()
        self.tessera("vgpu", "rm", "neighbour")

    def on_two_gpus(self):
        """A program with memory on both."""
        for gpu in (0, 1):
            self.create(f"v{gpu}", gpu=gpu)
        return self.shell_on_all(("v0", "v1"), (self.SIZE, 2 * self.SIZE), (self.WORD, self.WORD + 1))

    def test_a_mover_killed_while_a_program_is_away_keeps_none_of_its_gpus_waiting(self):
        """Its memory on one of them is needed by the other one's work only, and was on its way to host memory."""
        self.restart_daemon(fault="mover.relocated")
        shell = self.on_two_gpus()
        for here in (0, 1):
            self.tessera("suspend", shell.pid)
            self.tessera("resume", shell.pid)
            self.expect_words(shell, 1 - here, on=here)
        self.assertEqual(self.daemon_log().count("the mover ended"), 2)
        self.ends(shell)

    def test_a_daemon_killed_while_vgpus_change_their_gpus_exchanges_nothing_else(self):
        shell = self.on_two_gpus()
        charged = [self.vgpu(f"v{gpu}")["memory_current_bytes"] for gpu in (0, 1)]
        self.assertLess(*charged)
        for step in ("given", "moved", "recorded"):
            with self.subTest(step):
                self.restart_daemon(fault=f"migration.{step}")
                self.await_phase(shell.pid, "none")
                self.tessera("migrate", shell.pid, "--gpu", "1,0", check=False)
                self.daemon.wait()
                self.start_with_fault(None)
                self.await_phase(shell.pid, "none")
                self.assertEqual([self.vgpu(f"v{gpu}")["memory_current_bytes"] for gpu in (0, 1)], charged)
                for gpu in (0, 1):
                    self.expect_words(shell, gpu)
        self.ends(shell)

    def test_a_program_that_has_not_come_back_to_the_next_daemon_is_not_left_behind(self):
        shell = self.start_program()
        target = 1 - self.vgpu("team")["gpu"]
        os.kill(shell.pid, signal.SIGSTOP)
        self.restart_daemon()
        refused = self.tessera("migrate", "team", "--gpu", target, check=False)
        self.assertIn("not come back", refused.stderr)
        os.kill(shell.pid, signal.SIGCONT)
        self.await_phase(shell.pid, "none")
        self.tessera("migrate", "team", "--gpu", target)
        self.assertEqual(self.process(shell.pid)["gpu"], target)
        self.goes_on(shell)
        self.ends(shell)

    def test_a_program_that_has_moved_outlives_daemons(self):
        shell = self.start_program()
        target = 1 - self.vgpu("team")["gpu"]
        self.tessera("migrate", "team", "--gpu", target)
        for _ in range(2):  # the second one hears from the first one's page where the program is
            self.restart_daemon()
            self.await_phase(shell.pid, "none")
            self.assertEqual(self.process(shell.pid)["gpu"], target)
            self.goes_on(shell)
        self.ends(shell)


if __name__ == "__main__":
    unittest.main()

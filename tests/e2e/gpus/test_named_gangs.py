"""Programs with one GPU each that are a gang by name: their vGPUs have their turns together."""
import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, Shell, SUCCESS, wait_for  # noqa: E402
from gangs import GangTest  # noqa: E402


class NamedGangs(GangTest):
    def rank(self, gang, gpu, *flags):
        """A program of the gang on this GPU, as tessera run starts it. Its vGPU is called by the gang and the GPU."""
        shell = Shell(self.spawn(BIN / "tessera", "run", *self.RUN_FLAGS, "--run-dir", self.run_dir, "--gang", gang,
                                 "--gpu", gpu, "--name", f"{gang}{gpu}", *flags, "--", BIN / "driver_shell",
                                 stdin=subprocess.PIPE))
        shell.ok("init")
        shell.ok("context")
        shell.owes = 0
        return shell

    def work(self, shell, launches=GangTest.LAUNCHES):
        """Does not wait: a launch may wait for its turn."""
        for _ in range(launches):
            shell.send("launch", 1, self.SPINS)
        shell.owes += launches

    def finish(self, shell):
        for _ in range(shell.owes):
            self.assertEqual(shell.answer()["result"], SUCCESS)
        shell.ok("sync")
        self.assertEqual(shell.ok("count")["count"], shell.owes)

    def see_turns(self, *names):
        for name in names:
            wait_for(f"the turn of {name}", lambda: name in self.look())

    def test_two_gangs_of_two_programs_take_turns_on_both_gpus(self):
        self.start_daemon()
        ranks = [self.rank(gang, gpu) for gang in ("a", "b") for gpu in (0, 1)]
        self.assertEqual({name: self.vgpu(name)["gang"] for name in self.states()},
                         {"a0": "a", "a1": "a", "b0": "b", "b1": "b"})
        for shell in ranks:
            self.work(shell)
        self.see_turns("a", "b", "a", "b")
        for shell in ranks:
            self.finish(shell)
        self.assertGreater(self.vgpu("a0")["preempted"] + self.vgpu("b0")["preempted"], 1)

    def test_a_gang_and_a_job_on_one_of_its_gpus(self):
        self.start_daemon()
        self.create("other", gpu=0)
        other = self.shell_with_context("other")
        other.owes = 0
        ranks = [self.rank("a", 0), self.rank("a", 1)]
        for shell in (other, *ranks):
            self.work(shell)

        def running():
            states = self.states()
            self.assertNotEqual({states["a0"], states["a1"]}, {"running", "waiting"}, states)
            if states["a1"] != "idle":  # else it is no gang yet, and slices divide the GPU
                self.assertNotEqual((states["a0"], states["other"]), ("running", "running"), states)
            return {name for name, state in states.items() if state == "running"}
        for turn in ({"a0", "a1"}, {"other"}, {"a0", "a1"}):
            wait_for(f"the turn of {turn}", lambda: running() == turn)
        for shell in (other, *ranks):
            self.finish(shell)

    def test_a_rank_that_dies_leaves_the_others_and_one_that_comes_later_joins_them(self):
        self.start_daemon()
        ranks = {(gang, gpu): self.rank(gang, gpu) for gang, gpu in (("a", 0), ("a", 1), ("b", 0))}
        for shell in ranks.values():
            self.work(shell, 60)
        wait_for("the turns of a", lambda: self.states()["a1"] == "waiting")  # with a0, for b0 runs there
        late = self.rank("b", 1)
        self.work(late)
        self.see_turns("a", "b", "a")

        dead = ranks.pop(("a", 1))
        dead.child.kill()
        dead.child.wait()
        wait_for("its vGPU to be gone", lambda: "a1" not in self.states())
        # The GPU is b's alone now, and a0 still goes on.
        wait_for("the turn of a0", lambda: self.states()["a0"] == "running")
        again = self.rank("a", 1)
        self.work(again)
        self.see_turns("a", "b")
        for shell in (*ranks.values(), late, again):
            self.finish(shell)
        wait_for("all to be idle", lambda: set(self.states().values()) == {"idle"})

    def test_gangs_outlive_a_daemon(self):
        self.start_daemon()
        ranks = [self.rank(gang, gpu) for gang in ("a", "b") for gpu in (0, 1)]
        for how in (signal.SIGTERM, signal.SIGKILL):
            for shell in ranks:
                self.work(shell, 40)
            self.see_turns("a", "b")
            self.stop_daemon(how)
            self.start_daemon()
            wait_for("all programs", lambda: len(self.managed()) == len(ranks))
            self.assertEqual(self.vgpu("a1")["gang"], "a")
            self.see_turns("a", "b")
        for shell in ranks:
            self.finish(shell)

    def test_a_gang_is_made_and_ended_while_programs_run(self):
        self.start_daemon()
        for gpu in (0, 1):
            self.create(f"a{gpu}", gpu=gpu)
            self.create(f"b{gpu}", gpu=gpu, gang="b")
        ranks = [self.shell_with_context(name) for name in ("a0", "a1", "b0", "b1")]
        for gpu in (0, 1):
            self.tessera("vgpu", "set", f"a{gpu}", "--gang", "mine")
        for shell in ranks:
            shell.owes = 0
            self.work(shell, 60)
        self.see_turns("a", "b", "a")
        self.assertIn("mine", self.tessera("vgpu", "show", "a0").stdout)
        for name in ("a0", "a1", "b0", "b1"):
            self.tessera("vgpu", "set", name, "--gang", "none")
        self.assertIsNone(self.vgpu("a0")["gang"])
        for shell in ranks:
            self.finish(shell)

    def test_the_ranks_of_a_gang_get_gpus_of_their_own(self):
        self.start_daemon()
        self.create("full", gpu=1, memory_request="512M")
        ranks = [self.spawn(BIN / "tessera", "run", *self.RUN_FLAGS, "--run-dir", self.run_dir, "--gang", "job", "--",
                            "sleep", "60") for _ in range(2)]
        vgpus = wait_for("both", lambda: len(self.states()) == 3 and self.json("vgpu", "ls")["vgpus"])
        self.assertEqual(sorted(vgpu["gpu"] for vgpu in vgpus if vgpu["gang"] == "job"), [0, 1])
        for rank in ranks:
            rank.kill()

    def test_what_cannot_be_is_refused(self):
        self.start_daemon()
        self.create("a")
        for words in (("vgpu", "create", "x", "--gang", "a b"), ("vgpu", "set", "a", "--gang", "y" * 64),
                      ("vgpu", "create", "x", "--gang", "g", "--space", "s"), ("run", "--gang", "..", "--", "true"),
                      ("run", "--vgpu", "a", "--gang", "g", "--", "true")):
            done = self.tessera(*words, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn("gang", done.stderr)
        status, _, problem = self.api("POST", "/v1/vgpus", {"name": "x", "gang": "g", "space": "s"})
        self.assertEqual((status, problem["code"]), (400, "EINVAL"))
        self.assertIn("can be in no gang", problem["detail"])
        self.assertEqual(set(self.states()), {"a"})
        self.assertEqual(self.api("GET", "/v1/spaces")[2]["spaces"], [])


if __name__ == "__main__":
    unittest.main()

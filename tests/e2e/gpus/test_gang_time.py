"""Programs on several GPUs whose time is shared: each has its turn on all of its GPUs together."""
import json
import pathlib
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, SUCCESS, wait_for  # noqa: E402
from gangs import GangTest  # noqa: E402


class GangTime(GangTest):
    def gang(self, name):
        """A program with a context on each of the two GPUs."""
        for gpu in (0, 1):
            self.create(f"{name}{gpu}", gpu=gpu)
        shell = self.shell_in(f"{name}0,{name}1")
        shell.ok("init")
        for gpu in (0, 1):
            shell.ok("context", gpu)
        return shell

    def work(self, shell, contexts=(0, 1)):
        """Does not wait: a launch may wait for its turn."""
        for context in contexts:
            shell.send("current", context)
            for _ in range(self.LAUNCHES):
                shell.send("launch", 1, self.SPINS)
        shell.owes = len(contexts) * (self.LAUNCHES + 1)

    def finish(self, shell, contexts=(0, 1)):
        for _ in range(shell.owes):
            self.assertEqual(shell.answer()["result"], SUCCESS)
        for context in contexts:
            shell.ok("current", context)
            shell.ok("sync")
            self.assertEqual(shell.ok("count")["count"], self.LAUNCHES)

    def test_two_gangs_take_turns_on_both_gpus(self):
        self.start_daemon()
        gangs = [self.gang("a"), self.gang("b")]
        for shell in gangs:
            self.work(shell)
        for name in ("a", "b", "a", "b"):
            wait_for(f"the turn of {name}", lambda: name in self.look())
        for shell in gangs:
            self.finish(shell)
        self.assertGreater(self.vgpu("a0")["preempted"] + self.vgpu("b0")["preempted"], 1)

    def test_processes_with_one_gpu_each_are_a_gang_if_they_join_the_same_vgpus(self):
        self.start_daemon()
        for name in ("a0", "a1", "b0", "b1"):
            self.create(name, gpu=int(name[1]))
        ranks = []
        for name in ("a", "b"):
            for gpu in (0, 1):
                shell = self.shell_in(f"{name}0,{name}1")
                shell.ok("init")
                shell.ok("context", gpu)
                self.work(shell, contexts=(0,))
                ranks.append(shell)
        for name in ("a", "b", "a"):
            wait_for(f"the turn of {name}", lambda: name in self.look())
        for shell in ranks:
            self.finish(shell, contexts=(0,))

    def test_a_gang_that_is_killed_in_its_turn_lets_the_other_go_on(self):
        self.start_daemon()
        gangs = {name: self.gang(name) for name in ("a", "b")}
        for shell in gangs.values():
            self.work(shell)
        wait_for("the turn of a", lambda: "a" in self.look())
        gangs["a"].child.kill()
        gangs["a"].child.wait()
        wait_for("the turn of b", lambda: "b" in self.look())
        self.finish(gangs["b"])
        wait_for("all to be idle", lambda: set(self.states().values()) == {"idle"})

    def test_a_program_is_started_on_several_gpus(self):
        self.start_daemon()
        done = self.tessera("run", *self.RUN_FLAGS, "--gpus", "2", "--name", "job", "--weight", "7", "--",
                            BIN / "tessera", "vgpu", "ls", "--json")
        made = {vgpu["name"]: (vgpu["gpu"], vgpu["compute_weight"]) for vgpu in json.loads(done.stdout)["vgpus"]}
        self.assertEqual(made, {"job-0": (0, 7), "job-1": (1, 7)})
        wait_for("them to be gone", lambda: not self.states())
        for flags in (("--gpus", "3"), ("--gpus", "0"), ("--gpus", "2", "--gpu", "1"), ("--gpus", "2", "--space", "x")):
            done = self.tessera("run", *self.RUN_FLAGS, *flags, "--", "true", check=False)
            self.assertEqual(done.returncode, 125, done.stderr)
        self.assertEqual(self.states(), {})


if __name__ == "__main__":
    unittest.main()

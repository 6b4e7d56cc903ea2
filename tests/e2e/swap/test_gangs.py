"""Programs on several GPUs whose memory takes turns: each has its turn on all of its GPUs together."""
import unittest

from swapping import SwapTest
from harness import MIB, SUCCESS, wait_for

ONE_ORDER = "in one order with other GPUs"


class Gangs(SwapTest):
    SPEC = "2x512MiB,context=16MiB,pcie=4GB/s,speed=400M"
    PIECE = 300 * MIB
    ROUNDS = 8
    SPINS = 200_000

    def program(self, name, gpus):
        """A program on both GPUs, with its memory there. It allocates in this order of GPUs."""
        for gpu in gpus:
            self.create(f"{name}{gpu}", gpu=gpu, memory_max="1G")
        shell = self.shell_in(f"{name}0,{name}1")
        shell.ok("init")
        for gpu in (0, 1):
            shell.ok("context", gpu)
        shell.pieces = {}
        for gpu in gpus:
            shell.ok("current", gpu)
            shell.pieces[gpu] = shell.filled(self.PIECE, 100 + gpu)
        return shell

    def decisions(self):
        return [gpu["swap"]["decision"] for gpu in self.json("gpus")["gpus"]]

    def check(self, shell, rounds):
        for gpu in (0, 1):
            shell.ok("current", gpu)
            self.assertEqual(shell.ok("count")["count"], rounds)
            self.assertEqual(shell.ok("compare", shell.pieces[gpu], 100 + gpu)["wrong"], 0)

    def test_two_programs_that_each_need_most_of_both_gpus_go_on(self):
        self.start()
        first = self.program("a", (0, 1))
        second = self.program("b", (1, 0))
        seen = set()
        for _ in range(self.ROUNDS):
            # Both have work on both GPUs when one of them waits.
            for shell in (first, second):
                for gpu in (0, 1):
                    shell.send("current", gpu)
                    shell.send("launch", 1, self.SPINS)
            seen.update(self.decisions())
            for shell in (first, second):
                for _ in range(4):
                    self.assertEqual(shell.answer()["result"], SUCCESS)
            for shell in (first, second):
                for gpu in (0, 1):
                    shell.ok("current", gpu)
                    shell.ok("sync")
        self.assertTrue(any(ONE_ORDER in decision for decision in seen), seen)
        for shell in (first, second):
            self.check(shell, self.ROUNDS)
        for shell in (first, second):
            shell.ok("free_all")
        wait_for("no more turns", lambda: not any(ONE_ORDER in decision for decision in self.decisions()))

    def rank(self, name, gpu, gang):
        """A program on one GPU, with its memory there."""
        self.create(name, gpu=gpu, memory_max="1G", gang=gang)
        shell = self.shell_with_context(name)
        shell.piece = shell.filled(self.PIECE, 100)
        return shell

    def rounds(self, ranks):
        """All work at the same time, in rounds. What the GPUs decided meanwhile."""
        seen = set()
        for _ in range(self.ROUNDS):
            for shell in ranks:
                shell.send("launch", 1, self.SPINS)
            seen.update(self.decisions())
            for shell in ranks:
                self.assertEqual(shell.answer()["result"], SUCCESS)
            for shell in ranks:
                shell.ok("sync")
        for shell in ranks:
            self.assertEqual(shell.ok("count")["count"], self.ROUNDS)
            self.assertEqual(shell.ok("compare", shell.piece, 100)["wrong"], 0)
        return seen

    def test_programs_of_a_named_gang_have_their_memory_together(self):
        self.start()
        ranks = [self.rank(f"{gang}{gpu}", gpu, gang) for gang, gpus in (("a", (0, 1)), ("b", (1, 0))) for gpu in gpus]
        seen = self.rounds(ranks)
        self.assertTrue(any(ONE_ORDER in decision for decision in seen), seen)
        ranks[0].child.kill()
        wait_for("the others to be no gangs' rivals", lambda: not any(ONE_ORDER in each for each in self.decisions()))

    def test_a_gang_whose_memory_does_not_fit_on_one_of_its_gpus_goes_on(self):
        self.start()
        self.rounds([self.rank("a0", 0, "a"), self.rank("more0", 0, "a"), self.rank("a1", 1, "a"),
                     self.rank("b0", 0, "b"), self.rank("b1", 1, "b")])


if __name__ == "__main__":
    unittest.main()

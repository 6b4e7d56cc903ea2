"""Programs with more memory than they may have on the GPU: what they use is there, what they do not use is not."""
import unittest

from swapping import SwapTest
from harness import MIB, wait_for


class Hot(SwapTest):
    PIECE = 128 * MIB  # two chunks
    PIECES = 4  # of which four of eight chunks have place beside the context

    def larger_than_its_limit(self, **fields):
        self.start()
        self.create("v", memory_limit="280M", memory_max="1G", **fields)
        shell = self.shell_with_context("v")
        ids = [shell.ok("allocate", "alloc", self.PIECE)["id"] for _ in range(self.PIECES)]
        for n in ids:
            shell.ok("set", n, 100 + n)
        self.assertGreaterEqual(self.process()["memory_swapped_bytes"], 3 * 64 * MIB)
        return shell, ids

    def process(self):
        (process,) = self.managed()
        return process

    @staticmethod
    def uses(shell, piece):
        shell.ok("set", piece, 7)
        shell.ok("sync")

    def goes_on_until_it_is_resident(self, use):
        """Does one thing again and again, until nothing of what that needs is out."""
        before = self.process()["moved_in_bytes"]

        def resident():
            for _ in range(20):
                use()
            process = self.process()
            return process["moved_in_bytes"] >= before + self.PIECE and process["memory_hot_out_bytes"] == 0

        wait_for("what is used to come in", resident)

    def expect_resident(self, shell, hot, cold):
        """Nothing has to come in once the rest is gone."""
        moved = self.process()["moved_in_bytes"]
        for n in cold:
            self.assertEqual(shell.ok("compare", n, 100 + n)["wrong"], 0)
            shell.ok("free", n)
        wait_for("what is out to be gone", lambda: self.process()["memory_swapped_bytes"] == 0)
        self.assertEqual(self.process()["moved_in_bytes"], moved)

    def test_what_copies_and_memsets_use_comes_in(self):
        shell, (hot, *cold) = self.larger_than_its_limit()
        self.goes_on_until_it_is_resident(lambda: self.uses(shell, hot))
        self.assertEqual(shell.ok("compare", hot, 7)["wrong"], 0)
        self.expect_resident(shell, hot, cold)

    def test_what_kernels_are_given_comes_in(self):
        shell, (hot, *cold) = self.larger_than_its_limit()
        address = shell.ok("address", hot)["address"]
        self.goes_on_until_it_is_resident(lambda: (shell.ok("launch_on", address, 5), shell.ok("sync")))
        self.assertEqual(shell.ok("compare", hot, 100 + hot)["wrong"], 1)  # the word that the kernels count in
        self.expect_resident(shell, hot, cold)

    def test_what_graphs_use_comes_in(self):
        shell, (hot, *cold) = self.larger_than_its_limit()
        shell.ok("graph_on", shell.ok("address", hot)["address"])
        self.goes_on_until_it_is_resident(lambda: (shell.ok("graph_launch"), shell.ok("sync")))
        self.expect_resident(shell, hot, cold)

    def test_a_bound_on_host_memory_is_kept(self):
        shell, (hot, *cold) = self.larger_than_its_limit(memory_swap_max="320M")  # place for one chunk more

        def use():
            self.uses(shell, hot)
            self.assertLessEqual(self.process()["memory_swapped_bytes"], 320 * MIB)

        self.goes_on_until_it_is_resident(use)
        self.expect_resident(shell, hot, cold)


class HotByGates(Hot):
    MORE = '[channels]\ncontrol = "off"\n'

    def test_the_queue_is_bounded_while_memory_is_out(self):
        shell, (hot, *_) = self.larger_than_its_limit()
        address = shell.ok("address", hot)["address"]
        shell.ok("launch_on", address, 100)
        self.assertGreaterEqual(self.process()["window"], 2)
        shell.ok("sync")


if __name__ == "__main__":
    unittest.main()

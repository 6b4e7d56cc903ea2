"""Memory of graphs moves as cuMemAlloc's does."""
import unittest

from swapping import SwapTest
from harness import INVALID_VALUE, MIB, wait_for

CHUNK = 64 * MIB


class Graphs(SwapTest):
    def setUp(self):
        super().setUp()
        self.start()

    def process(self, shell):
        (found,) = [each for each in self.json("ps")["processes"] if each["pid"] == shell.pid]
        return found

    def pinned(self, shell):
        return self.process(shell)["memory_pinned_by"].get("graph", 0)

    def has_only_its_context(self, shell):
        wait_for("the memory to be given back", lambda: self.process(shell)["memory_bytes"] == self.CONTEXT_BYTES)

    def test_what_a_graph_allocates_and_frees_moves(self):
        (shell,) = self.shells(1)
        for how in ("captured", "nodes"):
            with self.subTest(how):
                # All of them use the same memory: each is freed before the next is made.
                self.assertEqual(shell.ok("temporaries", how, 20, CHUNK)["addresses"], 1)
                self.assertLess(self.process(shell)["memory_bytes"], self.CONTEXT_BYTES + 2 * CHUNK)
                for _ in range(3):
                    self.assertEqual(shell.ok("run_temporaries")["wrong"], 0)
                    moved = self.process(shell)["moved_out_bytes"]
                    self.tessera("evict", shell.pid)
                    self.assertGreaterEqual(self.process(shell)["moved_out_bytes"], moved + CHUNK)
                self.assertEqual(shell.ok("run_temporaries")["wrong"], 0)
                self.assertEqual(self.pinned(shell), 0)
                shell.ok("end_temporaries")
                self.has_only_its_context(shell)

    def test_what_a_graph_leaves_moves_and_is_freed_by_the_program(self):
        (shell,) = self.shells(1)
        piece = shell.ok("allocate", "graph", CHUNK)["id"]
        shell.ok("set", piece, 7)
        for _ in range(2):
            self.tessera("evict", shell.pid)
            self.assertEqual(shell.ok("compare", piece, 7)["wrong"], 0)
        self.assertGreaterEqual(self.process(shell)["moved_out_bytes"], CHUNK)
        self.assertEqual(self.pinned(shell), 0)
        self.assertGreaterEqual(shell.ok("graph_figures")["reserved"], CHUNK)
        address = shell.ok("address", piece)["address"]
        shell.ok("free", piece)
        self.assertEqual(shell.ask("free_address", address)["result"], INVALID_VALUE)

    def test_graphs_that_do_not_fit_together_take_turns(self):
        shells = self.shells(2)
        for shell in shells:
            shell.ok("temporaries", "captured", 3, self.PIECE)
        for _ in range(2):
            for shell in shells:
                self.assertEqual(shell.ok("run_temporaries")["wrong"], 0)

    def test_a_graph_may_have_more_memory_than_the_gpu(self):
        (shell,) = self.shells(1)
        pieces = [shell.ok("allocate", "graph", 200 * MIB)["id"] for _ in range(4)]
        for word, piece in enumerate(pieces, 1):
            shell.ok("set", piece, word)
        for word, piece in enumerate(pieces, 1):
            self.assertEqual(shell.ok("compare", piece, word)["wrong"], 0)
        self.assertEqual(self.pinned(shell), 0)


if __name__ == "__main__":
    unittest.main()

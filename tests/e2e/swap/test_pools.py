"""Memory of stream-ordered pools moves as cuMemAlloc's does."""
import unittest

from swapping import SwapTest
from harness import INVALID_VALUE, MIB, OUT_OF_MEMORY, wait_for

CHUNK = 64 * MIB


class Pools(SwapTest):
    def setUp(self):
        super().setUp()
        self.start()
        (self.shell,) = self.shells(1)

    def process(self):
        (found,) = [each for each in self.json("ps")["processes"] if each["pid"] == self.shell.pid]
        return found

    def evict(self):
        self.tessera("evict", self.shell.pid)

    def test_pools_move_and_keep_their_words(self):
        shell = self.shell
        before = self.process()["memory_pinned_bytes"]
        pieces = [shell.ok("allocate", kind, size)["id"] for kind in ("async", "pool") for size in (CHUNK, 20 * MIB)]
        for piece in pieces:
            shell.ok("set", piece, 100 + piece)
        shell.ok("sync")
        self.assertEqual(self.process()["memory_pinned_bytes"], before)
        for _ in range(2):
            self.evict()
            for piece in pieces:
                self.assertEqual(shell.ok("compare", piece, 100 + piece)["wrong"], 0)
        self.assertGreaterEqual(self.process()["moved_out_bytes"], CHUNK)
        for piece in pieces:
            shell.ok("free", piece)
        self.assertEqual(self.process()["memory_bytes"], self.CONTEXT_BYTES)

    def test_programs_whose_pools_do_not_fit_together_take_turns(self):
        self.create("other", memory_max="1G")
        other = self.shell_with_context("other")
        words = {}
        for word, shell in enumerate((self.shell, other), 1):
            words[shell] = word, shell.ok("allocate", "async", self.PIECE)["id"]
            shell.ok("set", words[shell][1], word)
        for _ in range(2):
            for shell, (word, piece) in words.items():
                self.assertEqual(shell.ok("compare", piece, word)["wrong"], 0)

    def test_a_program_that_never_waits_does_not_grow(self):
        for _ in range(3):
            done = self.shell.ok("in_order", 100, 20 * MIB)
            self.assertEqual(done["wrong"], 0)
            self.assertLessEqual(done["addresses"], 2)
            self.assertEqual(self.process()["memory_bytes"], self.CONTEXT_BYTES)
            self.evict()

    def test_a_pool_says_what_it_has(self):
        shell = self.shell
        shell.ok("pool_keep", 1 << 30)
        piece = shell.ok("allocate", "async", CHUNK)["id"]
        self.assertEqual(shell.ok("pool_figures"), {"result": 0, "used": CHUNK, "reserved": CHUNK})
        address = shell.ok("address", piece)["address"]
        shell.ok("free", piece)
        self.assertEqual(shell.ok("pool_figures"), {"result": 0, "used": 0, "reserved": CHUNK})
        self.assertEqual(self.process()["memory_bytes"], self.CONTEXT_BYTES + CHUNK)
        self.assertEqual(shell.ask("free_address", address)["result"], INVALID_VALUE)
        # It is given up for an allocation that needs it.
        self.assertEqual(shell.ask("allocate", "alloc", 2 << 30)["result"], OUT_OF_MEMORY)
        self.assertEqual(shell.ok("pool_figures")["reserved"], 0)
        self.assertEqual(self.process()["memory_bytes"], self.CONTEXT_BYTES)


if __name__ == "__main__":
    unittest.main()

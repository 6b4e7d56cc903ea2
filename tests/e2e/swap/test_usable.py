"""What is free can be had in one block, whatever was allocated and freed before."""
import unittest

from swapping import SwapTest
from harness import MIB, OUT_OF_MEMORY, SUCCESS, wait_for

LIMIT = 380 * MIB


class Usable(SwapTest):
    def alternate(self, shell, *sizes):
        """Blocks of these sizes one after the other until the memory is full; the first of each round are freed. Returns those that stay, with a word
        of their own in each."""
        rounds, n = [], 0
        while True:
            pieces = [shell.ask("allocate", "alloc", size) for size in sizes]
            rounds.append([piece["id"] for piece in pieces if piece["result"] == SUCCESS])
            for piece in rounds[-1]:
                shell.ok("set", piece, 1000 + piece)
            if len(rounds[-1]) < len(sizes):
                break
        for pieces in rounds:
            if pieces:
                shell.ok("free", pieces.pop(0))
        return [piece for pieces in rounds for piece in pieces]

    def expect_usable(self, shell, kept, least):
        free = shell.ok("info")["free"]
        self.assertGreaterEqual(free, least)
        block = shell.ask("allocate", "alloc", free * 98 // 100)
        self.assertEqual(block["result"], SUCCESS, f"{free // MIB} MiB are said to be free; {self.daemon_log()[-3000:]}")
        shell.ok("set", block["id"], 7)
        for piece in kept:
            self.assertEqual(shell.ok("compare", piece, 1000 + piece)["wrong"], 0)
        self.assertEqual(shell.ok("compare", block["id"], 7)["wrong"], 0)
        shell.ok("free", block["id"])

    def test_what_is_freed_between_blocks_that_stay(self):
        self.start()
        for n, (sizes, terms) in enumerate((((20 * MIB, 2 * MIB), {"memory_limit": LIMIT}),
                                            ((120 * MIB, 2 * MIB), {"memory_limit": LIMIT}),
                                            ((30 * MIB, MIB // 2, MIB), {"memory_limit": LIMIT}),
                                            ((20 * MIB, 2 * MIB), {}))):
            with self.subTest(sizes=sizes, terms=terms):
                self.create(f"v{n}", **terms)
                shell = self.shell_with_context(f"v{n}")
                kept = self.alternate(shell, *sizes)
                self.expect_usable(shell, kept, LIMIT // 2)
                shell.end()
                wait_for("the program to be gone", lambda: not self.managed())
                self.assertEqual(self.api("DELETE", f"/v1/vgpus/v{n}")[0], 204)

    def test_what_may_not_move_is_not_free(self):
        self.start()
        self.create("fixed", memory_limit=LIMIT, memory_swap_max=0)
        shell = self.shell_with_context("fixed")
        kept = self.alternate(shell, 20 * MIB, 2 * MIB)
        self.expect_usable(shell, kept, 20 * MIB)

    def test_one_block_that_is_larger_than_the_limit(self):
        self.start()
        self.create("large", memory_limit=200 * MIB, memory_max=800 * MIB)
        shell = self.shell_with_context("large")
        first = shell.ok("allocate", "alloc", 100 * MIB)["id"]
        shell.ok("set", first, 1000 + first)
        self.expect_usable(shell, [first], 600 * MIB)
        self.assertEqual(shell.ask("allocate", "alloc", 800 * MIB)["result"], OUT_OF_MEMORY)


if __name__ == "__main__":
    unittest.main()

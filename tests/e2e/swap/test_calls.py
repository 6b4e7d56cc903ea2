"""Calls that the driver answers differently for mapped memory, which a program's memory is where it is swapped."""
import unittest

from swapping import SwapTest
from harness import INVALID_VALUE, MIB, SUCCESS, SoftGpuTest, wait_for

COPIES = ("cuMemcpy", "cuMemcpyDtoD_v2", "cuMemcpyAsync", "cuMemcpyDtoDAsync_v2", "cuMemcpy2D_v2",
          "cuMemcpyBatchAsync_v2", "cuMemcpy3DBatchAsync_v2")


class TwoGpus(SwapTest):
    SPEC = "2x512MiB,context=16MiB,pcie=4GB/s,speed=400M"

    def test_copies_between_gpus_need_no_peer_access(self):
        self.copies("alloc")

    def test_nor_do_those_of_pools(self):
        self.copies("async")

    def copies(self, kind):
        self.start()
        for gpu in (0, 1):
            self.create(f"v{gpu}", gpu=gpu, memory_max="256M")
        shell = self.shell_in("v0,v1")
        shell.ok("init")
        pieces = []
        for gpu in (0, 1):
            shell.ok("context", gpu)
            pieces.append(shell.ok("allocate", kind, 20 * MIB)["id"])
        word = 0
        for to, source in (pieces, reversed(pieces)):
            for how in COPIES:
                for current in (0, 1):
                    with self.subTest(how, to=to, current=current):
                        word += 1
                        shell.ok("current", source)
                        shell.ok("set", source, word)
                        shell.ok("sync")
                        shell.ok("current", current)
                        shell.ok("copy", to, source, how)
                        shell.ok("current", to)
                        self.assertEqual(shell.ok("compare", to, word)["wrong"], 0)


class OneGpu(SwapTest):
    def setUp(self):
        super().setUp()
        self.start()
        (self.shell,) = self.shells(1)

    def piece(self, size=MIB):
        return self.shell.ok("allocate", "alloc", size)["id"]

    def test_memory_is_freed_in_the_order_of_a_stream(self):
        free = self.shell.ok("info")["free"]
        piece = self.piece(100 * MIB)
        address = self.shell.ok("address", piece)["address"]
        self.shell.ok("free_async", piece)
        self.assertEqual(self.shell.ask("free_address", address)["result"], INVALID_VALUE)
        self.shell.ok("sync")
        self.assertEqual(self.shell.ok("info")["free"], free)

    def test_what_was_freed_in_order_is_for_others_though_no_call_is_made(self):
        before = self.current("v0")
        piece = self.piece(100 * MIB)
        self.shell.ok("free_async", piece)  # and the program computes on
        wait_for("the memory to come back", lambda: self.current("v0") == before)

    def test_only_managed_memory_takes_advice(self):
        moved = self.piece(100 * MIB)
        self.shell.ok("sync")
        self.tessera("evict", self.shell.pid)
        for piece, result in (
            (moved, INVALID_VALUE),
            (self.piece(), INVALID_VALUE),
            (self.shell.ok("allocate", "async", MIB)["id"], INVALID_VALUE),
            (self.shell.ok("allocate", "managed", MIB)["id"], SUCCESS),
        ):
            answers = self.shell.ok("advice", piece)
            self.assertEqual({answers.pop("result")}, {SUCCESS})
            self.assertEqual(set(answers.values()), {result}, answers)

    def test_sync_memops_can_be_set(self):
        piece = self.piece()
        for value in (1, 0):
            self.assertEqual(self.shell.ask("sync_memops", piece, value)["result"], SUCCESS)


class Pools(SoftGpuTest):
    SPEC = "1x512MiB,context=16MiB"

    def test_memory_that_a_pool_keeps_is_charged_once(self):
        self.start_daemon(config='[swap]\nsize = "0"')
        self.create("v", memory_limit="200M")
        shell = self.shell_with_context("v")
        shell.ok("pool_keep", 1 << 30)
        for _ in range(3):
            piece = shell.ok("allocate", "async", 120 * MIB)["id"]
            shell.ok("free", piece)
            self.json("ps")  # measures
            self.assertEqual(self.current("v"), (120 + 16) * MIB)
        shell.ok("pool_keep", 0)
        self.assertEqual(self.current("v"), 16 * MIB)


if __name__ == "__main__":
    unittest.main()

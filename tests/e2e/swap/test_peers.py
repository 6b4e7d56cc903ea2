"""Memory of a program that another of its GPUs uses while it is moved."""
import unittest

from swapping import SwapTest
from harness import MIB, wait_for


class Peers(SwapTest):
    SPEC = "2x512MiB,context=16MiB,pcie=800MB/s,speed=400M"
    BYTES = 64 * MIB
    BY = "channels"

    def setUp(self):
        super().setUp()
        self.start()
        for gpu in (0, 1):
            self.create(f"v{gpu}", gpu=gpu, memory_max="400M")
        self.shell = self.shell_in("v0,v1")
        self.shell.ok("init")
        for gpu in (0, 1):
            self.shell.ok("context", gpu)

    def out(self, gpu):
        use, = (each for each in self.json("ps")["processes"] if each["pid"] == self.shell.pid and each["gpu"] == gpu)
        return use["memory_swapped_bytes"]

    def more_rounds(self):
        """The other GPU has done all of its work once more, from the beginning to the end."""
        before = self.shell.ok("rewrites")["rounds"]
        wait_for("work of the other GPU", lambda: self.shell.ok("rewrites")["rounds"] >= before + 2)

    def moved_while(self, how):
        """GPU 1 works on the memory of GPU 0 while that goes out and comes back."""
        self.shell.ok("current", 0)
        piece = self.shell.ok("allocate", "alloc", self.BYTES)["id"]
        address = self.shell.ok("address", piece)["address"]
        self.shell.ok("current", 1)
        if how == "write":
            self.shell.ok("peer", 0)
        self.shell.ok("rewrite", address, self.BYTES, how)
        self.shell.ok("current", 0)
        self.more_rounds()
        self.tessera("evict", self.shell.pid)
        self.assertGreaterEqual(self.out(0), self.BYTES)
        self.more_rounds()  # where the memory lies: nobody waits for it
        self.shell.ok("launch", 1)
        self.shell.ok("sync")
        wait_for("the memory to be back", lambda: self.out(0) == 0)
        self.more_rounds()
        self.assertEqual(self.shell.ok("rewritten")["wrong"], 0)
        self.shell.ok("free", piece)

    def test_another_gpu_stands_still_while_memory_that_it_uses_is_moved(self):
        for how in ("copy", "write"):  # without access to the memory, and with it
            with self.subTest(how):
                self.moved_while(how)
        self.assertEqual({gpu["control"]["by"] for gpu in self.json("gpus")["gpus"]}, {self.BY})


class PeersByGates(Peers):
    MORE = "[channels]\ncontrol = 'off'\n"
    BY = "gate"


if __name__ == "__main__":
    unittest.main()

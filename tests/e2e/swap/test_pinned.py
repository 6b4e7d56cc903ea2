"""Memory that cannot be moved is counted by the reason why."""
import re
import subprocess
import unittest

from swapping import SwapTest
from harness import BIN, MIB, Shell, SoftGpuTest, wait_for

CHUNK = 64 * MIB


class Pinned(SwapTest):
    SPEC = "1x1GiB,context=16MiB"

    def setUp(self):
        super().setUp()
        self.start()
        self.create("v", memory_max="2G")

    def process(self):
        process, = self.json("ps")["processes"]  # measures
        self.assertEqual(sum(process["memory_pinned_by"].values()), process["memory_pinned_bytes"])
        return process

    def reasons(self):
        """The reasons that there are, and their bytes."""
        return {reason: count for reason, count in self.process()["memory_pinned_by"].items() if count}

    def metric(self, reason):
        found = re.search(rf'^tessera_process_memory_pinned_bytes{{.*reason="{reason}"}} (\S+)$', self.metrics(), re.MULTILINE)
        return float(found[1])

    def test_each_reason_is_told(self):
        shell = self.shell_with_context("v")
        expected = {"context": self.CONTEXT_BYTES}
        self.assertEqual(self.reasons(), expected)

        def grows(reason, count):
            expected[reason] = expected.get(reason, 0) + count
            self.assertEqual(self.reasons(), expected)

        shell.ok("allocate", "alloc", 2 * CHUNK)  # moves
        self.assertEqual(self.reasons(), expected)
        shell.ok("allocate", "alloc", MIB)
        grows("small", 2 * MIB)
        exported = shell.ok("allocate", "alloc", CHUNK)["id"]
        shell.ok("ipc_get", exported, 0)
        grows("exported", CHUNK)
        registered = shell.ok("allocate", "alloc", CHUNK)["id"]
        shell.ok("sync_memops", registered, 1)
        grows("registered", CHUNK)
        shell.ok("allocate", "mapped", 4 * MIB)  # moves
        self.assertEqual(self.reasons(), expected)
        shell.ok("allocate", "physical", 4 * MIB)  # has nothing to move yet
        grows("vmm", 4 * MIB)
        shared = shell.ok("allocate", "shared", 6 * MIB)["id"]
        grows("exported", 6 * MIB)
        shell.ok("allocate", "managed", 8 * MIB)
        grows("managed", 8 * MIB)
        shell.ok("allocate", "array", 2 * MIB)
        grows("array", 2 * MIB)
        self.assertEqual(self.metric("vmm"), 4 * MIB)
        self.assertEqual(self.metric("pool"), 0)
        self.assertRegex(self.tessera("vgpu", "show", "v").stdout, r"\nmemory pinned     .*: exported 70 MiB, ")
        for piece in (shared, exported, registered):
            shell.ok("free", piece)
        for reason in ("exported", "registered"):
            del expected[reason]
        wait_for("what was shared to go", lambda: self.reasons() == expected)

    def test_memory_of_graphs_is_told_from_what_else_the_driver_keeps(self):
        shell = Shell(self.run_in("v", BIN / "driver_shell", stdin=subprocess.PIPE, env={"TESSERA_SWAP": "0"}))
        shell.ok("init")
        shell.ok("context")
        shell.ok("graph_memory", 20 * MIB)
        wait_for("the graph's memory to be told", lambda: self.reasons().get("graph") == 20 * MIB)
        self.assertNotIn("driver", self.reasons())

    def test_a_program_that_is_not_to_be_moved(self):
        shell = Shell(self.run_in("v", BIN / "driver_shell", stdin=subprocess.PIPE, env={"TESSERA_SWAP": "0"}))
        shell.ok("init")
        shell.ok("context")
        shell.ok("allocate", "alloc", 100 * MIB)
        self.assertEqual(self.reasons(), {"context": self.CONTEXT_BYTES, "unpaged": 100 * MIB})


class NotSwapped(SoftGpuTest):
    SPEC = "1x512MiB,context=16MiB"

    def test_where_memory_is_not_swapped_there_are_reasons_too(self):
        self.start_daemon(config='[swap]\nsize = "0"')
        self.create("v")
        shell = self.shell_with_context("v")
        shell.ok("allocate", "alloc", 100 * MIB)
        process, = self.json("ps")["processes"]
        self.assertEqual({reason: count for reason, count in process["memory_pinned_by"].items() if count},
                         {"context": 16 * MIB, "unpaged": 100 * MIB})
        self.assertEqual(process["memory_pinned_bytes"], 116 * MIB)


if __name__ == "__main__":
    unittest.main()

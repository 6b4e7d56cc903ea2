"""A program that works on memory in host memory for long is told of."""
import unittest

from swapping import SwapTest
from harness import MIB, wait_for


class HostWork(SwapTest):
    PIECE = 64 * MIB  # a chunk
    PIECES = 6  # of which two or three have place beside the context

    def setUp(self):
        super().setUp()
        self.config = self.config.replace("[swap]\n", "[swap]\non_host_s = 0.2\n")
        self.start()
        self.create("v", memory_limit="200M", memory_max="1G")
        self.shell = self.shell_with_context("v")
        self.ids = [self.shell.ok("allocate", "alloc", self.PIECE)["id"] for _ in range(self.PIECES)]

    def told(self):
        return [event["type"] for event in self.json("events")["events"] if event["type"] in ("memory.on_host", "memory.back")]

    def works_until(self, what, use, condition):
        def looks():
            for _ in range(10):
                use()
            return condition()

        wait_for(what, looks)

    def goes_round(self):
        """Uses all of its memory equally, so that nothing is exchanged."""
        for n in self.ids:
            self.shell.ok("set", n, 7)
        self.shell.ok("sync")

    def process(self):
        (process,) = self.managed()
        return process

    def test_it_is_told_once_and_when_it_is_over(self):
        self.works_until("the event", self.goes_round, self.told)
        self.assertEqual(self.told(), ["memory.on_host"])
        event, = (each for each in self.json("events")["events"] if each["type"] == "memory.on_host")
        self.assertEqual((event["vgpu"], event["pid"], event["gpu"]), ("v", self.shell.pid, 0))
        self.assertRegex(event["text"], r"^driver_shell has worked for \d+ s .* of the 384 MiB that it uses lay in host memory; ")
        process = self.process()
        self.assertGreaterEqual(process["memory_used_on_host_bytes"], 3 * self.PIECE)
        self.assertGreaterEqual(process["memory_on_host_us"], 200_000)
        self.assertGreaterEqual(process["memory_on_host_told_us"], 200_000)
        self.assertIn(f"  {self.shell.pid} (driver_shell): ", self.tessera("ps").stdout)
        self.assertRegex(self.metrics(), r'tessera_process_memory_on_host_seconds_total\{.*\} (0\.[2-9]|[1-9])')
        self.change("v", memory_limit="500M")
        self.works_until("the end of it", self.goes_round, lambda: "memory.back" in self.told())
        self.assertEqual(self.told(), ["memory.on_host", "memory.back"])
        self.assertIsNone(self.process()["memory_on_host_told_us"])
        self.assertNotIn("host memory", self.tessera("ps").stdout)

    def test_a_kernel_that_names_no_memory_may_use_all_of_it(self):
        def launches():
            self.shell.ok("launch", 20)
            self.shell.ok("sync")

        self.works_until("the event", launches, self.told)


if __name__ == "__main__":
    unittest.main()

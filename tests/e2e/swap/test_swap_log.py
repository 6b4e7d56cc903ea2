"""The daemon's log of moves, and how the harness for real GPUs reads it."""
import os
import pathlib
import sys
import threading
import time
import unittest

from swapping import SwapTest
from harness import wait_for

sys.dont_write_bytecode = True
# Not as a package: both folders have one that is called harness.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hw" / "harness"))
import sampler  # noqa: E402
import timeline  # noqa: E402

LOG = """
tesserad: debug: memory at 100.000200: vGPU a waits 0
tesserad: debug: memory at 100.000300: process 1 stops 0 0
tesserad: debug: memory at 100.001000: process 1 orders-out 2000 0
tesserad: debug: memory at 100.100000: process 1 moved 1000 0
tesserad: debug: memory at 100.110000: process 2 orders-in 0 1000
tesserad: debug: memory at 100.301000: process 1 moved 1000 0
tesserad: debug: memory at 100.301000: process 1 evicted 0 0
tesserad: debug: memory at 100.310000: process 2 moved 0 1000
tesserad: debug: memory at 100.310000: process 2 loaded 0 0
tesserad: debug: memory at 100.320000: process 2 runs 0 0
tesserad: debug: vGPU a removed
tesserad: debug: memory at 101.000000: process 1 moved 0 500
""".splitlines()


class Timeline(unittest.TestCase):
    def test_a_hand_over_by_its_log(self):
        over = timeline.HandOver(timeline.parse(LOG), 1, 2, 100.0, 100.35)
        self.assertAlmostEqual(over.seconds, 0.35)
        self.assertEqual((over.out.bytes, over.into.bytes), (2000, 1000))
        self.assertAlmostEqual(over.out.rate, 2000 / 0.3)
        self.assertAlmostEqual(over.into.rate, 1000 / 0.2)
        self.assertAlmostEqual(over.both_rate(), 3000 / 0.309)
        pause, at = over.out.longest_pause()
        self.assertAlmostEqual(pause, 0.201)
        self.assertAlmostEqual(at, 100.1)
        self.assertEqual([name for name, _ in over.moments()],
                         ["daemon's first step", "loser stops", "out ordered", "first bytes out", "in ordered",
                          "last bytes out", "out ended", "first bytes in", "last bytes in", "in ended", "winner runs",
                          "first kernel done"])
        rates = over.out.rates(100.0, 100.35)
        self.assertEqual([round(rate * 0.035) for rate in rates], [0, 0, 1000, 0, 0, 0, 0, 0, 1000, 0])
        self.assertEqual(len(over.describe()), 3)

    def test_nothing_moved(self):
        over = timeline.HandOver([], 1, 2, 5.0, 5.5)
        self.assertFalse(over.out or over.into)
        self.assertEqual([line.startswith("nothing moved") for line in over.describe()], [False, True, True])


class Sampler(unittest.TestCase):
    def test_names_what_a_thread_is_inside_of(self):
        for syscall, name in (("running\n", "runs"), ("7 0x7ffd 0x1 0xffff 0x0 0x0 0x0 0x7ffd 0x7fab\n", "poll"),
                              ("16 0x1a 0xc020462a 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7fab\n", "ioctl F 2a"),
                              ("16 0x05 0x21 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7fab\n", "ioctl uvm 33"),
                              ("35 0x0\n", "call 35"), ("-1 0x7ffd 0x7fab\n", "call -1")):
            self.assertEqual(sampler.name_of(syscall), name)

    def test_looks_at_threads_that_are_there(self):
        ended = threading.Event()
        waiter = threading.Thread(target=ended.wait)
        waiter.start()
        with sampler.Sampler({"waiter": (os.getpid(), waiter.native_id)}) as taken:
            wait_for("some looks", lambda: sum(taken.seen["waiter"].values()) > 3)
        ended.set()
        waiter.join()
        self.assertEqual(len(taken.describe()), 1)
        self.assertTrue(taken.describe()[0].startswith("waiter: "))
        self.assertIn(os.getpid(), sampler.threads(os.getpid(), ""))


class Log(SwapTest):
    def test_tells_each_step_of_a_hand_over(self):
        self.start()
        first, second = self.shells()
        mine = first.filled(self.PIECE, 11)
        theirs = second.filled(self.PIECE, 22)
        rows = {row["vgpu"]: row["pid"] for row in self.api("GET", "/v1/processes")[2]["processes"]}
        begin = time.monotonic()
        self.assertEqual(first.ok("compare", mine, 11)["wrong"], 0)
        end = time.monotonic()

        def over():
            return timeline.HandOver(timeline.parse(self.daemon_log().splitlines()), rows["v1"], rows["v0"], begin, end)

        wait_for("the steps to be in the log", lambda: len(over().moments()) >= 10)
        for move in (over().out, over().into):
            self.assertGreater(move.bytes, 0)
            self.assertTrue(move.ends)


if __name__ == "__main__":
    unittest.main()

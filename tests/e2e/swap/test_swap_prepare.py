"""Host memory that is prepared ahead of the first move, and given back where the machine needs it."""
import os
import pathlib
import signal
import unittest

from swapping import SwapTest
from harness import GIB, MIB, wait_for

CHUNK = 64 * MIB


class Prepared(SwapTest):
    # 300 MiB are far less than half of it: nothing is needed before something moves.
    SPEC = "1x2GiB,context=16MiB,pcie=4GB/s,speed=400M"
    FLOOR = "64M"

    def swap(self):
        return self.api("GET", "/v1/gpus")[2]["gpus"][0]["swap"]

    def holds(self, bytes_):
        """Waits until the pool has exactly that."""
        return wait_for(f"a pool of {bytes_ // MIB} MiB", lambda: self.swap()["pool_bytes"] == bytes_ and self.swap())

    def logged(self, what):
        return self.daemon_log().count(what)


class Preparation(Prepared):
    def test_the_first_move_makes_no_memory(self):
        self.start()
        (shell,) = self.shells(1)
        piece = shell.filled(self.PIECE, 11)
        swap = self.holds(5 * CHUNK)
        self.assertEqual((swap["pool_used_bytes"], swap["pool_goal_bytes"]), (0, 5 * CHUNK))
        self.assertIn("0 B of at most 2 GiB in use, 320 MiB prepared; ", self.tessera("gpus").stdout)
        shell.ok("sync")
        self.tessera("evict", shell.pid)
        swap = self.swap()
        self.assertEqual((swap["pool_bytes"], swap["pool_used_bytes"]), (5 * CHUNK, 5 * CHUNK))
        self.assertEqual(shell.ok("compare", piece, 11)["wrong"], 0)

    def test_a_machine_without_memory_is_left_alone_and_that_is_said_once(self):
        self.config = self.config.replace("64M", "100T")
        self.start()
        first, second = self.shells()
        for shell in (first, second):
            shell.ok("allocate", "alloc", self.PIECE)
        wait_for("it to be said", lambda: self.logged("0 B of host memory are prepared"))
        first.ok("allocate", "alloc", self.PIECE)
        second.ok("free_all")
        second.end()
        wait_for("the other one alone", lambda: len(self.managed()) == 1)
        self.assertEqual((self.swap()["pool_bytes"], self.swap()["pool_goal_bytes"]), (0, 0))
        self.assertEqual(self.logged("of host memory are prepared"), 1)


class FixedSize(Prepared):
    def setUp(self):
        super().setUp()
        self.config = '[swap]\nsize = "2G"\nfloor = "64M"\nprepare = "512M"\n'

    def test_movers_and_daemons_that_die_at_it(self):
        """Nobody has anything in the pool: what a mover has made is its successor's, and is free without a daemon."""
        self.env["TESSERA_FAULT"] = "mover.pool.grown:3"
        self.start()
        self.holds(8 * CHUNK)
        self.assertEqual(self.logged("the mover ended; another one is started"), 1)
        self.assertEqual(self.swap()["pool_goal_bytes"], 8 * CHUNK)
        del self.env["TESSERA_FAULT"]
        self.stop_daemon()
        self.start()
        wait_for("the first slots", lambda: self.swap()["pool_bytes"] > 0)
        mover = pathlib.Path(f"/proc/{self.swap()['mover_pid']}")
        self.stop_daemon(signal.SIGKILL)
        wait_for("the mover to end", lambda: not mover.exists())
        self.start()
        self.holds(8 * CHUNK)


@unittest.skipUnless(os.getuid() == 0, "only root can make up /proc")
class Pressure(Prepared):
    """The daemon sees files of the test in place of /proc/meminfo and /proc/pressure/memory."""

    def setUp(self):
        super().setUp()
        self.meminfo, self.pressure = self.run_dir / "meminfo", self.run_dir / "pressure"
        self.free(20 * GIB)
        self.presses(0)

    def free(self, bytes_):
        self.write(self.meminfo, f"MemTotal: {32 * GIB // 1024} kB\nMemAvailable: {bytes_ // 1024} kB\n")

    def presses(self, percent):
        self.write(self.pressure, f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")

    def write(self, path, text):
        """In place, and with one write: it is read all the time."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, text.ljust(200).encode(), 0)
        os.close(fd)

    def start_daemon(self, *flags, **options):
        script = self.run_dir / "with-files"
        script.write_text("#!/bin/sh -e\nmount --make-rprivate /\n"
                          f"mount --bind {self.meminfo} /proc/meminfo\n"
                          f"mount --bind {self.pressure} /proc/pressure/memory\n"
                          'exec "$@"\n')
        script.chmod(0o755)
        spawn = self.spawn
        self.spawn = lambda *command, **more: spawn("unshare", "-m", script, *command, **more)
        try:
            return super().start_daemon(*flags, **options)
        finally:
            self.spawn = spawn

    def given_back(self, need):
        """What was prepared, when the machine needs it. What a move needs is made all the same."""
        self.start()
        (shell,) = self.shells(1)
        piece = shell.filled(self.PIECE, 11)
        self.holds(5 * CHUNK)
        need()
        self.holds(0)
        self.assertEqual(self.logged("of host memory are prepared"), 1)
        shell.ok("sync")
        self.tessera("evict", shell.pid)
        self.assertEqual(self.swap()["pool_used_bytes"], 5 * CHUNK)
        self.assertEqual(shell.ok("compare", piece, 11)["wrong"], 0)

    def test_under_pressure(self):
        self.given_back(lambda: self.presses(50))

    def test_where_little_is_free(self):
        self.given_back(lambda: self.free(GIB // 2))


del SwapTest, Prepared

if __name__ == "__main__":
    unittest.main()

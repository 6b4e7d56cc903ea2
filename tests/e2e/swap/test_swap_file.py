"""Memory that goes on from a full pool to a file: programs run with right results, and come back whoever dies."""
import os
import signal
import tempfile
import unittest

from swapping import SwapTest
from harness import MIB, OUT_OF_MEMORY, wait_for


class FileTest(SwapTest):
    SIZE = "192M"
    FILE_SIZE = "1G"

    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.config = (f'[swap]\nsize = "{self.SIZE}"\nfloor = "{self.FLOOR}"\nfile = "{self.folder}/swap"\n'
                       f'file_size = "{self.FILE_SIZE}"\n[turn]\nmin_ms = 20\nmax_ms = 300\n{self.MORE}')

    def swap(self):
        return self.api("GET", "/v1/gpus")[2]["gpus"][0]["swap"]

    def filled(self):
        """Three programs that together have more than GPU and pool, each with words of its own."""
        shells = self.shells(3)
        pieces = [shell.ok("allocate", "alloc", self.PIECE)["id"] for shell in shells]
        for n, (shell, piece) in enumerate(zip(shells, pieces)):
            shell.ok("set", piece, 100 + n)
        wait_for("something in the file", lambda: self.swap()["file_used_bytes"] > 0)
        return shells, pieces

    def compare(self, shells, pieces):
        for n, (shell, piece) in enumerate(zip(shells, pieces)):
            self.assertEqual(shell.ok("compare", piece, 100 + n)["wrong"], 0)

    def mover(self):
        return self.swap()["mover_pid"]


class Filed(FileTest):
    def test_programs_beyond_gpu_and_pool_have_right_words(self):
        self.start()
        shells, pieces = self.filled()
        for _ in range(2):
            self.compare(shells, pieces)
        swap = self.swap()
        self.assertEqual((swap["file_bytes"], swap["file_error"]), (1024 * MIB, None))
        self.assertRegex(self.tessera("gpus").stdout, r"of at most 192 MiB in use, .* of 1 GiB in the file")
        self.assertEqual(os.listdir(self.folder), [])  # it has no name
        for shell in shells:
            shell.ok("free_all")
            shell.end()
        wait_for("the file to be empty", lambda: self.swap()["file_used_bytes"] == 0)
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_no_program_may_have_more_than_can_be_out_while_it_runs(self):
        self.start()
        (shell,) = self.shells(1)
        ids = [shell.ok("allocate", "alloc", 64 * MIB)["id"] for _ in range(9)]  # GPU and pool
        for n in ids:
            shell.ok("set", n, n)
        self.assertEqual(shell.ask("allocate", "alloc", 128 * MIB)["result"], OUT_OF_MEMORY)
        for n in ids:
            self.assertEqual(shell.ok("compare", n, n)["wrong"], 0)

    def test_a_mover_that_is_killed_loses_nothing_of_the_file(self):
        self.start()
        shells, pieces = self.filled()
        before = self.mover()
        os.kill(before, signal.SIGKILL)
        wait_for("another mover", lambda: self.mover() not in (None, before))
        self.compare(shells, pieces)

    def test_a_daemon_that_is_killed_loses_nothing_of_the_file(self):
        self.start()
        shells, pieces = self.filled()
        self.stop_daemon(signal.SIGKILL)
        self.start()
        self.compare(shells, pieces)  # at once: what is there cannot be touched yet

    def test_a_program_that_is_killed_leaves_nothing_in_the_file(self):
        self.start()
        shells, _ = self.filled()
        for shell in shells:
            shell.child.kill()
            shell.child.wait()
        wait_for("the file to be empty", lambda: self.swap()["file_used_bytes"] == 0)

    def test_no_word_of_programs_that_churn_is_wrong(self):
        self.start()
        for churn in self.churns(3, 200):
            self.done(churn)


class FiledByGates(Filed):
    MORE = '[channels]\ncontrol = "off"\n'


class Wrong(FileTest):
    FILE_SIZE = "100000T"

    def test_a_file_that_does_not_fit_is_an_error_at_start(self):
        daemon = self.start_daemon(expect_ready=False, config=self.config)
        self.assertEqual(daemon.wait(timeout=20), 1)
        self.assertIn("does not fit on its disk", self.daemon_log())
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()

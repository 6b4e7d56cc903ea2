"""tessera suspend --to file: what a program had in host memory lies in a file, and comes back."""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import MIB, SoftGpuTest, wait_for  # noqa: E402


class SuspendToFile(SoftGpuTest):
    SPEC = "1x1GiB"
    SIZE = 256 * MIB
    WORD = 0x5EED

    def setUp(self):
        super().setUp()
        self.folder = self.run_dir / "away"
        self.config = f'[swap]\nsize = "1G"\nfloor = "64M"\nprepare = "0"\n[suspend]\ndir = "{self.folder}"\n'
        self.start_daemon(config=self.config)

    def process(self, pid):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == pid)
        return process

    def files(self):
        return sorted(self.folder.iterdir()) if self.folder.exists() else []

    def refused(self, *words):
        done = self.tessera(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def filled(self):
        """A program with memory of known content."""
        self.create("team")
        shell = self.shell_with_context("team")
        self.memory = shell.filled(self.SIZE, self.WORD)
        return shell

    def away(self):
        shell = self.filled()
        self.tessera("suspend", "team", "--to", "file")
        self.assertEqual(self.process(shell.pid)["suspended_to"], "file")
        return shell

    def expect_right(self, shell):
        self.assertIsNone(self.process(shell.pid)["suspension"])
        self.assertEqual(shell.ok("compare", self.memory, self.WORD)["wrong"], 0)
        shell.ok("launch", 1)
        self.assertEqual(self.files(), [])

    def test_host_memory_is_free_meanwhile(self):
        shell = self.filled()
        self.tessera("suspend", "team")
        self.assertEqual(self.process(shell.pid)["suspended_to"], "memory")
        self.assertEqual(self.files(), [])
        self.tessera("suspend", shell.pid, "--to", "file")  # what is in memory goes on to a file
        process = self.process(shell.pid)
        self.assertEqual((process["suspension"], process["suspended_to"]), ("suspended", "file"))
        self.assertEqual(process["memory_resident_bytes"], 0)
        wait_for("the pool is empty", lambda: self.json("gpus")["gpus"][0]["swap"]["pool_used_bytes"] == 0)
        file, = self.files()
        self.assertEqual((file.stat().st_mode & 0o777, self.folder.stat().st_mode & 0o777), (0o600, 0o700))
        self.assertGreaterEqual(file.stat().st_size, self.SIZE)
        for _ in range(2):
            self.tessera("suspend", "team", "--to", "file")  # it is so already
            self.tessera("resume", "team")
            self.expect_right(shell)
            self.tessera("suspend", "team", "--to", "file")
        self.tessera("resume", "team")
        self.expect_right(shell)

    def test_a_file_that_was_changed_harms_nothing(self):
        shell = self.away()
        file, = self.files()
        place = file.stat().st_size - 1000
        with open(file, "r+b") as opened:
            opened.seek(place)
            byte = opened.read(1)
            opened.seek(place)
            opened.write(bytes([byte[0] ^ 1]))
        self.assertIn("not as it was written", self.refused("resume", "team"))
        process = self.process(shell.pid)
        self.assertEqual((process["suspension"], process["suspended_to"]), ("suspended", "file"))
        self.create("other")
        neighbour = self.shell_with_context("other")
        self.assertEqual(neighbour.ok("compare", neighbour.filled(64 * MIB, 7), 7)["wrong"], 0)
        with open(file, "r+b") as opened:
            opened.seek(place)
            opened.write(byte)
        self.tessera("resume", "team")
        self.expect_right(shell)

    def test_a_folder_that_cannot_be_written_leaves_it_in_memory(self):
        self.folder.write_text("no folder")
        shell = self.filled()
        self.assertIn(str(self.folder), self.refused("suspend", "team", "--to", "file"))
        process = self.process(shell.pid)
        self.assertEqual((process["suspension"], process["suspended_to"]), ("suspended", "memory"))
        self.folder.unlink()
        self.tessera("suspend", "team", "--to", "file")
        self.tessera("resume", "team")
        self.expect_right(shell)

    @unittest.skipIf(os.geteuid() != 0, "only root can mount a small disk")
    def test_a_full_disk_leaves_it_in_memory(self):
        self.folder.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,mode=0700", "small", self.folder], check=True)
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        shell = self.filled()
        self.assertIn("No space left", self.refused("suspend", "team", "--to", "file"))
        self.assertEqual(self.process(shell.pid)["suspended_to"], "memory")
        self.assertEqual(self.files(), [])
        self.tessera("resume", "team")
        self.expect_right(shell)

    def test_the_mover_is_killed_meanwhile(self):
        shell = self.away()
        gpu, = self.json("gpus")["gpus"]
        os.kill(gpu["swap"]["mover_pid"], signal.SIGKILL)
        self.tessera("resume", "team")
        self.expect_right(shell)

    def another_daemon(self, how):
        self.stop_daemon(how)
        self.start_daemon(config=self.config)

    def managed(self):
        """The program has come to this daemon."""
        return any(each["managed"] for each in self.json("ps")["processes"])

    def await_suspended_in_a_file(self):
        def standing():
            programs = self.json("ps")["processes"]
            return programs and (programs[0]["suspension"], programs[0]["suspended_to"])
        wait_for("the program is in its file", lambda: standing() == ("suspended", "file"))

    def test_it_outlives_daemons(self):
        shell = self.away()
        for how in (signal.SIGTERM, signal.SIGKILL):
            self.another_daemon(how)
            self.await_suspended_in_a_file()
            self.assertEqual(len(self.files()), 1)
            self.assertEqual(self.json("gpus")["gpus"][0]["swap"]["pool_used_bytes"], 0)
        self.tessera("resume", "team")
        self.expect_right(shell)
        self.tessera("suspend", "team", "--to", "file")  # and again
        self.tessera("resume", "team")
        self.expect_right(shell)

    def test_the_daemon_is_killed_on_the_way_to_the_file_and_back(self):
        shell = self.filled()
        for way in ("suspend", "resume"):
            with self.subTest(way):
                self.api("POST", f"/v1/vgpus/team/{way}", {"to": "file"} if way == "suspend" else {})
                phases = ("files", "suspended") if way == "suspend" else ("reads", "returns", "restores", None)
                wait_for("a file", lambda: self.process(shell.pid)["suspension"] in phases)
                self.another_daemon(signal.SIGKILL)
                # What is in memory stays there. Who was on its way back goes on.
                end = "suspended" if way == "suspend" else None
                wait_for("an end", lambda: self.managed() and self.process(shell.pid)["suspension"] == end)
                if self.process(shell.pid)["suspended_to"] != "file":
                    wait_for("no file, nor a part of one", lambda: self.files() == [])
        self.assertEqual(shell.ok("compare", self.memory, self.WORD)["wrong"], 0)
        self.tessera("suspend", "team", "--to", "file")  # again, whatever was left of the file
        self.tessera("resume", "team")
        self.expect_right(shell)

    def test_the_file_goes_with_the_program(self):
        shell = self.away()
        shell.child.kill()
        shell.child.wait()
        wait_for("the file is gone", lambda: self.files() == [])


if __name__ == "__main__":
    unittest.main()

"""The soft GPU where /dev/shm is full or cannot be written: an error that says so, and no crash.

Each program gets a /dev/shm of its own in a mount namespace, so that the machine's is left alone; that needs root.
"""
import json
import os
import subprocess
import unittest

from harness import BIN, DEADLINE_S, SOFT, SUCCESS, TesseraTest


class SharedMemory(TesseraTest):
    KINDS = {"full": "size=64k", "read-only": "size=64m,ro"}

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("mounting another /dev/shm needs root")
        probe = self.under("size=64k", "true")
        if probe.returncode != 0:
            self.skipTest(f"no mount namespace can be had here: {probe.stderr.strip()}")

    def under(self, options, *command, env=None, stdin=None):
        script = f'mount --make-rprivate / && mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *map(str, command)], input=stdin,
                              env={**self.env, **(env or {})}, capture_output=True, text=True, timeout=DEADLINE_S)

    def test_the_daemon_says_why_it_does_not_start(self):
        for kind, options in self.KINDS.items():
            with self.subTest(kind):
                done = self.under(options, BIN / "tesserad", "--soft", "--run-dir", self.run_dir)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("/dev/shm", done.stderr)

    def test_tessera_run_says_it_too(self):
        for kind, options in self.KINDS.items():
            with self.subTest(kind):
                done = self.under(options, BIN / "tessera", "run", "--soft", "--", "true")
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertIn("/dev/shm", done.stderr)

    def test_a_program_gets_an_error_value(self):
        for kind, options in self.KINDS.items():
            with self.subTest(kind):
                done = self.under(options, BIN / "driver_shell", stdin="init\ncontext\n",
                                  env={"LD_LIBRARY_PATH": str(SOFT.parent)})
                self.assertEqual(done.returncode, 0, done.stderr)
                results = [json.loads(line)["result"] for line in done.stdout.splitlines()]
                self.assertEqual(len(results), 2)
                self.assertNotIn(SUCCESS, results)
                self.assertIn("/dev/shm", done.stderr)

    def test_doctor_knows(self):
        done = self.under(self.KINDS["full"], BIN / "tessera", "doctor", "--soft", "--json")
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, report["can_run"]), (1, False))
        failed = [check for check in report["checks"] if check["status"] == "fail"]
        self.assertIn("/dev/shm", failed[0]["detail"])
        self.assertTrue(failed[0]["advice"])

    def test_with_room_all_of_it_works(self):
        done = self.under("size=64m", BIN / "driver_shell", stdin="init\ncontext\n",
                          env={"LD_LIBRARY_PATH": str(SOFT.parent)})
        self.assertEqual([json.loads(line)["result"] for line in done.stdout.splitlines()], [SUCCESS, SUCCESS], done.stderr)


if __name__ == "__main__":
    unittest.main()

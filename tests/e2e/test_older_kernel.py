"""Daemon and programs with the system calls of Linux 5.4 (tests/programs/older_kernel.cc)."""
import os
import pathlib
import re
import signal
import unittest

from harness import BIN, TENANT, SoftGpuTest, Tenant, wait_for

OLDER_KERNEL = BIN / "older_kernel"


class OlderKernel(SoftGpuTest):
    def start_daemon(self):
        with open(self.run_dir / "daemon.log", "a") as log:
            self.daemon = self.spawn(OLDER_KERNEL, BIN / "tesserad", *self.DAEMON_FLAGS, "--run-dir", self.run_dir, stderr=log)
        wait_for("the daemon", lambda: self.daemon.poll() is not None or self.answers())
        self.assertIsNone(self.daemon.poll(), self.daemon_log())

    def run_older(self, *words, **options):
        return self.spawn(OLDER_KERNEL, BIN / "tessera", "run", *self.RUN_FLAGS, "--run-dir", self.run_dir, *words, **options)

    def watchdog(self):
        """The process that the daemon started to thaw programs after it."""
        for path in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                text = path.read_text()
            except OSError:
                continue  # it has ended
            if re.search(rf"^Name:\ttesserad-wdog$.*^PPid:\t{self.daemon.pid}$", text, re.MULTILINE | re.DOTALL):
                return int(path.parent.name)
        return None

    def test_programs_run_and_are_frozen(self):
        self.start_daemon()
        tenant = Tenant(self.run_older("--name", "one", "--memory", "1G", "--", TENANT, "--report-every", "10"))
        tenant.until("ready")
        tenant.makes_progress()
        self.tessera("freeze", "one")
        wait_for("the freeze", lambda: self.managed()[0]["frozen"])
        self.tessera("thaw", "one")
        tenant.makes_progress()
        self.assertGreater(tenant.finish(), 0)

    def test_the_watchdog_keeps_nothing_of_the_daemons_open(self):
        self.start_daemon()
        watchdog = wait_for("the watchdog", self.watchdog)
        wait_for("it to close what is not its own", lambda: len(os.listdir(f"/proc/{watchdog}/fd")) <= 6)
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()  # nobody holds the sockets of the first

    def test_what_the_kernel_gate_lacks_is_said(self):
        self.start_daemon()
        refused = self.run_older("--enforce", "kernel", "--", "true")
        _, said = refused.communicate()
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("use Linux 5.7 or later, or --enforce shim", said)


if __name__ == "__main__":
    unittest.main()

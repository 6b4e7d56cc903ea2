"""The daemon dies while programs run: they go on, and the next one knows what they hold."""
import signal
import socket
import struct
import unittest

from harness import DEADLINE_S, MIB, OUT_OF_MEMORY, SUCCESS, SoftGpuTest, wait_for


class Loss(SoftGpuTest):
    SPEC = "1x4GiB,speed=4M"

    def settled(self):
        """The bytes that the vGPUs a and b hold once the daemon has also asked the device."""
        return self.settled_of("a"), self.settled_of("b")

    def settled_of(self, vgpu):
        self.api("GET", "/v1/processes")
        return self.current(vgpu)

    def test_programs_go_on_and_the_next_daemon_knows_all(self):
        self.start_daemon()
        self.create("a", memory_limit="512M", compute_limit=60)
        self.create("b", memory_limit="256M")
        tenants = [self.tenant_in("a", "--kernel-us", "500", "--memory", "64M"), self.tenant_in("b", "--kernel-us", "500")]
        holder = self.shell_with_context("b")
        piece = holder.ok("allocate", "alloc", 32 * MIB)
        for tenant in tenants:
            tenant.until("ready")
            tenant.makes_progress()
        before = self.settled()
        self.stop_daemon(signal.SIGKILL)
        holder.ok("free", piece["id"])
        holder.ok("allocate", "alloc", 48 * MIB)
        self.start_daemon()
        wait_for("the programs to be back", lambda: len(self.managed()) == 3)
        # A small allocation takes a page of the device; that shows when a process holds no credit beside it.
        for now, then in zip(self.settled(), (before[0], before[1] + 16 * MIB)):
            self.assertTrue(0 <= now - then < 2 * MIB, (now, then))
        for tenant in tenants:
            tenant.makes_progress(20)
            tenant.finish()
        self.assertEqual(holder.ask("fill", "alloc", 2 * MIB)["result"], OUT_OF_MEMORY)
        self.assertTrue(254 * MIB < self.current("b") <= 256 * MIB)
        holder.end()
        wait_for("everything to be given back", lambda: self.settled() == (0, 0))

    def test_memory_that_is_freed_without_a_daemon_can_be_taken_again(self):
        self.start_daemon()
        self.create("a", memory_limit="512M")
        shell = self.shell_with_context("a")
        piece = shell.ok("allocate", "alloc", 440 * MIB)
        self.stop_daemon(signal.SIGKILL)
        for _ in range(3):
            self.assertEqual(shell.ask("allocate", "alloc", 440 * MIB)["result"], OUT_OF_MEMORY)
            shell.ok("free", piece["id"])
            piece = shell.ok("allocate", "alloc", 440 * MIB)
        self.start_daemon()
        wait_for("the program to be back", lambda: self.current("a") == 504 * MIB)

    def test_a_program_starts_under_the_next_daemon(self):
        self.start_daemon()
        self.create("a")
        shell = self.shell_in("a")
        shell.ok("init")
        self.stop_daemon(signal.SIGKILL)
        self.assertNotEqual(shell.ask("context")["result"], SUCCESS)  # nobody is there now
        self.start_daemon()
        shell.ok("context")
        self.assertEqual(self.current("a"), self.CONTEXT_BYTES)
        shell.ok("launch", 3)
        self.assertEqual(shell.ok("count")["count"], 3)
        shell.end()

    def test_a_daemon_that_has_forgotten_the_vgpu_is_complained_of_once(self):
        self.start_daemon()
        self.create("a")
        tenant = self.tenant_in("a", "--kernel-us", "500")
        tenant.until("ready")
        self.stop_daemon(signal.SIGKILL)
        (self.run_dir / "vgpus.json").unlink()
        self.start_daemon("--log-level", "debug")
        attempts = lambda: self.daemon_log().count(f"process {tenant.pid} ")
        wait_for("a few attempts to come back", lambda: attempts() >= 3)
        tenant.makes_progress()
        tenant.finish()
        self.assertEqual(tenant.child.stderr.read().count("there is no vGPU a"), 1)

    def test_a_program_that_has_cleared_its_environment_comes_back(self):
        self.start_daemon()
        self.create("a")
        shell = self.shell_with_context("a")
        shell.ok("forget_environment")
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        wait_for("the program to be back", self.managed)
        shell.ok("launch", 3)
        self.assertEqual(shell.ok("count")["count"], 3)
        shell.end()

    def test_a_daemon_of_another_version_is_complained_of_once(self):
        self.start_daemon()
        self.create("a")
        shell = self.shell_with_context("a")
        self.stop_daemon(signal.SIGKILL)
        path = self.run_dir / "client.sock"
        path.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as newer:
            newer.bind(str(path))
            newer.listen()
            newer.settimeout(DEADLINE_S)
            for _ in range(4):
                connection = newer.accept()[0]
                header = bytearray(connection.recv(4096)[:16])
                struct.pack_into("<H", header, 4, 999)
                connection.send(header)
                connection.recv(4096)  # until the program has gone away again
                connection.close()
        shell.end()
        self.assertEqual(shell.child.stderr.read().count("speaks protocol 999"), 1)

    def test_a_daemon_that_hangs_holds_up_nobody_who_only_tells_it_something(self):
        self.start_daemon()
        self.create("a", memory_limit="3G")
        shell = self.shell_with_context("a")
        self.assertGreater(shell.ask("fill", "alloc", 2 * MIB)["pieces"], 1000)
        self.daemon.send_signal(signal.SIGSTOP)
        self.assertEqual(shell.ask("free_all")["result"], SUCCESS)
        self.daemon.send_signal(signal.SIGCONT)
        wait_for("the program to be back", lambda: self.settled_of("a") == self.CONTEXT_BYTES)
        shell.end()

    def test_programs_of_a_daemon_that_stays_away_go_on(self):
        self.start_daemon(config='client.grace_s = 0.3\nclient.on_daemon_loss = "continue"\n')
        self.create("a", compute_limit=5)
        tenant = self.tenant_in("a", "--kernel-us", "500")
        tenant.until("ready")
        self.stop_daemon(signal.SIGKILL)
        told = wait_for("the program to say so", lambda: tenant.child.stderr.readline())
        self.assertIn("daemon", told)
        tenant.makes_progress(50)
        tenant.finish()

    def test_programs_of_a_daemon_that_stays_away_block_if_told_to(self):
        self.start_daemon(config='client.grace_s = 0.3\nclient.on_daemon_loss = "block"\n')
        self.create("a")
        shell = self.shell_with_context("a")
        shell.ok("launch", 1)
        self.stop_daemon(signal.SIGKILL)

        def blocked():
            shell.send("launch", 1)
            try:
                self.assertEqual(shell.answer(deadline_s=2)["result"], SUCCESS)
            except TimeoutError:
                return True

        wait_for("a launch to block", blocked, deadline_s=20)
        self.start_daemon(config='client.grace_s = 0.3\nclient.on_daemon_loss = "block"\n')
        self.assertEqual(shell.answer()["result"], SUCCESS)
        shell.end()


if __name__ == "__main__":
    unittest.main()

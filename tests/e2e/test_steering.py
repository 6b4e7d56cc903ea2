"""Channels that are steered: freezing, priority, and what is left of it when the daemon dies or hangs. On the soft GPU."""
import os
import signal
import socket
import struct
import subprocess
import unittest

from gpu_account import GpuAccount
from harness import BIN, SOFT, SUCCESS, TENANT, Shell, SoftGpuTest, Tenant, wait_for
from test_daemon import ATTACH, WELCOME, hello, kind_of, message

GATE = "[channels]\ncontrol = 'off'\n"
WITNESSED_S = 0.2  # of GPU time: a hundred slices of the soft GPU
FAULT_SPINS = 400_000  # over two seconds: a marker waits behind it, and others are seen to stand still


class SteeringTest(SoftGpuTest):
    SPEC = "2x1GiB,speed=4M"  # the second is the witness's
    CONFIG = None

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)
        self.account = GpuAccount(self)
        self.witness = None

    def create(self, name, **fields):
        return super().create(name, gpu=0, **fields)

    def busy(self, vgpu, kernel_us=500):
        tenant = self.tenant_in(vgpu, "--kernel-us", kernel_us, "--report-every", "10")
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def stands_still(self, pid):
        """Whether one GPU executes nothing of it while another executes a good deal of a program that nobody manages."""
        if not self.witness:
            env = {"LD_LIBRARY_PATH": SOFT.parent, "CUDA_VISIBLE_DEVICES": "1"}
            self.witness = Tenant(self.spawn(TENANT, "--kernel-us", "500", "--report-every", "10", env=env))
            self.witness.until("ready")
        before = self.account.busy_of(pid)
        self.account.used([self.witness.pid], WITNESSED_S)
        return self.account.busy_of(pid) == before

    def runs(self, pid):
        before = self.account.busy_of(pid)
        wait_for(f"process {pid} to run", lambda: self.account.busy_of(pid) > before)

    def stops(self, pid):
        wait_for(f"process {pid} to stand still", lambda: self.stands_still(pid))

    def process(self, pid):
        return next((p for p in self.json("ps")["processes"] if p["pid"] == pid), None)

    def finish(self, *tenants):
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)


class Freeze(SteeringTest):
    BY = "channels"

    def test_who_enforces_is_shown(self):
        control = self.json("gpus")["gpus"][0]["control"]
        self.assertEqual(control["by"], self.BY, control)

    def test_a_frozen_process_stands_still_and_then_goes_on(self):
        self.create("a")
        tenant = self.busy("a")
        self.tessera("freeze", tenant.pid)
        self.stops(tenant.pid)
        self.assertEqual(self.process(tenant.pid)["frozen"], ["operator"])
        self.tessera("freeze", tenant.pid)  # once more changes nothing
        self.tessera("thaw", tenant.pid)
        self.runs(tenant.pid)
        self.assertEqual(self.process(tenant.pid)["frozen"], [])
        self.finish(tenant)

    def test_a_frozen_vgpu_stops_who_comes_later_too(self):
        self.create("a")
        first = self.busy("a")
        self.tessera("freeze", "a")
        second = self.tenant_in("a", "--kernel-us", "500", "--report-every", "10")
        wait_for("the second to be there", lambda: self.process(second.pid))
        self.stops(first.pid)
        self.assertTrue(self.stands_still(second.pid))
        self.assertEqual(self.vgpu("a")["frozen"], ["operator"])
        self.tessera("thaw", "a")
        second.until("ready")
        second.makes_progress()
        first.makes_progress(20)
        self.finish(first, second)

    def test_others_get_the_time_of_a_frozen_one(self):
        self.create("a")
        self.create("b")
        first, second = self.busy("a"), self.busy("b")
        self.tessera("freeze", "a")
        self.stops(first.pid)
        # As fast as one that is alone on its GPU; with half of the time or less it would fall behind at once.
        self.assertTrue(self.stands_still(first.pid))
        second_ns, witness_ns = self.account.used([second.pid, self.witness.pid], 1)
        self.assertGreater(second_ns / witness_ns, 0.7)
        self.tessera("thaw", "a")
        first.makes_progress(20)
        self.finish(first, second)

    def test_one_that_dies_frozen_leaves_nothing(self):
        self.create("a")
        tenant = self.busy("a")
        self.tessera("freeze", tenant.pid)
        tenant.child.kill()
        wait_for("its memory to come back", lambda: self.current("a") == 0)
        again = self.busy("a")
        self.finish(again)

    def test_an_operators_freeze_outlives_the_daemon(self):
        self.create("a")
        self.create("b")
        process, group = self.busy("a"), self.busy("b")
        self.tessera("freeze", process.pid)
        self.tessera("freeze", "b")
        self.stops(process.pid)
        self.stops(group.pid)
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon(*(("--config", self.run_dir / "config.toml") if self.CONFIG else ()))
        wait_for("both to be back", lambda: self.process(process.pid) and self.process(group.pid))
        self.assertTrue(self.stands_still(process.pid))
        self.assertTrue(self.stands_still(group.pid))
        self.assertEqual(self.process(process.pid)["frozen"], ["operator"])
        self.tessera("thaw", process.pid, "b")
        self.runs(process.pid)
        self.runs(group.pid)
        self.finish(process, group)

    def test_who_is_not_there_cannot_be_frozen(self):
        for name in ("nobody", os.getpid()):
            done = self.tessera("freeze", name, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(name), done.stderr)


class Claims(SteeringTest):
    """A client that says that it has work, and never makes a channel: three packets."""

    ATTACHED, WANTS = 67, 6

    def claim_work(self, vgpu):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(client.close)
        client.settimeout(60)
        client.connect(str(self.run_dir / "client.sock"))
        client.send(hello(vgpu))
        self.assertEqual(kind_of(client.recv(8192)), WELCOME)
        gpu = bytes.fromhex(self.json("gpus")["gpus"][0]["uuid"].removeprefix("GPU-").replace("-", ""))
        client.send(message(ATTACH, struct.pack("<16sQQQIIII64s", gpu, 0, 0, 0, 0, 0, 0, 0, b"")))
        packet, fds, _, _ = socket.recv_fds(client, 8192, 4)
        for fd in fds:
            os.close(fd)
        self.assertEqual(kind_of(packet), self.ATTACHED)
        client.send(message(self.WANTS, struct.pack("<II", 0, 0)))
        wait_for("the claim to be heard", lambda: self.process(os.getpid())["state"] == "active")

    def test_a_claim_of_work_takes_nobodys_channels(self):
        self.create("low", compute_priority=12)
        self.create("high", compute_priority=2)
        tenant = self.busy("low")
        self.claim_work("high")
        for _ in range(3):  # each asks the device who worked
            self.assertEqual(self.process(tenant.pid)["frozen"], [])
        self.runs(tenant.pid)
        self.assertEqual(self.json("gpus")["gpus"][0]["control"]["by"], "channels")
        self.finish(tenant)


class CaptureByGates(SteeringTest):
    CONFIG = GATE

    def test_a_capture_ends_with_its_stream(self):
        self.create("a")
        self.create("b")
        shell, tenant = self.shell_with_context("a"), self.busy("b")
        shell.ok("drop_capture")
        shell.send("launch", 3000)
        self.assertEqual(shell.answer(deadline_s=6)["result"], SUCCESS)
        shell.end()
        self.finish(tenant)


class Channels(SteeringTest):
    """The shim's report of its process's channels."""

    def channels(self, shell):
        return self.process(shell.pid)["channels"]

    def test_they_come_and_go(self):
        self.create("a")
        shell = self.shell_with_context("a")
        shell.ok("make-channels", 5)
        wait_for("the channels", lambda: self.channels(shell) == 5)
        shell.ok("free-object", 0)
        wait_for("one to be gone", lambda: self.channels(shell) == 4)
        shell.ok("free-object", "group")
        wait_for("all to be gone", lambda: self.channels(shell) == 0)
        shell.end()

    def test_a_new_daemon_is_told(self):
        self.create("a")
        shell = self.shell_with_context("a")
        shell.ok("make-channels", 5)
        wait_for("the channels", lambda: self.channels(shell) == 5)
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        wait_for("the program to be back", lambda: self.process(shell.pid))
        wait_for("the channels", lambda: self.channels(shell) == 5)
        shell.end()


class FreezeByGates(Freeze):
    CONFIG = GATE
    BY = "gate"


class Priority(SteeringTest):
    def setUp(self):
        super().setUp()
        self.create("low", compute_priority=12)
        self.create("high", compute_priority=2)

    def test_the_lower_class_waits_and_then_goes_on(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.assertEqual(self.process(low.pid)["frozen"], ["policy"])
        self.assertEqual(self.vgpu("low")["state"], "waiting")
        self.finish(high)
        self.runs(low.pid)
        self.finish(low)

    def test_a_lower_one_that_comes_later_waits_at_its_gate(self):
        high = self.busy("high")
        low = self.tenant_in("low", "--kernel-us", "500", "--report-every", "10")
        wait_for("it to wait", lambda: self.vgpu("low")["state"] == "waiting")
        self.assertTrue(self.stands_still(low.pid))
        self.finish(high)
        low.until("ready")
        low.makes_progress()
        self.finish(low)

    def test_classes_change_while_programs_run(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.change("low", compute_priority=1)
        self.runs(low.pid)
        self.stops(high.pid)
        self.change("high", compute_priority=1)
        self.runs(high.pid)
        self.finish(low, high)

    def test_a_thaw_by_an_operator_does_not_undo_the_policy(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.tessera("freeze", low.pid)
        self.tessera("thaw", low.pid)
        self.assertTrue(self.stands_still(low.pid))
        self.tessera("freeze", low.pid)
        self.finish(high)
        self.assertTrue(self.stands_still(low.pid))  # and the policy's end not the operator's freeze
        self.tessera("thaw", low.pid)
        self.runs(low.pid)
        self.finish(low)

    def test_nobody_stays_frozen_when_the_daemon_is_killed(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.stop_daemon(signal.SIGKILL)
        self.runs(low.pid)
        self.start_daemon()
        self.stops(low.pid)  # a new daemon knows it all again
        self.finish(high)
        self.runs(low.pid)
        self.finish(low)

    def test_a_daemon_that_ends_lets_everybody_go(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.stop_daemon()
        self.runs(low.pid)
        high.child.kill()
        low.child.kill()

    def test_nobody_stays_frozen_when_the_daemon_hangs(self):
        low, high = self.busy("low"), self.busy("high")
        self.stops(low.pid)
        self.daemon.send_signal(signal.SIGSTOP)
        self.runs(low.pid)
        self.daemon.send_signal(signal.SIGCONT)
        self.stops(low.pid)
        self.finish(high)
        self.runs(low.pid)
        self.finish(low)


    def test_work_on_a_destroyed_stream_counts(self):
        low, shell = self.busy("low"), self.shell_with_context("high")
        shell.ok("drop_stream", 1, 300_000)  # some seconds
        self.runs(shell.pid)
        self.assertTrue(self.stands_still(low.pid))
        shell.ok("sync")
        self.runs(low.pid)
        shell.end()
        self.finish(low)

    def test_one_whose_context_failed_keeps_nobody_off(self):
        low, shell = self.busy("low"), self.shell_with_context("high")
        shell.ok("fault", FAULT_SPINS)
        self.stops(low.pid)
        self.runs(low.pid)
        self.assertNotEqual(shell.ask("sync")["result"], SUCCESS)
        shell.end()
        self.finish(low)


class Adopted(SteeringTest):
    """A program that was not started through Tessera tells nobody when it works."""

    def stranger(self):
        shell = Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env={"LD_LIBRARY_PATH": SOFT.parent}))
        shell.ok("init")
        shell.ok("context")
        return shell

    def test_one_of_a_high_class_keeps_others_off_only_while_it_works(self):
        self.create("low", compute_priority=12)
        self.create("high", compute_priority=2)
        low, stranger = self.busy("low"), self.stranger()
        wait_for("the stranger", lambda: self.process(stranger.pid))
        self.tessera("adopt", stranger.pid, "--vgpu", "high")
        self.stops(low.pid)
        # It has nothing to do, which is seen after a while.
        self.runs(low.pid)
        stranger.ok("launch", 5000)
        self.stops(low.pid)
        stranger.ok("sync")
        self.runs(low.pid)
        stranger.end()
        self.finish(low)


    def test_its_memory_is_what_it_has_now(self):
        self.create("here")
        low, stranger = self.busy("here"), self.stranger()  # one that runs keeps the daemon measuring
        stranger.ok("allocate", "alloc", 64 << 20)
        wait_for("its memory", lambda: (self.process(stranger.pid) or {}).get("memory_bytes", 0) >= 100 << 20)
        self.tessera("adopt", stranger.pid, "--vgpu", "here")
        self.assertGreaterEqual(self.process(stranger.pid)["memory_bytes"], 100 << 20)
        stranger.ok("free", 0)
        wait_for("the rest", lambda: self.process(stranger.pid)["memory_bytes"] < 100 << 20)
        stranger.end()
        self.finish(low)


class MinShare(SteeringTest):
    CONFIG = "[priority]\nmin_share = 20\n"

    def test_a_lower_class_is_not_starved(self):
        """It gets 20 %. Starved it would get nothing, without classes a half, and most if they were the wrong way round. How
        exactly the 20 % are held is tested in virtual time, in src/plan."""
        self.create("low", compute_priority=12)
        self.create("high", compute_priority=2)
        low, high = self.busy("low"), self.busy("high")
        share = self.account.shares([low.pid, high.pid], 3)[0]
        self.assertGreater(share, 5)
        self.assertLess(share, 38)
        self.finish(low, high)


class GivingWay(SteeringTest):
    CONFIG = "[priority]\nmode = 'soft'\n"

    def test_a_gpu_is_not_used_for_more_than_its_time(self):
        """How long the gaps of the higher one are is not known, so the time in which both have work is charged twice."""
        self.create("low", compute_priority=12)
        self.create("high", compute_priority=2)
        low, high = self.busy("low"), self.busy("high")
        wait_for("use by both", lambda: min(self.vgpu(name)["compute_current_pct"] for name in ("low", "high")) > 80)
        self.assertLessEqual(self.json("gpus")["gpus"][0]["compute_busy_pct"], 100)
        self.finish(low, high)


class StaticSlices(SteeringTest):
    CONFIG = "[channels]\nmode = 'static'\n"

    def test_nobody_is_frozen_and_slices_follow_the_class(self):
        self.create("low", compute_priority=5)
        self.create("high", compute_priority=4)
        low, high = self.busy("low"), self.busy("high")
        wait_for("their slices", lambda: self.vgpu("low")["slice_us"] == 524288 >> 5)
        self.assertEqual(self.vgpu("high")["slice_us"], 524288 >> 4)
        self.runs(low.pid)
        self.runs(high.pid)
        self.assertEqual(self.process(low.pid)["frozen"], [])
        self.finish(low, high)


if __name__ == "__main__":
    unittest.main()

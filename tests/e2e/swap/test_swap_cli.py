"""Memory that is swapped, from the command line: terms, evict, and what the listings say of it."""
import re
import unittest

import swapping  # noqa: F401, makes the harness known
from harness import BIN, MIB, TENANT, SoftGpuTest, Tenant, wait_for

CHUNK = 64 * MIB


class SwapTest(SoftGpuTest):
    SPEC = "1x1GiB"
    CONFIG = '[swap]\nsize = "2G"\nfloor = "64M"\n'

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)

    def process(self, pid):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == pid)
        return process

    def swap(self):
        gpu, = self.json("gpus")["gpus"]
        return gpu["swap"]

    def refused(self, *words):
        """The one line that a failing command prints."""
        done = self.tessera(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr


class Floor(SwapTest):
    CONFIG = '[swap]\nsize = "2G"\nfloor = "1%"\n'

    def test_a_floor_in_percent_of_the_free_ram(self):
        self.create("team")
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 256 * MIB)
        self.tessera("evict", shell.pid)
        self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], 256 * MIB)


class Evict(SwapTest):
    BYTES = 256 * MIB  # whole chunks

    def holding(self, vgpu):
        """A program that has memory and no work."""
        shell = self.shell_with_context(vgpu)
        shell.ok("allocate", "alloc", self.BYTES)
        return shell

    def test_a_program_that_loads_code_while_its_memory_is_out_goes_on(self):
        self.create("team")
        shell = self.holding("team")
        self.tessera("evict", shell.pid)
        shell.ok("launch", 1)  # the first one: loads the kernel, for which the driver needs the GPU
        self.assertEqual(shell.ok("count")["count"], 1)

    def test_a_program_whose_work_was_not_seen_goes_on(self):
        self.create("team")
        shell = self.holding("team")
        shell.ok("launch", 1)
        shell.ok("sync")
        shell.ok("begin_capture", 4_000_000)  # a second or so; no marker is possible from here
        wait_for("it to look as if it did nothing", lambda: self.process(shell.pid)["state"] == "idle")
        self.tessera("evict", shell.pid)
        shell.ok("end_capture")  # waits for the kernel, which stands still
        self.assertEqual(shell.ok("count")["count"], 2)

    def test_a_program_without_work_stays_out(self):
        self.create("team")
        shell = self.holding("team")
        before = self.process(shell.pid)
        self.assertEqual(before["memory_swapped_bytes"], 0)
        self.assertEqual(before["memory_resident_bytes"] - before["memory_pinned_bytes"], self.BYTES)
        self.assertNotIn("SWAPPED", self.tessera("ps").stdout)
        done = self.tessera("evict", shell.pid)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        after = self.process(shell.pid)
        self.assertEqual(after["memory_swapped_bytes"], self.BYTES)
        self.assertEqual(after["memory_resident_bytes"], before["memory_resident_bytes"] - self.BYTES)
        self.assertEqual(after["memory_bytes"], before["memory_bytes"])
        self.assertEqual((after["moved_out_bytes"], after["moved_in_bytes"]), (self.BYTES, 0))
        self.assertEqual((after["memory_evicting_bytes"], after["evict_error"]), (0, None))
        self.assertGreater(after["moving_us"], 0)
        self.assertRegex(self.tessera("ps").stdout, r" SWAPPED .*\n *%d .* 256 MiB " % shell.pid)
        vgpu = self.vgpu("team")
        self.assertEqual(vgpu["memory_swap_current_bytes"], self.BYTES)
        self.assertEqual(vgpu["memory_resident_bytes"], after["memory_resident_bytes"])
        self.assertIn("memory swapped    256 MiB\n", self.tessera("vgpu", "show", "team").stdout)
        wait_for("the pool's news", lambda: self.swap()["pool_used_bytes"] == self.BYTES)
        self.assertIn("256 MiB of at most 2 GiB in use", self.tessera("gpus").stdout)
        # The vGPU's figures outlast its programs.
        shell.end()
        wait_for("its end", lambda: not self.managed())
        self.assertEqual(self.vgpu("team")["moved_out_bytes"], self.BYTES)
        self.assertEqual(self.vgpu("team")["memory_swap_current_bytes"], 0)

    def test_some_may_stay(self):
        self.create("team")
        shell = self.holding("team")
        keep = self.CONTEXT_BYTES + 128 * MIB
        self.tessera("evict", shell.pid, "--to", keep)
        process = self.process(shell.pid)
        self.assertEqual(process["memory_swapped_bytes"], 128 * MIB)
        self.assertLessEqual(process["memory_resident_bytes"], keep)
        self.tessera("evict", shell.pid, "--to", keep)  # is so already
        self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], 128 * MIB)

    def test_no_more_than_the_swap_max(self):
        self.create("team", memory_swap_max="128M")
        shell = self.holding("team")
        self.assertIn("memory.swap.max", self.refused("evict", shell.pid))
        self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], 128 * MIB)
        self.tessera("vgpu", "set", "team", "--swap-max", "max")
        self.tessera("evict", shell.pid)
        self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], self.BYTES)

    def test_a_vgpu_is_all_its_programs(self):
        self.create("team")
        shells = [self.holding("team"), self.holding("team")]
        answer = self.json("evict", "vgpu:team")
        self.assertEqual({each["pid"] for each in answer["evictions"]}, {shell.pid for shell in shells})
        for shell in shells:
            self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], self.BYTES)

    def test_a_program_at_work_gets_its_memory_back(self):
        self.create("team")
        tenant = self.tenant_in("team", "--memory", self.BYTES)
        tenant.makes_progress()
        self.tessera("evict", tenant.pid)
        wait_for("its memory", lambda: self.process(tenant.pid)["moved_in_bytes"] >= self.BYTES)
        tenant.makes_progress()
        self.assertGreaterEqual(self.process(tenant.pid)["moved_out_bytes"], self.BYTES)
        tenant.finish()

    def test_a_frozen_program_stays_out_until_it_is_thawed(self):
        self.create("team")
        tenant = self.tenant_in("team", "--memory", self.BYTES)
        tenant.makes_progress()
        self.tessera("freeze", "team")
        self.tessera("evict", "team")
        self.assertGreaterEqual(self.process(tenant.pid)["memory_swapped_bytes"], self.BYTES)
        self.assertEqual(self.process(tenant.pid)["moved_in_bytes"], 0)
        self.tessera("thaw", "team")
        tenant.makes_progress(10)
        wait_for("its memory", lambda: self.process(tenant.pid)["memory_swapped_bytes"] == 0)
        tenant.finish()

    def test_what_is_wrong(self):
        self.create("team")
        self.assertIn("tessera ps", self.refused("evict", 1))
        self.assertIn("nobody", self.refused("evict", "nobody"))
        self.tessera("evict", "team")  # of nobody: nothing is to be moved
        self.assertEqual(self.tessera("evict", "team", "--to", "much", check=False).returncode, 2)
        self.assertEqual(self.tessera("evict", check=False).returncode, 2)

    def test_all_targets_are_tried(self):
        self.create("team")
        shell = self.holding("team")
        self.assertIn("nobody", self.refused("evict", "nobody", "team"))
        self.assertEqual(self.process(shell.pid)["memory_swapped_bytes"], self.BYTES)


class NoSwap(SwapTest):
    CONFIG = '[swap]\nsize = "0"\n'

    def test_nothing_is_evicted(self):
        self.create("team")
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 64 * MIB)
        self.assertIn("swap.size", self.refused("evict", shell.pid))
        self.assertIn("swap.size", self.refused("evict", "team"))
        self.assertIsNone(self.swap())
        self.assertNotIn("host memory", self.tessera("gpus").stdout)
        process = self.process(shell.pid)
        self.assertEqual(process["memory_resident_bytes"], process["memory_bytes"])

    def test_no_more_than_the_limit_may_be_allocated(self):
        self.assertIn("not swapped", self.refused("vgpu", "create", "team", "--memory", "256M:512M"))


class Terms(SwapTest):
    def test_they_are_set_shown_and_kept(self):
        self.tessera("vgpu", "create", "team", "--memory", "256M:3G", "--swap-max", "1G")
        vgpu = self.vgpu("team")
        self.assertEqual(vgpu["memory_limit_bytes"], 256 * MIB)
        self.assertEqual(vgpu["memory_max_bytes"], 1280 * MIB)  # as much as may lie anywhere
        self.assertEqual(vgpu["memory_swap_max_bytes"], 1024 * MIB)
        self.assertIn("memory swapped    0 B of at most 1 GiB\n", self.tessera("vgpu", "show", "team").stdout)
        self.stop_daemon()
        self.start_daemon(config=self.CONFIG)
        self.assertEqual(self.vgpu("team")["memory_max_bytes"], 1280 * MIB)
        self.tessera("vgpu", "set", "team", "--swap-max", "max")
        self.assertEqual(self.vgpu("team")["memory_max_bytes"], 256 * MIB + 2048 * MIB)
        self.assertIsNone(self.vgpu("team")["memory_swap_max_bytes"])
        self.tessera("vgpu", "set", "team", "--memory", "512M")
        self.assertEqual(self.vgpu("team")["memory_max_bytes"], 512 * MIB + 2048 * MIB)  # 3 GiB, as far as it has place
        self.tessera("vgpu", "set", "team", "--memory", "256M:256M", "--memory-request", "100M")
        self.assertEqual(self.vgpu("team")["memory_max_bytes"], 256 * MIB)
        self.assertEqual(self.vgpu("team")["memory_request_bytes"], 100 * MIB)

    def test_a_program_sees_its_maximum(self):
        done = self.tessera("run", *self.RUN_FLAGS, "--memory", "256M:512M", "--", BIN / "tessera", "vgpu", "ls", "--json")
        self.assertRegex(done.stdout, r'"memory_max_bytes": %d\b' % (512 * MIB))
        self.assertRegex(done.stdout, r'"memory_limit_bytes": %d\b' % (256 * MIB))


class TwoThatDoNotFit(SwapTest):
    CONFIG = SwapTest.CONFIG + "[turn]\nmin_ms = 100\nmax_ms = 500\n"

    def test_both_finish_and_the_listings_tell_how(self):
        command = (BIN / "tessera", "run", *self.RUN_FLAGS)
        tenants = [Tenant(self.spawn(*command, "--name", name, "--", TENANT, "--memory", "700M"))
                   for name in ("first", "second")]
        wait_for("turns", lambda: self.swap()["mode"] == "turns")
        self.assertRegex(self.swap()["decision"], "2 active vGPUs use .*: turns of")
        self.assertIn("; 2 active vGPUs use", self.tessera("gpus").stdout)
        for tenant in tenants:
            tenant.makes_progress()
        wait_for("one that waits", lambda: any("move" in process["frozen"] for process in self.managed()))
        for tenant in tenants:
            tenant.makes_progress()
        for name in ("first", "second"):
            vgpu = self.vgpu(name)
            self.assertGreater(vgpu["moved_out_bytes"], 0)
            self.assertGreater(vgpu["moving_us"], 0)
            pressure = vgpu["memory_pressure"]
            self.assertGreater(pressure["some_total_us"], 0)
            self.assertTrue(0 < pressure["some_avg10"] <= 100, pressure)
            said = self.tessera("vgpu", "show", name).stdout
            self.assertTrue(re.search(r"\nmemory pressure   \d.* of the last 10 s, .* in all\n", said), said)
        for process in self.managed():
            self.assertGreater(process["memory_waited_us"], 0)
        for tenant in tenants:
            tenant.finish()


del SwapTest

if __name__ == "__main__":
    unittest.main()

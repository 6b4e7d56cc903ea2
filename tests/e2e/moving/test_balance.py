"""rebalance.load: vGPUs leave a GPU that is asked for more time than it has."""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from moving import MovingTest  # noqa: E402

from harness import BIN, Shell, wait_for  # noqa: E402

ON = "[rebalance]\nload = true\n"


class Balance(MovingTest):
    SPEC = "2x1GiB"

    def setUp(self):
        super().setUp()
        for name in ("first", "second", "third"):
            self.create(name, gpu="0")

    def switch(self, config):
        (self.run_dir / "config.toml").write_text(self.CONFIG + config)
        self.tessera("reload")

    def gpus_of(self, *names):
        return [self.vgpu(name)["gpu"] for name in names]

    def migrated(self):
        return sum(event["type"] == "vgpu.migrated" for event in self.json("events", "--last", 1000)["events"])

    def sent(self):
        return int(next(line.split()[-1] for line in self.metrics().splitlines() if line.startswith('tessera_gpu_load_migrations_total{gpu="0"}')))

    def test_one_of_two_busy_programs_goes_to_the_gpu_that_has_nothing_to_do(self):
        tenants = [self.tenant_in(name, "--kernel-us", 1000) for name in ("first", "second")]
        for tenant in tenants:
            tenant.makes_progress()
        self.assertEqual((self.gpus_of("first", "second"), self.sent()), ([0, 0], 0), "nobody asked for it")
        self.switch(ON)
        wait_for("one on each GPU", lambda: sorted(self.gpus_of("first", "second")) == [0, 1])
        wait_for("the migration's end", self.migrated)
        for tenant in tenants:
            tenant.makes_progress(5)
        self.assertEqual((self.sent(), self.migrated()), (1, 1))
        self.assertRegex(self.daemon_log(), r"GPU 0 is asked for \d{3} % of its time: vGPU")
        for tenant in tenants:
            tenant.finish()

    def test_memory_goes_along_and_what_is_idle_stays(self):
        idle = self.start_program("third", 3)
        programs = [self.start_program(name, word) for word, name in enumerate(("first", "second"), 1)]
        self.switch(ON)
        tenants = [self.tenant_in(name, "--kernel-us", 1000) for name in ("first", "second")]
        wait_for("one on each GPU", lambda: sorted(self.gpus_of("first", "second")) == [0, 1])
        for tenant in tenants:
            tenant.makes_progress(5)
            tenant.finish()
        for program in [*programs, idle]:
            self.goes_on(program)
        self.assertEqual(self.gpus_of("third"), [0])

    def test_those_that_cannot_move_stay(self):
        shells = [self.start_program(name) for name in ("first", "second")]
        for shell in shells:
            shell.ok("ipc_get", shell.memory, 0)
        tenants = [self.tenant_in(name, "--kernel-us", 1000) for name in ("first", "second", "third")]
        for tenant in tenants:
            tenant.makes_progress()
        self.switch(ON)
        wait_for("who can move on the other GPU", lambda: self.gpus_of("third") == [1])
        for tenant in tenants:
            tenant.makes_progress(5)
            tenant.finish()
        self.assertEqual((self.gpus_of("first", "second"), self.sent()), ([0, 0], 1))

    def test_a_program_that_has_begun_finds_its_gpu(self):
        begins = Shell(self.run_in("first", BIN / "driver_shell", stdin=subprocess.PIPE))
        begins.ok("init")
        tenants = [self.tenant_in(name, "--kernel-us", 1000) for name in ("first", "second")]
        for tenant in tenants:
            tenant.makes_progress()
        self.switch(ON)
        wait_for("the other one on the other GPU", lambda: 1 in self.gpus_of("first", "second"))
        self.assertEqual(self.gpus_of("first", "second"), [0, 1])
        begins.ok("context")
        begins.ok("launch", 1)
        for tenant in tenants:
            tenant.makes_progress(5)
            tenant.finish()

    def test_what_is_frozen_stays_and_wants_nothing(self):
        tenants = [self.tenant_in(name, "--kernel-us", 1000) for name in ("first", "second", "third")]
        for tenant in tenants:
            tenant.makes_progress()
        self.tessera("freeze", "first")
        self.switch(ON)
        wait_for("one on the other GPU", lambda: sorted(self.gpus_of("second", "third")) == [0, 1])
        self.assertRegex(self.daemon_log(), r"GPU 0 is asked for \d{3} % of its time: vGPU")
        self.assertEqual(self.gpus_of("first"), [0])
        self.tessera("thaw", "first")
        for tenant in tenants:
            tenant.makes_progress(5)
            tenant.finish()


if __name__ == "__main__":
    unittest.main()

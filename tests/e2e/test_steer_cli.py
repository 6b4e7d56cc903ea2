"""Steering from the command line: freeze, thaw, adopt, priorities, and what the listings say about them."""
import json
import pathlib
import unittest

from harness import BIN, TENANT, SoftGpuTest, Tenant


class Steering(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.create("team")

    def refused(self, *words):
        """The one line that a failing command prints."""
        done = self.tessera(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("tessera: "), done.stderr)
        return done.stderr

    def process(self, pid):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == pid)
        return process

    def test_a_process_is_frozen_and_thawed(self):
        tenant = self.tenant_in("team")
        tenant.makes_progress()
        done = self.tessera("freeze", tenant.pid)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.assertIn("operator", self.process(tenant.pid)["frozen"])
        self.assertRegex(self.tessera("ps").stdout, rf"\n *{tenant.pid} .* frozen ")
        self.tessera("thaw", tenant.pid)
        self.assertEqual(self.json("gpus")["gpus"][0]["control"]["by"], "channels")
        self.assertNotIn("operator", self.process(tenant.pid)["frozen"])
        tenant.makes_progress()
        tenant.finish()

    def test_a_vgpu_is_frozen_and_thawed(self):
        tenant = self.tenant_in("team")
        tenant.makes_progress()
        self.tessera("freeze", "team")
        self.assertIn("operator", self.vgpu("team")["frozen"])
        self.assertIn("frozen            by operator", self.tessera("vgpu", "show", "team").stdout)
        self.assertRegex(self.tessera("vgpu", "ls").stdout, r"\nteam .* frozen ")
        self.tessera("thaw", "team")
        self.assertIn("frozen            no\n", self.tessera("vgpu", "show", "team").stdout)
        tenant.makes_progress()
        tenant.finish()

    def test_a_vgpu_without_programs_can_be_frozen_before_they_come(self):
        self.tessera("freeze", "team")
        tenant = self.tenant_in("team")
        self.assertIn("operator", self.vgpu("team")["frozen"])
        self.tessera("thaw", "team")
        tenant.makes_progress()
        tenant.finish()

    def test_twice_is_once(self):
        for verb in ("freeze", "freeze", "thaw", "thaw"):
            self.tessera(verb, "team")
        self.assertEqual(self.vgpu("team")["frozen"], [])

    def test_all_targets_are_tried(self):
        said = self.refused("freeze", "nobody", "team")
        self.assertIn("nobody", said)
        self.assertIn("operator", self.vgpu("team")["frozen"])
        self.tessera("thaw", "team")

    def test_digits_are_a_process_unless_said_otherwise(self):
        self.create("1")
        self.refused("freeze", "1")  # init uses no GPU
        self.tessera("freeze", "vgpu:1")
        self.assertIn("operator", self.vgpu("1")["frozen"])
        self.tessera("thaw", "vgpu:1")

    def test_what_cannot_be_adopted(self):
        tenant = self.tenant_in("team")
        tenant.until("ready")
        self.assertIn("nobody", self.refused("adopt", tenant.pid, "--vgpu", "nobody"))
        self.assertIn(str(tenant.pid), self.refused("adopt", tenant.pid, "--vgpu", "team"))
        self.assertEqual(self.vgpu("team")["processes"], [tenant.pid])
        tenant.finish()

    def test_priorities(self):
        self.assertEqual(self.vgpu("team")["compute_priority"], 8)
        self.tessera("vgpu", "create", "service", "--priority", "2")
        self.assertEqual(self.json("vgpu", "show", "service")["compute_priority"], 2)
        self.tessera("vgpu", "set", "service", "--priority", "0")
        self.assertEqual(self.vgpu("service")["compute_priority"], 0)
        self.assertIn("compute priority  0\n", self.tessera("vgpu", "show", "service").stdout)

    def test_a_program_gets_the_priority_asked_for(self):
        done = self.tessera("run", *self.RUN_FLAGS, "--priority", "3", "--", BIN / "tessera", "vgpu", "ls", "--json")
        self.assertIn(3, [vgpu["compute_priority"] for vgpu in json.loads(done.stdout)["vgpus"]])

    def test_behind_the_kernel_gate_a_program_works_as_ever(self):
        command = (BIN / "tessera", "run", *self.RUN_FLAGS, "--vgpu", "team", "--enforce", "kernel", "--", TENANT)
        tenant = Tenant(self.spawn(*command))
        try:
            tenant.makes_progress()
        except AssertionError as error:
            if "kernel gate" in str(error) or "seccomp" in str(error):
                self.skipTest(str(error))
            raise
        # The soft GPU has no kernel driver, so there is nothing for the gate to see but the filter.
        self.assertIn("\nSeccomp:\t2\n", pathlib.Path(f"/proc/{tenant.pid}/status").read_text())
        self.tessera("freeze", tenant.pid)
        self.tessera("thaw", tenant.pid)
        tenant.makes_progress()
        tenant.finish()

    def test_listings_say_how_time_is_enforced(self):
        gpu, = self.json("gpus")["gpus"]
        self.assertIn(gpu["control"]["by"], ("channels", "gate"))
        self.assertIn(gpu["control"]["by"], self.tessera("gpus").stdout)
        tenant = self.tenant_in("team")
        tenant.until("ready")
        process = self.process(tenant.pid)
        self.assertEqual((process["managed"], process["adopted"], process["enforce"]), (True, False, "shim"))
        tenant.finish()

    def test_doctor_tells_what_the_daemon_found(self):
        checks = self.json("doctor", "--soft")["checks"]
        self.assertIn("channel control", [check["name"] for check in checks])
        for check in checks:
            self.assertTrue(check["status"] == "ok" or check["advice"], check)


if __name__ == "__main__":
    unittest.main()

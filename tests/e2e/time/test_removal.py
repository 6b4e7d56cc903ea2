"""A vGPU that is removed by force while programs use it: they get errors for what they give the GPU from then on."""
import pathlib
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import DEADLINE_S, DEVICE_UNAVAILABLE, SoftGpuTest, wait_for  # noqa: E402


class Removal:
    """Rules that hold for every actuator."""
    CONFIG = None

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)
        self.create("team")
        self.shell = self.shell_with_context("team")

    def remove(self):
        self.assertEqual(self.api("DELETE", "/v1/vgpus/team?force=1")[0], 204)

    def said(self):
        self.shell.child.kill()
        return self.shell.child.communicate(timeout=DEADLINE_S)[1]

    def refuses(self):
        self.assertEqual(self.shell.ask("launch", 1)["result"], DEVICE_UNAVAILABLE)

    def test_all_later_work_is_refused(self):
        self.shell.ok("launch", 1)
        self.shell.ok("sync")
        self.remove()
        self.refuses()
        self.refuses()
        self.assertEqual(self.said().count("the program's vGPU on GPU 0 was removed"), 1)

    def test_who_waits_at_the_gate_goes_on_with_an_error(self):
        self.shell.ok("launch", 1)
        self.shell.ok("sync")
        wait_for("the end of its work", lambda: self.managed()[0]["state"] == "idle")
        self.tessera("freeze", "team")
        self.shell.send("launch", 1)
        wait_for("the wait", lambda: self.managed()[0]["gate_waits"])
        self.remove()
        self.assertEqual(self.shell.answer()["result"], DEVICE_UNAVAILABLE)

    def test_another_vgpu_of_that_name_is_not_the_programs(self):
        self.remove()
        self.refuses()
        self.stop_daemon()
        self.start_daemon(config=self.CONFIG)
        self.create("team")
        wait_for("the program", self.managed)
        self.refuses()

    def test_without_a_daemon_it_stays_removed(self):
        config = (self.CONFIG or "") + "[client]\ngrace_s = 0\non_daemon_loss = 'continue'\n"
        self.stop_daemon()
        self.start_daemon(config=config)
        wait_for("the program", self.managed)
        self.remove()
        self.stop_daemon()
        self.refuses()
        self.assertNotIn("going on without limits", self.said())


class ByGates(Removal, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'off'\n"


class ByChannels(Removal, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'auto'\n"


if __name__ == "__main__":
    unittest.main()

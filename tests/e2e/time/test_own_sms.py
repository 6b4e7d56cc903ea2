"""SMs that vGPUs of a space have for themselves, on the soft GPU."""
import json
import pathlib
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, NOT_SUPPORTED, wait_for  # noqa: E402
from spaces import SpacesTest  # noqa: E402


# What comes first on a stream, and what must see it, as in a primary context.
ORDERED = [("blocking", second) for second in ("default", "copy", "event", "sync", "query", "memory", "blocking")]
ORDERED += [("default", second) for second in ("blocking", "sync_blocking", "graph", "default")]
ORDERED += [("destroyed", "default"), ("destroyed", "copy"), ("wait", "blocking")]


class OwnSms(SpacesTest):
    """SMs that a vGPU does not share. The soft GPU splits its 100 into 50 groups."""

    def shell(self, vgpu):
        shell = self.shell_in(vgpu)
        shell.ok("init")
        shell.ok("primary")
        return shell

    def test_all_that_a_program_does_runs_there(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        for where in ("stream", "default", "graph"):
            self.assertEqual(shell.ask(f"places {where}")["count"], 30, where)
        vgpu = self.vgpu("one")
        self.assertEqual((vgpu["sm_reserved"], vgpu["sms"]), (True, 30))
        self.assertIn("its own 30 % of the SMs", self.tessera("vgpu", "show", "one").stdout)
        shell.ok("primary")  # as cudaSetDevice does: it makes the primary context current again
        self.assertEqual(shell.ask("places default")["count"], 30)
        shell.ok("primary_reset")
        shell.ok("primary")
        self.assertEqual(shell.ask("places default")["count"], 30)
        shell.end()

    def test_a_program_that_would_leave_them_is_refused(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        self.assertEqual(shell.ask("context")["result"], NOT_SUPPORTED)
        self.assertEqual(shell.ask("places default")["count"], 30)
        shell.end()

    def test_less_than_a_group_is_an_error(self):
        self.member("one", sm_limit=1.5, sm_reserved=True)
        shell = self.shell("one")
        self.assertEqual(shell.ask("places default")["result"], NOT_SUPPORTED)
        shell.end()
        self.assertIn("raise --sm", shell.child.stderr.read())

    def test_they_are_given_once(self):
        self.member("one", sm_limit=60, sm_reserved=True)
        self.assertIn("has 40 % of the SMs in one piece",
                      self.refused({"name": "x", "space": "a", "sm_limit": 50, "sm_reserved": True}))
        self.assertIn("has SMs of its own", self.refused({"name": "x", "space": "a", "sm_limit": 10}))
        self.member("two", sm_limit=40, sm_reserved=True)
        self.assertIn("has 40 % of the SMs in one piece",
                      self.api("PATCH", "/v1/vgpus/two", {"sm_limit": 50})[2]["detail"])
        self.assertIn("cannot be changed", self.api("PATCH", "/v1/vgpus/two", {"sm_reserved": False})[2]["detail"])
        self.assertEqual(self.api("PATCH", "/v1/vgpus/two", {"sm_limit": 40, "compute_weight": 7})[0], 200)
        self.api("DELETE", "/v1/vgpus/one")
        self.stop_daemon()
        self.start_daemon()
        self.member("three", sm_limit=60, sm_reserved=True)
        two, three = self.shell("two"), self.shell("three")
        self.assertEqual([each.ask("places default")["count"] for each in (two, three)], [40, 60])
        for shell in (two, three):
            shell.end()

    def test_they_move_while_a_program_runs(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        self.assertEqual(shell.ask("places default")["count"], 30)
        for percent in (60, 10, 30):
            self.assertEqual(self.api("PATCH", "/v1/vgpus/one", {"sm_limit": percent})[0], 200)
            wait_for("it has moved", lambda: self.vgpu("one")["sms"] == percent)
            self.assertEqual(self.vgpu("one")["sms_kept"], 0)
            self.assertEqual(shell.ask("places default")["count"], percent)
        self.stop_daemon()
        self.start_daemon()
        wait_for("it is there again", lambda: (vgpu := self.vgpu("one")) and vgpu["sms"] == 30)
        self.assertEqual(shell.ask("places default")["count"], 30)
        shell.end()

    def test_a_busy_program_moves_again_and_again(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        tenant = self.tenant_in("one", "--kernel-us=200", "--depth=2", "--ahead=3", "--report-every=10")
        for percent in (60, 10, 30) * 5:
            tenant.makes_progress()
            self.assertEqual(self.api("PATCH", "/v1/vgpus/one", {"sm_limit": percent})[0], 200)
            wait_for("it has moved", lambda: self.vgpu("one")["sms_kept"] == 0)
        tenant.finish()

    def test_a_lone_member_has_all_of_them(self):
        self.member("one", sm_limit=30, sm_reserved=True, sm_burst=True)
        shell = self.shell("one")
        wait_for("it has all", lambda: self.vgpu("one")["sms"] == 100)
        self.assertEqual(shell.ask("places default")["count"], 100)
        self.assertIn("or all while it is alone; its programs have 100", self.tessera("vgpu", "show", "one").stdout)
        self.member("two", sm_limit=70, sm_reserved=True)
        for _ in range(3):
            other = self.shell("two")
            self.assertEqual(other.ask("places default")["count"], 70)
            wait_for("it has left", lambda: self.vgpu("one")["sms"] == 30)
            self.assertEqual(self.vgpu("one")["sms_kept"], 0)
            self.assertEqual(shell.ask("places default")["count"], 30)
            other.end()
            wait_for("it has all again", lambda: self.vgpu("one")["sms"] == 100)
        self.tessera("vgpu", "set", "one", "--no-sm-burst")
        wait_for("it has its own", lambda: self.vgpu("one")["sms"] == 30)
        self.tessera("vgpu", "set", "one", "--sm-burst", "--sm", "20")
        wait_for("it has all", lambda: self.vgpu("one")["sms"] == 100)
        self.stop_daemon()
        self.start_daemon()
        # A new daemon does not know at once that it is alone.
        wait_for("it has its own", lambda: (vgpu := self.vgpu("one")) and vgpu["sms"] == 20)
        wait_for("it has all", lambda: self.vgpu("one")["sms"] == 100)
        self.assertEqual(shell.ask("places default")["count"], 100)
        # What it makes from now on keeps its SMs, so it goes back to its own first.
        self.assertEqual(shell.ask("places stream")["count"], 20)
        self.assertEqual((self.vgpu("one")["sms"], self.vgpu("one")["sms_kept"]), (20, 0))
        self.assertEqual(shell.ask("places default")["count"], 20)
        shell.end()

    def test_a_busy_program_has_all_and_leaves_them_again_and_again(self):
        self.member("one", sm_limit=30, sm_reserved=True, sm_burst=True)
        self.member("two", sm_limit=70, sm_reserved=True, sm_burst=True)
        tenant = self.tenant_in("one", "--kernel-us=200", "--depth=2", "--ahead=3", "--report-every=10")
        for _ in range(5):
            tenant.makes_progress()
            wait_for("it has all", lambda: self.vgpu("one")["sms"] == 100)
            other = self.shell("two")
            self.assertEqual(other.ask("places default")["count"], 70)
            tenant.makes_progress()
            wait_for("it has left", lambda: self.vgpu("one")["sms"] == 30)
            other.end()
        tenant.finish()

    def test_nobody_is_alone_because_a_daemon_ends_or_begins(self):
        self.stop_daemon()
        self.start_daemon(config="[client]\ngrace_s = 1\n")
        self.member("one", sm_limit=30, sm_reserved=True, sm_burst=True)
        self.member("two", sm_limit=70, sm_reserved=True, sm_burst=True)
        one = self.shell("one")
        wait_for("it has all", lambda: one.ask("places default")["count"] == 100)  # the daemon gives bursts by now
        two = self.shell("two")
        wait_for("it has left", lambda: self.vgpu("one")["sms"] == 30)
        for change in (self.stop_daemon, self.start_daemon):
            change()
            for _ in range(20):
                self.assertEqual([each.ask("places default")["count"] for each in (one, two)], [30, 70], change)
        for each in (one, two):
            each.end()

    def test_without_a_daemon_a_burst_ends_where_it_began(self):
        self.stop_daemon()
        self.start_daemon(config="[client]\ngrace_s = 0\n")
        self.member("one", sm_limit=30, sm_reserved=True, sm_burst=True)
        shell = self.shell("one")
        wait_for("it has all", lambda: shell.ask("places default")["count"] == 100)
        self.assertEqual(self.api("PATCH", "/v1/vgpus/one", {"sm_limit": 40})[0], 200)
        self.stop_daemon()
        wait_for("it goes on alone", lambda: shell.ask("places default")["count"] == 40)
        self.assertEqual(shell.ask("places stream")["count"], 40)
        shell.end()

    def test_a_burst_needs_sms_of_its_own(self):
        self.assertIn("sm.burst needs sm.reserved", self.refused({"name": "x", "space": "a", "sm_limit": 30, "sm_burst": True}))

    def test_they_stay_while_a_program_has_streams_or_graphs(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        self.assertEqual(shell.ask("places stream")["count"], 30)
        status, _, answer = self.api("PATCH", "/v1/vgpus/one", {"sm_limit": 60})
        self.assertEqual(status, 409)
        self.assertIn("has made 1 stream", answer["detail"])
        self.assertEqual(shell.ask("places default")["count"], 30)
        shell.end()

    def test_blocking_streams_keep_their_order_with_the_default_stream(self):
        """The driver knows no blocking streams in a green context; the shim keeps their order."""
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        for first, second in ORDERED:
            with self.subTest(first=first, second=second):
                done = shell.ask(f"order {first} {second}")
                self.assertEqual((done["result"], done["value"], done["flags"]), (0, 1, 0))
        shell.ok("primary_reset")
        shell.ok("primary")
        self.assertEqual(shell.ask("order blocking default")["value"], 1)
        shell.end()

    def test_submissions_count_while_each_one_is_seen(self):
        self.member("one", sm_limit=30, sm_reserved=True)
        shell = self.shell("one")
        shell.ok("launch 0")  # the program counts by contexts, and is in its own from now on
        shell.ok("launch 100")
        shell.ok("blocking 2")
        shell.ok("launch 100")
        shell.ok("threads 4 100")
        shell.ok("capture 20 0")
        shell.ok("end_blocking")
        shell.ok("launch 100")
        self.assertEqual(shell.ask("count")["count"], 100 * 3 + 4 * 100 + 2 * 20)
        shell.end()

    def test_they_need_a_space(self):
        self.assertIn("needs a space", self.refused({"name": "x", "sm_reserved": True}))

    def test_the_command_line(self):
        done = self.tessera("run", "--run-dir", self.run_dir, "--space", "a", "--sm", "50", "--reserve-sm", "--",
                            BIN / "driver_shell", input="init\nprimary\nplaces default\n")
        self.assertEqual(json.loads(done.stdout.splitlines()[-1])["count"], 50)


if __name__ == "__main__":
    unittest.main()

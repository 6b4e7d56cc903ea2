"""How vGPUs of a space share a GPU, in it and beside it: the time and the memory."""
import pathlib
import sys
import time
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_account import GpuAccount  # noqa: E402
from harness import DEADLINE_S, MIB, wait_for  # noqa: E402
from spaces import SpacesTest  # noqa: E402


class Sharing:
    """Rules that hold for every actuator."""

    def setUp(self):
        super().setUp()
        self.account = GpuAccount(self)

    def together(self, *tenants):
        """Whether the tenants use more than one GPU's time, which only those can that run at the same time."""
        pids = [tenant.pid for tenant in tenants]

        def look():
            return time.monotonic(), [self.account.busy_of(pid) for pid in pids]
        begin, before = look()
        while True:
            end, after = look()
            used = [b - a for a, b in zip(before, after)]
            if min(used) > 0.2e9:
                return sum(used) / 1e9 / (end - begin)

    def test_vgpus_of_a_space_run_at_the_same_time_and_others_do_not(self):
        for name in ("one", "two"):
            self.member(name, sm_limit=50)
            self.create("alone-" + name)
        members = [self.busy("one"), self.busy("two")]
        wait_for("both to run at the same time", lambda: self.together(*members) > 1.3)
        for tenant in members:
            self.assertGreater(tenant.finish(), 0)
        others = [self.busy("alone-one"), self.busy("alone-two")]
        self.assertLess(self.together(*others), 1.2)
        for tenant in others:
            self.assertGreater(tenant.finish(), 0)

    def test_limits_hold_inside(self):
        """20 beside 100; without the limit 50 : 50."""
        self.member("slow", sm_limit=50, compute_limit=20)
        self.member("free", sm_limit=50)
        slow, free = self.busy("slow"), self.busy("free")
        shares = self.account.shares([slow.pid, free.pid], 2)
        self.assertLess(shares[0], 30, shares)
        self.assertGreater(shares[0], 5, shares)
        for tenant in (slow, free):
            self.assertGreater(tenant.finish(), 0)

    def test_more_than_all_sms_take_turns(self):
        self.member("one", sm_limit=60)
        self.member("two", sm_limit=60)
        tenants = [self.busy("one"), self.busy("two")]
        # At first all is queued that one had while it was alone; that overlaps.
        wait_for("turns", lambda: self.together(*tenants) < 1.3)
        shares = self.account.shares([tenant.pid for tenant in tenants], 2)
        self.assertGreater(min(shares), 25, shares)
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)

    def test_a_space_with_a_goal_tries_both_modes(self):
        """Which one is better depends on the machine; that it was tried, and that both go on, does not."""
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        one, two = self.busy("one"), self.busy("two")
        self.assertEqual((self.space("a")["mode"], self.space("a")["mode_why"]), ("at_once", None))
        self.assertRegex(self.tessera("space", "show", "a").stdout, r"(?m)^runs +at once$")
        self.change("one", goal="speed=1%")

        def tried():
            one.makes_progress(10)
            two.makes_progress(10)
            return (shown := self.space("a"))["mode_tried_ago_us"] is not None and shown
        shown = wait_for("a trial", tried)
        self.assertTrue(0.25 <= shown["mode_gain"] <= 4, shown)
        self.assertIn("x of ", shown["mode_why"])
        self.assertRegex(self.tessera("space", "show", "a").stdout, r"(?m)^runs +(at once|in turns) \(.*, tried .* ago\)$")
        told = [event["text"] for event in self.api("GET", "/v1/events")[2]["events"] if event["type"] == "space.mode"]
        self.assertEqual(bool(told), shown["mode"] == "in_turns" or len(told) > 1, told)
        self.change("one", goal=None)
        wait_for("the end of trials", lambda: self.space("a")["mode_tried_ago_us"] is None)
        self.assertEqual(self.space("a")["mode"], "at_once")
        for tenant in (one, two):
            tenant.makes_progress(20)
            self.assertGreater(tenant.finish(), 0)

    def test_a_frozen_vgpu_stands_and_the_other_goes_on(self):
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        one, two = self.busy("one"), self.busy("two")
        self.tessera("freeze", "one")

        def stands():
            before = self.account.busy_of(one.pid)
            two.makes_progress(200)
            return self.account.busy_of(one.pid) == before
        wait_for("it to stand", stands)
        self.tessera("thaw", "one")
        one.makes_progress(100)
        for tenant in (one, two):
            self.assertGreater(tenant.finish(), 0)

    def test_a_member_that_is_killed_harms_nobody(self):
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        two = self.busy("two")
        for _ in range(5):
            one = self.busy("one")
            one.child.kill()
            one.child.communicate(timeout=DEADLINE_S)
            two.makes_progress(20)
        self.assertGreater(two.finish(), 0)
        self.assertEqual(self.space("a")["state"], "ready")

    def test_a_fault_ends_its_own_space_and_no_other(self):
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        self.member("other", "b")
        self.create("plain")
        victim, other, plain = self.busy("two"), self.busy("other"), self.busy("plain")
        stubborn = self.shell_with_context("two")  # it makes no call, and so does not notice
        culprit = self.shell_with_context("one")
        culprit.ask("fault", 1)
        victim.child.communicate(timeout=DEADLINE_S)
        self.assertNotEqual(victim.child.returncode, 0)
        culprit.end()
        wait_for("the event", lambda: any(event["type"] == "space.fault" and "space a" in event["text"]
                                          for event in self.api("GET", "/v1/events")[2]["events"]))
        again = self.busy("one")  # although the stubborn one is still there
        wait_for("the other event", lambda: any(event["type"] == "space.ready"
                                                for event in self.api("GET", "/v1/events")[2]["events"]))
        for tenant in (other, plain, again):
            tenant.makes_progress(20)
            self.assertGreater(tenant.finish(), 0)
        stubborn.child.kill()


class ByChannels(Sharing, SpacesTest):
    def test_classes_stop_a_space_as_one(self):
        self.member("low-1", sm_limit=50, compute_priority=12)
        self.member("low-2", sm_limit=50, compute_priority=12)
        self.create("high", compute_priority=2)
        low = [self.busy("low-1"), self.busy("low-2")]
        self.assertTrue(self.space("a")["steered"])
        high = self.busy("high")

        def stand():
            before = [self.account.busy_of(tenant.pid) for tenant in low]
            high.makes_progress(200)
            return [self.account.busy_of(tenant.pid) for tenant in low] == before
        wait_for("the space to stand", stand)
        self.assertEqual({self.vgpu(name)["state"] for name in ("low-1", "low-2")}, {"waiting"})
        self.assertGreater(high.finish(), 0)
        for tenant in low:
            tenant.makes_progress(50)
            self.assertGreater(tenant.finish(), 0)

    def test_limits_inside_are_parts_of_the_gpus_time(self):
        """The space has half of the GPU. 40 : 60; as a part of the space's time it would be 20 : 80."""
        self.member("one", compute_limit=40)
        self.create("plain")
        one, plain = self.busy("one"), self.busy("plain")
        shares = self.account.shares([one.pid, plain.pid], 3)
        self.assertGreater(shares[0], 30, shares)
        self.assertLess(shares[0], 48, shares)
        for tenant in (one, plain):
            self.assertGreater(tenant.finish(), 0)

    def test_weights_count_the_space_once(self):
        """plain 50, members 50 each at the same time: a third each, as if there were no space; by weight 300 plain has
        three quarters, and a member one of its own: 3 : 1 : 1."""
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        self.create("plain", compute_weight=300)
        tenants = [self.busy(name) for name in ("plain", "one", "two")]
        shares = self.account.shares([tenant.pid for tenant in tenants], 3)
        self.assertGreater(shares[0] / shares[1], 1.8, shares)
        self.assertGreater(shares[0] / shares[2], 1.8, shares)
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)


class ByGates(Sharing, SpacesTest):
    CONFIG = "[channels]\ncontrol = 'off'\n"


class Memory(SpacesTest):
    SPEC = "1x1GiB,sms=100,speed=64M"
    CONFIG = '[swap]\nsize = "2G"\n'

    def test_memory_of_a_member_moves_while_the_other_works(self):
        self.member("one", sm_limit=50)
        self.member("two", sm_limit=50)
        two = self.busy("two")
        one = self.tenant_in("one", "--memory", "128M", *self.BUSY)
        one.until("ready")
        for _ in range(3):
            out = self.vgpu("one")["moved_out_bytes"]
            self.tessera("evict", "one")
            wait_for("memory to go", lambda: self.vgpu("one")["moved_out_bytes"] > out)
            two.makes_progress(20)
            one.makes_progress(20)
        for tenant in (one, two):
            self.assertGreater(tenant.finish(), 0)

    def test_memory_of_a_space_that_stands_moves(self):
        self.member("one", sm_limit=50, compute_priority=12)
        self.create("high", compute_priority=2)
        one = self.tenant_in("one", "--memory", "128M", *self.BUSY)
        one.until("ready")
        high = self.busy("high")
        wait_for("the space to stand", lambda: self.vgpu("one")["state"] == "waiting")
        self.tessera("evict", "one")
        self.assertGreater(self.vgpu("one")["moved_out_bytes"], 64 * MIB)
        self.assertGreater(high.finish(), 0)
        one.makes_progress(20)
        self.assertGreater(one.finish(), 0)


if __name__ == "__main__":
    unittest.main()

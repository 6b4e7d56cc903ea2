"""Shares of the GPU's time, as the soft GPU itself counts them (modelled device time, not the host's).

The soft GPU needs little of the machine, but at the right moment: where others keep its processors busy it lags, and then
everybody gets less. So all of it runs before other programs where that is permitted; a figure that is off is measured
again, twice, before it counts; and if neither helps because the machine is too busy, the test says so and is skipped.
What the scheduler decides is tested exactly, in virtual time, beside src/sched.
"""
import os
import pathlib
import signal
import unittest

from harness import SoftGpuTest, Usage, wait_for

SECONDS = 3
ATTEMPTS = 3


def run_first():
    """This process and all that it starts run before ordinary ones. False if that is not permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return True
    except PermissionError:
        return False


def too_busy():
    """Whether programs had to wait for a processor for more than a tenth of the last seconds."""
    try:
        some = pathlib.Path("/proc/pressure/cpu").read_text().split()
        return float(some[1].removeprefix("avg10=")) > 10
    except OSError:
        return False


RUNS_FIRST = run_first()


class Shares:
    """What holds whoever enforces it."""

    CONFIG = None
    TENANT_FLAGS = ()
    # Points by which a figure may be off beyond its own tolerance.
    SLACK = 0

    # One GPU for each limit, slow ones: what they cost the host is then small beside what they model.
    SPEC = "4x1GiB,speed=4M"

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)
        self.usage = Usage(self)

    def measured(self, pids, groups, wanted, tolerance, least_sum=0):
        """Shares of groups of processes, each within `tolerance` points of what is wanted."""
        for attempt in range(ATTEMPTS):
            of_pid = dict(zip(pids, self.usage.shares(pids, SECONDS)))
            shares = [sum(of_pid[pid] for pid in group) for group in groups]
            off = max(abs(share - target) for share, target in zip(shares, wanted))
            if off <= tolerance + self.SLACK and sum(shares) >= least_sum:
                return shares
        said = f"shares {shares}, wanted {wanted} within {tolerance} points and a sum of {least_sum}"
        if not RUNS_FIRST and too_busy():
            self.skipTest(f"this machine is too busy to measure: {said}")
        self.fail(said)

    def busy(self, vgpu, *flags):
        tenant = self.tenant_in(vgpu, "--kernel-us", "500", *self.TENANT_FLAGS, *flags)
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def groups(self, *tenants):
        return [t.pid for t in tenants], [[t.pid] for t in tenants]

    def finish(self, *tenants):
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)

    def test_a_limit_holds_for_one_busy_program(self):
        limits = (10, 20, 30, 50)
        for gpu, limit in enumerate(limits):
            self.create(f"limit{limit}", gpu=gpu, compute_limit=limit)
        tenants = [self.busy(f"limit{limit}") for limit in limits]
        self.measured(*self.groups(*tenants), limits, 1.5)
        self.finish(*tenants)

    def test_requests_are_met_and_nothing_is_left_over(self):
        requests = (50, 30, 20)
        for request in requests:
            self.create(f"request{request}", gpu=0, compute_request=request)
        tenants = [self.busy(f"request{request}") for request in requests]
        self.measured(*self.groups(*tenants), requests, 2, least_sum=97)
        self.finish(*tenants)

    def test_processes_of_one_vgpu_share_its_limit(self):
        self.create("team", gpu=0, compute_limit=30)
        tenants = [self.busy("team") for _ in range(3)]
        pids = [tenant.pid for tenant in tenants]
        self.measured(pids, [pids], [30], 1.5)
        self.finish(*tenants)

    def test_weights_share_what_nobody_was_promised(self):
        self.create("heavy", gpu=0, compute_weight=200)
        self.create("light", gpu=0, compute_weight=100)
        tenants = [self.busy("heavy"), self.busy("light")]
        self.measured(*self.groups(*tenants), [66.7, 33.3], 5)
        self.finish(*tenants)

    def test_a_vgpu_that_is_resized_while_it_runs_follows(self):
        self.create("team", gpu=0, compute_limit=20)
        tenant = self.busy("team")
        self.measured(*self.groups(tenant), [20], 1.5)
        self.change("team", compute_limit=60)
        self.measured(*self.groups(tenant), [60], 2.5)
        self.finish(tenant)


class SharesByGates(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'off'\n"


class SharesByChannels(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'auto'\n"
    # A slice is lost to who has nothing queued: these have, as slices are longer than eight kernels.
    TENANT_FLAGS = ("--depth", "200")
    # The soft GPU hands over between kernels only, at once, and lags; what is billed is what a real one needs.
    SLACK = 3

    def test_seven_to_one(self):
        self.create("seven", gpu=0, compute_weight=700)
        self.create("one", gpu=0, compute_weight=100)
        tenants = [self.busy("seven"), self.busy("one")]
        self.measured(*self.groups(*tenants), [87.5, 12.5], 2.5)
        self.finish(*tenants)


class Token(SoftGpuTest):
    SPEC = "1x1GiB,speed=4M"

    def setUp(self):
        super().setUp()
        self.start_daemon(config="[channels]\ncontrol = 'off'\n")
        self.create("a")
        self.create("b")

    def tenant(self, vgpu, *flags):
        tenant = self.tenant_in(vgpu, "--kernel-us", "500", "--report-every", "20", *flags)
        tenant.until("ready")
        return tenant

    def test_others_go_on_when_the_holder_is_killed(self):
        first, second = self.tenant("a"), self.tenant("b")
        for _ in range(5):  # whoever holds the token at that moment
            second.makes_progress()
            first.makes_progress()
            first.child.send_signal(signal.SIGKILL)
            second.makes_progress(20)
            first = self.tenant("a")
        first.makes_progress()
        first.finish()
        second.finish()

    def test_an_idle_program_gives_the_token_back(self):
        self.create("c")
        shell = self.shell_with_context("c")
        shell.ok("launch", 10)
        shell.ok("sync")
        wait_for("the token to come back", lambda: self.vgpu("c")["token"] == "idle")
        tenant = self.tenant("a")
        tenant.makes_progress(50)
        tenant.finish()
        self.assertEqual(shell.ok("count")["count"], 10)


if __name__ == "__main__":
    unittest.main()

"""Shares of the GPU's time, as the soft GPU itself counts them.

Where others keep the host's processors busy, the soft GPU lags and is slower for that while, which it bills to whoever has
it: shares of its time stay what they are. Still it needs a little of the machine at the right moment, so all of it runs
before other programs where that is permitted, and a figure that is off is measured again, twice, before it counts. What
the scheduler decides is tested exactly, in virtual time, beside src/sched.
"""
import contextlib
import os
import signal
import unittest

from harness import SoftGpuTest, Usage, wait_for

SECONDS = 3
ATTEMPTS = 3


def run_first():
    """This process and all that it starts run before ordinary ones, if that is permitted."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


run_first()


class Shares:
    """What holds whoever enforces it."""

    CONFIG = None
    # One GPU for each limit.
    SPEC = "4x1GiB,speed=64M"

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)
        self.usage = Usage(self)

    def measured(self, pids, groups, holds):
        """Fails unless `holds` for the shares of the groups of processes, in percent of a GPU's time."""
        for attempt in range(ATTEMPTS):
            of_pid = dict(zip(pids, self.usage.shares(pids, SECONDS)))
            shares = [sum(of_pid[pid] for pid in group) for group in groups]
            if holds(shares):
                return
        self.fail("shares of the GPU's time: " + " ".join(f"{share:.2f}" for share in shares))

    def limited(self, pids, groups, limits):
        """None gets more than its limit; how much less the host's lag makes it is not ours to test."""
        self.measured(pids, groups, lambda shares: all(limit * 0.75 - 1 <= share <= limit + 1.5
                                                       for share, limit in zip(shares, limits)))

    def divided(self, pids, groups, parts, tolerance):
        """They have most of the GPU's time (a host that steals the processors' makes the changes between them long), and
        divide what they have like `parts`."""
        def holds(shares):
            if sum(shares) < 75:
                return False
            off = max(abs(100 * share / sum(shares) - 100 * part / sum(parts)) for share, part in zip(shares, parts))
            return off <= tolerance
        self.measured(pids, groups, holds)

    def busy(self, vgpu, *flags):
        # Enough is queued that a host that lags does not leave the GPU without work in the middle of a turn.
        tenant = self.tenant_in(vgpu, "--kernel-us", "500", "--depth", "40", "--ahead", "4", *flags)
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
        self.limited(*self.groups(*tenants), limits)
        self.finish(*tenants)

    def test_requests_are_met_and_little_is_left_over(self):
        requests = (50, 30, 20)
        for request in requests:
            self.create(f"request{request}", gpu=0, compute_request=request)
        tenants = [self.busy(f"request{request}") for request in requests]
        self.divided(*self.groups(*tenants), requests, 2.5)
        self.finish(*tenants)

    def test_processes_of_one_vgpu_share_its_limit(self):
        self.create("team", gpu=0, compute_limit=30)
        tenants = [self.busy("team") for _ in range(3)]
        pids = [tenant.pid for tenant in tenants]
        self.limited(pids, [pids], [30])
        self.finish(*tenants)

    def test_weights_share_what_nobody_was_promised(self):
        self.create("heavy", gpu=0, compute_weight=200)
        self.create("light", gpu=0, compute_weight=100)
        tenants = [self.busy("heavy"), self.busy("light")]
        self.divided(*self.groups(*tenants), [2, 1], 2.5)
        self.finish(*tenants)

    def test_a_vgpu_that_is_resized_while_it_runs_follows(self):
        self.create("team", gpu=0, compute_limit=20)
        tenant = self.busy("team")
        self.limited(*self.groups(tenant), [20])
        self.change("team", compute_limit=60)
        self.limited(*self.groups(tenant), [60])
        self.finish(tenant)


class SharesByGates(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'off'\n"


class SharesByChannels(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'auto'\n"

    def test_seven_to_one(self):
        self.create("seven", gpu=0, compute_weight=700)
        self.create("one", gpu=0, compute_weight=100)
        tenants = [self.busy("seven"), self.busy("one")]
        self.divided(*self.groups(*tenants), [7, 1], 2.5)
        self.finish(*tenants)


class Token(SoftGpuTest):
    SPEC = "1x1GiB,speed=64M"

    def setUp(self):
        super().setUp()
        self.start_daemon(config="[channels]\ncontrol = 'off'\n")
        self.create("a")
        self.create("b")

    def submissions(self, pid):
        return next(p["submissions"] for p in self.json("ps")["processes"] if p["pid"] == pid)

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

    def test_a_program_whose_streams_wait_for_one_another_is_not_tied_up(self):
        shell = self.shell_with_context("a")
        shell.ok("launch", 1)  # on the legacy stream, which waits for the blocking ones
        shell.ok("hold")
        # The shim tells of them when it has seen them, and looks for their end from then on.
        wait_for("both submissions to be told", lambda: self.submissions(shell.pid) == 2)
        self.submissions(shell.pid)
        shell.ok("let_go")
        shell.ok("sync")
        shell.end()

    def test_work_that_waits_for_what_is_held_back_is_let_go(self):
        shell, tenant = self.shell_with_context("a"), self.tenant("b")
        shell.ok("hold")
        tenant.makes_progress(500)  # has had the token, and got it for good when the other did not drain
        shell.ok("let_go")
        shell.ok("sync")
        shell.end()
        tenant.finish()

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

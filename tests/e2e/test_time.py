"""Shares of the GPU's time, end to end: programs, shim, daemon and soft GPU. src/plan tests the schedulers' decisions
exactly, in virtual time; bench/shares.py measures how exactly shares hold on this machine. These tests check that
shares hold at all. A busy host stays within their margins; a scheduler that does nothing, or the contrary, does not.
"""
import signal
import unittest

from gpu_account import GpuAccount
from harness import SoftGpuTest, wait_for

GPU_SECONDS = 2


class Shares:
    """Rules that hold for every actuator."""

    CONFIG = None
    SPEC = "1x1GiB,speed=64M"

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)
        self.account = GpuAccount(self)

    def busy(self, vgpu):
        # Enough is queued that a host that lags does not leave the GPU without work in the middle of a turn.
        tenant = self.tenant_in(vgpu, "--kernel-us", "500", "--depth", "40", "--ahead", "4")
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def shares(self, *tenants):
        return self.account.shares([tenant.pid for tenant in tenants], GPU_SECONDS)

    def finish(self, *tenants):
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)

    def test_limit_and_weights_hold_beside_each_other(self):
        """                          limited  heavy  light
        right                            10     80     10
        without the limit                40     53      7
        without weights                  10     45     45
        weights the wrong way round      10     10     80
        all alike                        33     33     33
        only one ever runs              0 or 100
        """
        self.create("limited", compute_limit=10, compute_weight=600)
        self.create("heavy", compute_weight=800)
        self.create("light", compute_weight=100)
        tenants = [self.busy(name) for name in ("limited", "heavy", "light")]
        limited, heavy, light = shares = self.shares(*tenants)
        self.assertLess(limited, 22, shares)
        self.assertGreater(heavy / light, 3, shares)
        self.assertGreater(min(shares), 2, shares)
        self.finish(*tenants)

    def test_a_request_is_met_beside_a_program_that_has_none(self):
        """80 % and half of the rest, 90 : 10. Without requests 50 : 50, of the wrong one 10 : 90."""
        self.create("promised", compute_request=80)
        self.create("rest")
        tenants = [self.busy("promised"), self.busy("rest")]
        shares = self.shares(*tenants)
        self.assertGreater(shares[0], 70, shares)
        self.assertGreater(shares[1], 2, shares)
        self.finish(*tenants)

    def test_processes_of_one_vgpu_share_its_limit(self):
        """Three of them have 15 % together; each by itself would have 15, and so all 45; without a limit 50 or more."""
        self.create("team", compute_limit=15)
        self.create("other")
        tenants = [self.busy("team") for _ in range(3)] + [self.busy("other")]
        shares = self.shares(*tenants)
        self.assertLess(sum(shares[:3]), 30, shares)
        self.assertGreater(min(shares), 1, shares)
        self.finish(*tenants)

    def test_a_vgpu_that_is_resized_while_it_runs_follows(self):
        """10 %, then half. If nothing changes, 10 twice."""
        self.create("team", compute_limit=10)
        self.create("other")
        tenants = [self.busy("team"), self.busy("other")]
        self.assertLess(self.shares(*tenants)[0], 25)
        self.change("team", compute_limit=100)
        self.assertGreater(self.shares(*tenants)[0], 33)
        self.finish(*tenants)


class SharesByGates(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'off'\n"


class SharesByChannels(Shares, SoftGpuTest):
    CONFIG = "[channels]\ncontrol = 'auto'\n"


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
        wait_for("the token to come back", lambda: self.vgpu("c")["state"] == "idle")
        tenant = self.tenant("a")
        tenant.makes_progress(50)
        tenant.finish()
        self.assertEqual(shell.ok("count")["count"], 10)


if __name__ == "__main__":
    unittest.main()

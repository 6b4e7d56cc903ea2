"""The driver, tesserad and the kubelet are killed while claims come and go: nothing is lost and nothing is left."""
import concurrent.futures
import random
import signal
import time
import unittest

from driver_test import BUSY, CLAIMS, DRIVER, DriverTest, name_of, uid_of
from harness import wait_for
from kubelet import KubeletError

CLAIMS_AT_ONCE, ROUNDS = 12, 9
LONGEST_S = 0.25  # in which a dozen claims are prepared


class Kills(DriverTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(17)
        self.start_daemon()
        self.start_driver()
        self.wait_for_slice()

    def kill_driver(self):
        self.end_driver(signal.SIGKILL)
        self.start_driver()

    def kill_daemon(self):
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()

    def restart_kubelet(self):
        self.kubelet.restart()
        self.kubelet.wait_registered(DRIVER)

    def all_done(self, ask, claims):
        """Asks again and again, as the kubelet does, until no claim has an error."""
        def answered():
            try:
                return not any(each.error for each in ask(claims).values())
            except KubeletError:
                return False
        wait_for("all claims", answered)

    def while_killed(self, kill, ask, claims):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(lambda: [self.quietly(ask, [claim]) for claim in claims])
            time.sleep(self.random.uniform(0, LONGEST_S))  # the moment is the test's subject
            kill()
            asked.result()

    @staticmethod
    def quietly(ask, claims):
        try:
            return ask(claims)
        except KubeletError:
            return None  # whoever was asked has died

    def test_whoever_is_killed_nothing_is_lost_or_left(self):
        kills = [self.kill_driver, self.kill_daemon, self.restart_kubelet]
        for number in range(ROUNDS):
            kill = kills[number % len(kills)]
            claims = [self.allocated(f"c{number}-{i}", memory="128Mi", compute=1) for i in range(CLAIMS_AT_ONCE)]
            with self.subTest(kill=kill.__name__, round=number):
                self.while_killed(kill, self.kubelet.prepare, claims)
                self.all_done(self.kubelet.prepare, claims)
                self.assertEqual(set(self.vgpus()), {name_of(claim) for claim in claims})
                self.assertEqual(self.cdi_files(), sorted(f"tessera.dev-claim_{uid_of(claim)}.json" for claim in claims))
                for claim in claims:
                    self.assertIn(":", self.variables(claim)["TESSERA_VGPU"])
                tenant = self.program_of(claims[0], *BUSY)
                tenant.makes_progress()
                tenant.finish()
                self.while_killed(kill, self.kubelet.unprepare, claims)
                self.all_done(self.kubelet.unprepare, claims)
                self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))
            for claim in claims:
                self.server.delete(CLAIMS, claim["metadata"]["name"], "default")


if __name__ == "__main__":
    unittest.main()

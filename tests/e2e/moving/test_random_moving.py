"""Random operations on programs that leave their GPUs, come back, go to others, are frozen and evicted, or end; and on
who does that. Meanwhile the daemon moves some by itself (rebalance.load).

$TESSERA_MOVING_STEPS: how many (100); $TESSERA_MOVING_SEED: which (another one each time, printed where the test fails)."""
import os
import random
import signal
import unittest

from moving import MIB, MovingTest, wait_for


GANG = ("gang-0", "gang-1")  # vGPUs of one program


class RandomMoving(MovingTest):
    SPEC = "2x1GiB"
    CONFIG = MovingTest.CONFIG + "[rebalance]\nload = true\n"
    SIZE = 192 * MIB

    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("TESSERA_MOVING_SEED", random.SystemRandom().randrange(1 << 32)))
        self.random = random.Random(self.seed)
        self.words = iter(range(0x1000, 0x100000))
        self.done = []
        self.shells, self.tenants = {}, {}

    def start_one(self, name):
        if name == "gang":
            self.shells[name] = self.shell_on_all(GANG, (96 * MIB, 96 * MIB), (next(self.words), next(self.words)))
        elif name.startswith("shell"):
            self.shells[name] = self.start_program(name, word=next(self.words))
        else:
            self.tenants[name] = self.tenant_in(name, "--kernel-us", 500, "--memory", "64M")
            self.tenants[name].makes_progress()

    def pid(self, name):
        return (self.shells.get(name) or self.tenants.get(name)).pid

    # ---- operations ----

    def act_on(self, name, verb):
        """Begins; what cannot be now is refused."""
        for vgpu in GANG if name == "gang" else (name,):
            self.api("POST", f"/v1/vgpus/{vgpu}/{verb}", {"to_bytes": 0} if verb == "evict" else {})

    def migrate(self, name):
        if name == "gang":
            self.api("POST", f"/v1/processes/{self.pid(name)}/migrate", {"gpus": self.random.choice((["0", "1"], ["1", "0"]))})
        else:
            self.api("POST", f"/v1/vgpus/{name}/migrate", {"gpus": [str(self.random.randrange(2))]})

    def settle(self, name):
        """Brings it back, and lets it go on."""
        def is_back():
            self.act_on(name, "thaw")
            self.act_on(name, "resume")
            _, _, listed = self.api("GET", "/v1/processes")
            its = [each for each in listed["processes"] if each["pid"] == self.pid(name)]
            return len(its) == (2 if name == "gang" else 1) and all(each["vgpu"] and not each["suspension"] for each in its)
        wait_for(f"{name} to be back", is_back)

    def check(self, name):
        self.settle(name)
        if name == "gang":
            self.reaches_all(self.shells[name])
        elif name in self.shells:
            self.goes_on(self.shells[name])
        else:
            self.tenants[name].makes_progress()

    def reaches_all(self, shell):
        """From either GPU."""
        for here in self.random.sample((0, 1), 2):
            for number in self.random.sample((0, 1), 2):
                self.expect_words(shell, number, on=here)

    def kill(self, name):
        child = (self.shells.pop(name, None) or self.tenants.pop(name)).child
        child.kill()
        child.wait()
        self.act_on(name, "thaw")  # the vGPU
        wait_for(f"{name} to be where it goes", lambda: all(self.vgpu(vgpu)["migrating_to"] is None
                                                            for vgpu in (GANG if name == "gang" else (name,))))
        self.start_one(name)

    def kill_mover(self, _):
        pid = self.random.choice(self.json("gpus")["gpus"])["swap"]["mover_pid"]
        if pid:
            os.kill(pid, signal.SIGKILL)

    def restart(self, _):
        self.restart_daemon(self.random.choice((signal.SIGKILL, signal.SIGTERM)))  # programs come back to it meanwhile

    def test_nothing_is_lost(self):
        names = ("shell-0", "shell-1", "tenant-0", "tenant-1", "gang")
        for number, name in enumerate(GANG):
            self.create(name, gpu=number)
        for name in names:
            if name != "gang":
                self.create(name)
            self.start_one(name)
        operations = {
            "suspend": (8, lambda name: self.act_on(name, "suspend")),
            "resume": (6, lambda name: self.act_on(name, "resume")),
            "migrate": (6, self.migrate), "evict": (3, lambda name: self.act_on(name, "evict")),
            "freeze": (2, lambda name: self.act_on(name, "freeze")), "thaw": (2, lambda name: self.act_on(name, "thaw")),
            "check": (4, self.check), "kill": (1, self.kill), "kill the mover": (1, self.kill_mover),
            "restart the daemon": (0.5, self.restart)}
        weights = [weight for weight, _ in operations.values()]
        try:
            for _ in range(int(os.environ.get("TESSERA_MOVING_STEPS", 100))):
                name = self.random.choice(names)
                kind, = self.random.choices(list(operations), weights)
                self.done.append(f"{kind} {name}")
                operations[kind][1](name)
            for name in names:
                self.done.append(f"last check {name}")
                self.check(name)
            for tenant in self.tenants.values():
                tenant.finish()
            for shell in self.shells.values():
                shell.end()
            self.assert_nothing_is_left()
        except Exception as error:
            raise AssertionError(f"seed {self.seed}, after {self.done}: {error}") from error


if __name__ == "__main__":
    unittest.main()

"""Common base of the tests of gangs that share the time of two GPUs."""
from harness import SoftGpuTest


class GangTest(SoftGpuTest):
    """The vGPUs of gang "a" are "a0" and "a1", on the first GPU and the second."""
    SPEC = "2x1GiB,speed=4M"
    LAUNCHES, SPINS = 30, 20_000

    def states(self):
        """Of one moment."""
        return {vgpu["name"]: vgpu["state"] for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]}

    def look(self, gangs=("a", "b")):
        """The gangs that run on both GPUs; none runs on one and waits on the other, and no two of them run."""
        states = self.states()
        running = set()
        for name in gangs:
            both = {states[f"{name}0"], states[f"{name}1"]}
            self.assertNotEqual(both, {"running", "waiting"}, states)
            if both == {"running"}:
                running.add(name)
        self.assertLess(len(running), 2, states)
        return running

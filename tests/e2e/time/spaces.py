"""Common base of the tests of spaces."""
from harness import SoftGpuTest


class SpacesTest(SoftGpuTest):
    CONFIG = None
    SPEC = "1x1GiB,sms=100,speed=64M"
    BUSY = ("--kernel-us", "500", "--depth", "40", "--ahead", "4")

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)

    def tearDown(self):
        for space in self.spaces():
            for name in space["vgpus"]:
                self.api("DELETE", f"/v1/vgpus/{name}?force=1")
        super().tearDown()

    def spaces(self):
        try:
            return self.api("GET", "/v1/spaces")[2]["spaces"]
        except OSError:
            return []

    def space(self, name):
        return self.api("GET", f"/v1/spaces/{name}")[2]

    def member(self, name, space="a", **fields):
        return self.create(name, space=space, **fields)

    def busy(self, vgpu):
        tenant = self.tenant_in(vgpu, *self.BUSY)
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def refused(self, body, path="/v1/vgpus"):
        status, _, problem = self.api("POST", path, body)
        self.assertGreaterEqual(status, 400, problem)
        return problem["detail"]

"""What claims and pods may ask of the DRA driver, and what they are told."""
import json
import os
import signal
import unittest

from driver_test import BUSY, CLAIMS, DRIVER, NODE, DriverTest, name_of, parameters, uid_of
from harness import GIB, wait_for, write_line
from messages import dra_health


class Claims(DriverTest):
    SPEC = "2x4GiB,sms=100"

    def setUp(self):
        super().setUp()
        self.faults = self.run_dir / "faults"
        os.mkfifo(self.faults)
        self.env["TESSERA_SOFT_FAULTS"] = str(self.faults)
        self.start_daemon()
        self.start_driver()
        self.wait_for_slice()

    def pod(self, *claims, name="web-0", config=None):
        meta = {"name": name, "namespace": "default"}
        if config is not None:
            meta["annotations"] = {"gpu.tessera.dev/config": json.dumps(config)}
        entries = [{"name": f"c{i}", "resourceClaimName": claim["metadata"]["name"]} for i, claim in enumerate(claims)]
        return self.server.create("pods", {"metadata": meta, "spec": {"nodeName": NODE, "resourceClaims": entries},
                                           "status": {"phase": "Running"}})

    def annotate(self, config, pod="web-0"):
        text = config if config is None or isinstance(config, str) else json.dumps(config)
        self.server.patch("pods", pod, {"metadata": {"annotations": {"gpu.tessera.dev/config": text}}}, "default")

    def ready(self, name, **options):
        claim = self.allocated(name, memory="1Gi", **options)
        self.assertEqual(self.prepare(claim).error, "")
        return claim

    def wait_for_condition(self, claim, kind, status):
        try:
            return wait_for(f"condition {kind}", lambda: (self.condition(claim, kind) or [""])[0] == status
                            and self.condition(claim, kind))
        except AssertionError as error:
            raise AssertionError(f"{error}: it is {self.condition(claim, kind)}") from None

    def told(self, health):
        """What the driver told next, by device."""
        names = dra_health.HealthStatus
        return {each.device.device_name: (names.Name(each.health), each.message) for each in next(health).devices}

    def told_until(self, health, state):
        """Once a device is so. It is told again and again."""
        while True:
            told = self.told(health)
            if state in {each for each, _ in told.values()}:
                return told

    # ---- who may use it ----

    def test_a_pod_cannot_join_the_claim_of_another_one(self):
        mine, other = self.ready("mine"), self.ready("other")
        names = self.variables(mine)["TESSERA_VGPU"]
        key = names.partition(":")[2]
        for stolen in (name_of(other), f"{name_of(other)}:{key}", f"{names},{name_of(other)}"):
            thief = self.program_of(mine, TESSERA_VGPU=stolen)
            out, err = thief.child.communicate(timeout=60)
            self.assertNotEqual(thief.child.returncode, 0, out)
            self.assertRegex(err, "is joined with its key only|no vGPU")
        self.assertEqual((self.cdi / f"tessera.dev-claim_{uid_of(mine)}.json").stat().st_mode & 0o777, 0o600)
        self.assertNotIn(key, json.dumps(self.api("GET", "/v1/vgpus")[2]))
        self.stop_daemon()
        self.start_daemon()
        self.program_of(mine, "--seconds=1").child.communicate(timeout=60)
        self.assertEqual(self.vgpu(name_of(other))["processes"], [])

    def test_several_pods_share_a_claim(self):
        claim = self.ready("shared")
        self.assertEqual(self.prepare(claim).error, "")  # for the second pod
        programs = [self.program_of(claim, *BUSY) for _ in range(2)]
        for program in programs:
            program.makes_progress()
        self.assertEqual(len(self.vgpu(name_of(claim))["processes"]), 2)
        for program in programs:
            program.finish()

    def test_claims_of_a_space_run_side_by_side(self):
        fields = {"parameters": parameters(space="serving", sm={"reserved": True})}
        claims = [self.ready(name, sm=sm, **fields) for name, sm in (("llm", 60), ("batch", 40))]
        space = f"default.serving.{claims[0]['status']['allocation']['devices']['results'][0]['device'][:12]}"
        vgpus = [self.vgpu(name_of(claim)) for claim in claims]
        self.assertEqual([(vgpu["space"], vgpu["sm_limit_pct"]) for vgpu in vgpus], [(space, 60), (space, 40)])
        mounts = {each["hostPath"] for each in self.specification(claims[0])["containerEdits"]["mounts"]}
        pipes = self.api("GET", f"/v1/spaces/{space}")[2]["pipe_directory"]
        self.assertTrue({pipes.rpartition("/")[0], "/dev/shm"} <= mounts, mounts)
        programs = [self.program_of(claim, *BUSY) for claim in claims]
        for program in programs:
            program.makes_progress()
        for program in programs:
            program.finish()
        self.assertIsNone(self.allocated("third", memory="1Gi", sm=200, **fields))
        lone = self.allocated("lone", memory="1Gi", sm=50)  # on the second GPU
        self.assertIn("VGpuConfig.space is missing", self.prepare(lone).error)
        for claim in claims:
            self.unprepare(claim)
        self.assertEqual(self.vgpus(), {})

    # ---- what is said ----

    def test_the_status_says_what_became_of_it(self):
        claim = self.ready("good")
        self.assertEqual(self.wait_for_condition(claim, "Ready", "True"), ("True", "Prepared", "its vGPU is ready"))
        (device,) = self.server.get(CLAIMS, "good", "default")["status"]["devices"]
        self.assertEqual(device["data"], {"vgpu": name_of(claim)})
        bad = self.allocated("bad", memory="1Gi", parameters=parameters(compute={"wieght": 3}))
        self.prepare(bad)
        self.assertIn("VGpuConfig.compute.wieght is unknown", self.wait_for_condition(bad, "Ready", "False")[2])
        odd = self.allocated("odd", memory="1Gi", parameters=parameters(**{"x" + "é" * 2000: 1}))  # cut within a character
        self.prepare(odd)
        self.assertIn("VGpuConfig.x", self.wait_for_condition(odd, "Ready", "False")[2])
        self.assertEqual(self.prepare(claim).error, "")

    def test_the_kubelet_is_told_of_a_gpu_that_fails(self):
        health = self.kubelet.watch_health(DRIVER)
        self.addCleanup(health.cancel)
        devices = [each["name"] for each in self.slice()["spec"]["devices"]]
        wait_for("both", lambda: self.told(health) == {name: ("HEALTHY", "") for name in devices})
        write_line(self.faults, "0 lost")
        later = self.told_until(health, "UNHEALTHY")
        self.assertEqual((later[devices[0]][0], later[devices[1]][0]), ("UNHEALTHY", "HEALTHY"))
        self.assertIn("lost", later[devices[0]][1])
        self.server.wait_for(lambda: self.slice()["spec"]["devices"][0].get("taints"))
        self.stop_daemon()
        self.told_until(health, "UNKNOWN")

    # ---- changes while it runs ----

    def test_a_running_pod_is_changed_by_its_annotation(self):
        claim = self.ready("llm", parameters=parameters(compute={"weight": 300}, goal="p99=20ms"))
        tenant = self.program_of(claim, *BUSY)
        tenant.makes_progress()
        self.pod(claim)
        self.annotate({"compute": {"limit": 50}, "memory": {"max": "512Mi"}, "goal": "speed=40%"})
        self.assertEqual(self.wait_for_condition(claim, "Changed", "True")[1:],
                         ("Applied", "by gpu.tessera.dev/config of pod web-0"))
        vgpu = self.vgpu(name_of(claim))
        self.assertEqual((vgpu["compute_limit_pct"], vgpu["memory_max_bytes"], vgpu["compute_weight"], vgpu["goal"]),
                         (50, GIB // 2, 300, "speed=40%"))
        self.annotate({"compute": {"weight": 0}})
        self.assertIn("compute.weight 0 is out of range", self.wait_for_condition(claim, "Changed", "False")[2])
        self.assertEqual(self.vgpu(name_of(claim))["compute_limit_pct"], 50)
        self.annotate("compute: 3")
        wait_for("the complaint", lambda: "no JSON object" in self.condition(claim, "Changed")[2])
        self.annotate(None)
        wait_for("the old terms", lambda: self.vgpu(name_of(claim))["compute_limit_pct"] == 100)
        vgpu = self.vgpu(name_of(claim))
        self.assertEqual((vgpu["memory_max_bytes"], vgpu["compute_weight"], vgpu["goal"]), (GIB, 300, "p99=20ms"))
        tenant.makes_progress()
        tenant.finish()

    def test_changes_outlive_the_driver(self):
        claims = [self.ready(name) for name in ("stays", "goes")]
        for claim in claims:
            self.pod(claim, name=claim["metadata"]["name"], config={"compute": {"weight": 7}})
        for claim in claims:
            wait_for("the change", lambda: self.vgpu(name_of(claim))["compute_weight"] == 7)
            self.wait_for_condition(claim, "Changed", "True")
        self.end_driver(signal.SIGKILL)
        self.server.delete("pods", "goes", "default")
        self.start_driver()
        wait_for("the claim's own terms", lambda: self.vgpu(name_of(claims[1]))["compute_weight"] == 100)
        self.assertEqual(self.vgpu(name_of(claims[0]))["compute_weight"], 7)
        (self.cdi / f"tessera.dev-claim_{uid_of(claims[0])}.json").unlink()
        self.assertEqual(self.prepare(claims[0]).error, "")
        self.assertEqual(self.vgpu(name_of(claims[0]))["compute_weight"], 7)

    def test_an_annotation_that_is_there_first_counts_too(self):
        claim = self.allocated("llm", memory="1Gi")
        self.pod(claim, config={"compute": {"priority": 3}})
        self.assertEqual(self.prepare(claim).error, "")
        wait_for("the change", lambda: self.vgpu(name_of(claim))["compute_priority"] == 3)
        second = self.pod(claim, name="web-1", config={"compute": {"priority": 5}})
        self.server.delete("pods", "web-0", "default")
        wait_for("the second pod's word", lambda: self.vgpu(name_of(claim))["compute_priority"] == 5)
        self.server.delete("pods", second["metadata"]["name"], "default")
        wait_for("the claim's own terms", lambda: self.vgpu(name_of(claim))["compute_priority"] == 8)


if __name__ == "__main__":
    unittest.main()

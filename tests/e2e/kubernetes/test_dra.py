"""The DRA driver of a node beside stand-ins of the kubelet and of the API server, on soft GPUs."""
import signal
import subprocess
import unittest

from driver_test import BUSY, CLAIMS, DRIVER, NODE, SLICES, DriverTest, name_of, parameters, uid_of
from harness import BIN, GIB
from kubelet import REAL_TIMEOUT_S
from scheduler import allocate, claim_of


class Driver(DriverTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.start_driver()
        self.wait_for_slice()

    def test_from_claim_to_vgpu_and_back(self):
        claim = self.allocated("llm", memory="1Gi", compute=40,
                               parameters=parameters(compute={"weight": 300, "limit": 60}, goal="p99=20ms"))
        done = self.prepare(claim)
        self.assertEqual(done.error, "")
        name, share = name_of(claim), claim["status"]["allocation"]["devices"]["results"][0]
        (device,) = done.devices
        self.assertEqual((list(device.request_names), device.pool_name, device.device_name, device.share_id),
                         (["gpu"], NODE, share["device"], share["shareID"]))
        self.assertEqual(list(device.cdi_device_ids), [f"tessera.dev/vgpu={name}"])
        vgpu = self.vgpu(name)
        self.assertEqual((vgpu["memory_request_bytes"], vgpu["memory_limit_bytes"], vgpu["memory_max_bytes"]), (GIB,) * 3)
        self.assertEqual((vgpu["compute_request_pct"], vgpu["compute_limit_pct"], vgpu["compute_weight"], vgpu["goal"]),
                         (40, 60, 300, "p99=20ms"))
        (described,) = self.specification(claim)["devices"]
        self.assertEqual(described["name"], name)
        self.assertRegex(self.variables(claim)["TESSERA_VGPU"], f"^{name}:[0-9a-f]{{32}}$")
        self.assertEqual(self.prepare(claim), done)  # once more
        tenant = self.program_of(claim, *BUSY)
        tenant.makes_progress()
        tenant.finish()
        self.unprepare(claim)
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))
        self.unprepare(claim)

    def test_what_fits_runs_and_the_next_one_waits(self):
        """Per GPU of 4 GiB: three claims of more than a third."""
        claims = [self.allocated(f"c{i}", memory="1.9Gi", compute=40) for i in range(5)]
        self.assertEqual([claim is not None for claim in claims], [True] * 4 + [False])
        for claim in claims[:4]:
            self.assertEqual(self.prepare(claim).error, "")
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in self.vgpus().values()}), 2)
        self.unprepare(claims[0])
        self.server.delete(CLAIMS, "c0", "default")
        late = allocate(self.server, self.server.get(CLAIMS, "c4", "default"), NODE, DRIVER)
        self.assertEqual(self.prepare(late).error, "")

    def test_a_claim_of_several_gpus_is_a_gang(self):
        claim = self.allocated("job", memory="1Gi", count=2)
        done = self.prepare(claim)
        self.assertEqual((done.error, len(done.devices)), ("", 2))
        (cdi_id,) = {name for device in done.devices for name in device.cdi_device_ids}
        vgpus = self.vgpus()
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in vgpus.values()}), 2)
        self.assertEqual(len({vgpu["gang"] for vgpu in vgpus.values()} - {None}), 1)
        (described,) = self.specification(claim)["devices"]
        self.assertEqual(cdi_id, f"tessera.dev/vgpu={described['name']}")
        names = self.variables(claim)["TESSERA_VGPU"].partition(":")[0]
        self.assertEqual(set(names.split(",")), set(vgpus))
        tenant = self.program_of(claim, *BUSY)
        tenant.makes_progress()
        tenant.finish()
        self.unprepare(claim)
        self.assertEqual(self.vgpus(), {})

    def test_what_is_wrong_is_said_and_leaves_nothing(self):
        def refused(name, **options):
            claim = self.allocated(name, memory="1Gi", **options)
            error = self.prepare(claim).error
            self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))
            return error
        self.assertIn("VGpuConfig.memroy is unknown", refused("typo", parameters=parameters(memroy={"max": "2Gi"})))
        self.assertIn("use apiVersion gpu.tessera.dev/v1alpha1", refused("kind", parameters={"kind": "GpuConfig", "apiVersion": "x/v1"}))
        self.assertIn("compute.weight 0 is out of range", refused("weight", parameters=parameters(compute={"weight": 0})))
        self.assertIn("goal", refused("goal", parameters=parameters(goal="fast")))
        twice = allocate(self.server, self.server.create(CLAIMS, claim_of("twice", memory="1Gi", count=2)), NODE, DRIVER,
                         distinct=False)
        self.assertIn("distinctAttribute", self.prepare(twice).error)
        gone = self.allocated("gone", memory="1Gi")
        self.server.delete(CLAIMS, "gone", "default")
        self.assertIn("not found", self.prepare(gone).error)
        again = self.allocated("gone", memory="1Gi")
        self.assertIn("it was deleted and made again", self.prepare(gone).error)
        self.assertEqual(self.prepare(again).error, "")

    def test_the_slice_follows_what_others_take(self):
        self.assertEqual(self.capacity(), {"memory": "4Gi", "swap": self.capacity()["swap"], "compute": "100", "sm": "100"})
        self.create("by-hand", gpu=0, memory_request=str(GIB), compute_request="30")
        self.server.wait_for(lambda: self.capacity()["memory"] == "3Gi")
        self.assertEqual(self.capacity()["compute"], "70")
        claim = self.allocated("llm", memory="1Gi", compute=10)
        self.assertEqual(self.prepare(claim).error, "")
        self.assertEqual(self.capacity(), {**self.capacity(), "memory": "3Gi", "compute": "70"})  # the scheduler counts claims
        self.assertEqual(self.api("DELETE", "/v1/vgpus/by-hand")[0], 204)
        self.server.wait_for(lambda: self.capacity()["memory"] == "4Gi")
        generation = self.slice()["spec"]["pool"]["generation"]
        self.server.delete(SLICES, self.slice()["metadata"]["name"])  # as the kubelet does when a driver was away
        self.wait_for_slice()
        self.assertGreaterEqual(self.slice()["spec"]["pool"]["generation"], 1)
        self.assertLess(generation, 10)

    def test_a_kubelet_that_restarts(self):
        claim = self.allocated("llm", memory="1Gi")
        done = self.prepare(claim)
        self.kubelet.restart()
        self.kubelet.wait_registered(DRIVER)
        self.assertEqual(self.prepare(claim), done)
        self.unprepare(claim)
        self.assertEqual(self.vgpus(), {})

    def test_a_driver_that_is_killed(self):
        claims = [self.allocated(name, memory="1Gi") for name in ("one", "two")]
        done = self.prepare(claims[0])
        self.end_driver(signal.SIGKILL)
        self.start_driver()
        self.assertEqual(self.prepare(claims[0]), done)
        self.server.delete(CLAIMS, "one", "default")  # meanwhile it is gone
        self.unprepare(claims[0])
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))
        self.assertEqual(self.prepare(claims[1]).error, "")

    def test_an_api_server_that_is_away_and_a_token_that_expires(self):
        claim, late = (self.allocated(name, memory="1Gi") for name in ("one", "two"))
        done = self.prepare(claim)
        self.server.stop()
        self.assertEqual(self.prepare(claim), done)
        self.assertIn("does not answer", self.prepare(late).error)
        self.server.start()
        self.server.expire_token()
        self.assertEqual(self.prepare(late).error, "")
        self.server.delete(SLICES, self.slice()["metadata"]["name"])
        self.wait_for_slice()
        self.server.compact()
        self.server.drop_watches()
        self.server.delete(SLICES, self.slice()["metadata"]["name"])
        self.wait_for_slice()

    def test_a_daemon_that_is_away(self):
        claim, late = (self.allocated(name, memory="1Gi") for name in ("one", "two"))
        done = self.prepare(claim)
        self.stop_daemon()
        self.assertIn("no daemon answers", self.prepare(late).error)
        self.assertIn("no daemon answers", self.kubelet.unprepare([claim])[claim["metadata"]["uid"]].error)
        self.start_daemon()
        self.assertEqual(self.prepare(claim), done)
        self.assertEqual(self.prepare(late).error, "")
        for each in (claim, late):
            self.unprepare(each)
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))

    def test_a_lost_checkpoint_leaves_no_strays_but_what_runs(self):
        idle, busy = (self.allocated(name, memory="1Gi") for name in ("idle", "busy"))
        for claim in (idle, busy):
            self.assertEqual(self.prepare(claim).error, "")
        tenant = self.program_of(busy, *BUSY)
        tenant.makes_progress()
        self.end_driver()
        (self.run_dir / "kubelet/plugins" / DRIVER / "checkpoint.json").unlink()
        self.start_driver()
        self.assertEqual(list(self.vgpus()), [name_of(busy)])
        self.assertEqual(self.cdi_files(), [f"tessera.dev-claim_{uid_of(busy)}.json"])
        tenant.makes_progress()
        key = self.variables(busy)["TESSERA_VGPU"]
        self.assertEqual(self.prepare(busy).error, "")
        self.assertEqual(self.variables(busy)["TESSERA_VGPU"], key)  # others of the claim's pods can still join
        tenant.finish()

    def test_a_claim_in_use_is_not_taken_back(self):
        """Its file is lost, as after another --cdi-dir, and cannot be written again at first."""
        claim = self.allocated("llm", memory="1Gi")
        self.assertEqual(self.prepare(claim).error, "")
        tenant = self.program_of(claim, *BUSY)
        tenant.makes_progress()
        names = self.variables(claim)["TESSERA_VGPU"]
        (self.cdi / f"tessera.dev-claim_{uid_of(claim)}.json").unlink()
        self.cdi.rename(self.cdi.with_name("away"))
        for _ in range(2):
            self.assertIn("cannot", self.prepare(claim).error)
        self.cdi.with_name("away").rename(self.cdi)
        self.assertEqual(self.prepare(claim).error, "")
        self.assertEqual(self.variables(claim)["TESSERA_VGPU"], names)
        tenant.makes_progress()
        tenant.finish()

    def test_a_key_that_is_lost(self):
        """With the checkpoint and the file, and while tesserad is away: the vGPU is made anew."""
        claim, late = (self.allocated(name, memory="1Gi") for name in ("llm", "late"))
        self.assertEqual(self.prepare(claim).error, "")
        self.end_driver()
        self.stop_daemon()
        (self.run_dir / "kubelet/plugins" / DRIVER / "checkpoint.json").unlink()
        (self.cdi / f"tessera.dev-claim_{uid_of(claim)}.json").unlink()
        self.start_driver()
        self.start_daemon()
        self.assertEqual(self.prepare(late).error, "")
        self.assertEqual(list(self.vgpus()), [name_of(late)])  # the other one was a stray
        self.assertEqual(self.prepare(claim).error, "")
        tenant = self.program_of(claim, *BUSY)
        tenant.makes_progress()
        tenant.finish()

    def test_a_hundred_and_ten_pods_at_once(self):
        self.kubelet.timeout_s = REAL_TIMEOUT_S
        claims = [self.allocated(f"c{i}", memory="64Mi", compute=0) for i in range(110)]
        done = self.kubelet.prepare(claims)
        self.assertEqual({each.error for each in done.values()}, {""})
        self.assertEqual(len(self.vgpus()), 110)
        self.kubelet.unprepare(claims)
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))


class Start(DriverTest):
    def test_without_a_daemon_it_waits(self):
        self.start_driver()
        self.start_daemon()
        self.wait_for_slice()

    def test_a_checkpoint_that_is_broken_is_said(self):
        self.start_daemon()
        folder = self.run_dir / "kubelet/plugins" / DRIVER
        folder.mkdir(parents=True)
        (folder / "checkpoint.json").write_text("{}")
        done = subprocess.run([BIN / "tessera-kubelet", "--node-name", NODE, "--run-dir", self.run_dir, "--kubelet-dir",
                               self.run_dir / "kubelet", "--cdi-dir", self.cdi, "--api-server", self.server.url, "--ca-file",
                               self.server.ca_file, "--token-file", self.server.token_file],
                              capture_output=True, text=True, timeout=10)
        self.assertEqual(done.returncode, 1)
        self.assertIn("checkpoint.json", done.stderr)
        self.assertEqual((folder / "checkpoint.json").read_text(), "{}")


if __name__ == "__main__":
    unittest.main()

"""The device plugin of a node beside stand-ins of the kubelet and of the API server, on soft GPUs."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, GIB, MIB, SoftGpuTest, wait_for, write_line  # noqa: E402
import containers  # noqa: E402
import manifests  # noqa: E402
from api_server import ApiServer  # noqa: E402
from device_manager import DeviceError, DeviceManager  # noqa: E402
from kubelet import Kubelet  # noqa: E402
from rights import Rights  # noqa: E402

VGPU, NODE = "tessera.dev/vgpu", "worker"


class PluginTest(SoftGpuTest):
    SPEC = "2x4GiB"

    def setUp(self):
        super().setUp()
        self.server = None
        self.kubelet = DeviceManager(self.run_dir / "kubelet").start()
        self.addCleanup(self.kubelet.stop)
        self.cdi = self.run_dir / "cdi"

    def start_api_server(self):
        self.server = ApiServer(self.run_dir / "api").start()
        self.server.rights = Rights(manifests.build("device-plugin"))
        self.addCleanup(self.server.close)
        self.server.create("nodes", {"metadata": {"name": NODE}})

    def start_driver(self, *flags, wait=True):
        times = self.kubelet.registrations + 1
        if self.server:
            flags += ("--api-server", self.server.url, "--ca-file", self.server.ca_file, "--token-file",
                      self.server.token_file)
        self.driver = self.spawn(BIN / "tessera-kubelet", "--serve", "device-plugin", "--node-name", NODE, "--run-dir",
                                 self.run_dir, "--kubelet-dir", self.run_dir / "kubelet", "--device-plugin-dir",
                                 self.kubelet.folder, "--cdi-dir", self.cdi, "--look-seconds", 0.05, *flags)
        if wait:
            self.kubelet.wait_registered(VGPU, times)

    def kill_driver(self):
        self.driver.kill()
        self.driver.wait()
        self.kubelet.wait_gone(VGPU)

    def pod(self, name, vgpus=1, annotations=None, **limits):
        """A pod that the scheduler has sent here and the kubelet has admitted. Its devices."""
        if self.server:
            resources = {VGPU: str(vgpus), **{f"tessera.dev/{word}": str(value) for word, value in limits.items()}}
            annotations = {f"tessera.dev/{word}": value for word, value in (annotations or {}).items()}
            self.server.create("pods", {"metadata": {"name": name, "annotations": annotations},
                                        "spec": {"nodeName": NODE, "containers": [
                                            {"name": "main", "resources": {"limits": resources, "requests": resources}}]},
                                        "status": {"phase": "Pending"}})
        return self.kubelet.admit(name, {"main": {VGPU: vgpus}})["main"][VGPU]

    def started(self, name, **words):
        """The vGPU of a new pod, whose container has started."""
        ids = self.pod(name, **words)
        self.kubelet.start_container(name)
        return self.settled(self.name_of(ids[0]))

    def settled(self, name):
        """The vGPU, when its metrics name its pod: nothing is changed any more."""
        wait_for("labels", lambda: "pod" in self.vgpu(name)["labels"])
        return self.vgpu(name)

    def refused(self, name, **words):
        self.pod(name, **words)
        with self.assertRaises(DeviceError) as refused:
            self.kubelet.start_container(name)
        return str(refused.exception)

    def end_pod(self, name):
        if self.server:
            self.server.delete("pods", name)
        self.kubelet.remove(name)

    @staticmethod
    def name_of(device):
        return "device-plugin." + device.replace("::", ".")

    def vgpus(self):
        return {vgpu["name"]: vgpu for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]}

    def specification(self):
        """The only one."""
        (file,) = self.cdi_files()
        return json.loads((self.cdi / file).read_text())

    def program(self):
        return containers.program(self, self.specification(), "--kernel-us=200", "--report-every=10")

    def cdi_files(self):
        return sorted(path.name for path in self.cdi.iterdir())

    def wait_freed(self):
        wait_for("all to be freed", lambda: (self.vgpus(), self.cdi_files()) == ({}, []))


class WithoutApiServer(PluginTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_from_device_to_vgpu_and_back(self):
        self.start_driver("--vgpus-per-gpu", 3)
        devices = self.kubelet.healthy(VGPU)
        self.assertEqual(sorted(each.rpartition("::")[2] for each in devices), ["0", "0", "1", "1", "2", "2"])
        self.assertEqual(len({each.rpartition("::")[0] for each in devices}), 2)
        (device,) = self.pod("llm")
        name = self.name_of(device)
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))  # nothing before the container starts
        told = self.kubelet.start_container("llm")
        self.assertEqual([each.name for each in told.cdi_devices], [f"tessera.dev/vgpu={name}"])
        self.assertEqual(dict(told.annotations), {"cdi.k8s.io/tessera.dev_vgpu": f"tessera.dev/vgpu={name}"})
        vgpu = self.settled(name)
        self.assertEqual((vgpu["gpu_uuid"], vgpu["memory_request_bytes"], vgpu["memory_max_bytes"], vgpu["compute_weight"]),
                         (device.rpartition("::")[0], 0, 4 * GIB, 100))
        self.assertEqual(self.cdi_files(), [f"tessera.dev-vgpu_{name}.json"])
        self.assertEqual(self.specification()["devices"][0]["name"], name)
        self.assertRegex(containers.variables(self.specification())["TESSERA_VGPU"], f"^{name}:[0-9a-f]{{32}}$")
        tenant = self.program()
        tenant.makes_progress()
        tag = vgpu["tag"]
        tenant.finish()
        self.kubelet.told.refuse = 3
        self.kubelet.start_container("llm")  # it starts again
        self.assertEqual(self.kubelet.told.refuse, 0)
        self.assertEqual(self.vgpu(name)["tag"], tag)
        self.end_pod("llm")
        self.wait_freed()

    def test_who_had_a_device_before_has_no_key_to_it(self):
        self.start_driver("--vgpus-per-gpu", 1)
        first = self.started("one")["name"]
        (file,) = self.cdi_files()
        old = containers.variables(self.specification())["TESSERA_VGPU"]
        self.kubelet.start_container("one")  # once more
        self.assertEqual(containers.variables(self.specification())["TESSERA_VGPU"], old)
        self.end_pod("one")
        self.pod("two", vgpus=2)  # all devices
        self.kubelet.start_container("two")
        wait_for("the old file to be removed", lambda: file not in self.cdi_files())
        names, _, key = containers.variables(self.specification())["TESSERA_VGPU"].partition(":")
        self.assertIn(first, names.split(","))
        self.assertNotEqual(key, old.partition(":")[2])

    def test_a_container_with_several_is_a_gang(self):
        self.start_driver()
        ids = self.pod("job", vgpus=3)
        told = self.kubelet.start_container("job")
        vgpus = self.vgpus()
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in vgpus.values()}), 2)
        self.assertEqual(sorted(vgpu["compute_weight"] for vgpu in vgpus.values()), [100, 200])
        self.assertEqual(len({vgpu["gang"] for vgpu in vgpus.values()} - {None}), 1)
        (described,) = self.specification()["devices"]
        self.assertEqual([each.name for each in told.cdi_devices], [f"tessera.dev/vgpu={described['name']}"])
        names = containers.variables(self.specification())["TESSERA_VGPU"].partition(":")[0]
        self.assertEqual(set(names.split(",")), set(vgpus))
        self.assertLessEqual(set(vgpus), {self.name_of(each) for each in ids})
        tenant = self.program()
        tenant.makes_progress()
        tenant.finish()
        self.end_pod("job")
        self.wait_freed()

    def test_pods_are_packed(self):
        self.start_driver("--vgpus-per-gpu", 3)
        gpus = [self.started(f"p{i}")["gpu"] for i in range(6)]
        self.assertEqual((len(set(gpus[:3])), len(set(gpus))), (1, 2))
        with self.assertRaisesRegex(DeviceError, "Requested: 1, Available: 0"):
            self.pod("p6")

    def test_a_kubelet_that_restarts(self):
        self.start_driver()
        vgpu = self.started("llm")
        self.kubelet.restart()
        self.kubelet.wait_registered(VGPU, 2)
        self.kubelet.start_container("llm")
        self.assertEqual(self.vgpu(vgpu["name"])["tag"], vgpu["tag"])
        self.kubelet.stop()
        self.kubelet.refuse_next = "not yet"
        self.kubelet.start()
        self.kubelet.wait_registered(VGPU, 3)
        self.assertEqual(self.kubelet.refused, ["not yet"])
        self.end_pod("llm")
        self.wait_freed()
        self.driver.terminate()
        said = self.driver.communicate(timeout=10)[1]
        self.assertEqual(said.count("the kubelet does not register tessera.dev/vgpu: not yet"), 1)

    def test_a_connection_that_is_lost(self):
        self.start_driver()
        self.kubelet.forget(VGPU)
        self.kubelet.wait_registered(VGPU, 2)

    def test_a_driver_that_is_killed_at_each_step(self):
        self.start_driver()
        (device,) = self.pod("llm")
        self.kill_driver()
        self.start_driver()
        self.kubelet.start_container("llm")
        self.kill_driver()
        self.start_driver()
        self.assertEqual(set(self.vgpus()), {self.name_of(device)})
        self.kubelet.start_container("llm")
        self.kill_driver()
        self.end_pod("llm")  # while it is away
        number = device.partition("::")[0] + ".9"
        self.create(f"device-plugin.{number}", gpu=0)  # as if it was killed between two steps
        (self.cdi / "tessera.dev-vgpu_device-plugin.2-gpus.0.json").write_text("{}")
        self.start_driver()
        self.wait_freed()
        self.driver.terminate()
        self.assertEqual(self.driver.wait(10), 0)

    def test_a_daemon_that_is_away(self):
        self.stop_daemon()
        self.start_driver(wait=False)
        self.start_daemon()
        self.kubelet.wait_registered(VGPU)
        vgpu = self.started("one")
        self.stop_daemon()
        self.assertEqual(len(self.kubelet.healthy(VGPU)), 20)
        self.assertIn("no daemon answers", self.refused("two"))
        self.start_daemon()
        self.kubelet.start_container("two")
        self.assertEqual(self.vgpu(vgpu["name"])["gpu_uuid"], vgpu["gpu_uuid"])
        self.assertEqual(len(self.vgpus()), 2)
        for name in ("one", "two"):
            self.end_pod(name)
        self.wait_freed()

    def test_what_runs_is_not_removed_and_what_is_lost_is_made_again(self):
        """As after a restart of a kubelet that cannot ask the API server which pods there are."""
        self.start_driver()
        vgpu = self.started("llm")
        tenant = self.program()
        tenant.makes_progress()
        told = self.kubelet.told
        with told.lock:
            pods, told.pods = told.pods, {}
        wait_for("the file to be removed", lambda: not self.cdi_files())
        tenant.makes_progress()
        self.assertIn(vgpu["name"], self.vgpus())
        tenant.finish()
        self.wait_freed()
        with told.lock:
            told.pods = pods
        wait_for("the vGPU to be made again", lambda: vgpu["name"] in self.vgpus())

    def test_a_gpu_that_fails(self):
        fifo = self.run_dir / "faults"
        os.mkfifo(fifo)
        self.stop_daemon()
        self.env["TESSERA_SOFT_FAULTS"] = str(fifo)
        self.start_daemon()
        self.start_driver()
        write_line(fifo, "0 lost")
        self.kubelet.wait("devices that are not healthy", lambda: len(self.kubelet.healthy(VGPU)) == 10)
        failed = self.api("GET", "/v1/gpus")[2]["gpus"][0]["uuid"]
        self.assertFalse([each for each in self.kubelet.healthy(VGPU) if failed in each])

    def test_a_container_that_is_not_listed_does_not_start(self):
        self.start_driver()
        self.pod("init")
        self.kubelet.told.remove("init")
        with self.assertRaisesRegex(DeviceError, "lists no container that has .* an init container"):
            self.kubelet.start_container("init")
        self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))

    def test_a_hundred_and_ten_pods_at_once(self):
        self.start_driver("--vgpus-per-gpu", 55)
        for i in range(110):
            self.pod(f"p{i}")
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            list(pool.map(self.kubelet.start_container, [f"p{i}" for i in range(110)]))
        self.assertEqual((len(self.vgpus()), len(self.cdi_files())), (110, 110))
        for i in range(110):
            self.end_pod(f"p{i}")
        self.wait_freed()


class WithApiServer(PluginTest):
    def setUp(self):
        super().setUp()
        self.start_api_server()
        self.start_daemon()

    def capacity(self):
        return self.server.get("nodes", NODE).get("status", {}).get("capacity", {})

    def test_limits_of_the_pod_hold(self):
        self.start_driver()
        vgpu = self.started("hami", gpumem=1024, gpucores=30)
        self.assertEqual((vgpu["memory_request_bytes"], vgpu["memory_limit_bytes"], vgpu["memory_max_bytes"]), (GIB,) * 3)
        self.assertEqual((vgpu["compute_request_pct"], vgpu["compute_limit_pct"]), (30, 30))
        shell = containers.shell_with_context(self, self.specification())
        shell.ok("allocate", "alloc", 512 * MIB)
        self.assertEqual(shell.ask("allocate", "alloc", 512 * MIB)["result"], 2)  # its context needs some, too
        shell.end()
        vgpu = self.started("fast", annotations={"gpu_quota_request": "0.5", "gpu_quota_limit": "0.8",
                                                 "gpu_sm_partition": "30", "gpu_mem": "1500000000"})
        self.assertEqual((vgpu["memory_request_bytes"], vgpu["memory_max_bytes"]), (1500000000,) * 2)
        self.assertEqual((vgpu["compute_request_pct"], vgpu["compute_limit_pct"]), (15, 24))
        vgpu = self.started("swaps", annotations={"memory-max": "3Gi", "weight": "300", "priority": "2", "goal": "p99=20ms"},
                            gpumem=512)
        self.assertEqual((vgpu["memory_limit_bytes"], vgpu["memory_max_bytes"]), (512 * MIB, 3 * GIB))
        self.assertEqual((vgpu["compute_weight"], vgpu["compute_priority"], vgpu["goal"]), (300, 2, "p99=20ms"))
        self.started("two", vgpus=2, gpumem=1024, gpucores=40)
        each = [vgpu for vgpu in self.vgpus().values() if vgpu["gang"]]
        self.assertEqual([(vgpu["memory_max_bytes"], vgpu["compute_limit_pct"]) for vgpu in each], [(GIB // 2, 20)] * 2)

    def test_words_that_are_wrong_are_said_and_leave_nothing(self):
        self.start_driver()
        for i, (why, words) in enumerate({
                "annotation tessera.dev/gpu_memory is unknown; use ": {"annotations": {"gpu_memory": "1Gi"}},
                'gpu_quota_limit is "80"': {"annotations": {"gpu_quota_limit": "80"}},
                "annotation tessera.dev/gpu_mem is wrong": {"annotations": {"gpu_mem": "much"}},
                "has tessera.dev/gpumem and annotation tessera.dev/gpu_mem": {"annotations": {"gpu_mem": "1Gi"}, "gpumem": 1},
                "goal": {"annotations": {"goal": "fast"}},
                "pod default/p5: compute.weight 0 is out of range": {"annotations": {"weight": "0"}},
                "limit tessera.dev/gpucores is wrong": {"gpucores": "some"}}.items()):
            with self.subTest(why):
                self.assertIn(why, self.refused(f"p{i}", **words))
                self.assertEqual((self.vgpus(), self.cdi_files()), ({}, []))

    def test_a_gpu_with_room_is_chosen_and_who_finds_none_waits(self):
        self.start_driver()
        first, gpus = self.pod("first", gpumem=3072), {}  # which does not start yet
        gpus["first"] = first[0].partition("::")[0]
        gpus["second"] = self.started("second", gpumem=3072)["gpu_uuid"]
        self.assertNotEqual(gpus["first"], gpus["second"])
        self.kubelet.start_container("first")
        self.assertRegex(self.refused("late", gpumem=3072), "pod default/late: .*memory")
        there = self.kubelet.allocated["default", "late"]["main"][VGPU][0]
        self.end_pod(next(name for name, gpu in gpus.items() if gpu == there.partition("::")[0]))
        wait_for("its neighbour to be gone", lambda: len(self.vgpus()) == 1)
        self.kubelet.start_container("late")
        self.assertEqual(self.vgpu(self.name_of(there))["memory_request_bytes"], 3 * GIB)

    def test_what_cannot_be_made_whole_leaves_nothing(self):
        self.start_driver()
        self.pod("pair", vgpus=2, gpumem=4096)
        last = max(self.api("GET", "/v1/gpus")[2]["gpus"], key=lambda gpu: gpu["uuid"])  # the second one that is tried
        self.create("by-hand", gpu=last["index"], memory_request=str(3 * GIB))
        with self.assertRaisesRegex(DeviceError, "pod default/pair: .*memory"):
            self.kubelet.start_container("pair")
        asked = self.kubelet.told.asked
        wait_for("some looks", lambda: self.kubelet.told.asked > asked + 3)
        self.assertEqual((list(self.vgpus()), self.cdi_files()), (["by-hand"], []))
        self.assertEqual(self.api("DELETE", "/v1/vgpus/by-hand")[0], 204)
        self.kubelet.start_container("pair")
        self.assertEqual(len(self.vgpus()), 2)

    def test_devices_that_are_given_again_at_once(self):
        self.start_driver("--vgpus-per-gpu", 1)
        old = self.started("old", gpumem=1024)
        self.started("other")
        self.end_pod("old")
        new = self.started("new", gpumem=2048)
        self.assertEqual((new["name"], new["memory_max_bytes"]), (old["name"], 2 * GIB))

    def test_what_is_counted(self):
        self.start_driver()
        self.server.wait_for(self.capacity)
        self.assertEqual(self.capacity(), {"tessera.dev/gpumem": "8192", "tessera.dev/gpucores": "200"})
        self.started("llm", gpumem=1024, gpucores=30)
        self.create("by-hand", gpu=0, memory_request=str(GIB), compute_request="25")
        self.server.wait_for(lambda: self.capacity()["tessera.dev/gpumem"] == "7168")
        self.assertEqual(self.capacity()["tessera.dev/gpucores"], "175")
        self.server.delete("nodes", NODE)
        self.server.create("nodes", {"metadata": {"name": NODE}})
        self.server.wait_for(lambda: self.capacity().get("tessera.dev/gpumem") == "7168")

    def test_an_api_server_that_is_away(self):
        self.start_driver()
        vgpu = self.started("one", gpumem=1024)
        ids = self.pod("two", gpumem=512)
        self.server.stop()
        self.kubelet.start_container("one")
        self.assertEqual(self.vgpu(vgpu["name"])["tag"], vgpu["tag"])
        with self.assertRaisesRegex(DeviceError, "does not answer"):
            self.kubelet.start_container("two")
        self.server.start()
        self.server.expire_token()
        self.kubelet.start_container("two")
        self.assertEqual(self.vgpu(self.name_of(ids[0]))["memory_max_bytes"], 512 * MIB)


class Start(PluginTest):
    def test_beside_the_dra_driver(self):
        self.start_api_server()
        self.start_daemon()
        claims = Kubelet(self.run_dir / "kubelet").start()
        self.addCleanup(claims.stop)
        self.start_driver("--serve", "dra")
        claims.wait_registered("gpu.tessera.dev")
        self.server.wait_for(lambda: self.server.list("resourceslices"))
        self.assertEqual(self.started("hami", gpumem=1024)["memory_max_bytes"], GIB)

    def test_flags_that_are_wrong(self):
        for flags, why in ((("--serve", "csi"), "csi"), (("--vgpus-per-gpu", "0"), "vgpus-per-gpu"),
                           (("--serve", "dra"), "API server")):
            done = subprocess.run([BIN / "tessera-kubelet", "--node-name", NODE, "--run-dir", self.run_dir, *flags],
                                  capture_output=True, text=True, timeout=10, env=self.env)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, re.escape(why))


if __name__ == "__main__":
    unittest.main()

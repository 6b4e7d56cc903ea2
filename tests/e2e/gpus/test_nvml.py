"""A daemon that finds its GPU through NVML, and NVML as programs in a vGPU see it. Both drivers are made up: fake_nvml and
the stub that the benchmarks use."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, DEADLINE_S, GIB, LIB, MIB, NO_DEVICE, TesseraTest, wait_for  # noqa: E402

UUID = "11111111222233334444555555555555"  # of fake_nvml's GPU
FAKE_NVML = LIB / "tests" / "fake_nvml.so"
TOTAL = 16 * GIB          # of fake_nvml
CONTEXT = 530 * MIB       # what the daemon takes a context for until it knows better
RESERVE = TOTAL // 50     # kept back by default


class Nvml(TesseraTest):
    def setUp(self):
        super().setUp()
        self.table = self.run_dir / "processes"
        self.env.update(TESSERA_REAL_NVML=str(FAKE_NVML), FAKE_NVML_PROCESSES=str(self.table), STUB_GPU_UUID=UUID,
                        TESSERA_REAL_LIBCUDA=str(LIB / "stub" / "libcuda.so.stub"))
        self.start_daemon()

    def device_says(self, **megabytes_of):
        """Sets NVML's answer for each process, and waits until the daemon has asked."""
        new = self.table.with_suffix(".new")
        new.write_text("".join(f"{pid[1:]} {megabytes * MIB}\n" for pid, megabytes in megabytes_of.items()))
        new.replace(self.table)
        for _ in range(2):  # the first answer may stand on a measurement that was under way before
            processes = self.managed()
        return {process["pid"]: process["memory_measured_bytes"] for process in processes}

    def view(self, vgpu):
        done = self.run_in(vgpu, BIN / "nvml_view")
        out, err = done.communicate()
        self.assertEqual(done.returncode, 0, err)
        return json.loads(out)

    def test_the_gpu_is_found(self):
        gpu, = self.json("gpus")["gpus"]
        self.assertEqual((gpu["name"], gpu["uuid"], gpu["soft"]),
                         ("Made-up GPU", "GPU-11111111-2222-3333-4444-555555555555", False))
        self.assertEqual((gpu["memory_total_bytes"], gpu["memory_reserve_bytes"], gpu["context_bytes"],
                          gpu["memory_unmanaged_bytes"]), (TOTAL, RESERVE, CONTEXT, GIB))

    def test_a_program_sees_its_vgpu(self):
        self.create("team", memory_limit="4G")
        shells = [self.shell_with_context("team") for _ in range(2)]
        seen = self.view("team")
        self.assertEqual((seen["total"], seen["used"], seen["free"]), (4 * GIB, 2 * CONTEXT, 4 * GIB - 2 * CONTEXT))
        self.assertEqual((seen["total_v2"], seen["used_v2"]), (4 * GIB, 2 * CONTEXT))
        self.assertEqual(seen["utilization"], 0)
        self.assertEqual(set(seen["pids"]), {shell.pid for shell in shells})
        insufficient_size = 7
        self.assertEqual((seen["listed"], seen["without_room"]), (0, insufficient_size))
        # A program that only looks is no process of the vGPU.
        self.assertEqual(len(self.vgpu("team")["processes"]), 2)

    def test_a_busy_vgpu_is_seen_to_be(self):
        self.create("team")
        shell = self.shell_with_context("team")

        def busy():
            # The stub's GPU does nothing and takes no time; the share counts until the program is known to be idle.
            for _ in range(100):
                shell.ok("launch_null", 100)
            return self.view("team")["utilization"] > 0

        wait_for("some utilisation", busy)

    def test_without_a_vgpu_the_driver_answers(self):
        self.table.write_text("4242 1048576\n")
        done = self.spawn(BIN / "nvml_view", env={"LD_LIBRARY_PATH": str(LIB / "tessera")})
        seen = json.loads(done.communicate()[0])
        self.assertEqual((seen["total"], seen["used"], seen["utilization"], seen["pids"]), (TOTAL, GIB, 99, [4242]))

    def test_a_context_costs_what_the_device_says(self):
        self.create("team", memory_limit="4G")
        shell = self.shell_with_context("team")
        self.assertEqual(self.current("team"), CONTEXT)
        measured = self.device_says(**{f"p{shell.pid}": 600})
        self.assertEqual(measured, {shell.pid: 600 * MIB})
        self.assertEqual(self.current("team"), 600 * MIB)
        self.assertEqual(self.view("team")["used"], 600 * MIB)
        self.assertEqual(self.json("gpus")["gpus"][0]["context_bytes"], 600 * MIB)
        second = self.shell_with_context("team")
        self.assertEqual(self.current("team"), 1200 * MIB)
        self.device_says(**{f"p{shell.pid}": 600, f"p{second.pid}": 700})
        self.assertEqual(self.current("team"), 1300 * MIB)
        second.end()
        wait_for("its memory to come back", lambda: self.current("team") == 600 * MIB)

    def test_what_the_device_does_not_know_of_stays_charged(self):
        self.create("team", memory_limit="4G")
        shell = self.shell_with_context("team")
        self.assertEqual(self.device_says(**{f"p{shell.pid}": 100}), {shell.pid: 100 * MIB})
        self.assertEqual(self.current("team"), CONTEXT)
        self.assertEqual(self.device_says(p99999=100), {shell.pid: 100 * MIB})

    def test_soft_gpus_are_not_asked_of_this_daemon(self):
        done = self.tessera("run", "--soft", "--", "true", check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn("manages real GPUs", done.stderr)


class OtherMachines(TesseraTest):
    """GPUs of other kinds. test_drivers.py has other versions of the driver."""

    def start(self, expect_ready=True, **kind):
        self.env.update(TESSERA_REAL_NVML=str(FAKE_NVML), STUB_GPU_UUID=UUID,
                        TESSERA_REAL_LIBCUDA=str(LIB / "stub" / "libcuda.so.stub"),
                        **{f"FAKE_NVML_{name.upper()}": value for name, value in kind.items()})
        self.start_daemon(expect_ready=expect_ready)

    def test_a_gpu_without_memory_of_its_own_has_the_machines(self):
        self.start(kind="no-memory")
        gpu, = self.json("gpus")["gpus"]
        self.assertEqual(gpu["memory_total_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self.create("team", memory_limit="1M")
        self.assertIn("counts as its memory", self.daemon_log())

    def test_mig_is_refused_by_name(self):
        self.start(kind="mig", expect_ready=False)
        self.assertEqual(self.daemon.wait(DEADLINE_S), 1)
        log = self.daemon_log()
        self.assertIn("GPU 0 of nvidia-smi (Made-up GPU) is left out", log)
        self.assertIn("all GPUs are divided into MIG instances", log)

    def test_a_mig_instance_is_no_gpu_of_ours(self):
        self.start()
        instance = "MIG-11111111-2222-3333-4444-555555555555"
        done = self.tessera("vgpu", "create", "team", "--gpu", instance, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{instance} is a MIG instance", done.stderr)
        self.create("team")
        done = self.run_in("team", BIN / "driver_shell", env={"CUDA_VISIBLE_DEVICES": instance}, stdin=subprocess.PIPE)
        out, err = done.communicate("init\n")
        self.assertIn("names a MIG instance", err)
        self.assertEqual(json.loads(out.splitlines()[0])["result"], NO_DEVICE)


if __name__ == "__main__":
    unittest.main()

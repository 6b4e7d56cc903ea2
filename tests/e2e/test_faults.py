"""A GPU that fails: Xid and ECC errors and a lost GPU, made up on soft GPUs and in a made-up NVML."""
import os
import unittest

from harness import DEADLINE_S, LIB, TENANT, SoftGpuTest, TesseraTest, wait_for, write_line


class Faults(SoftGpuTest):
    SPEC = "2x1GiB"

    def setUp(self):
        super().setUp()
        self.fifo = self.run_dir / "faults"
        os.mkfifo(self.fifo)
        self.env["TESSERA_SOFT_FAULTS"] = str(self.fifo)
        self.start_daemon()

    def raise_fault(self, line):
        write_line(self.fifo, line)

    def health(self, gpu):
        return self.json("gpus")["gpus"][gpu]["health"]

    def told(self, kind):
        return [event for event in self.json("events", "--last", 1000)["events"] if event["type"] == kind]

    def test_errors_are_told_and_the_gpu_goes_on(self):
        self.create("a", gpu=0)
        tenant = self.tenant_in("a", "--report-every", "10")
        tenant.until("ready")
        self.raise_fault("0 xid 31")
        wait_for("the Xid", lambda: self.health(0)["xid_errors"] == 1)
        event, of_vgpu = self.told("gpu.xid")
        self.assertEqual((event["gpu"], event["vgpu"]), (0, None))
        self.assertEqual((of_vgpu["gpu"], of_vgpu["vgpu"]), (0, "a"))
        self.assertIn("Xid 31 (GPU memory page fault", event["text"])
        self.assertIn("in a", event["text"])
        self.raise_fault("1 ecc")
        wait_for("the ECC error", lambda: self.health(1)["ecc_errors"] == 1)
        self.assertEqual(len(self.told("gpu.ecc")), 1)
        self.assertEqual(self.vgpu("a")["gpu_faults"], 1)
        listed = self.tessera("gpus").stdout
        self.assertIn("GPU 0: 1 Xid and 0 ECC errors; the last: Xid 31", listed)
        metrics = self.metrics()
        for line in ('tessera_gpu_xid_total{gpu="0"} 1', 'tessera_gpu_last_xid{gpu="0"} 31', 'tessera_gpu_failed{gpu="0"} 0',
                     'tessera_gpu_ecc_errors_total{gpu="1"} 1', 'tessera_vgpu_gpu_faults_total{vgpu="a",gpu="0"} 1'):
            self.assertIn(line + "\n", metrics)
        tenant.makes_progress(10)
        self.assertGreater(tenant.finish(), 0)

    def test_a_lost_gpu_takes_nobody_and_the_other_goes_on(self):
        self.create("a", gpu=0)
        self.create("b", gpu=1)
        lost, other = self.tenant_in("a", "--report-every", "10"), self.tenant_in("b", "--report-every", "10")
        lost.until("ready")
        other.until("ready")
        self.raise_fault("0 lost")
        wait_for("the loss", lambda: self.health(0)["failed"])
        self.assertFalse(self.health(1)["failed"])
        self.assertEqual([event["vgpu"] for event in self.told("gpu.failed")], [None, "a"])
        self.assertTrue(self.vgpu("a")["gpu_failed"])
        self.assertFalse(self.vgpu("b")["gpu_failed"])
        states = {p["vgpu"]: p["gpu_failed"] for p in self.json("ps")["processes"] if p["vgpu"]}
        self.assertEqual(states, {"a": True, "b": False})
        self.assertRegex(self.tessera("ps").stdout, rf"{lost.pid}\s+tessera-tenant\s+a\s+0\s+failed")
        self.assertIn("GPU 0: the GPU is lost", self.tessera("gpus").stdout)

        refused = self.tessera("vgpu", "create", "late", "--gpu", 0, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("GPU 0 (Tessera Soft GPU) has failed: the GPU is lost", refused.stderr)
        late = self.run_in("a", TENANT)
        said = late.communicate(timeout=DEADLINE_S)[1]
        self.assertNotEqual(late.returncode, 0)
        self.assertIn("GPU 0 (Tessera Soft GPU) has failed", said)
        self.create("elsewhere")
        self.assertEqual(self.vgpu("elsewhere")["gpu"], 1)
        other.makes_progress(10)
        self.assertGreater(other.finish(), 0)


class NvmlFaults(TesseraTest):
    """The same through NVML's events, of a made-up NVML with one GPU."""

    XID, DOUBLE_BIT_ECC = 0x8, 0x2  # nvmlEventType…

    def test_events_of_nvml_are_heard(self):
        fifo = self.run_dir / "events"
        os.mkfifo(fifo)
        self.env.update(TESSERA_REAL_NVML=str(LIB / "tests" / "fake_nvml.so"), FAKE_NVML_EVENTS=str(fifo))
        self.start_daemon()

        def health(event):
            write_line(fifo, event)
            wait_for("the event to be read", lambda: self.json("gpus")["gpus"][0]["health"] != before)
            return self.json("gpus")["gpus"][0]["health"]

        before = self.json("gpus")["gpus"][0]["health"]
        before = health(f"{self.XID} 94")
        self.assertEqual((before["last_xid"], before["xid_errors"], before["failed"]), (94, 1, False))
        self.assertIn("contained memory error", before["last"])
        before = health(f"{self.DOUBLE_BIT_ECC} 0")
        self.assertEqual((before["ecc_errors"], before["failed"]), (1, False))
        before = health("0 0")  # NVML_ERROR_GPU_IS_LOST
        self.assertTrue(before["failed"])
        self.assertIn("lost", before["why"])


if __name__ == "__main__":
    unittest.main()

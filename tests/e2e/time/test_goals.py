"""A goal is a setting of a vGPU: set by one face, it is read by every other. The daemon keeps it, or says why not."""
import errno
import json
import os
import pathlib
import socket
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_account import GpuAccount  # noqa: E402
from harness import BIN, SoftGpuTest, mounts, wait_for  # noqa: E402

LATENCY, SPEED = "p99=20ms", "speed=80%"
WRONG = ("fast", "p99", "p99=20", "p100=1ms", "speed=0%", "None", "80%")


class Goals(SoftGpuTest):
    def start(self, config=""):
        self.start_daemon(config=config)
        wait_for("the daemon to be complete", lambda: f"serving {self.run_dir}" in self.daemon_log())
        self.file = self.run_dir / "fs/vgpus/team/compute.goal"
        self.has_files = mounts(self.run_dir / "fs") == 1

    def write(self, text):
        file = os.open(self.file, os.O_WRONLY)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)

    def shown(self):
        """By every face that there is here, and they agree."""
        goal = self.vgpu("team")["goal"]
        self.assertEqual(json.loads(self.tessera("vgpu", "show", "team", "--json").stdout)["goal"], goal)
        text = self.tessera("vgpu", "show", "team").stdout
        self.assertRegex(text, rf"(?m)^goal +{'none$' if goal is None else goal + ': '}")
        if self.has_files:
            self.assertEqual(self.file.read_text(), f"{goal or 'none'}\n")
        return goal

    def test_what_one_face_sets_the_others_show(self):
        self.start()
        self.tessera("vgpu", "create", "team", "--goal", LATENCY)
        self.assertEqual(self.shown(), LATENCY)
        self.change("team", goal=SPEED)
        self.assertEqual(self.shown(), SPEED)
        self.tessera("vgpu", "set", "team", "--goal", "p99.9=0.5s")
        self.assertEqual(self.shown(), "p99.9=500ms")
        self.change("team", compute_weight=7)
        self.assertEqual(self.shown(), "p99.9=500ms")
        self.change("team", goal=None)
        self.assertIsNone(self.shown())
        if self.has_files:
            self.write(f"{LATENCY}\n")
            self.assertEqual(self.shown(), LATENCY)
            self.write("none\n")
            self.assertIsNone(self.shown())
        self.change("team", goal=SPEED)
        self.tessera("vgpu", "set", "team", "--goal", "none")
        self.assertIsNone(self.shown())
        texts = [event["text"] for event in self.api("GET", "/v1/events")[2]["events"] if event["type"] == "vgpu.changed"]
        self.assertTrue(any("goal speed=80%" in text for text in texts), texts)

    def test_a_wrong_goal_changes_nothing(self):
        self.start()
        self.create("team", goal=LATENCY)
        before = self.vgpu("team")
        for text in WRONG:
            with self.subTest(text=text):
                status, _, told = self.api("PATCH", "/v1/vgpus/team", {"goal": text, "compute_weight": 7})
                self.assertEqual(status, 400, told)
                self.assertIn("goal", told["detail"])
                self.assertTrue(told["hint"])
                done = self.tessera("vgpu", "set", "team", "--goal", text, "--weight", "7", check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(told["detail"], done.stderr)
                done = self.tessera("vgpu", "create", "other", "--goal", text, check=False)
                self.assertEqual(done.returncode, 1)
                if self.has_files:
                    with self.assertRaises(OSError) as refused:
                        self.write(f"{text}\n")
                    self.assertIn(refused.exception.errno, (errno.EINVAL, errno.ERANGE))
        self.assertEqual(self.api("PATCH", "/v1/vgpus/team", {"goal": 80})[0], 400)
        self.assertEqual(self.vgpu("team"), before)
        self.assertEqual([vgpu["name"] for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]], ["team"])

    def test_a_program_has_its_goal_from_the_command_line(self):
        self.start()
        done = self.tessera("run", *self.RUN_FLAGS, "--goal", SPEED, "--", BIN / "tessera", "vgpu", "ls", "--json")
        self.assertEqual([vgpu["goal"] for vgpu in json.loads(done.stdout)["vgpus"]], [SPEED])
        self.assertEqual(self.tessera("run", *self.RUN_FLAGS, "--goal", "fast", "--", "true", check=False).returncode, 125)

    def test_the_configuration_declares_it_and_the_next_daemon_keeps_it(self):
        self.start(config=f'[vgpu.team]\ngoal = "{LATENCY}"\n')
        self.assertEqual(self.shown(), LATENCY)
        self.create("other", goal=SPEED)
        config = self.run_dir / "config.toml"
        config.write_text(config.read_text().replace(LATENCY, "p95=5ms"))
        self.tessera("reload")
        self.assertEqual(self.shown(), "p95=5ms")
        config.write_text(config.read_text().replace("p95=5ms", "fast"))
        done = self.tessera("reload", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("fast", done.stderr)
        self.assertEqual(self.shown(), "p95=5ms")
        config.write_text(config.read_text().replace("fast", LATENCY))
        self.stop_daemon()
        self.start(config=f'[vgpu.team]\ngoal = "{LATENCY}"\n')
        self.assertEqual((self.shown(), self.vgpu("other")["goal"]), (LATENCY, SPEED))

    def test_bursts_are_counted(self):
        self.start()
        self.create("team", goal="p99=3600s")
        shell = self.shell_with_context("team")
        for _ in range(3):
            count = self.vgpu("team")["bursts"]["count"]
            shell.ok("launch", 1)
            shell.ok("sync")
            wait_for("its burst to end", lambda: self.vgpu("team")["bursts"]["count"] > count)
        bursts = self.vgpu("team")["bursts"]
        self.assertEqual((bursts["violations"], bursts["verdict"]), (0, "none"))
        metrics = self.metrics()
        self.assertIn(f'tessera_vgpu_bursts_total{{vgpu="team",gpu="0"}} {bursts["count"]}\n', metrics)
        self.assertIn('tessera_vgpu_goal_violations_total{vgpu="team",gpu="0"} 0\n', metrics)
        shell.end()


class KeptGoals(SoftGpuTest):
    SPEC = "1x1GiB,speed=4M"
    MEASURED_S = 2  # of GPU time

    def start(self, config=None):
        self.start_daemon(config=config)
        self.account = GpuAccount(self)

    def tenant(self, vgpu, *flags):
        tenant = self.tenant_in(vgpu, "--report-every", "10", *flags)
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def verdict_becomes(self, name, *verdicts):
        def told():
            bursts = self.vgpu(name)["bursts"]
            return bursts if bursts["verdict"] in verdicts else None
        return wait_for(f"the goal of {name} to be {' or '.join(verdicts)}", told)

    def verdicts_told(self, name):
        return [event["text"] for event in self.api("GET", "/v1/events")[2]["events"]
                if event["type"] == "goal" and event["vgpu"] == name]

    def finish(self, *tenants):
        for tenant in tenants:
            self.assertGreater(tenant.finish(), 0)

    def test_a_latency_leaves_the_gaps_to_a_peer(self):
        self.start()
        self.create("serve", goal="p99=200ms")
        self.create("batch")
        serve = self.tenant("serve", "--kernel-us", "500", "--burst", "1", "--depth", "1", "--idle-us", "3000")
        batch = self.tenant("batch", "--kernel-us", "500")
        bursts = self.verdict_becomes("serve", "kept")
        self.assertGreater(bursts["count"], 20)
        self.assertIsNotNone(bursts["solo_p50_us"])  # by audits: the batch job always has work
        self.assertTrue(any(": kept" in text for text in self.verdicts_told("serve")))
        self.assertGreater(self.account.shares([serve.pid, batch.pid], self.MEASURED_S)[1], 50)
        self.assertEqual(self.vgpu("serve")["compute_priority"], 8, "as configured, whatever its terms are")
        self.finish(serve, batch)

    def test_told_requests_are_judged_in_place_of_bursts(self):
        self.start()
        self.create("serve", goal="p99=100us")
        serve = self.tenant("serve", "--kernel-us", "20000", "--burst", "1", "--depth", "1", "--idle-us", "3000")
        self.verdict_becomes("serve", "cannot")
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(told.close)
        path = str(self.run_dir / "requests.sock")
        for wrong in (b"", b"serve", b"serve -1ms\n", b"nobody 1ms", b"serve 0.05ms\n" * 100, b"serve,nobody 0.05ms"):
            told.sendto(wrong, path)
        told.sendto(b"serve\n" + b"serve 0.05ms\n" * 50, path)  # a wrong line takes no right one along
        told.sendto(b"serve 0.04ms", str(self.run_dir / "programs/requests.sock"))
        bursts = self.verdict_becomes("serve", "kept", "tight")
        self.assertEqual(bursts["requests"], 52)  # with the first of those that named two
        self.assertLess(bursts["attained"], 100)
        self.assertIn(", 52 requests told", self.tessera("vgpu", "show", "serve").stdout)
        log = self.daemon_log()
        for why in ("a line without a name or a time", "a time that is none", "no vGPU of that name", "a datagram of more than 1024 bytes"):
            self.assertIn(f"told of a request that does not count: {why}", log)
        told.sendto(b"serve 7ms\n" * 30, path)
        self.assertIn("30 of 82 requests of the last minute", self.verdict_becomes("serve", "missed")["reason"])
        told.sendto(b"serve 7ms\n" * 30, path)
        self.assertIn("more than half of 112 requests", self.verdict_becomes("serve", "cannot")["reason"])
        self.finish(serve)

    def test_requests_of_others_do_not_count(self):
        if os.getuid() != 0:
            self.skipTest("acting as another user needs root")
        self.start()
        self.create("serve", goal="p99=100us")
        path = str(self.run_dir / "requests.sock")

        def tell():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
                told.sendto(b"serve 1ms", path)
        self.run_dir.chmod(0o755)
        self.as_user(65534, tell)
        wait_for("its log", lambda: "told of a request that does not count" in self.daemon_log())
        self.assertEqual(self.vgpu("serve")["bursts"]["requests"], 0)

    def test_what_is_out_of_reach_is_said(self):
        self.start()
        self.create("serve", goal="p99=100us")
        self.create("batch")
        serve = self.tenant("serve", "--kernel-us", "20000", "--burst", "1", "--depth", "1", "--idle-us", "3000")
        batch = self.tenant("batch", "--kernel-us", "500")
        bursts = self.verdict_becomes("serve", "cannot")
        self.assertIn("alone", bursts["reason"])
        self.assertIn("the goal is 0.1 ms", bursts["reason"])
        batch.makes_progress(20)
        self.finish(serve, batch)

    def test_a_speed_is_a_share_and_goes_with_the_goal(self):
        self.start()
        self.create("fast", goal="speed=70%")
        self.create("batch")
        tenants = [self.tenant(name, "--kernel-us", "500") for name in ("fast", "batch")]
        pids = [tenant.pid for tenant in tenants]
        wait_for("the speed", lambda: self.account.shares(pids, self.MEASURED_S)[0] >= 60)
        self.change("fast", goal=None)
        wait_for("equal shares", lambda: 35 <= self.account.shares(pids, self.MEASURED_S)[0] <= 65)
        self.finish(*tenants)

    def test_what_does_not_fit_is_refused_by_name(self):
        self.start()
        self.create("first", goal="speed=60%")
        self.create("second")
        before = self.vgpu("second")
        status, _, told = self.api("PATCH", "/v1/vgpus/second", {"goal": "speed=50%", "compute_weight": 7})
        self.assertEqual(status, 409, told)
        self.assertIn("break the goal speed=60% of vGPU first", told["detail"])
        self.assertEqual(self.vgpu("second"), before)
        done = self.tessera("vgpu", "create", "third", "--goal", "speed=50%", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("vGPU first", done.stderr)
        self.assertEqual(len(self.api("GET", "/v1/vgpus")[2]["vgpus"]), 2)
        self.create("third", compute_request="30")
        self.assertEqual(self.api("PATCH", "/v1/vgpus/third", {"compute_request": "40"})[0], 409)

    def test_gates_measure_a_latency_and_say_so(self):
        self.start(config="[channels]\ncontrol = 'off'\n")
        self.create("serve", goal="p99=200ms")
        self.assertIn("needs channel control", self.vgpu("serve")["bursts"]["reason"])
        serve = self.tenant("serve", "--kernel-us", "500", "--burst", "1", "--depth", "1", "--idle-us", "30000")
        self.assertIn("needs channel control", self.verdict_becomes("serve", "kept")["reason"])
        self.finish(serve)


if __name__ == "__main__":
    unittest.main()

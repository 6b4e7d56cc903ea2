"""A goal is a setting of a vGPU: set by one face, it is read by every other."""
import errno
import json
import os
import unittest

from harness import BIN, SoftGpuTest, UnixConnection, mounts, wait_for

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

    def metrics(self):
        connection = UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

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


if __name__ == "__main__":
    unittest.main()

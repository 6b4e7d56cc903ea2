"""The configuration is read again while programs run, by `tessera reload` and SIGHUP."""
import http.client
import pathlib
import re
import signal
import subprocess
import unittest

from harness import BIN, SoftGpuTest, wait_for


class Reload(SoftGpuTest):
    def write(self, text):
        (self.run_dir / "config.toml").write_text(text)

    def test_what_can_change_changes_and_programs_go_on(self):
        self.start_daemon(config="[sched]\nwindow_ms = 100\n")
        self.create("team", compute_limit=50)
        tenant = self.tenant_in("team")
        tenant.makes_progress()
        self.write('[sched]\nwindow_ms = 400\n[swap]\nsize = "1G"\n[turn]\nmax_ms = 5000\n[priority]\nmin_share = 5\n')
        changes = {c["key"]: c for c in self.json("reload")["changes"]}
        self.assertEqual({key: change["live"] for key, change in changes.items()},
                         {"sched.window_ms": True, "swap.size": False, "turn.max_ms": True, "priority.min_share": True})
        self.assertEqual((changes["sched.window_ms"]["from"], changes["sched.window_ms"]["to"]), ("100", "400"))
        tenant.makes_progress(3)
        self.assertEqual(self.vgpu("team")["compute_limit_pct"], 50)
        # Keys that could not change are told as long as that is so.
        self.assertEqual([c["key"] for c in self.json("reload")["changes"]], ["swap.size"])
        lines = self.tessera("reload").stdout.splitlines()
        self.assertRegex(lines[1], r"^swap\.size +\"50%\" +\"1G\" +when the daemon is restarted$")
        told = [e for e in self.json("events")["events"] if e["type"] == "config.reloaded"]
        self.assertEqual(len(told), 3)
        self.assertIn("sched.window_ms 100 -> 400", told[0]["text"])
        tenant.finish()

    def test_an_error_changes_nothing(self):
        self.start_daemon(config="")
        self.create("team")
        tenant = self.tenant_in("team")
        for text, message in (("[sched]\nwindow_m = 5\nmin_slice_ms = 1\n", "did you mean sched.window_ms?"),
                              ("[sched]\nwindow_ms = 50\n[turn]\nmin_ms = 60000\n", "turn.min_ms is longer"),
                              ("x = [", ":1:")):
            self.write(text)
            done = self.tessera("reload", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        (self.run_dir / "config.toml").unlink()
        self.assertIn("cannot read", self.tessera("reload", check=False).stderr)
        self.write("")
        self.assertEqual(self.json("reload")["changes"], [])
        tenant.makes_progress()

    def test_sighup_does_the_same(self):
        self.start_daemon(config="")
        self.write("[client]\ngrace_s = 5\n")
        self.daemon.send_signal(signal.SIGHUP)
        wait_for("the log", lambda: "client.grace_s 30 -> 5" in self.daemon_log())
        self.write("nonsense")
        self.daemon.send_signal(signal.SIGHUP)
        wait_for("the error", lambda: "configuration not reloaded" in self.daemon_log())
        self.assertTrue(self.answers())

    def test_another_token(self):
        token = self.run_dir / "token"
        self.start_daemon(config=self.api_by_tcp("a" * 32))

        def status(word):
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            self.addCleanup(connection.close)
            connection.request("GET", "/v1/gpus", headers={"Authorization": f"Bearer {word}"})
            return connection.getresponse().status

        self.assertEqual(status("a" * 32), 200)
        token.write_text("short")
        self.assertEqual(self.tessera("reload", check=False).returncode, 1)
        self.assertEqual(status("a" * 32), 200, "what is wrong changes nothing")
        token.write_text("b" * 32)
        self.tessera("reload")
        self.assertEqual((status("a" * 32), status("b" * 32)), (401, 200))
        # A key that is left out takes another value when the daemon starts again; until then it listens.
        self.write("")
        self.assertEqual({c["key"]: c["live"] for c in self.json("reload")["changes"]},
                         {"api.listen": False, "api.token_file": False})
        self.assertEqual(status("b" * 32), 200)

    def test_the_manual_has_every_option(self):
        scd = pathlib.Path(__file__).resolve().parents[2] / "src/server/tesserad.8.scd"
        options = set(re.findall(r"^\*(?:-h\*, \*)?(--[a-z-]+)\*", scd.read_text(), re.MULTILINE))
        help_ = subprocess.run([BIN / "tesserad", "--help"], capture_output=True, text=True).stdout
        self.assertEqual(options, set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", help_, re.MULTILINE)))


if __name__ == "__main__":
    unittest.main()

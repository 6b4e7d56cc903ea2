"""/metrics as Prometheus sees it: its own checker, a real scrape by TCP with a token, dashboard and alerts."""
import json
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from harness import DEADLINE_S, GIB, SoftGpuTest, UnixConnection, free_port, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
TOKEN = "a-token-for-this-test-alone"
# Values that Grafana puts in their places.
VARIABLES = {"$gpu": ".*", "$vgpu": ".*", "$__rate_interval": "1m"}


def promtool(*words, text=None):
    return subprocess.run([shutil.which("promtool") or "promtool", *map(str, words)], input=text, text=True,
                          capture_output=True, timeout=DEADLINE_S)


class Metrics(SoftGpuTest):
    SPEC = "1x512MiB,context=16MiB,pcie=4GB/s,speed=400M"

    def start(self):
        self.start_daemon(config=self.api_by_tcp(TOKEN, '[swap]\nsize = "2G"\nfloor = "1G"\n'))

    def scrape(self, accept=""):
        connection = UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request("GET", "/metrics", headers={"Accept": accept})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            return answer.getheader("Content-Type"), answer.read().decode()
        finally:
            connection.close()

    def busy(self):
        """A program that works, and one whose memory was moved."""
        self.create("team", memory_max="1G", compute_request=30)
        tenant = self.tenant_in("team", "--memory", "100M")
        tenant.makes_progress()
        self.tessera("evict", "team")
        tenant.makes_progress(10)
        self.tessera("freeze", "team")
        self.tessera("thaw", "team")
        return tenant

    def test_promtool_finds_nothing_to_complain_about(self):
        self.start()
        tenant = self.busy()
        kind, text = self.scrape()
        self.assertTrue(kind.startswith("text/plain; version=0.0.4"), kind)
        checked = promtool("check", "metrics", text=text)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        kind, text = self.scrape("application/openmetrics-text; version=1.0.0")
        self.assertTrue(kind.startswith("application/openmetrics-text; version=1.0.0"), kind)
        self.assertTrue(text.endswith("# EOF\n"))
        tenant.finish()

    def test_figures_are_those_of_the_api(self):
        self.start()
        tenant = self.busy()
        tenant.finish()
        vgpu = self.vgpu("team")
        _, text = self.scrape()
        values = dict(re.findall(r'^(tessera_vgpu_\w+\{vgpu="team",gpu="0"[^}]*\}) (\S+)$', text, re.M))
        self.assertGreater(vgpu["moved_out_bytes"], 0)
        for name, value in (("moved_bytes_total{vgpu=\"team\",gpu=\"0\",direction=\"out\"}", vgpu["moved_out_bytes"]),
                            ("memory_max_bytes{vgpu=\"team\",gpu=\"0\"}", GIB),
                            ("memory_peak_bytes{vgpu=\"team\",gpu=\"0\"}", vgpu["memory_peak_bytes"]),
                            ("compute_request_ratio{vgpu=\"team\",gpu=\"0\"}", 0.3),
                            ("processes{vgpu=\"team\",gpu=\"0\"}", 0)):
            self.assertEqual(float(values[f"tessera_vgpu_{name}"]), value, name)
        moves = re.search(r'^tessera_gpu_move_seconds_count\{gpu="0",direction="out"\} (\d+)$', text, re.M)
        self.assertGreater(int(moves[1]), 0)

    def test_series_of_a_vgpu_carry_its_labels(self):
        self.start()
        labels = {"namespace": "ml", "team": 'M\u00fcnchen "a" \\ {}', "empty": ""}
        self.create("team", labels=labels)
        self.create("plain")
        series = 'namespace="ml",team="M\u00fcnchen \\"a\\" \\\\ {}"'
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            lines = self.scrape(accept)[1].splitlines()
            of_team = [line for line in lines if 'vgpu="team"' in line]
            self.assertGreater(len(of_team), 50)
            self.assertEqual([line for line in of_team if series not in line or 'empty=""' not in line], [])
            self.assertEqual([line for line in lines if "namespace" in line and line not in of_team], [])
        checked = promtool("check", "metrics", text=self.scrape()[1])
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        # One daemon ends and another begins.
        self.stop_daemon()
        self.start()
        self.assertEqual(self.vgpu("team")["labels"], labels)
        self.tessera("vgpu", "set", "team", "--label", "team=b")
        self.assertEqual(self.vgpu("team")["labels"], {"team": "b"})
        wrong = self.tessera("vgpu", "set", "team", "--label", "vgpu=x", check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn('"vgpu" is a label of the metrics themselves', wrong.stderr)
        self.tessera("vgpu", "set", "team", "--label", "none")
        self.assertEqual(self.vgpu("team")["labels"], {})

    # ---- a real Prometheus ----

    def start_prometheus(self):
        folder = self.run_dir / "prometheus"
        folder.mkdir()
        config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        config = (config.replace("/etc/prometheus/tessera.token", str(self.run_dir / "token"))
                  .replace("127.0.0.1:9477", f"127.0.0.1:{self.port}").replace("15s", "1s")
                  .replace("tessera.rules.yml", str(DEPLOY / "prometheus" / "tessera.rules.yml")))
        (folder / "prometheus.yml").write_text(config)
        self.prometheus_port = free_port()
        with open(folder / "log", "w") as log:
            self.spawn("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                       f"--web.listen-address=127.0.0.1:{self.prometheus_port}", stdout=subprocess.DEVNULL, stderr=log)

    def ask_prometheus(self, path, **parameters):
        address = f"http://127.0.0.1:{self.prometheus_port}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # it has not started wholly
            self.fail(f"{parameters}: {error.read().decode()}")
        except OSError:
            return None  # it has not started yet

    def result(self, expression):
        data = self.ask_prometheus("/api/v1/query", query=expression)
        return data["result"] if data else []

    def test_prometheus_has_data_for_every_panel_and_alert(self):
        if not shutil.which("prometheus"):
            self.fail("prometheus is not installed; tools/install_packages.sh does that")
        self.start()
        self.start_prometheus()
        tenant = self.busy()
        wait_for("a scrape", lambda: self.result('up{job="tessera"} == 1'), 30)
        # Rates need two scrapes with the histograms' series in them.
        wait_for("rates", lambda: self.result('rate(tessera_vgpu_moved_bytes_total[1m])'), 30)
        dashboard = json.loads((DEPLOY / "grafana" / "tessera.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(expressions), 15)
        for expression in expressions:
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            self.assertTrue(self.result(expression), f"no data for {expression}")
        rules = self.ask_prometheus("/api/v1/rules")["groups"][0]["rules"]
        self.assertGreater(len(rules), 5)
        for rule in rules:
            self.assertNotEqual(rule["health"], "err", rule)
            for metric in set(re.findall(r"\b(tessera_\w+|up)\b(?=[\[{ )]|$)", rule["query"])):
                self.assertTrue(self.result(metric), f"{rule['name']} asks for {metric}, of which there is none")
        # Advice asks for these metrics, too (tests/e2e/plan).
        found = wait_for("advice by these metrics", self.advice, 30)
        self.assertEqual(found["gpus"], 1, found)
        self.assertGreaterEqual(found["vgpus"], 1, found)
        tenant.finish()

    def advice(self):
        done = self.tessera("plan", "--advise", "--prometheus", f"http://127.0.0.1:{self.prometheus_port}", "--for", "12s",
                            "--every", "4s", "--json", check=False)
        if done.returncode != 0:
            self.assertIn("no metrics of tesserad in this time", done.stderr)
        return done.returncode == 0 and json.loads(done.stdout)

    def test_every_alert_fires_when_it_should(self):
        done = promtool("test", "rules", ROOT / "tests" / "prometheus" / "alerts_test.yml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rules = (DEPLOY / "prometheus" / "tessera.rules.yml").read_text()
        tested = (ROOT / "tests" / "prometheus" / "alerts_test.yml").read_text()
        self.assertEqual(sorted(re.findall(r"alert: (\w+)", rules)), sorted(re.findall(r"- name: (\w+)", tested)))

    # ---- the token ----

    def test_the_daemon_does_not_start_without_a_secret_token(self):
        token = self.run_dir / "token"
        config = f'[api]\nlisten = "127.0.0.1:{free_port()}"\ntoken_file = "{token}"\n'
        for text, mode, why in ((None, 0, "No such file"), (TOKEN, 0o644, "other users may read"), ("short", 0o600, "no valid token")):
            if text is not None:
                token.write_text(text)
                token.chmod(mode)
            daemon = self.start_daemon(config=config, expect_ready=False)
            self.assertEqual(daemon.wait(DEADLINE_S), 1)
            self.assertIn(why, self.daemon_log())


if __name__ == "__main__":
    unittest.main()

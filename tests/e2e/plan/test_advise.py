"""tessera plan --advise: on a live daemon, on a file, and by way of a Prometheus."""
import http.server
import json
import pathlib
import shlex
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import SoftGpuTest

MIB = 1 << 20
COLUMNS = ("second,node,gpu,vgpu,duty_pct,memory_mib,request_pct,limit_pct,memory_request_mib,memory_limit_mib,"
           "gpu_memory_mib")


class Advise(SoftGpuTest):
    def advise(self, *words):
        return json.loads(self.tessera("plan", "--advise", "--json", *words).stdout)

    def refused(self, *words):
        """The one line that the command prints when it fails."""
        done = self.tessera("plan", "--advise", *words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def file(self, *rows):
        path = self.run_dir / "use.csv"
        path.write_text("\n".join([COLUMNS, *rows]) + "\n")
        return path


class Live(Advise):
    def test_an_idle_vgpu_with_a_large_request_is_named_and_the_diff_helps(self):
        self.start_daemon()
        self.create("idle", compute_request=40, memory_request="1GiB", memory_limit="1GiB")
        self.create("busy", compute_request=5, memory_request="256MiB")
        tenant = self.tenant_in("busy")
        tenant.makes_progress()
        look = ("--for", "1500ms", "--every", "100ms")
        found = self.advise(*look)
        self.assertEqual(sorted((each["kind"], each["vgpus"][0]["name"]) for each in found["advice"]),
                         [("memory-too-large", "idle"), ("request-too-large", "idle")], found)
        command, = found["commands"]
        self.assertEqual(command, "tessera vgpu set idle --compute 5:100 --memory-request 256M")
        self.assertIn("  " + command + "\n", self.tessera("plan", "--advise", *look).stdout)
        self.assertEqual(self.vgpu("idle")["compute_request_pct"], 40, "it only says so")
        self.tessera(*shlex.split(command)[1:])
        self.assertEqual((self.vgpu("idle")["compute_request_pct"], self.vgpu("idle")["memory_request_bytes"]), (5, 256 * MIB))
        self.assertEqual(self.advise(*look)["advice"], [])
        tenant.makes_progress()
        tenant.finish()

    def test_without_a_daemon_or_vgpus_it_says_so(self):
        self.assertIn("no daemon answers", self.refused("--for", "1s"))
        self.start_daemon()
        self.assertIn("no vGPU was seen", self.refused("--for", "200ms", "--every", "100ms"))
        self.assertIn("--every is longer than --for", self.refused("--for", "1s", "--every", "2s"))


class File(Advise):
    def test_vgpus_of_two_nodes_fit_into_one_gpu(self):
        rows = []
        for second in range(20):
            rows.append(f"{second},n1,0,day,{90 if second < 10 else 0},1000,30,100,1024,4096,80000")
            rows.append(f"{second},n2,0,night,{0 if second < 10 else 90},1000,30,100,1024,4096,80000")
        found = self.advise("--samples", self.file(*rows))
        advice, = found["advice"]
        self.assertEqual((advice["kind"], advice["figures"]), ("together", {"gpus_in_use": 2.0, "gpus_needed": 1.0}))
        self.assertEqual(len(advice["moves"]), 1)
        self.assertTrue(found["commands"][0].startswith("# "), found)

    def test_a_wrong_row_is_named(self):
        self.assertIn("use.csv:3: ", self.refused("--samples", self.file("0,n,0,a,1,1,1,1,1,1,1", "1,n,0,a,1,1")))
        self.assertIn("No such file", self.refused("--samples", self.run_dir / "none.csv"))
        self.assertIn("two sources", self.refused("--samples", "a", "--prometheus", "http://b"))


class FakePrometheus(http.server.BaseHTTPRequestHandler):
    """Answers range queries about one vGPU that does nothing, and remembers them."""
    VALUES = {
        "tessera_vgpu_memory_current_bytes": 100 * MIB,
        "tessera_vgpu_compute_request_ratio": 0.5,
        "tessera_vgpu_compute_limit_ratio": 0.75,
        "tessera_vgpu_memory_request_bytes": 2048 * MIB,
        "tessera_vgpu_memory_limit_bytes": 2048 * MIB,
        "rate(tessera_vgpu_compute_busy_seconds_total[60s])": 0.02,
        "rate(tessera_vgpu_compute_waited_seconds_total[60s])": 0,
        "rate(tessera_vgpu_throttled_seconds_total[60s])": "NaN",
        "tessera_gpu_memory_total_bytes - on(instance, gpu) tessera_gpu_memory_reserve_bytes": 8192 * MIB,
        "tessera_gpu_info": 1,
    }
    answer = None  # in place of what it knows

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        words = dict(urllib.parse.parse_qsl(url.query))
        self.server.asked.append((url.path, words))
        body = self.answer if self.answer is not None else json.dumps(self.known(words))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def known(self, words):
        value = self.VALUES.get(words["query"])
        times = range(int(words["start"]), int(words["end"]) + 1, int(words["step"]))
        labels = {"instance": "n1:9090", "gpu": "0", "vgpu": "a", "name": "Soft"}
        series = [] if value is None else [{"metric": labels, "values": [[at, str(value)] for at in times]}]
        return {"status": "success", "data": {"resultType": "matrix", "result": series}}

    def log_message(self, *_):
        pass


class Prometheus(Advise):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus)
        self.server.asked = []
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tearDown(self):
        FakePrometheus.answer = None
        self.server.shutdown()
        self.server.server_close()
        super().tearDown()

    def test_our_own_metrics_are_read(self):
        found = self.advise("--prometheus", self.url + "/behind/", "--for", "30min", "--every", "60s")
        self.assertEqual(found["commands"], ["# on n1:9090", "tessera vgpu set a --compute 5:75 --memory-request 256M"])
        self.assertEqual(found["seen"], "31 samples of 60 s each")
        self.assertEqual({path for path, _ in self.server.asked}, {"/behind/api/v1/query_range"})
        words = self.server.asked[0][1]
        self.assertEqual((int(words["end"]) - int(words["start"]), words["step"]), (1800, "60"))
        self.assertLess(abs(int(words["end"]) - time.time()), 600)
        # Each question is of a metric that the daemon has.
        self.start_daemon()
        self.create("a", goal="p99=20ms")
        metrics = self.metrics()
        names = {name for _, words in self.server.asked for name in words["query"].replace("(", " ").replace("[", " ").split()
                 if name.startswith("tessera_")}
        self.assertEqual({name for name in names if name not in metrics}, set())

    def test_wrong_answers_are_errors(self):
        for answer, words in (("<html>", "does not answer as a Prometheus"),
                              ('{"status": "error", "error": "bad step"}', "says: bad step"),
                              ('{"status": "success", "data": {"result": [{"values": [[1]]}]}}', "not a time and a number"),
                              ('{"status": "success", "data": {"result": []}}', "no metrics of tesserad")):
            FakePrometheus.answer = answer
            self.assertIn(words, self.refused("--prometheus", self.url))
        self.assertIn("larger --every", self.refused("--prometheus", self.url, "--for", "24h", "--every", "1s"))

    def test_nobody_there(self):
        self.server.server_close()
        self.assertRegex(self.refused("--prometheus", self.url), "cannot (connect to|read from) 127.0.0.1")
        self.assertIn("TLS is not supported", self.refused("--prometheus", "https://127.0.0.1"))


if __name__ == "__main__":
    unittest.main()

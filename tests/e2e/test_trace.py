"""Traces: a timeline of what happened on the GPUs, as Perfetto opens it."""
import csv
import json
import os
import signal
import time
import unittest

from harness import MIB, SoftGpuTest, wait_for


def spans(trace, name):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == name]


def counters(trace, name):
    return [e["args"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == name]


class Traces(SoftGpuTest):
    SPEC = "1x1GiB"

    def trace(self, *words):
        path = self.run_dir / "t.json"
        self.tessera("trace", *words, "-o", path)
        return json.loads(path.read_text())

    def test_shows_who_ran_and_who_was_kept_from_it(self):
        self.start_daemon()
        self.create("low", compute_limit=30)
        self.create("high", compute_priority=2)
        low = self.tenant_in("low")
        low.makes_progress(3)
        high = self.tenant_in("high")
        high.makes_progress(3)
        self.tessera("freeze", "high")
        self.tessera("thaw", "high")
        trace = self.trace("--past", "1min")
        self.assertTrue(trace["otherData"]["whole"])
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        self.assertEqual(names, {"GPU 0"})
        self.assertLessEqual({"low", "high", f"process {low.pid} tessera-tenant", f"process {high.pid} tessera-tenant"},
                             set(tracks.values()))
        ran = {tracks[e["pid"], e["tid"]] for e in spans(trace, "runs")}
        self.assertEqual(ran, {"low", "high"})
        waited = {tracks[e["pid"], e["tid"]] for name in ("waits: limit", "waits: priority")
                  for e in spans(trace, name)}
        self.assertIn("low", waited)
        frozen = {tracks[e["pid"], e["tid"]] for e in spans(trace, "frozen: operator")}
        self.assertEqual(frozen, {f"process {high.pid} tessera-tenant"})
        # One track does not overlap itself.
        for track in tracks:
            of_track = sorted((e["ts"], e["dur"]) for e in trace["traceEvents"]
                              if e["ph"] == "X" and (e["pid"], e["tid"]) == track and e["name"].startswith(("runs", "waits")))
            for (begin, lasts), (after, _) in zip(of_track, of_track[1:]):
                self.assertLessEqual(begin + lasts, after + 1)  # what a float leaves of such numbers
        self.assertIn("vgpu.created high", {e["name"] for e in trace["traceEvents"] if e["ph"] == "i"})
        self.assertGreater(len(counters(trace, "vGPUs that wait")), 0)

    def test_shows_moves_and_memory(self):
        self.start_daemon(config='[turn]\nmin_ms = 250\nmax_ms = 1000\n')
        for name in ("one", "two"):
            self.create(name)
        tenants = [self.tenant_in(name, "--memory", "600M") for name in ("one", "two")]
        for _ in range(2):
            for tenant in tenants:
                tenant.makes_progress()
        trace = self.trace("--past", "1min")
        out, in_ = spans(trace, "memory out"), spans(trace, "memory in")
        self.assertGreater(sum(e["args"]["bytes"] for e in out), 500 * MIB)
        self.assertGreater(sum(e["args"]["bytes"] for e in in_), 100 * MIB)
        self.assertTrue(any(point["swapped"] > 0 for name in ("one", "two")
                            for point in counters(trace, f"memory of {name}")))
        moved = self.vgpu("one")["moved_out_bytes"] + self.vgpu("two")["moved_out_bytes"]
        self.assertLessEqual(sum(e["args"]["bytes"] for e in out), moved)

    def test_what_does_not_change_is_shown_as_well(self):
        self.start_daemon()
        self.create("busy")
        tenant = self.tenant_in("busy")
        tenant.makes_progress(2)
        wait_for("it to have run for a while", lambda: self.trace("--past", "0ms") and self.vgpu("busy")["state"] == "running")
        trace = self.trace("--for", "200ms")
        ran = sum(e["dur"] for e in spans(trace, "runs"))
        self.assertGreater(ran, 100_000, "it runs all the time")

    def test_a_daemon_that_is_killed_leaves_its_trace(self):
        self.start_daemon()
        refused = self.tessera("trace", "--last", "-o", self.run_dir / "x.json", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("nothing went wrong", refused.stderr)
        self.assertFalse((self.run_dir / "x.json").exists())
        self.create("team")
        tenant = self.tenant_in("team")
        tenant.makes_progress(2)
        self.tessera("freeze", "team")
        self.tessera("thaw", "team")
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        self.assertIn("crashed or was killed", self.daemon_log())
        trace = self.trace("--last")
        self.assertEqual(len(spans(trace, "frozen: operator")), 1)
        self.assertIn("team", {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"})
        self.assertTrue(any(e["type"] == "daemon.warning" for e in self.json("events")["events"]))
        self.stop_daemon()
        self.assertFalse((self.run_dir / "trace.ring").exists(), "it ended in order")

    def test_an_error_keeps_what_led_to_it(self):
        self.start_daemon(config='[turn]\nmin_ms = 250\nmax_ms = 1000\n')
        for name in ("one", "two"):
            self.create(name)
        tenants = [self.tenant_in(name, "--memory", "600M") for name in ("one", "two")]
        for tenant in tenants:
            tenant.makes_progress()
        mover = self.json("gpus")["gpus"][0]["swap"]["mover_pid"]
        os.kill(mover, signal.SIGKILL)
        wait_for("the trace", lambda: (self.run_dir / "trace.last").exists())
        self.assertTrue(any(e["type"] == "daemon.error" for e in self.json("events")["events"]))
        self.assertGreater(len(spans(self.trace("--last"), "memory out")), 0)
        self.assertEqual((self.run_dir / "trace.last").stat().st_mode & 0o777, 0o600)

    def test_wrong_usage_and_no_room(self):
        self.start_daemon()
        for words in (["--for", "10"], ["--for", "0"]):
            self.assertEqual(self.tessera("trace", *words[:1], "5 s", check=False).returncode, 2)
        self.assertEqual(self.tessera("trace", "--for", "1s", "--past", "1s", check=False).returncode, 2)
        full = self.tessera("trace", "--past", "1s", "-o", "/dev/full", check=False)
        self.assertEqual(full.returncode, 1)
        self.assertIn("cannot write /dev/full", full.stderr)
        out = self.tessera("trace", "--past", "1s", "-o", "-").stdout
        self.assertIn("traceEvents", json.loads(out))

    def test_without_room_for_the_file_the_daemon_serves(self):
        self.run_dir.joinpath("trace.ring").mkdir()  # neither removed nor made
        self.run_dir.joinpath("trace.ring", "x").write_text("")
        self.run_dir.joinpath("trace.last").mkdir()
        self.run_dir.joinpath("trace.last", "x").write_text("")
        self.start_daemon()
        self.create("team")
        self.tenant_in("team").makes_progress()
        self.assertGreater(len(spans(self.trace("--past", "1min"), "runs")), 0)

    def test_a_record_of_what_vgpus_use(self):
        self.start_daemon()
        for name in ("busy", "lazy"):
            self.create(name)
        tenant = self.tenant_in("busy")
        tenant.makes_progress(2)
        recorded = self.tessera("vgpu", "record", "--every", "200ms", "--for", "600ms").stdout
        rows = list(csv.DictReader(recorded.splitlines()))
        self.assertEqual([row["vgpu"] for row in rows], ["busy", "lazy"] * 3)
        seconds = [float(row["second"]) for row in rows]
        self.assertEqual(seconds, sorted(seconds))
        self.assertLess(abs(seconds[0] - time.time()), 60)
        self.assertGreater(sum(float(row["duty_pct"]) for row in rows if row["vgpu"] == "busy"), 0)
        self.assertEqual({row["duty_pct"] for row in rows if row["vgpu"] == "lazy"}, {"0.00"})
        self.assertEqual({row["gpu"] for row in rows}, {"0"})
        self.assertGreater(float(rows[0]["memory_mib"]), 0)
        error = self.tessera("vgpu", "record", "--every", "1ms", check=False).stderr
        self.assertIn("too short", error)


if __name__ == "__main__":
    unittest.main()

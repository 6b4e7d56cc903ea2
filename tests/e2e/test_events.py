"""Events: what the daemon tells of what happens, by GET /v1/events and `tessera events`."""
import concurrent.futures
import json
import unittest

from harness import BIN, GIB, MIB, SoftGpuTest, UnixConnection, wait_for, Lines


class Stream:
    """Server-sent events as a client reads them."""

    def __init__(self, test, query="", **headers):
        self.connection = UnixConnection(test.run_dir / "api.sock")
        self.connection.request("GET", "/v1/events" + query, headers={"Accept": "text/event-stream", **headers})
        self.answer = self.connection.getresponse()
        test.addCleanup(self.close)

    def close(self):
        self.answer.close()
        self.connection.close()

    def next(self):
        """(id, type, data) of the next one; None at the end."""
        fields = {}
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            if line == "\n" and "data" in fields:
                return fields.get("id"), fields["event"], json.loads(fields["data"])
            if ": " in line and not line.startswith(":"):
                name, value = line.rstrip("\n").split(": ", 1)
                fields[name] = value

    def until(self, kind):
        while True:
            event = self.next()
            if event is None:
                raise AssertionError(f"the stream ended before {kind}")
            if event[1] == kind:
                return event


class Events(SoftGpuTest):
    def listed(self, *flags):
        return self.json("events", *flags)["events"]

    def test_tells_what_happened(self):
        self.start_daemon()
        self.create("team", memory_max=GIB)
        self.change("team", compute_weight=200)
        tenant = self.tenant_in("team", "--memory", "64M")
        tenant.makes_progress()
        for words in (["freeze", "team"], ["thaw", "team"], ["freeze", tenant.pid], ["thaw", tenant.pid]):
            self.tessera(*words)
        tenant.finish()
        wait_for("its end", lambda: any(e["type"] == "process.ended" for e in self.listed()))
        self.api("DELETE", "/v1/vgpus/team")
        events = self.listed()
        self.assertEqual([e["number"] for e in events], list(range(1, len(events) + 1)))
        # A machine without FUSE gives a warning, for one.
        told = [e["type"] for e in events if e["type"] not in ("gpu.control", "daemon.warning")]
        self.assertEqual(told, ["daemon.started", "vgpu.created", "vgpu.changed", "process.started", "vgpu.frozen",
                                "vgpu.thawed", "process.frozen", "process.thawed", "process.ended", "vgpu.removed"])
        started = next(e for e in events if e["type"] == "process.started")
        self.assertEqual((started["vgpu"], started["pid"], started["gpu"], started["text"]),
                         ("team", tenant.pid, 0, "tessera-tenant"))
        changed = next(e for e in events if e["type"] == "vgpu.changed")
        self.assertIn("weight 200", changed["text"].split(";")[0])
        self.assertIn("weight 100", changed["text"].split(";")[1])
        self.assertEqual([e["type"] for e in self.listed("--last", 1)], ["vgpu.removed"])
        lines = self.tessera("events").stdout.splitlines()
        self.assertEqual(len(lines), len(events))
        self.assertRegex(lines[-1], r"^\w{3} \d\d \d\d:\d\d:\d\d  vgpu\.removed +team  GPU 0$")

    def test_a_refused_allocation_is_told_once(self):
        self.start_daemon()
        self.create("small", memory_max=256 * MIB)
        shell = self.shell_with_context("small")
        for _ in range(20):
            self.assertEqual(shell.ask("allocate", "alloc", 512 * MIB)["result"], 2)
        refusals = [e for e in self.listed() if e["type"] == "memory.refused"]
        self.assertIn(len(refusals), (1, 2), "not one for each try")  # two where a second passed
        self.assertEqual((refusals[0]["vgpu"], refusals[0]["pid"]), ("small", shell.pid))
        self.assertIn("asked for 512 MiB", refusals[0]["text"])
        shell.end()

    def test_a_stream_goes_on_where_it_was(self):
        self.start_daemon()
        stream = Stream(self)
        self.assertEqual(stream.answer.status, 200)
        self.assertEqual(stream.answer.getheader("Content-Type"), "text/event-stream")
        self.create("a")
        last, _, data = stream.until("vgpu.created")
        self.assertEqual(data["vgpu"], "a")
        stream.close()
        self.create("b")
        again = Stream(self, **{"Last-Event-ID": last})
        self.assertEqual(again.until("vgpu.created")[2]["vgpu"], "b")
        self.assertEqual(Stream(self, "?last=1").next()[2]["vgpu"], "b")
        unknown = Stream(self, **{"Last-Event-ID": "1-1"})
        self.assertEqual(unknown.next()[2]["number"], 1, "of another daemon: all that is kept")

    def test_streams_that_nobody_reads_hold_up_nobody(self):
        self.start_daemon()
        lazy = [Stream(self) for _ in range(63)]
        follower = Stream(self)
        refused = Stream(self)
        self.assertEqual(refused.answer.status, 503)
        self.assertEqual(refused.answer.getheader("Content-Type"), "application/problem+json")

        def comes_and_goes(name):
            for turn in range(150):
                self.create(name, compute_weight=turn + 1)
                self.assertEqual(self.api("DELETE", f"/v1/vgpus/{name}")[0], 204)

        def follows():
            while follower.until("vgpu.created")[2]["vgpu"] != "last":
                pass

        with concurrent.futures.ThreadPoolExecutor(11) as pool:  # together: each change waits for the disk
            followed = pool.submit(follows)
            list(pool.map(comes_and_goes, (f"x{n}" for n in range(10))))
            self.create("last")
            followed.result()
        for stream in lazy:
            stream.close()
        wait_for("place", lambda: Stream(self).answer.status == 200)

    def test_follow_prints_as_it_happens_and_says_when_the_daemon_ended(self):
        self.start_daemon()
        follow = self.spawn(BIN / "tessera", "events", "-f", "--json")
        lines = Lines(follow)
        self.assertEqual(json.loads(lines.next())["number"], 1)
        self.create("team")
        while json.loads(lines.next())["type"] != "vgpu.created":
            pass
        self.stop_daemon()
        _, err = follow.communicate(timeout=60)
        self.assertEqual(follow.returncode, 1)
        self.assertIn("the daemon closed the connection", err)
        self.assertEqual(len(err.splitlines()), 1)

    def test_without_a_daemon(self):
        for words in (["events"], ["events", "-f"]):
            done = self.tessera(*words, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no daemon answers", done.stderr)
        self.assertEqual(self.tessera("events", "--last", "-3", check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main()

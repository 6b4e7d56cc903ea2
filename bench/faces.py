#!/usr/bin/env python3
"""The cost of asking a daemon with many vGPUs and processes, and what that costs its scheduling. Nothing here passes or
fails.

  bench/faces.py --build build/release [--vgpus 64] [--processes 256] [--only pages] [--json FILE]

The processes are idle but for two more, which share a GPU's time by limits, so that the scheduler has something to do
every few milliseconds. "late" is how much later than it should it was called for that. The same once more without channel
control and limits, where a token goes from one to the other. Bounds are those of the metrics' histograms. "The loop" is the daemon's
thread on which everything is decided; what a question takes of it, in CPU time, everybody else waits for.

"pages": clients that ask as the live page does, and how long a headless Chromium takes from the request for the live page
to its first paint, and to the first picture with data; it gets it by `tessera page`.
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import socket
import subprocess
import sys
import threading
import time

from soft_bench import SoftBench

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e/page"))
from browser import Browser  # noqa: E402


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def timed(action, count):
    spans = []
    for _ in range(count):
        begin = time.perf_counter()
        action()
        spans.append(1e6 * (time.perf_counter() - begin))
    return spans


class Faces(SoftBench):
    def __init__(self, arguments, control="auto"):
        super().__init__(arguments.build, "1x32GiB,context=16MiB", f'[channels]\ncontrol = "{control}"\n')
        self.control = control
        self.vgpus, self.processes = arguments.vgpus, arguments.processes

    # ---- who is there ----

    def start(self, vgpu, *command):
        child = subprocess.Popen([self.bin / "tessera", "run", "--soft", "--vgpu", vgpu, "--", *map(str, command)], env=self.env,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def populate(self):
        for i in range(self.vgpus):
            limit = ["--compute", "0:40"] if i < 2 and self.control != "off" else []
            subprocess.run([self.bin / "tessera", "vgpu", "create", f"v{i}", "--memory", "max:400M", *limit], env=self.env, check=True,
                           capture_output=True)
        busy = [self.start(f"v{i}", self.lib / "tessera" / "tessera-tenant", "--report-every", "0") for i in range(2)]
        idle = []
        for i in range(self.processes):
            idle.append(self.start(f"v{i % self.vgpus}", self.bin / "driver_shell"))
            idle[-1].stdin.write("init\ncontext\n")
            idle[-1].stdin.flush()
        for child in idle:
            for _ in range(2):
                answer = json.loads(child.stdout.readline())
                if answer["result"] != 0:
                    raise SystemExit(f"a program does not start: {answer}")
        for child in busy:
            child.stdout.readline()

    # ---- questions ----

    def ask(self, path, headers=""):
        """The bytes of the answer. `headers`: whole lines with their ends."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.run_dir / "api.sock"))
            connection.sendall(f"GET {path} HTTP/1.0\r\n{headers}\r\n".encode())
            pieces = []
            while piece := connection.recv(1 << 16):
                pieces.append(piece)
        return b"".join(pieces)

    def ps(self):
        return subprocess.run([self.bin / "tessera", "ps", "--json"], env=self.env, capture_output=True, check=True).stdout

    def loop(self, question, count=50):
        """Microseconds of the loop's CPU time that one takes."""
        def used():
            return int(pathlib.Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/schedstat").read_text().split()[0]) / 1e3

        before = used()
        for _ in range(count):
            question()
        return round((used() - before) / count)

    def held(self):
        files = self.run_dir / "fs"
        for what, question in (("GET /healthz", lambda: self.ask("/healthz")), ("GET /v1/vgpus/NAME", lambda: self.ask("/v1/vgpus/v5")),
                               ("GET /v1/vgpus", lambda: self.ask("/v1/vgpus")), ("GET /v1/timeline", lambda: self.ask("/v1/timeline")), ("GET /v1/processes", lambda: self.ask("/v1/processes")),
                               ("GET /metrics", lambda: self.ask("/metrics")), ("listing processes/", lambda: os.listdir(files / "processes")),
                               ("reading vgpus/NAME/memory.current", (files / "vgpus/v5/memory.current").read_bytes)):
            self.report(f"the loop is held by {what}", self.loop(question), "us")

    def commands(self):
        listed = len(json.loads(self.ps())["processes"])
        nothing = timed(lambda: subprocess.run([self.bin / "tessera", "--version"], env=self.env, capture_output=True), 30)
        spans = timed(self.ps, 30)
        self.report(f"tessera ps --json, {listed} processes, p50", round(percentile(spans, 50) / 1e3, 1), "ms",
                    f"p99 {percentile(spans, 99) / 1e3:.1f}; tessera --version {percentile(nothing, 50) / 1e3:.1f} ms")

    def scrape(self):
        spans = timed(lambda: self.ask("/metrics"), 30)
        self.report("scrape, p50", round(percentile(spans, 50) / 1e3, 1), "ms",
                    f"p99 {percentile(spans, 99) / 1e3:.1f}; /healthz {percentile(timed(lambda: self.ask('/healthz'), 200), 50) / 1e3:.2f} ms")
        self.report("scrape, size", round(len(self.ask("/metrics")) / 1024), "KiB")

    @staticmethod
    def cgroup_file():
        """The memory of a control group, of either version, if there is one here."""
        found = [*pathlib.Path("/sys/fs/cgroup").glob("*/memory.current"), *pathlib.Path("/sys/fs/cgroup").glob("memory/memory.usage_in_bytes")]
        return map(str, found[:1])

    def files(self):
        def whole(path):
            fd = os.open(path, os.O_RDONLY)
            os.read(fd, 4096)
            os.close(fd)

        path = self.run_dir / "fs/vgpus/v5/memory.current"
        baselines = [f"{each} {percentile(timed(lambda: whole(each), 2000), 50):.0f} us" for each in ["/proc/self/stat", *self.cgroup_file()]]
        spans = timed(lambda: whole(path), 2000)
        self.report("open, read and close a vGPU's file, p50", round(percentile(spans, 50)), "us",
                    f"p99 {percentile(spans, 99):.0f}; {', '.join(baselines)}")
        with open(path, "rb", buffering=0) as file:
            spans = timed(lambda: os.pread(file.fileno(), 4096, 0), 2000)
        self.report("read an open one, p50", round(percentile(spans, 50)), "us", f"p99 {percentile(spans, 99):.0f}")
        pid = (self.run_dir / "fs/vgpus/v5/procs").read_text().split()[0]
        spans = timed(lambda: whole(self.run_dir / f"fs/processes/{pid}/0/memory.current"), 500)
        self.report("open, read and close a process's file, p50", round(percentile(spans, 50)), "us", f"p99 {percentile(spans, 99):.0f}")

    def api(self):
        end, count = time.monotonic() + 3, 0
        while time.monotonic() < end:
            self.ask("/v1/vgpus/v5")
            count += 1
        self.report("reads of a vGPU by the API, one client, a connection each", round(count / 3), "1/s")
        size = len(self.ask("/v1/processes"))
        spans = timed(lambda: self.ask("/v1/processes"), 30)
        self.report("GET /v1/processes, p50", round(percentile(spans, 50) / 1e3, 1), "ms", f"{size / 1024:.0f} KiB")

    # ---- the scheduler meanwhile ----

    def histogram(self, name):
        """How often it was no more than so many seconds, of all that have it."""
        counts = {}
        for bound, count in re.findall(rf'^{name}_bucket\{{[^}}]*le="([^"]+)"[^}}]*\}} (\d+)', self.ask("/metrics").decode(), re.M):
            counts[float(bound)] = counts.get(float(bound), 0) + int(count)
        return counts

    def scheduling(self, when, questions, seconds=5):
        stop = threading.Event()

        def again(action, pause):
            while not stop.is_set():
                action()
                stop.wait(pause)

        names = {"tessera_gpu_scheduler_late_seconds": "the scheduler is called late"}
        if self.control == "off":
            names["tessera_vgpu_wait_seconds"] = "by tokens: a wait for the GPU"
        else:
            names["tessera_freeze_seconds"] = "a freeze takes"
        threads = [threading.Thread(target=again, args=question) for question in questions]
        before = {name: self.histogram(name) for name in names}
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        for name, what in names.items():
            after = self.histogram(name)
            counts = {bound: after[bound] - before[name].get(bound, 0) for bound in sorted(after)}
            total = counts[float("inf")]
            bound = lambda part: next(bound * 1e6 for bound in counts if counts[bound] >= part * total)
            self.report(f"{what}, {when}, p50 within", f"{bound(0.5):g}", "us", f"p99 {bound(0.99):g}, all {bound(1):g} us, of {total}")

    def scheduled(self):
        file = self.run_dir / "fs/vgpus/v5/memory.current"
        self.scheduling("nobody asks", [])
        self.scheduling("people ask", [(lambda: self.ask("/metrics"), 1), (self.ps, 0.5), (file.read_text, 0.01),
                                       (lambda: self.ask("/v1/vgpus/v5"), 0.01)])
        self.scheduling("without a pause", [(lambda: self.ask("/metrics"), 0), (lambda: self.ask("/v1/processes"), 0),
                                            (file.read_text, 0), (lambda: self.ask("/v1/vgpus/v5"), 0)])

    # ---- the live page ----

    def pages(self, count):
        """What so many open pages ask: the files once, then an overview every second, and the events."""
        accepts = "Accept-Encoding: gzip, deflate, br\r\n"  # as browsers do
        files = [b"/"] + re.findall(rb'(?:href|src)="(/page/[^"]+)"', self.ask("/"))

        def page(opened=[]):
            if threading.get_ident() not in opened:
                opened.append(threading.get_ident())
                time.sleep(random.random())
                for file in files:
                    self.ask(file.decode(), accepts)
                self.ask("/v1/timeline", accepts)
            self.ask("/v1/overview", accepts)

        return [(page, 1)] * count

    def with_pages(self):
        followers = []
        for count in (0, 8, 0, 8):
            while len(followers) < count:
                followers.append(socket.socket(socket.AF_UNIX))
                followers[-1].connect(str(self.run_dir / "api.sock"))
                followers[-1].sendall(b"GET /v1/events HTTP/1.1\r\nAccept: text/event-stream\r\n\r\n")
            while len(followers) > count:
                followers.pop().close()
            self.scheduling(f"{count} pages are open", self.pages(count), 20)
        self.report("GET /v1/overview, size", round(len(self.ask("/v1/overview")) / 1024), "KiB")

    def overview(self):
        """Of the loop, without programs that have it schedule; less what it does by itself in that time."""
        self.end_busy()
        pause = lambda: time.sleep(0.95)
        anew = lambda: (pause(), self.ask("/v1/overview"))
        self.report("the loop works for an overview that is made anew, in pieces", self.loop(anew, 10) - self.loop(pause, 10), "us")
        self.report("the loop works for one that is shared", self.loop(lambda: self.ask("/v1/overview"), 50), "us")

    def first_paint(self, count=10):
        relay = subprocess.Popen([self.bin / "tessera", "page", "--json", "--soft"], env=self.env, stdout=subprocess.PIPE, text=True)
        text = ""
        while "}" not in text:
            text += relay.stdout.readline()
        browser = Browser()
        try:
            paints, pictures, plain = [], [], []
            painted = "performance.getEntriesByName('first-contentful-paint')"
            for _ in range(count):
                page = browser.page(json.loads(text)["address"])
                page.wait(f"performance.getEntriesByName('data').length > 0 && {painted}.length > 0")
                paints.append(page.evaluate(f"{painted}[0].startTime"))
                pictures.append(page.evaluate("performance.getEntriesByName('data')[0].startTime"))
                page.close()
                page = browser.page(json.loads(text)["address"].split("#")[0] + "healthz")
                page.wait(f"{painted}.length > 0")
                plain.append(page.evaluate(f"{painted}[0].startTime"))
                page.close()
            self.report("the live page's first paint in headless Chromium, p50", round(percentile(paints, 50)), "ms",
                        f"longest {max(paints):.0f}, the first one {paints[0]:.0f}; a line of text (/healthz) {percentile(plain, 50):.0f} ms")
            self.report("its first picture with data, p50", round(percentile(pictures, 50)), "ms",
                        f"longest {max(pictures):.0f}, the first one {pictures[0]:.0f}")
        finally:
            browser.close()
            relay.kill()
            relay.wait()

    def end_busy(self):
        for child in self.children[:2]:
            child.terminate()
            child.wait()

    def all(self, only):
        self.populate()
        if only == "pages":
            self.with_pages()
            if self.control != "off":
                self.first_paint()
                self.overview()
            return
        self.scheduled()
        self.with_pages()
        if self.control == "off":
            return
        self.end_busy()
        for measure in (self.overview, self.commands, self.scrape, self.files, self.api, self.held, self.first_paint):
            measure()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default="build/release")
    parser.add_argument("--vgpus", type=int, default=64)
    parser.add_argument("--processes", type=int, default=256)
    parser.add_argument("--only", choices=["pages"])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    figures = {}
    for control in ("auto", "off"):
        with Faces(arguments, control) as faces:
            faces.all(arguments.only)
            figures[control] = faces.figures
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


main()

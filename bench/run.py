#!/usr/bin/env python3
"""Figures of this build on this machine, each beside a baseline of the same run. Nothing here passes or fails.

  bench/run.py --build build/release [--json FILE]
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import time
import uuid

import shares
from soft_bench import SoftBench


def sh(*command, env=None, **options):
    return subprocess.run([str(w) for w in command], env=env, text=True, capture_output=True, check=True, **options)


class Bench(SoftBench):
    def __init__(self, build):
        super().__init__(build, "1x8GiB")

    def tessera(self, *words):
        return sh(self.bin / "tessera", *words, env=self.env)

    def run(self, *words, env=None):
        return [str(self.bin / "tessera"), "run", "--soft", "--run-dir", str(self.run_dir), *map(str, words)]

    # ---- launches ----

    def launch(self):
        stub = self.lib / "stub" / "libcuda.so.stub"
        env = {**os.environ, "LD_PRELOAD": str(self.lib / "tessera" / "libcuda.so.1"), "TESSERA_REAL_LIBCUDA": str(stub)}
        runs = [json.loads(sh(self.bin / "launch_bench", stub, env=env).stdout) for _ in range(3)]
        run = sorted(runs, key=lambda run: run["ns_added"])[1]
        self.report("cuLaunchKernel through the open gate, added", run["ns_added"], "ns",
                    f"stub driver {run['ns_without']} ns, with the shim {run['ns_with']} ns a call")

    def token(self):
        stub = self.lib / "stub" / "libcuda.so.stub"
        uuid_hex = json.loads(self.tessera("gpus", "--json").stdout)["gpus"][0]["uuid"].removeprefix("GPU-").replace("-", "")
        # The limit keeps the gate bounded, as it is where a token matters.
        command = self.run("--compute", "90", "--", "env", f"TESSERA_REAL_LIBCUDA={stub}", f"STUB_GPU_UUID={uuid_hex}",
                           self.bin / "token_bench", "500")
        result = json.loads(sh(*command, env=self.env).stdout)
        for quantile in ("p50", "p99"):
            self.report(f"token round trip, gate closed to first launch, {quantile}", result[f"{quantile}_us"], "us",
                        f"a bare packet there and back {result[f'bare_{quantile}_us']:.1f} us")

    # ---- decisions ----

    def residency(self):
        program = self.bin / "residency_bench"
        if not program.exists():
            return print("residency: libbenchmark-dev is not installed")
        result = json.loads(sh(program, "--benchmark_format=json", "--benchmark_filter=256").stdout)
        for run in result["benchmarks"]:
            what = {"InTurns": "a plan for 256 vGPUs that take turns", "Together": "a plan for 256 vGPUs that fit together",
                    "Answers": "an answer to a question for room"}[run["name"].split("/")[0]]
            self.report(f"residency, {what}", round(run["cpu_time"] / 1000, 1), "us")

    # ---- starting ----

    def start(self):
        def median_ms(command):
            times = []
            for _ in range(40):
                begin = time.perf_counter()
                subprocess.run(command, env=self.env, check=True, capture_output=True)
                times.append((time.perf_counter() - begin) * 1e3)
            return statistics.median(times)
        bare, run = median_ms(["true"]), median_ms(self.run("--", "true"))
        self.report("tessera run -- true, beyond true", round(run - bare, 2), "ms", f"true {bare:.2f} ms")
        begin = time.perf_counter()
        children = [subprocess.Popen(self.run("--", "true"), env=self.env, stderr=subprocess.PIPE) for _ in range(300)]
        failed = sum(child.wait() != 0 for child in children)
        self.report("300 starts at once, failed", failed, "", f"all done after {time.perf_counter() - begin:.2f} s")

    # ---- shares ----

    def tenant(self, vgpu_flags, seconds, kernel_us=1000):
        return subprocess.Popen(self.run(*vgpu_flags, "--", self.lib / "tessera" / "tessera-tenant", "--iterations",
                                         self.iterations, "--seconds", seconds), env=self.env, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def rate(child):
        last = [json.loads(line) for line in child.communicate()[0].splitlines()][-1]
        return last["kernels"] / (last["busy_us"] / 1e6)

    def calibrate(self):
        child = subprocess.Popen(self.run("--", self.lib / "tessera" / "tessera-tenant", "--kernel-us", "1000", "--seconds", "1"),
                                 env=self.env, stdout=subprocess.PIPE, text=True)
        events = [json.loads(line) for line in child.communicate()[0].splitlines()]
        self.iterations = events[0]["iterations"]
        self.solo = statistics.median(self.rate(self.tenant([], 2)) for _ in range(3))

    def shares(self):
        self.calibrate()
        for limit in (10, 20, 30, 50):
            share = 100 * self.rate(self.tenant(["--compute", f"0:{limit}"], 4)) / self.solo
            self.report(f"one busy program, limit {limit} %: share held", round(share, 2), "%", f"solo {self.solo:.1f} kernels/s")
        before = statistics.median(self.rate(self.tenant([], 2)) for _ in range(2))
        children = [self.tenant(["--compute", str(part)], 6) for part in (50, 30, 20)]
        held = [100 * self.rate(child) / before for child in children]
        for part, share in zip((50, 30, 20), held):
            self.report(f"three busy programs, request {part} %: share held", round(share, 2), "%", f"solo {before:.1f} kernels/s")
        self.report("three busy programs, sum", round(sum(held), 2), "%")
        self.tessera("vgpu", "create", "shared", "--compute", "0:30")
        children = [self.tenant(["--vgpu", "shared"], 5) for _ in range(3)]
        self.report("three busy programs on one vGPU, limit 30 %: together",
                    round(sum(100 * self.rate(child) / before for child in children), 2), "%")

    def accounts(self):
        shares.measure(self)

    # ---- the daemon ----

    def idle(self):
        hold = [subprocess.Popen(self.run("--", self.lib / "tessera" / "tessera-tenant", "--burst", "1", "--idle-us", "3600000000", "--iterations", "1", "--report-every", "0"),
                                 env=self.env, stdout=subprocess.PIPE, text=True) for _ in range(64)]
        for child in hold:
            child.stdout.readline()

        def cpu_ticks():
            fields = pathlib.Path(f"/proc/{self.daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        time.sleep(2)
        before, seconds = cpu_ticks(), 10
        time.sleep(seconds)
        used = (cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds * 100
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        rss = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
        self.report("daemon with 64 idle programs, memory", round(rss, 1), "MiB")
        self.report("daemon with 64 idle programs, of a core", round(used, 2), "%")
        for child in hold:
            child.terminate()
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", help="comma-separated: launch, token, residency, start, shares, accounts, idle")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    with Bench(arguments.build.resolve()) as bench:
        for name in (arguments.only or "launch,token,residency,start,shares,accounts,idle").split(","):
            getattr(bench, name)()
        if arguments.json:
            arguments.json.write_text(json.dumps(bench.figures, indent=1) + "\n")


main()

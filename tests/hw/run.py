#!/usr/bin/env python3
"""Real programs under Tessera on a real GPU: compatibility, abuse and figures, in one call.

Starts a tesserad of its own in a temporary run directory, and compares each program with a run without Tessera. Prints a
table last; full logs and results.json go to --out. Needs a dist folder (`make dist`), nvcc for the programs in
programs/, and PyTorch, transformers, JAX and CuPy for the frameworks; what is missing is skipped. --soft uses the soft GPU.

  tests/hw/run.py --dist dist --out /tmp/hw
  tests/hw/run.py --only figures,programs.oom
  tests/hw/run.py --only 'swap.*' --seconds 300 --option swap.gib=60
  tests/hw/run.py --only steer.llm --option llm.loads=60 --option llm.variants=solo,default,tessera
"""
import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the tree may be read-only, and stays clean

from cases import abuse, figures, frameworks, programs, tools  # noqa: E402,F401  (each declares its checks)
from cases import adopting, boundary, chaos, freezing, goals, hostile, llm, mps, priorities, several_gpus, shares  # noqa: E402,F401
from cases import swapping, swap_programs, swap_survival, swap_chaos, swap_many  # noqa: E402,F401  (in order of importance)
from cases import spaces, own_sms, space_modes, krypton, two_gpus, faces, kubernetes, moving  # noqa: E402,F401
from cases.plan import gpu_model, profiles, krypton as planned_krypton, hour  # noqa: E402,F401
from harness import checks, processes  # noqa: E402
from harness.bench import Bench  # noqa: E402
from harness.build import Builder  # noqa: E402
from harness.tessera import Tessera  # noqa: E402

TORCH_CHECKS = ("figures.torch_speed", "steer.torch_alone", "steer.llm", "swap.ipc", "swap.no_pressure",
                "steer.nccl_two_gpus", "steer.gangs", "steer.named_gangs", "swap.two_jobs")  # outside the section of frameworks
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=pathlib.Path, default=ROOT / "dist", help="the folder that `make dist` wrote")
    parser.add_argument("--out", type=pathlib.Path, help="where the logs go (default: a temporary folder)")
    parser.add_argument("--only", default="", help="sections, checks or section.check, with * and ?, comma separated")
    parser.add_argument("--list", action="store_true", help="list the checks and end")
    parser.add_argument("--soft", nargs="?", const="8GiB", help="use the soft GPU, such as 8GiB")
    parser.add_argument("--seconds", type=float, default=540, help="for everything together (540)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                        help="of a check: llm.mode (graphs, eager), llm.loads (30,60,85), llm.variants (solo, default, "
                        "static, mps, mps60, tessera), llm.seconds, llm.small; chaos.seconds, chaos.processes, chaos.programs, chaos.gib; "
                        "freeze.count; swap.gib, swap.pool_gib, swap.seconds, swap.turns (MIN,MAX in ms); "
                        "gangs.env (NAME=VALUE, of NCCL); jobs.seconds; many.programs, many.gib; "
                        "krypton.cases (R1,R2), krypton.plan (time, level, mixed), krypton.hold (rest, limit), krypton.sms (own, limit), "
                        "krypton.seconds, krypton.gpus, krypton.margin, krypton.over; faces.keep (a folder for the trace); "
                        "moving.gib, moving.notebook_gib, moving.driver_gib; "
                        "models.precision (half, single), models.sms (limit, own), profiles.only, profiles.seconds, "
                        "plan.placement (a JSON of tessera plan), plan.gpus, plan.seconds; hour.csv and others (see cases/plan/hour.py)")
    parser.add_argument("--build-only", action="store_true", help="build all programs and end; needs no GPU")
    return parser.parse_args()


class Session:
    """One call: the daemon, the temporary folder and the checks, all of which end with it."""

    def __init__(self, arguments, chosen):
        self.out = arguments.out or pathlib.Path(tempfile.mkdtemp(prefix="tessera-hw-out-"))
        self.out.mkdir(parents=True, exist_ok=True)
        if arguments.soft is not None:  # a soft GPU of our own: others of this user keep theirs
            os.environ["TESSERA_SOFT_NAME"] = f"hw-{os.getpid()}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-hw-"))
        self.begin = time.monotonic()
        self.deadline = self.begin + arguments.seconds
        self.chosen = chosen
        self.tessera = Tessera(arguments.dist, self.folder / "run", arguments.soft, self.out / "daemon.log")
        builder = Builder(self.folder / "programs", arguments.soft is None)
        workers = max(2, min((os.cpu_count() or 2) - 4, 10))
        options = dict(option.partition("=")[::2] for option in arguments.option)
        self.runner = checks.Runner(lambda c, deadline: Bench(self.tessera, builder, self.folder, deadline, options,
                                                                   f"{c.section}.{c.name}", self.out),
                                    self.out, self.deadline, workers, arguments.soft is not None, self.stand)
        self._ended = threading.Lock()

    def stand(self):
        if not self.tessera.alive():
            self.tessera.start()

    def run(self):
        # Section after section; what is still open 15 s after the end of the time is given up.
        watchdog = threading.Timer(self.deadline + 15 - self.begin, self.give_up)
        watchdog.daemon = True
        watchdog.start()
        warm = self._warm_page_cache()
        try:
            self.runner.run(self.chosen)
        finally:
            watchdog.cancel()
            if warm:
                warm.kill()
        return self.end()

    def _warm_page_cache(self):
        """The first import of a large framework reads gigabytes from a cold disk: while the small programs run."""
        names = {f"{c.section}.{c.name}" for c in self.chosen}
        frameworks_too = any(c.section == "frameworks" for c in self.chosen) or "swap.frameworks" in names
        if self.tessera.soft or not (frameworks_too or names.intersection(TORCH_CHECKS)):
            return None
        modules = "import torch, torch._inductor, transformers\nimport jax, cupy" if frameworks_too else "import torch"
        return processes.Program([sys.executable, "-c", modules], {"CUDA_VISIBLE_DEVICES": ""})

    def end(self):
        """Ends everything and prints the table; once. Returns the exit status."""
        if not self._ended.acquire(blocking=False):
            time.sleep(60)  # the other thread is at it and will end the process
        try:
            self.tessera.stop()
        except Exception as error:
            print(f"tesserad did not stop: {error}")
        processes.end_everything()
        facts = {"seconds": round(time.monotonic() - self.begin, 1), "soft": self.tessera.soft,
                 "cpus": os.cpu_count(), "machine": " ".join(os.uname())}
        failures = self.runner.sum_up(facts)
        print(f"{facts['seconds']} s, logs in {self.out}", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.tessera.soft is not None:  # what killed programs left of the soft GPU
            for shared in pathlib.Path("/dev/shm").glob(f"tessera-soft-*-{os.environ['TESSERA_SOFT_NAME']}*"):
                shared.unlink(missing_ok=True)
        return 1 if failures else 0

    def give_up(self):
        print("out of time: ending what still runs", flush=True)
        self.end()
        os._exit(1)


def main():
    arguments = parse_arguments()
    chosen = checks.select([p for p in arguments.only.split(",") if p])
    if arguments.list:
        for c in chosen:
            print(f"{c.section}.{c.name}{'  (soft GPU too)' if c.soft else ''}")
        return 0
    if not chosen:
        print("no check has that name; see --list", file=sys.stderr)
        return 2
    processes.adopt_orphans()
    if arguments.build_only:
        folder = arguments.out or pathlib.Path(tempfile.mkdtemp(prefix="tessera-hw-"))
        print("\n".join(map(str, Builder(folder, on_real_gpu=False).all())))
        return 0
    session = Session(arguments, chosen)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: (session.end(), os._exit(130)))
    return session.run()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # reader threads of killed programs must not hold us

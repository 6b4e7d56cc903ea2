"""Checks: how they are declared, run in parallel or alone, and summed up."""
import concurrent.futures
import dataclasses
import fnmatch
import json
import threading
import time
import traceback
from typing import Callable

SECTIONS = ("programs", "tools", "abuse", "figures", "steer", "space", "frameworks", "swap", "faces", "kube",
            "plan", "moving")


class Failed(Exception):
    """The check found a fault."""


class Skipped(Exception):
    """The check cannot be made here."""


def expect(condition, why):
    if not condition:
        raise Failed(why)


@dataclasses.dataclass
class Check:
    section: str
    name: str
    body: Callable  # body(bench) returns the figure: a text, or (text, JSON-able details)
    limit_s: float
    alone: bool  # measures time or takes the whole GPU: nothing else runs beside it
    soft: bool  # the soft GPU can do it too


@dataclasses.dataclass
class Result:
    section: str
    check: str
    result: str  # ok, FAIL, skip
    figure: str
    seconds: float = 0
    details: object = None


REGISTRY = []


def add(section, name, body, limit_s=60, alone=False, soft=False):
    REGISTRY.append(Check(section, name, body, limit_s, alone, soft))


def check(section, **options):
    """Declares a function as a check with its name."""

    def declare(body):
        add(section, body.__name__, body, **options)
        return body

    return declare


def select(patterns):
    """The checks whose section, name or section.name matches one of the patterns; all if there are none."""

    def wanted(c):
        names = (c.section, c.name, f"{c.section}.{c.name}")
        return not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns for n in names)

    chosen = [c for c in REGISTRY if wanted(c)]
    return sorted(chosen, key=lambda c: SECTIONS.index(c.section))


class Runner:
    """Runs checks, keeps their results, and can sum up at any moment."""

    def __init__(self, make_bench, out, deadline, workers, soft, prepare):
        self._make_bench = make_bench  # make_bench(check, deadline) is what the body gets
        self._prepare = prepare  # before each section; raises if Tessera does not stand
        self._out = out
        self._deadline = deadline
        self._workers = workers
        self._soft = soft
        self._lock = threading.RLock()  # a signal's handler may sum up in the middle of a record
        self._logs = {}  # section: an open file
        self.results = []
        self._planned = []
        self._begun = set()

    def run(self, checks):
        self._planned = checks
        for section in SECTIONS:
            mine = [c for c in checks if c.section == section]
            if not mine:
                continue
            try:
                self._prepare()
            except Exception as error:  # the other sections may still have better luck
                for c in mine:
                    why = f"Tessera does not stand: {error}"
                    self._record(Result(section, c.name, "FAIL", why), traceback.format_exc())
                continue
            with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
                list(pool.map(self._run_one, [c for c in mine if not c.alone]))
            for c in mine:
                if c.alone:
                    self._run_one(c)

    def _run_one(self, c):
        begin = time.monotonic()
        self._begun.add((c.section, c.name))
        bench = self._make_bench(c, min(begin + c.limit_s, self._deadline))
        details = None
        try:
            if self._soft and not c.soft:
                raise Skipped("needs a real GPU")
            if begin > self._deadline - 2:
                raise Skipped("no time left")
            figure = c.body(bench)
            if isinstance(figure, tuple):
                figure, details = figure
            result = "ok"
        except Skipped as why:
            result, figure = "skip", str(why)
        except (Failed, TimeoutError) as why:
            result, figure = "FAIL", str(why)
        except Exception as why:
            result, figure = "FAIL", f"{type(why).__name__}: {why}"
            bench.log(traceback.format_exc())
        finally:
            bench.close()
        self._record(Result(c.section, c.name, result, " ".join(str(figure).split()), time.monotonic() - begin, details),
                     bench.text())

    def _record(self, result, log):
        with self._lock:
            self.results.append(result)
            if result.section not in self._logs:
                self._logs[result.section] = open(self._out / f"{result.section}.log", "w")
            file = self._logs[result.section]
            file.write(f"===== {result.check}: {result.result} {result.figure} ({result.seconds:.1f} s)\n{log}\n")
            file.flush()
            figure = "" if result.result == "ok" and not result.figure else f" {result.figure[:300]}"
            print(f"  {result.section}.{result.check}: {result.result} ({result.seconds:.1f} s){figure}", flush=True)

    def sum_up(self, facts):
        """Prints the table and writes results.json. Returns the number of failures."""
        with self._lock:
            known = {(r.section, r.check) for r in self.results}
            unfinished = [Result(c.section, c.name, *(("FAIL", "was not finished") if (c.section, c.name) in self._begun
                                                      else ("skip", "was not begun")))
                          for c in self._planned if (c.section, c.name) not in known]
            results = sorted([*self.results, *unfinished], key=lambda r: (SECTIONS.index(r.section), r.check))
        json_rows = [vars(r) for r in results]  # not asdict(), which copies the details
        (self._out / "results.json").write_text(json.dumps({**facts, "results": json_rows}, indent=1, default=str))
        print()
        for r in results:
            print(f"{r.section + '.' + r.check:<34} {r.result:<4} {r.figure[:140]}")
        counts = {kind: sum(r.result == kind for r in results) for kind in ("ok", "FAIL", "skip")}
        print(f"{counts['ok']} ok, {counts['FAIL']} FAIL, {counts['skip']} skip", flush=True)
        return counts["FAIL"]

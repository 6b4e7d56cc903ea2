#!/usr/bin/env python3
"""screens.py [BUILD]: makes docs/screens, pictures of the terminal, of a trace and of the live page, from real runs on the
soft GPU.

screens.py --page [BUILD]: those of the live page alone.
screens.py --trace FILE: the picture of the trace alone, of a run elsewhere.
"""
import json
import os
import pathlib
import sys
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = sys.argv[1:2] == ["--page"] and bool(sys.argv.pop(1))
TRACE = sys.argv[2] if sys.argv[1:2] == ["--trace"] else None
os.environ["TESSERA_BUILD"] = str(pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else ROOT / "build/release").resolve())
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/e2e/page")]

from browser import Browser  # noqa: E402
from harness import BIN, GIB, SoftGpuTest  # noqa: E402 (it reads the environment)
from terminal import Terminal  # noqa: E402

COLUMN, LINE, MARGIN, SIZE = 8.4, 18, 12, 14
PAPER, INK = "#16181d", "#d5d8df"
COLOURS = {"red": "#ef6b73", "green": "#8fc379", "brown": "#e2bf78", "blue": "#67abef", "magenta": "#c67bdc",
           "cyan": "#5ab5c1"}


def runs(line, width):
    """(first column, text, ink, paper, bold) of the neighbours in a line that look the same."""
    def looks(x):
        ink, paper = COLOURS.get(line[x].fg, INK), COLOURS.get(line[x].bg, PAPER)
        return (paper, ink, line[x].bold) if line[x].reverse else (ink, paper, line[x].bold)
    begin = 0
    for x in range(1, width + 1):
        if x == width or looks(x) != looks(begin):
            yield (begin, "".join(line[i].data for i in range(begin, x)), *looks(begin))
            begin = x


def svg(screen):
    """A pyte.Screen as a picture: runs of text with their colours, each held to its columns whatever the font is."""
    width, height = (round(size) for size in (screen.columns * COLUMN + 2 * MARGIN, screen.lines * LINE + 2 * MARGIN))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="{SIZE}" xml:space="preserve">',
             f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>']
    for y in range(screen.lines):
        for x, text, ink, paper, bold in runs(screen.buffer[y], screen.columns):
            left, top, length = MARGIN + x * COLUMN, MARGIN + y * LINE, len(text) * COLUMN
            if paper != PAPER:
                parts.append(f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="{LINE}" fill="{paper}"/>')
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                parts.append(f'<text x="{left:.1f}" y="{top + SIZE}" textLength="{length:.1f}" fill="{ink}"{weight}>'
                             f'{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


SPANS = {"runs": "#8fc379", "waits: turn": "#57606f", "waits: limit": "#e2bf78", "waits: priority": "#57606f",
         "frozen: policy": "#3f6ea8", "frozen: operator": "#ef6b73", "memory out": "#c67bdc", "memory in": "#5ab5c1"}


def timeline(trace, seconds=0.6, width=760, label=170):
    """The middle of a trace as a picture: what Perfetto shows of it, without Perfetto."""
    events = trace["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in tracks]
    middle = (min(e["ts"] for e in spans) + max(e["ts"] + e["dur"] for e in spans)) / 2
    begin, scale = middle - seconds * 5e5, (width - label - 2 * MARGIN) / (seconds * 1e6)
    rows = {track: y for y, track in enumerate(sorted(tracks))}
    height = 2 * MARGIN + LINE * (len(rows) + 3)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="DejaVu Sans,Helvetica,sans-serif" font-size="12">',
             f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>']

    def text(x, y, words, ink=INK):
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}">{escape(words)}</text>')

    for track, row in rows.items():
        text(MARGIN, MARGIN + LINE * row + 13, tracks[track])
    for e in spans:
        left, right = max(e["ts"], begin), min(e["ts"] + e["dur"], begin + seconds * 1e6)
        if left < right:
            parts.append(f'<rect x="{label + (left - begin) * scale:.1f}" y="{MARGIN + LINE * rows[e["pid"], e["tid"]] + 2}" '
                         f'width="{max((right - left) * scale, 0.5):.1f}" height="{LINE - 4}" fill="{SPANS.get(e["name"], INK)}"/>')
    y = MARGIN + LINE * len(rows) + 13
    for tenth in range(7):
        text(label + tenth * 1e6 * seconds / 6 * scale - (24 if tenth == 6 else 0), y, f"{tenth * seconds / 6 * 1000:.0f} ms")
    x = MARGIN
    for name in sorted({e["name"] for e in spans} & set(SPANS)):
        parts.append(f'<rect x="{x}" y="{y + LINE - 10}" width="12" height="12" fill="{SPANS[name]}"/>')
        text(x + 17, y + LINE, name)
        x += 40 + 6.5 * len(name)
    return "\n".join([*parts, "</svg>", ""])


class Stage(SoftGpuTest):
    """A daemon and programs, by the means of the end-to-end tests."""

    def failed(self):
        return False

    def top(self):
        """Three programs, of which one was frozen a while ago."""
        self.start_daemon()
        tenants = []
        for name, request, limit, memory, flags in (
                ("chat", 40, 100, 1, ["--memory", "600M"]),
                ("notebook", 10, 30, 1, ["--memory", "200M", "--burst", "400", "--idle-us", "900000"]),
                ("training", 20, 100, 2, ["--memory", "1400M"])):
            self.create(name, memory_limit=memory * GIB, memory_max=memory * GIB, compute_request=request,
                        compute_limit=limit, compute_priority=8)
            tenants.append(self.tenant_in(name, *flags))
        for tenant in tenants:
            tenant.makes_progress()
        terminal = Terminal([BIN / "tessera", "top"], {**self.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
        self.addCleanup(terminal.close)
        watch(terminal, 40)
        terminal.type("jjjjf")  # the third vGPU
        watch(terminal, 15)
        terminal.shows("training is frozen")
        return svg(terminal.screen)


class TraceStage(Stage):
    def trace(self):
        """One with a limit, in front of one of a lower class."""
        self.start_daemon()
        self.create("batch", compute_priority=12)
        self.create("service", compute_priority=2, compute_limit=30)
        for name in ("batch", "service"):
            self.tenant_in(name, "--memory", "100M").makes_progress()
        path = self.run_dir / "trace.json"
        self.tessera("trace", "--for", "3s", "-o", path)
        return timeline(json.loads(path.read_text()))


class PageStage(Stage):
    SPEC = "2x4GiB,sms=100"

    def page(self, folder):
        """Programs on two GPUs: one with a goal, one that works now and then, one that was frozen and evicted, two in a space."""
        self.start_daemon(config='[swap]\nsize = "4G"\nfloor = "1G"\n' + self.api_by_tcp("the-token-of-the-picture"))
        cast = (
                ("chat", 0, {"compute_request": 40, "compute_priority": 4, "goal": "p99=20ms"},
                 ["--memory", "600M", "--kernel-us", "2000", "--burst", "4", "--idle-us", "20000"]),
                ("notebook", 0, {"compute_request": 10, "compute_limit": 30}, ["--memory", "200M", "--burst", "400", "--idle-us", "4000000"]),
                ("training", 0, {"compute_request": 20, "memory_limit": 2 * GIB}, ["--memory", "1400M"]),
                ("embed", 1, {"space": "lab", "sm_limit": 40}, ["--memory", "500M"]),
                ("rerank", 1, {"space": "lab", "sm_limit": 50}, ["--memory", "800M", "--burst", "300", "--idle-us", "1500000"]))
        for name, gpu, fields, _ in cast:
            self.create(name, gpu=gpu, **{"memory_limit": GIB, "compute_limit": 100, **fields})
        for name, _, _, flags in cast:
            self.tenant_in(name, "--report-every", "0", *flags).until("ready")
        browser = Browser()
        self.addCleanup(browser.close)
        page = browser.page(f"http://127.0.0.1:{self.port}/#token=the-token-of-the-picture", 1180, 890)
        time.sleep(70)
        self.api("POST", "/v1/vgpus/training/freeze", {})
        time.sleep(20)
        self.api("POST", "/v1/vgpus/training/evict", {})
        time.sleep(30)
        self.api("POST", "/v1/vgpus/training/thaw", {})
        time.sleep(60)
        self.api("POST", "/v1/vgpus/training/freeze", {})
        time.sleep(15)
        for scheme in ("light", "dark"):
            page.look(1180, 890, scheme)
            time.sleep(2)
            page.screenshot(folder / f"page-{scheme}.png")


def watch(terminal, seconds):
    """Time that the picture is to tell of."""
    for _ in range(seconds * 20):
        terminal.read(0.05)


def main():
    folder = ROOT / "docs/screens"
    folder.mkdir(exist_ok=True)
    if TRACE:
        (folder / "trace.svg").write_text(timeline(json.loads(pathlib.Path(TRACE).read_text())))
        return
    stage = PageStage("page")
    stage.setUp()
    try:
        stage.page(folder)
    finally:
        stage.doCleanups()
        stage.tearDown()
    for stage, picture in () if PAGE else ((Stage("top"), "top"), (TraceStage("trace"), "trace")):
        stage.setUp()
        try:
            (folder / f"{picture}.svg").write_text(getattr(stage, picture)())
        finally:
            stage.doCleanups()
            stage.tearDown()


if __name__ == "__main__":
    main()

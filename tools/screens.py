#!/usr/bin/env python3
"""screens.py [BUILD]: makes docs/screens/*.svg, pictures of the terminal, from real runs on the soft GPU."""
import os
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ["TESSERA_BUILD"] = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve())
sys.path.insert(0, str(ROOT / "tests/e2e"))

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


def watch(terminal, seconds):
    """Time that the picture is to tell of."""
    for _ in range(seconds * 20):
        terminal.read(0.05)


def main():
    folder = ROOT / "docs/screens"
    folder.mkdir(exist_ok=True)
    stage = Stage("top")
    stage.setUp()
    try:
        (folder / "top.svg").write_text(stage.top())
    finally:
        stage.doCleanups()
        stage.tearDown()


if __name__ == "__main__":
    main()

"""Programs on two GPUs: what is ordered on one of them leaves the other alone, and they may wait for one another."""
import sys

from harness.bench import compare, last_words
from harness.checks import Skipped, expect
from cases.frameworks import FOLDER, need
from harness.steering import HIGH, LOW, inside, steer, ticker

HELD = 4 << 30  # bytes
MOST_BESIDE = 2 << 30  # a context and the program's own buffers
LEAST_SPEED = 0.97  # of what it was, on the GPU that nobody gave an order about


@steer(soft=True, limit_s=90)
def two_gpus(bench):
    """Freeze, limit and priority on one of the two, and a freeze of the process, which stops it on both."""
    gpus = bench.tessera.get("/v1/gpus")["gpus"]
    if len(gpus) < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two, --soft 2x4GiB as well)")
    expect(all(gpu["control"]["by"] == "channels" for gpu in gpus), f"channels are not steered: {gpus}")
    names = ("hw-first", "hw-second")
    for number, name in enumerate(names):
        bench.vgpu(name, gpu=number, compute_priority=LOW)
    both = inside(bench, ticker(bench, devices=2), vgpu=",".join(names))
    bench.until(lambda: both.count(0) > 100 and both.count(1) > 100, "it gets on, on both")
    solo = [both.rate(2, device) for device in (0, 1)]
    rows = {}

    def looks(what, settle_s=0.2):
        both.moved_in(settle_s)
        rows[what] = [both.rate(1, device) / solo[device] for device in (0, 1)]
        return rows[what]

    for number, name in enumerate(names):
        bench.cli("freeze", f"vgpu:{name}")
        speeds = looks(f"{name} frozen")
        bench.cli("thaw", f"vgpu:{name}")
        expect(speeds[number] == 0 and speeds[1 - number] >= LEAST_SPEED, f"frozen on {number}: {speeds}")
    bench.cli("freeze", str(both.pid))
    expect(looks("process frozen") == [0, 0], f"frozen on both: {rows}")
    bench.cli("thaw", str(both.pid))
    bench.tessera.set("hw-second", compute_limit=30)
    speeds = looks("limit 30 on the second", 1.0)
    expect(speeds[0] >= LEAST_SPEED and abs(speeds[1] - 0.3) <= 0.1, f"limited on the second: {speeds}")
    bench.tessera.set("hw-second", compute_limit=100)
    bench.vgpu("hw-above", gpu=1, compute_priority=HIGH)
    above = inside(bench, ticker(bench), vgpu="hw-above")
    above.moves(20)
    speeds = looks("a higher class on the second")
    expect(speeds[0] >= LEAST_SPEED and speeds[1] < 0.03, f"a higher class on the second: {speeds}")
    above.result()
    both.moves()
    both.result()
    text = "; ".join(f"{what}: {first * 100:.1f} / {second * 100:.1f} %" for what, (first, second) in rows.items())
    return f"{text}; results right", {"solo": solo, "rows": rows}


@steer(limit_s=60)
def gate_two_gpus(bench):
    """Memory that the kernel gate counts is charged to the vGPU of the GPU that it is on."""
    if len(bench.tessera.get("/v1/gpus")["gpus"]) < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two)")
    names = ("hw-first", "hw-second")
    for number, name in enumerate(names):
        bench.vgpu(name, gpu=number)
    both = inside(bench, ticker(bench, memory=HELD, devices=2), vgpu=",".join(names), enforce="kernel")
    both.moves(20)
    held = [bench.tessera.vgpu(name)["memory_current_bytes"] for name in names]
    both.result()
    figure = f"{HELD >> 30} GiB on each: charged {' / '.join(f'{bytes_ / 2**30:.2f}' for bytes_ in held)} GiB"
    expect(all(HELD <= bytes_ <= HELD + MOST_BESIDE for bytes_ in held), figure)
    return figure, held


@steer(limit_s=200)
def nccl_two_gpus(bench):
    """Two processes whose kernels wait for one another's, beside a busy program on each GPU: channels, then gates, which
    give either GPU's time to whom they like."""
    if len(bench.tessera.get("/v1/gpus")["gpus"]) < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two)")
    need("torch")
    argv = [sys.executable, FOLDER / "torch_allreduce.py", 200]
    native = bench.native(argv, limit_s=60)
    figures = [f"{last_words(native)} without Tessera"]
    for by, config in (("channels", ""), ("gates", "[channels]\ncontrol = 'off'\n")):
        with bench.daemon(config):
            names = ("hw-first", "hw-second")
            for number, name in enumerate(names):
                bench.vgpu(name, gpu=number)
                bench.vgpu(f"{name}-busy", gpu=number)
            alone = bench.inside(argv, vgpu=",".join(names), limit_s=60)
            compare(native, alone)
            busy = [inside(bench, ticker(bench), vgpu=f"{name}-busy") for name in names]
            for ticking in busy:
                ticking.moves(20)
            beside = bench.inside(argv, vgpu=",".join(names), limit_s=60)
            compare(native, beside)
            for ticking in busy:
                ticking.moves(20)
                ticking.result()
        figures.append(f"by {by}: {last_words(alone)} alone, {last_words(beside)} beside two")
    return "; ".join(figures)

"""An MPS server of our own, and its clients in vGPUs."""
import contextlib
import shutil

from harness import processes
from harness.checks import Skipped, expect
from harness.steering import inside, native, steer, ticker

LIMITS = {"hw-mps-a": 30, "hw-mps-b": 20}
CAP_POINTS = 1.5


@contextlib.contextmanager
def server(bench):
    """The environment in which programs are clients of an MPS of our own, which ends afterwards."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not program:
        raise Skipped("no nvidia-cuda-mps-control")
    folder = bench.folder / "mps"
    folder.mkdir(exist_ok=True)
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    daemon = bench.start_native([program, "-f"], env)
    try:
        bench.until((folder / "control").exists, "MPS stands", 20)
        yield env
    finally:
        processes.run([program], 20, env, "quit\n")
        with contextlib.suppress(TimeoutError):
            daemon.wait(10)
        daemon.kill()


@steer(limit_s=90)
def mps_clients(bench):
    """Two clients of one server in vGPUs with limits: who enforces them, what they get, and whether a freeze holds."""
    alone = native(bench, ticker(bench))
    steps, solo = alone.extra, alone.rate(2)
    alone.result()
    with server(bench) as env:
        clients = {}
        for name, limit in LIMITS.items():
            bench.vgpu(name, compute_limit=limit)
            clients[name] = inside(bench, ticker(bench, steps=steps), env, vgpu=name)
        for client in clients.values():
            client.moves(20)
        bench.until(lambda: all(bench.tessera.process(c.pid) for c in clients.values()), "they are listed")
        first, second = clients.values()
        shares = {name: client.rate(4) / solo * 100 for name, client in clients.items()}
        told = bench.tessera.gpu()["control"]
        bench.cli("freeze", str(first.pid))
        first.moved_in(0.2)  # what was under way
        moved, beside = first.moved_in(0.5), second.moved_in(0.5)
        bench.cli("thaw", str(first.pid))
        first.moves()
        for client in clients.values():
            client.result()
    figure = (f"by {told['by']} ({told['why'] or 'channels are known'}); limits "
              + ", ".join(f"{LIMITS[name]}: {share:.1f} %" for name, share in shares.items())
              + f" of solo; one frozen moved {moved}, the other {beside}; results right")
    expect(moved == 0 and beside > 0, figure)
    expect(all(share <= LIMITS[name] + CAP_POINTS for name, share in shares.items()), figure)
    return figure, {"shares": shares, "control": told}

"""Busy programs in spaces and beside them, and how fast they are."""
import functools
import signal
import time

from harness import tenants
from harness.checks import expect
from harness.steering import watched


def space(**options):
    """Declares a check of the section "space"."""
    return watched("space", **options)


@functools.cache
def size(soft):
    """Blocks and threads that fill any number of SMs evenly."""
    return (1, 32) if soft else (21120, 256)


def start(bench, vgpu=None, seconds=120, iterations=None, **options):
    blocks, threads = size(bench.soft)
    return tenants.start(bench, seconds, iterations, vgpu=vgpu, native=vgpu is None, blocks=blocks, threads=threads,
                         **options)


def solo(bench):
    """(kernels a second, iterations, SMs of the GPU) of a busy program alone and without Tessera."""
    tenant = start(bench, seconds=10)
    rate = tenant.rate(*tenants.window(bench, 0.5, 1.5))
    iterations = tenant.ready["iterations"]
    tenant.program.kill()
    return rate, iterations


def ready(bench, name):
    return bench.until(lambda: (s := bench.tessera.api("GET", f"/v1/spaces/{name}")).get("state") == "ready" and s,
                       f"space {name} is ready", 20)


def member(bench, name, within, **fields):
    bench.vgpu(name, space=within, **fields)
    ready(bench, within)


def rate(bench, tenant, settle_s=0.4, seconds=1.5):
    return tenant.rate(*tenants.window(bench, settle_s, seconds))


def rates(bench, running, settle_s=0.6, seconds=3.0):
    begin, end = tenants.window(bench, settle_s, seconds)
    return [tenant.rate(begin, end) for tenant in running]


def parts(running, alone, seconds):
    """Parts of the rates alone, also of programs that stand and report nothing."""
    before = [tenant.kernels() for tenant in running]
    begin = time.monotonic()
    time.sleep(seconds)
    after = [tenant.kernels() for tenant in running]
    took = time.monotonic() - begin
    return [(now - was) / took / rate for now, was, rate in zip(after, before, alone)]


def stop(*running):
    for tenant in running:
        tenant.program.kill()


def finish(bench, *running):
    """Ends them by SIGTERM; their results must be right."""
    for tenant in running:
        tenant.program.signal(signal.SIGTERM)
    for tenant in running:
        done = tenant.done(30)
        expect(done["verified"], f"results of {tenant.pid} are wrong")

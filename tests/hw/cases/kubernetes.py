"""Pods by the DRA driver, beside real GPUs: what fits, shares in containers, what hostile pods get, how long it takes."""
import statistics
import time

from harness import members, tenants
from harness.bench import GIB, MIB
from harness.checks import add, expect
from harness.cluster import Cluster
from harness.steering import Worker, driver_path

STEP = 64 * MIB
MOST_MS, MOST_BURST_S, MOST_WAIT_S = 50, 10, 5  # p50 of a claim; 110 at once; the third pod
MOST_OFF = 0.02  # a share in a container, of the same share outside


def kube(soft=False, **options):
    """Declares a check of the section "kube": alone, because it takes the whole GPU."""
    def declare(body):
        add("kube", body.__name__, body, alone=True, soft=soft, **options)
        return body
    return declare


def _part(cluster, percent):
    """So much of the GPU's memory, as a claim says it."""
    return str(cluster.capacity()["memory"] * percent // 100 // STEP * STEP)


def _busy(bench, cluster, claim, iterations=None, **options):
    blocks, threads = members.size(bench.soft)
    argv = tenants.arguments(bench, 120, iterations, blocks=blocks, threads=threads, **options)
    return tenants.Tenant(bench, cluster.contain(claim, argv))


def _said(program, limit_s=60):
    """All that a program says until it ends."""
    program.wait(limit_s)
    done = program.finished()
    return done.status, done.out + done.err


@kube(limit_s=120)
def three_pods(bench):
    """Three pods of 43 % of the memory and 40 % of the time: two run, the third starts when one ends. One that takes more
    than its claim is refused, and the other goes on."""
    rate, iterations = members.solo(bench)
    with Cluster(bench) as cluster:
        claims = [cluster.claim(f"pod-{i}", memory=_part(cluster, 43), compute=40) for i in range(3)]
        expect([claim is not None for claim in claims] == [True, True, False], f"{claims}")
        running = [_busy(bench, cluster, cluster.prepare(claim), iterations) for claim in claims[:2]]
        shares = [each / rate for each in members.rates(bench, running)]
        more = int(_part(cluster, 43)) + GIB // (8 if bench.soft else 1)
        status, text = _said(cluster.contain(claims[0], tenants.arguments(bench, 5, iterations, memory=more)))
        expect(status != 0 and "OUT_OF_MEMORY" in text, f"{more} bytes: {status} {text[-300:]}")
        neighbour = members.rate(bench, running[1]) / rate
        running[0].program.kill()
        begin = time.monotonic()
        cluster.end(claims[0])
        late = bench.until(lambda: cluster.allocate(cluster.server.get("resourceclaims", "pod-2", "default")),
                           "the third pod's claim to fit", MOST_WAIT_S)
        third = _busy(bench, cluster, cluster.prepare(late), iterations)
        bench.until(third.kernels, "the third pod's first kernels", 20)
        waited = time.monotonic() - begin
        last = [each / rate for each in members.rates(bench, [running[1], third])]
    figure = (f"two run with {shares[0]:.3f} and {shares[1]:.3f} of the speed alone; more than the claim: its own "
              f"CUDA_ERROR_OUT_OF_MEMORY, the neighbour {neighbour:.3f}; the third worked {waited:.2f} s after one had ended, "
              f"then {last[0]:.3f} and {last[1]:.3f}")
    expect(waited <= MOST_WAIT_S and min(*shares, neighbour, *last) >= (0.3 if bench.soft else 0.4), figure)
    return figure, {"shares": shares, "waited_s": waited, "last": last}


@kube(soft=True, limit_s=180)
def three_pods_swap(bench):
    """The same three pods where each is content with 30 % on the GPU and 13 % in host memory: all run, each has filled
    43 %, and the results are right."""
    with bench.daemon('[swap]\nsize = "90%"\n' if not bench.soft else '[swap]\nsize = "4G"\n'), Cluster(bench) as cluster:
        requests = {"memory": _part(cluster, 30), "swap": _part(cluster, 13), "compute": 30}
        claims = [cluster.prepare(cluster.claim(f"pod-{i}", **requests)) for i in range(3)]
        each = (int(requests["memory"]) + int(requests["swap"])) * 95 // 100
        programs = [cluster.contain(claim, tenants.arguments(bench, 10, memory=each, **{"memory-stride": "64K"}))
                    for claim in claims]
        done = [_said(program, 120) for program in programs]
        figure = f"3 x {each / GIB:.1f} GiB in pods of {int(requests['memory']) / GIB:.1f} + {int(requests['swap']) / GIB:.1f} GiB"
        expect(all(status == 0 and '"verified":true' in text.replace(" ", "") for status, text in done),
               f"{figure}: {[(status, text[-200:]) for status, text in done]}")
    return figure + ": all ran, contents right"


@kube(limit_s=120)
def shares(bench):
    """60 and 40 % in containers (own PID, IPC, UTS and mount namespaces), and the same outside."""
    rate, iterations = members.solo(bench)
    with Cluster(bench) as cluster:
        terms = {"memory": _part(cluster, 10)}
        claims = [cluster.prepare(cluster.claim(f"pod-{part}", compute=part, config={"compute": {"limit": part}}, **terms))
                  for part in (60, 40)]
        running = [_busy(bench, cluster, claim, iterations) for claim in claims]
        inside = [each / rate for each in members.rates(bench, running, seconds=5.0)]
        for each in running:
            each.program.kill()
        for claim in list(cluster.claims):
            cluster.end(claim)
        for part in (60, 40):
            bench.vgpu(f"hw-{part}", compute_request=part, compute_limit=part)
        running = [members.start(bench, f"hw-{part}", iterations=iterations) for part in (60, 40)]
        outside = [each / rate for each in members.rates(bench, running, seconds=5.0)]
    figure = (f"in containers {inside[0]:.3f} and {inside[1]:.3f} of the speed alone, outside {outside[0]:.3f} and "
              f"{outside[1]:.3f}")
    expect(bench.soft or all(abs(a - b) <= MOST_OFF for a, b in zip(inside, outside)), figure)
    return figure


@kube(limit_s=120)
def space(bench):
    """Two pods in a space, 50 % of the SMs each: MPS over the borders of PID and IPC namespaces."""
    _, iterations = members.solo(bench)
    with Cluster(bench) as cluster:
        config = {"space": "hw", "sm": {"reserved": True}}
        claims = [cluster.prepare(cluster.claim(f"pod-{i}", memory=_part(cluster, 10), sm=50, config=config)) for i in range(2)]
        alone = []
        for claim in claims:
            tenant = _busy(bench, cluster, claim, iterations)
            alone.append(members.rate(bench, tenant))
            tenant.program.kill()
        running = [_busy(bench, cluster, claim, iterations) for claim in claims]
        both = members.rates(bench, running)
        sms = [cluster.vgpu(claim)["sms"] for claim in claims]
        for each in running:
            each.program.kill()
    parts = [now / before for now, before in zip(both, alone)]
    figure = f"{sms[0]} and {sms[1]} SMs: side by side {parts[0]:.3f} and {parts[1]:.3f} of alone"
    expect(bench.soft or min(parts) >= 0.95, figure)
    return figure


@kube(soft=True, limit_s=120)
def hostile(bench):
    """A claim with `enforce: kernel`: without the profile no container starts; with it, a program without the shim gets what
    the claim says and no more, and joins no other claim."""
    limit = bench.memory // STEP * STEP
    with Cluster(bench) as cluster:
        memory, profile = str(limit), cluster.profile()
        claim = cluster.prepare(cluster.claim("gated", memory=memory, compute=40, config={"enforce": "kernel"}))
        other = cluster.prepare(cluster.claim("other", memory=memory, compute=40))
        status, text = _said(cluster.contain(claim, ["/bin/true"]))
        expect(status != 0 and "tessera-require-gate" in text, f"without the profile: {status} {text[-300:]}")
        key = next(each for each in cluster.specification(claim)["devices"][0]["containerEdits"]["env"]
                   if each.startswith("TESSERA_VGPU="))
        stolen = f"TESSERA_VGPU=default.other.{other['metadata']['uid']}:{key.rpartition(':')[2]}"
        status, text = _said(cluster.contain(claim, ["/usr/bin/env", stolen, *tenants.arguments(bench, 1)], seccomp=profile))
        expect(status != 0 and "key" in text, f"another claim's vGPU: {status} {text[-300:]}")
        if bench.soft:
            return "no container without the profile; no other claim's vGPU"
        argv = [bench.builder.program("raw_memory.cpp"), driver_path(bench), limit + 2 * GIB]
        worker = Worker(bench, cluster.contain(claim, argv, seccomp=profile))
        got, refused = (int(bench.line(worker.program).split()[1]) for _ in range(2))
        row = cluster.vgpu(claim)
        spare = limit - row["memory_current_bytes"]
        worker.program.kill()
    figure = (f"no container without the profile; no other claim's vGPU; without the shim, claim of {limit // MIB} MiB: got "
              f"{got // MIB}, then error {refused}, {spare / MIB:.1f} MiB spare")
    expect(got <= limit and refused == 2 and 0 <= spare <= 2 * MIB, figure)
    return figure


@kube(soft=True, limit_s=120)
def claim_time(bench):
    """From the kubelet's request to its answer, in turn, and 110 at once."""
    with Cluster(bench) as cluster:
        took = []
        for i in range(40):
            claim = cluster.claim(f"one-{i}", memory=str(STEP), compute=0)
            begin = time.monotonic()
            cluster.prepare(claim)
            took.append((time.monotonic() - begin) * 1000)
            cluster.end(claim)
        claims = [cluster.claim(f"all-{i}", memory=str(STEP), compute=0) for i in range(110)]
        begin = time.monotonic()
        done = cluster.kubelet.prepare(claims)
        burst = time.monotonic() - begin
        failed = [each.error for each in done.values() if each.error]
        with open(f"/proc/{cluster.driver.pid}/status") as file:
            resident = next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
        cluster.kubelet.unprepare(claims)
        left = [vgpu["name"] for vgpu in bench.tessera.get("/v1/vgpus")["vgpus"] if vgpu["name"].startswith("default.")]
    figure = (f"p50 {statistics.median(took):.1f} ms, the longest of 40 {max(took):.1f}; 110 at once {burst:.2f} s, {len(failed)} "
              f"failed, {len(left)} left; driver {resident:.0f} MiB resident")
    expect(statistics.median(took) <= MOST_MS and burst <= MOST_BURST_S and not failed and not left and resident <= 30, figure)
    return figure

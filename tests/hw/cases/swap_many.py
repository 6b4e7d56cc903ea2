"""Far more programs than the GPU holds, together: all start, work in turns and finish."""
import time

from harness.bench import GIB, MIB
from harness.checks import expect
from harness.swap_ground import CHUNK, Large, free_ram, swap

PROGRAMS = 40
PASSES = 3
HOST_EACH = GIB // 2  # of a program with a context on a real GPU


def _sizes(bench, total):
    """(programs, bytes of each, bytes of the GPU, bytes of the pool): 8 of 1,000 MiB on a soft GPU of 4 GiB; on a real
    one 40 of 10 GiB, or as many of them as GPU and free RAM hold."""
    count = int(bench.options.get("many.programs", 8 if bench.soft else PROGRAMS))
    each = int(float(bench.options.get("many.gib", 1000 / 1024 if bench.soft else 10)) * GIB)
    beside = bench.context_bytes + CHUNK  # what of a program stays on the GPU
    room = min(total, 4 * GIB) if bench.soft else total - 2 * GIB
    while True:
        spare = GIB if bench.soft else 8 * GIB + count * HOST_EACH
        wanted = max(count * (each + beside) - room, each) + 2 * count * CHUNK
        pool = min(wanted, free_ram() - spare) // CHUNK * CHUNK
        if pool >= wanted // CHUNK * CHUNK or count <= 2:
            return count, each, room, pool
        if "many.programs" in bench.options:  # so many, and smaller
            each -= CHUNK
        else:
            count -= 1


@swap(soft=True, limit_s=500)
def many(bench):
    """--option many.programs=40 makes the programs smaller instead of fewer where host memory does not hold them."""
    total = bench.tessera.gpu()["memory_total_bytes"]
    count, each, room, pool = _sizes(bench, total)
    bench.tell(f"{count} programs of {each / GIB:.2f} GiB on {room / GIB:.1f} GiB, with a pool of {pool / GIB:.1f} GiB")
    bench.tessera.stop()
    bench.tessera.start(config=f'[memory]\nreserve = "{total - room}"\n[swap]\nsize = "{pool}"\nfloor = "1G"\n')
    begin = time.monotonic()
    programs = [Large(bench, each, f"hw-many-{number}", block=min(GIB, each // 4), wait=False, memory_max=each + 2 * GIB)
                for number in range(count)]
    for program in programs:
        program.stands(bench.left())
    started_s = time.monotonic() - begin
    bench.tell(f"all have their memory after {started_s:.1f} s; host memory "
               f"{bench.tessera.gpu()['swap']['pool_used_bytes'] / GIB:.1f} GiB")
    for program in programs:
        program.tell(f"pass {PASSES}")
    for program in programs:
        program.told(bench.left())
    worked_s = time.monotonic() - begin - started_s
    bench.tell(f"all have worked through their memory {PASSES} times after {worked_s:.1f} s more")
    for program in programs:
        program.tell("check")
    wrong = sum(program.told(bench.left())[0] for program in programs)
    moved = sum(row["moved_out_bytes"] + row["moved_in_bytes"] for row in bench.tessera.processes())
    for program in programs:
        program.end(60)
    refused = [event for event in bench.tessera.get("/v1/events")["events"] if event["type"] == "memory.refused"]
    figure = (f"{count} programs of {each / MIB:.0f} MiB on {room / GIB:.1f} GiB: all finished after "
              f"{time.monotonic() - begin:.1f} s, {wrong:.0f} words wrong, {len(refused)} refused, {moved / GIB:.1f} GiB moved")
    expect(wrong == 0 and not refused, figure)
    expect(moved > 0, f"nothing moved: {figure}")
    return figure

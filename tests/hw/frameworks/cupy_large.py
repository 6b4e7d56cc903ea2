"""CuPy with gigabytes of arrays that change, go and come in all sizes: cupy_large.py default|async [ROUNDS [GIB]]

By CuPy's own pool, or by the driver's (cudaMallocAsync). Prints sums of all arrays, which are integers. What the pool
keeps goes back now and then.
"""
import random
import sys

import cupy

SIZES = [mib << 20 for mib in (1, 2, 11, 20, 65, 130, 514)]
CHANGES, EXCHANGES = 6, 2  # arrays, in a round
EMPTY_EVERY, TELL_EVERY = 100, 250  # rounds


def array(size, seed):
    return cupy.arange(seed, seed + size // 8, dtype=cupy.int64)


def main(kind, rounds=4000, gib=6):
    pool = cupy.cuda.MemoryAsyncPool() if kind == "async" else cupy.get_default_memory_pool()
    cupy.cuda.set_allocator(pool.malloc)
    dice = random.Random(1)
    kept = []
    while sum(each.nbytes for each in kept) < gib << 30:
        kept.append(array(dice.choice(SIZES), len(kept)))
    for n in range(rounds):
        for _ in range(CHANGES):
            each = dice.choice(kept)
            each *= 3
            each += n
        for _ in range(EXCHANGES):
            i = dice.randrange(len(kept))
            size, kept[i] = kept[i].nbytes, None
            kept[i] = array(size, n)
        if n % EMPTY_EVERY == EMPTY_EVERY - 1:
            pool.free_all_blocks()
        if n % TELL_EVERY == TELL_EVERY - 1:
            print(f"round {n} sum {sum(int(each.sum()) for each in kept)}", flush=True)


main(sys.argv[1], *map(int, sys.argv[2:]))

"""cupy_math.py [ROUNDS]: CuPy: cuBLAS, reductions, sorting, a kernel compiled from source, its memory pool and its own
out-of-memory error. In further rounds it goes on with the first results, each for 50 ms or more."""
import hashlib
import sys
import time

import cupy

MIX = cupy.RawKernel(
    r"""extern "C" __global__ void mix(unsigned* x, unsigned n) {
          unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) x[i] = x[i] * 2654435761u + i;
        }""", "mix")


def digest(array):
    return hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16]


def main(rounds):
    numbers = cupy.arange(1 << 20, dtype=cupy.uint32)
    MIX((4096,), (256,), (numbers, cupy.uint32(numbers.size)))
    print("kernel", digest(numbers))
    print("sorted", digest(cupy.sort(numbers)))
    print("sum", int(numbers.astype(cupy.uint64).sum()))
    a = (numbers[: 512 * 512].reshape(512, 512) % 97).astype(cupy.float64)
    print("product", digest(a @ a))
    pool = cupy.get_default_memory_pool()
    print("pool holds something:", pool.used_bytes() > 0)
    try:
        cupy.empty(1 << 40, dtype=cupy.uint8)
        print("1 TiB was given")
    except cupy.cuda.memory.OutOfMemoryError as error:
        print("1 TiB:", type(error).__name__)
    pool.free_all_blocks()
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        print("async pool", digest(cupy.arange(1000, dtype=cupy.int64) ** 2))
    for number in range(1, rounds):
        begin = time.monotonic()
        MIX((4096,), (256,), (numbers, cupy.uint32(numbers.size)))
        a = (a @ a) % 97
        print("round", number, digest(cupy.sort(numbers)), digest(a), flush=True)
        time.sleep(max(0, 0.05 - (time.monotonic() - begin)))


main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)

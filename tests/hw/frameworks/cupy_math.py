"""CuPy: cuBLAS, reductions, sorting, a kernel compiled from source, its memory pool and its own out-of-memory error."""
import hashlib

import cupy

MIX = cupy.RawKernel(
    r"""extern "C" __global__ void mix(unsigned* x, unsigned n) {
          unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) x[i] = x[i] * 2654435761u + i;
        }""", "mix")


def digest(array):
    return hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16]


def main():
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


main()

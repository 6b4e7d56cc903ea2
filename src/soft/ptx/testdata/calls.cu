// nvcc -arch=sm_75 -rdc=true -ptx calls.cu
#include <cassert>
#include <cstdio>

extern "C" {

__device__ __noinline__ float polynomial(float x, int degree) {
  float sum = 0;
  for (int i = 0; i <= degree; ++i) sum = sum * x + i;
  return sum;
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void call(float* out) { out[threadIdx.x] = polynomial(threadIdx.x * 0.5f, threadIdx.x % 4); }

__global__ void recurse(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

__device__ int plus_one(int x) { return x + 1; }
__device__ int twice(int x) { return 2 * x; }
typedef int (*Function)(int);
__device__ Function functions[2] = {plus_one, twice};

__global__ void call_pointer(int* out) { out[threadIdx.x] = functions[threadIdx.x & 1](threadIdx.x); }

__global__ void print(int n) {
  printf("thread %d of %s: %.2f %5u|%-4d|%c %llx %%\n", threadIdx.x, "print", 1.5 * n, 7u, n, 'x', 1ull << 40);
}

__global__ void check(int n) { assert(n != 3); }

__global__ void local_array(const int* in, int* out, int k) {
  int window[10];
  for (int i = 0; i < 10; ++i) window[i] = in[(threadIdx.x + i) % 32] * i;
  out[threadIdx.x] = window[k % 10] + window[threadIdx.x % 10];
}
}

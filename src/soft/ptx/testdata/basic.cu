// nvcc -arch=sm_75 -ptx basic.cu
extern "C" {

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void block_sum(const int* in, int* out, int n) {
  __shared__ int partial[256];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, partial[0]);
}

__global__ void matrix_multiply(const float* a, const float* b, float* c, int n) {
  extern __shared__ float tiles[];
  float* tile_a = tiles;
  float* tile_b = tiles + blockDim.x * blockDim.y;
  const int x = threadIdx.x, y = threadIdx.y, width = blockDim.x;
  const int column = blockIdx.x * width + x, row = blockIdx.y * width + y;
  float sum = 0;
  for (int t = 0; t < n; t += width) {
    tile_a[y * width + x] = a[row * n + t + x];
    tile_b[y * width + x] = b[(t + y) * n + column];
    __syncthreads();
    for (int k = 0; k < width; ++k) sum += tile_a[y * width + k] * tile_b[k * width + x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void histogram(const unsigned char* in, unsigned* bins, int n) {
  __shared__ unsigned counts[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&counts[in[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], counts[i]);
}

__global__ void warp_sum(const int* in, int* out) {
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
  if (threadIdx.x % 32 == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

// The steps of the Collatz sequence: every lane leaves the loop at a time of its own.
__global__ void collatz(const unsigned* in, unsigned* steps, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long value = in[i];
  unsigned count = 0;
  while (value != 1) {
    if (value % 2 == 0) {
      value /= 2;
    } else {
      value = 3 * value + 1;
    }
    ++count;
  }
  steps[i] = count;
}

__global__ void double_math(const double* a, const double* b, double* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = sqrt(a[i]) / b[i] + fma(a[i], b[i], -1.5) * floor(b[i]);
}

__global__ void dense_switch(const int* in, int* out, int k) {
  const int i = threadIdx.x;
  int r = in[i];
  switch (r & 7) {
    case 0:
      r = r * 3 + k;
      break;
    case 1:
      r = r - k;
      break;
    case 2:
      r = r / (k + 1);
      break;
    case 3:
      r = r ^ k;
      break;
    case 4:
      r = __popc(r) + k;
      break;
    case 5:
      r = r << (k & 3);
      break;
    case 6:
      r = r % (k + 2);
      break;
    default:
      r = -r;
  }
  out[i] = r;
}

struct Settings {
  int factors[16];
  double scale;
};

__global__ void by_value(Settings settings, double* out) {
  out[threadIdx.x] = settings.factors[threadIdx.x % 16] * settings.scale;
}

__constant__ int weights[4] = {1, 10, 100, 1000};
__device__ int counter = 5;
__device__ int* counter_pointer = &counter;

__global__ void variables(int* out) {
  out[threadIdx.x] = weights[threadIdx.x & 3] + *counter_pointer;
  if (threadIdx.x == 0) counter = 7;
}

__global__ void spin(unsigned long long nanoseconds, unsigned long long* elapsed) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
  *elapsed = now - start;
}

// Lanes of one warp take a lock in turn: the one that has it must get on while the others try.
__global__ void locked_increment(int* lock, int* count) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)count = *(volatile int*)count + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// Thread 0 waits for the last thread of the block, which waits for the host.
__global__ void relay(volatile int* from_host, volatile int* flag) {
  if (threadIdx.x == blockDim.x - 1) {
    while (*from_host == 0) {
    }
    *flag = 1;
  } else if (threadIdx.x == 0) {
    while (*flag == 0) {
    }
    *flag = 2;
  }
}
}

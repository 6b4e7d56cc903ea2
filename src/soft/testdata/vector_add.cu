// A kernel as programs have them, for the test that takes it through nvcc.
extern "C" __global__ void vector_add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

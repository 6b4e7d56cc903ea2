// A kernel that writes where nothing is: prints the error with which its work ends.
#include "device_words.h"

__global__ void WriteTo(int* nowhere) { *nowhere = 1; }

int main() {
  RT(cudaFree(nullptr));
  std::printf("writes\n");
  std::fflush(stdout);
  WriteTo<<<1, 1>>>(reinterpret_cast<int*>(16));
  std::printf("ends with %s\n", Name(cudaDeviceSynchronize()));
  return 0;
}

// Makes contexts for ever, computes a little in each and destroys it: its channels come and go all the time. One count
// is one context whose words were right; ordered about as orders.h says.
#include "driver.h"
#include "orders.h"

static unsigned long long Work() {
  Kernels kernels;
  CUdeviceptr data;
  const uint32_t words = 1 << 13;
  CU(cuMemAlloc(&data, words * 4));
  kernels.Launch(kernels.fill, data, words, 7);
  kernels.Launch(kernels.mix, data, words, 3);
  return DeviceChecksum(data, words);
}

int main() {
  CUdevice device;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  unsigned long long first = 0;
  bool right = true;
  TakeOrders(0);
  while (!OrderedToEnd()) {
    const CUcontext context = CreateContext(device);
    const unsigned long long sum = Work();
    if (first == 0) first = sum;
    right = right && sum == first;
    CU(cuCtxDestroy(context));
    CountWork(1);
  }
  return ReportDone(right);
}

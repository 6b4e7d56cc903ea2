// Keeps GPUs busy with kernels of one length, which count in host memory while they run: "ticker KERNEL_US [STEPS
// [BLOCKS [BYTES [DEVICES]]]]". STEPS other than 0 gives the length of a kernel instead of KERNEL_US; BLOCKS of 128
// threads, one by default; BYTES of memory are taken and held; DEVICES are used at once, the first by default. Says
// "ready PID STEPS", and is ordered about as orders.h says; "count N" answers for the device N, "rest" and "work" end
// and begin the launches.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "orders.h"
#include "step.h"

namespace {

struct Device {
  CUcontext context;
  std::unique_ptr<Stepper> stepper;
};
std::vector<Device> devices;
std::atomic<bool> resting = false;

Device Open(int number, unsigned blocks, size_t bytes) {
  Device made;
  CUdevice device;
  CU(cuDeviceGet(&device, number));
  CU(cuDevicePrimaryCtxRetain(&made.context, device));
  CU(cuCtxSetCurrent(made.context));
  CUdeviceptr held = 0;
  if (bytes != 0) CU(cuMemAlloc(&held, bytes));
  made.stepper = std::make_unique<Stepper>(blocks);
  return made;
}

void OnOrder(const char* line) {
  unsigned number = 0;
  if (sscanf(line, "count %u", &number) == 1 && number < devices.size()) {
    printf("count %u\n", *devices[number].stepper->Told());
  } else if (strcmp(line, "rest") == 0 || strcmp(line, "work") == 0) {
    resting = line[0] == 'r';
    printf("%s\n", line);
  } else {
    printf("no such order\n");
  }
}

// Some 4 ms of work, and never less than two kernels, are under way: the GPU does not run dry.
void KeepBusy(const Device& device, double kernel_us) {
  CU(cuCtxSetCurrent(device.context));
  const int ahead = std::max(2, static_cast<int>(4000 / std::max(kernel_us, 1.0)));
  std::vector<CUevent> ends(static_cast<size_t>(ahead));
  for (CUevent& end : ends) CU(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  for (size_t i = 0; !OrderedToEnd(); ++i) {
    while (resting && !OrderedToEnd()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CUevent end = ends[i % ends.size()];
    if (i >= ends.size()) CU(cuEventSynchronize(end));
    device.stepper->Launch();
    CU(cuEventRecord(end, device.stepper->Stream()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double kernel_us = argc > 1 ? std::atof(argv[1]) : 1000;
  const unsigned steps = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 0;
  const unsigned blocks = argc > 3 ? static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)) : 1;
  const size_t bytes = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  const int count = argc > 5 ? std::atoi(argv[5]) : 1;
  CU(cuInit(0));
  for (int i = 0; i < count; ++i) devices.push_back(Open(i, blocks, bytes));
  CU(cuCtxSetCurrent(devices[0].context));
  if (steps == 0) devices[0].stepper->Calibrate(kernel_us);
  const unsigned chosen = steps != 0 ? steps : devices[0].stepper->Steps();
  for (const Device& device : devices) device.stepper->SetSteps(chosen);
  orders_gpu_count = devices[0].stepper->Told();
  orders_other = OnOrder;
  TakeOrders(chosen);

  std::vector<std::thread> others;
  for (size_t i = 1; i < devices.size(); ++i) others.emplace_back([i, kernel_us] { KeepBusy(devices[i], kernel_us); });
  KeepBusy(devices[0], kernel_us);
  for (std::thread& other : others) other.join();
  bool right = true;
  for (const Device& device : devices) {
    CU(cuCtxSetCurrent(device.context));
    right = device.stepper->Right() && right;
  }
  return ReportDone(right);
}

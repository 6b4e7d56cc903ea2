// Keeps the GPU busy with kernels of one length, which count in host memory while they run: "ticker KERNEL_US [STEPS
// [BLOCKS [BYTES]]]". STEPS other than 0 gives the length of a kernel instead of KERNEL_US; BLOCKS of 128 threads, one
// by default; BYTES of memory are taken and held. Says "ready PID STEPS", and is ordered about as orders.h says.
#include "orders.h"
#include "step.h"

int main(int argc, char** argv) {
  const double kernel_us = argc > 1 ? std::atof(argv[1]) : 1000;
  const unsigned steps = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 0;
  const unsigned blocks = argc > 3 ? static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)) : 1;
  const size_t bytes = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  CUdevice device;
  CUcontext context;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CUdeviceptr held = 0;
  if (bytes != 0) CU(cuMemAlloc(&held, bytes));
  Stepper stepper(blocks);
  if (steps != 0)
    stepper.SetSteps(steps);
  else
    stepper.Calibrate(kernel_us);
  orders_gpu_count = stepper.Told();
  TakeOrders(stepper.Steps());

  // Some 4 ms of work, and never less than two kernels, are under way: the GPU does not run dry.
  const int ahead = std::max(2, static_cast<int>(4000 / std::max(kernel_us, 1.0)));
  std::vector<CUevent> ends(static_cast<size_t>(ahead));
  for (CUevent& end : ends) CU(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  for (size_t i = 0; !OrderedToEnd(); ++i) {
    CUevent end = ends[i % ends.size()];
    if (i >= ends.size()) CU(cuEventSynchronize(end));
    stepper.Launch();
    CU(cuEventRecord(end, stepper.Stream()));
  }
  return ReportDone(stepper.Right());
}

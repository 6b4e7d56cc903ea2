#include "soft/exec/kernel_run.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "soft/device/address_map.h"
#include "soft/device/context.h"
#include "soft/device/device.h"
#include "soft/device/memory_steps.h"
#include "soft/module/module.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult ResultOf(ptx::Fault::Kind kind) {
  switch (kind) {
    case ptx::Fault::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Fault::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Fault::kInvalidAddressSpace:
      return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case ptx::Fault::kInvalidPc:
      return CUDA_ERROR_INVALID_PC;
    case ptx::Fault::kAssert:
      return CUDA_ERROR_ASSERT;
    case ptx::Fault::kDeadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case ptx::Fault::kInvalidLaunch:
    case ptx::Fault::kStackOverflow:
    case ptx::Fault::kTrap:
    case ptx::Fault::kAborted:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// Device time for each instruction that is executed. The speed of a device is that of all its multiprocessors together,
// and blocks run in waves of one on each that the program may use: five blocks on four multiprocessors last as long as
// eight. (The blocks are executed one after another here; only the time is modelled.)
double TimePerInstruction(std::uint64_t blocks, std::uint64_t usable, std::uint64_t all) {
  const std::uint64_t waves = (blocks + usable - 1) / usable;
  return static_cast<double>(waves * all) / static_cast<double>(blocks);
}

class KernelHooks : public ptx::Hooks {
 public:
  KernelHooks(Device& device, Arbiter& arbiter, double time_per_instruction, const std::function<bool()>& aborted)
      : arbiter_(arbiter), time_per_instruction_(time_per_instruction), steps_(device, Frozen::kKernels, aborted) {}

  // Waits while the process is frozen. False if the kernel was aborted.
  bool BeginStep() {
    while (!steps_.aborted()) {
      if (arbiter_.ShouldYield()) arbiter_.Yield();
      if (steps_.TryBegin()) return true;
    }
    return false;
  }

  bool Progress(std::uint64_t thread_instructions) override {
    steps_.End();
    // Not inside of a step: a pipe that nobody reads must keep nobody from freezing the process.
    std::fwrite(printed_.data(), 1, printed_.size(), stdout);
    printed_.clear();
    const double exact = remainder_ + static_cast<double>(thread_instructions) * time_per_instruction_;
    const auto whole = static_cast<std::uint64_t>(exact);
    remainder_ = exact - static_cast<double>(whole);
    arbiter_.Charge(whole);
    return BeginStep();
  }

  void Print(std::string_view text) override { printed_ += text; }

 private:
  Arbiter& arbiter_;
  const double time_per_instruction_;
  MemorySteps steps_;
  std::string printed_;
  double remainder_ = 0;
};

}  // namespace

CUresult RunKernel(const KernelWork& work, Context& context, Arbiter& arbiter, std::uint64_t grid_id,
                   const std::function<bool()>& aborted) {
  const std::uint32_t all = context.device().multiprocessors();
  const std::uint32_t multiprocessors = work.multiprocessors == 0 ? all : std::min(all, work.multiprocessors);
  const std::uint64_t blocks = work.grid.Count();
  const ptx::Launch launch = {.grid = work.grid,
                              .block = work.block,
                              .dynamic_shared_bytes = work.dynamic_shared_bytes,
                              .parameters = work.parameters,
                              .cooperative = work.cooperative,
                              .sm_count = multiprocessors,
                              .grid_id = grid_id};
  if (arbiter.ShouldYield()) arbiter.Release();
  arbiter.Use(static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, multiprocessors)));
  arbiter.Acquire();
  std::expected<void, ptx::Fault> result;
  {
    KernelHooks hooks(context.device(), arbiter,
                      TimePerInstruction(blocks, multiprocessors, context.device().spec().multiprocessors), aborted);
    if (!hooks.BeginStep()) return CUDA_SUCCESS;
    result = ptx::Run(work.function->module.code(), work.function->kernel, launch, AddressMap::Get(), hooks);
  }
  arbiter.WaitForEnd();
  if (result || aborted()) return CUDA_SUCCESS;
  std::fprintf(stderr, "tessera soft GPU: %s\n", result.error().message.c_str());
  return ResultOf(result.error().kind);
}

}  // namespace tessera::soft

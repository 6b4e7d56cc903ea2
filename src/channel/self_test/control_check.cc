#include "channel/self_test/control_check.h"

#include <algorithm>
#include <array>
#include <string>

namespace tessera::channel {
namespace {

// Others may be using the GPU, so progress is waited for: 2 s.
bool Moves(const Progress& progress) {
  const std::uint32_t before = progress.count();
  for (int i = 0; i < 2000; ++i) {
    progress.sleep(kMillisecond);
    if (progress.count() != before) return true;
  }
  return false;
}

bool StandsStill(const Progress& progress) {
  progress.sleep(progress.settle);
  const std::uint32_t before = progress.count();
  for (int i = 0; i < 10; ++i) {
    progress.sleep(3 * kMillisecond);
    if (progress.count() != before) return false;
  }
  return true;
}

class Check {
 public:
  Check(Control& control, std::uint32_t gpu, const Target& target, const Progress& progress,
        const std::function<void(const char*)>& begin)
      : control_(control), gpu_(gpu), target_(target), progress_(progress), begin_(begin) {}
  ~Check() { static_cast<void>(control_.Thaw(gpu_, {&target_, 1}, Reach::kAll)); }
  Check(const Check&) = delete;

  Result<SelfTest> Run() {
    SelfTest test;
    if (const auto sliced = TrySlices(test.slice); !sliced) return std::unexpected(sliced.error());
    std::array<Nanos, 3> freezes = {}, thaws = {};
    for (std::size_t i = 0; i < freezes.size(); ++i) {
      if (const auto done = FreezeAndThaw(freezes[i], thaws[i]); !done) return std::unexpected(done.error());
    }
    std::ranges::sort(freezes);
    std::ranges::sort(thaws);
    test.freeze = freezes[1];
    test.thaw = thaws[1];
    return test;
  }

 private:
  Result<void> TrySlices(Nanos& usual) {
    begin_("slice");
    auto slice = control_.Slice(gpu_, target_);
    if (!slice) return std::unexpected(slice.error());
    usual = *slice;
    if (usual <= 0) return Fail(EIO, "a new context has a time slice of 0");
    const Nanos other = usual + kMillisecond;
    if (auto set = control_.SetSlice(gpu_, target_, other); !set) return set;
    slice = control_.Slice(gpu_, target_);
    if (!slice) return std::unexpected(slice.error());
    if (*slice != other) {
      return Fail(EIO, "a time slice of " + std::to_string(other / kMicrosecond) + " us was set, and " +
                           std::to_string(*slice / kMicrosecond) + " us is there");
    }
    return control_.SetSlice(gpu_, target_, usual);
  }

  Result<void> FreezeAndThaw(Nanos& freeze, Nanos& thaw) {
    begin_("freeze");
    if (!Moves(progress_)) return Fail(EIO, "the kernel stands still before it is frozen");
    Nanos before = MonotonicNow();
    auto done = control_.Freeze(gpu_, {&target_, 1}, Reach::kCompute);
    freeze = MonotonicNow() - before;
    if (!done) return done;
    if (!StandsStill(progress_)) return Fail(EIO, "the kernel went on");
    begin_("thaw");
    before = MonotonicNow();
    done = control_.Thaw(gpu_, {&target_, 1}, Reach::kCompute);
    thaw = MonotonicNow() - before;
    if (!done) return done;
    if (!Moves(progress_)) return Fail(EIO, "the kernel does not go on");
    return {};
  }

  Control& control_;
  const std::uint32_t gpu_;
  const Target& target_;
  const Progress& progress_;
  const std::function<void(const char*)>& begin_;
};

}  // namespace

Result<SelfTest> CheckControl(Control& control, std::uint32_t gpu, const Target& target, const Progress& progress,
                              const std::function<void(const char*)>& begin) {
  return Check(control, gpu, target, progress, begin).Run();
}

}  // namespace tessera::channel

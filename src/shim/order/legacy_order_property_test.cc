// Threads that give two blocking streams, another one and the legacy stream work, at random: what has returned before a
// call begins comes before its work wherever one of the two is on the legacy stream and the other on a blocking one.
// The cases are the same on every run; RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/testing/same_cases.h"
#include "shim/order/legacy_order.h"
#include "shim/testing/ordered_streams.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using namespace cuda;

constexpr pid_t kThreads = 3;

class Driver : public ShimFixture {
 public:
  Driver() : ShimFixture(false) {}
  void TestBody() override {}
};

class LegacyOrderProperty {
 public:
  LegacyOrderProperty() {
    for (CUstream& stream : blocking_) Make(&stream);
  }
  ~LegacyOrderProperty() { order_.EndAll(); }

  void Step() {
    const auto thread = *rc::gen::inRange<pid_t>(1, kThreads + 1);
    if (calls_.contains(thread)) {
      Return(thread);
    } else if (*rc::gen::inRange(0, 20) == 0) {
      Replace();
    } else {
      Begin(thread);
    }
  }

 private:
  struct Call {
    CUstream stream;
    OrderedStreams::Clock required;
  };

  void Make(CUstream* stream) {
    RC_ASSERT(order_.MakeStream(stream, [&] {
      *stream = reinterpret_cast<CUstream>(next_ += 16);
      return CUDA_SUCCESS;
    }) == CUDA_SUCCESS);
  }
  bool IsBlocking(CUstream stream) const { return std::ranges::find(blocking_, stream) != blocking_.end(); }

  // What has returned so far, and the primary context's legacy stream would have in order.
  OrderedStreams::Clock Required(CUstream stream) const {
    OrderedStreams::Clock required;
    for (const auto& [other, work] : returned_)
      if (stream == CU_STREAM_LEGACY ? IsBlocking(other) || ended_.contains(other)
                                     : IsBlocking(stream) && other == CU_STREAM_LEGACY)
        required[other] = work;
    return required;
  }

  void Begin(pid_t thread) {
    const std::array all = {blocking_[0], blocking_[1], CU_STREAM_LEGACY, other_};
    const CUstream stream = all[*rc::gen::inRange<std::size_t>(0, all.size())];
    const auto use = *rc::gen::inRange(0, 5) == 0 ? LegacyOrder::Use::kWait : LegacyOrder::Use::kWork;
    const OrderedStreams::Clock required = Required(stream);
    RC_ASSERT(order_.Before(stream, use, thread) == CUDA_SUCCESS);
    if (use == LegacyOrder::Use::kWait) {
      Check(required, streams_.Before(stream));
    } else {
      calls_[thread] = {stream, required};
    }
  }

  void Return(pid_t thread) {
    const Call call = calls_.extract(thread).mapped();
    OrderedStreams::Clock before = streams_.Work(call.stream);
    Check(call.required, before);
    returned_[call.stream] = before[call.stream];
  }

  static void Check(const OrderedStreams::Clock& required, const OrderedStreams::Clock& before) {
    for (const auto& [stream, work] : required) {
      const auto found = before.find(stream);
      RC_ASSERT(found != before.end());
      RC_ASSERT(found->second >= work);
    }
  }

  // A program does not destroy a stream that one of its threads uses.
  void Replace() {
    CUstream& stream = blocking_[*rc::gen::inRange<std::size_t>(0, blocking_.size())];
    for (const auto& [thread, call] : calls_)
      if (call.stream == stream) return;
    order_.EndStream(stream);
    ended_.insert(stream);
    Make(&stream);
  }

  OrderedStreams streams_;
  LegacyOrder order_{[](bool) {}};
  std::uintptr_t next_ = 0x1000;
  std::array<CUstream, 2> blocking_{};
  const CUstream other_ = reinterpret_cast<CUstream>(0x900);
  std::set<CUstream> ended_;
  std::map<pid_t, Call> calls_;  // on their way
  OrderedStreams::Clock returned_;
};

RC_GTEST_PROP(LegacyOrder, WorkComesInTheOrderOfAPrimaryContext, ()) {
  static auto* driver = new Driver;
  (void)driver;
  LegacyOrderProperty world;
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) world.Step();
}

}  // namespace
}  // namespace tessera::shim

#include "shim/device/first_call.h"

#include <atomic>
#include <thread>

#include "base/testing/wait_until.h"
#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera;
using namespace tessera::cuda;

TESSERA_HOOK cuDeviceGetCount(int*);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);

namespace tessera::shim {
namespace {

using wire::FirstCall;

std::atomic<int> calls = 0;

CUresult Three(int* count) {
  ++calls;
  *count = 3;
  return CUDA_SUCCESS;
}

// The process is away from all devices that tests of this program have attached to.
class FirstCallTest : public ShimFixture {
 protected:
  FirstCallTest() {
    Cuda().Put(k_cuDeviceGetCount, &Three);
    calls = 0;
    MakeContext();
    const wire::Page& page = *Attached().Page();
    WaitUntil([&] { return page.rests.load() != 0; });  // its pacer has begun, which is a call, too
  }
  ~FirstCallTest() override {
    Leave(0);
    Await(FirstCall::kUnseen);
    EXPECT_TRUE(IsAsBefore());
    tessera_real_table[k_cuDeviceGetCount] = before_;
  }

  static void Leave(std::uint32_t word) {
    Attachment::ForEach([&](const Attachment& each) {
      each.Page()->away = word;
      FollowedPage::Ring(each.Page());
    });
  }
  FirstCall Word() { return Attached().Page()->first_call.load(); }
  void Await(FirstCall word) {
    EXPECT_TRUE(BecomesTrue([&] { return Word() == word; }));
  }

  // Calls go straight to the driver again, which comes a moment after the page says so.
  static bool IsAsBefore() {
    return BecomesTrue([] { return RealAddress(k_cuDeviceGetCount) == reinterpret_cast<void*>(&Three); });
  }

  int count = 0;

 private:
  void* const before_ = RealAddress(k_cuDeviceGetCount);
};

TEST_F(FirstCallTest, OfOneThatIsNotAwayIsNoSecret) {
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(Word(), FirstCall::kUnseen);
}

TEST_F(FirstCallTest, IsToldAndComesToTheDriverWhenTheProgramIsBack) {
  Leave(wire::AwayWord(0, false, true));
  Await(FirstCall::kAwaited);
  std::jthread first([&] { EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS); });
  Await(FirstCall::kCame);
  std::jthread second([] {
    int also = 0;
    EXPECT_EQ(cuDeviceGetCount(&also), CUDA_SUCCESS);
  });
  FollowedPage::Ring(Attached().Page());
  EXPECT_EQ(calls, 0) << "the driver would not hold each of them";
  Leave(0);
  first.join();
  second.join();
  EXPECT_EQ(count, 3) << "with its arguments";
  EXPECT_EQ(calls, 2);
  Await(FirstCall::kUnseen);
  EXPECT_TRUE(IsAsBefore()) << "it costs nothing any more";
}

TEST_F(FirstCallTest, OfTheNextTimeIsToldAgain) {
  for (int i = 0; i < 2; ++i) {
    Leave(wire::AwayWord(0, false));
    Await(FirstCall::kAwaited);
    std::jthread caller([&] { EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS); });
    Await(FirstCall::kCame);
    Leave(0);
    caller.join();
    Await(FirstCall::kUnseen);
  }
}

TEST_F(FirstCallTest, ThatWaitsIsToldAgainWhenTheProgramIsAwayAgain) {
  Leave(wire::AwayWord(0, false));
  Await(FirstCall::kAwaited);
  std::jthread caller([&] { EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS); });
  Await(FirstCall::kCame);
  // Nobody rings: the thread does not see it.
  Attachment::ForEach([](const Attachment& each) { each.Page()->away = 0; });
  EXPECT_TRUE(MindFirstCall());
  Leave(wire::AwayWord(0, false));
  Await(FirstCall::kCame);
  Leave(0);
  caller.join();
}

TEST_F(FirstCallTest, ThatAHookAnswersIsSeenToo) {
  Leave(wire::AwayWord(0, false));
  Await(FirstCall::kAwaited);
  std::jthread caller([] {
    CUdeviceptr memory = 0;
    (void)cuMemAlloc_v2(&memory, kMiB);
  });
  Await(FirstCall::kCame);
  Leave(0);
}

TEST_F(FirstCallTest, IsAwaitedWhenNoThreadOfTesserasIsInTheDriver) {
  Attached().Page()->own_calls.fetch_add(1);
  Leave(wire::AwayWord(0, false));
  EXPECT_FALSE(MindFirstCall());
  EXPECT_EQ(Word(), FirstCall::kUnseen);
  Attached().Page()->own_calls.fetch_sub(1);
  Await(FirstCall::kAwaited);
}

}  // namespace
}  // namespace tessera::shim

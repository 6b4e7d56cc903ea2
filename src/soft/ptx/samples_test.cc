// Kernels that nvcc compiled from testdata/*.cu.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

class Samples : public ::testing::Test {
 protected:
  std::unique_ptr<Module> LoadSample(std::string_view name) { return device_.Load(ReadSample(name)); }

  Device device_;
};

std::vector<int> Counting(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST_F(Samples, VectorAdd) {
  const auto module = LoadSample("basic.ptx");
  constexpr int kCount = 1000;
  std::vector<float> a(kCount), b(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = 0.5f * i, b[i] = 1e-3f * i * i;
  const auto c = device_.Upload(std::vector<float>(kCount + 24, -1));
  LaunchOk(device_, *module, "vector_add", {8}, {128}, device_.Upload(a), device_.Upload(b), c, kCount);
  const auto result = device_.Download<float>(c, kCount + 24);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(result[i], a[i] + b[i]);
  EXPECT_EQ(result[kCount], -1);
  EXPECT_GT(device_.instructions, 1024u * 5);
}

TEST_F(Samples, BlockSumInSharedMemory) {
  const auto module = LoadSample("basic.ptx");
  EXPECT_EQ(module->Find("block_sum")->static_shared_bytes, 1024u);
  const auto out = device_.Upload(std::vector<int>{0});
  LaunchOk(device_, *module, "block_sum", {3}, {256}, device_.Upload(Counting(5000)), out, 5000);
  EXPECT_EQ(device_.Download<int>(out, 1)[0], 5000 * 4999 / 2);
}

TEST_F(Samples, MatrixMultiplyInDynamicSharedMemory) {
  const auto module = LoadSample("basic.ptx");
  constexpr int kSize = 48, kTile = 16;
  std::vector<float> a(kSize * kSize), b(kSize * kSize);
  for (int i = 0; i < kSize * kSize; ++i) a[i] = i % 7 - 3, b[i] = i % 5 - 2;
  const auto c = device_.Upload(std::vector<float>(kSize * kSize));
  const Launch launch = {.grid = {kSize / kTile, kSize / kTile},
                         .block = {kTile, kTile},
                         .dynamic_shared_bytes = 2 * kTile * kTile * sizeof(float)};
  const auto done =
      TryLaunch(device_, *module, "matrix_multiply", launch, Arguments(device_.Upload(a), device_.Upload(b), c, kSize));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const auto result = device_.Download<float>(c, kSize * kSize);
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      float sum = 0;
      for (int k = 0; k < kSize; ++k) sum += a[row * kSize + k] * b[k * kSize + column];
      ASSERT_EQ(result[row * kSize + column], sum) << row << ", " << column;
    }
  }
}

TEST_F(Samples, SharedMemoryThatWasNotAskedForIsIllegal) {
  const auto module = LoadSample("basic.ptx");
  const auto a = device_.Upload(std::vector<float>(256));
  const auto done = TryLaunch(device_, *module, "matrix_multiply", {.block = {16, 16}}, Arguments(a, a, a, 16));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Fault::kIllegalAddress);
}

TEST_F(Samples, Histogram) {
  const auto module = LoadSample("basic.ptx");
  std::vector<unsigned char> in(3000);
  std::vector<unsigned> expected(256);
  for (std::size_t i = 0; i < in.size(); ++i) ++expected[in[i] = static_cast<unsigned char>(i * i)];
  const auto bins = device_.Upload(std::vector<unsigned>(256));
  LaunchOk(device_, *module, "histogram", {4}, {96}, device_.Upload(in), bins, 3000);
  EXPECT_EQ(device_.Download<unsigned>(bins, 256), expected);
}

TEST_F(Samples, WarpSum) {
  const auto module = LoadSample("basic.ptx");
  const auto out = device_.Upload(std::vector<int>(8));
  LaunchOk(device_, *module, "warp_sum", {2}, {128}, device_.Upload(Counting(256)), out);
  const auto result = device_.Download<int>(out, 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(result[i], 32 * 32 * i + 32 * 31 / 2);
}

TEST_F(Samples, DivergentLoops) {
  const auto module = LoadSample("basic.ptx");
  std::vector<unsigned> in(300), expected(300);
  for (unsigned i = 0; i < in.size(); ++i) {
    in[i] = i * 37 + 1;
    for (std::uint64_t value = in[i]; value != 1; value = value % 2 ? 3 * value + 1 : value / 2) ++expected[i];
  }
  const auto steps = device_.Upload(std::vector<unsigned>(300));
  LaunchOk(device_, *module, "collatz", {5}, {64}, device_.Upload(in), steps, 300);
  EXPECT_EQ(device_.Download<unsigned>(steps, 300), expected);
}

TEST_F(Samples, DoubleMath) {
  const auto module = LoadSample("basic.ptx");
  std::vector<double> a(64), b(64);
  for (int i = 0; i < 64; ++i) a[i] = 0.1 * i, b[i] = 1.7 * i - 20.25;
  const auto c = device_.Upload(std::vector<double>(64));
  LaunchOk(device_, *module, "double_math", {1}, {64}, device_.Upload(a), device_.Upload(b), c, 64);
  const auto result = device_.Download<double>(c, 64);
  for (int i = 0; i < 64; ++i) {
    const double product = std::fma(a[i], b[i], -1.5);
    ASSERT_EQ(result[i], std::fma(product, std::floor(b[i]), std::sqrt(a[i]) / b[i])) << i;
  }
}

TEST_F(Samples, DenseSwitch) {
  const auto module = LoadSample("basic.ptx");
  std::vector<int> in(64), expected(64);
  constexpr int k = 5;
  for (int i = 0; i < 64; ++i) {
    const int r = in[i] = 97 * i - 1000;
    const int cases[] = {r * 3 + k,
                         r - k,
                         r / (k + 1),
                         r ^ k,
                         std::popcount(static_cast<unsigned>(r)) + k,
                         static_cast<int>(static_cast<unsigned>(r) << (k & 3)),
                         r % (k + 2),
                         -r};
    expected[i] = cases[r & 7];
  }
  const auto out = device_.Upload(std::vector<int>(64));
  LaunchOk(device_, *module, "dense_switch", {1}, {64}, device_.Upload(in), out, k);
  EXPECT_EQ(device_.Download<int>(out, 64), expected);
}

TEST_F(Samples, ParameterByValue) {
  struct Settings {
    int factors[16];
    double scale;
  } settings = {.scale = 0.5};
  for (int i = 0; i < 16; ++i) settings.factors[i] = i * i;
  const auto module = LoadSample("basic.ptx");
  const Kernel& kernel = *module->Find("by_value");
  ASSERT_EQ(kernel.parameters.size(), 2u);
  EXPECT_EQ(kernel.parameters[0].bytes, sizeof settings);
  EXPECT_EQ(kernel.parameters[1].offset, sizeof settings);
  const auto out = device_.Upload(std::vector<double>(32));
  LaunchOk(device_, *module, "by_value", {1}, {32}, settings, out);
  const auto result = device_.Download<double>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(result[i], (i % 16) * (i % 16) * 0.5);
}

TEST_F(Samples, VariablesOfTheModule) {
  const auto module = LoadSample("basic.ptx");
  const auto out = device_.Upload(std::vector<int>(4));
  LaunchOk(device_, *module, "variables", {1}, {4}, out);
  EXPECT_EQ(device_.Download<int>(out, 4), (std::vector{6, 15, 105, 1005}));
  LaunchOk(device_, *module, "variables", {1}, {4}, out);
  EXPECT_EQ(device_.Download<int>(out, 4), (std::vector{8, 17, 107, 1007}));
}

TEST_F(Samples, SpinOnGlobalTimer) {
  const auto module = LoadSample("basic.ptx");
  const auto elapsed = device_.Upload(std::vector<std::uint64_t>{0});
  LaunchOk(device_, *module, "spin", {1}, {1}, std::uint64_t{2'000'500}, elapsed);
  EXPECT_EQ(device_.Download<std::uint64_t>(elapsed, 1)[0], 2'001'000u);
}

TEST_F(Samples, LanesOfAWarpShareALock) {
  const auto module = LoadSample("basic.ptx");
  const auto lock = device_.Upload(std::vector<int>{0}), count = device_.Upload(std::vector<int>{0});
  LaunchOk(device_, *module, "locked_increment", {3}, {64}, lock, count);
  EXPECT_EQ(device_.Download<int>(count, 1)[0], 3 * 64);
}

TEST_F(Samples, ThreadsWaitForOneAnotherAndForTheHost) {
  const auto module = LoadSample("basic.ptx");
  for (const std::uint32_t threads : {2u, 256u}) {  // in one warp, and in two
    const auto from_host = device_.Upload(std::vector<int>{0}), flag = device_.Upload(std::vector<int>{0});
    device_.progress_calls = 0;
    device_.on_progress = [&] {
      if (device_.progress_calls == 20) __atomic_store_n(reinterpret_cast<int*>(from_host), 1, __ATOMIC_RELEASE);
      return true;
    };
    LaunchOk(device_, *module, "relay", {1}, {threads}, from_host, flag);
    EXPECT_EQ(device_.Download<int>(flag, 1)[0], 2);
    EXPECT_GE(device_.progress_calls, 20);
  }
}

TEST_F(Samples, AnEndlessKernelCanBeAborted) {
  const auto module = LoadSample("basic.ptx");
  const auto zero = device_.Upload(std::vector<int>{0});
  device_.on_progress = [&] { return device_.progress_calls < 50; };
  const auto done = TryLaunch(device_, *module, "relay", {.block = {64}}, Arguments(zero, zero));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Fault::kAborted);
}

TEST_F(Samples, CallOfADeviceFunction) {
  const auto module = LoadSample("calls.ptx");
  const auto out = device_.Upload(std::vector<float>(64));
  LaunchOk(device_, *module, "call", {1}, {64}, out);
  const auto result = device_.Download<float>(out, 64);
  for (int i = 0; i < 64; ++i) {
    float sum = 0;
    for (int k = 0; k <= i % 4; ++k) sum = std::fma(sum, i * 0.5f, static_cast<float>(k));
    ASSERT_EQ(result[i], sum);
  }
}

TEST_F(Samples, Recursion) {
  const auto module = LoadSample("calls.ptx");
  const auto out = device_.Upload(std::vector<int>(40));
  LaunchOk(device_, *module, "recurse", {1}, {40}, out);
  const auto result = device_.Download<int>(out, 40);
  constexpr int kFibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 40; ++i) EXPECT_EQ(result[i], kFibonacci[i % 12]);
}

TEST_F(Samples, CallThroughAPointer) {
  const auto module = LoadSample("calls.ptx");
  const auto out = device_.Upload(std::vector<int>(32));
  LaunchOk(device_, *module, "call_pointer", {1}, {32}, out);
  const auto result = device_.Download<int>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(result[i], i % 2 ? 2 * i : i + 1);
}

TEST_F(Samples, Printf) {
  const auto module = LoadSample("calls.ptx");
  LaunchOk(device_, *module, "print", {1}, {2}, 3);
  EXPECT_EQ(device_.printed,
            "thread 0 of print: 4.50     7|3   |x 10000000000 %\nthread 1 of print: 4.50     7|3   |x 10000000000 %\n");
}

TEST_F(Samples, Assert) {
  const auto module = LoadSample("calls.ptx");
  LaunchOk(device_, *module, "check", {1}, {1}, 4);
  const auto done = TryLaunch(device_, *module, "check", {}, Arguments(3));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Fault::kAssert);
  EXPECT_NE(done.error().message.find("Assertion `n != 3` failed"), std::string::npos) << done.error().message;
}

TEST_F(Samples, LocalArray) {
  const auto module = LoadSample("calls.ptx");
  const auto out = device_.Upload(std::vector<int>(64));
  LaunchOk(device_, *module, "local_array", {1}, {64}, device_.Upload(Counting(32)), out, 4);
  const auto result = device_.Download<int>(out, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result[i], (i + 4) % 32 * 4 + (i + i % 10) % 32 * (i % 10));
}

TEST_F(Samples, GridSync) {
  const auto module = LoadSample("warp.ptx");
  constexpr int kThreads = 40 * 64;
  const auto values = device_.Upload(std::vector<int>(kThreads));
  const auto done = TryLaunch(device_, *module, "grid_sync", {.grid = {40}, .block = {64}, .cooperative = true},
                              Arguments(values, kThreads));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const auto result = device_.Download<int>(values, kThreads);
  for (int i = 0; i < kThreads; ++i) ASSERT_EQ(result[i], (i + 64) % kThreads);
}

TEST_F(Samples, GridSyncNeedsACooperativeLaunch) {
  const auto module = LoadSample("warp.ptx");
  const auto values = device_.Upload(std::vector<int>(64));
  const auto done = TryLaunch(device_, *module, "grid_sync", {.block = {64}}, Arguments(values, 64));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Fault::kTrap);
}

TEST_F(Samples, VotesAndShuffles) {
  const auto module = LoadSample("warp.ptx");
  const auto out = device_.Upload(std::vector<int>(8 * 64, -7));
  LaunchOk(device_, *module, "votes", {1}, {64}, out);
  const auto result = device_.Download<int>(out, 8 * 64);
  for (int i = 0; i < 64; ++i) {
    const int* row = &result[8 * static_cast<std::size_t>(i)];
    const int first = i / 32 * 32;
    EXPECT_EQ(row[0], static_cast<int>(0xaaaaaaaa));
    EXPECT_EQ(row[1], i < 32 ? 3 : 0);
    EXPECT_EQ(row[2], (i ^ 3) * 100 + (i - first < 2 ? i : i - 2));
    EXPECT_EQ(row[3], 32 * first + 31 * 32 / 2);
    EXPECT_EQ(row[4], static_cast<int>(0x11111111u << (i & 3)));
    EXPECT_EQ(row[5], 32);
    EXPECT_EQ(row[6], 2);
    EXPECT_EQ(row[7], i % 2 ? -7 : 0x55555555);
  }
}

TEST_F(Samples, TilesOfAWarp) {
  const auto module = LoadSample("warp.ptx");
  const auto out = device_.Upload(std::vector<int>(64));
  LaunchOk(device_, *module, "tiles", {1}, {64}, out);
  const auto result = device_.Download<int>(out, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result[i], 2 * (64 * (i / 8) + 28) + (i < 8)) << i;
}

TEST_F(Samples, Halves) {
  const auto module = LoadSample("warp.ptx");
  // Exact in all formats on the way, so that no rounding has to be repeated here.
  const std::vector<float> in = {0, 1, -1, 1.5, 0.75, -2.5, 3, 8};
  const auto count = static_cast<std::uint32_t>(in.size());
  const auto sums = device_.Allocate(2 * count), products = device_.Allocate(4 * count);
  const auto squares = device_.Allocate(2 * count), back = device_.Allocate(4 * count);
  LaunchOk(device_, *module, "halves", {1}, {count}, device_.Upload(in), sums, products, squares, back);
  const std::map<float, std::uint16_t> half = {{0.25f, 0x3400},   {1.25f, 0x3d00},  {-0.75f, 0xba00}, {1.75f, 0x3f00},
                                               {1, 0x3c00},       {-2.25f, 0xc080}, {3.25f, 0x4280},  {8.25f, 0x4820},
                                               {3, 0x4200},       {-1, 0xbc00},     {4, 0x4400},      {2.5f, 0x4100},
                                               {-4, 0xc400},      {7, 0x4700},      {17, 0x4c40},     {2, 0x4000},
                                               {1.5625f, 0x3e40}, {7.25f, 0x4740},  {10, 0x4900},     {65, 0x5410}};
  for (std::uint32_t i = 0; i < count; ++i) {
    const float x = in[i];
    EXPECT_EQ(device_.Download<std::uint16_t>(sums, count)[i], half.at(x + 0.25f)) << x;
    EXPECT_EQ(device_.Download<std::uint16_t>(products, 2 * count)[2 * i], half.at(x * x + 1)) << x;
    EXPECT_EQ(device_.Download<std::uint16_t>(products, 2 * count)[2 * i + 1], half.at(2 * x + 1)) << x;
    EXPECT_EQ(device_.Download<std::uint16_t>(squares, count)[i], std::bit_cast<std::uint32_t>(x * x) >> 16) << x;
    EXPECT_EQ(device_.Download<float>(back, count)[i], x + 0.25f + (x > 0 ? 100 : 0)) << x;
  }
}

TEST_F(Samples, Atomics) {
  const auto module = LoadSample("warp.ptx");
  const auto i = device_.Upload(std::vector<int>(5)), wrapped = device_.Upload(std::vector<unsigned>(2));
  const auto u = device_.Upload(std::vector<std::uint64_t>(1));
  const auto f = device_.Upload(std::vector<float>(1)), d = device_.Upload(std::vector<double>(1));
  LaunchOk(device_, *module, "atomics", {2}, {100}, i, u, f, d, wrapped);
  EXPECT_EQ(device_.Download<int>(i, 5), (std::vector<int>{200, 99, -99, -1, 0}));
  EXPECT_EQ(device_.Download<std::uint64_t>(u, 1)[0], 200ull << 33);
  EXPECT_EQ(device_.Download<float>(f, 1)[0], 100);
  EXPECT_EQ(device_.Download<double>(d, 1)[0], 50);
  EXPECT_EQ(device_.Download<unsigned>(wrapped, 2), (std::vector<unsigned>{200 % 5, (5 - 200 % 5) % 5}));
}

// The host's threads see the kernel's atomics, and the other way round.
TEST_F(Samples, AtomicsOfSeveralKernelsAtOnce) {
  const auto module = LoadSample("warp.ptx");
  const auto i = device_.Upload(std::vector<int>(5)), wrapped = device_.Upload(std::vector<unsigned>(2));
  const auto u = device_.Upload(std::vector<std::uint64_t>(1));
  const auto f = device_.Upload(std::vector<float>(1)), d = device_.Upload(std::vector<double>(1));
  const Arguments arguments(i, u, f, d, wrapped);
  const auto run = [&] {
    struct : Hooks {
      bool Progress(std::uint64_t) override { return true; }
      void Print(std::string_view) override {}
    } hooks;
    const Launch launch = {.grid = {8}, .block = {128}, .parameters = arguments.bytes()};
    EXPECT_TRUE(ptx::Run(*module, *module->Find("atomics"), launch, device_, hooks).has_value());
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(device_.Download<int>(i, 5)[0], 2 * 8 * 128);
  EXPECT_EQ(device_.Download<double>(d, 1)[0], 2 * 8 * 128 * 0.25);
}

}  // namespace
}  // namespace tessera::soft::ptx::testing

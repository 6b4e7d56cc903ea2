// Branches, calls, barriers and the turns that warps and blocks take.
#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

class Control : public ::testing::Test {
 protected:
  // Runs the kernel "test(out)" of `text` in one block and returns the words that its threads wrote.
  std::vector<std::uint32_t> Words(std::string_view text, std::uint32_t threads) {
    const auto module = device_.Load(std::string(kHeader) + std::string(text));
    const auto out = device_.Upload(std::vector<std::uint32_t>(threads));
    if (module != nullptr) LaunchOk(device_, *module, "test", {1}, {threads}, out);
    return device_.Download<std::uint32_t>(out, threads);
  }
  // The kernel with its thread number in %r0 and the address of its word in %l0.
  static std::string Kernel(std::string_view body) {
    return ".visible .entry test(.param .u64 out) { .reg .b32 %r<16>; .reg .b64 %l<8>; .reg .pred %p<8>;\n"
           ".shared .align 4 .b8 shared[4096];\n"
           "ld.param.u64 %l0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %l1, %r0, 4; add.s64 %l0, %l0, %l1;\n" +
           std::string(body) + "}\n";
  }
  Fault FaultOf(std::string_view text, Launch launch) {
    const auto module = device_.Load(std::string(kHeader) + std::string(text));
    if (module == nullptr) return {};
    const auto done = TryLaunch(device_, *module, "test", launch, Arguments(device_.Allocate(8192)));
    EXPECT_FALSE(done.has_value());
    return done ? Fault{} : done.error();
  }

  Device device_;
};

TEST_F(Control, IndexedBranch) {
  const auto words = Words(Kernel(R"(
    and.b32 %r1, %r0, 3;
    T: .branchtargets A, B, C, B;
    brx.idx %r1, T;
    A: mov.u32 %r2, 100; bra.uni End;
    B: mov.u32 %r2, 200; bra.uni End;
    C: mov.u32 %r2, 300;
    End: add.u32 %r2, %r2, %r0; st.global.u32 [%l0], %r2; ret;)"),
                           40);
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(words[i], i + (i % 4 == 0 ? 100 : i % 4 == 2 ? 300 : 200));
}

TEST_F(Control, IndexedBranchBeyondItsTable) {
  const Fault fault = FaultOf(Kernel("T: .branchtargets A; brx.idx 1, T; A: ret;"), {});
  EXPECT_EQ(fault.kind, Fault::kInvalidPc);
}

TEST_F(Control, DivergentLanesMeetAgain) {
  // Nested branches, then all lanes vote together: the mask shows who is there.
  const auto words = Words(Kernel(R"(
    and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra Even;
    setp.lt.u32 %p2, %r0, 10;
    @%p2 bra Join;
    add.u32 %r3, %r0, 1;
    bra Join;
    Even: add.u32 %r3, %r0, 2;
    Join: activemask.b32 %r4; st.global.u32 [%l0], %r4; ret;)"),
                           32);
  EXPECT_EQ(words, std::vector<std::uint32_t>(32, 0xffffffff));
}

TEST_F(Control, GuardedExitsAndReturns) {
  const auto words = Words(Kernel(R"(
    mov.u32 %r1, 1; st.global.u32 [%l0], %r1;
    setp.lt.u32 %p1, %r0, 5; @%p1 exit;
    setp.lt.u32 %p1, %r0, 9; @%p1 ret;
    bar.sync 0;
    mov.u32 %r1, 2; st.global.u32 [%l0], %r1;)"),
                           40);
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(words[i], i < 9 ? 1u : 2u);
}

TEST_F(Control, FunctionsReturnByGuardToDifferentCallers) {
  const auto words = Words(R"(
.func (.param .b32 result) choose(.param .b32 x) {
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u32 %r1, [x];
  setp.gt.u32 %p, %r1, 20;
  mov.u32 %r2, 7; st.param.u32 [result], %r2;
  @%p ret;
  add.u32 %r2, %r1, 1000; st.param.u32 [result], %r2;
  ret;
})" + Kernel(R"(
    and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra Even;
    { .param .b32 a; .param .b32 b; st.param.u32 [a], %r0; call.uni (b), choose, (a); ld.param.u32 %r2, [b]; }
    bra Done;
    Even:
    { .param .b32 a; .param .b32 b; mul.lo.u32 %r3, %r0, 2; st.param.u32 [a], %r3; call.uni (b), choose, (a); ld.param.u32 %r2, [b]; }
    Done: st.global.u32 [%l0], %r2; ret;)"),
                           32);
  for (std::uint32_t i = 0; i < 32; ++i) {
    const std::uint32_t x = i % 2 ? i : 2 * i;
    EXPECT_EQ(words[i], x > 20 ? 7 : x + 1000) << i;
  }
}

TEST_F(Control, EndlessRecursionOverflowsTheStack) {
  const Fault fault = FaultOf(".func deeper() { call deeper; ret; }\n" + Kernel("call deeper; ret;"), {.block = {32}});
  EXPECT_EQ(fault.kind, Fault::kStackOverflow);
}

TEST_F(Control, CallThroughABadPointer) {
  EXPECT_EQ(FaultOf(Kernel("mov.u64 %l2, 12345; P: .callprototype _ (); call %l2, P; ret;"), {}).kind,
            Fault::kInvalidPc);
}

TEST_F(Control, Trap) {
  const Fault fault = FaultOf(Kernel("setp.eq.u32 %p1, %r0, 33; @%p1 trap; ret;"), {.block = {64}});
  EXPECT_EQ(fault.kind, Fault::kTrap);
  EXPECT_NE(fault.message.find("thread (33,0,0)"), std::string::npos) << fault.message;
}

TEST_F(Control, BarriersOfPartOfABlock) {
  // Warps 0 and 1 meet at barrier 1 and warp 2 only arrives there; warp 3 is not a part of it. The last warp is not
  // full.
  const auto words = Words(Kernel(R"(
    setp.ge.u32 %p1, %r0, 96; @%p1 bra Out;
    shl.b32 %r2, %r0, 2; mov.u32 %r5, shared; add.u32 %r2, %r2, %r5;
    add.u32 %r3, %r0, 1; st.shared.u32 [%r2], %r3;
    setp.ge.u32 %p1, %r0, 64; @%p1 bra Producer;
    barrier.sync 1, 96;
    ld.shared.u32 %r4, [%r2+128];
    st.global.u32 [%l0], %r4;
    ret;
    Producer: bar.arrive 1, 96; ret;
    Out: mov.u32 %r4, 5; st.global.u32 [%l0], %r4; ret;)"),
                           100);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(words[i], i < 64 ? i + 33 : i < 96 ? 0 : 5) << i;
}

TEST_F(Control, BarrierOfLanesThatDiverged) {
  const auto words = Words(Kernel(R"(
    and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
    @%p1 bra Even;
    barrier.sync 0; mov.u32 %r2, 1; bra Done;
    Even: barrier.sync 0; mov.u32 %r2, 2;
    Done: barrier.red.popc.u32 %r3, 0, %p1; mad.lo.u32 %r2, %r3, 10, %r2; st.global.u32 [%l0], %r2; ret;)"),
                           50);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(words[i], 250 + (i % 2 ? 1 : 2));
}

TEST_F(Control, ABarrierThatNobodyElseReachesIsADeadlock) {
  const Fault fault =
      FaultOf(Kernel("setp.lt.u32 %p1, %r0, 32; @%p1 bra L; barrier.sync 1; L: barrier.sync 0; ret;"), {.block = {64}});
  EXPECT_EQ(fault.kind, Fault::kDeadlock);
}

TEST_F(Control, AWarpBarrierThatLanesMeetInDifferentPlaces) {
  const auto words = Words(Kernel(R"(
    setp.lt.u32 %p1, %r0, 16; @%p1 bra Low;
    bar.warp.sync -1; mov.u32 %r2, 1; bra Done;
    Low: bar.warp.sync -1; mov.u32 %r2, 2;
    Done: bar.warp.sync 0xffffffff; activemask.b32 %r3; st.global.u32 [%l0], %r2; ret;)"),
                           32);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(words[i], i < 16 ? 2u : 1u);
}

TEST_F(Control, BlocksThatWaitForOneAnother) {
  // Block 0 waits for all other blocks, although it comes first.
  const auto module = device_.Load(std::string(kHeader) + R"(
.visible .entry test(.param .u64 out) { .reg .b32 %r<8>; .reg .b64 %l<2>; .reg .pred %p<2>;
  ld.param.u64 %l0, [out]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p1, %r0, 0;
  @%p1 red.global.add.u32 [%l0], 1;
  @%p1 exit;
  L: ld.acquire.gpu.global.u32 %r1, [%l0]; setp.lt.u32 %p1, %r1, 9; nanosleep.u32 100; @%p1 bra L;
  st.global.u32 [%l0+4], %r1; ret;
})");
  ASSERT_NE(module, nullptr);
  const auto out = device_.Upload(std::vector<std::uint32_t>(2));
  LaunchOk(device_, *module, "test", {10}, {64}, out);
  EXPECT_EQ(device_.Download<std::uint32_t>(out, 2)[1], 9u + 9 * 63);
}

TEST_F(Control, ProgressIsReportedInSmallSteps) {
  const auto module = device_.Load(std::string(kHeader) + Kernel(R"(
    mov.u32 %r1, 0;
    L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10000; @%p1 bra L; ret;)"));
  ASSERT_NE(module, nullptr);
  LaunchOk(device_, *module, "test", {1}, {32}, device_.Allocate(128));
  EXPECT_EQ(device_.instructions, 32u * (5 + 30000 + 1));
  EXPECT_GE(device_.progress_calls, static_cast<int>(32 * 30000 / (2 * kProgressInterval)));
}

TEST_F(Control, ALaunchThatDoesNotFitIsRefused) {
  const auto module =
      device_.Load(std::string(kHeader) + ".visible .entry test(.param .u64 out) .maxntid 64, 1, 1 { ret; }");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->Find("test")->max_threads, 64u);
  const Arguments arguments(std::uint64_t{0});
  const auto refused = [&](Launch launch, const Arguments& given) {
    const auto done = TryLaunch(device_, *module, "test", launch, given);
    return !done && done.error().kind == Fault::kInvalidLaunch;
  };
  EXPECT_FALSE(refused({.block = {64}}, arguments));
  EXPECT_TRUE(refused({.block = {65}}, arguments));
  EXPECT_TRUE(refused({.block = {0}}, arguments));
  EXPECT_TRUE(refused({.grid = {1, 0}}, arguments));
  EXPECT_TRUE(refused({.block = {8, 8, 2}}, arguments));
  EXPECT_TRUE(refused({.dynamic_shared_bytes = 1 << 20}, arguments));
  EXPECT_TRUE(refused({}, Arguments()));
}

}  // namespace
}  // namespace tessera::soft::ptx::testing

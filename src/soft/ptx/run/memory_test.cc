// Address spaces, atomics, and accesses that are not allowed.
#include <bit>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

// Runs one thread of KernelAround(body), with `in` and `out` of 64 bytes.
std::expected<void, Fault> RunBody(Device& device, std::string_view body, std::uint64_t in, std::uint64_t out) {
  const auto module = device.Load(KernelAround(body));
  if (module == nullptr) return std::unexpected(Fault{Fault::kInvalidLaunch, "not parsed"});
  return TryLaunch(device, *module, "test", {}, Arguments(in, out));
}

Fault::Kind FaultOf(std::string_view body) {
  Device device;
  const auto done = RunBody(device, body, device.Allocate(64), device.Allocate(64));
  EXPECT_FALSE(done.has_value());
  return done ? Fault::kAborted : done.error().kind;
}

TEST(Memory, LoadsExtendAndStoresCut) {
  const std::vector<Row> rows = {{0xfedcba9876543281}};
  const auto results = Compute(R"(
    ld.global.u8 %r3, [%l0]; ld.global.s8 %r4, [%l0]; ld.global.s16 %l3, [%l0+6]; ld.global.u16 %h1, [%l0+2];
    st.global.u32 [%l1], %r3; st.global.u32 [%l1+8], %r4; st.global.u64 [%l1+16], %l3; st.global.u16 [%l1+24], %h1;
    ld.global.u64 %l4, [%l0]; st.global.u8 [%l1+32], %l4; st.global.u16 [%l1+34], %l4;
    ld.global.v4.u16 {%h1, _, %h3, %h4}, [%l0]; st.global.v2.b16 [%l1+40], {%h4, %h3};
    ld.volatile.global.f32 %f3, [%l0+4]; st.relaxed.sys.global.f32 [%l1+48], %f3;
    ld.global.nc.L1::no_allocate.L2::128B.u32 %r5, [%l0]; st.global.u32 [%l1+56], %r5;)",
                               rows);
  EXPECT_EQ(results[0],
            (Row{0x81, 0xffffff81, 0xfffffffffffffedc, 0x7654, 0x32810081, 0xba98fedc, 0xfedcba98, 0x76543281}));
}

TEST(Memory, SpacesAndGenericAddresses) {
  Device device;
  const auto module = device.Load(std::string(kHeader) + R"(
.global .align 8 .u64 cell = 11;
.const .align 4 .u32 fixed[2] = {5, 6};
.shared .align 8 .b8 common[24];
.extern .shared .align 16 .b8 dynamic[];
.visible .entry test(.param .u64 out, .param .align 4 .b8 block[12]) {
  .reg .b32 %r<8>; .reg .b64 %l<20>; .reg .pred %p<4>;
  .local .align 8 .b8 mine[16];
  .shared .align 4 .u32 own;
  ld.param.u64 %l0, [out];
  // Through the spaces' own addresses.
  mov.u64 %l1, 1; st.shared.u64 [common+16], %l1;
  mov.u32 %r1, 2; st.shared.u32 [own], %r1;
  mov.u32 %r1, 3; st.shared.u32 [dynamic+4], %r1;
  mov.u64 %l1, 4; st.local.u64 [mine+8], %l1;
  // And back through generic ones.
  mov.u64 %l1, common; cvta.shared.u64 %l2, %l1; ld.u64 %l3, [%l2+16]; st.global.u64 [%l0], %l3;
  mov.u64 %l1, own; cvta.shared.u64 %l2, %l1; ld.u32 %r2, [%l2]; st.global.u32 [%l0+8], %r2;
  mov.u64 %l1, dynamic+4; cvta.shared.u64 %l2, %l1; ld.u32 %r2, [%l2]; st.global.u32 [%l0+16], %r2;
  mov.u64 %l1, mine; cvta.local.u64 %l2, %l1; ld.u64 %l3, [%l2+8]; st.global.u64 [%l0+24], %l3;
  cvta.to.local.u64 %l4, %l2; ld.local.u64 %l3, [%l4+8]; st.global.u64 [%l0+32], %l3;
  mov.b64 %l1, block; cvta.param.u64 %l2, %l1; ld.u32 %r2, [%l2+8]; st.global.u32 [%l0+40], %r2;
  ld.param.u32 %r2, [%l1+4]; st.global.u32 [%l0+48], %r2;
  mov.u64 %l1, cell; cvta.global.u64 %l2, %l1; ld.u64 %l3, [%l2]; st.global.u64 [%l0+56], %l3;
  ld.const.u32 %r2, [fixed+4]; st.global.u32 [%l0+64], %r2;
  // The state space of each address.
  isspacep.global %p1, %l2; selp.u32 %r3, 1, 0, %p1;
  mov.u64 %l1, common; cvta.shared.u64 %l2, %l1; isspacep.shared %p1, %l2; selp.u32 %r4, 2, 0, %p1;
  isspacep.global %p1, %l2; selp.u32 %r5, 4, 0, %p1;
  or.b32 %r3, %r3, %r4; or.b32 %r3, %r3, %r5; st.global.u32 [%l0+72], %r3;
  ret;
})");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->Find("test")->static_shared_bytes, 28u);
  EXPECT_EQ(module->Find("test")->local_bytes, 16u);
  struct {
    std::uint64_t out;
    std::uint32_t block[3];
  } parameters = {device.Allocate(80), {7, 8, 9}};
  const auto done = TryLaunch(device, *module, "test", {.dynamic_shared_bytes = 8}, Arguments(parameters));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(device.Download<std::uint64_t>(parameters.out, 10),
            (std::vector<std::uint64_t>{1, 2, 3, 4, 4, 9, 8, 11, 6, 3}));
}

TEST(Memory, InitialValues) {
  auto parsed = Module::Parse(std::string(kHeader) + R"(
.global .u32 words[4] = {1, -2, 0x10, 0b11};
.global .align 16 .f32 floats[3] = {1.0, 0f40000000, -0.5};
.global .v2 .f64 pair = {0d3FF0000000000000, 2.5};
.global .u8 text[] = {104, 105};
.global .u64 pointers[3] = {words, generic(words)+4, text};
.global .align 8 .b8 packed[8] = {0xFF(words+8), 0xFF00(words+8), 0xFF0000(words+8), 0xFF000000(words+8)};
.weak .const .b16 nothing[100];
)");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().Text();
  Module& module = **parsed;
  ASSERT_EQ(module.variables().size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) module.Place(i, 0x11223344000 + 0x1000 * i);
  const auto words = [&module](std::size_t index, auto zero) {
    const auto bytes = module.InitialBytes(index);
    std::vector<decltype(zero)> values(bytes.size() / sizeof zero);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  EXPECT_EQ(words(0, 0), (std::vector{1, -2, 16, 3}));
  EXPECT_EQ(words(1, 0.0f), (std::vector{1.0f, 2.0f, -0.5f}));
  EXPECT_EQ(module.variables()[1].alignment, 16u);
  EXPECT_EQ(words(2, 0.0), (std::vector{1.0, 2.5}));
  EXPECT_EQ(module.variables()[2].bytes, 16u);
  EXPECT_EQ(words(3, 'a'), (std::vector{'h', 'i'}));
  EXPECT_EQ(module.variables()[3].bytes, 2u);
  EXPECT_EQ(words(4, 0ull), (std::vector{0x11223344000ull, 0x11223344004ull, 0x11223347000ull}));
  EXPECT_EQ(words(5, 0), (std::vector{0x23344008}));
  EXPECT_EQ(module.variables()[5].bytes, 8u);
  EXPECT_TRUE(module.variables()[6].constant);
  EXPECT_EQ(module.variables()[6].bytes, 200u);
  EXPECT_TRUE(module.InitialBytes(6).empty());
}

TEST(Memory, AccessOutsideOfAllocationsStopsTheKernel) {
  EXPECT_EQ(FaultOf("ld.global.u32 %r3, [%l0+64];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("st.global.u32 [%l1+-4], %r3;"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("ld.u32 %r3, [16];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("mov.u64 %l3, -8; ld.global.u64 %l4, [%l3];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("ld.shared.u32 %r3, [4];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("ld.local.u32 %r3, [4];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("mov.b64 %l3, in; ld.param.u64 %l3, [%l3+16];"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("mov.u64 %l3, in; cvta.param.u64 %l3, %l3; st.u64 [%l3], %l3;"), Fault::kInvalidAddressSpace);
  EXPECT_EQ(FaultOf("atom.global.add.u32 %r3, [%l0+64], 1;"), Fault::kIllegalAddress);
  EXPECT_EQ(FaultOf("mov.u64 %l3, 0x4000000000000010; ld.u32 %r3, [%l3];"), Fault::kIllegalAddress);
}

TEST(Memory, MisalignedAccessStopsTheKernel) {
  EXPECT_EQ(FaultOf("ld.global.u32 %r3, [%l0+2];"), Fault::kMisalignedAddress);
  EXPECT_EQ(FaultOf("ld.global.v2.u32 {%r3, %r4}, [%l0+4];"), Fault::kMisalignedAddress);
  EXPECT_EQ(FaultOf("red.global.add.u64 [%l0+4], 1;"), Fault::kMisalignedAddress);
}

TEST(Memory, AFaultSaysWhere) {
  Device device;
  const auto module = device.Load(std::string(kHeader) + R"(
.visible .entry bad(.param .u64 p) {
  .reg .b64 %l<2>; .reg .b32 %r<2>; .reg .pred %p;
  ld.param.u64 %l0, [p];
  mov.u32 %r0, %tid.y;
  setp.eq.u32 %p, %r0, 2;
  @%p st.global.u32 [%l0], %r0;
  ret;
})");
  ASSERT_NE(module, nullptr);
  const auto done = TryLaunch(device, *module, "bad", {.grid = {1, 3}, .block = {4, 3}}, Arguments(std::uint64_t{256}));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(
      done.error().message,
      "kernel 'bad', line 10, block (0,0,0), thread (0,2,0): access outside of allocated memory, 4 bytes at 0x100");
}

TEST(Memory, ARangeIsAskedForAgainAfterProgress) {
  struct : Device {
    Range Find(std::uint64_t address) override { return freed ? Range{} : Device::Find(address); }
    bool freed = false;
  } device;
  const auto module = device.Load(KernelAround("L: ld.volatile.global.u32 %r3, [%l0]; bra L;"));
  ASSERT_NE(module, nullptr);
  device.on_progress = [&device] { return device.freed = device.progress_calls >= 3, device.progress_calls < 1000; };
  const auto done = TryLaunch(device, *module, "test", {}, Arguments(device.Allocate(64), device.Allocate(64)));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Fault::kIllegalAddress);
}

// Each operation once: the old value and what is in memory then.
TEST(Memory, AtomicOperations) {
  struct Case {
    const char* instruction;
    std::uint64_t before, operand, after;
    unsigned bits;
  };
  const std::uint64_t minus = ~0ull;
  const Case cases[] = {
      {"add.u32", 5, 7, 12, 32},
      {"add.s32", 5, minus, 4, 32},
      {"add.u64", 1ull << 40, 1ull << 40, 1ull << 41, 64},
      {"min.s32", 5, minus, 0xffffffff, 32},
      {"min.u32", 5, minus, 5, 32},
      {"max.s64", 5, minus, 5, 64},
      {"max.u64", 5, minus, minus, 64},
      {"and.b32", 0xf0f0, 0xff00, 0xf000, 32},
      {"or.b64", 0xf0f0, 0xff00, 0xfff0, 64},
      {"xor.b32", 0xf0f0, 0xff00, 0x0ff0, 32},
      {"exch.b64", 5, 7, 7, 64},
      {"inc.u32", 6, 7, 7, 32},
      {"inc.u32", 7, 7, 0, 32},
      {"dec.u32", 0, 7, 7, 32},
      {"dec.u32", 9, 7, 7, 32},
      {"dec.u32", 5, 7, 4, 32},
      {"add.f32", std::bit_cast<std::uint32_t>(1.5f), std::bit_cast<std::uint32_t>(2.25f),
       std::bit_cast<std::uint32_t>(3.75f), 32},
      {"add.f64", std::bit_cast<std::uint64_t>(1.5), std::bit_cast<std::uint64_t>(2.25),
       std::bit_cast<std::uint64_t>(3.75), 64},
      {"add.noftz.f16x2", 0x3c003e00, 0x3c003400, 0x40003f00, 32},
  };
  for (const Case& c : cases) {
    for (const std::string space : {".global", ".shared", ""}) {
      std::string body = R"(
        .shared .align 8 .b64 cell;
        ld.global.bWIDTH %x3, [%l0]; st.shared.bWIDTH [cell], %x3; ld.global.bWIDTH %x4, [%l0+8];
        atomSPACE.OPERATION %x5, [PLACE], %x4;
        ldSPACE.bWIDTH %x6, [PLACE];
        st.global.bWIDTH [%l1], %x5; st.global.bWIDTH [%l1+8], %x6;)";
      body = Replaced(body, "WIDTH", c.bits == 64 ? "64" : "32");
      body = Replaced(body, "%x", c.bits == 64 ? "%l" : "%r");
      body = Replaced(body, "SPACE", space);
      body = Replaced(body, "PLACE", space == ".shared" ? "cell" : "%l0");
      body = Replaced(body, "OPERATION", c.instruction);
      const auto results = Compute(body, {{c.before, c.operand}});
      EXPECT_EQ(results[0][0], c.before) << c.instruction << space;
      EXPECT_EQ(results[0][1], c.after) << c.instruction << space;
    }
  }
}

TEST(Memory, CompareAndSwap) {
  const auto results = Compute(R"(
    atom.global.cas.b32 %r3, [%l0], 5, 6; st.global.u32 [%l1], %r3;
    atom.global.cas.b32 %r3, [%l0], 5, 7; st.global.u32 [%l1+8], %r3;
    ld.global.u32 %r3, [%l0]; st.global.u32 [%l1+16], %r3;
    red.release.gpu.global.add.u32 [%l0], 10; ld.global.u32 %r3, [%l0]; st.global.u32 [%l1+24], %r3;
    membar.gl; fence.acq_rel.gpu; prefetch.global.L2 [%l0];)",
                               {{5}});
  EXPECT_EQ(results[0], (Row{5, 6, 6, 16}));
}

}  // namespace
}  // namespace tessera::soft::ptx::testing

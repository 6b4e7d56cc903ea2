// Programs that the parser accepts, and its words for those that it refuses.
#include <gmock/gmock.h>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  const auto parsed = Module::Parse(text);
  EXPECT_FALSE(parsed.has_value()) << text;
  return parsed ? "" : parsed.error().Text();
}

std::string ModuleError(std::string_view text) { return ErrorOf(std::string(kHeader) + std::string(text)); }
std::string BodyError(std::string_view body) {
  return ModuleError(".visible .entry k(.param .u64 p) {\n.reg .b32 %r<4>; .reg .pred %q<3>; .reg .f32 %f<3>;\n" +
                     std::string(body) + "\nret; }");
}

TEST(Parser, NamesWhatItDoesNotSupport) {
  EXPECT_EQ(BodyError("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %r1, %r2;"),
            "line 6: instruction 'wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16' is not supported by the soft GPU");
  EXPECT_EQ(BodyError("add.s32.foo %r1, %r2, %r3;"),
            "line 6: instruction 'add.s32.foo' is not supported by the soft GPU");
  EXPECT_EQ(BodyError("add.s8 %r1, %r2, %r3;"), "line 6: instruction 'add.s8' is not supported by the soft GPU");
  EXPECT_EQ(BodyError("cp.async.bulk.shared::cluster.global [%r1], [%r2], 16;"),
            "line 6: instruction 'cp.async.bulk.shared::cluster.global' is not supported by the soft GPU");
  EXPECT_THAT(ModuleError(".global .texref t;"), HasSubstr("line 4: '.texref' is not supported"));
  EXPECT_THAT(ModuleError(".alias a, b;"), HasSubstr("'.alias' is not supported"));
  EXPECT_THAT(ErrorOf(".version 8.0\n.target sm_90\n.address_size 32\n"),
              HasSubstr("address size of 32 bits is not supported"));
  EXPECT_EQ(Module::Parse(std::string(kHeader) + ".alias a, b;").error().code, ENOTSUP);
}

TEST(Parser, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf("hello"), HasSubstr("line 1: this is not PTX"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("this is not PTX"));
  EXPECT_THAT(ErrorOf("\x7f"
                      "ELF"),
              HasSubstr("this is not PTX"));
  EXPECT_THAT(BodyError("add.s32 %r1, %r2;"), HasSubstr("line 6: 'add.s32' with 2 operands"));
  EXPECT_THAT(BodyError("add.s32 %r1, %r2, %r9;"), HasSubstr("'%r9' is not declared"));
  EXPECT_THAT(BodyError("add.s32 %r1, %q1, %r2;"), HasSubstr("no address"));
  EXPECT_THAT(BodyError("add.f32 %f1, %f2, 1;"), HasSubstr("an integer where a floating-point number belongs"));
  EXPECT_THAT(BodyError("bra Nowhere;"), HasSubstr("line 6: no label 'Nowhere'"));
  EXPECT_THAT(BodyError("L: L: ret;"), HasSubstr("the label 'L' is there already"));
  EXPECT_THAT(BodyError("@%r1 ret;"), HasSubstr("'%r1' is not declared or does not belong here"));
  EXPECT_THAT(BodyError("mov.u32 %r1, 0f12;"), HasSubstr("bad number"));
  EXPECT_THAT(BodyError("mov.u32 %r1, 99999999999999999999999999;"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(BodyError("mov.u32 %r1, %nosuch.x;"), HasSubstr("'%nosuch' is not declared"));
  EXPECT_THAT(BodyError("ld.global.v2.u32 {%r1, %r2, %r3}, [p];"), HasSubstr("a vector of another size"));
  EXPECT_THAT(BodyError("st.param.u64 [p], 1;"), HasSubstr("instruction 'st.param.u64' is not supported"));
  EXPECT_THAT(BodyError(".reg .b32 %r<4>;"), HasSubstr("'%r' is declared already"));
  EXPECT_THAT(BodyError(".reg .b32 %x<100000>;"), HasSubstr("a number of at most 65536"));
  EXPECT_THAT(BodyError(".shared .b8 huge[300000];"), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(BodyError(".local .b8 huge[3000000];"), HasSubstr("bytes of local memory"));
  EXPECT_THAT(BodyError("call missing, ();"), HasSubstr("'missing' is not declared"));
  EXPECT_THAT(ModuleError(".global .b8 x[1000000][1000000][1000000];"), HasSubstr("more than a terabyte"));
  EXPECT_THAT(ModuleError(".global .u32 x[1] = {1, 2};"), HasSubstr("more initial values than elements"));
  EXPECT_THAT(ModuleError(".global .u32 x; .global .u32 x;"), HasSubstr("'x' is declared already"));
  EXPECT_THAT(ModuleError(".global .align 3 .u32 x;"), HasSubstr("a power of two"));
  EXPECT_THAT(ModuleError(".extern .global .u32 x;"), HasSubstr("linking"));
  EXPECT_THAT(ModuleError(".entry k() {"), HasSubstr("ends too early"));
  EXPECT_THAT(ModuleError(".file 1 \"no end"), HasSubstr("string without end"));
  EXPECT_THAT(ModuleError(".entry k() { ret; } .entry k() { ret; }"), HasSubstr("'k' is defined already"));
  EXPECT_THAT(ModuleError(".func f(.param .u32 x) { ret; } .entry k() { call f, (); }"),
              HasSubstr("call of 'f' with 0 arguments, it takes 1"));
  EXPECT_THAT(
      ModuleError(".extern .func (.param .b64 r) malloc(.param .b64 n);\n.entry k() { .param .b64 a; .param .b64 b;"
                  " call (b), malloc, (a); }"),
      HasSubstr("line 5: call of 'malloc', which has no body here and is not provided by the soft GPU"));
}

TEST(Parser, AcceptsWhatSurroundsTheCode) {
  const auto parsed = Module::Parse(std::string(kHeader) + R"(
.file 1 "a.cu", 1234, 56
.pragma "nounroll";
.extern .shared .align 16 .b8 dynamic[];
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host;
/* a comment
   of two lines */
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24], .param .f32 f)
.maxntid 128, 2, 1
.minnctapersm 2
.maxnreg 32
{
  .reg .b32 %r<2>, %x;
  .loc 1 10 3
  .loc 1 12 3, function_name $L__info_string0, inlined_at 1 10 3
  { .reg .b32 %x; mov.u32 %x, 1; { .reg .b64 %x; mov.u64 %x, 2; } $L: mov.u32 %r0, %x; }
  mov.u32 %x, %r0; // the outer one
  .pragma "nounroll";
  ret;
}
.section .debug_str
{
  info: .b8 95, 0
}
)");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().Text();
  const Kernel* kernel = (*parsed)->Find("k");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->max_threads, 256u);
  ASSERT_EQ(kernel->parameters.size(), 3u);
  EXPECT_EQ(kernel->parameters[1].offset, 8u);
  EXPECT_EQ(kernel->parameters[1].bytes, 24u);
  EXPECT_EQ(kernel->parameters[2].offset, 32u);
  EXPECT_EQ(kernel->parameter_bytes, 36u);
  ASSERT_EQ((*parsed)->variables().size(), 1u);
  EXPECT_TRUE((*parsed)->variables()[0].managed);
  EXPECT_EQ((*parsed)->Find("nosuch"), nullptr);
}

TEST(Parser, StopsAtAZero) {
  EXPECT_TRUE(Module::Parse(std::string(kHeader) + std::string("\0garbage", 8)).has_value());
}

}  // namespace
}  // namespace tessera::soft::ptx::testing

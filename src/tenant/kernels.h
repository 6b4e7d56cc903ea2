// The program's kernels as PTX text, which a real driver and the soft GPU both take. Written by hand, for an ISA
// version and target that every driver since CUDA 10 accepts.
#pragma once

namespace tessera::tenant {

// work(state, iterations): every thread steps its word of state: x = x * 1664525 + 1013904223, `iterations` times. Each
// step needs the one before, so neither compiler nor hardware can shorten it, and the sum of all launches shows in the
// word (recurrence.h).
//
// fill(base, words, stride, seed): writes seed + i at base + i * stride for every i < words.
// check(base, words, stride, seed, wrong): adds to *wrong how many of them hold anything else.
// sweep(base, quads): adds 1 to each of the four words of every quad of 16 bytes.
// These walk in steps of the whole grid, so any grid does.
inline constexpr char kKernels[] = R"(
.version 6.4
.target sm_60
.address_size 64

.visible .entry work(.param .u64 work_state, .param .u32 work_iterations)
{
  .reg .pred %p<3>;
  .reg .b32 %r<7>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [work_state];
  ld.param.u32 %r1, [work_iterations];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  setp.eq.s32 %p1, %r1, 0;
  @%p1 bra WORK_END;
WORK_STEP:
  mad.lo.s32 %r6, %r6, 1664525, 1013904223;
  add.s32 %r1, %r1, -1;
  setp.ne.s32 %p2, %r1, 0;
  @%p2 bra WORK_STEP;
WORK_END:
  st.global.u32 [%rd4], %r6;
  ret;
}

.visible .entry fill(.param .u64 fill_base, .param .u64 fill_words, .param .u64 fill_stride, .param .u64 fill_seed)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [fill_base];
  ld.param.u64 %rd2, [fill_words];
  ld.param.u64 %rd3, [fill_stride];
  ld.param.u64 %rd4, [fill_seed];
  cvta.to.global.u64 %rd5, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd6, %r1, %r2;
  cvt.u64.u32 %rd7, %r3;
  add.s64 %rd6, %rd6, %rd7;
  mul.wide.u32 %rd8, %r4, %r2;
  setp.ge.u64 %p1, %rd6, %rd2;
  @%p1 bra FILL_END;
FILL_STEP:
  mad.lo.s64 %rd9, %rd6, %rd3, %rd5;
  add.s64 %rd10, %rd4, %rd6;
  st.global.u64 [%rd9], %rd10;
  add.s64 %rd6, %rd6, %rd8;
  setp.lt.u64 %p2, %rd6, %rd2;
  @%p2 bra FILL_STEP;
FILL_END:
  ret;
}

.visible .entry check(.param .u64 check_base, .param .u64 check_words, .param .u64 check_stride,
                      .param .u64 check_seed, .param .u64 check_wrong)
{
  .reg .pred %p<4>;
  .reg .b32 %r<7>;
  .reg .b64 %rd<14>;
  ld.param.u64 %rd1, [check_base];
  ld.param.u64 %rd2, [check_words];
  ld.param.u64 %rd3, [check_stride];
  ld.param.u64 %rd4, [check_seed];
  ld.param.u64 %rd11, [check_wrong];
  cvta.to.global.u64 %rd5, %rd1;
  cvta.to.global.u64 %rd12, %rd11;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd6, %r1, %r2;
  cvt.u64.u32 %rd7, %r3;
  add.s64 %rd6, %rd6, %rd7;
  mul.wide.u32 %rd8, %r4, %r2;
  setp.ge.u64 %p1, %rd6, %rd2;
  @%p1 bra CHECK_END;
CHECK_STEP:
  mad.lo.s64 %rd9, %rd6, %rd3, %rd5;
  add.s64 %rd10, %rd4, %rd6;
  ld.global.u64 %rd13, [%rd9];
  setp.eq.s64 %p2, %rd13, %rd10;
  @%p2 bra CHECK_NEXT;
  atom.global.add.u32 %r5, [%rd12], 1;
CHECK_NEXT:
  add.s64 %rd6, %rd6, %rd8;
  setp.lt.u64 %p3, %rd6, %rd2;
  @%p3 bra CHECK_STEP;
CHECK_END:
  ret;
}

.visible .entry sweep(.param .u64 sweep_base, .param .u64 sweep_quads)
{
  .reg .pred %p<3>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [sweep_base];
  ld.param.u64 %rd2, [sweep_quads];
  cvta.to.global.u64 %rd3, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd4, %r1, %r2;
  cvt.u64.u32 %rd5, %r3;
  add.s64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd6, %r4, %r2;
  setp.ge.u64 %p1, %rd4, %rd2;
  @%p1 bra SWEEP_END;
SWEEP_STEP:
  shl.b64 %rd7, %rd4, 4;
  add.s64 %rd8, %rd3, %rd7;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd8];
  add.s32 %r5, %r5, 1;
  add.s32 %r6, %r6, 1;
  add.s32 %r7, %r7, 1;
  add.s32 %r8, %r8, 1;
  st.global.v4.u32 [%rd8], {%r5, %r6, %r7, %r8};
  add.s64 %rd4, %rd4, %rd6;
  setp.lt.u64 %p2, %rd4, %rd2;
  @%p2 bra SWEEP_STEP;
SWEEP_END:
  ret;
}
)";

}  // namespace tessera::tenant

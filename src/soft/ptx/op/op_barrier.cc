// Barriers of a block and of a warp (PTX ISA 9.7.13).
#include <bit>
#include <string>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/run/block.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

enum Reduction : std::int64_t { kNoReduction, kPopulation, kAll, kAny };

// The barrier's number and, where given, its thread count; equal in all lanes or the kernel is wrong.
struct Arrival {
  unsigned barrier;
  std::uint32_t expected;
};

bool ReadArrival(Warp& warp, const Instruction& in, LaneMask lanes, Arrival& arrival) {
  const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
  arrival.barrier = Get<std::uint32_t>(warp.Source(in.operand[1])[lane]);
  arrival.expected = in.count > 1 ? Get<std::uint32_t>(warp.Source(in.operand[2])[lane]) : Barrier::kWholeBlock;
  if (arrival.barrier < warp.block->barriers.size()) return true;
  warp.Raise(in, lane, Fault::kTrap, "barrier " + std::to_string(arrival.barrier) + " of 16");
  return false;
}

void Wait(Warp& warp, const Instruction& in, LaneMask lanes) {
  Arrival arrival;
  if (!ReadArrival(warp, in, lanes, arrival)) return;
  warp.Split(lanes);
  const bool reduces = in.immediate != kNoReduction;
  warp.block->WaitAt(warp, arrival.barrier, arrival.expected, reduces ? &in : nullptr,
                     reduces ? lanes & warp.Test(in.predicate[1]) : 0);
  warp.Reschedule();
}

void Arrive(Warp& warp, const Instruction& in, LaneMask lanes) {
  Arrival arrival;
  if (!ReadArrival(warp, in, lanes, arrival)) return;
  const bool whole_warp = lanes == warp.live;
  warp.block->ArriveAt(arrival.barrier, arrival.expected,
                       whole_warp ? kWarpSize : static_cast<std::uint32_t>(std::popcount(lanes)));
}

void WaitForWarp(Warp& warp, const Instruction& in, LaneMask lanes) {
  LaneMask required = 0;
  const Slot* mask = warp.Source(in.operand[1]);
  ForLanes(lanes, [&](unsigned lane) { required |= Get<LaneMask>(mask[lane]); });
  warp.Converged(lanes, required);
}

// bar.sync a{, b}: the operands from `first` on.
Instruction& EmitArrival(Decoder& d, Instruction::Handler handler, std::size_t first, std::size_t last) {
  const Operand barrier = first < last ? d.operands().Source(first, Type::kU32) : d.operands().Constant(0);
  const Operand expected = first + 1 < last ? d.operands().Source(first + 1, Type::kU32) : barrier;
  Instruction& in = d.Emit(handler);
  in.operand[1] = barrier;
  in.operand[2] = expected;
  in.count = first + 1 < last ? 2 : 1;
  in.immediate = kNoReduction;
  return in;
}

void DecodeReduction(Decoder& d) {
  const Reduction reduction = d.modifiers().Take("popc")  ? kPopulation
                              : d.modifiers().Take("and") ? kAll
                              : d.modifiers().Take("or")  ? kAny
                                                          : kNoReduction;
  const Type type = d.modifiers().TakeType();
  if (reduction == kNoReduction || type != (reduction == kPopulation ? Type::kU32 : Type::kPred)) return d.Refuse();
  d.operands().ExpectCount(3, 4);
  const Predicate vote = d.operands().SourcePredicate(d.operands().Syntax(d.operands().Count() - 1));
  const Operand result = reduction == kPopulation ? d.operands().Destination(0) : 0;
  const Predicate truth = reduction == kPopulation ? d.operands().NewPredicate()
                                                   : d.operands().DestinationPredicate(d.operands().Syntax(0));
  Instruction& in = EmitArrival(d, &Wait, 1, d.operands().Count() - 1);
  in.operand[0] = result;
  in.predicate[0] = truth;
  in.predicate[1] = vote;
  in.immediate = reduction;
}

void DecodeBarrier(Decoder& d) {
  d.modifiers().Ignore({{"cta", "aligned"}});
  if (d.modifiers().Take("warp")) {
    if (!d.modifiers().Take("sync")) d.Refuse();
    d.operands().ExpectCount(1);
    const Operand mask = d.operands().Source(0, Type::kB32);
    d.Emit(&WaitForWarp).operand[1] = mask;
    return;
  }
  if (d.modifiers().Take("red")) return DecodeReduction(d);
  const bool arrive = d.modifiers().Take("arrive");
  if (!arrive && !d.modifiers().Take("sync")) return d.Refuse();
  d.operands().ExpectCount(arrive ? 2 : 0, 2);
  EmitArrival(d, arrive ? &Arrive : &Wait, 0, d.operands().Count());
}

}  // namespace

void Warp::CompleteReduction(const Path& path, std::uint32_t votes, std::uint32_t threads) {
  const Instruction& in = *path.reduction;
  if (in.immediate == kPopulation) {
    Slot* d = register_file_.data() + std::size_t{path.frame.register_base + in.operand[0]} * kWarpSize;
    ForLanes(path.lanes, [=](unsigned lane) { d[lane] = votes; });
    return;
  }
  const bool truth = in.immediate == kAll ? votes == threads : votes > 0;
  LaneMask& bits = predicate_file_[path.frame.predicate_base + (in.predicate[0] >> 1)];
  bits = truth ? bits | path.lanes : bits & ~path.lanes;
}

OpcodeTable BarrierOpcodes() {
  static constexpr Opcode kTable[] = {
      {"bar", Family::kAny, &DecodeBarrier},
      {"barrier", Family::kAny, &DecodeBarrier},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx

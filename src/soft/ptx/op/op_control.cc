// Branches, calls and ends (PTX ISA 9.7.12).
#include <algorithm>
#include <bit>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/run/block.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

unsigned FirstOf(LaneMask lanes) { return static_cast<unsigned>(std::countr_zero(lanes)); }

// Lanes that want the same as the first one.
LaneMask Agreeing(const Slot* values, LaneMask lanes) {
  LaneMask same = 0;
  const Slot wanted = values[FirstOf(lanes)];
  ForLanes(lanes, [&](unsigned lane) { same |= LaneMask{values[lane] == wanted} << lane; });
  return same;
}

void Branch(Warp& warp, const Instruction& in, LaneMask lanes) { warp.Branch(lanes, in.target); }

void DecodeBranch(Decoder& d) {
  d.modifiers().Take("uni");
  d.operands().ExpectCount(1);
  const OperandSyntax& label = d.operands().Syntax(0);
  if (label.kind != OperandSyntax::kName) return d.Wrong("a branch to something that is no label");
  d.Emit(&Branch);
  d.BranchTo(label.name);
}

// Lanes with different indices go one after the other: those that are not Agreeing come here again.
void IndexedBranch(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* index = warp.Source(in.operand[0]);
  const auto& table = warp.block->grid->program.branch_tables[in.target];
  const auto chosen = Get<std::uint32_t>(index[FirstOf(lanes)]);
  if (chosen >= table.size()) {
    return warp.Raise(in, FirstOf(lanes), Fault::kInvalidPc, "brx.idx beyond its table");
  }
  const LaneMask same = Agreeing(index, lanes);
  if (same != lanes) warp.Detach(lanes & ~same, warp.pc - 1);
  warp.Branch(same, table[chosen]);
}

void DecodeIndexedBranch(Decoder& d) {
  d.modifiers().Take("uni");
  if (!d.modifiers().Take("idx")) d.Refuse();
  d.operands().ExpectCount(2);
  const Operand index = d.operands().Source(0, Type::kU32);
  const OperandSyntax& targets = d.operands().Syntax(1);
  const auto symbol = d.operands().Find(targets, Symbol::kBranchTargets);
  Instruction& in = d.Emit(&IndexedBranch);
  in.operand[0] = index;
  in.target = symbol ? symbol->index : 0;
}

// A call of what the driver provides, which returns at once.
void CallBuiltIn(Warp& warp, const Instruction& in, std::uint32_t call, std::uint32_t callee, LaneMask lanes) {
  const Program& program = warp.block->grid->program;
  program.functions[callee].built_in(warp, in, program.calls[call], lanes);
}

void CallFunction(Warp& warp, const Instruction& in, LaneMask lanes) {
  const auto call = static_cast<std::uint32_t>(in.immediate);
  const Function& callee = warp.block->grid->program.functions[in.target];
  if (callee.built_in != nullptr) return CallBuiltIn(warp, in, call, in.target, lanes);
  warp.Split(lanes);
  warp.Call(in, call, in.target);
}

void CallPointer(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* pointer = warp.Source(in.operand[0]);
  const Slot chosen = pointer[FirstOf(lanes)];
  const auto& functions = warp.block->grid->program.functions;
  const Slot index = (chosen - FunctionAddress(0)) / 16;
  if (chosen < FunctionAddress(0) || chosen % 16 != 0 || index >= functions.size() || functions[index].kernel) {
    return warp.Raise(in, FirstOf(lanes), Fault::kInvalidPc, "call through a pointer that is no function's");
  }
  const LaneMask same = Agreeing(pointer, lanes);
  if (same != lanes) warp.Detach(lanes & ~same, warp.pc - 1);
  const auto call = static_cast<std::uint32_t>(in.immediate), callee = static_cast<std::uint32_t>(index);
  if (functions[index].built_in != nullptr) {
    CallBuiltIn(warp, in, call, callee, same);
    return warp.Reschedule();
  }
  if (!functions[index].defined) {
    return warp.Raise(in, FirstOf(lanes), Fault::kInvalidPc,
                      "call of '" + functions[index].name + "', which has no body");
  }
  warp.Split(same);
  warp.Call(in, call, callee);
}

bool ReadFrameSlots(Decoder& d, const std::vector<OperandSyntax>& names, std::vector<FrameSlot>& slots) {
  for (const OperandSyntax& name : names) {
    const auto symbol = d.operands().Find(name, Symbol::kFrame);
    if (!symbol) return false;  // also registers: nvcc passes everything in .param variables
    slots.push_back({symbol->index, symbol->bytes});
  }
  return true;
}

void DecodeCall(Decoder& d) {
  d.modifiers().Take("uni");
  CallSite site = {.caller = d.scopes().function_index()};
  const StatementSyntax& statement = d.statement();
  if (!ReadFrameSlots(d, statement.results, site.results)) return;
  if (!ReadFrameSlots(d, statement.arguments, site.arguments)) return;
  const auto symbol = d.scopes().Find(statement.callee.name);
  const bool direct = symbol && symbol->kind == Symbol::kFunction;
  const Operand pointer = direct ? 0 : d.operands().Source(statement.callee, Type::kU64);
  if (direct) site.function = symbol->index;
  Program& program = d.program();
  Instruction& in = d.Emit(direct ? &CallFunction : &CallPointer);
  in.operand[0] = pointer;
  in.target = site.function;
  in.immediate = static_cast<std::int64_t>(program.calls.size());
  site.line = statement.line;
  program.calls.push_back(std::move(site));
}

void Return(Warp& warp, const Instruction&, LaneMask lanes) {
  warp.Split(lanes);
  warp.Return();
}

void Exit(Warp& warp, const Instruction&, LaneMask lanes) { warp.Exit(lanes); }

void Trap(Warp& warp, const Instruction& in, LaneMask lanes) { warp.Raise(in, FirstOf(lanes), Fault::kTrap, "trap"); }

// Ends the quantum.
void Yield(Warp& warp, const Instruction&, LaneMask) { warp.Charge(std::max<std::int64_t>(warp.budget, 0)); }

template <Instruction::Handler handler>
void DecodePlain(Decoder& d) {
  d.modifiers().Take("uni");
  d.operands().ExpectCount(0);
  d.Emit(handler);
}

// It may sleep for any time up to twice the one given, so none will do; what matters is that others get on.
void DecodeSleep(Decoder& d) {
  if (d.modifiers().TakeType() != Type::kU32) d.Refuse();
  d.operands().ExpectCount(1);
  d.operands().Source(0, Type::kU32);
  d.Emit(&Yield);
}

}  // namespace

OpcodeTable ControlOpcodes() {
  static constexpr Opcode kTable[] = {
      {"bra", Family::kAny, &DecodeBranch},         {"brx", Family::kAny, &DecodeIndexedBranch},
      {"call", Family::kAny, &DecodeCall},          {"ret", Family::kAny, &DecodePlain<&Return>},
      {"exit", Family::kAny, &DecodePlain<&Exit>},  {"trap", Family::kAny, &DecodePlain<&Trap>},
      {"brkpt", Family::kAny, &DecodePlain<&Trap>}, {"nanosleep", Family::kAny, &DecodeSleep},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx

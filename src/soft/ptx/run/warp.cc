#include "soft/ptx/run/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "soft/ptx/run/block.h"

namespace tessera::soft::ptx {
namespace {

// Quanta that a path which could run waits for those before it in the program to come to it.
constexpr std::uint64_t kPatience = 64;
constexpr std::size_t kMaxCallDepth = 256;

}  // namespace

void Warp::Start(Block& its_block, unsigned its_index, unsigned threads) {
  const Grid& grid = *its_block.grid;
  const Function& function = grid.program.functions[grid.kernel.function];
  if (block == nullptr) {
    block = &its_block;
    index = its_index;
    code = grid.program.code.data();
    constants = grid.program.constants.data();
    local_bytes = function.stack_bytes;
    if (local_bytes > 0) local = std::make_unique_for_overwrite<std::byte[]>(std::size_t{local_bytes} * kWarpSize);
    register_file_.resize(std::size_t{function.registers} * kWarpSize);
    predicate_file_.resize(function.predicates);
    const Dim3& size = grid.launch.block;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      const unsigned thread = index * kWarpSize + lane;
      tid[0][lane] = thread % size.x;
      tid[1][lane] = thread / size.x % size.y;
      tid[2][lane] = thread / size.x / size.y;
    }
  }
  block = &its_block;
  live = threads >= kWarpSize ? ~LaneMask{0} : (LaneMask{1} << threads) - 1;
  carry = 0;
  forced = false;
  paths.clear();
  paths.push_back({.lanes = live, .frame = {.function = grid.kernel.function, .pc = function.first}});
  running = kNone;
}

bool Warp::Ready() const { return Best(Path::kReady) != kNone; }

std::size_t Warp::Best(Path::State state) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    if (path.state != state) continue;
    if (best == kNone || path.callers.size() > paths[best].callers.size() ||
        (path.callers.size() == paths[best].callers.size() && path.frame.pc < paths[best].frame.pc)) {
      best = i;
    }
  }
  return best;
}

std::size_t Warp::Starved() const {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].state == Path::kReady && paths[i].last_run + kPatience < quantum_) return i;
  }
  return kNone;
}

void Warp::Leave() {
  if (running != kNone) paths[running].frame.pc = pc;
  running = kNone;
}

// All paths that stand where this one stands become part of it. Those at a barrier of the block are past it already.
void Warp::MergeInto(std::size_t path) {
  for (std::size_t i = paths.size(); i-- > 0;) {
    const Path& other = paths[i];
    if (i == path || other.state == Path::kAtBarrier || other.frame.pc != paths[path].frame.pc ||
        !other.SameCall(paths[path])) {
      continue;
    }
    paths[path].lanes |= other.lanes;
    if (path == paths.size() - 1) path = i;  // the last one moves into the gap
    if (i != paths.size() - 1) paths[i] = std::move(paths.back());
    paths.pop_back();
  }
  running = path;
}

void Warp::Enter(std::size_t which) {
  MergeInto(which);
  Path& path = paths[running];
  path.state = Path::kReady;
  path.last_run = quantum_;
  pc = path.frame.pc;
  active = path.lanes;
  local_base = path.frame.local_base;
  registers = register_file_.data() + std::size_t{path.frame.register_base} * kWarpSize;
  predicates = predicate_file_.data() + path.frame.predicate_base;
  switch_pc = ~0u;
  for (const Path& other : paths) {
    if (other.state != Path::kAtBarrier && other.frame.pc > pc && other.frame.pc < switch_pc && other.SameCall(path)) {
      switch_pc = other.frame.pc;
    }
  }
}

void Warp::Reschedule() {
  const std::size_t previous = running;
  Leave();
  std::size_t next = Best(Path::kReady);
  if (rotated_ && previous < paths.size() && paths[previous].state == Path::kReady) next = previous;
  if (next == kNone && Best(Path::kAtBarrier) == kNone) {
    // Lanes that a warp barrier names are elsewhere for good, or at another such instruction: go on with what is here.
    next = Best(Path::kAtWarpSync);
    forced = next != kNone;
  }
  if (next != kNone) return Enter(next);
  active = 0;
  switch_pc = ~0u;
  Stop();
}

bool Warp::ForceSync() {
  const std::size_t stuck = Best(Path::kAtWarpSync);
  if (stuck == kNone) return false;
  paths[stuck].state = Path::kReady;
  forced = true;
  return true;
}

std::uint64_t Warp::Run(std::int64_t quantum) {
  budget = quantum;
  penalty = 0;
  ++quantum_;
  const std::size_t starved = Starved();
  rotated_ = starved != kNone;
  if (rotated_) {
    Leave();
    Enter(starved);
  } else {
    Reschedule();
  }
  while (budget > 0) {
    const Instruction& in = code[pc++];
    const LaneMask lanes = active & Test(in.guard);
    budget -= std::popcount(active);
    if (lanes != 0) in.handler(*this, in, lanes);
    if (pc >= switch_pc) Reschedule();
  }
  return static_cast<std::uint64_t>(quantum - budget - penalty);
}

void Warp::Detach(LaneMask lanes, std::uint32_t at) {
  Path path = paths[running];
  path.lanes = lanes;
  path.frame.pc = at;
  active &= ~lanes;
  paths[running].lanes = active;
  paths.push_back(std::move(path));
}

void Warp::Split(LaneMask lanes) {
  if (lanes != active) Detach(active & ~lanes, pc);
}

void Warp::Branch(LaneMask taken, std::uint32_t target) {
  if (taken != active) {
    Detach(taken, target);
  } else {
    pc = target;
    if (paths.size() == 1) return;
  }
  Reschedule();
}

void Warp::Exit(LaneMask lanes) {
  live &= ~lanes;
  Leave();
  for (Path& path : paths) {
    path.lanes &= ~lanes;
    if (path.state == Path::kAtWarpSync) path.state = Path::kReady;  // it may have waited for these
  }
  std::erase_if(paths, [](const Path& path) { return path.lanes == 0; });
  block->LanesExited(static_cast<unsigned>(std::popcount(lanes)));
  Reschedule();
}

bool Warp::Converged(LaneMask lanes, LaneMask required) {
  if (forced || (required & live & ~lanes) == 0) {
    forced = false;
    return true;
  }
  --pc;
  paths[running].state = Path::kAtWarpSync;
  Reschedule();
  return false;
}

void Warp::CopyFrameSlots(const std::vector<FrameSlot>& from, std::uint32_t from_base, const std::vector<FrameSlot>& to,
                          std::uint32_t to_base) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const std::size_t bytes = std::min(from[i].bytes, to[i].bytes);
    for (LaneMask lanes = active; lanes != 0; lanes &= lanes - 1) {
      std::byte* memory = local.get() + std::size_t{local_bytes} * static_cast<unsigned>(std::countr_zero(lanes));
      std::memcpy(memory + to_base + to[i].offset, memory + from_base + from[i].offset, bytes);
    }
  }
}

void Warp::Call(const Instruction& in, std::uint32_t call, std::uint32_t callee) {
  const Program& program = block->grid->program;
  Path& path = paths[running];
  const Function& from = program.functions[path.frame.function];
  const Function& to = program.functions[callee];
  const Frame frame = {.function = callee,
                       .call = call,
                       .register_base = path.frame.register_base + from.registers,
                       .predicate_base = path.frame.predicate_base + from.predicates,
                       .local_base = path.frame.local_base + from.frame_bytes};
  if (path.callers.size() >= kMaxCallDepth || frame.local_base + to.frame_bytes > local_bytes) {
    const auto lane = static_cast<unsigned>(std::countr_zero(active));
    return Raise(in, lane, Fault::kStackOverflow, "call of '" + to.name + "' overflows the stack");
  }
  const std::size_t registers_needed = std::size_t{frame.register_base + to.registers} * kWarpSize;
  if (register_file_.size() < registers_needed) register_file_.resize(registers_needed);
  const std::size_t predicates_needed = frame.predicate_base + to.predicates;
  if (predicate_file_.size() < predicates_needed) predicate_file_.resize(predicates_needed);
  predicate_file_[frame.predicate_base] = 0;

  CopyFrameSlots(program.calls[call].arguments, path.frame.local_base, to.parameters, frame.local_base);
  path.frame.pc = pc;
  path.callers.push_back(path.frame);
  path.frame = frame;
  pc = to.first;
  Reschedule();
}

void Warp::Return() {
  const Program& program = block->grid->program;
  Path& path = paths[running];
  if (path.callers.empty()) return Exit(active);
  const Frame caller = path.callers.back();
  CopyFrameSlots(program.functions[path.frame.function].results, path.frame.local_base,
                 program.calls[path.frame.call].results, caller.local_base);
  path.callers.pop_back();
  path.frame = caller;
  pc = caller.pc;
  Reschedule();
}

void Warp::Raise(const Instruction& in, unsigned lane, Fault::Kind kind, std::string what) {
  Grid& grid = *block->grid;
  Stop();
  if (grid.fault) return;
  const auto coordinates = [](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
    return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
  };
  grid.fault = Fault{kind, "kernel '" + grid.kernel.name + "', line " + std::to_string(in.line) + ", block " +
                               coordinates(block->index.x, block->index.y, block->index.z) + ", thread " +
                               coordinates(tid[0][lane], tid[1][lane], tid[2][lane]) + ": " + std::move(what)};
}

}  // namespace tessera::soft::ptx

#include "sched/testing/residency_world.h"

#include <algorithm>
#include <utility>

namespace tessera::sched {
namespace {

// Programs repeat the question after so long.
constexpr Nanos kAskAgain = 200 * kMillisecond;
// A plan that follows from the last one, and so on: more are an exchange without end.
constexpr int kMostPlans = 20;

}  // namespace

ResidencyWorld::ResidencyWorld(std::uint64_t capacity, const ResidencyConfig& config)
    : planner_(config), twin_(config) {
  state.capacity = capacity;
  state.pool.most = 1ull << 50;
  state.mover_ready = true;
}

VGpuResidence& ResidencyWorld::AddVGpu(VgpuId id, std::uint32_t priority) {
  return state.vgpus.emplace_back(VGpuResidence{.id = id, .priority = priority});
}

ProcessResidence& ResidencyWorld::AddProcess(VgpuId vgpu, ProcessId id, std::uint64_t bytes) {
  programs[id] = {};
  ProcessResidence process{.id = id};
  process.room = process.allocated = bytes;
  process.has_line = true;
  return VGpu(vgpu).processes.emplace_back(process);
}

void ResidencyWorld::RemoveProcess(ProcessId id) {
  programs.erase(id);
  for (Move* move : {&in_, &out_}) {
    if (move->process == id) *move = {};
  }
  for (VGpuResidence& vgpu : state.vgpus)
    std::erase_if(vgpu.processes, [&](const ProcessResidence& process) { return process.id == id; });
}

VGpuResidence& ResidencyWorld::VGpu(VgpuId id) { return *std::ranges::find(state.vgpus, id, &VGpuResidence::id); }

ProcessResidence& ResidencyWorld::Process(ProcessId id) {
  for (VGpuResidence& vgpu : state.vgpus) {
    for (ProcessResidence& process : vgpu.processes) {
      if (process.id == id) return process;
    }
  }
  return state.vgpus.at(0).processes.at(id);  // throws
}

void ResidencyWorld::Work(ProcessId id, bool works) {
  WorldProgram& program = programs.at(id);
  if (works && !program.works) program.waits_since = now;
  program.works = Process(id).works = works;
}

RoomAnswer ResidencyWorld::Allocate(ProcessId id, std::uint64_t bytes, bool pins) {
  ProcessResidence& process = Process(id);
  WorldProgram& program = programs.at(id);
  const auto take = [&] {
    process.allocated += bytes;
    if (pins) process.pinned += bytes;
  };
  if (process.credit >= bytes) {
    process.credit -= bytes;
    take();
    program.asks_for = 0;
    return {};
  }
  const RoomWish wish{.process = id, .bytes = bytes, .pins = pins};
  const RoomAnswer answer = planner_.Ask(state, wish, now);
  if (answer != twin_.Ask(state, wish, now)) violations_.emplace_back("the same question, another answer");
  for (const std::string& law : BrokenLaws(state, wish, answer, pressed_, now)) violations_.push_back(law);
  process.wanted = 0;
  process.pins = program.pins = pins;
  program.asks_for = 0;
  if (answer.kind == RoomAnswer::Kind::kGrant) {
    process.room += bytes + answer.credit;
    process.credit += answer.credit;
    take();
  } else if (answer.kind == RoomAnswer::Kind::kWait) {
    if (!program.works) program.waits_since = now;
    program.asks_for = process.wanted = bytes;
    process.wanted_at = now;
    Look();
  }
  return answer;
}

void ResidencyWorld::Free(ProcessId id, std::uint64_t bytes) {
  ProcessResidence& process = Process(id);
  bytes = std::min(bytes, process.Movable());
  process.credit += bytes;
  process.allocated -= std::min(process.allocated, bytes);
}

// ---- plans ----

const ResidencyPlan& ResidencyWorld::Plan() {
  const ResidencyPlan& plan = planner_.Plan(state, now);
  if (plan != twin_.Plan(state, now)) violations_.emplace_back("the same state, another plan");
  for (const std::string& law : BrokenLaws(state, plan, now)) violations_.push_back(law);
  look_at_ = plan.look_at;
  pressed_ = plan.pressed;
  return plan;
}

ResidencyPlan ResidencyWorld::PlanOnly() { return Plan(); }

void ResidencyWorld::Look() {
  for (int plans = 0; plans < kMostPlans; ++plans) {
    const ResidencyPlan& plan = Plan();
    if (plan.actions.empty() && plan.look_at > now) return;
    CarryOut(plan);
  }
  violations_.emplace_back("plans follow plans without end");
}

void ResidencyWorld::CarryOut(const ResidencyPlan& plan) {
  for (const ResidencyAction& action : plan.actions) {
    history_.push_back(action);
    if (action.kind == ResidencyActionKind::kGrowPool || action.kind == ResidencyActionKind::kPreparePool) {
      Apply(action, state.pool);
      if (state.pool.Goal() > state.pool.size) state.pool.grew_at = now;
      state.pool.size = std::max(state.pool.Goal(), state.pool.used);
      continue;
    }
    ProcessResidence& process = Process(action.process);
    WorldProgram& program = programs.at(action.process);
    Apply(action, now, state.file > 0, process);
    if (action.kind == ResidencyActionKind::kSqueeze || action.kind == ResidencyActionKind::kMoveOut)
      program.squeezes = action.kind == ResidencyActionKind::kSqueeze;
    if (action.kind == ResidencyActionKind::kStop) {
      program.stopped_at = now;
      process.still = program.drains_for == 0;
    }
    if (action.kind == ResidencyActionKind::kMoveIn) {
      const bool adds = action.holes != kAnyHoles && program.may_be_holes != kAnyHoles;
      program.may_be_holes = adds ? program.may_be_holes + action.holes : action.holes;
    }
    if (process.moving != Moving::kNothing && program.moves_since == kNever) program.moves_since = now;
  }
}

std::size_t ResidencyWorld::Count(ResidencyActionKind kind, ProcessId process) const {
  return static_cast<std::size_t>(std::ranges::count_if(history_, [&](const ResidencyAction& action) {
    return action.kind == kind && (process == 0 || action.process == process);
  }));
}

// ---- time ----

void ResidencyWorld::Run(Nanos duration) {
  const Nanos end = now + duration;
  Look();
  while (violations_.empty()) {
    StepMover();
    longest_turn_ = std::max(longest_turn_, planner_.TurnLength());
    const Nanos next = std::max(NextEvent(), now + 1);
    if (next > end) break;
    Elapse(next);
    EndMove(out_, Moving::kOut);
    EndMove(in_, Moving::kIn);
    StepPrograms();
    Look();
  }
  Elapse(end);
}

void ResidencyWorld::Finish() {
  const Nanos end = now + 100 * kSecond;
  bool busy = true;
  while (busy && now < end && violations_.empty()) {
    const std::size_t before = history_.size();
    Run(50 * kMillisecond);
    busy = history_.size() > before || in_.process != 0 || out_.process != 0;
  }
}

Nanos ResidencyWorld::NextEvent() const {
  Nanos next = look_at_;
  for (const Move* move : {&in_, &out_}) {
    if (move->process != 0) next = std::min(next, move->done);
  }
  for (const VGpuResidence& vgpu : state.vgpus) {
    for (const ProcessResidence& process : vgpu.processes) {
      const WorldProgram& program = programs.at(process.id);
      if (process.stopped && !process.still && program.drains_for != kNever)
        next = std::min(next, program.stopped_at + program.drains_for);
      if (process.wanted > 0) next = std::min(next, process.wanted_at + kAskAgain);
      if (process.wanted == 0 && program.asks_for > 0) next = now;  // it was granted, and is taken
    }
  }
  return next;
}

void ResidencyWorld::Elapse(Nanos until) {
  for (const VGpuResidence& vgpu : state.vgpus) {
    for (const ProcessResidence& process : vgpu.processes) {
      WorldProgram& program = programs.at(process.id);
      const bool waits = program.asks_for > 0 || (program.works && process.stopped);
      if (program.works && !process.stopped) program.ran += until - now;
      if (waits) program.longest_wait = std::max(program.longest_wait, until - program.waits_since);
      if (!waits) program.waits_since = until;
    }
  }
  now = until;
}

void ResidencyWorld::StepPrograms() {
  std::vector<std::pair<ProcessId, WorldProgram>> askers;
  for (VGpuResidence& vgpu : state.vgpus) {
    for (ProcessResidence& process : vgpu.processes) {
      const WorldProgram& program = programs.at(process.id);
      if (process.stopped && !process.still && program.drains_for != kNever)
        process.still = now >= program.stopped_at + program.drains_for;
      const bool granted = program.asks_for > 0 && process.wanted == 0;
      if (granted || (program.asks_for > 0 && now >= process.wanted_at + kAskAgain))
        askers.emplace_back(process.id, program);
    }
  }
  for (const auto& [id, program] : askers) Allocate(id, program.asks_for, program.pins);
}

// ---- the mover ----

void ResidencyWorld::StepMover() {
  for (VGpuResidence& vgpu : state.vgpus) {
    for (ProcessResidence& process : vgpu.processes) {
      if (process.moving == Moving::kSettling) {
        process.unsafe = false;
      } else if (process.moving == Moving::kParking) {
        process.parked = process.unsafe = true;
      } else if (process.moving != Moving::kOut || process.ordered > 0) {
        continue;
      }
      process.moving = Moving::kNothing;
      programs.at(process.id).moves_since = kNever;
    }
  }
  StartMove(out_, Moving::kOut);
  StartMove(in_, Moving::kIn);
}

void ResidencyWorld::StartMove(Move& move, Moving direction) {
  if (move.process != 0) return;
  for (const VGpuResidence& vgpu : state.vgpus) {
    for (const ProcessResidence& process : vgpu.processes) {
      if (process.moving != direction || process.ordered == 0) continue;
      const std::uint64_t bytes = std::min(state.chunk, process.ordered);
      move = {process.id, now + static_cast<Nanos>(bytes * 1000 / (bytes_per_second / 1'000'000)) + 1};
      return;
    }
  }
}

void ResidencyWorld::EndMove(Move& move, Moving direction) {
  if (move.process == 0 || move.done > now) return;
  ProcessResidence& process = Process(std::exchange(move, {}).process);
  direction == Moving::kOut ? MoveOut(process) : MoveIn(process);
  if (process.swapped == 0) process.unsafe = false;
  state.pool.used = 0;
  for (const VGpuResidence& vgpu : state.vgpus) {
    for (const ProcessResidence& each : vgpu.processes) state.pool.used += each.swapped + each.holes_out;
  }
  state.last_moved = now;
  if (process.ordered > 0) return;
  process.moving = Moving::kNothing;
  WorldProgram& program = programs.at(process.id);
  program.may_be_holes = process.coming_holes = 0;
  process.moved_for += now - std::exchange(program.moves_since, kNever);
}

void ResidencyWorld::MoveOut(ProcessResidence& process) {
  WorldProgram& program = programs.at(process.id);
  std::uint64_t bytes = std::min(state.chunk, process.ordered), hole = 0;
  if (program.squeezes && process.holed > 0) {
    // All chunks with holes are alike.
    hole = process.holes / (process.holed / bytes);
    process.holes -= hole;
    process.holed -= bytes;
    process.squeezed += bytes - hole;
  } else if (program.hole > 0) {
    bytes = state.chunk;
    hole = program.hole;
    process.holes_out += hole;
    if (program.sparse > 0) {
      --program.sparse;
      bytes -= hole;
      hole = 0;
    }
  }
  process.ordered -= std::min(process.ordered, bytes);
  bytes = std::min(bytes, process.Movable());  // some was freed meanwhile
  process.swapped += Less(bytes, hole);
  process.room -= bytes;
  process.unsafe = true;
}

// What is too little for a chunk is given back.
void ResidencyWorld::MoveIn(ProcessResidence& process) {
  WorldProgram& program = programs.at(process.id);
  std::uint64_t bytes = std::min(state.chunk, process.ordered), comes = bytes;
  if (program.hole > 0) {
    comes = state.chunk - program.hole;
    const bool whole = program.may_be_holes >= program.hole;
    bytes = whole ? state.chunk : comes;
    if (process.swapped < comes || process.ordered < bytes) {
      process.room -= std::exchange(process.ordered, 0);
      return;
    }
    process.holes_out -= program.hole;
    if (whole) process.coming_holes -= std::min(process.coming_holes, program.hole);
    if (program.may_be_holes != kAnyHoles && whole) program.may_be_holes -= program.hole;
    ++(whole ? program.came_whole : program.came_sparse);
    if (!whole) ++program.sparse;
  }
  process.swapped -= comes;
  process.squeezed -= std::min(process.squeezed, comes);
  process.ordered -= bytes;
}

}  // namespace tessera::sched

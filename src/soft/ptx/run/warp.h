// 32 threads that share a program counter where they can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft::ptx {

struct Block;

// One call: where to go on and with which registers.
struct Frame {
  std::uint32_t function = 0;
  std::uint32_t pc = 0;  // of the caller: where it goes on
  std::uint32_t call = 0;
  std::uint32_t register_base = 0;
  std::uint32_t predicate_base = 0;
  std::uint32_t local_base = 0;
  bool operator==(const Frame&) const = default;
};

// Lanes that stand at the same place.
struct Path {
  enum State { kReady, kAtBarrier, kAtWarpSync };
  State state = kReady;
  LaneMask lanes = 0;
  Frame frame;  // pc is where the path goes on
  std::vector<Frame> callers;
  std::uint64_t last_run = 0;              // number of the quantum
  unsigned barrier = 0;                    // kAtBarrier: which
  const Instruction* reduction = nullptr;  // kAtBarrier: bar.red to complete

  bool SameCall(const Path& other) const {
    return frame.function == other.frame.function && frame.register_base == other.frame.register_base &&
           callers == other.callers;
  }
};

// Diverged lanes run as paths: the one that is deepest in calls and has the lowest pc goes first, since the others wait
// for it there, and paths that meet become one. So that a path may spin until another one of its warp does something,
// one that uses up its quanta is put off now and then.
struct Warp {
  // Prepares for the first instruction of the kernel; keeps its memory from block to block.
  void Start(Block& block, unsigned index, unsigned threads);

  // Runs until `quantum` thread instructions are used up, nothing can go on, or a fault. Returns the instructions run;
  // waits in a loop are charged to the quantum as if they had been longer, so that others get their turn sooner.
  std::uint64_t Run(std::int64_t quantum);

  bool Done() const { return live == 0; }
  bool Ready() const;
  // Lets a path through a warp barrier that will never be complete; false if none waits at one.
  bool ForceSync();

  const Slot* Source(Operand operand) const {
    return operand & kConstant ? constants + std::size_t{operand & ~kConstant} * kWarpSize
                               : registers + std::size_t{operand} * kWarpSize;
  }
  Slot* Destination(Operand operand) { return registers + std::size_t{operand} * kWarpSize; }
  LaneMask Test(Predicate predicate) const {
    const LaneMask value = predicates[predicate >> 1];
    return predicate & 1 ? ~value : value;
  }
  // Sets the lanes' bits of a predicate register.
  void Set(Predicate predicate, LaneMask lanes, LaneMask value) {
    LaneMask& bits = predicates[predicate >> 1];
    bits = (bits & ~lanes) | (value & lanes);
  }

  // Effects of control instructions. Each may change the running path.
  void Branch(LaneMask taken, std::uint32_t target);
  void Detach(LaneMask lanes, std::uint32_t at);  // puts lanes of the running path elsewhere, as a path of their own
  void Split(LaneMask lanes);                     // makes the running path exactly `lanes`
  void Exit(LaneMask lanes);
  void Call(const Instruction& in, std::uint32_t call, std::uint32_t function);
  void Return();
  // True if the lanes that `required` names stand here; if not, the running path waits to try again.
  bool Converged(LaneMask lanes, LaneMask required);
  // Gives the lanes of a path that waited at bar.red their result.
  void CompleteReduction(const Path& path, std::uint32_t votes, std::uint32_t threads);
  void Reschedule();  // goes on with the path whose turn it is
  void Charge(std::int64_t instructions) { budget -= instructions, penalty += instructions; }

  void Raise(const Instruction& in, unsigned lane, Fault::Kind kind, std::string what);

  // The running path, for the instructions.
  Slot* registers = nullptr;
  LaneMask* predicates = nullptr;
  const Slot* constants = nullptr;
  const Instruction* code = nullptr;
  std::uint32_t pc = 0;
  std::uint32_t switch_pc = ~0u;  // the next place where another path waits
  LaneMask active = 0;
  std::int64_t budget = 0;
  std::int64_t penalty = 0;
  std::uint32_t local_base = 0;
  LaneMask carry = 0;   // the condition code register
  bool forced = false;  // the next warp barrier lets the running path through

  std::unique_ptr<std::byte[]> local;  // kWarpSize times local_bytes
  std::uint32_t local_bytes = 0;

  Block* block = nullptr;
  unsigned index = 0;
  LaneMask live = 0;
  std::array<std::array<Slot, kWarpSize>, 3> tid = {};

  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<Path> paths;
  std::size_t running = kNone;

 private:
  void Stop() { Charge(budget > 0 ? budget : 0); }  // ends the quantum
  std::size_t Best(Path::State state) const;        // of the paths in that state; kNone if there is none
  std::size_t Starved() const;                      // a path that waits for too long; kNone if there is none
  void Enter(std::size_t path);
  void Leave();
  void MergeInto(std::size_t path);
  void CopyFrameSlots(const std::vector<FrameSlot>& from, std::uint32_t from_base, const std::vector<FrameSlot>& to,
                      std::uint32_t to_base);

  std::vector<Slot> register_file_;
  std::vector<LaneMask> predicate_file_;
  std::uint64_t quantum_ = 0;
  bool rotated_ = false;  // this quantum belongs to a path that had to wait
};

}  // namespace tessera::soft::ptx

// A mover's client for tests: a program that has memory on the test's GPU.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "mover/testing/test_driver.h"
#include "wire/line.h"

namespace tessera::mover {

// A program with chunks of known content. It answers as it should, unless a test says otherwise.
class TestProgram {
 public:
  explicit TestProgram(int chunks, std::uint64_t seed = 1);
  ~TestProgram();
  TestProgram(const TestProgram&) = delete;

  // A new line; the mover's end of it.
  UniqueFd NewLine();
  int line() const { return line_.Get(); }
  void HangUp() { line_.Reset(); }

  // From now on only these units of each chunk are in use: they move, and come back in memory of their own.
  void Use(wire::Units units) { use_ = units; }
  // GPU memory that it has, bytes.
  std::uint64_t OnGpu() const;

  // Receives a message and answers it. False if the line is closed.
  bool Answer();
  // Answers all that the mover said before its end.
  void AnswerAll() {
    while (line() >= 0 && Answer()) {
    }
  }
  // Gives all chunks that are out to a new mover.
  void Adopt();
  void Drop(std::uint64_t chunk);
  void Send(wire::LineMessage message, std::span<const int> fds = {});

  std::size_t Out() const;     // chunks that are not on the GPU
  std::size_t InFile() const;  // of them, those that it holds nothing of: in the file, or parked
  // Whether every chunk has the content that it was made with, wherever it is.
  bool IsIntact() const;
  std::vector<ino_t> HostMemories() const { return host_memories_; }  // that it was ever given

  // Called in place of the answer that this type of message has; the descriptors are those that came along.
  std::map<wire::LineType, std::function<void(const wire::LineMessage&, std::span<UniqueFd>)>> instead;
  pid_t pid = getpid();  // as the mover is told
  bool imports = true;   // its driver takes the mover's host memory
  bool freed_fails = false;
  bool taken_fails = false;
  std::map<wire::LineType, int> seen;
  int adopted = 0, refused = 0;  // chunks of Adopt() that the mover has, and has not

 private:
  // Memory of a chunk: all of it in one piece, or a piece for each run of units.
  struct Memory {
    wire::Units units = 0;
    std::vector<cuda::CUmemGenericAllocationHandle> pieces;
    bool whole() const { return units == wire::kAllUnits; }
  };
  struct Chunk {
    cuda::CUdeviceptr address = 0;
    Memory memory;
    bool host = false;                    // it is in host memory
    bool file = false;                    // it is in the file, or parked
    bool slot = false;                    // it is parked
    std::uint64_t key = 0;                // while it is in either, and a mover may have it
    Memory coming;                        // while it is wanted: what it is copied to
    wire::Units known = wire::kAllUnits;  // what of it has its contents
    std::uint32_t shown = 0;              // the round
    bool offered = false;
    bool wanted = false;
    bool out() const { return host || file; }
  };
  Memory MakeMemory(wire::Units units) const;
  void Release(Memory& memory) const;
  void Name(wire::LineMessage& message, std::vector<UniqueFd>& fds, std::uint64_t name, const Memory& memory,
            wire::Units units) const;
  void LeaveOut(Chunk& chunk);
  void Map(Chunk& chunk, Memory memory);
  void Unmap(Chunk& chunk);
  void Offer(std::uint32_t count, std::uint32_t round);
  void Show(std::uint32_t count, std::uint32_t round);
  void Want(std::uint32_t count, std::uint32_t room, std::uint32_t holes);
  void Take(const wire::LineMessage& message, std::span<UniqueFd> fds, bool stored);
  void Release(const wire::LineMessage& message);
  void Hold(const wire::LineMessage& message, std::span<UniqueFd> fds);

  const TestDriver& driver_ = TestDriver::Get();
  const std::uint64_t seed_;
  UniqueFd line_;
  wire::Units use_ = wire::kAllUnits;
  std::map<std::uint64_t, Chunk> chunks_;
  std::vector<ino_t> host_memories_;
};

}  // namespace tessera::mover

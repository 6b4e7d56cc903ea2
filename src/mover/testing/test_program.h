// The other sides of a mover for tests: a program that has memory on the soft GPU (or on the one that
// TESSERA_TEST_LIBCUDA finds), and the daemon that started the mover's process.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "mover/gpu/cuda_library.h"
#include "mover/pool/swap_file.h"
#include "wire/line.h"
#include "wire/mover.h"

namespace tessera::mover {

// The driver as a program uses it.
struct TestDriver {
  CudaLibrary cuda;
  cuda::CUresult (*copy_rows)(const cuda::CUDA_MEMCPY2D* rows) = nullptr;
  cuda::CUresult (*copy_out)(void* to, cuda::CUdeviceptr from, std::size_t bytes) = nullptr;
  cuda::CUdevice device = 0;
  std::string uuid;

  static const TestDriver& Get();
  cuda::CUmemGenericAllocationHandle MakeChunk(std::uint64_t bytes = wire::kChunkBytes) const;
  UniqueFd Export(cuda::CUmemGenericAllocationHandle handle) const;
};

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
  std::size_t InFile() const;  // of them, in the file
  // Whether every chunk has the content that it was made with, wherever it is.
  bool IsIntact() const;
  std::vector<ino_t> HostMemories() const { return host_memories_; }  // that it was ever given

  // Called in place of the answer that this type of message has; the descriptors are those that came along.
  std::map<wire::LineType, std::function<void(const wire::LineMessage&, std::span<UniqueFd>)>> instead;
  pid_t pid = getpid();  // as the mover is told
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
    bool file = false;                    // it is in the file
    std::uint64_t key = 0;                // while it is in either, and a mover may have it
    Memory coming;                        // while it is wanted: what it is copied to
    wire::Units known = wire::kAllUnits;  // what of it has its contents
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
  void Offer(std::uint32_t count);
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

// The pid of a process that has ended.
pid_t EndedProcess();

// A swap file and its table, which outlive movers as they do with the daemon.
struct TestFile {
  explicit TestFile(std::uint64_t chunks);
  UniqueFd file, table;
};

// The descriptors of a pool and its table, which outlive movers as they do with the daemon.
struct TestSlots {
  explicit TestSlots(std::uint64_t chunks = 64);
  UniqueFd table;
  std::map<std::uint64_t, UniqueFd> kept;  // by number
};

struct TestMoverSetup {
  std::string floor = "64MiB";
  std::string fault;
  std::string gpu;
  TestSlots* slots = nullptr;  // of movers before it, which it has when it is made; else it has none
  const TestFile* file = nullptr;
  std::uint64_t wanted = 0, most = 0;  // of the pool, in slots; both 0: it is told nothing
  TestProgram* program = nullptr;      // that it knows as 1
  std::uint64_t domain = 0;            // of that program
};

// The mover's process, and the daemon's side of its socket.
class TestMover {
 public:
  explicit TestMover(const TestMoverSetup& setup = {});
  ~TestMover();
  TestMover(const TestMover&) = delete;

  void Send(wire::MoverMessage message, int fd = -1);
  void Pool(std::uint64_t wanted, std::uint64_t most);  // in chunks
  void Program(std::uint64_t id, TestProgram& program, std::uint64_t domain = 0);
  void Forget(std::uint64_t id);

  // Lets programs and daemon talk until the condition holds. False if it does not in 30 s, or the mover ended before.
  bool Until(const std::function<bool()>& condition);
  // Moves chunks of one program and waits for the end; what the daemon is told then.
  wire::MoverMessage Move(std::uint64_t id, wire::MoverType type, std::uint64_t chunks);
  // Settles a program; the errno value that the daemon is told then.
  int Settle(std::uint64_t id);
  wire::MoverMessage Await(std::uint64_t id, wire::MoverType type);

  // The last message of this type about this program, if there is one. Taken: forgotten then.
  bool Has(std::uint64_t id, wire::MoverType type) const { return last_.contains({id, type}); }
  wire::MoverMessage Last(std::uint64_t id, wire::MoverType type) const;
  wire::MoverMessage pool() const { return Last(0, wire::MoverType::kPoolIs); }

  pid_t pid() const { return pid_; }
  std::size_t Descriptors() const;
  void CloseSocket() { socket_.Reset(); }
  wire::MoverMessage file() const { return Last(0, wire::MoverType::kFileIs); }
  // The program's end as waitpid(2) has it.
  void ExpectKilled(int signal) { EXPECT_EQ(Wait() & 0x7f, signal); }
  void ExpectExit(int code) {
    const int status = Wait();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == code) << status;
  }

 private:
  int Wait();
  bool Hear();
  void HandOver(std::uint64_t last);

  pid_t pid_ = 0;
  UniqueFd socket_;
  TestSlots own_slots_;
  TestSlots& slots_;
  bool ended_ = false;
  std::map<std::uint64_t, TestProgram*> programs_;
  std::map<std::pair<std::uint64_t, wire::MoverType>, wire::MoverMessage> last_;
};

}  // namespace tessera::mover

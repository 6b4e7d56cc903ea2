// The mover's process for tests, and the daemon that started it.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "mover/testing/test_program.h"
#include "wire/mover.h"

namespace tessera::mover {

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
  // Parks a program; what the daemon is told then.
  wire::MoverMessage Park(std::uint64_t id);
  // Settles a program; the errno value that the daemon is told then.
  int Settle(std::uint64_t id);
  // Program 1 names what it has with an earlier mover. Returns when the mover has heard all.
  void Adopt(TestProgram& program);
  // All of program 1 comes back to the GPU, as it was.
  void BringBack(TestProgram& program);
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
  bool handed_over_ = false;  // it has the slots of those before it
  std::map<std::uint64_t, TestProgram*> programs_;
  std::map<std::pair<std::uint64_t, wire::MoverType>, wire::MoverMessage> last_;
};

}  // namespace tessera::mover

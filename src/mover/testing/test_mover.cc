#include "mover/testing/test_mover.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "wire/swap_table.h"

namespace tessera::mover {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

pid_t EndedProcess() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return child;
}

TestSlots::TestSlots(std::uint64_t chunks) : table(memfd_create("slots", MFD_CLOEXEC)) {
  EXPECT_EQ(ftruncate(table.Get(), static_cast<off_t>(chunks * wire::kTableEntryBytes)), 0);
}

TestFile::TestFile(std::uint64_t chunks)
    : file(memfd_create("swap", MFD_CLOEXEC)), table(memfd_create("table", MFD_CLOEXEC)) {
  EXPECT_EQ(ftruncate(file.Get(), static_cast<off_t>(chunks * kChunkBytes)), 0);
  EXPECT_EQ(ftruncate(table.Get(), static_cast<off_t>(chunks * wire::kTableEntryBytes)), 0);
}

TestMover::TestMover(const TestMoverSetup& setup) : slots_(setup.slots != nullptr ? *setup.slots : own_slots_) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  socket_.Reset(pair[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<UniqueFd> inherited;  // as 3 and so on; here they have other numbers
  const auto pass = [&](int fd) {
    const int number = 3 + static_cast<int>(inherited.size());
    inherited.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 10));
    posix_spawn_file_actions_adddup2(&actions, inherited.back().Get(), number);
  };
  pass(pair[1]);
  close(pair[1]);
  pass(slots_.table.Get());
  if (setup.file != nullptr) {
    pass(setup.file->file.Get());
    pass(setup.file->table.Get());
  }
  const char* mover = std::getenv("TESSERA_TEST_MOVER");
  const auto& driver = TestDriver::Get();  // names the library to the mover, too
  std::vector<std::string> words = {mover != nullptr ? mover : TESSERA_MOVER, "--gpu",
                                    setup.gpu.empty() ? driver.uuid : setup.gpu, "--floor", setup.floor};
  if (setup.file != nullptr) words.emplace_back("--file");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (!setup.fault.empty()) setenv("TESSERA_FAULT", setup.fault.c_str(), 1);
  EXPECT_EQ(posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ), 0);
  unsetenv("TESSERA_FAULT");
  posix_spawn_file_actions_destroy(&actions);
  inherited.clear();  // or its end of the socket would be open when it is dead
  if (!slots_.kept.empty()) Until([&] { return Has(0, MoverType::kReady); });
  if (setup.wanted > 0 || setup.most > 0) Pool(setup.wanted, setup.most);
  if (setup.program != nullptr) Program(1, *setup.program, setup.domain);
}

TestMover::~TestMover() {
  socket_.Reset();
  if (pid_ > 0) Wait();
}

int TestMover::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return status;
}

void TestMover::Send(MoverMessage message, int fd) { (void)SendPacket(socket_.Get(), BytesOf(message), fd); }

void TestMover::Pool(std::uint64_t wanted, std::uint64_t most) {
  Send({.type = MoverType::kPool, .bytes = wanted * kChunkBytes, .other = most * kChunkBytes});
}

void TestMover::Program(std::uint64_t id, TestProgram& program, std::uint64_t domain) {
  const UniqueFd line = program.NewLine();
  Send({.type = MoverType::kProgram, .program = id, .bytes = static_cast<std::uint64_t>(program.pid), .other = domain},
       line.Get());
  programs_[id] = &program;
}

void TestMover::Forget(std::uint64_t id) {
  Send({.type = MoverType::kGone, .program = id});
  programs_.erase(id);
}

bool TestMover::Hear() {
  std::byte buffer[sizeof(MoverMessage)];
  UniqueFd fd;
  const ssize_t length = ReceivePacket(socket_.Get(), buffer, &fd);
  if (length <= 0) return false;
  const auto message = wire::ReadMover(std::span(buffer, static_cast<std::size_t>(length)));
  EXPECT_TRUE(message.has_value());
  if (message->type == MoverType::kSlotMade || message->type == MoverType::kSlotLeft) {
    slots_.kept.insert_or_assign(message->bytes, std::move(fd));
    Send({.type = MoverType::kSlotKept, .bytes = message->bytes});
  }
  if (message->type == MoverType::kSlotGone) slots_.kept.erase(message->bytes);
  if (message->type == MoverType::kReady) {
    HandOver(0);
  } else if (message->type == MoverType::kSlotTaken && !handed_over_) {
    HandOver(message->bytes);
  } else {
    last_[{message->program, message->type}] = *message;
  }
  return true;
}

// As the daemon does: it is ready when it has them all.
void TestMover::HandOver(std::uint64_t last) {
  const auto next = slots_.kept.upper_bound(last);
  handed_over_ = next == slots_.kept.end();
  if (handed_over_) {
    last_[{0, MoverType::kReady}] = {.type = MoverType::kReady};
  } else {
    Send({.type = MoverType::kSlot, .bytes = next->first}, next->second.Get());
  }
}

bool TestMover::Until(const std::function<bool()>& condition) {
  const Nanos limit = MonotonicNow() + 30 * kSecond;
  while (!condition()) {
    if (ended_ || MonotonicNow() > limit) return false;
    std::vector<pollfd> fds = {{.fd = socket_.Get(), .events = POLLIN}};
    std::vector<TestProgram*> talking;
    for (const auto& [id, program] : programs_) {
      if (program->line() < 0) continue;
      fds.push_back({.fd = program->line(), .events = POLLIN});
      talking.push_back(program);
    }
    poll(fds.data(), fds.size(), 100);
    for (std::size_t i = 0; i < talking.size(); ++i) {
      if (fds[i + 1].revents != 0) talking[i]->Answer();
    }
    if (fds[0].revents != 0) ended_ = !Hear();
  }
  return true;
}

MoverMessage TestMover::Await(std::uint64_t id, MoverType type) {
  EXPECT_TRUE(Until([&] { return Has(id, type); })) << "no message of type " << static_cast<int>(type);
  const MoverMessage message = Last(id, type);
  last_.erase({id, type});
  return message;
}

int TestMover::Settle(std::uint64_t id) {
  Send({.type = MoverType::kSettle, .program = id});
  return Await(id, MoverType::kSettled).error;
}

void TestMover::Adopt(TestProgram& program) {
  program.Adopt();
  Settle(1);
}

void TestMover::BringBack(TestProgram& program) {
  EXPECT_EQ(Move(1, MoverType::kLoad, program.Out()).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
}

MoverMessage TestMover::Park(std::uint64_t id) {
  Send({.type = MoverType::kPark, .program = id});
  return Await(id, MoverType::kParked);
}

MoverMessage TestMover::Move(std::uint64_t id, MoverType type, std::uint64_t chunks) {
  Send({.type = type, .program = id, .bytes = chunks * kChunkBytes});
  return Await(id, type == MoverType::kEvict ? MoverType::kEvicted : MoverType::kLoaded);
}

MoverMessage TestMover::Last(std::uint64_t id, MoverType type) const {
  const auto found = last_.find({id, type});
  return found == last_.end() ? MoverMessage{} : found->second;
}

std::size_t TestMover::Descriptors() const {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid_) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

}  // namespace tessera::mover

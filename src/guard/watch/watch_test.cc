// The watch in the running kernel: children make the driver's ioctls on /dev/null, which refuses them with ENOTTY, and
// the arguments that they leave in their memory are what a driver would have left.
#include "guard/watch/watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <vector>

#include "base/testing/temporary_folder.h"
#include "base/unique_fd.h"
#include "channel/rm/driver_abi.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = WatchEvent::Kind;

constexpr std::uint32_t kClient = 0xc1d00001, kDevice = 0x5c000001, kGroup = 0x5c000010, kHopperChannel = 0xc86f;

template <typename Argument>
void Call(int fd, unsigned number, Argument& argument) {
  ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, number, sizeof argument), &argument);
}

void AllocRoot(int fd, std::uint32_t client = kClient) {
  abi::AllocShort request = {.object = client, .cls = abi::kRootClient};
  Call(fd, abi::kAlloc, request);
}

template <typename Params>
void Alloc(int fd, std::uint32_t parent, std::uint32_t object, std::uint32_t cls, const Params* params) {
  abi::Alloc request = {.root = kClient, .parent = parent, .object = object, .cls = cls};
  request.params = reinterpret_cast<std::uintptr_t>(params);
  Call(fd, abi::kAlloc, request);
}

void AllocMemory(int fd, std::uint32_t object, std::uint64_t bytes) {
  const abi::MemoryParams params = {.size = bytes};
  Alloc(fd, kDevice, object, abi::kMemoryLocal, &params);
}

// A child that runs `body` with a descriptor of /dev/null.
template <typename Body>
pid_t Fork(Body body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  body(open("/dev/null", O_RDWR | O_CLOEXEC));
  _exit(0);
}

// When it returns, everything that the child did and its exit lie in the ring.
void Wait(pid_t pid) {
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
}

template <typename Body>
pid_t RunChild(Body body) {
  const pid_t pid = Fork(body);
  Wait(pid);
  return pid;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) read.Reset(ends[0]), write.Reset(ends[1]);
  }
  bool Signal() const { return ::write(write.Get(), "", 1) == 1; }
  bool Await() const {
    char byte;
    return ::read(read.Get(), &byte, 1) == 1;
  }
  UniqueFd read, write;
};

class WatchTest : public testing::Test {
 protected:
  void SetUp() override { Start({.report_failures = true}); }

  void Start(const WatchOptions& options) {
    watch_.reset();
    events_.clear();
    auto watch = Watch::Start([this](const WatchEvent& event) { events_.push_back(event); }, options);
    if (!watch && (watch.error().code == EPERM || watch.error().code == ENOSYS)) GTEST_SKIP() << watch.error().Text();
    ASSERT_TRUE(watch) << watch.error().Text();
    watch_ = std::move(*watch);
  }

  // Others on this machine may run such tests too, so only a process's own events are looked at.
  std::vector<WatchEvent> EventsOf(pid_t pid) {
    watch_->Read();
    std::vector<WatchEvent> own;
    for (const WatchEvent& event : events_)
      if (event.pid == pid) own.push_back(event);
    return own;
  }
  std::vector<Kind> KindsOf(pid_t pid) {
    std::vector<Kind> kinds;
    for (const WatchEvent& event : EventsOf(pid)) kinds.push_back(event.kind);
    return kinds;
  }

  std::unique_ptr<Watch> watch_;
  std::vector<WatchEvent> events_;
};

TEST_F(WatchTest, TellsWhatAProgramAllocates) {
  const pid_t pid = RunChild([](int fd) {
    AllocRoot(fd);
    const abi::DeviceParams device = {.device = 3};
    Alloc(fd, kClient, kDevice, abi::kDevice, &device);
    const abi::GroupParams group = {.engine = abi::kEngineGraphics};
    Alloc(fd, kDevice, kGroup, abi::kChannelGroup, &group);
    Alloc<void>(fd, kGroup, 0x20, kHopperChannel, nullptr);
    AllocMemory(fd, 0x30, std::uint64_t{5} << 30);
  });
  const auto events = EventsOf(pid);
  ASSERT_THAT(KindsOf(pid),
              ElementsAre(Kind::kAlloc, Kind::kAlloc, Kind::kAlloc, Kind::kAlloc, Kind::kAlloc, Kind::kExit));
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_EQ(events[i].client, kClient);
    EXPECT_GE(events[i].fd, 0);
    EXPECT_LT(events[i].sequence, events[i + 1].sequence);
    EXPECT_EQ(events[i].name, events.back().name);
  }
  EXPECT_EQ(events[0].object, kClient);
  EXPECT_EQ(events[0].cls, abi::kRootClient);
  EXPECT_EQ(events[1].parent, kClient);
  EXPECT_EQ(events[1].object, kDevice);
  EXPECT_EQ(events[1].detail, 3);
  EXPECT_EQ(events[2].parent, kDevice);
  EXPECT_EQ(events[2].object, kGroup);
  EXPECT_EQ(events[2].cls, abi::kChannelGroup);
  EXPECT_EQ(events[2].detail, abi::kEngineGraphics);
  EXPECT_EQ(events[3].parent, kGroup);
  EXPECT_EQ(events[3].cls, kHopperChannel);
  EXPECT_EQ(events[4].object, 0x30);
  EXPECT_EQ(events[4].bytes, std::uint64_t{5} << 30);
}

TEST_F(WatchTest, TellsFreesAndDuplicates) {
  const pid_t pid = RunChild([](int fd) {
    abi::Dup dup = {.client = kClient, .parent = kDevice, .object = 0x31, .source_client = 0xc2, .source_object = 0x30};
    Call(fd, abi::kDup, dup);
    abi::Free free = {.root = kClient, .parent = kDevice, .object = 0x31};
    Call(fd, abi::kFree, free);
  });
  const auto events = EventsOf(pid);
  ASSERT_THAT(KindsOf(pid), ElementsAre(Kind::kDup, Kind::kFree, Kind::kExit));
  EXPECT_EQ(events[0].client, kClient);
  EXPECT_EQ(events[0].object, 0x31);
  EXPECT_EQ(events[0].source_client, 0xc2);
  EXPECT_EQ(events[0].source_object, 0x30);
  EXPECT_EQ(events[1].client, kClient);
  EXPECT_EQ(events[1].parent, kDevice);
  EXPECT_EQ(events[1].object, 0x31);
}

TEST_F(WatchTest, TellsNothingElse) {
  const pid_t pid = RunChild([](int fd) {
    Alloc<void>(fd, kDevice, 0x40, abi::kSubdevice, nullptr);
    abi::Alloc failed = {.root = kClient, .object = 0x41, .cls = abi::kDevice, .status = abi::kNoMemory};
    Call(fd, abi::kAlloc, failed);
    abi::AllocShort failed_short = {.root = kClient, .object = 0x41, .cls = abi::kDevice, .status = abi::kNoMemory};
    Call(fd, abi::kAlloc, failed_short);
    abi::Dup failed_dup = {.client = kClient, .status = abi::kInvalidClient};
    Call(fd, abi::kDup, failed_dup);
    abi::Free failed_free = {.root = kClient, .status = abi::kInvalidClient};
    Call(fd, abi::kFree, failed_free);
    abi::Control control = {.client = kClient};
    Call(fd, abi::kControl, control);
    std::uint64_t short_argument = 0;
    for (const unsigned number : {abi::kAlloc, abi::kFree, abi::kDup}) Call(fd, number, short_argument);
    abi::Free free = {.root = kClient};
    ioctl(fd, _IOC(_IOC_READ, abi::kIoctlType, abi::kFree, sizeof free), &free);
    ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'G', abi::kFree, sizeof free), &free);
    ioctl(-1, _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, abi::kFree, sizeof free), &free);  // EBADF
  });
  EXPECT_TRUE(EventsOf(pid).empty());  // nor an exit: it was no GPU program
}

TEST_F(WatchTest, CallsThatReachNoDriverAreNotTold) {
  Start({});
  const pid_t pid = RunChild([](int fd) { AllocRoot(fd); });
  EXPECT_TRUE(EventsOf(pid).empty());
}

TEST_F(WatchTest, ItsOwnProcessIsNotTold) {
  AllocRoot(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)).Get());
  EXPECT_TRUE(EventsOf(getpid()).empty());
}

TEST_F(WatchTest, ItsDescriptorIsReadableWhileThereAreEvents) {
  watch_->Read();
  const pid_t pid = RunChild([](int fd) { AllocRoot(fd); });
  pollfd readable = {.fd = watch_->Fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&readable, 1, 0), 1);
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc, Kind::kExit));
}

TEST_F(WatchTest, ThreadsAreOneProcess) {
  constexpr int kThreads = 8;
  constexpr std::uint32_t kCalls = 200;
  const pid_t pid = RunChild([](int fd) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([fd, thread] {
        for (std::uint32_t i = 0; i < kCalls; ++i) AllocMemory(fd, thread * kCalls + i + 1, 1);
      });
    for (auto& thread : threads) thread.join();
  });
  const auto events = EventsOf(pid);
  ASSERT_EQ(events.size(), kThreads * kCalls + 1);
  std::vector<bool> told(kThreads * kCalls + 1);
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    ASSERT_EQ(events[i].kind, Kind::kAlloc);
    ASSERT_FALSE(told.at(events[i].object));
    told[events[i].object] = true;
  }
  EXPECT_EQ(events.back().kind, Kind::kExit);  // once, and last
}

TEST_F(WatchTest, AProcessLivesAsLongAsItsLastThread) {
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) GTEST_SKIP() << "this kernel does not say how its structures look";
  const Pipe main_ended, go_on;
  const pid_t pid = Fork([&](int fd) {
    std::thread([fd, &main_ended, &go_on, main_thread = gettid()] {
      // A thread that ended is a zombie until its process is waited for.
      const std::string stat = "/proc/self/task/" + std::to_string(main_thread) + "/stat";
      for (bool zombie = false; !zombie; std::this_thread::yield()) {
        char line[64] = {};
        const UniqueFd file(open(stat.c_str(), O_RDONLY));
        zombie = read(file.Get(), line, sizeof line - 1) > 0 && std::string(line).find(") Z ") != std::string::npos;
      }
      (void)main_ended.Signal();
      (void)go_on.Await();
      AllocMemory(fd, 0x30, 1);
      _exit(0);
    }).detach();
    AllocRoot(fd);
    syscall(SYS_exit, 0);  // this thread only
  });
  ASSERT_TRUE(main_ended.Await());
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc));
  ASSERT_TRUE(go_on.Signal());
  Wait(pid);
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc, Kind::kAlloc, Kind::kExit));
}

TEST_F(WatchTest, TellsTheExitOfAProgramThatIsKilled) {
  const Pipe ready;
  const pid_t pid = Fork([&](int fd) {
    AllocRoot(fd);
    (void)ready.Signal();
    pause();
  });
  ASSERT_TRUE(ready.Await());
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc));
  kill(pid, SIGKILL);
  Wait(pid);
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc, Kind::kExit));
}

TEST_F(WatchTest, AnotherProgramInTheSameProcessIsAnotherProgram) {
  const pid_t pid = RunChild([](int fd) {
    AllocRoot(fd);
    execl("/bin/true", "true", nullptr);
  });
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc, Kind::kExit));  // the second did nothing, so it has no exit
}

TEST_F(WatchTest, AThousandProcesses) {
  constexpr int kProcesses = 1000;
  std::vector<pid_t> pids;
  pids.reserve(kProcesses);
  const Pipe ready, stop;
  for (int i = 0; i < kProcesses; ++i) {
    pids.push_back(Fork([&](int fd) {
      AllocRoot(fd, static_cast<std::uint32_t>(getpid()));
      AllocMemory(fd, 0x30, 4096);
      (void)ready.Signal();
      (void)stop.Await();  // nobody writes: until the parent closes its end
    }));
    ASSERT_GT(pids.back(), 0);
  }
  for (int i = 0; i < kProcesses; ++i) ASSERT_TRUE(ready.Await());
  for (int i = 0; i < kProcesses; ++i) ASSERT_TRUE(stop.Signal());
  for (const pid_t pid : pids) Wait(pid);
  watch_->Read();
  for (const pid_t pid : pids) {
    const auto events = EventsOf(pid);
    ASSERT_THAT(KindsOf(pid), ElementsAre(Kind::kAlloc, Kind::kAlloc, Kind::kExit));
    ASSERT_EQ(events[0].client, static_cast<std::uint32_t>(pid));
    ASSERT_EQ(events[1].bytes, 4096);
  }
}

TEST_F(WatchTest, CountsWhatDoesNotFitIntoTheRing) {
  constexpr std::uint32_t kCalls = 5000;
  Start({.ring_bytes = 1 << 16, .report_failures = true});
  const pid_t pid = RunChild([](int fd) {
    for (std::uint32_t i = 0; i < kCalls; ++i) AllocMemory(fd, i + 1, 1);
  });
  const auto events = EventsOf(pid);
  ASSERT_GT(events.size(), 1);
  ASSERT_LT(events.size(), 1000);
  EXPECT_EQ(events.back().kind, Kind::kExit);  // has a place of its own
  ASSERT_EQ(events_.back().kind, Kind::kLost);
  // At least, since others' events may be in the ring and may be lost too.
  EXPECT_GE(events_.back().lost + events.size() - 1, kCalls);

  // Read again, there is room again.
  const pid_t next = RunChild([](int fd) { AllocRoot(fd); });
  EXPECT_THAT(KindsOf(next), ElementsAre(Kind::kAlloc, Kind::kExit));
}

TEST_F(WatchTest, AReadEndsHoweverManyEventsAreMade) {
  const auto page = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  int told = 0;
  auto watch = Watch::Start(
      [&told](const WatchEvent&) {
        ++told;
        RunChild([](int fd) { AllocRoot(fd); });  // two events for each
      },
      {.ring_bytes = page, .report_failures = true});
  ASSERT_TRUE(watch) << watch.error().Text();
  told = 0;
  RunChild([](int fd) { AllocRoot(fd); });
  (*watch)->Read();
  EXPECT_GT(told, 2);
  pollfd readable = {.fd = (*watch)->Fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&readable, 1, 0), 1);
}

TEST_F(WatchTest, CountsWhatItCannotRead) {
  const pid_t pid = RunChild([](int fd) {
    Alloc(fd, kDevice, kGroup, abi::kChannelGroup, reinterpret_cast<const abi::GroupParams*>(8));
    ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, abi::kFree, sizeof(abi::Free)), 16);
  });
  EXPECT_TRUE(EventsOf(pid).empty());
  EXPECT_GE(watch_->Lost(), 2);
}

TEST_F(WatchTest, TellsWhoUsesTheGpuAlready) {
  std::optional<TemporaryFolder> directory(std::in_place);
  const Pipe ready;
  const pid_t pid = Fork([&](int) {
    (void)open((directory->path() + "/nvidiactl").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    (void)ready.Signal();
    pause();
  });
  ASSERT_TRUE(ready.Await());
  Start({.report_failures = true});
  directory.reset();
  const auto events = EventsOf(pid);
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].kind, Kind::kExisting);
  EXPECT_FALSE(events[0].name.empty());
  kill(pid, SIGKILL);
  Wait(pid);
  EXPECT_THAT(KindsOf(pid), ElementsAre(Kind::kExisting, Kind::kExit));
}

// A child in a PID namespace of its own, where it is process 1.
template <typename Body>
pid_t ForkIntoNamespace(Body body) {
  return Fork([&](int) {
    if (unshare(CLONE_NEWPID) != 0) _exit(1);
    const pid_t first = Fork([&](int fd) { body(fd); });
    int status = 1;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  });
}

int ExitStatus(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(WatchTest, SeesInsideContainers) {
  const Pipe ready;
  const pid_t outer = ForkIntoNamespace([&](int fd) {
    AllocRoot(fd, 0xc1d0beef);
    (void)ready.Signal();
  });
  ASSERT_EQ(ExitStatus(outer), 0);
  watch_->Read();
  const auto found = std::ranges::find_if(events_, [](const WatchEvent& event) { return event.client == 0xc1d0beef; });
  ASSERT_NE(found, events_.end());
  EXPECT_GT(found->host_pid, 1);
  EXPECT_THAT(found->pid, AnyOf(found->host_pid, 0));  // 0 if these tests run in a container themselves
}

TEST_F(WatchTest, FromInsideAContainerItSeesTheNode) {
  const Pipe started, outside_done;
  const pid_t outer = ForkIntoNamespace([&](int) {
    std::vector<WatchEvent> events;
    auto watch = Watch::Start([&](const WatchEvent& event) { events.push_back(event); }, {.report_failures = true});
    (void)started.Signal();
    if (!watch || !outside_done.Await()) _exit(2);
    const pid_t inside = RunChild([](int fd) { AllocRoot(fd, 0xc1d01111); });
    (*watch)->Read();
    int right = 0;
    for (const WatchEvent& event : events) {
      const bool is_inside = event.client == 0xc1d01111 && event.pid == inside && event.host_pid > inside;
      const bool is_outside = event.client == 0xc1d02222 && event.pid == 0 && event.host_pid > 1;
      const bool exited = event.kind == Kind::kExit && event.pid == inside;
      if (is_inside || is_outside || exited) ++right;
    }
    _exit(right == 3 ? 0 : 3);
  });
  ASSERT_TRUE(started.Await());
  RunChild([](int fd) { AllocRoot(fd, 0xc1d02222); });
  ASSERT_TRUE(outside_done.Signal());
  EXPECT_EQ(ExitStatus(outer), 0);
}

TEST(Watch, SaysWhichRightsItLacks) {
  if (geteuid() != 0) GTEST_SKIP() << "has no rights that it could give up";
  const Pipe answer;
  const pid_t pid = Fork([&](int) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    const auto watch = Watch::Start([](const WatchEvent&) {});
    const std::string text = watch ? "it started" : std::to_string(watch.error().code) + " " + watch.error().Text();
    (void)!write(answer.write.Get(), text.data(), text.size());
  });
  Wait(pid);
  char text[512] = {};
  ASSERT_GT(read(answer.read.Get(), text, sizeof text - 1), 0);
  EXPECT_THAT(text, HasSubstr(std::to_string(EPERM) + " cannot watch the node's GPU programs"));
  EXPECT_THAT(text, HasSubstr("CAP_BPF and CAP_PERFMON"));
  EXPECT_THAT(text, HasSubstr("everything else works"));
}

}  // namespace
}  // namespace tessera::guard

// Duplicates of programs' files. A terminal stands for the device: its master sees when the last file of it is closed.
#include "server/spaces/client_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"

namespace tessera::server {
namespace {

class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    char path[64] = {};
    EXPECT_EQ(grantpt(master_.Get()), 0);
    EXPECT_EQ(unlockpt(master_.Get()), 0);
    EXPECT_EQ(ptsname_r(master_.Get(), path, sizeof path), 0);
    path_ = path;
  }
  const std::string& Path() const { return path_; }
  // No process has a file of it open any more.
  bool Closed() const {
    pollfd master = {.fd = master_.Get(), .events = 0, .revents = 0};
    return poll(&master, 1, 0) > 0 && (master.revents & POLLHUP) != 0;
  }
  // Files of it that this process has.
  std::size_t Duplicates() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      count += std::filesystem::read_symlink(entry.path(), closed) == path_;
    }
    return count;
  }

 private:
  const UniqueFd master_;
  std::string path_;
};

// A process that has opened `path` so often, behind so many other files.
class Client {
 public:
  explicit Client(const std::string& path, int times = 1, int others = 0) {
    int down[2] = {}, up[2] = {};
    EXPECT_EQ(pipe2(down, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(up, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) Run(path.c_str(), times, others, down[0], up[1]);
    orders_ = UniqueFd(down[1]);
    answers_ = UniqueFd(up[0]);
    close(down[0]);
    close(up[1]);
    Hear();
  }
  ~Client() { Kill(); }
  Client(const Client&) = delete;

  pid_t Pid() const { return pid_; }
  void CloseAll() {
    EXPECT_EQ(write(orders_.Get(), "c", 1), 1);
    Hear();
  }
  void KillSoon() const { kill(pid_, SIGKILL); }
  void Kill() {
    if (pid_ <= 0) return;
    KillSoon();
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  void Hear() const {
    char byte = 0;
    EXPECT_EQ(read(answers_.Get(), &byte, 1), 1) << "the client could not open its files";
  }
  // Between fork and the end: system calls alone, as the test has threads.
  [[noreturn]] static void Run(const char* path, int times, int others, int orders, int answers) {
    rlimit files = {};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (; others > 0; --others)
      if (open("/dev/null", O_RDONLY) < 0) _exit(1);
    int first = -1, last = -1;
    for (; times > 0; --times) {
      last = open(path, O_RDWR | O_NOCTTY);
      if (last < 0) _exit(1);
      if (first < 0) first = last;
    }
    for (char byte = 'o'; write(answers, &byte, 1) == 1 && read(orders, &byte, 1) == 1;)
      for (int file = first; file <= last; ++file) close(file);
    _exit(0);
  }

  pid_t pid_ = 0;
  UniqueFd orders_, answers_;
};

class ClientFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
    thread_ = std::thread([this] { (void)loop_->Run(); });
    Make(device_.Path());
  }
  void TearDown() override {
    On([this] { files_.reset(); });
    loop_->Post([this] { loop_->Stop(); });
    thread_.join();
  }

  template <typename Act>
  void On(Act act) {
    (void)loop_->Call([&act] {
      act();
      return 0;
    });
  }
  void Make(const std::string& device) {
    On([&, this] { files_ = std::make_unique<ClientFiles>(*loop_, device); });
  }
  void Hold(pid_t client) {
    On([&, this] { files_->Hold(client); });
  }
  void Release(pid_t client) {
    On([&, this] {
      files_->Release(client, [this] {
        ++looks_;
        return stands_.load();
      });
    });
  }
  std::size_t Held() {
    std::size_t held = 0;
    On([&, this] { held = files_->Held(); });
    return held;
  }

  const Terminal device_;
  std::unique_ptr<EventLoop> loop_;
  std::thread thread_;
  std::unique_ptr<ClientFiles> files_;
  std::atomic<bool> stands_ = false;
  std::atomic<int> looks_ = 0;
};

TEST_F(ClientFilesTest, WhatAClientHasOpenOutlivesIt) {
  Client client(device_.Path());
  Hold(client.Pid());
  EXPECT_EQ(Held(), 1u);
  const pid_t pid = client.Pid();
  client.Kill();
  EXPECT_FALSE(device_.Closed());
  Release(pid);
  EXPECT_EQ(Held(), 0u);
  WaitUntil([this] { return device_.Closed(); });
}

// Its kernels are on the way, and go on when the space does.
TEST_F(ClientFilesTest, WhileTheSpaceStandsFilesStay) {
  Client client(device_.Path());
  Hold(client.Pid());
  stands_ = true;
  Release(client.Pid());
  client.Kill();
  WaitUntil([this] { return looks_ > ClientFiles::kAfter / ClientFiles::kLook + 1; });
  EXPECT_FALSE(device_.Closed());
  stands_ = false;
  WaitUntil([this] { return device_.Closed(); });
}

TEST_F(ClientFilesTest, NoOtherFileIsHeld) {
  const Terminal other;
  Client client(other.Path());
  Hold(client.Pid());
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(other.Duplicates(), 0u);
  client.Kill();
  WaitUntil([&] { return other.Closed(); });
}

TEST_F(ClientFilesTest, TheNextHoldTakesThePlaceOfTheLast) {
  Client client(device_.Path(), 2);
  for (int n = 0; n < 5; ++n) Hold(client.Pid());
  EXPECT_EQ(Held(), 1u);
  WaitUntil([this] { return device_.Duplicates() == 2; });
  client.CloseAll();
  Hold(client.Pid());
  EXPECT_EQ(Held(), 0u);
  WaitUntil([this] { return device_.Closed(); });
}

TEST_F(ClientFilesTest, WhoHasEndedHasNothing) {
  Client client(device_.Path());
  const pid_t pid = client.Pid();
  client.Kill();
  for (const pid_t none : {pid, pid_t{0}, pid_t{-1}}) {
    Hold(none);
    Release(none);
    EXPECT_EQ(Held(), 0u);
  }
  EXPECT_EQ(device_.Duplicates(), 0u);
}

// It is killed while its files are looked for.
TEST_F(ClientFilesTest, AnEndMeanwhileLeavesNothing) {
  for (int n = 0; n < 100; ++n) {
    Client client(device_.Path(), 20);
    std::thread kills([&] { client.KillSoon(); });
    Hold(client.Pid());
    kills.join();
    Release(client.Pid());
    EXPECT_EQ(Held(), 0u);
  }
  WaitUntil([this] { return device_.Closed(); });
  EXPECT_EQ(device_.Duplicates(), 0u);
}

// The pid may be another process's by then, which comes and goes while the first one's files are still held.
TEST_F(ClientFilesTest, APidMayComeBack) {
  Client client(device_.Path());
  for (int n = 0; n < 3; ++n) {
    Hold(client.Pid());
    Release(client.Pid());
  }
  Hold(client.Pid());
  WaitUntil([this] { return device_.Duplicates() == 1; });
  EXPECT_EQ(Held(), 1u);
  Release(client.Pid());
  client.Kill();
  WaitUntil([this] { return device_.Closed(); });
}

TEST_F(ClientFilesTest, AClientWithManyFilesTakesNoMoreThanAFew) {
  Client client(device_.Path(), 200);
  Hold(client.Pid());
  EXPECT_EQ(device_.Duplicates(), ClientFiles::kMostFiles);
}

TEST_F(ClientFilesTest, AClientWithManyDescriptorsIsNotSearchedForLong) {
  Client client(device_.Path(), 1, static_cast<int>(ClientFiles::kMostSeen));
  Hold(client.Pid());
  EXPECT_EQ(Held(), 0u);
}

// In a mount namespace of its own a program may have anything at the device's path, and to close that may block.
TEST_F(ClientFilesTest, WhatIsNoDeviceIsNotHeld) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/device";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Make(path);
  {
    Client client(path);
    Hold(client.Pid());
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_F(ClientFilesTest, WhatIsHeldEndsWithTheObject) {
  Client first(device_.Path()), second(device_.Path());
  Hold(first.Pid());
  Hold(second.Pid());
  Release(second.Pid());
  first.Kill();
  second.Kill();
  On([this] { files_.reset(); });
  EXPECT_TRUE(device_.Closed());
}

}  // namespace
}  // namespace tessera::server

// Files that the daemon reads and writes: state file, lock, sockets, the linker's cache, UUIDs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/size.h"
#include "base/testing/temporary_folder.h"
#include "server/devices/gpu_driver.h"
#include "server/devices/ld_cache.h"
#include "server/loop/listeners.h"
#include "server/state/state_file.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  mode_t ModeOf(const std::string& name) const {
    struct stat st{};
    EXPECT_EQ(stat((dir_.path() + name).c_str(), &st), 0);
    return st.st_mode & 07777;
  }
  ino_t InodeOf(const std::string& name) const {
    struct stat st{};
    EXPECT_EQ(stat((dir_.path() + name).c_str(), &st), 0);
    return st.st_ino;
  }
  const TemporaryFolder dir_;
};

TEST_F(FilesTest, StateComesBackAsItWas) {
  const SavedVGpu saved{.spec = {.name = "a",
                                 .uid = 1000,
                                 .ephemeral = true,
                                 .owner_pid = 5,
                                 .owner_start = 77,
                                 .memory = {.request = 5 * kGiB, .limit = 20 * kGiB, .max = {}, .swap = 0},
                                 .compute = {.request_pct = 12.5, .limit_pct = 80, .weight = 300}},
                        .gpu = FakeDriver::UuidOf(3)};
  const SavedProgram program{.name = {.pid = 7, .start = 8}, .gpu = FakeDriver::UuidOf(1)};
  const SavedState state{.vgpus = {saved, saved}, .processes = {}, .programs = {program}};
  ASSERT_TRUE(SaveState(dir_.path() + "/state.json", FormatState(state)));
  const auto loaded = LoadState(dir_.path() + "/state.json");
  ASSERT_TRUE(loaded) << loaded.error().Text();
  ASSERT_EQ(loaded->vgpus.size(), 2u);
  EXPECT_EQ(FormatState(*loaded), FormatState(state));
  EXPECT_EQ(loaded->programs.at(0).name, program.name);
  EXPECT_EQ(loaded->vgpus.at(0).spec.memory.request, 5 * kGiB);
  EXPECT_EQ(loaded->vgpus.at(0).spec.memory.limit, 20 * kGiB);
  EXPECT_FALSE(loaded->vgpus.at(0).spec.memory.max);
  EXPECT_EQ(loaded->vgpus.at(0).spec.memory.swap, 0u);
  EXPECT_EQ(loaded->vgpus.at(0).gpu, FakeDriver::UuidOf(3));
}

TEST_F(FilesTest, NoStateFileIsNoVGpus) { EXPECT_TRUE(LoadState(dir_.path() + "/state.json")->vgpus.empty()); }

TEST_F(FilesTest, BrokenStateIsNamed) {
  for (const char* text :
       {"", "[]", "{\"version\":2,\"vgpus\":[]}", "{\"version\":1}", "{\"version\":1,\"vgpus\":[{}]}",
        "{\"version\":1,\"vgpus\":[{\"gpu_uuid\":\"GPU-x\"}]}", "{\"version\":\"1\"}"}) {
    const auto state = ParseState(text);
    ASSERT_FALSE(state) << text;
    EXPECT_EQ(state.error().code, EBADMSG);
  }
}

TEST_F(FilesTest, AFullDiskKeepsTheOldState) {
  const std::string path = dir_.path() + "/state.json";
  ASSERT_TRUE(SaveState(path, "old"));
  // A file size limit fails writes as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit tight = before;
  tight.rlim_cur = 10;
  setrlimit(RLIMIT_FSIZE, &tight);
  const auto saved = SaveState(path, std::string(1000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error().message, HasSubstr("cannot write"));
  std::string kept;
  std::ifstream(path) >> kept;
  EXPECT_EQ(kept, "old");
}

TEST_F(FilesTest, ASecondDaemonIsToldOfTheFirst) {
  const auto first = LockRunDir(dir_.path());
  ASSERT_TRUE(first);
  const auto second = LockRunDir(dir_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EBUSY);
  EXPECT_EQ(second.error().message, "another tesserad (pid " + std::to_string(getpid()) + ") serves " + dir_.path());
}

// A child that is about to start a program, when its daemon was killed.
TEST_F(FilesTest, TheLockOfADaemonThatIsGoneIsWaitedFor) {
  int end[2];
  ASSERT_EQ(pipe2(end, O_CLOEXEC), 0);
  const UniqueFd ends(end[0]);
  UniqueFd goes_on(end[1]);
  const pid_t daemon = fork();
  if (daemon == 0) {
    goes_on.Reset();
    const auto lock = LockRunDir(dir_.path());
    if (!lock || fork() != 0) _exit(0);  // the child has the lock, too
    char none;
    _exit(static_cast<int>(read(ends.Get(), &none, 1)));
  }
  ASSERT_EQ(waitpid(daemon, nullptr, 0), daemon);
  int waits = 0;
  EXPECT_TRUE(LockRunDir(dir_.path(), [&] {
    ++waits;
    goes_on.Reset();
    sched_yield();
  }));
  EXPECT_GT(waits, 0);
}

TEST_F(FilesTest, TheLockGoesWithItsHolder) {
  {
    ASSERT_TRUE(LockRunDir(dir_.path()));
  }
  EXPECT_TRUE(LockRunDir(dir_.path()));
}

TEST_F(FilesTest, SocketsHaveTheirModesAndAreRemoved) {
  {
    std::ofstream(dir_.path() + "/client.sock") << "left over";
    const auto listeners = Listeners::Open(dir_.path(), OperatorsGroup("no-such-group"));
    ASSERT_TRUE(listeners) << listeners.error().Text();
    EXPECT_EQ(ModeOf("/client.sock"), 0666u);
    EXPECT_EQ(InodeOf("/client.sock"), InodeOf("/programs/client.sock"));
    EXPECT_EQ(ModeOf("/programs"), 0755u);
    EXPECT_EQ(ModeOf("/api.sock"), 0600u);
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/client.sock"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/api.sock"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path() + "/programs"));
}

// A container has the folder mounted: it must stay the same one, and hold the socket of the daemon that serves.
TEST_F(FilesTest, TheFolderForContainersHoldsTheSocketOfTheDay) {
  std::filesystem::create_directory(dir_.path() + "/programs");
  std::ofstream(dir_.path() + "/programs/client.sock") << "left over";
  const ino_t folder = InodeOf("/programs");
  for (int daemon = 0; daemon < 2; ++daemon) {
    const auto listeners = Listeners::Open(dir_.path());
    ASSERT_TRUE(listeners) << listeners.error().Text();
    EXPECT_EQ(InodeOf("/client.sock"), InodeOf("/programs/client.sock"));
    EXPECT_EQ(InodeOf("/programs"), folder);
  }
}

// As sd_listen_fds(3) has it, in a child because the descriptors' numbers are fixed.
TEST_F(FilesTest, SocketsOfTheServiceManagerAreTakenOverAndStay) {
  auto bound = Listeners::Open(dir_.path());
  ASSERT_TRUE(bound);
  const pid_t child = fork();
  if (child == 0) {
    const int client = dup(bound->client.Get()), api = dup(bound->api.Get());
    const std::string dir = dir_.path() + "/unused";
    if (dup2(client, 3) != 3 || dup2(api, 4) != 4) _exit(1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_FDNAMES", "client:api", 1);
    auto taken = Listeners::Open(dir);
    if (!taken) _exit(2);
    if (taken->client.Get() != 3 || taken->api.Get() != 4) _exit(3);
    if (!(fcntl(3, F_GETFL) & O_NONBLOCK)) _exit(4);
    taken = Fail(0, "destroyed");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/client.sock"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/api.sock"));
}

TEST_F(FilesTest, ADirectoryThatCannotBeWrittenIsNamed) {
  const auto nowhere = Listeners::Open(dir_.path() + "/missing");
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().Text(), HasSubstr(dir_.path() + "/missing/client.sock"));
  EXPECT_THAT(nowhere.error().hint, HasSubstr("--run-dir"));
  EXPECT_FALSE(LockRunDir(dir_.path() + "/missing"));
  EXPECT_EQ(Listeners::Open(dir_.path() + "/" + std::string(120, 'x')).error().code, ENAMETOOLONG);
}

TEST_F(FilesTest, UuidsAreReadAndWritten) {
  const std::string text = "GPU-8e1ab4f5-0011-2233-4455-66778899aabb";
  const auto uuid = ParseUuid(text);
  ASSERT_TRUE(uuid);
  EXPECT_EQ(uuid->bytes[0], 0x8e);
  EXPECT_EQ(uuid->bytes[15], 0xbb);
  EXPECT_EQ(FormatUuid(*uuid), text);
  EXPECT_TRUE(ParseUuid("GPU-8E1AB4F5-0011-2233-4455-66778899AABB"));
  for (const char* wrong :
       {"", "GPU-", "8e1ab4f5-0011-2233-4455-66778899aabb", "GPU-8e1ab4f5-0011-2233-4455-66778899aab",
        "GPU-8e1ab4f5x0011-2233-4455-66778899aabb", "GPU-8e1ab4g5-0011-2233-4455-66778899aabb"}) {
    EXPECT_FALSE(ParseUuid(wrong)) << wrong;
  }
}

TEST_F(FilesTest, TheLinkersCacheKnowsTheCLibrary) {
  const auto paths = FindInLdCache("libc.so.6");
  ASSERT_FALSE(paths.empty());
  EXPECT_TRUE(std::filesystem::exists(paths[0]));
  EXPECT_TRUE(FindInLdCache("libno-such-thing.so.1").empty());
}

TEST_F(FilesTest, ABrokenCacheIsEmpty) {
  const std::string path = dir_.path() + "/cache";
  EXPECT_TRUE(FindInLdCache("libc.so.6", path).empty());
  std::ofstream(path) << "glibc-ld.so.cache1.1";
  EXPECT_TRUE(FindInLdCache("libc.so.6", path).empty());
  std::ofstream(path) << "glibc-ld.so.cache1.1" << std::string(28, '\xff') << std::string(24 * 3, '\x03');
  EXPECT_TRUE(FindInLdCache("libc.so.6", path).empty());
}

TEST_F(FilesTest, WithoutADriverTheErrorSaysWhatToDo) {
  setenv("TESSERA_REAL_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  const auto driver = OpenNvmlDriver();
  unsetenv("TESSERA_REAL_NVML");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ENODEV);
  EXPECT_THAT(driver.error().hint, HasSubstr("--soft"));
}

TEST_F(FilesTest, ALibraryThatIsNotNvmlIsRefused) {
  setenv("TESSERA_REAL_NVML", FindInLdCache("libc.so.6").at(0).c_str(), 1);
  const auto driver = OpenNvmlDriver();
  unsetenv("TESSERA_REAL_NVML");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ENOSYS);
}

}  // namespace
}  // namespace tessera::server

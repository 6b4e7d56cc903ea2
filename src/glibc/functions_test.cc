// The functions of libtessera-glibc.so.1 beside those of the C library here, which has them, too.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

template <typename T>
T* Ours(const char* name) {
  static void* library = dlopen(TESSERA_GLIBC, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  void* found = library ? dlsym(library, name) : nullptr;
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<T*>(found);
}

using ByPath = int(const char*, struct stat*);

void ExpectSame(const struct stat& one, const struct stat& other) {
  EXPECT_EQ(one.st_dev, other.st_dev);
  EXPECT_EQ(one.st_ino, other.st_ino);
  EXPECT_EQ(one.st_mode, other.st_mode);
  EXPECT_EQ(one.st_nlink, other.st_nlink);
  EXPECT_EQ(one.st_uid, other.st_uid);
  EXPECT_EQ(one.st_size, other.st_size);
  EXPECT_EQ(one.st_blocks, other.st_blocks);
  EXPECT_EQ(one.st_mtim.tv_sec, other.st_mtim.tv_sec);
  EXPECT_EQ(one.st_mtim.tv_nsec, other.st_mtim.tv_nsec);
}

TEST(OlderGlibc, FilesAreDescribedAsByTheCLibrary) {
  const TemporaryFolder folder;
  const std::string file = TESSERA_GLIBC, link = folder.path() + "/link";
  std::filesystem::create_symlink(file, link);
  struct stat mine = {}, theirs = {};
  for (const char* name : {"stat", "stat64"}) {
    ASSERT_EQ(Ours<ByPath>(name)(link.c_str(), &mine), 0) << name;
    ASSERT_EQ(stat(link.c_str(), &theirs), 0);
    ExpectSame(mine, theirs);
  }
  for (const char* name : {"lstat", "lstat64"}) {
    ASSERT_EQ(Ours<ByPath>(name)(link.c_str(), &mine), 0) << name;
    ASSERT_EQ(lstat(link.c_str(), &theirs), 0);
    ExpectSame(mine, theirs);
    EXPECT_TRUE(S_ISLNK(mine.st_mode));
  }
  const int opened = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  for (const char* name : {"fstat", "fstat64"}) {
    ASSERT_EQ(Ours<int(int, struct stat*)>(name)(opened, &mine), 0) << name;
    ASSERT_EQ(fstat(opened, &theirs), 0);
    ExpectSame(mine, theirs);
  }
  ASSERT_EQ(Ours<int(int, const char*, struct stat*, int)>("fstatat64")(opened, "", &mine, AT_EMPTY_PATH), 0);
  ExpectSame(mine, theirs);
  close(opened);
}

TEST(OlderGlibc, AFileThatIsNotThereSetsErrno) {
  struct stat mine = {};
  errno = 0;
  EXPECT_EQ(Ours<ByPath>("stat")("/nowhere/at/all", &mine), -1);
  EXPECT_EQ(errno, ENOENT);
  errno = 0;
  EXPECT_EQ(Ours<int(int, struct stat*)>("fstat")(-1, &mine), -1);
  EXPECT_EQ(errno, EBADF);
}

// The kernel's calls answer as a kernel before 5.9 does.
bool WithoutCloseRange() {
  sock_filter steps[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_close_range},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program = {std::size(steps), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

// 0: all descriptors from 400 on are closed, those below are not. The test process keeps its own.
int CloseFrom400(bool older_kernel) {
  const int null = open("/dev/null", O_RDONLY);
  for (int descriptor = 399; descriptor < 600; ++descriptor) dup2(null, descriptor);
  auto* closing = Ours<void(int)>("closefrom");
  if (older_kernel && (!WithoutCloseRange() || syscall(SYS_close_range, 1000, 1000, 0) == 0)) return 3;
  closing(400);
  if (!IsOpen(399) || !IsOpen(null)) return 1;
  for (int descriptor = 400; descriptor < 700; ++descriptor) {
    if (IsOpen(descriptor)) return 2;
  }
  return 0;
}

int InChild(bool older_kernel) {
  const pid_t child = fork();
  if (child == 0) _exit(CloseFrom400(older_kernel));
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(OlderGlibc, ClosefromClosesAllFromThereOn) { EXPECT_EQ(InChild(false), 0); }
TEST(OlderGlibc, ClosefromNeedsNoCloseRange) { EXPECT_EQ(InChild(true), 0); }

TEST(OlderGlibc, RandomNumbersDiffer) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 64; ++i) seen.insert(Ours<uint32_t()>("arc4random")());
  EXPECT_GT(seen.size(), 60U);
}

TEST(OlderGlibc, NobodyIsSaidToBeAlone) { EXPECT_EQ(*Ours<char>("__libc_single_threaded"), 0); }

}  // namespace
}  // namespace tessera

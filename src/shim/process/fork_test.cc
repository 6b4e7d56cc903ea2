// Whatever thread holds a mutex of the shim's when the program forks: the child finds it free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <regex>
#include <thread>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuMemAlloc_v2(tessera::cuda::CUdeviceptr*, size_t);

namespace tessera::shim {
namespace {

class ForkTest : public ShimFixture {};

TEST_F(ForkTest, EachMutexThatAnotherThreadHoldsIsFreeInTheChild) {
  Swap();
  Attached();
  MakeContext();
  cuda::CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, kMiB), cuda::CUDA_SUCCESS);
  std::vector<ForkMutex*> all;
  ForkMutex::ForEach([&](ForkMutex& mutex) { all.push_back(&mutex); });
  // Session 2, watch 1, page 1, keeper 1, report 1, paging 1, heap 2, and those of the tables.
  EXPECT_GE(all.size(), 17u);
  for (ForkMutex* held : all) {
    std::promise<void> holds, done;
    std::thread holder([&]() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
      held->Lock();
      holds.set_value();
      done.get_future().wait();
      held->Unlock();
    });
    holds.get_future().wait();
    const pid_t pid = fork();
    if (pid == 0) {
      bool free = true;
      for (ForkMutex* each : all)
        [each, &free]() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
          free = free && each->TryLock();
          if (free) each->Unlock();
        }();
      _exit(free ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    done.set_value();
    holder.join();
  }
}

// Mutexes that are on no list, and why.
const std::map<std::string, std::string> kUnlisted = {
    {"shim/process/runtime.cc: guard_mutex", "it is recursive, and remade by an act of its own"},
};

TEST(ForkList, HasEachMutexOfTheCodeThatProgramsCarry) {
  const std::filesystem::path source = TESSERA_SOURCE;
  const std::regex declares(
      R"(^\s*(?:(?:static|mutable|inline)\s+)*(?:std::(?:recursive_|shared_|timed_)?mutex|Mutex|SharedMutex|RobustMutex|pthread_\w*(?:mutex|lock)_t)\s+(\w+)\s*(?:;|=|\{|TESSERA_))");
  std::vector<std::string> unlisted;
  int listed = 0;
  for (const char* part : {"shim", "pager"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source / part)) {
      const std::string path = std::filesystem::relative(entry.path(), source);
      if (!entry.is_regular_file() || path.find("test") != std::string::npos || path.find("fuzz") != std::string::npos)
        continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (std::regex_search(line, match, declares)) unlisted.push_back(path + ": " + match[1].str());
        if (line.find("ForkMutex ") != std::string::npos) ++listed;
      }
    }
  }
  std::vector<std::string> expected;
  for (const auto& [mutex, why] : kUnlisted) expected.push_back(mutex);
  EXPECT_THAT(unlisted, testing::UnorderedElementsAreArray(expected))
      << "make it a ForkMutex, or say in kUnlisted why a child does not need it";
  EXPECT_GE(listed, 17) << "the sources were not found";
}

}  // namespace
}  // namespace tessera::shim

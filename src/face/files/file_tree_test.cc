#include "face/files/file_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "face/files/file_value.h"
#include "server/testing/test_daemon.h"

namespace tessera::face {
namespace {

using testing::ElementsAre;

class FileTreeTest : public testing::Test {
 protected:
  // The result of a system call: the text, or the errno as "E22".
  template <typename T>
  static std::string CodeOf(const Result<T>& done) {
    return "E" + std::to_string(done ? 0 : done.error().code);
  }
  std::string Read(const std::string& path) {
    auto text = tree_.Read(path);
    return text ? *text : CodeOf(text);
  }
  int Write(const std::string& path, std::string_view text) {
    const auto written = tree_.Write(path, text);
    return written ? 0 : written.error().code;
  }
  mode_t ModeOf(const std::string& path) {
    const auto attributes = tree_.Look(path);
    return attributes ? attributes->mode : 0;
  }
  std::vector<std::string> List(const std::string& path) {
    auto names = tree_.List(path);
    return names ? *names : std::vector<std::string>{CodeOf(names)};
  }
  static std::string ProcessPath() { return "/processes/" + std::to_string(getpid()) + "/0/"; }

  static server::TestDaemon::Setup SetupWithSwap() {
    server::TestDaemon::Setup setup{.gpus = 2};
    setup.config.swap_size = "2G";
    return setup;
  }

  explicit FileTreeTest(const server::TestDaemon::Setup& setup = SetupWithSwap()) : daemon_(setup) {
    daemon_.Make({.name = "a", .gpu = "0"});
  }

  server::TestDaemon daemon_;
  FileTree tree_{daemon_.Api()};
};

// A daemon without swap: all allocated memory lies on the GPU, and no mover has to say so.
class FileTreeWithoutSwapTest : public FileTreeTest {
 protected:
  FileTreeWithoutSwapTest() : FileTreeTest(server::TestDaemon::Setup{}) {}
};

TEST_F(FileTreeTest, Directories) {
  const server::FakeClient client = daemon_.Connect("a");
  const std::string pid = std::to_string(getpid());
  EXPECT_THAT(List("/"), ElementsAre("processes", "vgpus"));
  EXPECT_THAT(List("/processes"), ElementsAre("list", pid));
  EXPECT_THAT(List("/processes/" + pid), ElementsAre("0"));
  EXPECT_THAT(List("/processes/" + pid + "/0"), ElementsAre("memory.limit", "memory.current", "memory.swap.current",
                                                            "compute.priority", "compute.freeze", "gcgroup.stat"));
  EXPECT_THAT(List("/vgpus"), ElementsAre("a"));
  EXPECT_THAT(List("/vgpus/a"),
              ElementsAre("memory.current", "memory.events", "memory.limit", "memory.max", "memory.peak",
                          "memory.pressure", "memory.request", "memory.swap.current", "memory.swap.max",
                          "compute.events", "compute.freeze", "compute.goal", "compute.max", "compute.pressure",
                          "compute.priority", "compute.request", "compute.stat", "compute.weight", "gang", "labels",
                          "procs", "sm.burst", "sm.limit", "sm.reserved", "space"));
  EXPECT_THAT(List("/vgpus/a/procs"), ElementsAre("E20")) << "ENOTDIR";
  EXPECT_EQ(Read("/vgpus/a"), "E21") << "EISDIR";
  EXPECT_EQ(Write("/vgpus/a", "1"), EISDIR);
}

TEST_F(FileTreeTest, ModesAndOwners) {
  const server::FakeClient client = daemon_.Connect("a");
  EXPECT_EQ(ModeOf("/"), S_IFDIR | 0555u);
  EXPECT_EQ(ModeOf("/processes"), S_IFDIR | 0555u);
  EXPECT_EQ(ModeOf("/processes/list"), S_IFREG | 0444u);
  EXPECT_EQ(ModeOf(ProcessPath()), S_IFDIR | 0555u);
  EXPECT_EQ(ModeOf(ProcessPath() + "memory.limit"), S_IFREG | 0644u);
  EXPECT_EQ(ModeOf(ProcessPath() + "gcgroup.stat"), S_IFREG | 0444u);
  EXPECT_EQ(ModeOf("/vgpus"), S_IFDIR | 0755u);
  EXPECT_EQ(ModeOf("/vgpus/a"), S_IFDIR | 0555u);
  EXPECT_EQ(ModeOf("/vgpus/a/compute.weight"), S_IFREG | 0644u);
  EXPECT_EQ(ModeOf("/vgpus/a/memory.events"), S_IFREG | 0444u);
  EXPECT_TRUE(tree_.Look("/vgpus/a/memory.events")->tells);
  EXPECT_FALSE(tree_.Look("/vgpus/a/memory.peak")->tells);
  ASSERT_TRUE(tree_.For(daemon_.Api().For(1234, {})).MakeDirectory("/vgpus/theirs"));
  EXPECT_EQ(tree_.Look("/vgpus/theirs/memory.max")->uid, 1234u);
  EXPECT_EQ(tree_.Look("/vgpus")->uid, geteuid());
  EXPECT_EQ(tree_.Look(ProcessPath() + "memory.limit")->uid, getuid());
}

// The file tree forgets a vGPU's owner when the vGPU goes.
TEST_F(FileTreeTest, AnotherVGpuOfThatNameHasItsOwnOwner) {
  ASSERT_TRUE(daemon_.Api().For(61001, {}).Create({.name = "x"}));
  EXPECT_EQ(tree_.Look("/vgpus/x/memory.max")->uid, 61001u);
  EXPECT_EQ(tree_.Look("/vgpus/x/memory.max")->uid, 61001u);
  ASSERT_TRUE(daemon_.Api().Remove("x", false));
  EXPECT_EQ(CodeOf(tree_.Look("/vgpus/x/memory.max")), "E2") << "ENOENT";
  ASSERT_TRUE(daemon_.Api().For(61002, {}).Create({.name = "x"}));
  EXPECT_EQ(tree_.Look("/vgpus/x/memory.max")->uid, 61002u);
  EXPECT_EQ(tree_.Look("/vgpus/x")->uid, 61002u);
}

TEST_F(FileTreeTest, UsersSeeWhatIsTheirs) {
  const server::FakeClient client = daemon_.Connect("a");
  FileTree user = tree_.For(daemon_.Api().For(61001, {}));
  ASSERT_TRUE(user.MakeDirectory("/vgpus/mine"));
  ASSERT_TRUE(tree_.For(daemon_.Api().For(61002, {})).MakeDirectory("/vgpus/theirs"));
  EXPECT_EQ(CodeOf(tree_.Look("/vgpus/theirs")), "E0");  // and is cached, for operators
  EXPECT_EQ(CodeOf(user.Look("/vgpus/theirs")), "E2") << "ENOENT";
  EXPECT_EQ(CodeOf(user.Read("/vgpus/theirs/memory.max")), "E2");
  EXPECT_EQ(CodeOf(user.Write("/vgpus/theirs/compute.weight", "5")), "E2");
  EXPECT_EQ(CodeOf(user.RemoveDirectory("/vgpus/theirs")), "E2");
  EXPECT_EQ(CodeOf(user.Look(ProcessPath())), "E2");
  const auto names = user.List("/vgpus");
  ASSERT_TRUE(names);
  const std::vector<std::string> seen =
      getuid() == 0 ? std::vector<std::string>{"a", "mine"} : std::vector<std::string>{"mine"};
  EXPECT_EQ(*names, seen) << "root's is for everybody";
  EXPECT_TRUE(user.Write("/vgpus/mine/compute.weight", "5"));
  EXPECT_EQ(CodeOf(user.Write("/vgpus/mine/compute.weight", "500")), "E" + std::to_string(EDQUOT));
  EXPECT_TRUE(user.RemoveDirectory("/vgpus/mine"));
}

TEST_F(FileTreeTest, WhatIsNotThere) {
  const server::FakeClient client = daemon_.Connect("a");
  const std::string pid = std::to_string(getpid());
  for (const std::string& path : std::vector<std::string>{
           "/none", "/processes/1", "/processes/x", "/processes/-1", "/processes/0" + pid, "/processes/" + pid + "/1",
           "/processes/" + pid + "/00", "/processes/" + pid + "/x", "/processes/99999999999", ProcessPath() + "none",
           ProcessPath() + "memory.limit/x", "/processes/list/x", "/vgpus/b", "/vgpus/b/procs", "/vgpus/a/none",
           "/vgpus/a/procs/x"}) {
    EXPECT_EQ(CodeOf(tree_.Look(path)), "E2") << path;
    EXPECT_EQ(CodeOf(tree_.Read(path)), "E2") << path;
    EXPECT_EQ(Write(path, "1"), ENOENT) << path;
    EXPECT_EQ(CodeOf(tree_.List(path)), "E2") << path;
  }
}

TEST_F(FileTreeWithoutSwapTest, WhatAProcessReads) {
  EXPECT_EQ(Read("/processes/list"), "PID\n");
  server::FakeClient client = daemon_.Connect("a");
  client.Reserve(300 * kMiB);
  EXPECT_EQ(Read("/processes/list"), "PID\n" + std::to_string(getpid()) + "\n");
  EXPECT_EQ(Read(ProcessPath() + "memory.limit"), "18446744073709551615\n");
  EXPECT_EQ(Read(ProcessPath() + "memory.current"), std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(Read(ProcessPath() + "memory.swap.current"), "0\n");
  EXPECT_EQ(Read(ProcessPath() + "compute.priority"), "8\n");
  EXPECT_EQ(Read(ProcessPath() + "compute.freeze"), "0\n");
}

TEST_F(FileTreeTest, StatisticsSayNoMoreThanIsKnown) {
  server::FakeClient client = daemon_.Connect("a");
  const std::string path = ProcessPath() + "gcgroup.stat";
  EXPECT_EQ(Read(path), "nr_submitted_kernels: 0\nnr_ended_kernels: 0\nnr_pending_kernels: 0\n");
  client.Page().submissions = 5;
  EXPECT_EQ(Read(path), "nr_submitted_kernels: 5\nnr_ended_kernels: 5\nnr_pending_kernels: 0\n");
  ASSERT_TRUE(client.TakeToken());
  EXPECT_EQ(Read(path), "nr_submitted_kernels: 5\nnr_ended_kernels: 4\nnr_pending_kernels: 1\n");
}

TEST_F(FileTreeTest, WhatIsWrittenForAProcessHoldsForItsVGpu) {
  const server::FakeClient client = daemon_.Connect("a");
  EXPECT_EQ(Write(ProcessPath() + "memory.limit", "6000000000\n"), 0);
  EXPECT_EQ(Read(ProcessPath() + "memory.limit"), "6000000000\n");
  EXPECT_EQ(daemon_.Report("a").memory_limit, 6000000000u);
  for (const char* unlimited : {"18446744073709551615", "400000000000\n"}) {
    EXPECT_EQ(Write(ProcessPath() + "memory.limit", "1000000000"), 0);
    EXPECT_EQ(Write(ProcessPath() + "memory.limit", unlimited), 0) << unlimited;
    EXPECT_EQ(Read(ProcessPath() + "memory.limit"), "18446744073709551615\n") << unlimited;
  }
  EXPECT_EQ(Write(ProcessPath() + "compute.priority", "2"), 0);
  EXPECT_EQ(Read(ProcessPath() + "compute.priority"), "2\n");
  EXPECT_EQ(daemon_.Report("a").compute_priority, 2u);
  EXPECT_EQ(Write(ProcessPath() + "compute.freeze", "1\n"), 0);
  EXPECT_EQ(Read(ProcessPath() + "compute.freeze"), "1\n");
  EXPECT_EQ(Read("/vgpus/a/compute.freeze"), "0\n") << "the process alone";
  EXPECT_EQ(Write(ProcessPath() + "compute.freeze", "0\n"), 0);
  EXPECT_EQ(Read(ProcessPath() + "compute.freeze"), "0\n");
  EXPECT_EQ(Write("/vgpus/a/compute.freeze", "1\n"), 0);
  EXPECT_EQ(Read(ProcessPath() + "compute.freeze"), "1\n") << "with all of its vGPU";
  EXPECT_EQ(Write("/vgpus/a/compute.freeze", "0\n"), 0);
}

TEST_F(FileTreeTest, WhatAVGpuReads) {
  daemon_.Make({.name = "b",
                .gpu = "1",
                .memory_request = "1G",
                .memory_limit = "4G",
                .memory_max = "6G",
                .memory_swap_max = "512M",
                .compute_request = "12.5",
                .compute_limit = "60",
                .compute_weight = "7",
                .compute_priority = "3",
                .goal = "speed=30%"});
  struct Case {
    const char *file, *of_a, *of_b;
  };
  for (const Case& each : std::vector<Case>{
           {"memory.request", "0\n", "1073741824\n"},
           {"memory.limit", "max\n", "4294967296\n"},
           {"memory.swap.max", "max\n", "536870912\n"},
           {"memory.current", "0\n", "0\n"},
           {"memory.peak", "0\n", "0\n"},
           {"memory.swap.current", "0\n", "0\n"},
           {"memory.events", "oom 0\n", "oom 0\n"},
           {"memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"},
           {"compute.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"},
           {"compute.request", "0\n", "12.5\n"},
           {"compute.max", "max\n", "60\n"},
           {"compute.weight", "100\n", "7\n"},
           {"compute.priority", "8\n", "3\n"},
           {"compute.goal", "none\n", "speed=30%\n"},
           {"compute.freeze", "0\n", "0\n"},
           {"compute.stat", "usage_usec 0\nwaited_usec 0\nthrottled_usec 0\nslice_usec 0\n",
            "usage_usec 0\nwaited_usec 0\nthrottled_usec 0\nslice_usec 0\n"},
           {"procs", "", ""},
       }) {
    EXPECT_EQ(Read(std::string("/vgpus/a/") + each.file), each.of_a) << each.file;
    EXPECT_EQ(Read(std::string("/vgpus/b/") + each.file), each.of_b) << each.file;
  }
  EXPECT_EQ(Read("/vgpus/b/memory.max"), std::to_string(daemon_.Report("b").memory_max) + "\n");
  server::FakeClient client = daemon_.Connect("a");
  client.Reserve(300 * kMiB);
  EXPECT_EQ(Read("/vgpus/a/memory.current"), std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(Read("/vgpus/a/memory.peak"), std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(Read("/vgpus/a/procs"), std::to_string(getpid()) + "\n");
}

TEST_F(FileTreeTest, WhatIsWrittenToAVGpuIsRead) {
  struct Case {
    const char *file, *written, *read;
  };
  for (const Case& each : std::vector<Case>{
           {"memory.request", "1G", "1073741824\n"},
           {"memory.request", "0", "0\n"},
           {"memory.limit", "4G\n", "4294967296\n"},
           {"memory.limit", "25%", "2684354560\n"},
           {"memory.limit", "max", "max\n"},
           {"memory.max", "5G", "5368709120\n"},
           {"memory.swap.max", "0", "0\n"},
           {"memory.swap.max", "1G\n", "1073741824\n"},
           {"memory.swap.max", "max\n", "max\n"},
           {"compute.request", "30", "30\n"},
           {"compute.max", "60%\n", "60\n"},
           {"compute.max", "max\n", "max\n"},
           {"compute.weight", "200\n", "200\n"},
           {"compute.priority", "15\n", "15\n"},
           {"compute.goal", "p99=20ms\n", "p99=20ms\n"},
           {"compute.goal", "none", "none\n"},
           {"compute.freeze", "1\n", "1\n"},
           {"compute.freeze", "0", "0\n"},
       }) {
    const std::string path = std::string("/vgpus/a/") + each.file;
    EXPECT_EQ(Write(path, each.written), 0) << each.file << " " << each.written;
    EXPECT_EQ(Read(path), each.read) << each.file << " " << each.written;
  }
}

// Every file that can be written, with everything that is wrong for all of them.
TEST_F(FileTreeTest, WhatIsNoValueChangesNothing) {
  const server::FakeClient client = daemon_.Connect("a");
  for (const std::string& directory : {ProcessPath(), std::string("/vgpus/a/")}) {
    for (const std::string& name : List(directory)) {
      const std::string path = directory + name;
      if (!(ModeOf(path) & 0200)) {
        EXPECT_EQ(Write(path, "1"), EACCES) << path;
        continue;
      }
      const std::string before = Read(path);
      const std::string long_one(5000, '1');
      for (const std::string& wrong :
           {std::string(), std::string("\n"), std::string(" 1"), std::string("1 "), std::string("1\n\n"),
            std::string("1\n1"), std::string("1 2"), std::string("-1"), std::string("+1"), std::string("1x"),
            std::string("0x1"), std::string("nan"), std::string("1\0", 2), std::string("\xff"), long_one}) {
        if (name == "gang" && server::CheckName(wrong)) continue;  // it may have this name
        EXPECT_EQ(Write(path, wrong), EINVAL) << path << " \"" << wrong << "\"";
        EXPECT_EQ(Read(path), before) << path << " \"" << wrong << "\"";
      }
    }
  }
  EXPECT_EQ(Write("/processes/list", "1"), EACCES);
}

TEST_F(FileTreeTest, AGangIsReadAndWritten) {
  EXPECT_EQ(Read("/vgpus/a/gang"), "none\n");
  EXPECT_EQ(Write("/vgpus/a/gang", "job-1\n"), 0);
  EXPECT_EQ(Read("/vgpus/a/gang"), "job-1\n");
  EXPECT_EQ(daemon_.Report("a").gang, "job-1");
  EXPECT_EQ(Write("/vgpus/a/gang", "a/b"), EINVAL);
  EXPECT_EQ(Write("/vgpus/a/gang", "none"), 0);
  EXPECT_EQ(Read("/vgpus/a/gang"), "none\n");
}

TEST_F(FileTreeTest, LabelsAreALineEach) {
  EXPECT_EQ(Read("/vgpus/a/labels"), "");
  EXPECT_TRUE(daemon_.Api().Change("a", {.labels = server::Labels{{"team", "b c"}, {"pod", "x=y"}}}, false));
  EXPECT_EQ(Read("/vgpus/a/labels"), "pod=x=y\nteam=b c\n");
  EXPECT_EQ(Write("/vgpus/a/labels", "a=b"), EACCES);
}

TEST_F(FileTreeTest, EveryWrongWriteHasItsErrno) {
  const server::FakeClient client = daemon_.Connect("a");
  daemon_.Make({.name = "half", .gpu = "0", .memory_request = "5G", .compute_request = "50"});
  const std::string v = "/vgpus/a/", p = ProcessPath();
  struct Case {
    std::string path, written;
    int code;
  };
  for (const Case& each : std::vector<Case>{
           {p + "memory.limit", "18446744073709551616", ERANGE},
           {p + "memory.limit", "0", ERANGE},
           {p + "memory.limit", "4G", EINVAL},
           {p + "memory.limit", "max", EINVAL},
           {p + "compute.priority", "16", ERANGE},
           {p + "compute.priority", "18446744073709551616", ERANGE},
           {p + "compute.freeze", "2", ERANGE},
           {v + "memory.limit", "18446744073709551616", ERANGE},
           {v + "memory.limit", "0", ERANGE},
           {v + "memory.limit", "101%", ERANGE},
           {v + "memory.limit", "11G", ENOSPC},
           {v + "memory.request", "6G", ENOSPC},
           {v + "memory.request", "101%", ERANGE},
           {v + "memory.max", "0", ERANGE},
           {v + "memory.swap.max", "1Q", EINVAL},
           {v + "compute.request", "51", ENOSPC},
           {v + "compute.request", "101", ERANGE},
           {v + "compute.request", "max", EINVAL},
           {v + "compute.max", "101", ERANGE},
           {v + "compute.weight", "0", ERANGE},
           {v + "compute.weight", "10001", ERANGE},
           {v + "compute.weight", "99999999999", EINVAL},
           {v + "compute.weight", "max", EINVAL},
           {v + "compute.priority", "16", ERANGE},
           {v + "compute.goal", "fast", EINVAL},
           {v + "compute.goal", "speed=101%", ERANGE},
           {v + "compute.freeze", "2", ERANGE},
           {v + "procs", "0", EINVAL},
           {v + "procs", "99999999999", EINVAL},
           {v + "procs", "18446744073709551616", ERANGE},
           {"/vgpus/half/procs", std::to_string(getpid()), EBUSY},
           {v + "procs", "1", EOPNOTSUPP},
       }) {
    const std::string before = Read(each.path);
    EXPECT_EQ(Write(each.path, each.written), each.code) << each.path << " " << each.written;
    EXPECT_EQ(Read(each.path), before) << each.path << " " << each.written;
  }
}

TEST_F(FileTreeTest, ADirectoryInVGpusIsAVGpu) {
  EXPECT_TRUE(tree_.MakeDirectory("/vgpus/new"));
  EXPECT_EQ(daemon_.Report("new").uid, getuid());
  EXPECT_FALSE(daemon_.Report("new").ephemeral);
  EXPECT_EQ(CodeOf(tree_.MakeDirectory("/vgpus/new")), "E17") << "EEXIST";
  EXPECT_EQ(CodeOf(tree_.MakeDirectory("/vgpus/a b")), "E22") << "EINVAL";
  EXPECT_EQ(CodeOf(tree_.MakeDirectory("/vgpus/" + std::string(64, 'x'))), "E22") << "EINVAL";
  for (const char* path : {"/new", "/processes/1", "/vgpus/new/below", "/vgpus/none/below"})
    EXPECT_EQ(CodeOf(tree_.MakeDirectory(path)), "E1") << path << ": EPERM";

  EXPECT_TRUE(tree_.RemoveDirectory("/vgpus/new"));
  EXPECT_EQ(CodeOf(tree_.RemoveDirectory("/vgpus/new")), "E2") << "ENOENT";
  EXPECT_EQ(CodeOf(tree_.RemoveDirectory("/vgpus")), "E1") << "EPERM";
  EXPECT_EQ(CodeOf(tree_.RemoveDirectory("/processes")), "E1") << "EPERM";
  const server::FakeClient client = daemon_.Connect("a");
  EXPECT_EQ(CodeOf(tree_.RemoveDirectory("/vgpus/a")), "E16") << "EBUSY";
  EXPECT_THAT(List("/vgpus"), ElementsAre("a"));
}

TEST_F(FileTreeTest, NothingIsAnsweredByADaemonThatEnds) {
  daemon_.EndLoop();
  EXPECT_EQ(Read("/vgpus/a/memory.max"), "E" + std::to_string(ESHUTDOWN));
  EXPECT_EQ(Write("/vgpus/a/memory.max", "1G"), ESHUTDOWN);
}

TEST(FileValueTest, WhatIsOneValue) {
  EXPECT_EQ(*OneValue("20G\n"), "20G");
  EXPECT_EQ(*OneValue("20G"), "20G");
  for (const char* wrong : {"", "\n", "a b", "a\n\n", "\ta", "a\r\n"}) EXPECT_FALSE(OneValue(wrong)) << wrong;
}

}  // namespace
}  // namespace tessera::face

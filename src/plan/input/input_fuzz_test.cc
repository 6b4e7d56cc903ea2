// The same as the fuzzer, from fixed seeds: every run sees the same files.
#include "plan/input/input_fuzz.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace tessera::plan {
namespace {

// One of each format, as a file; before it stands which reader it is for.
const std::array<std::string, 7> kFiles = {
    std::string("\0", 1) +
        "second,pod,duty_pct,memory_mib\n0,0,50,20618\n0,1,0,31936\n57,0,,9\n114,1,99.5,3\n900,1,1,1\n",
    std::string("\0", 1) + "second,vgpu,gpu,duty_pct,memory_mib,group\n10,a,0,50,20618,team\n20,a,1,0.5,7,\n",
    std::string("\0", 1) +
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n",
    std::string("\0", 1) + "client,at_ms\n\"a\",0\n\"a\",150\n\"b\",1\n",
    std::string("\0", 1) + "gap_s\n0.031\n0.012\n",
    std::string("\1") +
        "title = \"x\"\nlength = \"60s\"\n[[tenant]]\nname = \"a\"\ncount = 3\ngroup = \"g\"\nmemory = \"20G\"\n"
        "memory_request = \"1G\"\ngpus = 2\ncompute = \"30:60\"\nweight = 7\npriority = 2\ngoal = \"p99=20ms\"\n"
        "service = \"12ms\"\nrate_alone = 50\narrivals = { poisson = 12.5 }\nspeed = [[0.1, 0.3], [0.5, 0.9]]\n"
        "bandwidth = 0.3\n[[tenant]]\nname = \"b\"\nmemory = \"1G\"\nrate_alone = 5\narrivals = { every = \"10ms\" }\n"
        "sms = 0.2\ngoal = \"speed=80%\"\n",
    std::string("\2") +
        R"({"otherData":{"records":9,"whole":true,"begin_us":1000000000,"end_us":1003000000},"traceEvents":[)"
        R"({"ph":"X","pid":1,"tid":1,"ts":1000500000.25,"dur":1200000.5,"name":"runs","args":{}},)"
        R"({"ph":"X","pid":1,"tid":2,"ts":1000500000,"dur":100,"name":"waits: turn","args":{"why":"turn"}},)"
        R"({"ph":"C","pid":1,"ts":1003000000,"name":"memory of a","args":{"resident":67108864,"swapped":9}},)"
        R"({"ph":"i","pid":1,"tid":0,"ts":1001000000,"s":"p","name":"vgpu.created b","args":{"text":""}},)"
        R"({"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"a"}},)"
        R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"GPU 0"}}]})",
};

// What brings a file further than random letters.
const std::vector<std::string> kPieces = {"-1",
                                          "1e308",
                                          "-0",
                                          "1e-308",
                                          "99999999999999999999",
                                          "nan",
                                          "0",
                                          "\"",
                                          "\"\"",
                                          ",",
                                          "\n",
                                          "\r\n",
                                          "{",
                                          "}",
                                          "[[",
                                          "]]",
                                          "\xff",
                                          "\x1b[2J",
                                          std::string(1, '\0'),
                                          "vgpu",
                                          "client",
                                          "count = 19999\n",
                                          "31622400",
                                          "[[tenant]]\n",
                                          "name = \"a\"\n",
                                          "1.5",
                                          "\"ts\":-1,",
                                          "\"dur\":1e300,",
                                          "\"pid\":4294967296,",
                                          "vgpu.removed a",
                                          "waits: ",
                                          "memory of ",
                                          "= \"1e9T\""};

std::string FaultOfFile(const std::string& file) {
  return RunInput({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
}

TEST(InputFuzz, TheFilesThemselves) {
  for (const std::string& file : kFiles) EXPECT_EQ(FaultOfFile(file), "") << file;
}

TEST(InputFuzz, CutOffAnywhere) {
  for (const std::string& file : kFiles) {
    for (std::size_t length = 0; length < file.size(); ++length)
      ASSERT_EQ(FaultOfFile(file.substr(0, length)), "") << file.substr(0, length);
  }
}

TEST(InputFuzz, Changed) {
  std::mt19937 random(1);
  for (int round = 0; round < 8000; ++round) {
    std::string file = kFiles[random() % kFiles.size()];
    for (int change = 0; change < 1 + round % 8; ++change) {
      const std::size_t at = 1 + random() % (file.size() - 1);
      switch (random() % 5) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 8);
          break;
        case 2:
          file.replace(at, random() % 4, kPieces[random() % kPieces.size()]);
          break;
        case 3:
          file.insert(at, file.substr(1 + random() % (file.size() - 1), random() % 64));
          break;
        default:
          // The number that follows is another one.
          if (const std::size_t digit = file.find_first_of("0123456789", at); digit != file.npos)
            file.replace(digit, file.find_first_not_of("0123456789.", digit) - digit, kPieces[random() % 8]);
      }
      if (file.size() < 2) break;
    }
    ASSERT_EQ(FaultOfFile(file), "") << "round " << round << ":\n" << file;
  }
}

}  // namespace
}  // namespace tessera::plan

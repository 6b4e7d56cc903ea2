#include "cli/doctor/doctor.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/doctor/doctor_checks.h"
#include "cli/doctor/doctor_steering.h"
#include "cli/doctor/exports.h"

namespace tessera::cli {
using client::Json;

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Doctor, OneFailureIsEnough) {
  EXPECT_TRUE(CanRun({{Verdict::kOk, "a", "", ""}, {Verdict::kWarn, "b", "", ""}}));
  EXPECT_FALSE(CanRun({{Verdict::kOk, "a", "", ""}, {Verdict::kFail, "b", "", ""}}));
}

TEST(Doctor, WarnsOfADriverThatDoesNotTellEnds) {
  EXPECT_EQ(DriverFinding("580.159.04", "libnvidia-ml.so.1").verdict, Verdict::kOk);
  EXPECT_EQ(DriverFinding("555.42.02", "").verdict, Verdict::kOk);
  const Finding old = DriverFinding("550.90.07", "libnvidia-ml.so.1");
  EXPECT_EQ(old.verdict, Verdict::kWarn);
  EXPECT_THAT(old.detail, HasSubstr("550.90.07"));
  EXPECT_THAT(old.advice, HasSubstr("555"));
  EXPECT_EQ(DriverFinding("soon", "").verdict, Verdict::kOk) << "what cannot be read accuses nobody";
}

TEST(Doctor, NamesFunctionsOfTheDriverThatTheShimDoesNotKnow) {
  const std::set<std::string> shim = {"cuInit", "cuLaunchKernel", "main"};
  const std::set<std::string> driver = {"cuInit", "cuLaunchKernel", "cuLaunchDream", "cudbgInit", "_init"};
  EXPECT_EQ(UnknownTo(shim, driver), (std::set<std::string>{"cuLaunchDream"}));
  EXPECT_EQ(FunctionsFinding({}).verdict, Verdict::kOk);
  const Finding newer = FunctionsFinding({"cuLaunchDream"});
  EXPECT_EQ(newer.verdict, Verdict::kWarn);
  EXPECT_THAT(newer.detail, HasSubstr("cuLaunchDream"));
  std::set<std::string> many;
  for (int i = 10; i < 30; ++i) many.insert("cuNew" + std::to_string(i));
  EXPECT_THAT(FunctionsFinding(many).detail, HasSubstr("cuNew17 and 12 more"));
}

TEST(Doctor, ReadsWhatALibraryExports) {
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&std::getenv), &info), 0);
  const auto exports = ExportsOf(info.dli_fname);
  ASSERT_TRUE(exports) << exports.error().Text();
  EXPECT_TRUE(exports->contains("getenv"));
  EXPECT_FALSE(ExportsOf("/proc/self/status"));
  EXPECT_FALSE(ExportsOf("/nonexistent"));
}

TEST(Doctor, TellsWhatTheDaemonFound) {
  const Json answer = {{"checks",
                        {{{"name", "channel control"}, {"ok", true}, {"text", "works, 0.4 ms"}, {"hint", ""}},
                         {{"name", "watch"}, {"ok", false}, {"text", "not permitted"}, {"hint", "run it as root"}},
                         {{"name", "kernel gate"}, {"ok", false}, {"text", "old kernel"}}}}};
  const auto findings = SteeringFindings(answer);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[0].verdict, Verdict::kOk);
  EXPECT_EQ(findings[0].subject, "channel control");
  EXPECT_EQ(findings[0].detail, "works, 0.4 ms");
  EXPECT_EQ(findings[0].advice, "");
  EXPECT_EQ(findings[1].verdict, Verdict::kWarn);
  EXPECT_EQ(findings[1].advice, "run it as root");
  EXPECT_EQ(findings[2].verdict, Verdict::kWarn);
  EXPECT_NE(findings[2].advice, "");
  EXPECT_TRUE(CanRun(findings));  // what cannot be steered can still run
}

TEST(Doctor, AnswersOfAnotherVersionDoNotCrash) {
  EXPECT_TRUE(SteeringFindings(Json()).empty());
  EXPECT_TRUE(SteeringFindings({{"checks", nullptr}}).empty());
  const auto findings = SteeringFindings({{"checks", {3, nullptr, {{"name", 5}, {"ok", "yes"}}}}});
  ASSERT_EQ(findings.size(), 3u);
  for (const Finding& finding : findings) EXPECT_EQ(finding.verdict, Verdict::kWarn);
}

TEST(Doctor, TellsWhatTheChannelTestFound) {
  const Finding works =
      ChannelFinding(R"({"ok":true,"driver":"580.159.04","slice_us":2000,"freeze_us":450,"thaw_us":260})", 0);
  EXPECT_EQ(works.verdict, Verdict::kOk);
  EXPECT_THAT(works.detail, HasSubstr("450 us"));
  EXPECT_THAT(works.detail, HasSubstr("260 us"));
  const Finding fails = ChannelFinding(R"({"ok":false,"step":"freeze","why":"the counter goes on"})", 1);
  EXPECT_EQ(fails.verdict, Verdict::kWarn);
  EXPECT_THAT(fails.detail, HasSubstr("at freeze: the counter goes on"));
  EXPECT_THAT(ChannelFinding("", 2).detail, HasSubstr("no GPU"));
}

TEST(Doctor, AChannelTestThatSaysNonsenseDoesNotWork) {
  for (const std::string line : {"", "Segmentation fault", "[]", "{\"ok\":", "{\"ok\":\"true\"}", "{\"ok\":true}"}) {
    const Finding finding = ChannelFinding(line, 139);
    EXPECT_EQ(finding.verdict, Verdict::kWarn) << line;
    EXPECT_NE(finding.advice, "") << line;
  }
}

TEST(Doctor, TellsWhetherThereIsMps) {
  const Finding there = SpacesFinding(std::string("/usr/bin/nvidia-cuda-mps-control"));
  EXPECT_EQ(there.verdict, Verdict::kOk);
  EXPECT_THAT(there.detail, HasSubstr("/usr/bin/nvidia-cuda-mps-control"));
  const Finding missing = SpacesFinding(Fail(ENOENT, "MPS is not installed", "install it"));
  EXPECT_EQ(missing.verdict, Verdict::kWarn) << "programs run without it";
  EXPECT_EQ(missing.detail, "MPS is not installed");
  EXPECT_EQ(missing.advice, "install it");
}

TEST(Doctor, TriesTheKernelGateInAnotherProcess) {
  const pid_t self = getpid();
  const Finding works = TryKernelGate([self]() -> Result<UniqueFd> {
    if (getpid() == self) return Fail(EIO, "tried in this process");
    return UniqueFd();
  });
  EXPECT_EQ(works.verdict, Verdict::kOk) << works.detail;
  EXPECT_EQ(works.advice, "");
  const Finding fails = TryKernelGate([] { return Result<UniqueFd>(Fail(ENOSYS, "this kernel has no gate")); });
  EXPECT_EQ(fails.verdict, Verdict::kWarn);
  EXPECT_EQ(fails.detail, "this kernel has no gate");
  EXPECT_NE(fails.advice, "");
  const Finding dies = TryKernelGate([]() -> Result<UniqueFd> { abort(); });
  EXPECT_EQ(dies.verdict, Verdict::kWarn);
  EXPECT_NE(dies.detail, "");
}

// The finding about limits, where these subjects were found to work.
std::string Enforcement(const std::vector<std::string>& works) {
  std::vector<Finding> findings = {{Verdict::kWarn, "channel control", "", ""},
                                   {Verdict::kWarn, "kernel gate", "", ""}};
  for (const std::string& subject : works) findings.push_back({Verdict::kOk, subject, "", ""});
  const std::size_t before = findings.size();
  CheckEnforcement(findings);
  std::string text;
  for (std::size_t i = before; i < findings.size(); ++i) text += findings[i].subject + ": " + findings[i].detail + "\n";
  return text;
}

TEST(Doctor, PromisesOnlyWhatWasFoundToWork) {
  EXPECT_THAT(Enforcement({}), HasSubstr("between kernels"));
  EXPECT_THAT(Enforcement({}), HasSubstr("a running kernel is not interrupted"));
  EXPECT_THAT(Enforcement({"channel control"}), HasSubstr("in the middle of a kernel"));
  EXPECT_THAT(Enforcement({"channel control"}), Not(HasSubstr("not interrupted")));
  EXPECT_THAT(Enforcement({"channel control"}), HasSubstr("not enforced: memory of OpenCL"));
  EXPECT_THAT(Enforcement({"kernel gate"}), HasSubstr("unless run with --enforce kernel; a running kernel"));
  EXPECT_THAT(Enforcement({"channel control", "kernel gate"}), Not(HasSubstr("not interrupted")));
}

}  // namespace
}  // namespace tessera::cli

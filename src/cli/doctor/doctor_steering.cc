#include "cli/doctor/doctor_steering.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/install/installation.h"
#include "base/install/mps_program.h"
#include "cli/launch/child.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"
#include "client/json_fields.h"
#include "guard/supervisor/filter.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

// The daemon's names of these checks.
constexpr const char* kChannels = "channel control";
constexpr const char* kKernelGate = "kernel gate";

constexpr int kNoGpu = 2;  // exit status of the channel test

bool Works(const std::vector<Finding>& findings, const std::string& subject) {
  return std::ranges::any_of(
      findings, [&](const Finding& finding) { return finding.subject == subject && finding.verdict == Verdict::kOk; });
}

void AskDaemonForFindings(std::vector<Finding>& findings, const Common& common) {
  const auto answer = ApiClient(common.RunDirectory()).Get("/v1/doctor");
  if (!answer) {
    findings.push_back({Verdict::kWarn, kChannels, "the daemon does not report it: " + answer.error().message,
                        answer.error().hint.empty() ? "see its log" : answer.error().hint});
    return;
  }
  for (Finding& finding : SteeringFindings(*answer)) findings.push_back(std::move(finding));
}

void TryChannels(std::vector<Finding>& findings, const Common& common) {
  const Installation installation = Installation::Find();
  std::vector<std::string> words = {installation.ChannelTest()};
  Variables variables;
  if (common.soft) {
    words.emplace_back("--soft");
    variables.emplace_back("TESSERA_REAL_LIBCUDA", installation.SoftDriver());
    if (!common.soft_spec.empty()) variables.emplace_back("TESSERA_SOFT", common.soft_spec);
  }
  auto test = Child::Start(words, variables, true);  // without the shim, should this process be inside a vGPU
  if (!test) {
    findings.push_back({Verdict::kWarn, kChannels, "not tested: " + test.error().message, "reinstall Tessera"});
    return;
  }
  const std::string line = LastLine(test->ReadToEnd());
  findings.push_back(ChannelFinding(line, test->Wait()));
}

Finding NotEnforced(bool channels, bool kernel_gate) {
  const std::string others = "OpenCL, Vulkan, and programs that call the kernel driver directly";
  if (kernel_gate) {
    return {Verdict::kWarn, "not enforced",
            "memory of " + others + ", unless run with --enforce kernel" +
                (channels ? "" : "; a running kernel is not interrupted"),
            "run such programs with --enforce kernel"};
  }
  if (channels) {
    return {Verdict::kWarn, "not enforced", "memory of " + others,
            "keep such programs off the GPU, or leave memory for them"};
  }
  return {Verdict::kWarn, "not enforced", others + "; a running kernel is not interrupted",
          "keep such programs off the GPU, or leave memory and time for them"};
}

}  // namespace

std::vector<Finding> SteeringFindings(const Json& answer) {
  std::vector<Finding> findings;
  for (const Json& check : Field(answer, "checks")) {
    const bool ok = BoolField(check, "ok");
    const std::string hint = TextField(check, "hint");
    findings.push_back({ok ? Verdict::kOk : Verdict::kWarn, TextField(check, "name", "daemon"),
                        TextField(check, "text", "no details"),
                        ok             ? ""
                        : hint.empty() ? "see the daemon's log"
                                       : hint});
  }
  return findings;
}

Finding ChannelFinding(const std::string& line, int status) {
  const Json result = Json::parse(line, nullptr, false);
  if (status == 0 && BoolField(result, "ok")) {
    return {Verdict::kOk, kChannels,
            "a running program was taken off the GPU in " + FormatMicroseconds(IntegerField(result, "freeze_us")) +
                ", and put back in " + FormatMicroseconds(IntegerField(result, "thaw_us")),
            ""};
  }
  const std::string instead = "gates divide the time instead, between kernels";
  if (status == kNoGpu) return {Verdict::kWarn, kChannels, "not tested: the channel test finds no GPU", instead};
  const std::string step = TextField(result, "step");
  const std::string why = TextField(result, "why", line.empty() ? "exit status " + std::to_string(status) : line);
  return {Verdict::kWarn, kChannels, "does not work here" + (step.empty() ? "" : ", at " + step) + ": " + why, instead};
}

Finding TryKernelGate(const std::function<Result<UniqueFd>()>& install_filter) {
  const std::string otherwise = "memory limits hold only for programs that use the CUDA driver library";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {Verdict::kWarn, kKernelGate, "not tested: cannot make a pipe", otherwise};
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = fork();
  if (child < 0) return {Verdict::kWarn, kKernelGate, "not tested: cannot start a process", otherwise};
  if (child == 0) {
    const auto listener = install_filter();
    if (!listener) (void)!write(write_end.Get(), listener.error().message.data(), listener.error().message.size());
    _exit(listener ? 0 : 1);
  }
  write_end.Reset();
  // One read: the message is shorter than a pipe's atomic write, and only the end follows.
  char why[512];
  const ssize_t length = read(read_end.Get(), why, sizeof why);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return {Verdict::kOk, kKernelGate, "works; use it by tessera run --enforce kernel", ""};
  }
  return {Verdict::kWarn, kKernelGate, length > 0 ? std::string(why, length) : "the test process died", otherwise};
}

Finding SpacesFinding(const Result<std::string>& program) {
  if (program) return {Verdict::kOk, "spaces", "vGPUs of a space can run at the same time, by " + *program, ""};
  return {Verdict::kWarn, "spaces", program.error().message, program.error().hint};
}

void CheckSteering(std::vector<Finding>& findings, const Common& common, bool daemon) {
  if (daemon) {
    AskDaemonForFindings(findings, common);
  } else if (CanRun(findings)) {
    TryChannels(findings, common);
    findings.push_back(SpacesFinding(FindMpsControl(common.soft)));
  } else {
    return;  // without a device there is nothing to steer
  }
  // The soft GPU has no kernel driver.
  const bool said = std::ranges::find(findings, kKernelGate, &Finding::subject) != findings.end();
  if (!common.soft && !said) findings.push_back(TryKernelGate(guard::InstallFilter));
}

void CheckEnforcement(std::vector<Finding>& findings) {
  const bool channels = Works(findings, kChannels);
  const bool kernel_gate = Works(findings, kKernelGate);
  findings.push_back({Verdict::kOk, "memory",
                      "limits hold for programs that use the CUDA driver library, as all CUDA runtimes do", ""});
  findings.push_back({Verdict::kOk, "compute",
                      channels ? "shares, limits and priorities hold, even in the middle of a kernel"
                               : "shares and limits hold for the same programs, but only between kernels",
                      ""});
  findings.push_back(NotEnforced(channels, kernel_gate));
}

}  // namespace tessera::cli

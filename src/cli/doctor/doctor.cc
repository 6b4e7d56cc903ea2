#include "cli/doctor/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "cli/doctor/doctor_checks.h"
#include "cli/doctor/doctor_steering.h"
#include "cli/terminal/output.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Json;

namespace {

struct Label {
  const char* word;
  const char* colour;
};

Label LabelOf(Verdict verdict) {
  constexpr std::array<Label, 3> kLabels = {{{"ok", "\033[32m"}, {"warn", "\033[33m"}, {"fail", "\033[31m"}}};
  return kLabels[static_cast<std::size_t>(verdict)];
}

std::string TextOf(const Finding& finding, bool colour) {
  const Label label = LabelOf(finding.verdict);
  std::string text = colour ? std::string(label.colour) + label.word + "\033[0m" : label.word;
  text += std::string(6 - std::string_view(label.word).size(), ' ');
  text += finding.subject + std::string(17 - std::min<std::size_t>(finding.subject.size(), 16), ' ') + finding.detail +
          "\n";
  if (!finding.advice.empty()) text += std::string(23, ' ') + "→ " + finding.advice + "\n";
  return text;
}

Json JsonOf(const std::vector<Finding>& findings, bool soft) {
  Json checks = Json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"status", LabelOf(finding.verdict).word},
                      {"name", finding.subject},
                      {"detail", finding.detail},
                      {"advice", finding.advice}});
  }
  return {{"device", soft ? "soft" : "real"}, {"can_run", CanRun(findings)}, {"checks", checks}};
}

}  // namespace

bool CanRun(const std::vector<Finding>& findings) {
  return std::ranges::none_of(findings, [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

Result<int> Doctor(const Common& common) {
  std::vector<Finding> findings;
  if (common.soft) {
    CheckSoftGpu(findings);
  } else {
    CheckDriver(findings);
  }
  // Without a device this check would only repeat the failures above.
  if (CanRun(findings)) CheckPrograms(findings, common);
  CheckRunDirectory(findings, common);
  const bool daemon = CheckDaemon(findings, common);
  CheckSteering(findings, common, daemon);
  CheckEnforcement(findings);
  const bool can_run = CanRun(findings);
  if (common.json) {
    PrintJson(JsonOf(findings, common.soft));
    return can_run ? 0 : 1;
  }
  const bool colour = IsTerminal(STDOUT_FILENO);
  for (const Finding& finding : findings) Print(TextOf(finding, colour));
  const std::string device = common.soft ? "the soft GPU" : "a real GPU";
  Print(can_run ? "\nPrograms can run on " + device + ": tessera run " + (common.soft ? "--soft " : "") + "-- COMMAND\n"
                : "\nPrograms cannot run on " + device + " yet: see the failures above.\n");
  return can_run ? 0 : 1;
}

}  // namespace tessera::cli

#include "cli/moving/move.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "base/size.h"
#include "cli/commands/targets.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

constexpr std::chrono::milliseconds kPollEvery(20);

// Tells people at a terminal how far it is, in a line for each phase.
class Progress {
 public:
  ~Progress() {
    if (!said_.empty()) std::fputc('\n', stderr);
  }
  // `phase` as PhaseText.
  void Say(const std::string& target, const std::string& phase) {
    if (phase.empty() || phase == said_ || isatty(STDERR_FILENO) == 0) return;
    const bool same = phase.substr(0, phase.find(',')) == said_.substr(0, said_.find(','));
    const char* before = same ? "\r" : said_.empty() ? "" : "\n";
    std::fprintf(stderr, "%s%s: %s\033[K", before, target.c_str(), phase.c_str());
    said_ = phase;
  }

 private:
  std::string said_;
};

std::string NameOfPhase(const std::string& phase) {
  if (phase == "prepares") return "it is prepared";
  if (phase == "drains") return "its queued work ends";
  if (phase == "leaves") return "its memory goes to host memory";
  if (phase == "saves") return "the driver saves the rest";
  if (phase == "files") return "what it has in host memory goes to a file";
  if (phase == "reads") return "the file is read";
  if (phase == "suspended") return "it is off the GPU";
  if (phase == "returns") return "room is made for it";
  if (phase == "restores") return "the driver brings it back";
  return phase;
}

Result<void> AwaitPhase(const ApiClient& client, const std::string& target, const Json& suspensions, Way way) {
  Progress progress;
  for (;;) {
    const auto processes = client.Get("/v1/processes");
    if (!processes) return std::unexpected(processes.error());
    const SuspensionStanding standing = StandingOf(suspensions, Field(*processes, "processes"), way);
    if (!standing.error.empty()) return Fail(EIO, standing.error);
    if (standing.done) return {};
    progress.Say(target, standing.phase);
    std::this_thread::sleep_for(kPollEvery);
  }
}

Result<int> Steer(const Common& common, const std::vector<std::string>& targets, Way way) {
  return AskForTargets(common, targets,
                       {.verb = way == Way::kBack ? "resume" : "suspend",
                        .body = way == Way::kToFile ? Json{{"to", "file"}} : Json::object(),
                        .begins = "suspensions"},
                       [way](const ApiClient& client, const std::string& target, const Json& suspensions) {
                         return AwaitPhase(client, target, suspensions, way);
                       });
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

void PrintMoves(const Json& migration, const char* verb) {
  for (const Json& move : Field(migration, "moves")) {
    const unsigned long long from = IntegerField(move, "from"), to = IntegerField(move, "to");
    const std::string vgpu = TextField(move, "vgpu");
    if (from == to) {
      std::printf("vGPU %s stays on GPU %llu\n", vgpu.c_str(), to);
    } else {
      std::printf("vGPU %s %s from GPU %llu to GPU %llu\n", vgpu.c_str(), verb, from, to);
    }
  }
}

void PrintCosts(const Json& migration) {
  std::printf("%zu program%s; Tessera moves %s, the driver saves %s; expected to take %.1f s\n",
              Field(migration, "pids").size(), Field(migration, "pids").size() == 1 ? "" : "s",
              FormatSize(IntegerField(migration, "moved_bytes")).c_str(),
              FormatSize(IntegerField(migration, "saved_bytes")).c_str(),
              Field(migration, "expected_s").is_number() ? Field(migration, "expected_s").get<double>() : 0.0);
}

Result<void> AwaitMigration(const ApiClient& client, const std::string& target, const Json& migration) {
  Progress progress;
  for (;;) {
    bool done = true;
    const auto processes = client.Get("/v1/processes");
    if (!processes) return std::unexpected(processes.error());
    for (const Json& move : Field(migration, "moves")) {
      const auto vgpu = client.Get("/v1/vgpus/" + TextField(move, "vgpu"));
      if (!vgpu && vgpu.error().code == ENOENT) continue;  // it has ended with its programs
      if (!vgpu) return std::unexpected(vgpu.error());
      if (Field(*vgpu, "migrating_to").is_number()) {
        done = false;
        continue;
      }
      if (const std::string error = TextField(*vgpu, "migrate_error"); !error.empty()) return Fail(EIO, error);
    }
    if (done) return {};
    // One program speaks for all.
    const auto pids = Field(migration, "pids");
    const auto all = Field(*processes, "processes");
    const auto one = std::ranges::find_if(all, [&](const Json& process) {
      return !PhaseText(process).empty() &&
             std::ranges::any_of(pids, [&](const Json& pid) { return pid == Field(process, "pid"); });
    });
    if (one != all.end()) progress.Say(target, PhaseText(*one));
    std::this_thread::sleep_for(kPollEvery);
  }
}

std::string PhaseText(const Json& process) {
  const std::string phase = NameOfPhase(TextField(process, "suspension"));
  const Json left = Field(process, "suspension_left_bytes");
  if (phase.empty() || !left.is_number()) return phase;
  return fmt::format("{}, {} left", phase, FormatSize(left.get<std::uint64_t>()));
}

SuspensionStanding StandingOf(const Json& suspensions, const Json& processes, Way way) {
  SuspensionStanding standing;
  for (const Json& suspension : suspensions) {
    for (const Json& process : processes) {
      if (IntegerField(process, "pid") != IntegerField(suspension, "pid")) continue;
      const std::string phase = TextField(process, "suspension");
      const bool there = way == Way::kBack ? phase.empty() : phase == "suspended";
      if (there && (way != Way::kToFile || TextField(process, "suspended_to") == "file")) continue;
      standing.done = false;
      standing.phase = PhaseText(process);
      // It does not go on by itself.
      const bool stopped = (way != Way::kBack && phase.empty()) || (way != Way::kToMemory && phase == "suspended");
      if (const std::string error = TextField(process, "suspend_error"); stopped && !error.empty())
        standing.error = error;
    }
  }
  return standing;
}

Result<int> Suspend(const Common& common, const std::vector<std::string>& targets, bool file) {
  return Steer(common, targets, file ? Way::kToFile : Way::kToMemory);
}

Result<int> Resume(const Common& common, const std::vector<std::string>& targets) {
  return Steer(common, targets, Way::kBack);
}

Result<int> Migrate(const Common& common, const std::string& target, const std::string& gpus, bool dry) {
  const auto path = TargetPath(target);
  if (!path) return std::unexpected(path.error());
  const ApiClient client(common.RunDirectory());
  const auto migration = client.Post(*path + "/migrate", Json{{"gpus", Split(gpus)}, {"dry_run", dry}});
  if (!migration) return std::unexpected(migration.error());
  if (dry) {
    if (common.json) {
      PrintJson(*migration);
    } else {
      PrintMoves(*migration, "would go");
      PrintCosts(*migration);
    }
    return 0;
  }
  if (auto done = AwaitMigration(client, target, *migration); !done) return std::unexpected(done.error());
  common.json ? PrintJson(*migration) : PrintMoves(*migration, "has gone");
  return 0;
}

}  // namespace tessera::cli

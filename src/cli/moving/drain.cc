#include "cli/moving/drain.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/moving/move.h"
#include "cli/terminal/output.h"
#include "cli/terminal/printable.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

constexpr std::chrono::milliseconds kLookEvery(20);

bool Has(const Json& staying, const std::string& vgpu) {
  return std::ranges::any_of(staying, [&](const Json& stay) { return TextField(stay, "vgpu") == vgpu; });
}

// The vGPUs that are left when nothing moves any more: {"vgpu", "why"} of each.
Result<Json> AwaitDrained(const ApiClient& client, std::uint64_t gpu) {
  for (;;) {
    const auto gpus = client.Get("/v1/gpus");
    if (!gpus) return std::unexpected(gpus.error());
    for (const Json& each : Field(*gpus, "gpus")) {
      if (IntegerField(each, "index") != gpu) continue;
      const Json& drain = Field(each, "drain");
      if (!drain.is_object())
        return Fail(ECANCELED, "somebody has undrained GPU " + std::to_string(gpu) + " meanwhile");
      if (Field(drain, "moving").empty()) return Field(drain, "staying");
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

// Programs on the GPU that are in no vGPU: nobody can move them.
Result<Json> UnmanagedOn(const ApiClient& client, std::uint64_t gpu) {
  const auto processes = client.Get("/v1/processes");
  if (!processes) return std::unexpected(processes.error());
  Json unmanaged = Json::array();
  for (const Json& process : Field(*processes, "processes")) {
    if (IntegerField(process, "gpu") == gpu && !Field(process, "vgpu").is_string()) unmanaged.push_back(process);
  }
  return unmanaged;
}

void TellStaying(const Json& staying, const Json& unmanaged) {
  for (const Json& stay : staying)
    std::fprintf(stderr, "vGPU %s stays: %s\n", TextField(stay, "vgpu").c_str(),
                 Printable(TextField(stay, "why")).c_str());
  for (const Json& process : unmanaged)
    std::fprintf(stderr, "process %llu (%s) stays: it is in no vGPU\n",
                 static_cast<unsigned long long>(IntegerField(process, "pid")),
                 Printable(TextField(process, "name")).c_str());
}

}  // namespace

Result<std::string> GpuPath(const std::string& word) {
  const bool fits =
      !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isalnum(c) || c == '-'; });
  if (fits && word != "auto") return "/v1/gpus/" + word;
  return Fail(EINVAL, "\"" + word + "\" is no index or UUID of a GPU", "tessera gpus lists them");
}

Result<int> Drain(const Common& common, const std::string& gpu, bool dry) {
  const auto path = GpuPath(gpu);
  if (!path) return std::unexpected(path.error());
  const ApiClient client(common.RunDirectory());
  auto answer = client.Post(*path + "/drain", Json{{"dry_run", dry}});
  if (!answer) return std::unexpected(answer.error());
  const std::uint64_t index = IntegerField(*answer, "gpu");
  if (!dry) {
    const auto staying = AwaitDrained(client, index);
    if (!staying) return std::unexpected(staying.error());
    (*answer)["staying"] = *staying;
    Json gone = Json::array();
    std::ranges::copy_if(Field(*answer, "moves"), std::back_inserter(gone),
                         [&](const Json& move) { return !Has(*staying, TextField(move, "vgpu")); });
    (*answer)["moves"] = std::move(gone);
  }
  const auto unmanaged = UnmanagedOn(client, index);
  if (!unmanaged) return std::unexpected(unmanaged.error());
  const Json& staying = Field(*answer, "staying");
  if (common.json) {
    PrintJson(*answer);
  } else {
    PrintMoves(*answer, dry ? "would go" : "has gone");
    if (dry && !Field(*answer, "moves").empty()) PrintCosts(*answer);
  }
  TellStaying(staying, *unmanaged);
  return staying.empty() && unmanaged->empty() ? 0 : 1;
}

Result<int> Undrain(const Common& common, const std::string& gpu) {
  const auto path = GpuPath(gpu);
  if (!path) return std::unexpected(path.error());
  const auto done = ApiClient(common.RunDirectory()).Post(*path + "/undrain", Json::object());
  if (!done) return std::unexpected(done.error());
  return 0;
}

Result<int> Rebalance(const Common& common, const RoomChoices& choices) {
  const ApiClient client(common.RunDirectory());
  Json wish{{"dry_run", choices.dry}};
  if (!choices.memory.empty()) wish["memory_request"] = choices.memory;
  if (!choices.compute.empty()) wish["compute_request"] = choices.compute;
  auto answer = client.Post("/v1/rebalance", wish);
  if (!answer) return std::unexpected(answer.error());
  if (!choices.dry) {
    if (auto done = AwaitMigration(client, "rebalance", *answer); !done) return std::unexpected(done.error());
    wish["dry_run"] = true;
    const auto after = client.Post("/v1/rebalance", wish);
    if (!after) return std::unexpected(after.error());
    if (!Field(*after, "moves").empty())
      return Fail(ENOSPC, "vGPUs have moved, and others have taken the room meanwhile", "try again");
    (*answer)["gpu"] = Field(*after, "gpu");
  }
  if (common.json) {
    PrintJson(*answer);
    return 0;
  }
  PrintMoves(*answer, choices.dry ? "would go" : "has gone");
  const bool moves = !Field(*answer, "moves").empty();
  if (choices.dry && moves) PrintCosts(*answer);
  std::printf("GPU %llu %s room\n", static_cast<unsigned long long>(IntegerField(*answer, "gpu")),
              choices.dry && moves ? "would have" : "has");
  return 0;
}

}  // namespace tessera::cli

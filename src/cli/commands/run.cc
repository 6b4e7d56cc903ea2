#include "cli/commands/run.h"

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <sstream>

#include "cli/launch/child.h"
#include "cli/launch/daemon.h"
#include "cli/launch/environment.h"
#include "cli/launch/kernel_gate.h"
#include "cli/launch/space.h"
#include "client/json_fields.h"
#include "guard/supervisor/filter.h"

namespace tessera::cli {
using client::ApiClient;
using client::Json;
using client::TextField;

namespace {

// An embedded daemon may end between two of our requests; then another one is started.
constexpr int kAttempts = 5;

std::string NameOf(const std::string& program) { return std::filesystem::path(program).filename().string(); }

// Makes a vGPU that lasts as long as this process, which is about to become the program.
Result<Json> MakeVgpu(const ApiClient& client, const RunChoices& choices, const std::string& program,
                      std::optional<unsigned> gpu = {}) {
  auto body = RequestBody(choices.settings);
  if (!body) return std::unexpected(body.error());
  (*body)["ephemeral"] = true;
  (*body)["owner_pid"] = getpid();
  (*body)["program"] = NameOf(program);
  if (gpu) (*body)["gpu"] = *gpu;
  if (!choices.name.empty()) (*body)["name"] = gpu ? choices.name + "-" + std::to_string(*gpu) : choices.name;
  return client.Post("/v1/vgpus", *body);
}

// One on each of the first GPUs. If one cannot be made, the others end with this process.
Result<std::vector<Json>> MakeGang(const ApiClient& client, const RunChoices& choices, const std::string& program) {
  const auto gpus = client.Get("/v1/gpus");
  if (!gpus) return std::unexpected(gpus.error());
  const auto list = gpus->find("gpus");
  const std::size_t count = list == gpus->end() ? 0 : list->size();
  if (choices.gpus > count) {
    return Fail(ERANGE, "--gpus " + std::to_string(choices.gpus) + ": there are only " + std::to_string(count),
                "see 'tessera gpus'");
  }
  std::vector<Json> vgpus;
  for (unsigned gpu = 0; gpu < choices.gpus; ++gpu) {
    auto made = MakeVgpu(client, choices, program, gpu);
    if (!made) return std::unexpected(made.error());
    vgpus.push_back(std::move(*made));
  }
  return vgpus;
}

Result<std::vector<Json>> FindVgpus(const ApiClient& client, const std::string& names) {
  std::vector<Json> vgpus;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
    auto vgpu = client.Get("/v1/vgpus/" + name);
    if (!vgpu) return std::unexpected(vgpu.error());
    vgpus.push_back(std::move(*vgpu));
  }
  return vgpus;
}

Result<std::vector<Json>> VgpusFor(const ApiClient& client, const RunChoices& choices, const std::string& program) {
  if (!choices.vgpus.empty()) return FindVgpus(client, choices.vgpus);
  if (choices.gpus > 1) return MakeGang(client, choices, program);
  auto made = MakeVgpu(client, choices, program);
  if (!made) return std::unexpected(made.error());
  return std::vector<Json>{std::move(*made)};
}

Result<ProgramPlace> FindPlace(const Common& common, const RunChoices& choices, const std::string& program) {
  const ApiClient client(common.RunDirectory());
  for (int attempt = 1;; ++attempt) {
    const auto daemon = EnsureDaemon(common);
    if (!daemon) return std::unexpected(daemon.error());
    const auto vgpus = VgpusFor(client, choices, program);
    if (!vgpus && vgpus.error().code == ECONNREFUSED && attempt < kAttempts) continue;
    if (!vgpus) return std::unexpected(vgpus.error());
    ProgramPlace place{.installation = Installation::Find(),
                       .run_dir = common.RunDirectory(),
                       .soft = daemon->soft,
                       .soft_spec = common.soft_spec};
    for (const Json& vgpu : *vgpus) {
      place.vgpus.push_back(TextField(vgpu, "name"));
      place.gpu_uuids.push_back(TextField(vgpu, "gpu_uuid"));
      if (auto entered = EnterSpace(client, vgpu, place); !entered) return std::unexpected(entered.error());
    }
    return place;
  }
}

}  // namespace

Result<int> RunProgram(const Common& common, const RunChoices& choices, const std::vector<std::string>& program) {
  if (program.empty()) return Fail(EINVAL, "no program given", "use 'tessera run [OPTION]... -- COMMAND'");
  const auto place = FindPlace(common, choices, program[0]);
  if (!place) return std::unexpected(place.error());
  if (auto set = SetProgramVariables(*place); !set) return std::unexpected(set.error());
  if (choices.guarded) {
    const GuardedProgram guarded{.run_dir = place->run_dir, .vgpus = place->vgpus, .name = NameOf(program[0])};
    if (auto entered = EnterKernelGate(guarded, guard::InstallFilter); !entered) {
      return std::unexpected(entered.error());
    }
  }
  const std::vector<char*> arguments = ForExec(program);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "tessera: cannot execute '%s': %s\n", arguments[0], std::strerror(error));
  return error == ENOENT ? 127 : 126;
}

}  // namespace tessera::cli

#include "cli/demo/demo_cast.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "cli/launch/space.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Json;

namespace {

constexpr Nanos kFinishLimit = 20 * kSecond;
constexpr int kListenMilliseconds = 50;

volatile sig_atomic_t interrupted = 0;

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Result<void> DemoCast::Make(const std::string& name, Json settings) {
  settings["name"] = name;
  settings["ephemeral"] = true;
  settings["owner_pid"] = getpid();
  settings["gpu"] = stage_.gpu();
  if (auto made = stage_.client().Post("/v1/vgpus", settings); !made) return std::unexpected(made.error());
  return {};
}

Result<DemoTenant*> DemoCast::Enter(const std::string& name, const std::vector<std::string>& arguments) {
  ProgramPlace place = stage_.PlaceIn(name);
  const auto vgpu = Ask(name);
  if (!vgpu) return std::unexpected(vgpu.error());
  if (auto entered = EnterSpace(stage_.client(), *vgpu, place); !entered) return std::unexpected(entered.error());
  const auto variables = ProgramVariables(place, [](const char* variable) { return std::getenv(variable); });
  if (!variables) return std::unexpected(variables.error());
  return Start(name, arguments, *variables);
}

Result<DemoTenant*> DemoCast::EnterWithoutTessera(const std::string& name, const std::vector<std::string>& arguments) {
  auto started = Start(name, arguments, stage_.WithoutTessera());
  if (started) (*started)->MayFail();
  return started;
}

Result<DemoTenant*> DemoCast::Start(const std::string& name, std::vector<std::string> arguments,
                                    const Variables& variables) {
  arguments.insert(arguments.begin(), Installation::Find().Tenant());
  auto child = Child::Start(arguments, variables);
  if (!child) return std::unexpected(child.error());
  return &tenants_.emplace_back(name, std::move(*child));
}

Result<void> DemoCast::Set(const std::string& name, const Json& settings) const {
  const auto changed = stage_.client().Patch("/v1/vgpus/" + name, settings);
  if (!changed) return std::unexpected(changed.error());
  return {};
}

Result<Json> DemoCast::Ask(const std::string& name) const { return stage_.client().Get("/v1/vgpus/" + name); }

Result<void> DemoCast::Listen(Nanos deadline) {
  std::vector<pollfd> outputs;
  for (const DemoTenant& tenant : tenants_) {
    outputs.push_back({.fd = tenant.ended() ? -1 : tenant.output(), .events = POLLIN, .revents = 0});
  }
  if (interrupted) return Fail(EINTR, "interrupted");
  if (poll(outputs.data(), outputs.size(), kListenMilliseconds) > 0) {
    auto output = outputs.begin();
    for (DemoTenant& tenant : tenants_) {
      if ((output++)->revents != 0) tenant.Listen();
    }
  }
  for (const DemoTenant& tenant : tenants_) {
    if (!tenant.ended() || tenant.story().done || tenant.may_fail()) continue;
    const std::string why = tenant.story().complaint;
    return Fail(EIO, "the program in " + tenant.name() + " ended too early" + (why.empty() ? "" : ": " + why));
  }
  if (MonotonicNow() > deadline) return Fail(ETIMEDOUT, "the programs took too long", "see 'tessera doctor'");
  return {};
}

Result<void> DemoCast::Finish() {
  for (const DemoTenant& tenant : tenants_) tenant.Signal(SIGTERM);
  return Wait(kFinishLimit, [&] { return std::ranges::all_of(tenants_, &DemoTenant::ended); });
}

void DemoCast::Dismiss() {
  for (const DemoTenant& tenant : tenants_) {
    if (tenant.may_fail()) continue;  // it was in no vGPU
    // A failure does not matter: the vGPU ends with this process at the latest.
    [[maybe_unused]] const auto gone = stage_.client().Delete("/v1/vgpus/" + tenant.name() + "?force=1");
  }
  tenants_.clear();
}

}  // namespace tessera::cli

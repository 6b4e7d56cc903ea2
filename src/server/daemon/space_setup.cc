#include "server/daemon/space_setup.h"

#include <algorithm>
#include <utility>

#include "base/install/mps_program.h"
#include "server/model/process_facts.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// The control daemon is the user's, who may make it name any process: one of another user must not be steered.
pid_t ServerOf(const Space& space) {
  const Space::Identity& who = space.Who();
  const pid_t server = space.Server();
  if (server == 0) return 0;
  const auto owner = OwnerOf(server);
  if (owner == who.uid) return server;
  if (owner)
    log::WarnOf(who.uid,
                "space {}: its MPS control daemon calls process {} its server, which is another user's; it is "
                "not steered",
                who.name, server);
  return 0;
}

}  // namespace

std::unique_ptr<SpaceTable> MakeSpaces(EventLoop& loop, const std::string& run_dir, bool soft, bool embedded,
                                       SpaceTable::OnChange on_change) {
  constexpr Nanos kLinger = 10 * kSecond;
  SpaceTable::Setup setup{.folder = run_dir + "/mps", .linger = embedded ? 0 : kLinger};
  if (auto program = FindMpsControl(soft)) {
    setup.program = *program;
  } else {
    setup.why_none = program.error().message;
  }
  return std::make_unique<SpaceTable>(loop, std::move(setup), std::move(on_change));
}

void FollowServer(const Space& space, ChannelServer& channels, const std::vector<std::unique_ptr<GpuServer>>& gpus,
                  Nanos now) {
  const Space::Identity& who = space.Who();
  const pid_t server = ServerOf(space);
  if (channels.Table().ServerOf(who.number) == server) return;
  channels.SetServer(who.number, server);
  if (who.gpu < gpus.size()) gpus[who.gpu]->Time().ChannelsChanged(server, now);
}

std::function<bool()> SpaceStands(const VGpu& vgpu, ChannelServer& channels) {
  return [&channels, gpu = vgpu.gpu, space = vgpu.spec.compute.space.number] {
    const pid_t server = channels.Table().ServerOf(space);
    return server != 0 && channels.Freezer().StatusOf(server, gpu).frozen_since != 0;
  };
}

void RestoreSpaces(const std::vector<SavedSpace>& saved, SpaceTable& spaces,
                   const std::vector<std::unique_ptr<GpuServer>>& gpus) {
  for (const SavedSpace& each : saved) {
    const auto gpu = std::ranges::find_if(gpus, [&](const auto& server) { return server->Info().uuid == each.gpu; });
    const auto made = gpu == gpus.end() ? Fail(ENODEV, "this machine does not have its GPU now")
                                        : spaces.Create(each.name, each.uid, (*gpu)->Index(), FormatUuid(each.gpu));
    if (made) continue;
    log::Warn("space {} is absent: {}", each.name, made.error().Text());
    spaces.Miss(each);
  }
}

std::vector<SavedSpace> LastingSpaces(const SpaceTable& spaces, const std::vector<std::unique_ptr<GpuServer>>& gpus) {
  std::vector<SavedSpace> lasting = spaces.Absent();
  for (const Space* space : spaces.All()) {
    const Space::Identity& who = space->Who();
    if (space->Kept()) lasting.push_back({who.name, gpus[who.gpu]->Info().uuid, who.uid});
  }
  return lasting;
}

}  // namespace tessera::server

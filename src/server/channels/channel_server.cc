#include "server/channels/channel_server.h"

#include <utility>

#include "server/record/trace.h"

namespace tessera::server {

ChannelServer::ChannelServer(std::unique_ptr<channel::Control> control, std::string why, channel::Watchdog* watchdog)
    : control_(std::move(control)),
      availability_(control_ || !why.empty() ? std::move(why) : "there is no way to steer them"),
      calls_(control_.get()),
      table_(control_.get()),
      freezer_(control_.get(), availability_, watchdog, table_, calls_) {}

void ChannelServer::Observe(pid_t pid, const channel::ObjectEvent& event, Source source, Nanos now) {
  if (!table_.Apply(pid, event, source)) return;
  const pid_t server = table_.ServerOfClient(pid);
  freezer_.ChannelsChanged(server != 0 ? server : pid, event.kind == channel::ObjectEvent::Kind::kFree);
  if (on_change_) on_change_(pid, now);
}

void ChannelServer::EnterSpace(pid_t client, std::uint32_t space) {
  table_.EnterSpace(client, space, MonotonicNow());
  if (const pid_t server = table_.ServerOf(space)) freezer_.ChannelsChanged(server, false);
}

void ChannelServer::ClientWorks(pid_t client) {
  const pid_t server = table_.ServerOfClient(client);
  if (table_.ClientWorks(client, MonotonicNow()) && server != 0) freezer_.ChannelsChanged(server, false);
}

void ChannelServer::LeaveSpace(pid_t client) {
  const pid_t server = table_.ServerOfClient(client);
  if (server != 0) freezer_.ReleaseClient(server, client);
  table_.LeaveSpace(client, MonotonicNow());
  if (server != 0) freezer_.ChannelsChanged(server, true);
}

// A server that is gone takes its freezes along.
void ChannelServer::SetServer(std::uint32_t space, pid_t server) {
  const pid_t before = table_.ServerOf(space);
  if (before == server) return;
  table_.SetServer(space, server);
  if (before != 0) ForgetWhenEnded(before);
}

void ChannelServer::Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events, bool frozen) {
  table_.Restore(pid, events);
  if (!frozen || !control_) return;
  left_.insert(pid);
  channel::ObjectTable then;  // channels that it made since then are not frozen
  for (const auto& event : events) then.Apply(event);
  freezer_.TakeOver(pid, then);
}

void ChannelServer::Forget(pid_t pid) {
  if (freezer_.Forget(pid)) {
    table_.Erase(pid);
  } else {
    left_.insert(pid);
  }
}

void ChannelServer::Tick() {
  for (const pid_t pid : std::exchange(left_, {})) {
    if (table_.Alive(pid)) {
      left_.insert(pid);
    } else {
      Forget(pid);
    }
  }
  freezer_.Beat();
  freezer_.CatchUp();
}

Result<void> ChannelServer::SetSlice(std::uint32_t gpu, pid_t pid, Nanos slice) {
  if (!Available(gpu)) return Fail(ENOSYS, "channels cannot be steered here: " + Why(gpu));
  if (!table_.Verify(pid)) return Fail(EACCES, "its channels are not its own");
  calls_.rate.Note(MonotonicNow());
  auto set = control_->SetSlice(gpu, table_.TargetOn(pid, gpu), slice);
  if (set)
    trace::Note({.at = MonotonicNow(),
                 .value = static_cast<std::uint64_t>(slice),
                 .pid = pid,
                 .gpu = gpu,
                 .kind = TraceKind::kSlice});
  return set;
}

}  // namespace tessera::server

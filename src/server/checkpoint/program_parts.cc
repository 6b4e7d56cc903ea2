#include "server/checkpoint/program_parts.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "server/swap/residency_actions.h"

namespace tessera::server {

bool ProgramParts::Any() const {
  bool any = false;
  ForEach([&](GpuServer&, Process&) { any = true; });
  return any;
}

void ProgramParts::Note(EventType type, const std::string& text) const {
  ForEach([&](const GpuServer& gpu, const Process& process) {
    events::Note({.type = type,
                  .gpu = gpu.Index(),
                  .vgpu = process.vgpu->spec.name,
                  .pid = pid_,
                  .owner = process.vgpu->spec.uid,
                  .user = process.who.uid,
                  .text = fmt::format("{} {}", process.who.program, text)});
  });
}

void ProgramParts::SetError(const std::string& error) const {
  ForEach([&](GpuServer&, Process& process) { process.suspension.error = error; });
}

void ProgramParts::SayAway(std::optional<bool> returns) const {
  ForEach([&](GpuServer&, Process& process) {
    const SuspensionState& state = process.suspension;
    process.page.SayAway(returns ? wire::AwayWord(state.saved_on, *returns, state.by_itself) : 0);
  });
}

void ProgramParts::SetByItself(bool by_itself) const {
  ForEach([&](GpuServer&, Process& process) {
    process.suspension.by_itself = by_itself;
    const std::uint32_t word = process.page->away.load();
    if (word != 0) process.page.SayAway(wire::AwayWord(wire::AwayFrom(word), wire::AwayReturns(word), by_itself));
  });
}

bool ProgramParts::ByItself() const {
  bool any = false;
  ForEach([&](GpuServer&, const Process& process) { any |= process.suspension.by_itself; });
  return any;
}

bool ProgramParts::Still() const {
  bool still = true;
  ForEach([&](GpuServer& gpu, const Process& process) { still &= gpu.Placement().Still(process); });
  return still;
}

bool ProgramParts::Quiet() const {
  bool quiet = true;
  ForEach([&](const GpuServer&, const Process& process) {
    quiet &= process.page->own_calls.load() == 0 && process.page->first_call.load() != wire::FirstCall::kUnseen;
  });
  return quiet;
}

bool ProgramParts::HoldHostMemory() const {
  bool holds = false;
  ForEach([&](const GpuServer&, const Process& process) { holds |= process.page->host_held.load() != 0; });
  return holds;
}

bool ProgramParts::HaveLeft() const {
  bool left = true;
  ForEach([&](const GpuServer& gpu, const Process& process) {
    if (!gpu.Swaps()) return;
    const Residence& residence = process.residence;
    const bool quiet = residence.stopped && residence.thawed && residence.moves.Doing() == sched::Moving::kNothing;
    const bool gone = residence.Swapped() == 0 || residence.parked;
    left &= quiet && gone && !residence.line.Lost() && process.page->host_held.load() == 0;
  });
  return left;
}

bool ProgramParts::Relocates(bool asks) const {
  bool any = false;
  ForEach([&](GpuServer& gpu, const Process& process) {
    if (process.suspension.in_place || !gpu.Placement().Left().Anywhere(process.pid)) return;
    any = true;
    if (asks) gpu.Residency().Link().Order(process, wire::MoverType::kRelocate);
  });
  return any;
}

void ProgramParts::GiveUpRoom() const {
  ForEach([](GpuServer& gpu, Process& process) {
    if (gpu.Swaps() && !process.suspension.Absent()) GiveUpRoom(process);
  });
}

void ProgramParts::GiveUpRoom(Process& process) {
  Residence& residence = process.residence;
  process.suspension.room = residence.Taken();
  process.suspension.bytes = process.suspension.room + Placement::Outside(process);
  process.suspension.taken = false;
  process.page->room_credit.exchange(0);
  residence.wanted = residence.room = 0;
}

void ProgramParts::StayAway(const std::string& error) const {
  SetError(error);
  GiveUpRoom();
  ForEach([](GpuServer&, Process& process) { process.suspension.in_place = false; });
  (void)Relocates(/*asks=*/true);
}

bool ProgramParts::GiveUpRoomOfLate(SuspensionPhase phase) const {
  bool late = false;
  ForEach([&](GpuServer& gpu, Process& process) {
    if (process.suspension.phase == phase) return;
    if (gpu.Swaps()) GiveUpRoom(process);
    late = true;
  });
  return late;
}

Result<bool> ProgramParts::TakeRoomBack(Nanos now) const {
  using enum sched::RoomAnswer::Kind;
  bool all = true;
  std::optional<Error> refused;
  ForEach([&](GpuServer& gpu, Process& process) {
    SuspensionState& suspension = process.suspension;
    if (!gpu.Swaps() || suspension.taken) return;
    const auto answer = gpu.Residency().AskForContext(process, suspension.bytes, now);
    if (answer == kGrant) {
      ResidencyActions::AddRoom(process, suspension.room);
      suspension.taken = true;
      return;
    }
    all = false;
    if (answer == kRefuse)
      refused = {ENOMEM, fmt::format("GPU {} has no room for process {}", gpu.Index(), pid_),
                 "tessera events says what is in the way"};
  });
  if (refused) return std::unexpected(std::move(*refused));
  return all;
}

void ProgramParts::HaveReturned() const {
  ForEach([](GpuServer& gpu, Process& process) {
    process.residence.comes_back = process.residence.Swapped() > 0;
    gpu.Placement().Hold(process.pid, 0);  // it takes that itself now
  });
}

std::vector<wire::GpuPair> ProgramParts::Pairs() const {
  std::vector<std::optional<std::uint32_t>> to(gpus_.size());
  std::vector<bool> taken(gpus_.size());
  bool any = false, twice = false;  // what a program claims (SuspensionState::claimed) may make no sense
  ForEach([&](const GpuServer& gpu, const Process& process) {
    any |= process.suspension.saved_on != gpu.Index();
    twice |= to[process.suspension.saved_on].has_value() || taken[gpu.Index()];
    to[process.suspension.saved_on] = gpu.Index();
    taken[gpu.Index()] = true;
  });
  std::vector<wire::GpuPair> pairs;
  if (!any || twice) return pairs;
  for (std::uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!to[gpu] && !taken[gpu]) taken[*(to[gpu] = gpu)] = true;  // nobody is concerned
  }
  std::uint32_t free = 0;
  for (std::uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!to[gpu]) {
      while (taken[free]) ++free;
      taken[*(to[gpu] = free)] = true;
    }
    pairs.push_back({.from = gpus_[gpu]->Info().uuid, .to = gpus_[*to[gpu]]->Info().uuid});
  }
  return pairs;
}

}  // namespace tessera::server

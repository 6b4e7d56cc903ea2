#include "server/gpu/vgpu_table.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <ranges>

#include "base/process/process_start.h"
#include "base/size.h"
#include "server/access/vgpu_names.h"
#include "server/gpu/gpu_choice.h"
#include "server/record/events.h"
#include "server/spaces/own_sms.h"

namespace tessera::server {
namespace {

// For people.
std::string Settings(const VGpuSpec& spec) {
  const auto size = [](const std::optional<std::uint64_t>& bytes) { return bytes ? FormatSize(*bytes) : "max"; };
  const std::string space = spec.space.empty()
                                ? ""
                                : fmt::format(", space {} with {:g} % of the SMs{}", spec.space,
                                              spec.compute.space.sm_pct, spec.compute.space.burst ? " or more" : "");
  const std::string goal = spec.goal ? ", goal " + sched::FormatGoal(*spec.goal) : "";
  const std::string gang = spec.gang.empty() ? "" : ", gang " + spec.gang;
  const std::string labels = spec.labels.empty() ? "" : "; labels " + FormatLabels(spec.labels);
  return fmt::format("memory {}:{}, request {}, compute {:g}:{:g}, weight {}, priority {}{}{}{}{}",
                     size(spec.memory.limit), size(spec.memory.max), FormatSize(spec.memory.request),
                     spec.compute.request_pct, spec.compute.limit_pct, spec.compute.weight, spec.compute.priority, goal,
                     space, gang, labels);
}

}  // namespace

// FNV-1a of the settings as text.
std::string TagOf(const VGpuSpec& spec) {
  const auto bytes = [](const std::optional<std::uint64_t>& value) { return value ? std::to_string(*value) : "none"; };
  std::string settings =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", spec.name, spec.uid, spec.frozen,
                  spec.memory.request, bytes(spec.memory.limit), bytes(spec.memory.max), bytes(spec.memory.swap),
                  spec.compute.request_pct, spec.compute.limit_pct, spec.compute.weight, spec.compute.priority,
                  spec.goal ? sched::FormatGoal(*spec.goal) : "none", spec.space, spec.compute.space.sm_pct, spec.gang,
                  spec.compute.space.burst);
  for (const auto& [key, value] : spec.labels) settings += fmt::format("\n{}={}", key, value);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : settings) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

VGpuTable::VGpuTable(EventLoop& loop, Gpus& gpus, std::function<void()> on_change,
                     std::function<void(VGpu&, Nanos)> on_unlist, SpaceTable* spaces)
    : loop_(loop), gpus_(gpus), on_change_(std::move(on_change)), on_unlist_(std::move(on_unlist)), spaces_(spaces) {}

Result<VGpu*> VGpuTable::Create(const VGpuRequest& request, uid_t uid, Nanos now, const Admission& admit,
                                bool by_operator) {
  VGpuSpec spec{.name = request.name ? *request.name : FreeName(request.program.value_or("")), .uid = uid};
  if (auto ok = CheckName(spec.name); !ok) return std::unexpected(ok.error());
  if (auto free = CheckNameFree(spec.name, uid, by_operator); !free) return std::unexpected(free.error());
  spec.key = request.key.value_or("");
  if (auto ok = CheckKey(spec.key); !ok) return std::unexpected(ok.error());
  spec.ephemeral = request.ephemeral.value_or(false);
  spec.owner_pid = spec.ephemeral ? request.owner_pid.value_or(0) : 0;
  if (spec.ephemeral && spec.owner_pid <= 0) {
    return Fail(EINVAL, "an ephemeral vGPU needs an owner process, whose end is its end", "give owner_pid");
  }
  if (spec.ephemeral) {
    auto start = ProcessStart(spec.owner_pid);
    if (!start) return std::unexpected(start.error());
    spec.owner_start = *start;
  }
  auto candidates = CandidatesFor(request, spec, gpus_, spaces_);
  if (!candidates) return std::unexpected(candidates.error());
  Result<VGpu*> placed = Fail(ENODEV, "there is no GPU");
  std::optional<Error> first, drains;
  for (const std::uint32_t gpu : *candidates) {
    if (auto takes = gpus_[gpu]->Health().TakesNewcomers(); gpus_[gpu]->Health().Draining() && !takes) {
      drains = takes.error();
      continue;
    }
    VGpuSpec fitted = spec;
    if (auto ok = ApplyFigures(request, gpus_[gpu]->Info().memory_total, gpus_[gpu]->Swaps(), fitted); !ok) {
      if (ok.error().code != ENOSPC) return std::unexpected(ok.error());
      if (!first) first = ok.error();
      continue;  // a larger GPU may have it
    }
    if (!request.memory_max) fitted.memory.max = fitted.memory.limit;  // a program sees what it may have
    if (admit) {
      if (auto ok = admit(fitted, nullptr); !ok) return std::unexpected(ok.error());
    }
    // Who makes one anew gives up one's own absent one.
    std::optional<SavedVGpu> absent;
    if (const auto found = Absent(spec.name); found != absent_.end()) {
      absent = *found;
      absent_.erase(found);  // first: placing saves what there is
    }
    placed = Place(std::move(fitted), gpu, now);
    if (placed) return placed;
    if (absent) absent_.push_back(std::move(*absent));
    if (!first) first = placed.error();
  }
  if (first && drains) first->message += "; " + drains->message;
  return std::unexpected(first.value_or(drains.value_or(placed.error())));
}

std::vector<SavedVGpu>::const_iterator VGpuTable::Absent(std::string_view name) const {
  return std::ranges::find(absent_, name, [](const SavedVGpu& saved) -> std::string_view { return saved.spec.name; });
}

// A user who had such a name first would keep the node from making its own vGPU, or have programs in it.
bool VGpuTable::IsForOperators(std::string_view name) const {
  return IsKeptName(name) || declared_.contains(std::string(name));
}

// Whether a new vGPU may have the name: a living one has it not, nor an absent one of another user.
Result<void> VGpuTable::CheckNameFree(const std::string& name, uid_t uid, bool by_operator) const {
  if (!by_operator && IsForOperators(name))
    return Fail(EPERM,
                declared_.contains(name)
                    ? fmt::format("the name {} is kept for the vGPU that the configuration declares", name)
                    : fmt::format("names such as {} are kept for the vGPUs of jobs and pods", name),
                "choose another name");
  if (Find(name))
    return Fail(EEXIST, fmt::format("vGPU {} exists already", name), "choose another name, or change that one");
  const auto absent = Absent(name);
  if (absent != absent_.end() && absent->spec.uid != uid && uid != 0)
    return Fail(EEXIST, fmt::format("vGPU {} exists, though it is absent now", name), "choose another name");
  return {};
}

Result<void> VGpuTable::Restore(const SavedVGpu& saved, Nanos now) {
  const VGpuSpec& spec = saved.spec;
  if (auto ok = CheckName(spec.name); !ok) return ok;
  if (Find(spec.name)) return Fail(EEXIST, "its name is taken");
  if (spec.ephemeral) {
    auto start = ProcessStart(spec.owner_pid);
    if (!start || *start != spec.owner_start) return Fail(ESRCH, "its owner has ended");
  }
  const auto gpu = std::ranges::find_if(gpus_, [&](const auto& server) { return server->Info().uuid == saved.gpu; });
  if (gpu == gpus_.end()) {
    absent_.push_back(saved);
    return Fail(ENODEV, fmt::format("this machine does not have {} now", FormatUuid(saved.gpu)),
                "it comes back with that GPU");
  }
  auto placed = Place(spec, (*gpu)->Index(), now, true);
  if (placed) return {};
  if (!spec.ephemeral) absent_.push_back(saved);
  return std::unexpected(placed.error());
}

std::vector<SavedVGpu> VGpuTable::Saved() const {
  std::vector<SavedVGpu> saved = absent_;
  for (const VGpu* vgpu : All()) saved.push_back({vgpu->spec, Gpu(*vgpu).Info().uuid});
  return saved;
}

Result<VGpu*> VGpuTable::Place(VGpuSpec spec, std::uint32_t gpu, Nanos now, bool restored) {
  auto vgpu = std::make_unique<VGpu>();
  vgpu->id = ++last_id_;
  vgpu->gpu = gpu;
  vgpu->spec = std::move(spec);
  if (vgpu->spec.ephemeral) {
    if (auto watched = WatchOwner(*vgpu); !watched) return std::unexpected(watched.error());
  }
  if (auto entered = EnterSpace(*vgpu); !entered) return std::unexpected(entered.error());
  if (auto added = gpus_[gpu]->Add(*vgpu, now, restored); !added) {
    if (spaces_) spaces_->Leave(vgpu->spec.space);
    return std::unexpected(added.error());
  }
  VGpu* placed = vgpu.get();
  by_name_[placed->spec.name] = placed;
  vgpus_[placed->id] = std::move(vgpu);
  events::Note({.type = EventType::kVGpuCreated,
                .gpu = gpu,
                .vgpu = placed->spec.name,
                .owner = placed->spec.uid,
                .text = Settings(placed->spec)});
  on_change_();
  return placed;
}

Result<void> VGpuTable::Change(VGpu& vgpu, const VGpuRequest& request, Nanos now, const Admission& admit,
                               bool by_operator) {
  if (request.name || request.program || request.gpu || request.key || request.ephemeral || request.owner_pid) {
    return Fail(EINVAL, "only memory, compute, goal, gang and labels of a vGPU can be changed",
                "make a new one for another name, GPU or key");
  }
  if (request.space && *request.space != vgpu.spec.space)
    return Fail(EINVAL, "the space of a vGPU cannot be changed", "make a new vGPU in the other space");
  if (auto same = CheckTag(vgpu, request.if_tag); !same) return same;
  VGpuSpec changed = vgpu.spec;
  if (auto ok = ApplyFigures(request, Gpu(vgpu).Info().memory_total, Gpu(vgpu).Swaps(), changed); !ok) return ok;
  if (auto valid = sched::Validate(changed.compute); !valid) return valid;
  if (auto moved = MoveSms(vgpu, changed.compute.space, All()); !moved) return moved;
  if (admit) {
    if (auto ok = admit(changed, &vgpu); !ok) return ok;
  }
  const std::string before = Settings(vgpu.spec);
  if (auto ok = Gpu(vgpu).Resize(vgpu, changed.memory, changed.compute, changed.goal, now); !ok) return ok;
  vgpu.spec.gang = std::move(changed.gang);
  vgpu.spec.labels = std::move(changed.labels);
  events::Note({.type = EventType::kVGpuChanged,
                .gpu = vgpu.gpu,
                .vgpu = vgpu.spec.name,
                .owner = vgpu.spec.uid,
                .by_operator = by_operator,
                .text = Settings(vgpu.spec) + "; it had " + before});
  on_change_();
  return {};
}

Result<void> CheckTag(const VGpu& vgpu, const std::optional<std::string>& tag) {
  if (!tag || *tag == TagOf(vgpu.spec)) return {};
  return Fail(ESTALE, fmt::format("vGPU {} was changed in the meantime", vgpu.spec.name),
              "read it again, and repeat the change");
}

Result<void> VGpuTable::Freeze(VGpu& vgpu, bool frozen, bool by_owner, Nanos now) {
  if (by_owner && vgpu.spec.frozen && !vgpu.spec.owner_froze)
    return Fail(EPERM, fmt::format("an operator froze vGPU {}", vgpu.spec.name), "ask an operator to thaw it");
  vgpu.spec.owner_froze = by_owner && frozen;
  Gpu(vgpu).Freezes().SetByOperator(vgpu, frozen, now);
  on_change_();
  return {};
}

Result<void> VGpuTable::Remove(VGpu& vgpu, bool force, Nanos now, bool by_operator) {
  if (!vgpu.declared_at.empty())
    return Fail(EPERM, fmt::format("vGPU {} is declared at {}", vgpu.spec.name, vgpu.declared_at),
                "take the section out, and tessera reload; then it can be removed");
  if (!vgpu.processes.empty() && !force) {
    return Fail(EBUSY,
                fmt::format("vGPU {} is in use by {} process{}", vgpu.spec.name, vgpu.processes.size(),
                            vgpu.processes.size() == 1 ? "" : "es"),
                "end them first, or use force: they lose their GPU then");
  }
  Unlist(vgpu, now, by_operator);
  return {};
}

VGpu* VGpuTable::Find(std::string_view name) const {
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

VGpu* VGpuTable::Find(VgpuId id) const {
  auto found = vgpus_.find(id);
  return found == vgpus_.end() ? nullptr : found->second.get();
}

Result<VGpu*> VGpuTable::Get(std::string_view name) const {
  if (VGpu* vgpu = Find(name)) return vgpu;
  return std::unexpected(NoSuchVGpu(std::string(name)));
}

Result<std::vector<VGpu*>> VGpuTable::Choose(std::string_view text, const Authority& authority,
                                             const Caller& caller) const {
  std::vector<VGpu*> chosen;
  const VGpuNames said = SplitNames(text);
  for (const std::string_view name : said.names) {
    auto vgpu = Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    const Possession thing = PossessionOf((*vgpu)->spec);
    if (auto allowed = authority.Allowed(caller, Operation::kJoinVGpu, &thing); !allowed)
      return std::unexpected(allowed.error());
    if (auto opens = CheckOpens(name, (*vgpu)->spec.key, said.key); !opens) return std::unexpected(opens.error());
    const auto same_gpu = std::ranges::find(chosen, (*vgpu)->gpu, &VGpu::gpu);
    if (same_gpu != chosen.end()) {
      return Fail(EINVAL,
                  fmt::format("vGPUs {} and {} are on the same GPU", (*same_gpu)->spec.name, (*vgpu)->spec.name),
                  "name one for each GPU");
    }
    chosen.push_back(*vgpu);
  }
  if (chosen.empty())
    return Fail(EINVAL, "no vGPU is named", "set TESSERA_VGPU, or start the program with tessera run");
  return chosen;
}

std::vector<VGpu*> VGpuTable::All() const {
  std::vector<VGpu*> all;
  for (const auto& [name, vgpu] : by_name_) all.push_back(vgpu);
  return all;
}

void VGpuTable::Left(VgpuId id, Nanos now) {
  VGpu* vgpu = Find(id);
  if (!vgpu) return;
  --vgpu->joined;
  if (vgpu->joined > 0) return;
  if (vgpu->removed) {
    Destroy(*vgpu);
  } else if (vgpu->spec.ephemeral && !vgpu->owner.fd) {
    Unlist(*vgpu, now);
  }
}

bool VGpuTable::AnyLivingOwner() const {
  return std::any_of(vgpus_.begin(), vgpus_.end(), [](const auto& entry) { return bool(entry.second->owner.fd); });
}

Result<void> VGpuTable::EnterSpace(VGpu& vgpu) {
  sched::SpacePlace& place = vgpu.spec.compute.space;
  place.number = 0;  // that of an earlier daemon
  if (vgpu.spec.space.empty()) return {};
  if (!spaces_) return Fail(ENOSYS, "this daemon has no spaces");
  sched::Shares shares = vgpu.spec.compute;
  shares.space.number = 1;  // first, so that no space is made for nothing
  if (auto valid = sched::Validate(shares); !valid) return valid;
  const auto number =
      spaces_->Enter(vgpu.spec.space, vgpu.spec.uid, vgpu.gpu, FormatUuid(gpus_[vgpu.gpu]->Info().uuid));
  if (!number) return std::unexpected(number.error());
  place.number = *number;
  auto placed = PlaceSms(vgpu, All());
  if (!placed) spaces_->Leave(vgpu.spec.space);
  return placed;
}

std::string VGpuTable::FreeName(std::string_view program) const {
  for (unsigned n = 1;; ++n) {
    std::string name = NameFor(program, n);
    if (!Find(name) && Absent(name) == absent_.end() && !IsForOperators(name)) return name;
  }
}

Result<void> VGpuTable::WatchOwner(VGpu& vgpu) {
  vgpu.owner.fd.Reset(static_cast<int>(syscall(SYS_pidfd_open, vgpu.spec.owner_pid, 0)));
  if (!vgpu.owner.fd) return FailErrno(fmt::format("cannot watch the owner, process {}", vgpu.spec.owner_pid));
  // Through Post, because a watch cannot end inside its own callback.
  auto watch = loop_.WatchReadable(vgpu.owner.fd.Get(),
                                   [this, id = vgpu.id] { loop_.Post([this, id] { OwnerDied(id, MonotonicNow()); }); });
  if (!watch) return std::unexpected(watch.error());
  vgpu.owner.watch = std::move(*watch);
  return {};
}

void VGpuTable::OwnerDied(VgpuId id, Nanos now) {
  VGpu* vgpu = Find(id);
  if (!vgpu) return;
  vgpu->owner.watch = {};
  vgpu->owner.fd.Reset();
  if (vgpu->joined == 0 && !vgpu->removed) Unlist(*vgpu, now);
}

// Its name is free from now on; what is left of it goes with its last program.
void VGpuTable::Unlist(VGpu& vgpu, Nanos now, bool by_operator) {
  events::Note({.type = EventType::kVGpuRemoved,
                .gpu = vgpu.gpu,
                .vgpu = vgpu.spec.name,
                .owner = vgpu.spec.uid,
                .by_operator = by_operator});
  // Work that its programs have queued must not run on, and no freeze can stop the work of one client.
  if (Space* space = spaces_ ? spaces_->Find(vgpu.spec.space) : nullptr) {
    for (const Process* process : vgpu.processes) space->Terminate(process->pid);
  }
  by_name_.erase(vgpu.spec.name);
  if (on_unlist_) on_unlist_(vgpu, now);
  vgpu.removed = true;
  Gpu(vgpu).Remove(vgpu, now);
  if (vgpu.joined == 0) Destroy(vgpu);
  on_change_();
}

void VGpuTable::Destroy(VGpu& vgpu) {
  Gpu(vgpu).Forget(vgpu);
  if (spaces_) spaces_->Leave(vgpu.spec.space);
  vgpus_.erase(vgpu.id);
}

}  // namespace tessera::server

#include "server/daemon/declarations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {
namespace {

// Figures that are not declared have their defaults.
VGpuRequest FiguresOf(const DeclaredVGpu& declared) {
  const std::string limit = declared.memory_limit.value_or("max");
  return {.memory_request = declared.memory_request.value_or("0"),
          .memory_limit = limit,
          .memory_max = declared.memory_max.value_or(limit),
          .memory_swap_max = declared.memory_swap_max.value_or("max"),
          .compute_request = declared.compute_request.value_or("0"),
          .compute_limit = declared.compute_limit.value_or("100"),
          .compute_weight = declared.compute_weight.value_or("100"),
          .compute_priority = declared.compute_priority.value_or("8"),
          .goal = declared.goal.value_or("none"),
          .gang = declared.gang.value_or("none"),
          .space = declared.space,
          .sm_limit = declared.sm_limit.value_or("100"),
          .sm_reserved = declared.sm_reserved,
          .sm_burst = declared.sm_burst,
          .labels = declared.labels};
}

}  // namespace

std::vector<Error> Declarations::Apply(const std::vector<DeclaredVGpu>& declared, Nanos now) {
  std::erase_if(carried_out_, [&](const auto& entry) {
    if (std::ranges::find(declared, entry.first, &DeclaredVGpu::name) != declared.end()) return false;
    log::Info("vGPU {} is not declared any more; it stays until it is removed", entry.first);
    if (VGpu* vgpu = table_.Find(entry.first)) vgpu->declared_at.clear();
    return true;
  });
  std::set<std::string> names;
  for (const DeclaredVGpu& each : declared) names.insert(each.name);
  table_.Declare(std::move(names));
  std::vector<Error> errors;
  for (const DeclaredVGpu& each : declared) {
    const auto known = carried_out_.find(each.name);
    const bool changed = known == carried_out_.end() || !known->second.SameAs(each);
    VGpu* vgpu = table_.Find(each.name);
    if (!changed && vgpu) {
      vgpu->declared_at = each.where;
      continue;
    }
    if (auto made = Make(each, now); !made) {
      errors.push_back(
          {made.error().code,
           fmt::format("{}: vGPU {} cannot be as it is declared: {}", each.where, each.name, made.error().message),
           made.error().hint});
      continue;
    }
    carried_out_.insert_or_assign(each.name, each);
  }
  return errors;
}

Result<void> Declarations::Make(const DeclaredVGpu& declared, Nanos now) {
  if (!declared.uid) return Fail(ENOENT, fmt::format("there is no user {}", declared.user), "set vgpu.NAME.user");
  VGpuRequest request = FiguresOf(declared);
  VGpu* vgpu = table_.Find(declared.name);
  if (!vgpu) {
    request.name = declared.name;
    request.gpu = declared.gpu;
    auto made = table_.Create(request, *declared.uid, now);
    if (!made) return std::unexpected(made.error());
    (*made)->declared_at = declared.where;
    return {};
  }
  if (vgpu->spec.ephemeral)
    return Fail(EEXIST, "a running program has a vGPU of that name", "reload when it has ended");
  if (vgpu->spec.uid != *declared.uid && (vgpu->joined > 0 || !vgpu->processes.empty()))
    return Fail(EBUSY, fmt::format("programs are in a vGPU of that name, which belongs to user {}", vgpu->spec.uid),
                "end them, or remove it with --force; then tessera reload");
  const uid_t before = std::exchange(vgpu->spec.uid, *declared.uid);
  auto changed = table_.Change(*vgpu, request, now);
  if (!changed) vgpu->spec.uid = before;
  if (changed) vgpu->declared_at = declared.where;
  return changed;
}

}  // namespace tessera::server

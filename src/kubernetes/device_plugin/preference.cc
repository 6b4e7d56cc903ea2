#include "kubernetes/device_plugin/preference.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "kubernetes/objects/amounts.h"

namespace tessera::kubernetes {
namespace {

struct Gpu {
  std::set<std::uint32_t> free;  // numbers of its devices that are not chosen
  std::uint32_t taken = 0;       // by others
  std::uint32_t chosen = 0;
  std::uint64_t room = 0;  // without what the chosen ones need
};

}  // namespace

std::vector<std::string> Preferred(const std::vector<std::string>& available,
                                   const std::vector<std::string>& must_include, std::size_t size,
                                   const PreferenceFacts& facts) {
  std::map<std::string, Gpu> gpus;
  for (const std::string& id : available) {
    if (const auto device = ReadId(id)) gpus[device->gpu_uuid].free.insert(device->number);
  }
  for (auto& [uuid, gpu] : gpus) {
    gpu.taken = static_cast<std::uint32_t>(Without(facts.each, gpu.free.size()));
    const auto room = facts.room.find(uuid);
    if (room != facts.room.end()) gpu.room = room->second;
  }
  std::vector<std::string> chosen;
  const auto choose = [&](Gpu& gpu, const VirtualDevice& device) {
    gpu.free.erase(device.number);
    ++gpu.chosen;
    gpu.room = Without(gpu.room, facts.need);
    chosen.push_back(IdOf(device));
  };
  for (const std::string& id : must_include) {
    if (const auto device = ReadId(id)) choose(gpus[device->gpu_uuid], *device);
  }
  while (chosen.size() < size) {
    auto best = gpus.end();
    const auto rank = [&](const auto& each) {
      const Gpu& gpu = each->second;
      return std::tuple(gpu.room < facts.need, gpu.chosen, Without(facts.each, gpu.taken), gpu.room);
    };
    for (auto each = gpus.begin(); each != gpus.end(); ++each) {
      if (!each->second.free.empty() && (best == gpus.end() || rank(each) < rank(best))) best = each;
    }
    if (best == gpus.end()) break;
    choose(best->second, {best->first, *best->second.free.begin()});
  }
  return chosen;
}

}  // namespace tessera::kubernetes

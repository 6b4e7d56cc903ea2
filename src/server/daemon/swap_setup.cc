#include "server/daemon/swap_setup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>

#include "base/size.h"
#include "server/record/log.h"
#include "server/swap/holder/swap_handover.h"
#include "wire/line.h"

namespace tessera::server {
namespace {

// The pool of one of so many GPUs.
Result<std::uint64_t> SwapFor(const std::string& setting, std::uint64_t free, std::size_t gpus) {
  auto size = ParseSize(setting.empty() ? "50%" : setting, free);
  if (!size) return size;
  return *size / std::max<std::size_t>(gpus, 1);
}

// What is prepared of that pool; none: as much as programs could need.
Result<std::optional<std::uint64_t>> PreparedFor(const std::string& setting, std::uint64_t free, std::size_t gpus) {
  if (setting.empty() || setting == "auto") return std::nullopt;
  const auto size = ParseSize(setting, free);
  if (!size) return std::unexpected(size.error());
  return *size / std::max<std::size_t>(gpus, 1);
}

// In bytes, as a mover takes it: a percentage is of the RAM that is free as the daemon starts.
Result<std::string> FloorFor(const std::string& setting, std::uint64_t free) {
  if (setting.empty()) return setting;
  const auto floor = ParseSize(setting, free);
  if (!floor) return std::unexpected(floor.error());
  return std::to_string(*floor);
}

// The file of one of so many GPUs.
Result<SwapFile> SwapFileFor(const Config& config, std::uint32_t gpu, std::size_t gpus) {
  if (config.swap_file.empty()) return SwapFile{};
  if (config.swap_size == "0")
    return Fail(EINVAL, "swap.file needs host memory, and swap.size is 0", "raise swap.size");
  const auto size = ParseSize(config.swap_file_size);
  if (!size) return std::unexpected(size.error());
  const std::uint64_t each = *size / std::max<std::size_t>(gpus, 1);
  if (each < wire::kChunkBytes)
    return Fail(EINVAL, "swap.file_size of " + FormatSize(each) + " for a GPU is less than a chunk",
                "make it " + FormatSize(wire::kChunkBytes) + " or more for each GPU");
  return MakeSwapFile(gpus > 1 ? config.swap_file + "." + std::to_string(gpu) : config.swap_file, each);
}

}  // namespace

std::uint64_t FreeRam() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(line.c_str() + 13, nullptr, 10) * kKiB;
  }
  return 0;
}

Result<SwapSetup> MakeSwapSetup(const Config& config, const SwapHost& host, const GpuInfo& info, std::uint32_t index) {
  const auto bytes = SwapFor(config.swap_size, host.free_ram, host.gpus);
  if (!bytes) return std::unexpected(bytes.error());
  auto floor = FloorFor(config.swap_floor, host.free_ram);
  if (!floor) return std::unexpected(floor.error());
  const auto prepare = PreparedFor(config.swap_prepare, host.free_ram, host.gpus);
  if (!prepare) return std::unexpected(prepare.error());
  SwapSetup setup{.bytes = *bytes, .prepare = *prepare, .floor = std::move(*floor), .soft = host.soft};
  setup.holder_path = host.run_dir + "/swap-" + FormatUuid(info.uuid) + ".sock";
  if (setup.bytes == 0) return setup;
  if (auto kept = TakeKeptSwap(setup.holder_path)) {
    log::Info("GPU {}: the swap holder kept {} of host memory of an earlier daemon", index,
              FormatSize(kept->slots.count() * wire::kChunkBytes));
    kept->slots.Fit(setup.bytes + info.memory_total);
    setup.slots = std::make_unique<SwapSlots>(std::move(kept->slots));
    setup.file = std::move(kept->file);
    setup.holder = std::move(kept->holder);
  }
  if (setup.file.bytes > 0) return setup;
  auto file = SwapFileFor(config, index, host.gpus);
  if (!file) return std::unexpected(file.error());
  setup.file = std::move(*file);
  return setup;
}

}  // namespace tessera::server

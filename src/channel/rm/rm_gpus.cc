#include "channel/rm/rm_gpus.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

// Handles in our own client; any numbers do.
constexpr std::uint32_t kDeviceHandles = 0x7e550000, kSubdeviceHandles = 0x7e560000;

std::string UuidText(const GpuUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", uuid[i]);
    text += byte;
  }
  return text;
}

Result<GpuUuid> AskUuid(RmClient& client, std::uint32_t device, std::uint32_t subdevice, std::uint32_t instance) {
  const abi::SubdeviceParams params = {.subdevice = instance};
  if (const auto made = client.Alloc(device, subdevice, abi::kSubdevice, params, "make a subdevice"); !made) {
    return std::unexpected(made.error());
  }
  abi::Uuid answer = {.flags = abi::kUuidBinary};
  if (const auto asked = client.Ask(subdevice, abi::kGetUuid, answer, "ask for a GPU's UUID"); !asked) {
    return std::unexpected(asked.error());
  }
  GpuUuid uuid;
  if (answer.bytes != uuid.size()) return Fail(EPROTO, "the NVIDIA driver reports UUIDs in an unknown form");
  std::copy_n(answer.data, uuid.size(), uuid.begin());
  return uuid;
}

// Looks at the GPU that RM calls `id`, and fills its place if it is one of `uuids`; otherwise nothing of it stays.
Result<void> Look(RmClient& client, std::uint32_t id, std::uint32_t number, const std::vector<GpuUuid>& uuids,
                  std::vector<RmGpu>& gpus) {
  abi::IdInfo info = {.gpu = id};
  if (auto asked = client.Ask(client.handle(), abi::kGetIdInfo, info, "look at a GPU"); !asked) return asked;
  const std::uint32_t device = kDeviceHandles + number, subdevice = kSubdeviceHandles + number;
  const abi::DeviceParams params = {.device = info.device};
  if (auto made = client.Alloc(client.handle(), device, abi::kDevice, params, "make a device"); !made) return made;
  const auto uuid = AskUuid(client, device, subdevice, info.subdevice);
  const auto found = uuid ? std::ranges::find(uuids, *uuid) : uuids.end();
  if (found == uuids.end()) {
    client.Free(client.handle(), device);
    if (!uuid) return std::unexpected(uuid.error());
    return {};
  }
  gpus[static_cast<std::size_t>(found - uuids.begin())] = {info.device, subdevice};
  return {};
}

}  // namespace

Result<std::vector<RmGpu>> FindGpus(RmClient& client, const std::vector<GpuUuid>& uuids) {
  abi::AttachedIds ids;
  std::ranges::fill(ids.gpu, abi::kNoGpu);
  if (const auto asked = client.Ask(client.handle(), abi::kGetAttachedIds, ids, "list the GPUs"); !asked) {
    return std::unexpected(asked.error());
  }
  std::vector<RmGpu> gpus(uuids.size());
  // A container may not use all GPUs that RM lists: what fails matters only if a GPU is missing in the end.
  std::string trouble;
  for (std::uint32_t i = 0; i < abi::kMostGpus && ids.gpu[i] != abi::kNoGpu; ++i) {
    const auto looked = Look(client, ids.gpu[i], i, uuids, gpus);
    if (!looked && trouble.empty()) trouble = " (" + looked.error().message + ")";
  }
  const auto missing = std::ranges::find(gpus, 0u, &RmGpu::subdevice);
  if (missing == gpus.end()) return gpus;
  const GpuUuid& uuid = uuids[static_cast<std::size_t>(missing - gpus.begin())];
  return Fail(ENODEV, "/dev/nvidiactl does not lead to " + UuidText(uuid) + trouble);
}

}  // namespace tessera::channel

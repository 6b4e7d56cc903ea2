#include "channel/testing/fake_rm.h"

#include <sys/ioctl.h>

#include <algorithm>

namespace tessera::channel {

class FakeRm::File : public RmFile {
 public:
  // `own` files end their clients when they are closed; borrowed ones do not.
  File(FakeRm& rm, int number, bool own) : rm_(rm), number_(number), own_(own) { ++rm_.open_files_; }
  ~File() override {
    --rm_.open_files_;
    if (own_) rm_.FileClosed(number_);
  }

  Result<void> Call(unsigned long request, void* argument) override {
    if (_IOC_TYPE(request) != abi::kIoctlType) return Fail(ENOTTY, "not a request to RM");
    if (_IOC_NR(request) == abi::kAlloc && _IOC_SIZE(request) == sizeof(abi::Alloc)) {
      auto& alloc = *static_cast<abi::Alloc*>(argument);
      alloc.status = rm_.Alloc(number_, alloc);
    } else if (_IOC_NR(request) == abi::kControl && _IOC_SIZE(request) == sizeof(abi::Control)) {
      auto& control = *static_cast<abi::Control*>(argument);
      control.status = rm_.Control(number_, control);
    } else if (_IOC_NR(request) == abi::kFree && _IOC_SIZE(request) == sizeof(abi::Free)) {
      rm_.Free(number_, *static_cast<abi::Free*>(argument));
    } else {
      return Fail(ENOTTY, "no such request");
    }
    return {};
  }

 private:
  FakeRm& rm_;
  const int number_;
  const bool own_;
};

class FakeRm::Machine : public RmSystem {
 public:
  explicit Machine(FakeRm& rm) : rm_(rm) {}
  Result<std::unique_ptr<RmFile>> OpenControl() override { return std::make_unique<File>(rm_, rm_.next_file_++, true); }
  Result<void> AttachGpus() override {
    if (rm_.gpus_.empty()) return Fail(ENODEV, "no GPU");
    rm_.attached_ = true;
    return {};
  }
  Result<std::unique_ptr<RmFile>> Borrow(int process, int fd) override {
    if (!rm_.processes_.contains(process)) return Fail(ESRCH, "no such process");
    if (!rm_.may_borrow_) return Fail(EPERM, "borrow: Operation not permitted");
    const auto found = rm_.descriptors_.find({process, fd});
    if (found == rm_.descriptors_.end()) return Fail(EBADF, "no such descriptor");
    return std::make_unique<File>(rm_, found->second, false);
  }

 private:
  FakeRm& rm_;
};

std::unique_ptr<RmSystem> FakeRm::System() { return std::make_unique<Machine>(*this); }

Group FakeRm::MakeGroup(int process, int fd, std::uint32_t client, std::uint32_t handle, std::uint32_t engine,
                        std::uint32_t gpu, std::vector<std::uint32_t> channels) {
  processes_.insert(process);
  const auto [file, made] = descriptors_.try_emplace({process, fd}, next_file_);
  if (made) ++next_file_;
  clients_[client] = file->second;
  if (handle != 0) slices_[{client, handle}] = 2048;
  for (const std::uint32_t channel : channels) channels_[{client, channel}] = {.gpu = gpu};
  return {.fd = fd, .client = client, .handle = handle, .engine = engine, .channels = std::move(channels)};
}

void FakeRm::EndProcess(int process) {
  processes_.erase(process);
  std::vector<int> fds;
  for (const auto& [key, file] : descriptors_) {
    if (key.first == process) fds.push_back(key.second);
  }
  for (const int fd : fds) CloseFile(process, fd);
}

void FakeRm::CloseFile(int process, int fd) {
  FileClosed(descriptors_.at({process, fd}));
  descriptors_.erase({process, fd});
}

void FakeRm::FileClosed(int file) {
  std::erase_if(clients_, [&](const auto& client) { return client.second == file; });
  const auto orphaned = [&](const auto& entry) { return !clients_.contains(entry.first.first); };
  std::erase_if(objects_, orphaned);
  std::erase_if(channels_, orphaned);
  std::erase_if(slices_, orphaned);
}

std::uint32_t FakeRm::Alloc(int file, abi::Alloc& request) {
  if (abi::IsRoot(request.cls)) {
    request.object = next_client_++;
    clients_[request.object] = file;
    return abi::kOk;
  }
  const auto client = clients_.find(request.root);
  if (client == clients_.end() || client->second != file) return abi::kInvalidClient;
  if (request.cls == abi::kDevice) {
    const auto& params = *reinterpret_cast<const abi::DeviceParams*>(request.params);
    if (request.params_bytes != sizeof params || request.parent != request.root) return abi::kInvalidArgument;
    const auto gpu = std::ranges::find(gpus_, params.device, &FakeGpu::device);
    if (!attached_ || gpu == gpus_.end()) return abi::kInvalidArgument;
    if (!gpu->allowed) return abi::kInsufficientPermissions;
    objects_[{request.root, request.object}] = {abi::kDevice, request.root,
                                                static_cast<std::size_t>(gpu - gpus_.begin())};
    return abi::kOk;
  }
  const auto parent = objects_.find({request.root, request.parent});
  if (request.cls != abi::kSubdevice || parent == objects_.end()) return abi::kInvalidObjectParent;
  const auto& params = *reinterpret_cast<const abi::SubdeviceParams*>(request.params);
  if (params.subdevice != gpus_[parent->second.gpu].subdevice) return abi::kInvalidArgument;
  objects_[{request.root, request.object}] = {abi::kSubdevice, request.parent, parent->second.gpu};
  return abi::kOk;
}

void FakeRm::Free(int file, abi::Free& request) {
  const auto client = clients_.find(request.root);
  request.status = abi::kInvalidClient;
  if (client == clients_.end() || client->second != file) return;
  request.status = objects_.erase({request.root, request.object}) == 1 ? abi::kOk : abi::kObjectNotFound;
  std::erase_if(objects_, [&](const auto& entry) {
    return entry.first.first == request.root && entry.second.parent == request.object;
  });
}

std::uint32_t FakeRm::Control(int file, const abi::Control& request) {
  const auto client = clients_.find(request.client);
  if (client == clients_.end() || client->second != file) return abi::kInvalidClient;
  void* const params = reinterpret_cast<void*>(request.params);
  const auto object = objects_.find({request.client, request.object});
  const auto group = slices_.find({request.client, request.object});
  const bool subdevice = object != objects_.end() && object->second.cls == abi::kSubdevice;
  switch (request.command) {
    case abi::kGetAttachedIds:
      if (request.object != request.client || request.params_bytes != sizeof(abi::AttachedIds)) break;
      for (std::size_t i = 0; i < abi::kMostGpus; ++i) {
        static_cast<abi::AttachedIds*>(params)->gpu[i] = attached_ && i < gpus_.size() ? gpus_[i].id : abi::kNoGpu;
      }
      return abi::kOk;
    case abi::kGetIdInfo: {
      if (request.object != request.client || request.params_bytes != sizeof(abi::IdInfo)) break;
      auto& info = *static_cast<abi::IdInfo*>(params);
      const auto gpu = std::ranges::find(gpus_, info.gpu, &FakeGpu::id);
      if (gpu == gpus_.end()) break;
      info.device = gpu->device;
      info.subdevice = gpu->subdevice;
      return abi::kOk;
    }
    case abi::kGetUuid: {
      if (!subdevice || request.params_bytes != sizeof(abi::Uuid)) break;
      auto& uuid = *static_cast<abi::Uuid*>(params);
      if (uuid.index != 0 || uuid.flags != abi::kUuidBinary) break;
      uuid.bytes = 16;
      std::ranges::copy(gpus_[object->second.gpu].uuid, uuid.data);
      return abi::kOk;
    }
    case abi::kDisableChannels:
      if (!subdevice || request.params_bytes != sizeof(abi::DisableChannels)) break;
      return Disable(object->second, *static_cast<const abi::DisableChannels*>(params));
    case abi::kGroupSetSlice:
    case abi::kGroupGetSlice: {
      if (group == slices_.end()) return abi::kObjectNotFound;
      if (request.params_bytes != sizeof(std::uint64_t)) break;
      auto& microseconds = *static_cast<std::uint64_t*>(params);
      if (request.command == abi::kGroupGetSlice) {
        microseconds = group->second;
      } else {
        group->second = microseconds;
      }
      return abi::kOk;
    }
    default:
      return abi::kNotSupported;
  }
  return abi::kInvalidArgument;
}

std::uint32_t FakeRm::Disable(const Object& subdevice, const abi::DisableChannels& request) {
  disable_calls_.push_back(request.channels);
  if (request.channels == 0 || request.channels > abi::kMostChannels || request.preempt_event != 0) {
    return abi::kInvalidArgument;
  }
  // Handles before the one that is refused are done.
  for (std::uint32_t i = 0; i < request.channels; ++i) {
    const Handle handle = {request.client[i], request.channel[i]};
    if (const auto broken = broken_.find(handle); broken != broken_.end() && broken->second != abi::kOk) {
      return broken->second;
    }
    if (!clients_.contains(handle.first)) return abi::kInvalidClient;
    const auto channel = channels_.find(handle);
    if (channel == channels_.end() || channel->second.gpu != gpus_[subdevice.gpu].device) return abi::kInvalidChannel;
    unsigned& disabled = channel->second.disabled;
    disabled = request.disable != 0 ? disabled + 1 : disabled - std::min(disabled, 1u);
  }
  return abi::kOk;
}

}  // namespace tessera::channel

#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>

#include "mover/pool/gpu.h"
#include "wire/line.h"

namespace tessera::mover {

// A GPU without content, whose copies end when the test says so. Counts what exists.
class FakeGpu : public Gpu {
 public:
  std::atomic<int> hosts = 0;  // pinned host memory that is mapped
  std::atomic<int> freed = 0;  // of it, in all
  std::atomic<int> hosts_left = 1000;
  int windows = 0;
  int import_error = 0;  // errno value
  int reach_error = 0;   // likewise
  bool copies_end = true;
  bool copies_fail = false;
  int copies = 0;
  std::atomic<int> disk_moves = 0;  // that the disk's thread has begun
  std::atomic<bool> disk_waits = false;

  Result<HostMemory> MakeHost() override {
    if (hosts_left-- <= 0) return Fail(ENOMEM, "no memory");
    HostMemory memory = {.fd = UniqueFd(memfd_create("fake", MFD_CLOEXEC))};
    Map(memory);
    return memory;
  }
  void FreeHost(HostMemory memory) override {
    if (memory.address == 0) return;
    --hosts;
    ++freed;
    ++hosts_left;
  }
  Result<void> Reach(HostMemory& memory) override {
    if (memory.address != 0) return {};
    if (reach_error != 0) return Fail(reach_error, "no import");
    Map(memory);
    return {};
  }
  Result<std::span<std::byte>> BytesOf(HostMemory& memory) override {
    if (const auto reached = Reach(memory); !reached) return std::unexpected(reached.error());
    ++disk_moves;
    disk_waits.wait(true);
    return std::span(bytes_);
  }
  void LetDiskGoOn() {
    disk_waits = false;
    disk_waits.notify_all();
  }
  Result<std::unique_ptr<Window>> Import(On, std::span<const UniqueFd>, std::span<const ChunkPart> parts) override {
    if (import_error != 0) return Fail(import_error, "no import");
    return std::make_unique<FakeWindow>(*this, static_cast<std::uint32_t>(parts.size()));
  }
  Result<void> StartCopy(Direction, Window&, std::span<const HostMemory* const>) override {
    ++copies;
    return {};
  }
  Result<bool> Copied(const Window&) override {
    if (copies_fail) return Fail(EIO, "copy memory: CUDA_ERROR_LAUNCH_FAILED");
    return copies_end;
  }

 private:
  struct FakeWindow : Window {
    FakeWindow(FakeGpu& owner, std::uint32_t count) : gpu(owner), number(count) { ++gpu.windows; }
    ~FakeWindow() override { --gpu.windows; }
    std::uint32_t chunks() const override { return number; }
    FakeGpu& gpu;
    std::uint32_t number;
  };
  std::vector<std::byte> bytes_ = std::vector<std::byte>(wire::kChunkBytes);  // of all host memory
  void Map(HostMemory& memory) {
    ++hosts;
    memory.address = 1;
  }
};

}  // namespace tessera::mover

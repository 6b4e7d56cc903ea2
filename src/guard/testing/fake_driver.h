#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// A resource manager for the gate's tests. Its files are memfds of a certain size, so that programs may open them
// without a driver; what they ask of them by themselves fails with ENOTTY, which tells a test that a call passed.
// A client belongs to the file that first names it. Any thread.
class FakeDriver : public KernelBoundary {
 public:
  static constexpr std::uint64_t kGranularity = 2 << 20;

  // An open control or device file; for any process.
  static int Open(File kind = File::kControl);

  File Kind(const struct stat& file) const override;
  int Execute(int file, std::uint64_t request, void* argument) override;

  std::uint64_t BytesInUse() const;
  std::uint64_t MostBytesInUse() const;
  std::size_t Objects() const;
  std::size_t ChannelsStopped() const;
  // Allocations fail with this status from now on; 0: they do not.
  void FailAllocations(std::uint32_t status);

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  struct Object {
    std::uint32_t parent = 0;
    std::uint64_t memory = 0;
  };
  bool OwnedBy(std::uint32_t client, int file);
  std::uint32_t Insert(std::uint32_t client, std::uint32_t parent, std::uint32_t* object, std::uint64_t memory);
  void Erase(const Key& key);
  void Free(std::uint32_t client, std::uint32_t object);
  template <typename Struct>
  void Alloc(Struct& request, int file);
  void Dup(void* argument, int file);
  void Heap(void* argument, int file);
  void Control(void* argument, int file);

  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> clients_;  // inode of the file
  std::map<Key, Object> objects_;
  struct Memory {
    std::uint64_t bytes = 0;
    int handles = 0;
  };
  std::map<std::uint64_t, Memory> memories_;
  std::uint64_t last_memory_ = 0, most_ = 0;
  std::uint32_t next_handle_ = 0xd0000000, fail_with_ = 0;
  std::size_t stopped_ = 0;
};

}  // namespace tessera::guard

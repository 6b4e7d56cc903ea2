#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// A resource manager for the gate's tests. Its files are memfds of a certain size, so that programs may open them
// without a driver; what they ask of them by themselves fails with ENOTTY, which tells a test that a call passed.
// A client belongs to the file that first names it. Any thread.
class FakeDriver : public KernelBoundary {
 public:
  static constexpr std::uint64_t kGranularity = 2 << 20;

  // An open file of this kind; for any process.
  static int Open(File kind = File::kControl);

  File Kind(const struct stat& file) const override;
  int Execute(int file, std::uint64_t request, void* argument) override;

  std::uint64_t BytesInUse() const;
  std::uint64_t MostBytesInUse() const;
  std::size_t Objects() const;
  std::size_t ChannelsStopped() const;
  // Allocations fail with this status from now on; 0: they do not.
  void FailAllocations(std::uint32_t status);
  // Parameters of memory have so many bytes from now on, as some driver's; of others allocations are invalid. It adds 1
  // to the last word of them.
  void SetMemoryParams(std::uint32_t bytes);

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  struct Object {
    std::uint32_t parent = 0;
    std::uint64_t memory = 0;
  };
  bool OwnedBy(std::uint32_t client, int file) TESSERA_REQUIRES(mutex_);
  std::uint32_t Insert(std::uint32_t client, std::uint32_t parent, std::uint32_t* object, std::uint64_t memory)
      TESSERA_REQUIRES(mutex_);
  void Erase(const Key& key) TESSERA_REQUIRES(mutex_);
  void Free(std::uint32_t client, std::uint32_t object) TESSERA_REQUIRES(mutex_);
  template <typename Struct>
  void Alloc(Struct& request, int file) TESSERA_REQUIRES(mutex_);
  void Dup(void* argument, int file) TESSERA_REQUIRES(mutex_);
  void Heap(void* argument, int file) TESSERA_REQUIRES(mutex_);
  void Control(void* argument, int file) TESSERA_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> clients_ TESSERA_GUARDED_BY(mutex_);  // inode of the file
  std::map<Key, Object> objects_ TESSERA_GUARDED_BY(mutex_);
  struct Memory {
    std::uint64_t bytes = 0;
    int handles = 0;
  };
  std::map<std::uint64_t, Memory> memories_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t last_memory_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t most_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint32_t next_handle_ TESSERA_GUARDED_BY(mutex_) = 0xd0000000;
  std::uint32_t fail_with_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint32_t memory_params_ TESSERA_GUARDED_BY(mutex_) = 0;  // 0: any
  std::size_t stopped_ TESSERA_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::guard

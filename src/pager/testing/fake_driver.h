// A driver's virtual memory for tests of the pager: memory with handles, mapped at addresses, shared by descriptors. It
// checks every call, and remembers what was wrong; memory has words in it, so that a test sees whether copies are
// right.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "pager/chunks/driver.h"

namespace tessera::pager {

// Thread-safe. The driver's functions have no object of theirs, so one at a time may exist.
class FakeDriver {
 public:
  using Words = std::map<std::uint64_t, std::uint64_t>;  // by offset; others are 0

  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;

  const Driver& Functions() const;

  // The calls that may fail are counted from 1 on; this one, and `times` - 1 after it, fail. Those are Create, Map,
  // SetAccess, Export and Import.
  void FailCall(std::uint64_t number, std::uint64_t times = 1);
  std::uint64_t Calls() const;
  // GPU memory beyond this is refused.
  void SetCapacity(std::uint64_t bytes);

  // Called before anything is unmapped; it must not call the driver.
  void OnUnmap(std::function<void()> look) { on_unmap_ = std::move(look); }

  // The faults of calls so far.
  std::vector<std::string> Complaints() const;
  std::uint64_t Handles() const;
  std::uint64_t Mappings() const;
  std::uint64_t DeviceBytes() const;

  // Whether a kernel on each of `devices` may use the address; what it finds there.
  bool Valid(cuda::CUdeviceptr address, const std::set<cuda::CUdevice>& devices = {0}) const;
  void Write(cuda::CUdeviceptr address, std::uint64_t word);
  std::uint64_t Read(cuda::CUdeviceptr address) const;

  // The mover's memory: memory of its own, which lives until it drops it, and what others gave it.
  Driver::Handle MakeForMover(std::uint64_t bytes, bool host, const Words& words, UniqueFd* fd);
  Driver::Handle ImportForMover(const UniqueFd& fd);
  void DropForMover(Driver::Handle handle);
  Words WordsOf(const UniqueFd& fd) const;
  Words WordsOf(Driver::Handle handle) const;
  // The copy of a mover to the memory behind this descriptor.
  void SetWords(const UniqueFd& fd, const Words& words);

 private:
  // Lives while it has a handle or a mapping. (Or a descriptor, which is not looked after: host memory that has had one
  // lives as long as the driver.)
  struct Memory {
    std::uint64_t id = 0, bytes = 0;
    bool host = false;
    int handles = 0, mappings = 0;
    Words words;
    UniqueFd file;  // has its id in it; what is exported are duplicates
  };
  struct Mapping {
    std::uint64_t bytes = 0;
    Memory* memory = nullptr;
    std::set<cuda::CUdevice> access;
  };
  struct Calls_;  // the functions

  cuda::CUresult Complain(const std::string& what) TESSERA_REQUIRES(mutex_);
  bool Fails() TESSERA_REQUIRES(mutex_);
  Memory* MemoryOf(Driver::Handle handle) const TESSERA_REQUIRES(mutex_);
  Memory* MemoryOf(int fd) const TESSERA_REQUIRES(mutex_);
  Driver::Handle HandleOf(Memory& memory, bool imported = false) TESSERA_REQUIRES(mutex_);
  UniqueFd FileOf(Memory& memory) TESSERA_REQUIRES(mutex_);
  void ReleaseIfUnused(Memory& memory) TESSERA_REQUIRES(mutex_);
  std::map<cuda::CUdeviceptr, Mapping>::const_iterator Around(cuda::CUdeviceptr address) const TESSERA_REQUIRES(mutex_);

  std::function<void()> on_unmap_;  // set before other threads exist
  mutable Mutex mutex_;
  std::uint64_t calls_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t fail_from_ TESSERA_GUARDED_BY(mutex_) = 0, fail_to_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t capacity_ TESSERA_GUARDED_BY(mutex_) = UINT64_MAX, device_bytes_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ TESSERA_GUARDED_BY(mutex_) = 1;
  cuda::CUdeviceptr next_address_ TESSERA_GUARDED_BY(mutex_) = 1ull << 40;
  std::vector<std::string> complaints_ TESSERA_GUARDED_BY(mutex_);
  std::map<cuda::CUdeviceptr, std::uint64_t> reserved_ TESSERA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::unique_ptr<Memory>> memories_ TESSERA_GUARDED_BY(mutex_);
  std::map<Driver::Handle, Memory*> handles_ TESSERA_GUARDED_BY(mutex_);
  std::set<Driver::Handle> imported_ TESSERA_GUARDED_BY(mutex_);  // of them: these cannot be exported
  std::map<cuda::CUdeviceptr, Mapping> mappings_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::pager

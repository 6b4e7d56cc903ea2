// A GPU that this process uses under its vGPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/fork_mutex.h"
#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "shim/device/pacer.h"
#include "shim/gate/gate_keeper.h"
#include "shim/gate/host_memory.h"
#include "shim/memory/memory_account.h"
#include "shim/memory/paging.h"
#include "shim/memory/room_account.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/followed_page.h"
#include "shim/use/operands.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The attachment of a GPU: the page that the daemon made for it, the gates of its contexts, the accounts of its memory,
// and the threads that look after them. Never destroyed. Any thread.
//
// Lock order, from the first that is taken to the last: `primary`, LegacyOrder's, DaemonWatch's, GateKeeper's,
// Paging's, the exports', the heap's, FollowedPage::holding, RoomAccount's report, Session's.
class Attachment final : private DaemonFollower {
 public:
  static constexpr int kMaxDevices = 64;

  // The attachment of a device, made at its first use; null where the process is not managed or the daemon refused.
  static Attachment* Of(cuda::CUdevice device);
  // Calls `visit` for each attachment that exists.
  template <typename Visit>
  static void ForEach(Visit&& visit);

  GateKeeper& Gates() { return gates_; }
  MemoryAccount& Memory() { return memory_; }
  RoomAccount& Room() { return room_; }
  // Where memory is allocated so that it can be moved; null where it is not.
  Paging* Pager() const { return paging_; }

  cuda::CUdevice Device() const { return device_; }
  std::uint32_t Gpu() const { return page_.Gpu(); }  // as the daemon counts
  wire::Page* Page() const { return page_.Get(); }
  const FollowedPage& Followed() const { return page_; }

  // Held between a look at the state of the device's primary context and the call that may change it.
  ForkMutex primary;
  int primary_uses TESSERA_GUARDED_BY(primary) = 0;  // how often the program has retained it

  // A submission is about to be made: notes which memory it uses.
  void NoteUse(const GatedCall& call);

  // Waits until the program may use all its memory on all GPUs, unless the process ends or its vGPU is gone: while
  // memory is moved, some has no address. Tells the daemon that a thread waits.
  void AwaitMemory();
  // The process ends: the attachment's threads no longer use the driver.
  void Stop();
  void AbandonAfterFork();

 private:
  enum class Attaching { kDone, kRefused, kGone };  // kGone: no daemon answered, a later try may do better

  Attachment(cuda::CUdevice device, wire::Uuid uuid) : device_(device), uuid_(uuid) {}
  static Attachment* Make(cuda::CUdevice device);
  // Asks the daemon for the page, and tells it what the process already holds. `line` becomes the line to the mover
  // where memory may be swapped. Not analysed: clang cannot know that the page of the accounts is page_.
  Attaching Attach(UniqueFd* line, bool works) TESSERA_NO_THREAD_SAFETY_ANALYSIS;
  void Report();
  wire::Uuid UuidNow() const;

  void Retreat() override;
  bool Reattach() override;
  bool Safe() const override { return !paging_ || paging_->Safe(); }
  void Reattached() override {}
  void GoOnAlone(bool block) override;

  static std::atomic<Attachment*> all_[kMaxDevices];

  const cuda::CUdevice device_;
  const wire::Uuid uuid_;
  std::uint64_t gpu_bytes_ = 0;  // as the first daemon said
  std::string vgpu_;             // its name, as the last one said
  FollowedPage page_;
  HostMemory host_;
  GateKeeper gates_{page_, host_};
  MemoryAccount memory_{page_};
  RoomAccount room_{page_, memory_, host_};
  Pacer pacer_{page_, gates_, room_, device_};
  Paging* paging_ = nullptr;  // constant once the attachment can be found
};

template <typename Visit>
void Attachment::ForEach(Visit&& visit) {
  for (auto& slot : all_)
    if (Attachment* attachment = slot.load(std::memory_order_acquire)) visit(*attachment);
}

}  // namespace tessera::shim

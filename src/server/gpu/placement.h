#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/config/config.h"
#include "server/devices/gpu_driver.h"
#include "server/gpu/freezes.h"
#include "server/handover/slot_handover.h"
#include "server/loop/event_loop.h"
#include "server/memory/memory_server.h"
#include "server/memory/pinned.h"
#include "server/model/vgpu.h"
#include "server/suspended/suspended_files.h"
#include "server/swap/holder/swap_holder_link.h"
#include "server/swap/left_here.h"
#include "server/swap/residency_server.h"
#include "server/swap/survivors.h"
#include "server/swap/swap_file.h"
#include "server/swap/swap_slots.h"
#include "server/time/time_control.h"

namespace tessera::server {

class GangServer;
class Peers;

// The host memory, and the file, that hold what does not fit on a GPU.
struct SwapSetup {
  std::uint64_t bytes = 0;                   // of host memory; 0: memory is not swapped
  std::optional<std::uint64_t> prepare = 0;  // of that, as SwapSize says
  std::string floor;                         // host memory that stays free, bytes; empty: the mover's default
  bool soft = false;                         // the GPU is a soft one
  SwapFile file;                             // may hold more, if it has bytes
  std::unique_ptr<SwapSlots> slots;          // the memory of an earlier daemon's programs, if there is any
  std::string holder_path;                   // the name of the swap holder's socket
  UniqueFd holder;                           // the socket to the holder that has it

  // Bytes of one vGPU that may be out while it runs: nothing in the file, and the last chunk of the pool is for memory
  // that comes back from there.
  std::uint64_t RunnableOut() const;
  SwapSize Size() const;
};

// Knows where the memory of one GPU's processes lies, and has the residency server that moves it if there is swap. Runs
// on the loop's thread.
class Placement {
 public:
  // The rest of the GPU, which outlives the placement.
  struct Host {
    std::uint32_t gpu = 0;
    const GpuInfo& info;
    const std::vector<VGpu*>& vgpus;
    ChannelServer& channels;
    MemoryServer& memory;
    TimeControl& time;
    Freezes& freezes;
    const Survivors& survivors;
    std::function<std::uint64_t()> unmanaged;  // bytes on the GPU that belong to no vGPU
    std::function<void()> looked = [] {};      // as GpuServer::Hooks::memory_looked
  };
  Placement(EventLoop& loop, const Config& config, SwapSetup swap, Host host);
  Placement(const Placement&) = delete;

  bool Swaps() const { return residency_ != nullptr; }
  ResidencyServer& Residency() { return *residency_; }  // requires Swaps()
  const ResidencyServer& Residency() const { return *residency_; }

  // Its part in a handover of slots; none before a mover was started, or where nothing is swapped.
  std::optional<SlotHandover::Side> HandoverSide() {
    if (!residency_ || !swap_.slots || !holder_) return {};
    return SlotHandover::Side{residency_->Link(), *swap_.slots, *holder_};
  }

  // Bytes of the GPU that programs may have, contexts included.
  std::uint64_t RoomCapacity() const;
  // Of these, what no program has, and is held for none.
  std::uint64_t FreeRoom() const;
  // So many of them are held for what comes with this program, which is not here yet; 0: no longer.
  void Hold(pid_t pid, std::uint64_t bytes);
  const LeftHere& Left() const { return left_; }
  // Bytes of a process that are not counted as room: contexts, and memory that only the device knows of. Of a process
  // without a shim that is all.
  static std::uint64_t Outside(const Process& process);
  // Bytes of the process on the GPU, and those of them that cannot be moved; contexts are both.
  std::uint64_t ResidentBytes(const Process& process) const;
  std::uint64_t PinnedBytes(const Process& process) const { return PinnedTotalsOf(process).Sum(); }
  PinnedTotals PinnedTotalsOf(const Process& process) const;

  // Brings a process's, or all of a vGPU's memory out until `keep` bytes of it are left on the GPU. It comes back when
  // it is used. ENOSYS where nothing is swapped.
  Result<void> Evict(Process& process, std::uint64_t keep, Nanos now);
  Result<void> Evict(VGpu& vgpu, std::uint64_t keep, Nanos now);

  // Memory of a process is moved while its peers stand still. They outlive the placement.
  void Heed(const Peers& peers) { peers_ = &peers; }
  // It is told of each look at where memory lies. It outlives the placement.
  void Heed(GangServer& gangs) { gangs_ = &gangs; }
  // Of processes that are suspended to a file it finds the file there, and it is told of memory that programs leave in
  // place, of all GPUs. They outlive the placement.
  void Heed(SuspendedFiles& files, LeftMemory& left);
  // Whether nothing of the process itself can execute: its channels are frozen, or its work has drained.
  bool Still(const Process& process) const;

 private:
  std::uint64_t Held() const;
  ResidencyServer::Host ResidencyHost();
  Result<std::unique_ptr<Mover>> MakeMover(std::function<void(const wire::MoverMessage*)> on_message);
  void MakeHolderLink();

  EventLoop& loop_;
  SwapSetup swap_;
  const Host host_;
  const Peers* peers_ = nullptr;  // null: there is one GPU
  GangServer* gangs_ = nullptr;   // likewise
  SuspendedFiles* suspended_files_ = nullptr;
  LeftHere left_;
  LeftMemory* left_memory_ = nullptr;
  bool mover_started_ = false;
  std::map<pid_t, std::uint64_t> held_;         // bytes
  std::unique_ptr<SwapHolderLink> holder_;      // null: nothing was swapped yet
  std::unique_ptr<ResidencyServer> residency_;  // null: memory is not swapped
};

}  // namespace tessera::server

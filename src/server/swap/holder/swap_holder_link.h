#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "server/loop/event_loop.h"
#include "server/loop/packet_queue.h"
#include "server/swap/swap_file.h"
#include "server/swap/swap_slots.h"
#include "wire/swap_holder.h"

namespace tessera::server {

// The daemon's line to the swap holder of one GPU (mover/holder/swap_holder.h), the process that holds the swap pool
// for the next daemon. Starts one, starts another when it ends, and gives it all that the daemon has. Without a holder,
// because none can be started, all else works on. On the loop's thread.
class SwapHolderLink {
 public:
  // `path`: of the holder's socket. `holder`: the socket to the holder of an earlier daemon, which has given what
  // `slots` and `file` have; empty if there is none. The loop, `slots` and `file` outlive the object.
  SwapHolderLink(EventLoop& loop, std::uint32_t gpu, std::string path, SwapSlots& slots, const SwapFile& file,
                 UniqueFd holder);
  SwapHolderLink(const SwapHolderLink&) = delete;

  // Starts a holder if there is none. Not again at once if that failed a moment ago.
  void Ensure();
  // This mover works from now on: the next daemon waits for its end. `kept` is called with the number of each slot of
  // its that programs may have from then on: the holder has it, or cannot get it, which the log says. It may be called
  // within Keep.
  void SetMover(pid_t mover, std::function<void(std::uint64_t)> kept);
  // It tells of no more slots.
  void ForgetMover() { kept_ = nullptr; }
  // A slot that the mover has made.
  void Keep(std::uint64_t number, UniqueFd memory);
  // One of this GPU's memory, in which this program leaves what it has there.
  void KeepLeft(std::uint64_t number, pid_t owner, UniqueFd memory);
  // One that it has freed.
  void Forget(std::uint64_t number);

 private:
  Result<void> Start();
  bool Attach(UniqueFd socket);
  void GiveTables();
  void GiveSlots();
  bool Give(wire::SwapHolderType type, std::uint64_t number = 0, int fd = -1, PacketQueue::Done done = {});
  void NoteGiven(int error);
  void Kept(std::uint64_t number) const;
  void Lost();
  void LookWhetherItReads();

  EventLoop& loop_;
  const std::uint32_t gpu_;
  const std::string path_;
  SwapSlots& slots_;
  const SwapFile& file_;
  UniqueFd mover_;  // a pidfd; empty: none has worked
  std::function<void(std::uint64_t)> kept_;
  UniqueFd socket_;  // empty: there is no holder
  std::unique_ptr<PacketQueue> queue_;
  EventLoop::Watch watch_;
  EventLoop::Deferred lost_;
  EventLoop::Timer again_;       // when the next one may be started
  EventLoop::Timer stuck_;       // when it is looked whether it still reads
  Nanos next_start_ = 0;         // no holder is started before
  bool started_before_ = false;  // a fault that was asked for (base/fault.h) has been had
  bool full_told_ = false;       // that not all slots can be kept
  bool lacks_told_ = false;      // that the holder lacks some
  std::vector<pid_t> children_;  // holders that this process started, until they were waited for
};

}  // namespace tessera::server

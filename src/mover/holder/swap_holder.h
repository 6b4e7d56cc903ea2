#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "wire/swap_holder.h"

namespace tessera::mover {

// Holds the swap pool of one GPU: its slots, its file and the tables of both, as descriptors. So what programs have
// there outlives daemon and mover, whichever of them dies, and in whatever order. A process of its own
// (tessera-swap-holder), which uses no GPU and reads nothing but the tables. One thread.
//
// A daemon connects, gets all if it asks for it, and tells of what comes and goes. After its end the holder waits for
// the next one: as long as its mover lives or a living program has something in the pool or the file, and for 60 s at
// most.
class SwapHolder {
 public:
  // `listener`: the socket at which daemons connect, whose name is `path`; it is removed at the end. Not if another
  // holder has the name by then.
  SwapHolder(UniqueFd listener, std::string path);

  // Until nobody needs it.
  void Run();

  // One turn, which waits at most `most` for something to happen. False: nobody needs it any more.
  bool RunOnce(Nanos most);

 private:
  // How long a daemon may take to connect to its new holder.
  static constexpr Nanos kFirstPatience = 10 * kSecond;
  static constexpr Nanos kKeepFor = 60 * kSecond;

  bool HasName() const;
  bool IsNeeded() const;
  void Accept();
  void ReadDaemon();
  void OnMessage(const wire::SwapHolderMessage& message, UniqueFd fd);
  bool GiveAll();
  void DaemonEnded();

  UniqueFd listener_;
  const std::string path_;
  dev_t device_ = 0;                               // of the name when the holder began,
  ino_t name_ = 0;                                 // and its file
  UniqueFd daemon_;                                // empty: none is there
  Nanos until_ = MonotonicNow() + kFirstPatience;  // without a daemon: it stays until then at most
  bool had_daemon_ = false;

  std::uint64_t version_ = 0;  // of what it holds
  UniqueFd slots_table_, file_, file_table_;
  std::map<std::uint64_t, UniqueFd> slots_;  // by number
  UniqueFd mover_;                           // a pidfd; empty: there is none
};

}  // namespace tessera::mover

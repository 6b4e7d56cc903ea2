#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace tessera::face {

// Connections whose request has not come yet. One thread looks at all of them, so that clients which say nothing, or
// speak slowly, hold up nobody: a connection goes on to be served when the head of its request is there, or nothing
// more will come, and is closed when that takes too long, or when its peer leaves without a word. Where there is no
// room for one more, the one that has been silent longest is closed. Any thread.
class WaitingRoom {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Nanos kLongest = 10 * kSecond;

  // `take` gets the connections that go on, with nothing read from them; on the thread that added one, or on the
  // room's. It does not wait.
  using Take = std::function<void(UniqueFd)>;
  explicit WaitingRoom(Take take);
  // Closes those that wait.
  ~WaitingRoom();
  WaitingRoom(const WaitingRoom&) = delete;

  // `socket` is non-blocking.
  void Add(UniqueFd socket);

 private:
  struct Guest {
    UniqueFd socket;
    Nanos until = 0;
  };
  void Run();
  void Look(std::uint64_t id, bool nothing_more);
  int MillisecondsToNext();

  const Take take_;
  const UniqueFd arrivals_;  // epoll: what came to the sockets, by their ids; and wake_
  const UniqueFd wake_;      // eventfd: one was added where there was none, or the end
  std::mutex mutex_;
  std::map<std::uint64_t, Guest> guests_;  // guarded by mutex_, as the two below; the oldest first
  std::uint64_t last_id_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tessera::face

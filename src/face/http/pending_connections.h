#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace tessera::face {

// Connections whose request has not arrived yet. One thread watches all of them, so that silent or slow clients block
// nobody. A connection is handed over when the head of its request has arrived or its peer has closed its end; it is
// closed when that takes longer than kLongest, or when the peer leaves without sending anything. When there are kMost
// of them, a new one replaces the oldest. Any thread.
class PendingConnections {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Nanos kLongest = 10 * kSecond;

  // `take` gets the connections that are handed over, with nothing read from them; on the thread that called Add or on
  // this object's own. It must not block.
  using Take = std::function<void(UniqueFd)>;
  explicit PendingConnections(Take take);
  // Closes those that are pending.
  ~PendingConnections();
  PendingConnections(const PendingConnections&) = delete;

  // `socket` is non-blocking.
  void Add(UniqueFd socket);

 private:
  struct Connection {
    UniqueFd socket;
    Nanos until = 0;
  };
  void Run();
  void Look(std::uint64_t id, bool peer_closed) TESSERA_EXCLUDES(mutex_);
  int MillisecondsToNext() TESSERA_EXCLUDES(mutex_);

  const Take take_;
  const UniqueFd arrivals_;  // epoll: data on the sockets, by their ids; and wake_
  const UniqueFd wake_;      // eventfd: a first connection was added, or the end
  Mutex mutex_;
  std::map<std::uint64_t, Connection> connections_ TESSERA_GUARDED_BY(mutex_);  // by id: the oldest first
  std::uint64_t last_id_ TESSERA_GUARDED_BY(mutex_) = 0;
  bool ending_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera::face

#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/record/events.h"

namespace tessera::face {

// One event as server-sent events have it (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string ToSse(const server::Event& event);

// The id of an event in streams: "STARTED-NUMBER", where STARTED tells this daemon's events from those of the one
// before it. The number that a client last saw; 0 for another daemon's, or nonsense: all that is kept is new to it.
std::uint64_t NumberOfEventId(const std::string& id);

// Connections that get events as they happen. One thread writes to all of them and never waits for one: who reads too
// slowly is behind, and is told how many it missed when they are kept no more. Any thread.
class EventStreams {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr Nanos kKeepAlive = 15 * kSecond;  // something is sent at least so often, to learn who is gone

  static constexpr Nanos kPatience = 60 * kSecond;  // with one that takes nothing of what there is

  EventStreams();
  // Closes all of them.
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;

  // Whether there is place for one more.
  bool HasRoom();
  // The head of the answer was written. Sends what comes after `number`. Closes it where there is no room any more.
  void Add(UniqueFd socket, std::uint64_t number);

 private:
  struct Stream {
    UniqueFd socket;
    std::uint64_t number = 0;  // of the last event in `unsent` or before
    std::string unsent;
    Nanos spoken = 0;
    bool gone = false;
  };
  void Run();
  static void Serve(Stream& stream, Nanos now);
  static void Fill(Stream& stream, Nanos now);

  const UniqueFd wake_;  // eventfd: news, or a new stream, or the end
  std::mutex mutex_;
  std::list<Stream> added_;  // guarded by mutex_, as the two below
  std::size_t count_ = 0;    // with those that Run has
  bool ending_ = false;
  std::thread thread_;  // from the first stream on
};

}  // namespace tessera::face

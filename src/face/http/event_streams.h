#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "server/record/events.h"

namespace tessera::face {

// An event in the format of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string ToSse(const server::Event& event);

// The number in the id of an event, "STARTED-NUMBER". STARTED distinguishes this daemon's events from those of an
// earlier one. 0 for an id of another daemon or a malformed one: then all events that are kept are new to the client.
std::uint64_t NumberOfEventId(const std::string& id);

// Connections that receive events as they happen. One thread writes to all of them and never blocks on one: a client
// that reads too slowly falls behind, and is told how many events it missed once they are no longer kept. Any thread.
class EventStreams {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr Nanos kKeepAlive = 15 * kSecond;  // longest time without sending, so that dead peers are noticed
  static constexpr Nanos kPatience = 60 * kSecond;   // a client that takes no data for so long is disconnected

  EventStreams();
  // Closes all of them.
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;

  // One of the kMost places. It is free again when this object ends.
  class Place {
   public:
    Place(Place&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(taken_, other.taken_);
      return *this;
    }
    ~Place() {
      if (taken_ != nullptr) --*taken_;
    }

   private:
    friend class EventStreams;
    explicit Place(std::atomic<std::size_t>& taken) : taken_(&taken) {}
    std::atomic<std::size_t>* taken_;
  };

  // A place for one more stream, to be taken before the head of the answer is written. None if all are taken.
  std::optional<Place> TakePlace();
  // Sends the events after `number` to a connection to which the head of the answer was written.
  void Add(Place place, UniqueFd socket, std::uint64_t number);

 private:
  struct Stream {
    Place place;
    UniqueFd socket;
    std::uint64_t number = 0;  // of the last event in `unsent` or before
    std::string unsent;
    Nanos spoken = 0;
    bool gone = false;
  };
  void Run();
  static void Serve(Stream& stream, Nanos now);
  static void Fill(Stream& stream, Nanos now);

  const UniqueFd wake_;                 // eventfd: news, or a new stream, or the end
  std::atomic<std::size_t> taken_ = 0;  // places
  Mutex mutex_;
  std::list<Stream> added_ TESSERA_GUARDED_BY(mutex_);  // Run has not taken these yet
  bool ending_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_ TESSERA_GUARDED_BY(mutex_);  // from the first stream on
};

}  // namespace tessera::face
